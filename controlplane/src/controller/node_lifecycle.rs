//! Node lifecycle: notices nodes that fell silent, and turns conditions into taints.
//!
//! Source: control-plane contract §12. A node whose lease and status stand still for 50 s (60 s if it never reported) becomes
//! Unknown. NoExecute taints come at the rate of the node's zone, and not at all while no
//! node is ready ([`disruption`]).

pub mod census;
mod disruption;

pub use disruption::Rates;

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::pod;
use super::write::{self, EventText, Failure, PatchKind, Plan, Write, reference};
use crate::held::{Node, Pod};
use crate::metrics::controllers::Controllers as Counters;
use census::Census;
use client::Key;
use disruption::Limits;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{NodeCondition, ObjectReference, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::{condition, taint};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How long a node may be silent.
const GRACE: Duration = Duration::from_secs(50);
/// How long a new node may take to report first.
const STARTUP: Duration = Duration::from_secs(60);
/// How long a node must have been seen not to be ready before it may be tainted NoExecute: upstream's monitor period. When all fall silent
/// together, the first must not be judged while the others still count as ready.
const SETTLE: Duration = Duration::from_secs(5);
const LEASES: &str = "kube-node-lease";

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Condition type, and the taint it makes when True.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// When a node was last heard of. Times are ours, not the node's: its clock may be wrong. And they are no wall clock's: that may be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// When it renewed its lease last, as it says itself.
    pub renewed: Option<Timestamp>,
    /// When it told its readiness last, as it says itself.
    pub told: Option<Timestamp>,
    /// When we saw these first.
    pub at: Instant,
    /// Since when we see that it is not ready.
    pub unready_since: Option<Instant>,
    /// The node's UID.
    pub uid: Option<String>,
}

impl Heartbeat {
    /// Whether both are the same sign of life.
    fn says_as(&self, other: &Self) -> bool {
        self.renewed == other.renewed && self.told == other.told && self.uid == other.uid
    }

    /// Takes in what a lease says; whether the node is to be looked at for that. One that was ready when it was looked at last has nothing
    /// to gain by another sign of life: when its grace is over it is looked at anyway.
    fn renew(&mut self, renewed: Option<Timestamp>, now: Instant) -> bool {
        if self.renewed != renewed {
            (self.renewed, self.at) = (renewed, now);
        }
        self.unready_since.is_some()
    }
}

/// The controller.
pub struct NodeLifecycle {
    /// The shared informers.
    pub informers: Informers,
    /// How fast silent nodes lose their pods.
    pub rates: Rates,
    /// When each node was last heard of.
    pub heard: Arc<Mutex<BTreeMap<String, Heartbeat>>>,
    /// When each zone's last node was tainted NoExecute.
    pub limits: Mutex<Limits>,
    /// Which nodes are ready.
    pub census: Arc<Mutex<Census>>,
    /// Zones of nodes that are being tainted NoExecute now.
    pub draining: Mutex<BTreeMap<Key, String>>,
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    condition::find(node.status.as_ref().and_then(|s| s.conditions.as_ref()), "Ready")
}

fn is_ready(node: &Node) -> bool {
    ready(node).is_some_and(|c| c.status == "True")
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    let spec = lease.spec.as_ref()?;
    spec.renew_time.as_ref().map(|time| time.0)
}

impl NodeLifecycle {
    /// Updates what was heard; tells whether the node is new to us.
    fn listen(&self, node: &Node, now: Instant) -> (Heartbeat, bool) {
        let name = node.name_any();
        let mut heard = self.heard.lock().expect("no holder of this lock panics");
        // Not before: a renewal that is taken in meanwhile ([`Heartbeat::renew`]) would be undone.
        let lease = self.informers.node_leases.get(LEASES, &name);
        let fresh = !heard.contains_key(&name);
        let beat = Heartbeat {
            renewed: lease.and_then(|lease| renewed(&lease)),
            told: ready(node).and_then(|c| c.last_heartbeat_time.as_ref().map(|t| t.0)),
            at: now,
            unready_since: None,
            uid: node.metadata.uid.clone(),
        };
        let entry = heard.entry(name).or_insert_with(|| beat.clone());
        let unready_since = entry.unready_since.unwrap_or(now);
        if !entry.says_as(&beat) {
            *entry = beat;
        }
        entry.unready_since = (!is_ready(node)).then_some(unready_since);
        (entry.clone(), fresh)
    }

