//! ResourceQuota (control-plane contract §7): what a write adds to a quota is in the quota's status, on disk, before the write is.
//!
//! Owns the order of charges. All that is charged in a namespace goes through one turn: whoever has it charges everything that waits, in one
//! write of each quota, over the revision it was judged by. A write holds the namespace's [`Charge`] until it is stored or refused;
//! a quota's status is written by others only while nobody holds one, and never says less than what is stored then
//! ([`Charges::never_less`]). The order of locks is that of [`super::write_locks`]: who counts in a namespace keeps its writes
//! waiting, and nobody else's. So what is stored never exceeds a quota, whatever its controller has not seen yet. What a crash leaves
//! charged and not stored, the controller counts anew. The rules themselves are [`crate::quota`].

use super::admission::{Attributes, Operation};
use super::reader;
use super::served::{Resource, Served};
use super::state::ServerState;
use super::status::ApiError;
use crate::quota::{Demand, Evaluator, Item, Quota, Usage};
use crate::store::value::{TypeMeta, canonical_owned};
use crate::store::window::Stored;
use crate::store::{Expect, StoreError};
use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot};

mod batch;
mod count;

#[cfg(test)]
mod tests;

/// How long a write waits for the first status of a quota it falls under (upstream waits as long for its evaluation).
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a charge begins again after somebody else wrote the quota.
const ATTEMPTS: usize = 100;

/// The charges of one API server.
#[derive(Default)]
pub(super) struct Charges {
    /// By namespace; entries that nobody holds go when another is made.
    namespaces: Mutex<HashMap<String, Weak<Namespace>>>,
}

/// What orders the charges in one namespace.
#[derive(Default)]
struct Namespace {
    /// Read: a write between its charge and the store. Write: somebody counts anew.
    fence: Arc<RwLock<()>>,
    turn: AsyncMutex<()>,
    waiting: Mutex<Vec<Waiting>>,
}

/// A demand that waits for the turn.
struct Waiting {
    demand: Arc<Demand>,
    dry_run: bool,
    answer: oneshot::Sender<Result<Vec<Taken>, Refusal>>,
}

/// What was charged to one quota.
#[derive(Clone, Debug)]
struct Taken {
    /// The quota's key.
    key: Arc<str>,
    added: Usage,
}

/// Why nothing is charged.
#[derive(Clone, Debug)]
enum Refusal {
    /// A quota is against it.
    Quota(String),
    /// It cannot be told.
    Failed(String),
}

/// Had by a write from before its charge until it is stored or refused: nobody counts meanwhile. Once for each write: whoever has one
/// and waits for another waits for a counter, who waits for the first.
#[derive(Clone)]
pub(super) struct Entry {
    space: Arc<Namespace>,
    _fence: Arc<OwnedRwLockReadGuard<()>>,
}

/// What is charged for a write; held until the write is stored or refused.
pub(super) struct Charge {
    entry: Entry,
    taken: Vec<Taken>,
}

/// Held while a quota's status is written: nothing is charged, and everything charged is stored.
pub(super) struct Counting {
    _fence: OwnedRwLockWriteGuard<()>,
    _space: Arc<Namespace>,
}

/// Who measures a write, if it can add to a quota.
fn evaluator_of(attributes: &Attributes<'_>) -> Option<Evaluator> {
    if attributes.namespace.is_empty() || !attributes.kind.namespaced {
        return None;
    }
    let (part, create) = (attributes.info.subresource.as_str(), Operation::Create);
    let evaluator = Evaluator::of(&attributes.kind.group, &attributes.kind.plural)?;
    let adds = match (&evaluator, part) {
        (Evaluator::Pods, "resize") => attributes.operation == Operation::Update,
        (Evaluator::Services | Evaluator::Claims, "") => {
            matches!(attributes.operation, Operation::Create | Operation::Update)
        }
        (_, "") => attributes.operation == create,
        _ => false,
    };
    adds.then_some(evaluator)
}

/// The quotas of a namespace that have been read from memory.
fn quotas(served: &Served, namespace: &str) -> Vec<Arc<Stored>> {
    let Some(resource) = served.resource("", "resourcequotas") else {
        return Vec::new();
    };
    below(resource, namespace)
}

/// The objects of a resource in a namespace.
fn below(resource: &Resource, namespace: &str) -> Vec<Arc<Stored>> {
    let prefix = reader::key(&resource.prefix, namespace, "");
    let objects = resource.window.cached().objects;
    let from = std::ops::Bound::Included(prefix.as_str());
    let found = objects.range::<_, str>((from, std::ops::Bound::Unbounded));
    found
        .take_while(|(key, _)| key.starts_with(&prefix))
        .map(|(_, stored)| Arc::clone(stored))
        .collect()
}

/// The quota that stored bytes say; what cannot be read bounds nothing, and is told of when it is shown.
fn read(stored: &Stored) -> Quota {
    let quota: ResourceQuota = serde_json::from_slice(&stored.raw()).unwrap_or_else(|error| {
        tracing::error!(key = %stored.key, %error, "a quota cannot be read and bounds nothing");
        ResourceQuota::default()
    });
    Quota::of(&quota)
}

impl Charges {
    fn namespace(&self, name: &str) -> Arc<Namespace> {
        let mut all = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(space) = all.get(name).and_then(Weak::upgrade) {
            return space;
        }
        all.retain(|_, space| space.strong_count() > 0);
        let space = Arc::default();
        all.insert(name.to_owned(), Arc::downgrade(&space));
        space
    }

    /// Waits until nothing is between its charge and the store, and holds new charges back.
    pub(super) async fn count(&self, namespace: &str) -> Counting {
        let space = self.namespace(namespace);
        let fence = Arc::clone(&space.fence).write_owned().await;
        Counting {
            _fence: fence,
            _space: space,
        }
    }

