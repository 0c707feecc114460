//! Which pods a Job makes and ends now. Pure.
//!
//! Names of pods follow from the Job and from how many it has had, and a name that was asked for is asked for again until its pod is
//! seen: a creation whose answer is late makes one pod, not two.

use super::backoff::{self, Record};
use super::view::{
    FINALIZER, INDEX, INDEX_FAILURES, INDEX_IGNORED, View, counted, failures_before, index_of, is_tracked,
};
use crate::controller::burst::Burst;
use crate::controller::pod;
use crate::controller::replica_set::order::deletion_order;
use crate::controller::write::{self, EventText, PatchKind, Verb, Write, reference};
use crate::held::Pod;
use client::Key;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodTemplateSpec};
use kube::ResourceExt;
use proto::api::names;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Most creations or deletions in one plan.
pub const BURST: usize = 500;
/// The variable an indexed Job's containers have.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest prefix that a generated name keeps.
const PREFIX_MAX: usize = 58;
/// What comes behind it.
const SUFFIX: usize = 5;

/// What is to be done about pods.
#[derive(Debug, Default)]
pub struct Pods {
    /// Creations or deletions, never both.
    pub writes: Vec<Write>,
    /// How long the next creations have to wait, if they do.
    pub wait: Option<Duration>,
}

/// An event about the Job.
pub fn event(job: &Job, kind: &'static str, reason: &'static str, message: &str) -> EventText {
    EventText {
        regarding: reference(&write::JOBS, job),
        kind,
        reason,
        message: message.to_owned(),
    }
}

/// Deletes pods that run, as the end of the Job, which counts them, is near.
pub fn end_active(view: &View<'_>) -> Vec<Write> {
    view.active().take(BURST).map(|pod| deletion(view.job, pod)).collect()
}

fn deletion(job: &Job, pod: &Pod) -> Write {
    Write::delete(write::PODS, pod)
        .success(event(job, "Normal", "SuccessfulDelete", "Deleted pod: {}"))
        .failure(event(job, "Warning", "FailedDelete", "Error deleting: {}"))
}

