//! The IPAddress objects of Services: made with the Service that holds an address, and gone with it (contract §12, KEP-1880).
//!
//! The Service decides who has an address; its IPAddress says so to others, and to the next allocation. Both are given to the store together
//! (where several API servers share it, the IPAddress first: it is the claim, see [`super::shared`]), and what a crash or a full disk leaves between them the repair mends ([`crate::bootstrap`]). Called by who has the Services' turn.

use super::{Call, object, store_failed};
use crate::apiserver::reader;
use crate::apiserver::status::ApiError;
use crate::resource::field::{set, text};
use crate::resource::service::{ALLOCATOR, MANAGED_BY, address_object, held_addresses, held_ports};
use crate::store::value::canonical;
use crate::store::window::Stored;
use crate::store::{Expect, Revision, StoreError};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

const GROUP: &str = "networking.k8s.io";
const PLURAL: &str = "ipaddresses";

/// What was noted for a write.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Keys of IPAddresses that were made, with their revisions.
    pub(super) addresses: Vec<(String, Revision)>,
    /// Those of all that were claimed, made or written over: what the Service's write stands on where the store is shared.
    pub(super) claims: Vec<(String, Revision)>,
    /// Node ports that were claimed: where the store is shared.
    pub(super) ports: BTreeSet<u16>,
}

/// How an IPAddress was noted: with its key and its revision, if it was written.
pub(super) enum Note {
    /// It was not there.
    Made(String, Revision),
    /// It was this Service's already, and was written over.
    Renewed(String, Revision),
    /// It was there, and nobody else writes.
    There,
    /// It is somebody else's.
    Others,
}

impl Noted {
    /// Keeps what was noted; `false` if that was nothing, because it is somebody else's.
    pub(super) fn keep(&mut self, note: Note) -> bool {
        match note {
            Note::Made(key, revision) => {
                self.claims.push((key.clone(), revision));
                self.addresses.push((key, revision));
            }
            Note::Renewed(key, revision) => self.claims.push((key, revision)),
            Note::There => {}
            Note::Others => return false,
        }
        true
    }

    /// Whether the Service's write stands on what is under this key.
    pub(super) fn is_claim(&self, key: &str) -> bool {
        self.claims.iter().any(|(claim, _)| claim == key)
    }
}

impl Call<'_> {
    /// Makes the IPAddresses of what `new` holds and `old` does not. One that cannot be made is left to the repair.
    pub(super) async fn note_addresses(&self, new: &Value, old: Option<&Value>) -> Noted {
        let had = old.map(held_addresses).unwrap_or_default();
        let wanted: BTreeSet<IpAddr> = match object::is_service(&self.kind) {
            true => held_addresses(new).difference(&had).copied().collect(),
            false => return Noted::default(),
        };
        let mut noted = Noted::default();
        for ip in wanted {
            match self.note(ip, new).await {
                Ok(note) => drop(noted.keep(note)),
                Err(error) => tracing::warn!(%ip, %error, "an IPAddress cannot be made now, and will be repaired"),
            }
        }
        noted
    }

    /// Makes one.
    pub(super) async fn note(&self, ip: IpAddr, service: &Value) -> Result<Note, StoreError> {
        let resource = self.served.resource(GROUP, PLURAL);
        let kind = self.served.registry().by_resource(GROUP, "v1", PLURAL);
        let (Some(resource), Some(kind)) = (resource, kind) else {
            return Ok(Note::There);
        };
        let key = reader::key(&resource.prefix, "", &ip.to_string());
        if !self.is_shared() && resource.window.cached().objects.contains_key(key.as_str()) {
            return Ok(Note::There);
        }
        let mut address = address_object(ip, text(service, &["metadata", "namespace"]), object::name(service));
        set(&mut address, &["metadata", "uid"], self.server.uuid());
        let made = object::time(self.server.now());
        set(&mut address, &["metadata", "creationTimestamp"], json!(made));
        set(&mut address, &["metadata", "generation"], 1);
        let raw = canonical(&reader::stored_as(kind), &address);
        let raw = Bytes::from(raw);
        match self.server.store().put(&key, raw.clone(), Expect::Absent).await {
            Ok(revision) => {
                resource.window.reach(revision).await?;
                Ok(Note::Made(key, revision))
            }
            Err(StoreError::Conflict {
                current: Some(record), ..
            }) if self.is_shared() => {
                let held_at = record.modified;
                if !is_of(&Stored::from(record).tree(), service) {
                    return Ok(Note::Others);
                }
                // Left of a Service of this name, or another's claim for it: written over, so that whoever frees what it saw frees
                // nothing any more.
                match self.server.store().put(&key, raw, Expect::At(held_at)).await {
                    Ok(revision) => Ok(Note::Renewed(key, revision)),
                    Err(StoreError::Conflict { .. }) => Ok(Note::Others),
                    Err(error) => Err(error),
                }
            }
            Err(StoreError::Conflict { .. }) => match self.is_shared() {
                true => Ok(Note::Others),
                false => Ok(Note::There),
            },
            Err(error) => Err(error),
        }
    }

    /// Takes back what was noted for a write that was refused, but for what `holder` has: who was faster under the same name.
    pub(super) async fn forget_addresses(&self, noted: Noted, holder: Option<&Value>) {
        let held = holder.map(held_addresses).unwrap_or_default();
        let ports = holder.map(held_ports).unwrap_or_default();
        self.release_ports(&noted.ports.difference(&ports).copied().collect())
            .await;
        let is_held = |key: &str| {
            key.rsplit('/')
                .next()
                .and_then(|ip| ip.parse().ok())
                .is_some_and(|ip| held.contains(&ip))
        };
        for (key, revision) in noted.addresses.into_iter().filter(|(key, _)| !is_held(key)) {
            let gone = self.server.store().delete(&key, revision).await;
            if let Err(error) = gone {
                tracing::debug!(key, %error, "an IPAddress of a refused Service stays until it is repaired");
            }
        }
    }

    /// Removes the IPAddresses of what `old`, written at `held_since`, held and `new` does not. Readers see them gone when this returns.
    ///
    /// # Errors
    /// If readers cannot be waited for: the store is closed.
    pub(super) async fn free_addresses(
        &self,
        (old, held_since): (&Value, Revision),
        new: Option<&Value>,
    ) -> Result<(), ApiError> {
        if !object::is_service(&self.kind) {
            return Ok(());
        }
        let keeps = new.map(held_addresses).unwrap_or_default();
        for ip in held_addresses(old).difference(&keeps) {
            let freed = self.free(*ip, (old, held_since)).await;
            freed.map_err(|error| store_failed(&error))?;
        }
        let keeps = new.map(held_ports).unwrap_or_default();
        self.release_ports(&held_ports(old).difference(&keeps).copied().collect())
            .await;
        Ok(())
    }

    async fn free(&self, ip: IpAddr, (service, held_since): (&Value, Revision)) -> Result<(), StoreError> {
        let Some(resource) = self.served.resource(GROUP, PLURAL) else {
            return Ok(());
        };
        let key = reader::key(&resource.prefix, "", &ip.to_string());
        let snapshot = match self.is_shared() {
            true => resource.window.latest().await?,
            false => resource.window.cached(),
        };
        let Some(stored) = snapshot.objects.get(key.as_str()).map(Arc::clone) else {
            return Ok(());
        };
        // What a Service holds was claimed before it was written: a later write of the IPAddress is another server's claim for a Service
        // that is made anew under this name. Should nobody hold it in the end, the repair removes it.
        let is_claimed_anew = self.is_shared() && stored.revision > held_since;
        if is_claimed_anew || !is_of(&stored.tree(), service) {
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
