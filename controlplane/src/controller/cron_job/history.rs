//! What of a CronJob's past is noted in its status, and which of its Jobs are removed. Pure.

use super::{View, event};
use crate::controller::job::view::finished;
use crate::controller::write::EventText;
use k8s_openapi::api::batch::v1::{CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The condition a Job ended with; `None` if it runs.
fn ending(job: &Job) -> Option<&str> {
    finished(job).map(|condition| condition.type_.as_str())
}

/// The finished Jobs beyond what is to be kept, those that began first in front.
pub fn old(view: &View<'_>) -> Vec<Arc<Job>> {
    let limits = [
        ("Complete", view.spec.successful_jobs_history_limit),
        ("Failed", view.spec.failed_jobs_history_limit),
    ];
    let mut old = Vec::new();
    for (ended, limit) in limits {
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else {
            continue;
        };
        let is_going = |job: &Job| job.metadata.deletion_timestamp.is_some();
        let mut jobs: Vec<&Arc<Job>> = view.jobs.iter().filter(|job| ending(job) == Some(ended)).collect();
        jobs.sort_by_key(|job| {
            let start = job
                .status
                .as_ref()
                .and_then(|status| status.start_time.as_ref())
                .map(|time| time.0);
            (start.is_none(), start, job.name_any())
        });
        let surplus = jobs.len().saturating_sub(limit);
        old.extend(jobs.into_iter().take(surplus).filter(|job| !is_going(job)).cloned());
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
