//! What a write of one API server claims or asks of the store where others write there, too ([`crate::store::Store::is_shared`]): their
//! locks are not this process's, and what it reads in memory may be behind them.
//!
//! The addresses and node ports of a Service are claimed before it is written, each by a write that one alone can do; what
//! is made in a namespace, or of a definition, is made only if that has not changed since it was judged.

use super::addresses::Noted;
use super::quota::Unwritten;
use super::{Call, object, store_failed};
use crate::apiserver::port_claims;
use crate::apiserver::status::ApiError;
use crate::apiserver::{admission, reader};
use crate::resource::field::{at, int, list};
use crate::resource::field_error::FieldError;
use crate::resource::service::{held_addresses, held_ports};
use crate::store::window::Stored;
use crate::store::{Expect, Revision, StoreError};
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How often a write begins again because what it was judged by, or had chosen, is another's now.
pub(super) const CONTENTIONS: usize = 8;

/// Why a new object is not stored.
pub(super) enum NotPut {
    /// There is one of its name.
    Exists(Value),
    /// It was refused, or the store failed.
    Failed(Unwritten),
}

impl From<ApiError> for NotPut {
    fn from(error: ApiError) -> Self {
        Self::Failed(error.into())
    }
}

/// A key and the revision of its last write.
type Unchanged = Vec<(String, Revision)>;

