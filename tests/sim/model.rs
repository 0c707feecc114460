//! A model of what the store holds, kept from the store's own changes, and the rules over it: writes are linearizable and last,
//! nodes are not overcommitted, rollouts stay within their bounds, Jobs count once, budgets and quotas are kept, nothing is collected whose
//! owner stands, and a watcher that was cut missed nothing. Shares no code with what it judges.

mod budgets;
mod capacity;
mod daemons;
mod history;
mod jobs;
mod pods;
mod quotas;
mod rollout;
mod spaces;
mod stateful;
#[cfg(test)]
mod tests;

use crate::checker::RuntimeView;
use crate::watcher::Sighting;
use controlplane::store::{Record, Revision};
use history::History;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub use capacity::thousandths;
pub use jobs::is_over;
pub use quotas::used;

/// Breaches told of one run: one fault repeats at every later event.
const TOLD_MAX: usize = 20;
/// Pods of one owner that nodes may refuse.
const REFUSED_MAX: u32 = 20;

/// The model, and every breach so far.
#[derive(Default)]
pub struct Model {
    objects: BTreeMap<String, Value>,
    keys_by_uid: BTreeMap<String, String>,
    history: History,
    rollouts: rollout::Rollouts,
    pods: pods::Pods,
    stateful: stateful::StatefulSets,
    daemons: daemons::DaemonSets,
    jobs: jobs::Jobs,
    budgets: budgets::Budgets,
    sightings: Vec<Sighting>,
    /// UIDs the garbage collector asked to delete.
    collecting: BTreeSet<String>,
    /// Pods, by namespace and name, bound without the scheduler's knowledge.
    lost_bindings: BTreeSet<String>,
    /// How many pods of one owner their nodes refused.
    refused: BTreeMap<String, u32>,
    pub breaches: Vec<String>,
    counts: BTreeMap<String, u64>,
}