/// Lets go of a pod whose end is counted, or is not to be.
pub fn untrack(pod: &Pod) -> Write {
    let body = json!({"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    Write::patch(write::PODS, Key::of(pod), PatchKind::Strategic, body)
}

/// Deletes pods that are not to be counted.
fn removal(view: &View<'_>, pods: &[Arc<Pod>]) -> Vec<Write> {
    let tracked = pods.iter().filter(|pod| is_tracked(pod)).map(|pod| untrack(pod));
    let deletions = pods.iter().map(|pod| deletion(view.job, pod));
    tracked.chain(deletions).collect()
}

/// What a controller remembers of a Job. Without it nothing goes wrong but for what was under way when it was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its failures.
    pub record: Record,
    /// Names of pods that were asked for and have not been seen, in the order they were asked for.
    pub asked: Vec<String>,
}

impl Memory {
    /// Remembers the names that a plan asks for.
    pub fn ask(&mut self, writes: &[Write]) {
        let created = writes.iter().filter(|write| matches!(write.verb, Verb::Create(_)));
        for name in created.map(|write| &write.key.name) {
            if !self.asked.contains(name) {
                self.asked.push(name.clone());
            }
        }
    }
}

/// Makes the pods as many as they are to be. `is_taken`: whether there is a pod of that name.
pub fn manage(view: &View<'_>, memory: &Memory, is_taken: &dyn Fn(&str) -> bool) -> Pods {
    let active: Vec<Arc<Pod>> = view.active().cloned().collect();
    let wanted = wanted(view, active.len());
    let mut surplus = surplus(view, active.clone(), active.len().saturating_sub(wanted));
    surplus.truncate(BURST);
    if !surplus.is_empty() {
        return Pods {
            writes: removal(view, &surplus),
            wait: None,
        };
    }
    let dying = if view.replaces_only_failed() {
        view.terminating().count()
    } else {
        0
    };
    let missing = wanted.saturating_sub(dying).saturating_sub(active.len()).min(BURST);
    if missing == 0 || view.is_suspended() {
        return Pods::default();
    }
    if view.spec.backoff_limit_per_index.is_none() {
        let pause = memory.record.pause(view.now);
        if !pause.is_zero() {
            return wait(pause);
        }
    }
    let mut names = Names::new(view, &memory.asked, is_taken);
    if view.by_index.is_none() {
        return made((0..missing).map(|_| creation(view, None, &mut names)));
    }
    let (indexes, pause) = ready_indexes(view, missing);
    match pause {
        Some(pause) if indexes.is_empty() => wait(pause),
        _ => made(indexes.into_iter().map(|index| creation(view, Some(index), &mut names))),
    }
}

/// As many of the creations as one plan may have.
fn made(creations: impl Iterator<Item = Write>) -> Pods {
    Pods {
        writes: Burst::new(BURST).fill(creations).into_writes(),
        wait: None,
    }
}

fn wait(pause: Duration) -> Pods {
    Pods {
        writes: Vec::new(),
        wait: Some(pause),
    }
}

/// How many pods are to run.
fn wanted(view: &View<'_>, active: usize) -> usize {
    let parallelism = usize::try_from(view.spec.parallelism.unwrap_or(1)).unwrap_or(0);
    if view.is_suspended() {
        return 0;
    }
    match view.spec.completions {
        None if view.succeeded() > 0 => active,
        None => parallelism,
        Some(completions) => {
            let completions = usize::try_from(completions).unwrap_or(0);
            completions.saturating_sub(view.succeeded()).min(parallelism)
        }
    }
}

/// Active pods to end: at least so many, and all whose index is none or is had twice.
fn surplus(view: &View<'_>, active: Vec<Arc<Pod>>, at_least: usize) -> Vec<Arc<Pod>> {
    let in_order = deletion_order(active, &[], view.now);
    let Some(by) = &view.by_index else {
        return in_order.into_iter().take(at_least).collect();
    };
    // The last of each index in that order stays.
    let mut seen = BTreeSet::new();
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for pod in in_order.into_iter().rev() {
        let is_new = index_of(&pod).is_some_and(|index| index < by.completions && seen.insert(index));
        if is_new { stay.push(pod) } else { go.push(pod) }
    }
    let more = at_least.saturating_sub(go.len());
    go.extend(stay.into_iter().rev().take(more));
    go
}

/// The indexes whose pods can be made now, and the shortest wait of those that cannot.
fn ready_indexes(view: &View<'_>, count: usize) -> (Vec<u32>, Option<Duration>) {
    let Some(by) = &view.by_index else {
        return (Vec::new(), None);
    };
    let mut taken = by.succeeded.with(view.active().filter_map(|pod| index_of(pod)));
    if view.replaces_only_failed() {
        taken = taken.with(view.terminating().filter_map(|pod| index_of(pod)));
    }
    if let Some(failed) = &by.failed {
        taken = taken.union(failed);
    }
    let mut shortest: Option<Duration> = None;
    let mut ready = Vec::new();
    for index in taken.missing(count, by.completions) {
        let pause = by.kept.get(&index).map_or(Duration::ZERO, |pod| {
            let (failed, ignored) = failures_before(pod);
            let failures = counted(Some(failed)) + counted(Some(ignored)) + 1;
            backoff::left(failures, backoff::ended(pod), view.now)
        });
        if pause.is_zero() {
            ready.push(index);
        } else {
            shortest = Some(shortest.map_or(pause, |other| other.min(pause)));
        }
    }
    (ready, shortest)
}

/// Names for new pods: those that were asked for and have not been seen come first, as their pods may be on their way.
struct Names<'a> {
    asked: &'a [String],
    given: BTreeSet<String>,
    seed: String,
    /// The number to try next, of each prefix.
    numbers: BTreeMap<String, usize>,
    /// The number to begin with.
    start: usize,
    is_taken: &'a dyn Fn(&str) -> bool,
}

