//! Taint eviction: pods leave nodes whose NoExecute taints they do not tolerate, or no longer.
//!
//! Source: control-plane contract §12.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::pod;
use super::write::{self, EventText, Failure, PatchKind, Plan, Verb, Write, reference};
use crate::metrics::controllers::Controllers as Counters;
use client::Key;
use k8s_openapi::api::core::v1::{Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proto::api::{condition, taint};
use serde_json::json;
use std::time::Duration;

/// The controller. Its keys are pods.
pub struct TaintEviction {
    /// The shared informers.
    pub informers: Informers,
}

impl Controller for TaintEviction {
    const NAME: &'static str = "node-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on(&self.informers.pods, |change| {
            let assigned = change.new.as_ref().is_some_and(|p| !pod::node_name(p).is_empty());
            let moved = change
                .old
                .as_ref()
                .is_none_or(|o| change.new.as_ref().is_some_and(|n| o.spec != n.spec));
            if assigned && moved {
                vec![change.key.clone()]
            } else {
                vec![]
            }
        });
        let pods = self.informers.pods.clone();
        wiring.on(&self.informers.nodes, move |change| {
            let taints = |n: &Option<std::sync::Arc<k8s_openapi::api::core::v1::Node>>| {
                n.as_ref()
                    .and_then(|n| n.spec.as_ref())
                    .and_then(|s| s.taints.clone())
                    .unwrap_or_default()
            };
            let (before, after) = (taints(&change.old), taints(&change.new));
            if before == after || !after.iter().any(|t| t.effect == "NoExecute") {
                return vec![];
            }
            let all = pods.list();
            all.iter()
                .filter(|p| pod::node_name(p) == change.key.name)
                .map(|p| Key::of(&**p))
                .collect()
        });
    }

    fn wrote(&self, counters: &Counters, _key: &Key, write: &Write, failure: Option<&Failure>, _now: Timestamp) {
        if matches!(write.verb, Verb::Delete { .. }) && failure.is_none() {
            counters.tainted_pod_deleted();
        }
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(pod) = self.informers.pods.get_key(key) else {
            return Plan::default();
        };
        let node = self.informers.nodes.get("", pod::node_name(&pod));
        let taints = node
            .and_then(|n| n.spec.as_ref().and_then(|s| s.taints.clone()))
            .unwrap_or_default();
        match evict_in(&pod, &taints, now) {
            None => Plan::default(),
            Some(wait) if !wait.is_zero() => Plan {
                again_in: Some(wait),
                ..Plan::default()
            },
            Some(_) => evict(&pod, now),
        }
    }
}

/// How long the pod may stay; `None` for as long as the taints are these.
pub fn evict_in(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Duration> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|s| s.tolerations.clone())
        .unwrap_or_default();
    let mut least: Option<Duration> = None;
    for hard in taints.iter().filter(|t| t.effect == "NoExecute") {
        let covering: Vec<_> = tolerations.iter().filter(|t| taint::tolerates(t, hard)).collect();
        if covering.is_empty() {
            return Some(Duration::ZERO);
        }
        // The shortest of the tolerations that cover it decides; one without a limit sets none.
        let Some(seconds) = covering.iter().filter_map(|t| t.toleration_seconds).min() else {
            continue;
        };
        let since = hard.time_added.as_ref().map_or(now, |t| t.0);
        let age = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
        let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(age);
        least = Some(least.map_or(left, |least| least.min(left)));
    }
    least
}

/// The condition first, then the deletion: the next plan sees the condition.
fn evict(pod: &Pod, now: Timestamp) -> Plan {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let write = if condition::is_true(conditions, "DisruptionTarget") {
        Write::delete(write::PODS, pod).success(EventText {
            regarding: reference(&write::PODS, pod),
            kind: "Normal",
            reason: "TaintManagerEviction",
            message: format!("Marking for deletion Pod {}", Key::of(pod)),
        })
    } else {
        let body = json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": Time(now),
            }]},
        });
        Write::new(
            write::PODS,
            Key::of(pod),
            Verb::Patch(PatchKind::Strategic, "status", body),
        )
    };
    Plan {
        writes: vec![write],
        ..Plan::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn how_long_a_pod_may_stay() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let pod = |tolerations: Value| -> Pod {
            serde_json::from_value(
                json!({"metadata": {"name": "p"}, "spec": {"containers": [], "tolerations": tolerations}}),
            )
            .unwrap()
        };
        let taint = |key: &str, effect: &str| Taint {
            key: key.into(),
            effect: effect.into(),
            time_added: Some(Time(at(100))),
            value: None,
        };
        let forever = json!({"key": "a", "operator": "Exists"});
        let limited = json!({"key": "a", "operator": "Exists", "tolerationSeconds": 300});
        let short = json!({"operator": "Exists", "tolerationSeconds": 30});
        let a = || vec![taint("a", "NoExecute")];
        let s = |n| Some(Duration::from_secs(n));
        let table = [
            ("no taint", json!([]), vec![], None),
            ("soft taint", json!([]), vec![taint("a", "NoSchedule")], None),
            ("untolerated", json!([]), a(), s(0)),
            ("tolerated for good", json!([forever]), a(), None),
            ("tolerated for a while", json!([limited]), a(), s(290)),
            ("shortest of those that cover", json!([limited, short]), a(), s(20)),
            (
                "one of two untolerated",
                json!([forever]),
                vec![taint("a", "NoExecute"), taint("b", "NoExecute")],
                s(0),
            ),
        ];
        for (name, tolerations, taints, want) in table {
            assert_eq!(evict_in(&pod(tolerations), &taints, at(110)), want, "{name}");
        }
    }
}
