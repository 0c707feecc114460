//! CronJob: makes Jobs at the moments its schedule names, and removes old ones.
//!
//! Source: control-plane contract §12. A Job is named after its minute, so a moment whose Job was made and not yet noted makes no
//! second one: the Job is found, and noted. [`due`] says which moment is due, [`history`] what of the past is noted, and removes it.

use super::harness::{Controller, Wiring, controller_key};
use super::informers::Informers;
use super::owner::controller_reference;
use super::write::{self, EventText, Failure, Plan, Verb, Write, reference};
use crate::cron::{Schedule, zone};
use crate::metrics::controllers::Controllers as Counters;
use client::Clock;
use client::Key;
use client::informer::revision_of;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub mod due;
pub mod history;

use due::Due;

/// When a Job was due, on the Job.
pub const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Clocks that run apart by so much make no difference.
const PADDING: Duration = Duration::from_millis(100);

/// The controller.
pub struct CronJobs {
    /// The shared informers.
    pub informers: Informers,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// UIDs of Jobs that were deleted to make room for the next, by CronJob, as long as it lists them: nobody is told that they
    /// went missing.
    pub replaced: Mutex<BTreeMap<Key, BTreeSet<String>>>,
}

/// When a CronJob's moments are, or why that cannot be said: an event's reason and message.
pub type Timetable = Result<(Schedule, TimeZone), (&'static str, String)>;

/// Reads the schedule and its time zone.
pub fn timetable(spec: &CronJobSpec) -> Timetable {
    let zone = match &spec.time_zone {
        None => TimeZone::UTC,
        Some(name) => {
            zone::find(name).map_err(|unknown| ("UnknownTimeZone", format!("invalid timeZone: {name:?}: {unknown}")))?
        }
    };
    let schedule = Schedule::parse(&spec.schedule).map_err(|problem| {
        let message = format!("unparseable schedule: {:?} : {problem}", spec.schedule);
        ("UnparseableSchedule", message)
    })?;
    Ok((schedule, zone))
}

/// A CronJob and its Jobs at one moment.
pub struct View<'a> {
    /// The CronJob.
    pub cron: &'a CronJob,
    /// Its spec.
    pub spec: &'a CronJobSpec,
    /// The Jobs it controls, by name.
    pub jobs: Vec<Arc<Job>>,
    /// Whether the Jobs are known at least as of the CronJob's own revision.
    pub is_current: bool,
    /// Deleted for others, and perhaps still listed as active.
    pub replaced: BTreeSet<String>,
    /// Now.
    pub now: Timestamp,
}

/// A step, and the status if it is to be told although the step failed.
#[derive(Debug, Default)]
pub struct Decision {
    /// The step.
    pub plan: Plan,
    /// The status.
    pub status: Option<Write>,
}

/// An event about the CronJob.
pub fn event(cron: &CronJob, kind: &'static str, reason: &'static str, message: String) -> EventText {
    EventText {
        regarding: reference(&write::CRON_JOBS, cron),
        kind,
        reason,
        message,
    }
}

/// The name of the Job of a moment.
pub fn job_name(cron: &CronJob, scheduled: Timestamp) -> String {
    format!("{}-{}", cron.name_any(), scheduled.as_second().div_euclid(60))
}

/// Deletes a Job and, afterwards, its pods.
fn deletion(cron: &CronJob, job: &Job) -> Write {
    let verb = Verb::Delete {
        uid: job.uid().unwrap_or_default(),
        revision: None,
        grace: None,
        propagation: Some("Background"),
    };
    Write::new(write::JOBS, Key::of(job), verb)
        .success(event(cron, "Normal", "SuccessfulDelete", "Deleted job {}".to_owned()))
        .failure(event(cron, "Warning", "FailedDelete", "Deleted job: {}".to_owned()))
}

/// The Job of a moment.
fn creation(cron: &CronJob, spec: &CronJobSpec, scheduled: Timestamp) -> Write {
    let meta = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), due::rfc3339(scheduled, spec.time_zone.as_deref()));
    let job = Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron, scheduled)),
            namespace: cron.namespace(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(&write::CRON_JOBS, cron)]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec.clone(),
        status: None,
    };
    Write::create(write::JOBS, &job)
        .success(event(cron, "Normal", "SuccessfulCreate", "Created job {}".to_owned()))
        .failure(event(
            cron,
            "Warning",
            "FailedCreate",
            "Error creating job: {}".to_owned(),
        ))
}