    /// Waits, for [`PATIENCE`] at most, until the quotas that the write falls under have been counted once. Before any lock is taken.
    pub(super) async fn known(&self, attributes: &Attributes<'_>, served: &Served) {
        let Some(evaluator) = evaluator_of(attributes) else {
            return;
        };
        let waits = || {
            let all = quotas(served, attributes.namespace);
            all.iter().any(|stored| read(stored).awaits_status(&evaluator))
        };
        if !waits() {
            return;
        }
        let Some(resource) = served.resource("", "resourcequotas") else {
            return;
        };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut changes = resource.window.changes();
        // Watched before it is looked at again: what changes in between is seen by one of the two.
        while waits() {
            if !matches!(tokio::time::timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// Waits until nobody counts in the namespace. `None` for what no quota can count.
    pub(super) async fn enter(&self, attributes: &Attributes<'_>) -> Option<Entry> {
        evaluator_of(attributes)?;
        let space = self.namespace(attributes.namespace);
        let fence = Arc::clone(&space.fence).read_owned().await;
        Some(Entry {
            space,
            _fence: Arc::new(fence),
        })
    }

    /// Charges what the write adds to the quotas of its namespace, which it has entered. `None` for what no quota can count.
    ///
    /// # Errors
    /// 403 with upstream's text where a quota refuses; 500 where the store does.
    pub(super) async fn charge(
        &self,
        server: &ServerState,
        served: &Served,
        attributes: &Attributes<'_>,
        entry: Entry,
        (new, old): (&Value, Option<&Value>),
    ) -> Result<Option<Charge>, ApiError> {
        let Some(evaluator) = evaluator_of(attributes) else {
            return Ok(None);
        };
        let mut charge = Charge {
            entry,
            taken: Vec::new(),
        };
        let known = quotas(served, attributes.namespace);
        if known.is_empty() {
            return Ok(Some(charge));
        }
        let demand = demand(evaluator, new, old, server.now())?;
        let concerned = known.iter().any(|stored| {
            let added = demand.on(&read(stored));
            !added.is_ok_and(|added| added.is_empty())
        });
        if !concerned {
            return Ok(Some(charge));
        }
        let (answer, told) = oneshot::channel();
        let waiting = Waiting {
            demand: Arc::new(demand),
            dry_run: attributes.dry_run,
            answer,
        };
        let space = &charge.entry.space;
        lock(&space.waiting).push(waiting);
        let turn = space.turn.lock().await;
        let all = std::mem::take(&mut *lock(&space.waiting));
        if !all.is_empty() {
            batch::settle(server, served, attributes.namespace, all).await;
        }
        drop(turn);
        match told.await {
            Ok(Ok(taken)) => charge.taken = taken,
            Ok(Err(Refusal::Quota(why))) => return Err(forbidden(attributes, &why)),
            Ok(Err(Refusal::Failed(why))) => return Err(ApiError::internal(why)),
            Err(_) => return Err(ApiError::internal("resource quota evaluation timed out")),
        }
        Ok(Some(charge))
    }

    /// Raises what a quota's new status says is used to what the stored objects use, where `old` does not prove that it covers them.
    /// Only while [`Counting`] is held.
    ///
    /// # Errors
    /// If the store cannot tell what there is.
    pub(super) async fn never_less(
        &self,
        served: &Served,
        namespace: &str,
        (quota, old): (&mut Value, &Value),
        now: Timestamp,
    ) -> Result<(), StoreError> {
        count::raise(served, namespace, (quota, old), now).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forbidden(attributes: &Attributes<'_>, why: &str) -> ApiError {
    let kind = attributes.kind;
    ApiError::forbidden(&kind.group, &kind.plural, attributes.name, why)
}

fn demand(evaluator: Evaluator, new: &Value, old: Option<&Value>, now: Timestamp) -> Result<Demand, ApiError> {
    let read = |object: &Value| Item::read(&evaluator, object).map_err(ApiError::internal);
    Ok(Demand {
        new: read(new)?,
        old: old.map(read).transpose()?,
        evaluator,
        now,
    })
}

impl Charge {
    /// Takes the charge back: the write was refused for certain.
    pub(super) async fn give_back(self, server: &ServerState, served: &Served) {
        let _turn = self.entry.space.turn.lock().await;
        batch::give_back(server, served, &self.taken).await;
    }
}

/// Why what a quota says is used is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    Charge,
    /// A write that was refused is taken back: also when the disk is nearly full, which may be why.
    GiveBack,
}

/// Writes what a quota says is used over its revision. Waits until readers see it.
async fn write(
    server: &ServerState,
    served: &Served,
    stored: &Stored,
    (writing, used): (Writing, &Usage),
) -> Result<(), StoreError> {
    let mut object = stored.tree();
    let used: serde_json::Map<String, Value> = used
        .iter()
        .map(|(name, amount)| (name.clone(), json!(amount.to_string())))
        .collect();
    object["status"]["used"] = Value::Object(used);
    let of = TypeMeta::new("v1", "ResourceQuota");
    let raw = Bytes::from(canonical_owned(&of, &object, stored.owners().as_deref()));
    let store = server.store();
    let revision = match writing {
        Writing::Charge => store.put(&stored.key, raw, Expect::At(stored.revision)).await?,
        Writing::GiveBack => store.put_for_deletion(&stored.key, raw, stored.revision).await?,
    };
    match served.resource("", "resourcequotas") {
        Some(resource) => resource.window.reach(revision).await,
        None => Ok(()),
    }
}
