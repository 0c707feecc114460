//! The IPAddress objects of Services: made with the Service that holds an address, and gone with it (contract §12, KEP-1880).
//!
//! The Service decides who has an address; its IPAddress says so to others, and to the next allocation. Both are given to the store together,
//! and what a crash or a full disk leaves between them the repair mends ([`crate::bootstrap`]). Called by who has the Services' turn.

use super::{Call, object, store_failed};
use crate::apiserver::reader;
use crate::apiserver::status::ApiError;
use crate::resource::field::{set, text};
use crate::resource::service::{ALLOCATOR, MANAGED_BY, address_object, held_addresses};
use crate::store::value::canonical;
use crate::store::{Expect, Revision, StoreError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

const GROUP: &str = "networking.k8s.io";
const PLURAL: &str = "ipaddresses";

/// What was noted for a write: keys with their revisions.
pub(super) type Noted = Vec<(String, Revision)>;

impl Call<'_> {
    /// Makes the IPAddresses of what `new` holds and `old` does not. One that cannot be made is left to the repair.
    pub(super) async fn note_addresses(&self, new: &Value, old: Option<&Value>) -> Noted {
        let had = old.map(held_addresses).unwrap_or_default();
        let wanted: BTreeSet<IpAddr> = match object::is_service(&self.kind) {
            true => held_addresses(new).difference(&had).copied().collect(),
            false => return Noted::new(),
        };
        let mut noted = Noted::new();
        for ip in wanted {
            match self.note(ip, new).await {
                Ok(made) => noted.extend(made),
                Err(error) => tracing::warn!(%ip, %error, "an IPAddress cannot be made now, and will be repaired"),
            }
        }
        noted
    }

    async fn note(&self, ip: IpAddr, service: &Value) -> Result<Option<(String, Revision)>, StoreError> {
        let resource = self.served.resource(GROUP, PLURAL);
        let kind = self.served.registry().by_resource(GROUP, "v1", PLURAL);
        let (Some(resource), Some(kind)) = (resource, kind) else {
            return Ok(None);
        };
        let key = reader::key(&resource.prefix, "", &ip.to_string());
        if resource.window.cached().objects.contains_key(key.as_str()) {
            return Ok(None);
        }
        let mut address = address_object(ip, text(service, &["metadata", "namespace"]), object::name(service));
        set(&mut address, &["metadata", "uid"], self.server.uuid());
        let made = object::time(self.server.now());
        set(&mut address, &["metadata", "creationTimestamp"], json!(made));
        set(&mut address, &["metadata", "generation"], 1);
        let raw = canonical(&reader::stored_as(kind), &address);
        match self.server.store().put(&key, raw.into(), Expect::Absent).await {
            Ok(revision) => {
                resource.window.reach(revision).await?;
                Ok(Some((key, revision)))
            }
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes back what was noted for a write that was refused.
    pub(super) async fn forget_addresses(&self, noted: Noted) {
        for (key, revision) in noted {
            let gone = self.server.store().delete(&key, revision).await;
            if let Err(error) = gone {
                tracing::debug!(key, %error, "an IPAddress of a refused Service stays until it is repaired");
            }
        }
    }

    /// Removes the IPAddresses of what `old` held and `new` does not. Readers see them gone when this returns.
    ///
    /// # Errors
    /// If readers cannot be waited for: the store is closed.
    pub(super) async fn free_addresses(&self, old: &Value, new: Option<&Value>) -> Result<(), ApiError> {
        if !object::is_service(&self.kind) {
            return Ok(());
        }
        let keeps = new.map(held_addresses).unwrap_or_default();
        for ip in held_addresses(old).difference(&keeps) {
            let freed = self.free(*ip, old).await;
            freed.map_err(|error| store_failed(&error))?;
        }
        Ok(())
    }

    async fn free(&self, ip: IpAddr, service: &Value) -> Result<(), StoreError> {
        let Some(resource) = self.served.resource(GROUP, PLURAL) else {
            return Ok(());
        };
        let key = reader::key(&resource.prefix, "", &ip.to_string());
        let Some(stored) = resource.window.cached().objects.get(key.as_str()).map(Arc::clone) else {
            return Ok(());
        };
        if !is_of(&stored.tree(), service) {
            return Ok(());
        }
        match self.server.store().delete(&key, stored.revision).await {
            Ok(revision) => resource.window.reach(revision).await,
            // Somebody else wrote it, or it cannot be removed now: the repair looks at it.
            Err(StoreError::Closed) => Err(StoreError::Closed),
            Err(_) => Ok(()),
        }
    }
}

/// Whether the IPAddress was made for the Service.
fn is_of(address: &Value, service: &Value) -> bool {
    let parent = |key| text(address, &["spec", "parentRef", key]);
    let meta = |key| text(service, &["metadata", key]);
    text(address, &["metadata", "labels", MANAGED_BY]) == ALLOCATOR
        && parent("resource") == "services"
        && (parent("namespace"), parent("name")) == (meta("namespace"), meta("name"))
}
