//! Pod garbage collection: pods that nobody will ever finish.
//!
//! Source: control-plane contract §12. Pods on nodes that do not exist (after 40 s of quarantine), and unscheduled pods that are
//! being deleted. Terminated pods beyond 12,500 and the out-of-service taint are not handled yet.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::pod;
use super::write::{self, PatchKind, Plan, Verb, Write};
use client::Key;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proto::api::condition;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// How long a node must be missing before its pods count as orphaned.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The controller. Its keys are pods.
pub struct PodGc {
    /// The shared informers.
    pub informers: Informers,
    /// Since when each missing node is missing.
    pub missing: Mutex<BTreeMap<String, Timestamp>>,
}

impl Controller for PodGc {
    const NAME: &'static str = "pod-garbage-collector";

    fn wire(&self, wiring: &mut Wiring) {
        let nodes = self.informers.nodes.clone();
        wiring.on(&self.informers.pods, move |change| {
            let asks = change.new.as_ref().is_some_and(|p| {
                let node = pod::node_name(p);
                let lost = !node.is_empty() && nodes.get("", node).is_none();
                lost || (node.is_empty() && p.metadata.deletion_timestamp.is_some())
            });
            asks.then(|| change.key.clone()).into_iter().collect()
        });
        let pods = self.informers.pods.clone();
        wiring.on(&self.informers.nodes, move |change| {
            if change.new.is_some() {
                return vec![];
            }
            let all = pods.list();
            all.iter()
                .filter(|p| pod::node_name(p) == change.key.name)
                .map(|p| Key::of(&**p))
                .collect()
        });
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(pod) = self.informers.pods.get_key(key) else {
            return Plan::default();
        };
        let node = pod::node_name(&pod);
        if node.is_empty() {
            let writes = pod.metadata.deletion_timestamp.as_ref().map(|_| force_delete(&pod));
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
        if self.informers.nodes.get("", node).is_some() {
            missing.remove(node);
            return Plan::default();
        }
        let since = *missing.entry(node.to_owned()).or_insert(now);
        let age = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
        if age < QUARANTINE {
            return Plan {
                again_in: Some(QUARANTINE - age),
                ..Plan::default()
            };
        }
        Plan {
            writes: vec![orphaned(&pod, now)],
            ..Plan::default()
        }
    }
}

fn force_delete(pod: &Pod) -> Write {
    let verb = Verb::Delete {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        grace: Some(0),
        propagation: None,
    };
    Write::new(write::PODS, Key::of(pod), verb)
}

/// Marks an orphan failed; deletes it once it is.
fn orphaned(pod: &Pod, now: Timestamp) -> Write {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    if pod::is_terminal(pod) || condition::is_true(conditions, "DisruptionTarget") {
        return force_delete(pod);
    }
    let body = json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {"phase": "Failed", "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "lastTransitionTime": Time(now),
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
        let first = orphaned(&pod, Timestamp::UNIX_EPOCH);
        let Verb::Patch(PatchKind::Strategic, "status", body) = &first.verb else {
            panic!()
        };
        assert_eq!(body["status"]["phase"], "Failed");
        pod.status = serde_json::from_value(body["status"].clone()).unwrap();
        let second = orphaned(&pod, Timestamp::UNIX_EPOCH);
        assert!(matches!(second.verb, Verb::Delete { grace: Some(0), .. }));
    }
}
