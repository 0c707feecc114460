//! Stateful sets: an identity is one pod's at a time, ordinals are those asked for, and in order means one step at a time.

use super::pods::{Pods, is_terminal};
use super::{World, controller_of, ends, is_deleting, name, uid};
use crate::checker::RuntimeView;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const CONTROLLER: &str = "statefulset-controller";
const PODS: &str = "/registry/pods/";

#[derive(Default)]
pub struct StatefulSets {
    /// By UID: which ordinals each generation wants, of those that may still be acted on.
    wanted: BTreeMap<String, Vec<(i64, Range<i64>)>>,
}

fn is_ordered(set: &Value) -> bool {
    set["spec"]["podManagementPolicy"] != "Parallel"
}

fn ordinal(pod: &Value) -> Option<i64> {
    name(pod).rsplit_once('-')?.1.parse().ok()
}

fn range(set: &Value) -> Range<i64> {
    let start = set["spec"]["ordinals"]["start"].as_i64().unwrap_or(0);
    start..start + set["spec"]["replicas"].as_i64().unwrap_or(1)
}

impl StatefulSets {
    pub fn on_set(&mut self, set: Option<&Value>) {
        let Some(set) = set else { return };
        let generation = set["metadata"]["generation"].as_i64().unwrap_or(0);
        let observed = set["status"]["observedGeneration"].as_i64().unwrap_or(0);
        let known = self.wanted.entry(uid(set).to_owned()).or_default();
        known.retain(|(known, _)| *known >= observed && *known != generation);
        known.push((generation, range(set)));
    }

    /// Judges a pod that came or is going.
    pub fn on_pod(&self, world: &World<'_>, pods: &Pods, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
        let mut told = Vec::new();
        if let (None, Some(pod)) = (before, after) {
            told.extend(self.judge_creation(world, pods, pod));
        }
        if let Some(pod) = before.filter(|before| ends(before, after)) {
            told.extend(self.judge_deletion(world, pods, pod));
        }
        told
    }

    fn judge_creation(&self, world: &World<'_>, pods: &Pods, pod: &Value) -> Option<String> {
        let owner = controller_of(pod)?;
        let wanted = self.wanted.get(owner)?;
        let ordinal = ordinal(pod)?;
        if !wanted.iter().any(|(_, range)| range.contains(&ordinal)) {
            return Some(format!("{} was made, and wanted are {wanted:?}", name(pod)));
        }
        let set = world.by_uid(owner).filter(|set| is_ordered(set))?;
        let start = range(set).start;
        let (space, _) = pods.name(uid(pod))?.0.rsplit_once('/')?;
        (start..ordinal).find_map(|lower| {
            let lower = format!("{}-{lower}", name(set));
            let last = pods.last_of(&format!("{space}/{lower}"));
            let was_ready = last.is_some_and(|uid| pods.was_ready(world.revision, uid));
            (!was_ready).then(|| format!("{} was made before {lower} was ready", name(pod)))
        })
    }

    /// In order a set takes one pod away at a time.
    fn judge_deletion(&self, world: &World<'_>, pods: &Pods, pod: &Value) -> Option<String> {
        let owner = controller_of(pod)?;
        let is_set = self.wanted.contains_key(owner) && world.by_uid(owner).is_some_and(is_ordered);
        if !is_set || is_terminal(pod) || !pods.is_deleted_by(CONTROLLER, pod) {
            return None;
        }
        let mut others = world.under(PODS).filter(|other| controller_of(other) == Some(owner));
        let other = others.find(|other| {
            uid(other) != uid(pod) && is_deleting(other) && !is_terminal(other) && pods.is_deleted_by(CONTROLLER, other)
        })?;
        Some(format!(
            "{} was taken away while {} was still going",
            name(pod),
            name(other)
        ))
    }

    /// Judges what runs: of each identity no more than one pod.
    pub fn on_runtimes(&self, pods: &Pods, runtimes: &BTreeMap<String, RuntimeView>) -> Vec<String> {
        let mut running: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for view in runtimes.values() {
            for container in view.containers.iter().filter(|container| container.running) {
                let Some((name, owner)) = pods.name(&container.uid) else {
                    continue;
                };
                if self.wanted.contains_key(owner) {
                    running.entry(name).or_default().insert(&container.uid);
                }
            }
        }
        let doubled = running.into_iter().filter(|(_, uids)| uids.len() > 1);
        doubled
            .map(|(name, uids)| format!("{} pods of the identity {name} run at once", uids.len()))
            .collect()
    }
}
