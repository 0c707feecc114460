//! Jobs count each pod exactly once and have no more pods than they may; CronJobs make one Job for each of their moments.

use super::pods::{is_active, is_terminal};
use super::{World, controller_of, is_deleting, name, uid};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const PODS: &str = "/registry/pods/";
const JOBS: &str = "/registry/jobs/";

#[derive(Default)]
pub struct Jobs {
    /// By UID of the Job: pods that were listed, counted, and left the list.
    counted: BTreeMap<String, BTreeSet<String>>,
    /// UIDs of CronJobs and names of Jobs they have made.
    made: BTreeSet<(String, String)>,
}

fn is_held(pod: &Value) -> bool {
    let finalizers = pod["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|finalizer| finalizer == FINALIZER))
}

fn has(job: &Value, condition: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == condition && c["status"] == "True"))
}

pub fn is_over(job: &Value) -> bool {
    has(job, "Complete") || has(job, "Failed")
}

fn is_indexed(job: &Value) -> bool {
    job["spec"]["completionMode"] == "Indexed"
}

fn listed(job: &Value, list: &str) -> BTreeSet<String> {
    let list = job["status"]["uncountedTerminatedPods"][list].as_array();
    let uids = list.into_iter().flatten().filter_map(Value::as_str);
    uids.map(str::to_owned).collect()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// The indexes that a text such as `1,3-5` names.
fn indexes(text: &Value) -> BTreeSet<i64> {
    let spans = text
        .as_str()
        .unwrap_or_default()
        .split(',')
        .filter(|span| !span.is_empty());
    let bounds = spans.filter_map(|span| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        Some(first.parse::<i64>().ok()?..=last.parse().ok()?)
    });
    bounds.flatten().collect()
}

fn index(pod: &Value) -> Option<i64> {
    pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()
}

fn pods_of<'a>(world: &World<'a>, job: &str) -> impl Iterator<Item = &'a Value> {
    world.under(PODS).filter(move |pod| controller_of(pod) == Some(job))
}

impl Jobs {
    /// How many pods were counted.
    pub fn counted(&self) -> u64 {
        self.counted.values().map(|counted| counted.len() as u64).sum()
    }

    /// Judges a Job that changed.
    pub fn on_job(&mut self, world: &World<'_>, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
        let mut told = Vec::new();
        match (before, after) {
            (None, Some(job)) => told.extend(self.judge_moment(world, job)),
            (Some(before), Some(job)) => {
                told.extend(self.judge_count(world, before, job));
                if is_over(job) && !is_over(before) {
                    told.extend(judge_end(world, job));
                }
            }
            _ => {}
        }
        told
    }

    /// A counter grows by those that leave its list, and nobody is listed twice.
    fn judge_count(&mut self, world: &World<'_>, before: &Value, job: &Value) -> Vec<String> {
        let mut told = Vec::new();
        let counted = self.counted.entry(uid(job).to_owned()).or_default();
        let name = name(job);
        for counter in ["succeeded", "failed"] {
            let (old, new) = (listed(before, counter), listed(job, counter));
            let again = new.iter().find(|uid| counted.contains(*uid));
            told.extend(again.map(|uid| format!("pod {uid} of {name} is listed again after it was counted")));
            let left: Vec<&String> = old.difference(&new).collect();
            let held = left.iter().find(|uid| world.by_uid(uid).is_some_and(is_held));
            told.extend(held.map(|uid| format!("pod {uid} of {name} was counted and is still held")));
            let grew = number(&job["status"][counter]) - number(&before["status"][counter]);
            let by_index = counter == "succeeded" && is_indexed(job);
            if !by_index && grew != i64::try_from(left.len()).unwrap_or(i64::MAX) {
                let left = left.len();
                told.push(format!(
                    "{counter} of {name} grew by {grew}, and {left} pods were counted"
                ));
            }
            if counter == "succeeded" {
                let wrong = new.difference(&old).find(|uid| {
                    let pod = world.by_uid(uid);
                    pod.is_none_or(|pod| pod["status"]["phase"] != "Succeeded")
                });
                told.extend(wrong.map(|uid| format!("{name} lists pod {uid}, which has not succeeded")));
            }
            counted.extend(left.into_iter().cloned());
        }
        if is_indexed(job) {
            let done = indexes(&job["status"]["completedIndexes"]);
            let lost: Vec<i64> = indexes(&before["status"]["completedIndexes"])
                .difference(&done)
                .copied()
                .collect();
            if !lost.is_empty() {
                told.push(format!("{name} forgot the indexes {lost:?}"));
            }
            if number(&job["status"]["succeeded"]) != i64::try_from(done.len()).unwrap_or(i64::MAX) {
                told.push(format!("{name} says it has {} of {done:?}", job["status"]["succeeded"]));
            }
        }
        told
    }

