//! What workers publish and everybody else reads: nobody asks a worker questions.
//!
//! Only [`super::workers`] writes; the server, statistics, garbage collection and eviction read.

use crate::id::PodUid;
use crate::runtime::observed::ObservedPod;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// One pod as its worker last saw it.
#[derive(Clone, Debug)]
pub struct PodSnapshot {
    /// The desired pod, with the status its worker computed last.
    pub pod: Arc<Pod>,
    /// What the runtime has of it.
    pub observed: Arc<ObservedPod>,
    /// Whether the worker still has something running or to release.
    pub active: bool,
}

/// The published pods. Cheap to clone; reads never wait on a worker.
#[derive(Clone, Debug, Default)]
pub struct PodView {
    pods: Arc<RwLock<BTreeMap<PodUid, Arc<PodSnapshot>>>>,
}

impl PodView {
    /// Every published pod, ordered by UID.
    pub fn list(&self) -> Vec<Arc<PodSnapshot>> {
        self.read().values().cloned().collect()
    }

    /// The pod of that UID.
    pub fn by_uid(&self, uid: &PodUid) -> Option<Arc<PodSnapshot>> {
        self.read().get(uid).cloned()
    }

    /// The pod of that name. While a pod ends and its successor of the same name waits, the one still active is meant.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<PodSnapshot>> {
        let pods = self.read();
        let mut named = pods.values().filter(|snapshot| {
            snapshot.pod.metadata.namespace.as_deref() == Some(namespace)
                && snapshot.pod.metadata.name.as_deref() == Some(name)
        });
        let first = named.next()?;
        Some(named.find(|s| s.active && !first.active).unwrap_or(first).clone())
    }

    /// Publishes a worker's snapshot.
    pub fn publish(&self, uid: PodUid, snapshot: PodSnapshot) {
        self.write().insert(uid, Arc::new(snapshot));
    }

    /// Forgets a pod.
    pub fn remove(&self, uid: &PodUid) {
        self.write().remove(uid);
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<PodUid, Arc<PodSnapshot>>> {
        self.pods.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<PodUid, Arc<PodSnapshot>>> {
        self.pods.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
