//! Pod garbage collection: pods that nobody will ever finish.
//!
//! Source: control-plane contract §12. Pods on nodes that do not exist (after 40 s of quarantine), and unscheduled pods that are
//! being deleted; pods being deleted on nodes that are marked out of service; the oldest of more than 12,500 terminated pods.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::pod;
use super::write::{self, PatchKind, Plan, Verb, Write};
use crate::held::Node;
use crate::held::Pod;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proto::api::condition;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a node must be missing before its pods count as orphaned.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Terminated pods that may stay (`--terminated-pod-gc-threshold`).
pub const TERMINATED: usize = 12_500;
/// How often terminated pods are counted.
const COUNT_EVERY: Duration = Duration::from_secs(20);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The key that stands for all terminated pods; no pod is called so.
fn all_terminated() -> Key {
    Key::new("", "")
}

/// The controller. Its keys are pods.
pub struct PodGc {
    /// The shared informers.
    pub informers: Informers,
    /// The nodes that pods are on and that are not there.
    pub missing: Arc<Mutex<Missing>>,
    /// Terminated pods that may stay.
    pub terminated: usize,
    /// When terminated pods were counted last.
    pub counted: Mutex<Option<Timestamp>>,
}

/// Since when nodes are missing.
#[derive(Debug, Default)]
pub struct Missing {
    since: BTreeMap<String, Timestamp>,
    /// When names that no pod has were dropped last.
    swept: Option<Timestamp>,
}

impl Missing {
    /// Since when the node is missing, which it is now. `used` names the nodes that pods are on: others are forgotten now and then, so
    /// that no more names are kept than there are pods.
    fn since(&mut self, node: &str, now: Timestamp, used: impl FnOnce() -> BTreeSet<String>) -> Timestamp {
        if !self.since.contains_key(node) {
            let age = self
                .swept
                .map(|last| Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO));
            if age.is_none_or(|age| age >= COUNT_EVERY) {
                self.keep(&used());
                self.swept = Some(now);
            }
        }
        *self.since.entry(node.to_owned()).or_insert(now)
    }

    /// Forgets all but these.
    fn keep(&mut self, used: &BTreeSet<String>) {
        self.since.retain(|node, _| used.contains(node));
    }

    /// The node is there: when it goes again, its pods have their time again.
    fn found(&mut self, node: &str) {
        self.since.remove(node);
    }
}

/// The nodes that pods are on.
fn used(pods: &[Arc<Pod>]) -> BTreeSet<String> {
    pods.iter().map(|pod| pod::node_name(pod).to_owned()).collect()
}

/// Whether somebody said that the node will not come back.
fn is_out_of_service(node: &Node) -> bool {
    let mut taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    taints.any(|taint| taint.key == OUT_OF_SERVICE) && !condition::is_true(conditions, "Ready")
}

impl PodGc {
    /// Counts the terminated pods, and deletes those that are too many.
    fn count(&self, now: Timestamp) -> Plan {
        let mut counted = self.counted.lock().expect("no holder of this lock panics");
        let age = counted.and_then(|last| Duration::try_from(now.duration_since(last)).ok());
        if let Some(age) = age.filter(|age| *age < COUNT_EVERY) {
            return Plan {
                again_in: Some(COUNT_EVERY - age),
                ..Plan::default()
            };
        }
        *counted = Some(now);
        let pods = self.informers.pods.list();
        self.missing
            .lock()
            .expect("no holder of this lock panics")
            .keep(&used(&pods));
        Plan {
            writes: surplus(pods, self.terminated),
            ..Plan::default()
        }
    }
}

/// Deletes what is beyond `most` of the terminated pods: evicted ones first, then the oldest.
fn surplus(pods: Vec<Arc<Pod>>, most: usize) -> Vec<Write> {
    let mut terminated: Vec<Arc<Pod>> = pods.into_iter().filter(|pod| pod::is_terminal(pod)).collect();
    let too_many = terminated.len().saturating_sub(most);
    if too_many == 0 {
        return Vec::new();
    }
    terminated.sort_by_key(|pod| {
        let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (reason != Some("Evicted"), created, Key::of(&**pod))
    });
    terminated.iter().take(too_many).map(|pod| force_delete(pod)).collect()
}

