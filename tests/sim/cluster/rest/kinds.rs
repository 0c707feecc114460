//! When the kinds beside deployments are at rest.

use crate::cluster::Simulation;
use crate::model;
use crate::workload::kinds::owners::Owners;
use crate::workload::kinds::{End, Kinds};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Later than every deletion.
const NEVER: &str = "9999";
/// Ended Jobs of one kind that a CronJob keeps.
const HISTORY: usize = 1;

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn is_seen(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn has(job: &Value, condition: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == condition && c["status"] == "True"))
}

impl Simulation {
    pub(super) fn missing_kinds(&self, kinds: &Kinds) -> Vec<String> {
        let mut missing = self.missing_sets(kinds);
        missing.extend(self.missing_jobs(kinds));
        let objects = self.judge.objects("/registry/");
        missing.extend(miscounted(&objects));
        missing.extend(unreachable(&objects));
        missing.extend(misplaced(&objects, &kinds.owners));
        missing
    }

    /// The objects of a kind in the default namespace, by name.
    fn named(&self, kind: &str) -> BTreeMap<String, Value> {
        let prefix = format!("/registry/{kind}/default/");
        let all = self.judge.objects(&prefix).into_iter();
        all.map(|(key, object)| (key[prefix.len()..].to_owned(), object))
            .collect()
    }

    fn missing_sets(&self, kinds: &Kinds) -> Vec<String> {
        let mut missing = Vec::new();
        let sets = self.named("statefulsets");
        if !sets.keys().eq(kinds.stateful.keys()) {
            let (found, wanted) = (sets.keys(), kinds.stateful.keys());
            missing.push(format!("stateful sets are {found:?}, not {wanted:?}"));
        }
        for (name, set) in &sets {
            let status = &set["status"];
            let wanted = kinds.stateful.get(name).copied().unwrap_or(0);
            let counts = ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas"];
            let settled = counts.iter().all(|count| number(&status[count]) == wanted);
            if !is_seen(set) || !settled || status["currentRevision"] != status["updateRevision"] {
                missing.push(format!("stateful set {name} wants {wanted}, has {status}"));
            }
        }
        let daemons = self.named("daemonsets");
        if !daemons.keys().eq(&kinds.daemons) {
            missing.push(format!("daemon sets are {:?}, not {:?}", daemons.keys(), kinds.daemons));
        }
        let nodes = i64::try_from(self.nodes.len()).unwrap_or(i64::MAX);
        for (name, set) in &daemons {
            let counts = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberAvailable",
                "updatedNumberScheduled",
            ];
            let settled = counts.iter().all(|count| number(&set["status"][count]) == nodes);
            if !is_seen(set) || !settled || number(&set["status"]["numberMisscheduled"]) > 0 {
                missing.push(format!("daemon set {name} wants {nodes}, has {}", set["status"]));
            }
        }
        missing
    }

    fn missing_jobs(&self, kinds: &Kinds) -> Vec<String> {
        let mut missing = Vec::new();
        let jobs = self.named("jobs");
        for (name, end) in &kinds.jobs {
            let ended = |job: &Value| match end {
                End::Complete => has(job, "Complete"),
                // A pod that is asked to end before it crashes ends well, and counts.
                End::Failed => has(job, "Failed") || has(job, "Complete"),
                End::Either => false,
            };
            if !jobs.get(name).map_or(*end == End::Either, ended) {
                missing.push(format!("job {name} is to be {end:?} and is {:?}", jobs.get(name)));
            }
        }
        let crons = self.named("cronjobs");
        if !crons.keys().eq(&kinds.cron_jobs) {
            missing.push(format!("cron jobs are {:?}, not {:?}", crons.keys(), kinds.cron_jobs));
        }
        for (name, cron) in &crons {
            let own = jobs
                .values()
                .filter(|job| job["metadata"]["ownerReferences"][0]["uid"] == cron["metadata"]["uid"]);
            let own: Vec<&Value> = own.collect();
            let unfinished = own.iter().filter(|job| !model::is_over(job)).count();
            let [complete, failed] = ["Complete", "Failed"].map(|end| own.iter().filter(|job| has(job, end)).count());
            let active = cron["status"]["active"].as_array().map_or(0, Vec::len);
            if unfinished + active > 0 || complete > HISTORY || failed > HISTORY {
                missing.push(format!(
                    "cron job {name} has {unfinished} jobs that are not over ({active} noted), keeps {complete} and {failed}"
                ));
            }
        }
        let strangers = jobs.iter().filter(|(name, job)| {
            !kinds.jobs.contains_key(*name) && job["metadata"]["ownerReferences"][0]["kind"] != "CronJob"
        });
        missing.extend(strangers.map(|(name, _)| format!("job {name} is still there")));
        missing
    }
}

/// Quotas whose status does not say what their namespace uses.
fn miscounted(objects: &BTreeMap<String, Value>) -> Vec<String> {
    let quotas = objects
        .iter()
        .filter(|(key, _)| key.starts_with("/registry/resourcequotas/"));
    let mut wrong = Vec::new();
    for (key, quota) in quotas {
        let space = quota["metadata"]["namespace"].as_str().unwrap_or_default();
        for (resource, amount) in model::used(objects, space, NEVER) {
            let told = quota["status"]["used"][resource].as_str().and_then(model::thousandths);
            if told != Some(amount) {
                wrong.push(format!(
                    "{key} says {told:?} of {resource}, used are {amount} (thousandths)"
                ));
            }
        }
    }
    wrong
}

/// Objects all of whose owners are gone, and those that wait for what they own.
fn unreachable(objects: &BTreeMap<String, Value>) -> Vec<String> {
    let uids: BTreeSet<&str> = objects
        .values()
        .filter_map(|object| object["metadata"]["uid"].as_str())
        .collect();
    let mut left = Vec::new();
    for (key, object) in objects {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let owners = owners.filter(|owners| !owners.is_empty());
        let stands = |owner: &Value| owner["uid"].as_str().is_some_and(|uid| uids.contains(uid));
        if owners.is_some_and(|owners| !owners.iter().any(stands)) {
            left.push(format!("{key} is left though its owners are gone"));
        }
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        let waits = finalizers.filter(|finalizer| *finalizer == "foregroundDeletion" || *finalizer == "orphan");
        left.extend(waits.map(|finalizer| format!("{key} waits for {finalizer}")));
    }
    left
}

/// Objects with owners of ours that should not be there, and those that should and are not.
fn misplaced(objects: &BTreeMap<String, Value>, owners: &Owners) -> Vec<String> {
    let key = |(kind, name): &(&str, String)| format!("/registry/{kind}/default/{name}");
    let lost = owners.standing.keys().map(key).filter(|key| !objects.contains_key(key));
    let lost = lost.map(|key| format!("{key} was collected, and one of its owners stands"));
    let left = owners.gone.iter().map(key).filter(|key| objects.contains_key(key));
    let left = left.map(|key| format!("{key} is still there"));
    lost.chain(left).collect()
}
