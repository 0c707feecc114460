//! Writes that must not overtake each other, beyond what one object's revision can tell: what is made in a namespace and the
//! beginning of that namespace's end; custom resources that are made and the end of their definition; Services, whose addresses must differ from those of all other Services.
//!
//! They are taken in one order: a namespace, a definition, what charges quotas in the namespace ([`super::quota`]), the Services. Whoever
//! counts a quota has nothing of these but that namespace's charges. So what all namespaces share is never held while one of them is
//! waited for.
//!
//! Owns the locks, nothing else. A lock is held until its guard is dropped, which is after the write is stored and readers see it:
//! also when the request is given up meanwhile, for it runs in a task of its own (`verbs`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Locks by name.
type Shared = Mutex<HashMap<String, Weak<RwLock<()>>>>;

/// The locks of one API server.
#[derive(Default)]
pub(super) struct WriteLocks {
    /// By namespace; entries that nobody holds go when another is made.
    namespaces: Shared,
    /// By where the objects of a definition are kept; likewise.
    definitions: Shared,
    services: Arc<AsyncMutex<()>>,
}

impl WriteLocks {
    /// Held by a request that makes something in the namespace, from before it looks at the namespace until it is stored. Many at once.
    pub(super) async fn create_in(&self, namespace: &str) -> OwnedRwLockReadGuard<()> {
        by_name(&self.namespaces, namespace).read_owned().await
    }

    /// Held by the request that marks the namespace as terminating. Nobody makes anything in it meanwhile: what was begun before is
    /// stored, so that the content that is looked up afterwards is all there will be.
    pub(super) async fn end(&self, namespace: &str) -> OwnedRwLockWriteGuard<()> {
        by_name(&self.namespaces, namespace).write_owned().await
    }

    /// Held by a request that makes a custom resource, from before it looks whether its definition takes any until it is stored. Many at
    /// once.
    pub(super) async fn create_of(&self, prefix: &str) -> OwnedRwLockReadGuard<()> {
        by_name(&self.definitions, prefix).read_owned().await
    }

    /// Held while the objects of a definition that ends are deleted, so that none is made that the deletion does not see.
    pub(super) async fn end_of(&self, prefix: &str) -> OwnedRwLockWriteGuard<()> {
        by_name(&self.definitions, prefix).write_owned().await
    }

    /// Held by a request that writes a Service, from before it looks which addresses and ports are free. One at a time.
    pub(super) async fn write_service(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.services).lock_owned().await
    }
}

fn by_name(locks: &Shared, name: &str) -> Arc<RwLock<()>> {
    let mut all = locks.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lock) = all.get(name).and_then(Weak::upgrade) {
        return lock;
    }
    all.retain(|_, lock| lock.strong_count() > 0);
    let lock = Arc::default();
    all.insert(name.to_owned(), Arc::downgrade(&lock));
    lock
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn an_end_waits_for_what_was_begun_and_holds_what_comes_later_back() {
        let locks = WriteLocks::default();
        let (first, second) = (locks.create_in("a").await, locks.create_in("a").await);
        let mut end = Box::pin(locks.end("a"));
        assert!(end.as_mut().now_or_never().is_none());
        drop(first);
        assert!(end.as_mut().now_or_never().is_none());
        assert!(locks.create_in("b").now_or_never().is_some(), "another namespace");
        drop(second);
        let ending = end.await;
        assert!(locks.create_in("a").now_or_never().is_none());
        drop(ending);
        assert!(locks.create_in("a").now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_nobody_holds_is_forgotten() {
        let locks = WriteLocks::default();
        for number in 0..100 {
            drop(locks.create_in(&number.to_string()).await);
        }
        assert!(locks.namespaces.lock().unwrap().len() <= 1);
    }
}