    /// A Job that a CronJob made: one for each moment, not before it, and alone if it has to be.
    fn judge_moment(&mut self, world: &World<'_>, job: &Value) -> Vec<String> {
        let owner = controller_of(job).and_then(|owner| world.by_uid(owner));
        let Some(cron) = owner.filter(|owner| owner["spec"]["jobTemplate"].is_object()) else {
            return Vec::new();
        };
        let mut told = Vec::new();
        let name = name(job);
        if !self.made.insert((uid(cron).to_owned(), name.to_owned())) {
            told.push(format!("{name} was made again for the same moment"));
        }
        let minute = name.rsplit_once('-').and_then(|(_, minute)| minute.parse::<i64>().ok());
        let made: Option<Timestamp> = job["metadata"]["creationTimestamp"]
            .as_str()
            .and_then(|at| at.parse().ok());
        if minute
            .zip(made)
            .is_none_or(|(minute, made)| made.as_second() < minute * 60)
        {
            told.push(format!("{name} was made before its time"));
        }
        if cron["spec"]["concurrencyPolicy"] == "Forbid" {
            let mut others = world
                .under(JOBS)
                .filter(|other| controller_of(other) == Some(uid(cron)));
            let other = others.find(|other| uid(other) != uid(job) && !is_over(other) && !is_deleting(other));
            told.extend(other.map(|other| format!("{name} was made while {} was not over", super::name(other))));
        }
        told
    }

    /// Judges a pod that came, or that its Job let go of.
    pub fn on_pod(&self, world: &World<'_>, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
        let Some(job) = before
            .or(after)
            .and_then(controller_of)
            .and_then(|owner| world.by_uid(owner))
        else {
            return Vec::new();
        };
        if !job["spec"]["backoffLimit"].is_number() {
            return Vec::new();
        }
        let mut told = Vec::new();
        match (before, after) {
            (None, Some(pod)) => told.extend(judge_creation(world, job, pod)),
            (Some(pod), after) if is_held(pod) && !after.is_some_and(is_held) => {
                told.extend(self.judge_release(job, pod))
            }
            _ => {}
        }
        told
    }

    /// What has ended is listed before it is let go of.
    fn judge_release(&self, job: &Value, pod: &Value) -> Option<String> {
        // What rests takes its pods away uncounted, even if one has just ended.
        let has_rested = number(&job["metadata"]["generation"]) > 1;
        if pod["status"]["phase"] != "Succeeded" || is_over(job) || is_deleting(job) || has_rested {
            return None;
        }
        let counted = self.counted.get(uid(job));
        // One that was stopped may succeed all the same, after it was listed as failed.
        let is_listed = ["succeeded", "failed"]
            .iter()
            .any(|list| listed(job, list).contains(uid(pod)));
        let is_told = is_listed || counted.is_some_and(|counted| counted.contains(uid(pod)));
        let is_done = is_indexed(job)
            && index(pod).is_some_and(|index| {
                let status = &job["status"];
                ["completedIndexes", "failedIndexes"]
                    .iter()
                    .any(|list| indexes(&status[list]).contains(&index))
            });
        (!is_told && !is_done).then(|| format!("{} of {} was let go of uncounted", name(pod), name(job)))
    }
}

/// A Job never has more pods than it may, nor two for one index.
fn judge_creation(world: &World<'_>, job: &Value, pod: &Value) -> Vec<String> {
    let mut told = Vec::new();
    let active: Vec<&Value> = pods_of(world, uid(job)).filter(|pod| is_active(pod)).collect();
    let most = job["spec"]["parallelism"].as_i64().unwrap_or(1);
    let count = i64::try_from(active.len()).unwrap_or(i64::MAX);
    if count > most {
        told.push(format!("{} has {count} pods at once, {most} may be", name(job)));
    }
    if let Some(own) = index(pod) {
        if active
            .iter()
            .any(|other| uid(other) != uid(pod) && index(other) == Some(own))
        {
            told.push(format!("{} has two pods at once for index {own}", name(job)));
        }
        if indexes(&job["status"]["completedIndexes"]).contains(&own) {
            told.push(format!("{} has a pod for index {own}, which is done", name(job)));
        }
    } else if let Some(wanted) = job["spec"]["completions"].as_i64() {
        let (waiting, lost) = (listed(job, "succeeded"), listed(job, "failed"));
        let is_listed = |pod: &Value| waiting.contains(uid(pod)) || lost.contains(uid(pod));
        let ended = pods_of(world, uid(job)).filter(|pod| pod["status"]["phase"] == "Succeeded" && is_held(pod));
        let unlisted = ended.filter(|pod| !is_listed(pod)).count();
        let done = number(&job["status"]["succeeded"]) + i64::try_from(waiting.len() + unlisted).unwrap_or(i64::MAX);
        if done + count > wanted {
            told.push(format!(
                "{} has {done} pods that succeeded and {count} at work, for {wanted}",
                name(job)
            ));
        }
    }
    told
}

/// A Job that is over has counted everything.
fn judge_end(world: &World<'_>, job: &Value) -> Vec<String> {
    let mut told = Vec::new();
    let name = name(job);
    let held = pods_of(world, uid(job)).find(|pod| is_terminal(pod) && is_held(pod));
    told.extend(held.map(|pod| format!("{name} is over, and {} is not counted", super::name(pod))));
    if !listed(job, "succeeded").is_empty() || !listed(job, "failed").is_empty() {
        told.push(format!("{name} is over with pods that are listed and not counted"));
    }
    let (done, wanted) = (number(&job["status"]["succeeded"]), number(&job["spec"]["completions"]));
    if has(job, "Complete") && done != wanted {
        told.push(format!("{name} is complete with {done} of {wanted}"));
    }
    told
}