impl<'a> Names<'a> {
    fn new(view: &View<'_>, asked: &'a [String], is_taken: &'a dyn Fn(&str) -> bool) -> Self {
        let uid = view.job.uid().unwrap_or_default();
        let generation = view.job.metadata.generation.unwrap_or_default();
        Self {
            asked,
            given: BTreeSet::new(),
            seed: format!("{uid}/{generation}"),
            numbers: BTreeMap::new(),
            // An index has few pods, and is what tells its names from others.
            start: if view.by_index.is_some() { 0 } else { view.made() },
            is_taken,
        }
    }

    fn next(&mut self, prefix: &str) -> String {
        let base = prefix.get(..PREFIX_MAX).unwrap_or(prefix);
        let is_ours = |name: &&String| name.len() == base.len() + SUFFIX && name.starts_with(base);
        let open = |name: &&String| !self.given.contains(*name) && !(self.is_taken)(name);
        let pending = self.asked.iter().filter(is_ours).find(open).cloned();
        let name = pending.unwrap_or_else(|| self.fresh(prefix));
        self.given.insert(name.clone());
        name
    }

    fn fresh(&mut self, prefix: &str) -> String {
        let number = self.numbers.entry(prefix.to_owned()).or_insert(self.start);
        loop {
            let bits = fnv(format!("{}/{prefix}/{number}", self.seed).as_bytes());
            let name = names::generate_name(prefix, bits);
            *number += 1;
            if !self.given.contains(&name) && !(self.is_taken)(&name) {
                return name;
            }
        }
    }
}

/// FNV-1a, 64 bits, its halves mixed: near texts lie far apart.
fn fnv(text: &[u8]) -> u64 {
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What names of its pods begin with; a long name of a Job is cut where it has an index, so that the index stays.
fn prefix(job: &str, index: Option<u32>) -> String {
    let Some(index) = index else {
        return format!("{job}-");
    };
    let end = format!("-{index}-");
    let room = job.len().min(PREFIX_MAX.saturating_sub(end.len()));
    format!("{}{end}", job.get(..room).unwrap_or(job))
}

fn creation(view: &View<'_>, index: Option<u32>, names: &mut Names<'_>) -> Write {
    let job = view.job;
    let mut template = view.spec.template.clone();
    if let Some(index) = index {
        label_index(view, &mut template, index);
    }
    let mut pod = pod::from_template(&template, &write::JOBS, job);
    let prefix = prefix(&job.name_any(), index);
    pod.metadata.name = Some(names.next(&prefix));
    pod.metadata.generate_name = Some(prefix);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    Write::create(write::PODS, &pod)
        .success(event(job, "Normal", "SuccessfulCreate", "Created pod: {}"))
        .failure(event(job, "Warning", "FailedCreate", "Error creating: {}"))
}

/// Tells a pod its index: label, annotation, variable, hostname, and the failures it inherits.
fn label_index(view: &View<'_>, template: &mut PodTemplateSpec, index: u32) {
    let meta = template.metadata.get_or_insert_default();
    let labels = meta.labels.get_or_insert_default();
    labels.insert(INDEX.to_owned(), index.to_string());
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if view.spec.backoff_limit_per_index.is_some() {
        let kept = view.by_index.as_ref().and_then(|by| by.kept.get(&index));
        let (mut failed, mut ignored) = kept.map_or((0, 0), |pod| failures_before(pod));
        if let Some(pod) = kept {
            let count = if view.outcome(pod).counts() {
                &mut failed
            } else {
                &mut ignored
            };
            *count = count.saturating_add(1);
        }
        annotations.insert(INDEX_FAILURES.to_owned(), failed.to_string());
        if ignored > 0 {
            annotations.insert(INDEX_IGNORED.to_owned(), ignored.to_string());
        }
    }
    let Some(spec) = &mut template.spec else { return };
    spec.hostname = Some(format!("{}-{index}", view.job.name_any()));
    spec.init_containers.iter_mut().flatten().for_each(tell_index);
    spec.containers.iter_mut().for_each(tell_index);
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: format!("metadata.labels['{INDEX}']"),
            }),
            ..EnvVarSource::default()
        }),
    });
}