impl Controller for PodGc {
    const NAME: &'static str = "pod-garbage-collector";

    fn wire(&self, wiring: &mut Wiring) {
        let nodes = self.informers.nodes.clone();
        wiring.on(&self.informers.pods, move |change| {
            let Some(new) = &change.new else { return vec![] };
            let name = pod::node_name(new);
            let node = nodes.get("", name);
            let is_ending = new.metadata.deletion_timestamp.is_some();
            let asks = match node {
                None if name.is_empty() => is_ending,
                None => true,
                Some(node) => is_ending && is_out_of_service(&node),
            };
            let mut keys: Vec<Key> = asks.then(|| change.key.clone()).into_iter().collect();
            if pod::is_terminal(new) && !change.old.as_ref().is_some_and(|old| pod::is_terminal(old)) {
                keys.push(all_terminated());
            }
            keys
        });
        let (pods, missing) = (self.informers.pods.clone(), self.missing.clone());
        wiring.on(&self.informers.nodes, move |change| {
            if change.new.is_some() {
                let mut missing = missing.lock().expect("no holder of this lock panics");
                missing.found(&change.key.name);
            }
            if change.new.as_ref().is_some_and(|node| !is_out_of_service(node)) {
                return vec![];
            }
            pods.at(&change.key.name).iter().map(|p| Key::of(&**p)).collect()
        });
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        if *key == all_terminated() {
            return self.count(now);
        }
        let Some(pod) = self.informers.pods.get_key(key) else {
            return Plan::default();
        };
        if is_held(&pod) {
            return Plan::default();
        }
        let node = pod::node_name(&pod);
        if node.is_empty() {
            let writes = pod.metadata.deletion_timestamp.as_ref().map(|_| unscheduled(&pod));
            return Plan {
                writes: writes.into_iter().collect(),
                ..Plan::default()
            };
        }
        if !self.informers.nodes.is_synced() {
            return Plan {
                again_in: Some(QUARANTINE),
                ..Plan::default()
            };
        }
        let mut missing = self.missing.lock().expect("no holder of this lock panics");
        if let Some(found) = self.informers.nodes.get("", node) {
            missing.found(node);
            let is_stuck = pod.metadata.deletion_timestamp.is_some() && is_out_of_service(&found);
            let message = "PodGC: node is out of service";
            return Plan {
                writes: is_stuck.then(|| lost(&pod, message, now)).into_iter().collect(),
                ..Plan::default()
            };
        }
        let since = missing.since(node, now, || used(&self.informers.pods.list()));
        let age = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
        if age < QUARANTINE {
            return Plan {
                again_in: Some(QUARANTINE - age),
                ..Plan::default()
            };
        }
        Plan {
            writes: vec![lost(&pod, "PodGC: node no longer exists", now)],
            ..Plan::default()
        }
    }
}

fn force_delete(pod: &Pod) -> Write {
    let verb = Verb::Delete {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        revision: None,
        grace: Some(0),
        propagation: None,
    };
    Write::new(write::PODS, Key::of(pod), verb)
}

/// Whether a pod is deleted but for its finalizers: there is nothing to do but wait for whoever holds it.
fn is_held(pod: &Pod) -> bool {
    let meta = &pod.metadata;
    let is_over = pod::is_terminal(pod) && meta.deletion_timestamp.is_some();
    is_over && meta.deletion_grace_period_seconds == Some(0) && meta.finalizers.as_ref().is_some_and(|f| !f.is_empty())
}

/// Marks a pod that never had a node failed; deletes it once it is. Whoever counts its end needs to see one.
fn unscheduled(pod: &Pod) -> Write {
    if pod::is_terminal(pod) {
        return force_delete(pod);
    }
    let body = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed"}});
    Write::new(
        write::PODS,
        Key::of(pod),
        Verb::Patch(PatchKind::Strategic, "status", body),
    )
}

