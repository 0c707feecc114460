//! Job: pods that run to their end, as often as asked for, each end counted once.
//!
//! Source: control-plane contract §12; KEP-2307 (counting), 2214 (indexes), 3329 and 3850 (failures), 3998 (success), 3939
//! (replacement), 4368 (managedBy). [`plan`] decides one step from a snapshot: pods that still run although the end is announced
//! go; what has ended is listed in the status; what is listed is let go of; pods are made or removed; the rest of the status
//! follows. [`status`] says why a count is right whatever fails in between.

use super::harness::{Controller, Wiring, controller_key};
use super::informers::Informers;
use super::owner;
use super::pod;
use super::write::{self, Failure, Plan, Verb, Write};
use crate::held::Pod;
use crate::metrics::controllers::Controllers as Counters;
use client::Key;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::selector::Selector;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub mod backoff;
mod count;
pub mod end;
pub mod indexes;
pub mod manage;
pub mod orphan;
pub mod policy;
pub mod status;
pub mod view;

use manage::{Memory, event};
use view::{FINALIZER, View};

/// What happens to pods in this time is looked at together.
const BATCH: Duration = Duration::from_secs(1);

/// The controller.
pub struct Jobs {
    /// The shared informers.
    pub informers: Informers,
    /// What is remembered of each Job, with its UID.
    pub memories: Mutex<BTreeMap<Key, (String, Memory)>>,
    /// What the last plan of each Job was made of: an informer may be further on when a write is counted.
    pub planned: Mutex<BTreeMap<Key, Planned>>,
}

/// A Job as a plan saw it.
#[derive(Clone, Debug)]
pub struct Planned {
    job: Arc<Job>,
    /// Pods that the plan lets go of, by name.
    done: BTreeMap<String, Arc<Pod>>,
    /// Whether it sees to it that its pods are as many as they should be.
    manages: bool,
}

/// The Jobs in a namespace that select these labels.
fn selecting(informers: &Informers, pod: &Pod) -> Vec<Key> {
    let labels = pod.metadata.labels.as_ref();
    let jobs = informers.jobs.list_namespace(&pod.namespace().unwrap_or_default());
    let selects = |job: &&Arc<Job>| selector(job).matches_optional(labels);
    jobs.iter().filter(selects).map(|job| Key::of(&**job)).collect()
}

fn selector(job: &Job) -> Selector {
    let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selector = selector.and_then(|selector| Selector::from_api(selector).ok());
    selector.unwrap_or_else(Selector::nothing)
}

impl Jobs {
    /// Its pods, and the writes that make them so. What is adopted is tracked, what is released no longer.
    fn claims(&self, job: &Job) -> owner::Claims<Pod> {
        let (namespace, uid) = (job.namespace().unwrap_or_default(), job.uid().unwrap_or_default());
        let (controlled, orphans) = self.informers.pods.claimable(&namespace, &uid);
        let mut claims = owner::claim((&write::JOBS, job), &selector(job), &write::PODS, controlled, orphans);
        for write in &mut claims.writes {
            let Verb::Patch(_, _, body) = &mut write.verb else {
                continue;
            };
            let meta = &mut body["metadata"];
            if meta["ownerReferences"][0]["$patch"] == "delete" {
                meta["$deleteFromPrimitiveList/finalizers"] = json!([FINALIZER]);
            } else {
                meta["finalizers"] = json!([FINALIZER]);
            }
        }
        claims
    }

    fn forget(&self, key: &Key) {
        self.memories.lock().expect("no holder of this lock panics").remove(key);
        self.planned.lock().expect("no holder of this lock panics").remove(key);
    }

    /// Remembers what a plan was made of, for those who count what comes of it.
    fn remember(&self, key: &Key, job: &Arc<Job>, writes: &[Write], manages: bool) {
        let done = writes.iter().filter(|write| is_let_go(write));
        let done = done.filter_map(|write| {
            let pod = self.informers.pods.get_key(&write.key)?;
            Some((write.key.name.clone(), pod))
        });
        let planned = Planned {
            job: Arc::clone(job),
            done: done.collect(),
            manages,
        };
        let mut all = self.planned.lock().expect("no holder of this lock panics");
        all.insert(key.clone(), planned);
    }

