//! What workers publish and everybody else reads: nobody asks a worker questions.
//!
//! Only [`super::workers`] writes; the server, statistics, garbage collection and eviction read.

use crate::id::PodUid;
use crate::runtime::observed::ObservedPod;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// One pod as its worker last saw it.
#[derive(Clone, Debug)]
pub struct PodSnapshot {
    /// The desired pod as it was delivered: its own status may be an older one.
    pub pod: Arc<Pod>,
    /// The status its worker computed last.
    pub status: Arc<PodStatus>,
    /// What the runtime has of it.
    pub observed: Arc<ObservedPod>,
    /// Whether the worker still has something running or to release.
    pub active: bool,
    /// Whether nothing of it runs or can run any more: what it held of the node is free, though its object and its volumes
    /// may stay for long.
    pub ended: bool,
    /// How its worker has it.
    pub life: Life,
}

/// How a worker has its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Whether a source still has it.
    pub present: bool,
    /// Whether it is on its way to its end.
    pub ending: bool,
    /// Whether its volumes are mounted.
    pub volumes: bool,
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

    /// The pod of that name. While a pod ends beside its successor of the same name, the API's pod is meant: the younger of
    /// those still active.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<PodSnapshot>> {
        let pods = self.read();
        let named = pods.values().filter(|snapshot| {
            snapshot.pod.metadata.namespace.as_deref() == Some(namespace)
                && snapshot.pod.metadata.name.as_deref() == Some(name)
        });
        let created = |snapshot: &PodSnapshot| snapshot.pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        named
            .max_by_key(|snapshot| (snapshot.active, created(snapshot), ends_last(snapshot)))
            .cloned()
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

/// Creation times have whole seconds: of two pods of one second, the one that is not being deleted.
fn ends_last(snapshot: &PodSnapshot) -> bool {
    snapshot.pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_two_pods_of_one_name_the_younger_active_one_is_meant() {
        let earlier = "2026-01-01T00:00:00Z";
        let later = "2026-01-01T00:00:09Z";
        for (first, second, expected) in [
            ((earlier, None, true), (later, None, true), "b"),
            ((later, None, true), (earlier, None, true), "a"),
            ((earlier, None, true), (later, None, false), "a"),
            ((later, Some(later), true), (later, None, true), "b"),
            ((later, None, true), (later, Some(later), true), "a"),
        ] {
            let view = PodView::default();
            for (uid, (created, deleted, active)) in [("a", first), ("b", second)] {
                let pod = json!({"metadata": {"name": "web", "namespace": "default", "uid": uid,
                    "creationTimestamp": created, "deletionTimestamp": deleted}});
                let snapshot = PodSnapshot {
                    pod: Arc::new(serde_json::from_value(pod).unwrap()),
                    status: Arc::default(),
                    observed: Arc::new(ObservedPod::empty(PodUid::new(uid))),
                    active,
                    ended: !active,
                    life: Life::default(),
                };
                view.publish(PodUid::new(uid), snapshot);
            }
            let found = view.get("default", "web").unwrap();
            assert_eq!(
                found.pod.metadata.uid.as_deref(),
                Some(expected),
                "{first:?} {second:?}"
            );
            assert!(view.get("default", "other").is_none());
        }
    }
}