/// The next step. `holder`: the Job of that name, whoever controls it.
pub fn plan(view: &View<'_>, timetable: &Timetable, holder: &dyn Fn(&str) -> Option<Arc<Job>>) -> Decision {
    let (cron, spec) = (view.cron, view.spec);
    let stored = cron.status.clone().unwrap_or_default();
    let mut writes = Vec::new();
    let (mut status, mut events) = history::note(view, stored.clone());
    let mut again_in = None;
    let mut told = Vec::new();
    if cron.metadata.deletion_timestamp.is_none() {
        let due = due::due(view, &status, timetable);
        again_in = due.next_in.map(|next| next + PADDING);
        told.extend(due.events);
        match due.what {
            Due::Nothing => {}
            Due::Start(scheduled) => {
                let name = job_name(cron, scheduled);
                match holder(&name) {
                    None => {
                        if spec.concurrency_policy.as_deref() == Some("Replace") {
                            let listed = status.active.iter().flatten().filter_map(|r| r.uid.as_deref());
                            let listed: BTreeSet<&str> = listed.collect();
                            let active = view
                                .jobs
                                .iter()
                                .filter(|job| listed.contains(job.metadata.uid.as_deref().unwrap_or_default()));
                            writes.extend(active.map(|job| deletion(cron, job)));
                        }
                        writes.push(creation(cron, spec, scheduled));
                    }
                    Some(job) if view.jobs.iter().any(|own| own.metadata.uid == job.metadata.uid) => {
                        // It is not unexpected: it is the one just made.
                        events.retain(|e| e.reason != "UnexpectedJob" || !e.message.ends_with(&format!(": {name}")));
                        let active = status.active.get_or_insert_default();
                        if !active.iter().any(|other| other.uid == job.metadata.uid) {
                            active.push(reference(&write::JOBS, &*job));
                        }
                        status.last_schedule_time = Some(Time(scheduled));
                    }
                    // Somebody else's Job has the name: its owner notes it, or the moment passes.
                    Some(_) => {}
                }
            }
        }
    }
    let status = differs(&stored, &status).then(|| {
        let mut cron = cron.clone();
        cron.status = Some(status);
        Write::replace_status(write::CRON_JOBS, &cron)
    });
    if writes.is_empty() {
        told.extend(events);
        writes.extend(status.clone());
    }
    Decision {
        plan: Plan {
            writes,
            events: told,
            again_in,
        },
        status,
    }
}

/// Whether two statuses say different things; none and an empty list are the same.
fn differs(a: &CronJobStatus, b: &CronJobStatus) -> bool {
    let plain = |status: &CronJobStatus| CronJobStatus {
        active: status.active.clone().filter(|active| !active.is_empty()),
        ..status.clone()
    };
    plain(a) != plain(b)
}

impl CronJobs {
    fn decide(&self, key: &Key, now: Timestamp) -> Option<Decision> {
        let mut all = self.replaced.lock().expect("no holder of this lock panics");
        let Some(cron) = self.informers.cron_jobs.get_key(key) else {
            all.remove(key);
            return None;
        };
        let mut replaced = all.remove(key).unwrap_or_default();
        let spec = &cron.spec;
        let uid = cron.uid().unwrap_or_default();
        let jobs = self.informers.jobs.controlled_by(&key.namespace, &uid);
        let view = View {
            cron: &cron,
            spec,
            jobs,
            is_current: self.informers.jobs.revision() >= revision_of(&*cron),
            replaced: replaced.clone(),
            now,
        };
        let holder = |name: &str| self.informers.jobs.get(&key.namespace, name);
        let mut decision = plan(&view, &timetable(spec), &holder);
        let listed = cron.status.iter().filter_map(|status| status.active.as_ref()).flatten();
        let listed: BTreeSet<&str> = listed.filter_map(|reference| reference.uid.as_deref()).collect();
        replaced.extend(decision.plan.writes.iter().filter_map(|write| match &write.verb {
            Verb::Delete { uid, .. } => Some(uid.clone()),
            _ => None,
        }));
        // What the CronJob lists no longer is noted as gone.
        replaced.retain(|uid| listed.contains(uid.as_str()));
        if !replaced.is_empty() {
            all.insert(key.clone(), replaced);
        }
        if !self.informers.takes_new(&key.namespace) {
            decision.plan.writes.retain(|w| !matches!(w.verb, Verb::Create(_)));
        }
        Some(decision)
    }
}

impl Controller for CronJobs {
    const NAME: &'static str = "cronjob-controller";

    fn wire(&self, wiring: &mut Wiring) {
        let clock = self.clock.clone();
        wiring.on_later(&self.informers.cron_jobs, move |change| {
            let times = |cron: &Option<Arc<CronJob>>| {
                let spec = &cron.as_ref()?.spec;
                Some((spec.schedule.clone(), spec.time_zone.clone()))
            };
            let delay = match (&change.old, &change.new) {
                // A new schedule is looked at when it is first due: what it would have made before is not made up for.
                (Some(_), Some(new)) if times(&change.old) != times(&change.new) => due::first_in(new, clock.now()),
                _ => Duration::ZERO,
            };
            vec![(change.key.clone(), delay)]
        });
        wiring.on(&self.informers.jobs, |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let owners = sides.into_iter().flatten();
            owners.filter_map(|job| controller_key(job, "CronJob")).collect()
        });
    }

    fn wrote(&self, counters: &Counters, _key: &Key, write: &Write, failure: Option<&Failure>, now: Timestamp) {
        let Verb::Create(body) = &write.verb else { return };
        let scheduled = body["metadata"]["annotations"][SCHEDULED].as_str();
        let scheduled = scheduled.and_then(|text| text.parse::<Timestamp>().ok());
        if let Some(scheduled) = scheduled.filter(|_| failure.is_none()) {
            counters.cron_job_late(now.duration_since(scheduled).as_secs_f64().max(0.0));
        }
    }

    fn plan(&self, key: &Key, now: Timestamp) -> Plan {
        self.decide(key, now).map(|decision| decision.plan).unwrap_or_default()
    }

    fn status(&self, key: &Key, now: Timestamp, failure: Option<&Failure>) -> Vec<Write> {
        // Statuses are steps of the plan. Only where Jobs cannot be written is the rest of it told all the same.
        if failure.is_none_or(|failure| failure.resource != "jobs") {
            return vec![];
        }
        self.decide(key, now)
            .and_then(|decision| decision.status)
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests;
