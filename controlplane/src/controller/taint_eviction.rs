//! Taint eviction: pods leave nodes whose NoExecute taints they do not tolerate, or no longer.
//!
//! Source: control-plane contract §12. A pod that tolerates for a while has its time from when it and the taint met, which most taints
//! do not say (`kubectl taint` writes no `timeAdded`): so it is remembered here, by a clock that nobody sets. A time that has begun goes on
//! whatever other taint comes, and never gets longer, as upstream.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::pod;
use super::write::{self, EventText, Failure, PatchKind, Plan, Verb, Write, reference};
use crate::held::{Node, Pod};
use crate::metrics::controllers::Controllers as Counters;
use client::Key;
use client::informer::Change;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proto::api::{condition, taint};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than anything runs; whoever tolerates for longer has this.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The controller. Its keys are pods.
pub struct TaintEviction {
    /// The shared informers.
    pub informers: Informers,
    /// Pods that are to go, and when.
    pub leaving: Mutex<BTreeMap<Key, Leaving>>,
}

/// A pod that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    uid: Option<String>,
    at: Instant,
}

/// The node's taints that end pods.
fn hard(node: Option<&Node>) -> Vec<&Taint> {
    let taints = node
        .and_then(|node| node.spec.as_ref())
        .and_then(|spec| spec.taints.as_ref());
    taints
        .into_iter()
        .flatten()
        .filter(|taint| taint.effect == "NoExecute")
        .collect()
}

/// Whether a change of a pod may change when it goes.
fn concerns(change: &Change<Pod>) -> bool {
    let is_assigned = |pod: &Pod| !pod::node_name(pod).is_empty();
    match (change.old.as_deref(), change.new.as_deref()) {
        (Some(old), None) => is_assigned(old),
        (None, Some(new)) => is_assigned(new),
        (Some(old), Some(new)) => is_assigned(new) && old.spec != new.spec,
        (None, None) => false,
    }
}

impl Controller for TaintEviction {
    const NAME: &'static str = "node-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on(&self.informers.pods, |change| {
            concerns(change).then(|| change.key.clone()).into_iter().collect()
        });
        let pods = self.informers.pods.clone();
        wiring.on(&self.informers.nodes, move |change| {
            if hard(change.old.as_deref()) == hard(change.new.as_deref()) {
                return vec![];
            }
            pods.at(&change.key.name).iter().map(|p| Key::of(&**p)).collect()
        });
    }

    fn wrote(&self, counters: &Counters, _key: &Key, write: &Write, failure: Option<&Failure>, _now: Timestamp) {
        if matches!(write.verb, Verb::Delete { .. }) && failure.is_none() {
            counters.tainted_pod_deleted();
        }
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let mut leaving = self.leaving.lock().expect("no holder of this lock panics");
        let known = leaving.remove(key);
        let pod = self.informers.pods.get_key(key);
        let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) else {
            return Plan::default();
        };
        let known = known.filter(|known| known.uid == pod.metadata.uid);
        let node = self.informers.nodes.get("", pod::node_name(&pod));
        let instant = Instant::now();
        // What began before this process did, only the objects tell.
        let is_new = known.is_none();
        let age = |taint: &Taint| {
            if is_new {
                together(&pod, taint, now)
            } else {
                Duration::ZERO
            }
        };
        let left = match &node {
            // Its pods are taken to be lost by who looks after that; a time that runs goes on.
            None => known.as_ref().map(|known| known.at.saturating_duration_since(instant)),
            Some(node) => evict_in(&pod, &hard(Some(node)), age),
        };
        let Some(left) = left else {
            let events = known.is_some().then(|| told(&pod, "Cancelling deletion of Pod"));
            return Plan {
                events: events.into_iter().collect(),
                ..Plan::default()
            };
        };
        let at = known.map_or(instant + left, |known| known.at.min(instant + left));
        let uid = pod.metadata.uid.clone();
        leaving.insert(key.clone(), Leaving { uid, at });
        match at.saturating_duration_since(instant) {
            Duration::ZERO => evict(&pod, now),
            left => Plan {
                again_in: Some(left),
                ..Plan::default()
            },
        }
    }
}

/// For how long the pod and the taint have been together, as far as their objects tell.
fn together(pod: &Pod, taint: &Taint, now: Timestamp) -> Duration {
    let Some(added) = taint.time_added.as_ref().map(|time| time.0) else {
        return Duration::ZERO;
    };
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let bound = condition::find(conditions, "PodScheduled").filter(|condition| condition.status == "True");
    let bound = bound.and_then(|condition| condition.last_transition_time.as_ref());
    let came = bound
        .or(pod.metadata.creation_timestamp.as_ref())
        .map_or(added, |time| time.0);
    Duration::try_from(now.duration_since(came.max(added))).unwrap_or(Duration::ZERO)
}

/// How long the pod may stay; `None` for as long as these taints, which end pods, are all there are. `age` is for how long it has stood one.
pub fn evict_in(pod: &Pod, taints: &[&Taint], age: impl Fn(&Taint) -> Duration) -> Option<Duration> {
    let tolerations = pod.spec.iter().filter_map(|spec| spec.tolerations.as_deref()).flatten();
    let mut least: Option<Duration> = None;
    for hard in taints {
        // The first that covers it decides, as upstream: one without a limit before one with a limit sets none.
        let Some(covering) = tolerations.clone().find(|t| taint::tolerates(t, hard)) else {
            return Some(Duration::ZERO);
        };
        let Some(seconds) = covering.toleration_seconds else {
            continue;
        };
        let whole = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(LONGEST);
        let left = whole.saturating_sub(age(hard));
        least = Some(least.map_or(left, |least| least.min(left)));
    }
    least
}

fn told(pod: &Pod, what: &str) -> EventText {
    EventText {
        regarding: reference(&write::PODS, pod),
        kind: "Normal",
        reason: "TaintManagerEviction",
        message: format!("{what} {}", Key::of(pod)),
    }
}

/// The condition first, then the deletion: the next plan sees the condition.
fn evict(pod: &Pod, now: Timestamp) -> Plan {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let write = if condition::is_true(conditions, "DisruptionTarget") {
        Write::delete(write::PODS, pod).success(told(pod, "Marking for deletion Pod"))
    } else {
        let body = json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": Time(now),
                "observedGeneration": pod.metadata.generation,
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
mod tests;