    fn planned(&self, key: &Key) -> Option<Planned> {
        let all = self.planned.lock().expect("no holder of this lock panics");
        all.get(key).cloned()
    }

    /// The Job of that key, if there is something to do about it.
    fn live(&self, key: &Key) -> Option<Arc<Job>> {
        let job = self.informers.jobs.get_key(key);
        let job = job.filter(|job| view::finished(job).is_none());
        if job.is_none() {
            self.forget(key);
        }
        job.filter(|job| !view::is_foreign(job))
    }

    fn decide(&self, key: &Key, job: &Job, pods: Vec<Arc<Pod>>, now: Timestamp) -> Option<Decision> {
        let view = View::new(job, pods, now)?;
        let is_taken = |name: &str| self.informers.pods.get(&key.namespace, name).is_some();
        let mut memories = self.memories.lock().expect("no holder of this lock panics");
        let (known, memory) = memories.entry(key.clone()).or_default();
        let uid = job.uid().unwrap_or_default();
        if *known != uid {
            (*known, *memory) = (uid, Memory::default());
        }
        memory.record.observe(&view);
        memory.asked.retain(|name| !is_taken(name));
        let mut decision = plan(&view, memory, &is_taken);
        memory.ask(&decision.plan.writes);
        drop(memories);
        if !self.informers.takes_new(&key.namespace) {
            decision.plan.writes.retain(|w| !matches!(w.verb, Verb::Create(_)));
        }
        Some(decision)
    }
}

impl Controller for Jobs {
    const NAME: &'static str = "job-controller";
    const RETRY_FIRST: Duration = Duration::from_secs(1);
    const RETRY_MAX: Duration = Duration::from_secs(60);

    fn wire(&self, wiring: &mut Wiring) {
        let counters = wiring.counters();
        wiring.on_later(&self.informers.jobs, move |change| {
            if let (None, Some(job)) = (&change.old, change.new.as_ref().filter(|job| view::is_foreign(job))) {
                counters.job_of(view::manager(job));
            }
            let generation = |job: &Option<Arc<Job>>| job.as_ref().and_then(|job| job.metadata.generation);
            let is_status = change.new.is_some() && generation(&change.old) == generation(&change.new);
            vec![(change.key.clone(), if is_status { BATCH } else { Duration::ZERO })]
        });
        let (informers, counters) = (self.informers.clone(), wiring.counters());
        wiring.on_later(&self.informers.pods, move |change| {
            count::held(&counters, change.old.as_deref(), change.new.as_deref());
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let owners = sides.into_iter().flatten().filter_map(|pod| controller_key(pod, "Job"));
            let mut keys: Vec<Key> = owners.collect();
            if let Some(orphan) = change.new.as_deref().filter(|pod| pod::is_uncontrolled(pod)) {
                keys.extend(selecting(&informers, orphan));
            }
            keys.into_iter().map(|key| (key, BATCH)).collect()
        });
    }

    fn wrote(&self, counters: &Counters, key: &Key, write: &Write, failure: Option<&Failure>, _now: Timestamp) {
        let Some(Planned { job, done, .. }) = self.planned(key) else {
            return;
        };
        match (&write.verb, failure) {
            (Verb::Create(_), failure) if write.resource == write::PODS => {
                count::created(counters, &job, failure.is_none());
            }
            (Verb::ReplaceSub("status", body), None) if write.resource == write::JOBS => {
                count::told(counters, &job, body);
            }
            (Verb::Patch(..), None) if write.resource == write::PODS => {
                if let Some(pod) = done.get(&write.key.name).filter(|_| is_let_go(write)) {
                    count::judged(counters, &job, pod);
                }
            }
            _ => {}
        }
    }

