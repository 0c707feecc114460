//! What of a CronJob's past is noted in its status, and which of its Jobs are removed.

use super::{CronJobs, View, deletion, event};
use crate::controller::harness::{Controller, Wiring, controller_key};
use crate::controller::informers::Informers;
use crate::controller::job::view::finished;
use crate::controller::write::{EventText, Plan};
use client::Key;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The condition a Job ended with; `None` if it runs.
fn ending(job: &Job) -> Option<&str> {
    finished(job).map(|condition| condition.type_.as_str())
}

/// Removes what is over. Its keys are CronJobs. It is a controller of its own: a deletion that somebody refuses keeps no Job from being
/// started, as upstream.
pub struct History {
    /// The shared informers.
    pub informers: Informers,
}

impl Controller for History {
    const NAME: &'static str = CronJobs::NAME;

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.cron_jobs);
        wiring.on(&self.informers.jobs, |change| {
            let job = change.new.as_deref().filter(|job| ending(job).is_some());
            job.and_then(|job| controller_key(job, "CronJob")).into_iter().collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(cron) = self.informers.cron_jobs.get_key(key) else {
            return Plan::default();
        };
        let jobs = self
            .informers
            .jobs
            .controlled_by(&key.namespace, &cron.uid().unwrap_or_default());
        Plan::of(old(&cron, &jobs).iter().map(|job| deletion(&cron, job)).collect())
    }
}

/// The finished Jobs beyond what is to be kept, those that began first in front. One that is listed as active is to be noted first.
pub fn old(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let limits = [
        ("Complete", cron.spec.successful_jobs_history_limit),
        ("Failed", cron.spec.failed_jobs_history_limit),
    ];
    let listed = cron.status.iter().filter_map(|status| status.active.as_ref()).flatten();
    let listed: BTreeSet<&str> = listed.filter_map(|reference| reference.uid.as_deref()).collect();
    let stays = |job: &Job| {
        let is_listed = job.metadata.uid.as_deref().is_some_and(|uid| listed.contains(uid));
        is_listed || job.metadata.deletion_timestamp.is_some()
    };
    let mut old = Vec::new();
    for (ended, limit) in limits {
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else {
            continue;
        };
        let mut jobs: Vec<&Arc<Job>> = jobs.iter().filter(|job| ending(job) == Some(ended)).collect();
        jobs.sort_by_key(|job| {
            let start = job
                .status
                .as_ref()
                .and_then(|status| status.start_time.as_ref())
                .map(|time| time.0);
            (start.is_none(), start, job.name_any())
        });
        let surplus = jobs.len().saturating_sub(limit);
        old.extend(jobs.into_iter().take(surplus).filter(|job| !stays(job)).cloned());
    }
    old
}

/// The status with what has become of the Jobs, and the events that tell it.
pub fn note(view: &View<'_>, mut status: CronJobStatus) -> (CronJobStatus, Vec<EventText>) {
    let mut events = Vec::new();
    let mut tell = |kind, reason, message: String| events.push(event(view.cron, kind, reason, message));
    let mut active = status.active.take().unwrap_or_default();
    let known: BTreeSet<String> = view.jobs.iter().filter_map(|job| job.uid()).collect();
    for job in &view.jobs {
        let uid = job.uid();
        let is_listed = active.iter().any(|other| other.uid == uid);
        match ending(job) {
            None if !is_listed => {
                let message = format!(
                    "Saw a job that the controller did not create or forgot: {}",
                    job.name_any()
                );
                tell("Warning", "UnexpectedJob", message);
            }
            Some(ended) if is_listed => {
                active.retain(|other| other.uid != uid);
                let message = format!("Saw completed job: {}, condition: {ended}", job.name_any());
                tell("Normal", "SawCompletedJob", message);
            }
            _ => {}
        }
        let end = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
        if ending(job) == Some("Complete")
            && let Some(end) = end
            && status.last_successful_time.as_ref().is_none_or(|last| last.0 < end.0)
        {
            status.last_successful_time = Some(Time(end.0));
        }
    }
    active.retain(|listed| {
        let uid = listed.uid.clone().unwrap_or_default();
        if known.contains(&uid) || !view.is_current {
            return true;
        }
        if !view.replaced.contains(&uid) {
            let name = listed.name.as_deref().unwrap_or_default();
            tell("Normal", "MissingJob", format!("Active job went missing: {name}"));
        }
        false
    });
    status.active = Some(active);
    (status, events)
}