impl Model {
    pub fn breach(&mut self, text: String) {
        if self.breaches.len() < TOLD_MAX && !self.breaches.contains(&text) {
            self.breaches.push(text);
        }
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    /// Takes in one change; returns what the key held before.
    pub fn on_change(&mut self, revision: Revision, key: &str, value: Option<Value>) -> Option<Value> {
        if let Some(text) = self.history.on_change(revision, key, value.is_some()) {
            self.breach(text);
        }
        let before = self.objects.get(key).cloned();
        self.judge_collection(key, before.as_ref(), value.as_ref());
        match value.clone() {
            Some(value) => {
                self.keys_by_uid.insert(uid(&value).to_owned(), key.to_owned());
                self.objects.insert(key.to_owned(), value);
            }
            None => {
                self.objects.remove(key);
                self.keys_by_uid.remove(before.as_ref().map_or("", uid));
            }
        }
        let mut told = self.judge_controllers(revision, key, before.as_ref(), value.as_ref());
        told.extend(match key.split('/').nth(2) {
            Some("pods") => {
                self.count_eviction(before.as_ref(), value.as_ref());
                self.judge_refusal(before.as_ref(), value.as_ref());
                capacity::judge_binding(&self.objects, &self.lost_bindings, before.as_ref(), value.as_ref())
            }
            Some("replicasets") => {
                rollout::judge_scaling(&self.rollouts, &self.objects, before.as_ref(), value.as_ref())
            }
            Some("deployments") => {
                self.rollouts.on_deployment(revision, &self.objects, value.as_ref());
                Vec::new()
            }
            _ => Vec::new(),
        });
        for text in told {
            self.breach(text);
        }
        self.rollouts.on_revision(revision, &self.objects, key);
        before
    }

    /// Judges what controllers did: each kind by its own rules.
    fn judge_controllers(
        &mut self,
        revision: Revision,
        key: &str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Vec<String> {
        let world = World {
            objects: &self.objects,
            keys_by_uid: &self.keys_by_uid,
            revision,
        };
        let mut told = spaces::judge(&world, key, before, after);
        if before.is_none() {
            told.extend(after.map(|made| quotas::judge(&world, key, made)).unwrap_or_default());
        }
        match key.split('/').nth(2) {
            Some("pods") => {
                self.pods.on_pod(revision, key, before, after);
                told.extend(self.stateful.on_pod(&world, &self.pods, before, after));
                told.extend(self.daemons.on_pod(&world, &self.pods, before, after));
                told.extend(self.jobs.on_pod(&world, before, after));
                self.budgets.on_pod(before, after);
            }
            Some("statefulsets") => self.stateful.on_set(after),
            Some("daemonsets") => self.daemons.on_set(after),
            Some("minions") => self.daemons.on_node(revision, before, after),
            Some("jobs") => told.extend(self.jobs.on_job(&world, before, after)),
            Some("poddisruptionbudgets") => {
                told.extend(self.budgets.on_budget(&world, &self.pods, before, after));
            }
            _ => {}
        }
        told
    }

    fn count_eviction(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let evicted = |pod: Option<&Value>| {
            let conditions = pod.and_then(|pod| pod["status"]["conditions"].as_array());
            conditions.is_some_and(|all| all.iter().any(|c| c["reason"] == "DeletionByTaintManager"))
        };
        if evicted(after) && !evicted(before) {
            self.count("pod evicted by taint");
        }
    }

    /// A pod that its node refuses is replaced at once: nodes may not go on refusing.
    fn judge_refusal(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let refused = |pod: &Value| {
            let ran = pod["status"]["containerStatuses"]
                .as_array()
                .is_some_and(|all| !all.is_empty());
            pod["status"]["phase"] == "Failed" && !ran
        };
        let Some(pod) = after.filter(|pod| refused(pod) && !before.is_some_and(refused)) else {
            return;
        };
        let owner = &pod["metadata"]["ownerReferences"][0];
        let Some(uid) = owner["uid"].as_str() else { return };
        let count = self.refused.entry(uid.to_owned()).or_default();
        *count += 1;
        if *count == REFUSED_MAX {
            let why = format!(
                "{count} pods of {} were refused by their nodes: {}",
                owner["name"], pod["status"]["message"]
            );
            self.breach(why);
        }
    }

    /// Judges a deletion that the garbage collector asked for.
    fn judge_collection(&mut self, key: &str, before: Option<&Value>, after: Option<&Value>) {
        let Some(before) = before else { return };
        if !ends(before, after) || !self.collecting.contains(uid(before)) {
            return;
        }
        self.count("object collected");
        if before["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("own"))
        {
            self.count("owned object collected");
        }
        let owners = before["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for owner in owners {
            let key_of_owner = self.keys_by_uid.get(owner["uid"].as_str().unwrap_or_default());
            let standing = key_of_owner
                .and_then(|key| self.objects.get(key))
                .filter(|owner| !is_deleting(owner));
            if standing.is_some() {
                let text = format!("{key} was collected though its owner {} stands", owner["name"]);
                self.breach(text);
            }
        }
    }

    pub fn collects(&mut self, uid: &str) {
        self.collecting.insert(uid.to_owned());
    }

    /// That user asks for a deletion.
    pub fn asked_to_delete(&mut self, who: &str, uid: &str) {
        self.pods.asked_to_delete(who, uid);
    }

    pub fn lost_binding(&mut self, pod: &str) {
        self.lost_bindings.insert(pod.to_owned());
    }

    pub fn acknowledged(&mut self, key: &str, revision: Revision, base: Option<Revision>) {
        self.history.acknowledged(key, revision, base);
    }

    pub fn conditional(&mut self, base: Revision, revision: Revision) {
        self.history.conditional(base, revision);
    }

    pub fn sighted(&mut self, sighting: Sighting) {
        if matches!(sighting, Sighting::Resumed(_)) {
            self.count("watch resumed");
        }
        self.sightings.push(sighting);
    }

    /// The store was opened: what it holds must be what was acknowledged.
    pub fn reopened(&mut self, revision: Revision, records: &[Record]) {
        let told = self.history.reopened(revision, records);
        told.into_iter().for_each(|text| self.breach(text));
        let kept = records.iter().filter_map(|record| {
            let value: Value = serde_json::from_slice(&record.value).ok()?;
            Some((record.key.to_string(), value))
        });
        self.objects = kept.collect();
        let uids = self
            .objects
            .iter()
            .map(|(key, value)| (uid(value).to_owned(), key.clone()));
        self.keys_by_uid = uids.collect();
    }

    /// Judges what runs on the nodes against what they have.
    pub fn on_runtimes(&mut self, runtimes: &BTreeMap<String, RuntimeView>) {
        let mut told = capacity::judge_running(&self.objects, &self.keys_by_uid, runtimes);
        told.extend(self.stateful.on_runtimes(&self.pods, runtimes));
        told.into_iter().for_each(|text| self.breach(text));
    }

    /// How often something happened that only the store shows.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = self.counts.clone();
        counts.insert("eviction allowed by a budget".to_owned(), self.budgets.granted);
        counts.insert("pod counted by a job".to_owned(), self.jobs.counted());
        counts
    }

    pub fn objects(&self, prefix: &str) -> BTreeMap<String, Value> {
        let under = self
            .objects
            .range(prefix.to_owned()..)
            .take_while(|(key, _)| key.starts_with(prefix));
        under.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub fn at_rest(&mut self) {
        let mut told = self.history.at_rest();
        told.extend(self.history.judge_sightings(&self.sightings));
        told.into_iter().for_each(|text| self.breach(text));
    }
}

/// What stands, right after a change.
pub struct World<'a> {
    objects: &'a BTreeMap<String, Value>,
    keys_by_uid: &'a BTreeMap<String, String>,
    revision: Revision,
}

impl<'a> World<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.objects.get(key)
    }

    fn by_uid(&self, uid: &str) -> Option<&'a Value> {
        self.get(self.keys_by_uid.get(uid)?)
    }

    /// Everything whose key begins so.
    fn under<'b>(&self, prefix: &'b str) -> impl Iterator<Item = &'a Value> + use<'a, 'b> {
        let from = self.objects.range(prefix.to_owned()..);
        from.take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(_, object)| object)
    }
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a change is the end of what was there, or its beginning.
fn ends(before: &Value, after: Option<&Value>) -> bool {
    !is_deleting(before) && after.is_none_or(is_deleting)
}

/// The UID of the controller that owns an object.
fn controller_of(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}