    /// Whether the node may get (or keep) its NoExecute taint now.
    fn pace(&self, node: &Node, heard: &Heartbeat, now: Instant) -> Pace {
        // Asked only where it matters: a ready node's plan does not depend on the others. And nobody can have fallen silent who has said
        // nothing yet: that it has not for too long will be its condition.
        if is_ready(node) || (ready(node).is_none() && !is_drained(node)) {
            return Pace::Hold;
        }
        let zone = disruption::zone_of(node);
        let (has_ready, count) = {
            let census = self.census.lock().expect("no holder of this lock panics");
            (census.has_ready(), census.zone(&zone))
        };
        if has_ready && is_drained(node) {
            return Pace::Keep;
        }
        let Some(interval) = self.rates.interval(has_ready, count) else {
            return Pace::Hold;
        };
        let limits = self.limits.lock().expect("no holder of this lock panics");
        let unready = heard
            .unready_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        match limits.wait(&zone, interval, now).max(SETTLE.saturating_sub(unready)) {
            Duration::ZERO => Pace::Go(zone),
            wait => Pace::Wait(wait),
        }
    }
}

/// What a node's zone says to its NoExecute taint.
enum Pace {
    /// Not now; a change of the zone comes as an event.
    Hold,
    /// Not before this time has passed.
    Wait(Duration),
    /// It has it already.
    Keep,
    /// Now, and then the zone waits.
    Go((String, String)),
}

/// Whether the node has a NoExecute taint for its silence.
fn is_drained(node: &Node) -> bool {
    let mut taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    taints.any(|taint| taint.effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&taint.key.as_str()))
}

/// Whether the write gives taints.
fn is_tainting(write: &Write) -> bool {
    matches!(write.verb, write::Verb::Patch(PatchKind::Merge, "", _))
}

impl Controller for NodeLifecycle {
    const NAME: &'static str = "node-controller";
    /// A node's taints and its pods' readiness are told apart from each other.
    const EACH_ALONE: bool = true;
    /// A node that is ready says so no more often than it renews its lease, every ten seconds.
    const RETRY_MAX: Duration = Duration::from_secs(10);

    fn wire(&self, wiring: &mut Wiring) {
        let (census, rates) = (Arc::clone(&self.census), self.rates);
        let counters = wiring.counters();
        wiring.on(&self.informers.nodes, move |change| {
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            if let (None, Some(node)) = (old, new) {
                counters.nodes_drained(&disruption::key_of(&disruption::zone_of(node)), 0);
            }
            let mut census = census.lock().expect("no holder of this lock panics");
            // Whether others are ready, and where, matters to those that are not.
            let concerned = census.change_and_wake(old, new, &rates);
            let mut keys = vec![change.key.clone()];
            keys.extend(concerned.into_iter().map(|name| Key::new("", name)));
            keys
        });
        let heard = Arc::clone(&self.heard);
        wiring.on(&self.informers.node_leases, move |change| {
            let mut heard = heard.lock().expect("no holder of this lock panics");
            let known = heard.get_mut(&change.key.name).zip(change.new.as_deref());
            // One that is not known yet may be there by now.
            match known.is_none_or(|(beat, lease)| beat.renew(renewed(lease), Instant::now())) {
                true => vec![Key::new("", change.key.name.clone())],
                false => Vec::new(),
            }
        });
    }

    fn wrote(&self, counters: &Counters, key: &Key, write: &Write, failure: Option<&Failure>, _now: Timestamp) {
        if !is_tainting(write) {
            return;
        }
        let zone = self.draining.lock().expect("no holder of this lock panics").remove(key);
        if let (Some(zone), None) = (zone, failure) {
            counters.nodes_drained(&zone, 1);
        }
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(node) = self.informers.nodes.get_key(key) else {
            let mut heard = self.heard.lock().expect("no holder of this lock panics");
            return Plan {
                events: heard
                    .remove(&key.name)
                    .map(|last| removed(key, last))
                    .into_iter()
                    .collect(),
                ..Plan::default()
            };
        };
        let instant = Instant::now();
        let (heard, fresh) = self.listen(&node, instant);
        let pace = self.pace(&node, &heard, instant);
        let may_drain = matches!(pace, Pace::Keep | Pace::Go(_));
        let mut plan = plan(&node, instant.saturating_duration_since(heard.at), may_drain, now);
        match pace {
            Pace::Go(zone) if plan.writes.iter().any(is_tainting) => {
                let mut draining = self.draining.lock().expect("no holder of this lock panics");
                draining.insert(key.clone(), disruption::key_of(&zone));
                let census = self.census.lock().expect("no holder of this lock panics");
                let mut limits = self.limits.lock().expect("no holder of this lock panics");
                limits.note(zone, instant, |zone| census.has_zone(zone));
            }
            Pace::Wait(wait) => plan.again_in = Some(plan.again_in.map_or(wait, |other| other.min(wait))),
            _ => {}
        }
        if fresh {
            let name = node.name_any();
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            plan.events.push(event(&node, "Normal", "RegisteredNode", message));
        }
        if ready(&node).is_some_and(|c| c.status == "Unknown") {
            let pods = self.informers.pods.at(&key.name).into_iter();
            let were_ready = pods.filter(|pod| pod::is_ready(pod));
            plan.writes.extend(were_ready.map(|pod| not_ready(&pod, now)));
        }
        plan
    }
}