impl Call<'_> {
    pub(super) fn is_shared(&self) -> bool {
        self.server.store().is_shared()
    }

    /// Waits until readers see all that was written before by anybody.
    pub(super) async fn caught_up(&self) -> Result<(), ApiError> {
        let latest = self.window.latest().await;
        latest.map(drop).map_err(|error| store_failed(&error))
    }

    fn seen_in(&self, group: &str, plural: &str, name: &str) -> Option<Arc<Stored>> {
        let resource = self.served.resource(group, plural)?;
        let key = reader::key(&resource.prefix, "", name);
        resource.window.cached().objects.get(key.as_str()).map(Arc::clone)
    }

    fn namespace_seen(&self) -> Option<Arc<Stored>> {
        self.seen_in("", "namespaces", self.namespace)
    }

    /// Stores a new object; where others write too, only if its namespace and its definition are still as they let it in, and what was
    /// claimed for it is so still.
    pub(super) async fn put_new(
        &self,
        key: &str,
        object: &Value,
        raw: Bytes,
        noted: &Noted,
    ) -> Result<Revision, NotPut> {
        let store = self.server.store();
        let mut behind: Option<StoreError> = None;
        for _ in 0..CONTENTIONS {
            let unchanged = match self.is_shared() {
                true => self.judged_by(object::name(object), noted)?,
                false => Unchanged::new(),
            };
            let put = match unchanged.is_empty() {
                true => store.put(key, raw.clone(), Expect::Absent).await,
                false => store.put_if(key, raw.clone(), Expect::Absent, &unchanged).await,
            };
            match put {
                Ok(revision) => return Ok(revision),
                Err(StoreError::Conflict { key: other, .. }) if noted.is_claim(&other) => {
                    return Err(claim_lost(object, &other).into());
                }
                Err(StoreError::Conflict { key: other, current }) if unchanged.iter().any(|(key, _)| *key == other) => {
                    behind = Some(StoreError::Conflict { key: other, current });
                    self.caught_up().await?;
                }
                Err(StoreError::Conflict { current, .. }) => {
                    let existing = current.map_or(Value::Null, |record| Stored::from(record).tree());
                    return Err(NotPut::Exists(existing));
                }
                Err(error) => return Err(NotPut::Failed(Unwritten::by_store(&error))),
            }
        }
        Err(NotPut::Failed(Unwritten::by_store(
            &behind.unwrap_or(StoreError::Closed),
        )))
    }

    /// What must not change until the new object is stored, which it admits as it is seen now.
    fn judged_by(&self, name: &str, noted: &Noted) -> Result<Unchanged, ApiError> {
        let mut unchanged = noted.claims.clone();
        let of = |stored: &Stored| (stored.key.to_string(), stored.revision);
        if !self.namespace.is_empty() {
            let namespace = self.namespace_seen();
            let attributes = self.attributes(super::Operation::Create, name, false);
            admission::still_admits(&attributes, namespace.as_ref().map(|seen| seen.value()).as_deref())?;
            unchanged.extend(namespace.as_deref().map(of));
        }
        if self.kind.structural.is_some() {
            let own = format!("{}.{}", self.kind.plural, self.kind.group);
            let definition = self.seen_in("apiextensions.k8s.io", "customresourcedefinitions", &own);
            let Some(definition) = definition else {
                return Err(self.not_found(name));
            };
            if !at(&definition.value(), &["metadata", "deletionTimestamp"]).is_null() {
                return Err(super::definition_ends());
            }
            unchanged.push(of(&definition));
        }
        Ok(unchanged)
    }

    /// Claims the addresses and node ports that `new` holds and `old` does not, all or none.
    ///
    /// # Errors
    /// 422 in upstream's words, marked as contended, where another has one of them.
    pub(super) async fn claim(&self, new: &Value, old: Option<&Value>) -> Result<Noted, Unwritten> {
        let mut noted = Noted::default();
        if !object::is_service(&self.kind) {
            return Ok(noted);
        }
        match self.claim_all(new, old, &mut noted).await {
            Ok(()) => Ok(noted),
            Err(why) => {
                self.forget_addresses(noted, None).await;
                Err(why)
            }
        }
    }

    async fn claim_all(&self, new: &Value, old: Option<&Value>, noted: &mut Noted) -> Result<(), Unwritten> {
        let had = old.map(held_addresses).unwrap_or_default();
        for ip in held_addresses(new).difference(&had) {
            let note = self.note(*ip, new).await.map_err(|error| Unwritten::by_store(&error))?;
            if !noted.keep(note) {
                return Err(contended(new, address_taken(new, &ip.to_string())).into());
            }
        }
        let had = old.map(held_ports).unwrap_or_default();
        let ports: BTreeSet<u16> = held_ports(new).difference(&had).copied().collect();
        if ports.is_empty() {
            return Ok(());
        }
        let claimed = port_claims::claim(&**self.server.store(), &ports).await;
        match claimed.map_err(|error| Unwritten::by_store(&error))? {
            Ok(()) => {
                noted.ports = ports;
                Ok(())
            }
            Err(port) => Err(contended(new, port_taken(new, port)).into()),
        }
    }

    /// Takes back what was noted for a write that failed; of what others may see, only if it is certain that it is not stored.
    pub(super) async fn forget_unwritten(&self, noted: Noted, why: &Unwritten) {
        if !(self.is_shared() && why.is_uncertain) {
            self.forget_addresses(noted, None).await;
        }
    }

    /// Marks node ports as free. What cannot be marked now is repaired.
    pub(super) async fn release_ports(&self, ports: &BTreeSet<u16>) {
        if ports.is_empty() || !self.is_shared() {
            return;
        }
        if let Err(error) = port_claims::release(&**self.server.store(), ports).await {
            tracing::warn!(?ports, %error, "node ports that are free stay marked until that is repaired");
        }
    }
}

/// Another wrote over, or removed, the IPAddress that was claimed.
pub(super) fn claim_lost(service: &Value, key: &str) -> ApiError {
    let ip = key.rsplit('/').next().unwrap_or_default();
    contended(service, address_taken(service, ip))
}

fn contended(service: &Value, why: FieldError) -> ApiError {
    let mut error = ApiError::invalid("", "Service", object::name(service), vec![why]);
    error.is_contended = true;
    error
}

fn address_taken(service: &Value, ip: &str) -> FieldError {
    let why = format!("failed to allocate IP {ip}: provided IP is already allocated");
    FieldError::invalid_value("spec.clusterIPs", at(service, &["spec", "clusterIPs"]), why)
}

fn port_taken(service: &Value, port: u16) -> FieldError {
    let mut ports = list(service, &["spec", "ports"]).iter();
    let place = ports.position(|own| int(own, &["nodePort"]) == Some(i64::from(port)));
    let field = place.map_or("spec.healthCheckNodePort".to_owned(), |place| {
        format!("spec.ports[{place}].nodePort")
    });
    FieldError::invalid(field, port, "provided port is already allocated")
}
