//! Daemon sets: a node has one pod of a set, or two while a surge lasts, and a rollout takes no more nodes' pods away than may be unavailable.

use super::pods::{Pods, is_active, is_ready, is_terminal};
use super::{World, controller_of, ends, is_deleting, name, uid};
use controlplane::store::Revision;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const CONTROLLER: &str = "daemon-set-controller";
const PODS: &str = "/registry/pods/";

/// What a generation of a set allows.
#[derive(Clone, Copy, Debug)]
struct Fences {
    generation: i64,
    surge: i64,
    unavailable: i64,
}

#[derive(Default)]
pub struct DaemonSets {
    /// By UID: every generation that may still be acted on.
    fences: BTreeMap<String, Vec<Fences>>,
    /// When a node's last taint went, by its name.
    cleared: BTreeMap<String, Revision>,
    /// When a pod was made, by its UID.
    made: BTreeMap<String, Revision>,
}

/// Nothing of it runs any more, and it is only waited for that its object goes.
fn has_gone(pod: &Value) -> bool {
    is_terminal(pod) && is_deleting(pod)
}

fn has_taints(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|taints| !taints.is_empty())
}

/// The node that a set's pod is for.
pub fn node(pod: &Value) -> &str {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let node = &terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
    node.as_str().unwrap_or_default()
}

impl DaemonSets {
    pub fn on_set(&mut self, set: Option<&Value>) {
        let Some(set) = set else { return };
        let rolling = &set["spec"]["updateStrategy"]["rollingUpdate"];
        let fences = Fences {
            generation: set["metadata"]["generation"].as_i64().unwrap_or(0),
            surge: rolling["maxSurge"].as_i64().unwrap_or(0),
            unavailable: rolling["maxUnavailable"].as_i64().unwrap_or(1),
        };
        let observed = set["status"]["observedGeneration"].as_i64().unwrap_or(0);
        let known = self.fences.entry(uid(set).to_owned()).or_default();
        known.retain(|known| known.generation >= observed && known.generation != fences.generation);
        known.push(fences);
    }

    pub fn on_node(&mut self, revision: Revision, before: Option<&Value>, after: Option<&Value>) {
        if let Some(node) = after.filter(|after| before.is_some_and(has_taints) && !has_taints(after)) {
            self.cleared.insert(name(node).to_owned(), revision);
        }
    }

    /// Judges a pod that came or is going.
    pub fn on_pod(
        &mut self,
        world: &World<'_>,
        pods: &Pods,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Vec<String> {
        let mut told = Vec::new();
        if let (None, Some(pod)) = (before, after) {
            self.made.insert(uid(pod).to_owned(), world.revision);
            told.extend(self.judge_creation(world, pod));
        }
        if let Some(pod) = before.filter(|before| ends(before, after)) {
            told.extend(self.judge_deletion(world, pods, pod));
        }
        told
    }

    fn judge_creation(&self, world: &World<'_>, pod: &Value) -> Option<String> {
        let owner = controller_of(pod)?;
        let fences = self.fences.get(owner)?;
        let may_surge = fences.iter().any(|fences| fences.surge > 0);
        let all = world.under(PODS).filter(|other| controller_of(other) == Some(owner));
        let there = all.filter(|other| node(other) == node(pod));
        // Beside one that still ends there is room for another only in a surge.
        let (count, most) = match may_surge {
            true => (there.filter(|other| is_active(other)).count(), 2),
            false => (there.filter(|other| !has_gone(other)).count(), 1),
        };
        let set = pod["metadata"]["ownerReferences"][0]["name"]
            .as_str()
            .unwrap_or_default();
        (count > most).then(|| format!("{} has {count} pods of {set}, {most} may be", node(pod)))
    }

    /// A rollout without a surge takes a pod that serves only while few others are down by its own hand, or never came up.
    fn judge_deletion(&self, world: &World<'_>, pods: &Pods, pod: &Value) -> Option<String> {
        let owner = controller_of(pod)?;
        let fences = self.fences.get(owner)?;
        if !is_ready(pod) || !pods.is_deleted_by(CONTROLLER, pod) || fences.iter().any(|fences| fences.surge > 0) {
            return None;
        }
        let is_tainted = |node: &str| {
            let node = world.get(&format!("/registry/minions/{node}"));
            node.is_none_or(has_taints)
        };
        // Whoever acts may know a node as it was a moment ago: a pod that lived under a taint may have gone for that.
        let was_tainted = |pod: &Value| {
            let made = self.made.get(uid(pod)).copied().unwrap_or_default();
            self.cleared.get(node(pod)).is_some_and(|cleared| *cleared >= made)
        };
        // It may have to leave this node.
        if is_tainted(node(pod)) || was_tainted(pod) {
            return None;
        }
        let most = fences.iter().map(|fences| fences.unavailable).max().unwrap_or(i64::MAX);
        let all = world.under(PODS).filter(|other| controller_of(other) == Some(owner));
        let down = all.filter(|other| {
            let is_taken = is_deleting(other) && pods.is_deleted_by(CONTROLLER, other);
            let is_down = is_taken || !pods.has_been_ready(uid(other));
            // A node with a taint may not be one of the set's.
            let is_excused = is_tainted(node(other)) || was_tainted(other);
            uid(other) != uid(pod) && is_down && !has_gone(other) && !is_excused
        });
        let nodes: BTreeSet<&str> = down.map(node).filter(|other| *other != node(pod)).collect();
        let down = i64::try_from(nodes.len()).unwrap_or(i64::MAX) + 1;
        (down > most).then(|| format!("{} was taken away: {down} nodes are down, {most} may be", name(pod)))
    }
}