fn event(node: &Node, kind: &'static str, reason: &'static str, message: String) -> EventText {
    EventText {
        regarding: reference(&write::NODES, node),
        kind,
        reason,
        message,
    }
}

/// Upstream's event about a node that is there no longer.
fn removed(key: &Key, last: Heartbeat) -> EventText {
    let name = &key.name;
    EventText {
        regarding: ObjectReference {
            api_version: Some(write::NODES.api_version()),
            kind: Some(write::NODES.kind.to_string()),
            name: Some(name.clone()),
            uid: last.uid,
            ..ObjectReference::default()
        },
        kind: "Normal",
        reason: "RemovingNode",
        message: format!("Node {name} event: Removing Node {name} from Controller"),
    }
}

fn not_ready(pod: &Pod, now: Timestamp) -> Write {
    let body = json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": Time(now)}]},
    });
    let verb = write::Verb::Patch(PatchKind::Strategic, "status", body);
    let told = write::event(&write::PODS, pod, "Warning", "NodeNotReady", "Node is not ready");
    Write::new(write::PODS, Key::of(pod), verb).success(told)
}

/// Conditions and taints a node should have, given for how long it has been silent and whether it may be tainted NoExecute.
pub fn plan(node: &Node, silent: Duration, may_drain: bool, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if node.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let grace = if ready(node).is_some() { GRACE } else { STARTUP };
    if silent < grace {
        plan.again_in = Some(grace - silent);
    } else if let Some(write) = unknown(node, now) {
        let name = node.name_any();
        if is_ready(node) {
            let message = format!("Node {name} status is now: NodeNotReady");
            plan.events.push(event(node, "Normal", "NodeNotReady", message));
        }
        plan.writes.push(write);
        // Taints follow from the conditions, in the next plan.
        return plan;
    }
    plan.writes.extend(taints(node, may_drain, now));
    plan
}

/// Sets the kubelet's conditions to Unknown; `None` if they are.
fn unknown(node: &Node, now: Timestamp) -> Option<Write> {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    let stale = kinds
        .into_iter()
        .filter(|kind| condition::find(conditions, kind).is_none_or(|c| c.status != "Unknown"));
    let make = |kind: &str| {
        let known = condition::find(conditions, kind);
        let (reason, message) = match known {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        let beat = known
            .and_then(|c| c.last_heartbeat_time.clone())
            .or_else(|| node.metadata.creation_timestamp.clone());
        NodeCondition {
            type_: kind.to_owned(),
            status: "Unknown".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: beat,
            last_transition_time: Some(Time(now)),
        }
    };
    let new: Vec<NodeCondition> = stale.map(make).collect();
    if new.is_empty() {
        return None;
    }
    let body = json!({"metadata": {"uid": node.metadata.uid}, "status": {"conditions": new}});
    let verb = write::Verb::Patch(PatchKind::Strategic, "status", body);
    Some(Write::new(write::NODES, Key::of(node), verb))
}

/// (key, effect) of the taints the conditions call for.
fn wanted_taints(node: &Node, may_drain: bool) -> Vec<(&'static str, &'static str)> {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut wanted = Vec::new();
    let silence = match ready(node).map(|c| c.status.as_str()) {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    if let Some(key) = silence {
        wanted.push((key, "NoSchedule"));
        if may_drain {
            wanted.push((key, "NoExecute"));
        }
    }
    for (kind, key) in PRESSURES {
        if condition::is_true(conditions, kind) {
            wanted.push((key, "NoSchedule"));
        }
    }
    if node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted
}

fn is_managed(taint: &Taint) -> bool {
    let silence = taint.key == NOT_READY || taint.key == UNREACHABLE;
    let pressure = taint.key == UNSCHEDULABLE || PRESSURES.iter().any(|(_, key)| *key == taint.key);
    (silence && taint.effect != "PreferNoSchedule") || (pressure && taint.effect == "NoSchedule")
}

fn taints(node: &Node, may_drain: bool, now: Timestamp) -> Option<Write> {
    let have = node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    let wanted = wanted_taints(node, may_drain);
    let is_wanted = |t: &Taint| wanted.iter().any(|(key, effect)| t.key == *key && t.effect == *effect);
    let mut list: Vec<Taint> = have
        .iter()
        .filter(|t| !is_managed(t) || is_wanted(t))
        .cloned()
        .collect();
    for (key, effect) in &wanted {
        let new = Taint {
            key: (*key).to_owned(),
            effect: (*effect).to_owned(),
            time_added: Some(Time(now)),
            value: None,
        };
        if !list.iter().any(|t| taint::same(t, &new)) {
            list.push(new);
        }
    }
    if list == have {
        return None;
    }
    let body = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": list}});
    Some(Write::patch(write::NODES, Key::of(node), PatchKind::Merge, body))
}

#[cfg(test)]
mod tests;