/// Marks a pod without a node to end it failed; deletes it once it is.
fn lost(pod: &Pod, message: &str, now: Timestamp) -> Write {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    if pod::is_terminal(pod) || condition::is_true(conditions, "DisruptionTarget") {
        return force_delete(pod);
    }
    let body = json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {"phase": "Failed", "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": message, "lastTransitionTime": Time(now), "observedGeneration": pod.metadata.generation,
        }]},
    });
    Write::new(
        write::PODS,
        Key::of(pod),
        Verb::Patch(PatchKind::Strategic, "status", body),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_comes_back_is_missing_anew_and_names_without_pods_are_forgotten() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let used = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let mut missing = Missing::default();
        assert_eq!(missing.since("a", at(0), || used(&["a"])), at(0));
        assert_eq!(missing.since("a", at(30), || unreachable!()), at(0));
        missing.found("a");
        assert_eq!(missing.since("a", at(100), || used(&["a", "b"])), at(100));
        assert_eq!(
            missing.since("b", at(101), || unreachable!()),
            at(101),
            "not at once again"
        );
        assert_eq!(missing.since("c", at(200), || used(&["a", "c"])), at(200));
        assert_eq!(missing.since.keys().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn orphans_fail_before_they_go() {
        let mut pod = Pod {
            metadata: kube::api::ObjectMeta {
                name: Some("p".into()),
                namespace: Some("default".into()),
                uid: Some("u".into()),
                ..Default::default()
            },
            ..Pod::default()
        };
        let first = lost(&pod, "gone", Timestamp::UNIX_EPOCH);
        let Verb::Patch(PatchKind::Strategic, "status", body) = &first.verb else {
            panic!()
        };
        assert_eq!(body["status"]["phase"], "Failed");
        pod.status = serde_json::from_value(body["status"].clone()).unwrap();
        let second = lost(&pod, "gone", Timestamp::UNIX_EPOCH);
        assert!(matches!(second.verb, Verb::Delete { grace: Some(0), .. }));
    }

    #[test]
    fn what_never_had_a_node_fails_before_it_goes_and_waits_for_its_holders() {
        let pod = |phase: &str, finalizers: serde_json::Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
                    "finalizers": finalizers},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let pending = pod("Pending", json!(["example.org/held"]));
        assert!(!is_held(&pending));
        let Verb::Patch(_, "status", body) = unscheduled(&pending).verb else {
            panic!()
        };
        assert_eq!(body["status"], json!({"phase": "Failed"}));
        assert!(is_held(&pod("Failed", json!(["example.org/held"]))));
        let free = pod("Failed", json!(null));
        assert!(!is_held(&free));
        assert!(matches!(unscheduled(&free).verb, Verb::Delete { grace: Some(0), .. }));
    }

    #[test]
    fn surplus_pods_go_evicted_first_then_the_oldest() {
        let pod = |name: &str, phase: &str, reason: &str, created: i64| -> Arc<Pod> {
            Arc::new(Pod {
                metadata: kube::api::ObjectMeta {
                    name: Some(name.into()),
                    namespace: Some("a".into()),
                    creation_timestamp: Some(Time(Timestamp::from_second(created).unwrap())),
                    ..Default::default()
                },
                status: serde_json::from_value(json!({"phase": phase, "reason": reason})).unwrap(),
                ..Pod::default()
            })
        };
        let pods = vec![
            pod("old", "Succeeded", "", 1),
            pod("older-but-running", "Running", "", 0),
            pod("evicted", "Failed", "Evicted", 9),
            pod("new", "Failed", "", 5),
        ];
        let names = |most| -> Vec<String> {
            let writes = surplus(pods.clone(), most);
            writes.iter().map(|write| write.key.name.clone()).collect()
        };
        assert!(names(3).is_empty());
        assert_eq!(names(2), ["evicted"]);
        assert_eq!(names(0), ["evicted", "old", "new"]);
    }
}