    fn reconciled(&self, counters: &Counters, key: &Key, writes: &[Write], failure: Option<&Failure>, took: Duration) {
        if let Some(planned) = self.planned(key) {
            counters.job_synced(&count::sync(&planned, writes, failure.is_some()), took);
        }
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(job) = self.live(key) else {
            return Plan::default();
        };
        let mode = job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref());
        if mode.is_some_and(|mode| mode != "Indexed" && mode != "NonIndexed") {
            let message = "Skipped Job sync because completion mode is unknown";
            return Plan {
                events: vec![event(&job, "Warning", "UnknownCompletionMode", message)],
                ..Plan::default()
            };
        }
        self.remember(key, &job, &[], false);
        let claims = self.claims(&job);
        if !claims.writes.is_empty() {
            return Plan {
                writes: claims.writes,
                ..Plan::default()
            };
        }
        let decision = self.decide(key, &job, claims.owned, now).unwrap_or_default();
        self.remember(key, &job, &decision.plan.writes, decision.manages);
        decision.plan
    }

    fn status(&self, key: &Key, now: Timestamp, failure: Option<&Failure>) -> Vec<Write> {
        // Statuses are steps of the plan. Only where pods cannot be written is the rest of it told all the same.
        if failure.is_none_or(|failure| failure.resource != "pods") {
            return vec![];
        }
        let Some(job) = self.live(key) else { return vec![] };
        let owned = self.claims(&job).owned;
        let decision = self.decide(key, &job, owned, now);
        decision.and_then(|decision| decision.status).into_iter().collect()
    }
}

/// Whether the patch takes the finalizer off a pod that stays the Job's.
fn is_let_go(write: &Write) -> bool {
    let Verb::Patch(_, _, body) = &write.verb else {
        return false;
    };
    let meta = &body["metadata"];
    !meta["$deleteFromPrimitiveList/finalizers"].is_null() && meta["ownerReferences"].is_null()
}

/// A step, and the status if it is to be told although the step failed.
#[derive(Debug, Default)]
pub struct Decision {
    /// The step.
    pub plan: Plan,
    /// The status.
    pub status: Option<Write>,
    /// Whether it sees to it that the pods are as many as they should be: not at the end, when all that run go.
    pub manages: bool,
}

/// The next step of a Job. `is_taken`: whether there is a pod of that name in its namespace.
pub fn plan(view: &View<'_>, memory: &Memory, is_taken: &dyn Fn(&str) -> bool) -> Decision {
    let early = end::early(view);
    let manages = early.is_none() && !view.is_deleting();
    Decision {
        manages,
        ..step(view, early, manages, memory, is_taken)
    }
}

fn step(
    view: &View<'_>,
    early: Option<end::End>,
    manages: bool,
    memory: &Memory,
    is_taken: &dyn Fn(&str) -> bool,
) -> Decision {
    if early.is_some() {
        let writes = manage::end_active(view);
        if !writes.is_empty() {
            return steps(writes, None);
        }
    }
    let pods = match manages {
        true => manage::manage(view, memory, is_taken),
        false => manage::Pods::default(),
    };
    let is_managed = pods.writes.is_empty();
    let end = early.or_else(|| is_managed.then(|| end::complete(view)).flatten());
    let next = status::next(view, end.as_ref(), is_managed);
    let told = status::differs(&view.status, &next.status).then(|| tell(view.job, &next));
    if status::is_urgent(&view.status, &next.status) {
        let mut decision = steps(told.into_iter().collect(), None);
        if next.too_many {
            let message = "Too many succeeded pods running after completion count reached";
            decision.plan.events = vec![event(view.job, "Warning", "TooManySucceededPods", message)];
        }
        return decision;
    }
    if !next.done.is_empty() {
        let done = next.done.iter().take(manage::BURST);
        return steps(done.map(|pod| manage::untrack(pod)).collect(), None);
    }
    if !is_managed {
        return Decision {
            status: told,
            ..steps(pods.writes, None)
        };
    }
    let wait = pods.wait.map(|wait| wait.max(BATCH));
    let deadline = end.is_none().then(|| end::deadline_in(view)).flatten();
    steps(told.into_iter().collect(), [wait, deadline].into_iter().flatten().min())
}

fn steps(writes: Vec<Write>, again_in: Option<Duration>) -> Decision {
    Decision {
        plan: Plan {
            writes,
            events: vec![],
            again_in,
        },
        ..Decision::default()
    }
}

/// The write of a status, and the event that comes with it.
fn tell(job: &Job, next: &status::Next) -> Write {
    let mut job = job.clone();
    job.status = Some(next.status.clone());
    let write = Write::replace_status(write::JOBS, &job);
    match &next.news {
        Some((kind, reason, message)) => write.success(event(&job, kind, reason, message)),
        None => write,
    }
}

#[cfg(test)]
mod tests;
