//! What is counted of Jobs: from the writes that were done, and from what informers show of pods.

use super::Planned;
use super::end;
use super::indexes::Indexes;
use super::policy::{self, Outcome};
use super::view::{self, is_tracked};
use crate::controller::pod::phase;
use crate::controller::write::{self, Verb, Write};
use crate::held::Pod;
use crate::metrics::controllers::{Controllers, JobEnd, JobSync};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use serde_json::Value;

/// The mode as a label.
fn mode(job: &Job) -> &'static str {
    let mode = job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref());
    if mode == Some("Indexed") {
        "Indexed"
    } else {
        "NonIndexed"
    }
}

/// What a look at the Job was, by upstream's words: where its pods are not seen to, whatever else was done, it is `reconciling`.
pub(super) fn sync(Planned { job, manages, .. }: &Planned, writes: &[Write], is_failed: bool) -> JobSync {
    let of_pods = || writes.iter().filter(|write| write.resource == write::PODS);
    let action = if !manages {
        "reconciling"
    } else if of_pods().any(|write| matches!(write.verb, Verb::Create(_))) {
        "pods_created"
    } else if of_pods().any(|write| matches!(write.verb, Verb::Delete { .. })) {
        "pods_deleted"
    } else {
        "tracking"
    };
    JobSync {
        completion_mode: mode(job),
        result: if is_failed { "error" } else { "success" },
        action,
    }
}

/// Counts the creation of a pod.
pub(super) fn created(counters: &Controllers, job: &Job, is_done: bool) {
    let status = job.status.as_ref();
    let number = |count: Option<i32>| count.is_some_and(|count| count > 0);
    let listed = status.and_then(|status| status.uncounted_terminated_pods.as_ref()?.failed.as_ref());
    let has_failed = number(status.and_then(|status| status.failed)) || listed.is_some_and(|listed| !listed.is_empty());
    let is_ending = number(status.and_then(|status| status.terminating));
    let policy = job
        .spec
        .as_ref()
        .and_then(|spec| spec.pod_replacement_policy.as_deref());
    let reason = match (policy, has_failed) {
        (Some("Failed"), true) => "recreate_failed",
        (_, true) => "recreate_terminating_or_failed",
        _ if is_ending => "recreate_terminating_or_failed",
        _ => "new",
    };
    counters.job_pod_created(reason, is_done);
}

/// Counts what a new status of the Job says that the one before did not.
pub(super) fn told(counters: &Controllers, job: &Job, body: &Value) {
    let Ok(new) = serde_json::from_value::<JobStatus>(body["status"].clone()) else {
        return;
    };
    let empty = JobStatus::default();
    let old = job.status.as_ref().unwrap_or(&empty);
    let completions = job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(0);
    let total = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or_default();
        u64::from(Indexes::parse(text, u32::try_from(completions).unwrap_or(0)).total())
    };
    let more = |new: u64, old: u64| Some(new.saturating_sub(old)).filter(|more| *more > 0);
    let count = |count: Option<i32>| u64::try_from(count.unwrap_or(0)).unwrap_or(0);
    let mode = mode(job);
    let succeeded = match mode {
        "Indexed" => more(total(&new.completed_indexes), total(&old.completed_indexes)),
        _ => more(count(new.succeeded), count(old.succeeded)),
    };
    if let Some(pods) = succeeded {
        counters.job_pods_finished(mode, "succeeded", pods);
    }
    if let Some(pods) = more(count(new.failed), count(old.failed)) {
        counters.job_pods_finished(mode, "failed", pods);
    }
    if mode == "Indexed" {
        let is_per_index = job
            .spec
            .as_ref()
            .is_some_and(|spec| spec.backoff_limit_per_index.is_some());
        let failed = more(total(&new.failed_indexes), total(&old.failed_indexes));
        for (status, indexes) in [("succeeded", succeeded), ("failed", failed)] {
            if let Some(indexes) = indexes {
                counters.job_indexes_finished(status, is_per_index, indexes);
            }
        }
    }
    let mut ended = job.clone();
    ended.status = Some(new);
    if let (None, Some(condition)) = (view::finished(job), view::finished(&ended)) {
        let result = if condition.type_ == "Complete" {
            "succeeded"
        } else {
            "failed"
        };
        let reason = end::known_reason(condition.reason.as_deref().unwrap_or_default());
        counters.job_finished(&JobEnd {
            completion_mode: mode,
            result,
            reason,
        });
    }
}

/// Counts a pod that is let go of, by the rule of the Job's policy that fits its failure.
pub(super) fn judged(counters: &Controllers, job: &Job, pod: &Pod) {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    if phase(pod) != "Failed" {
        return;
    }
    let action = match policy::matched(policy, pod) {
        Some(Outcome::Count) => "Count",
        Some(Outcome::Ignore) => "Ignore",
        Some(Outcome::FailIndex) => "FailIndex",
        Some(Outcome::FailJob(_)) => "FailJob",
        None => return,
    };
    counters.job_pod_judged(action);
}

/// Counts a pod that is over and has the finalizer now, or no longer.
pub(super) fn held(counters: &Controllers, old: Option<&Pod>, new: Option<&Pod>) {
    let is_held =
        |pod: Option<&Pod>| pod.is_some_and(|pod| matches!(phase(pod), "Succeeded" | "Failed") && is_tracked(pod));
    if is_held(old) != is_held(new) {
        counters.job_finalizer(is_held(new));
    }
}

#[cfg(test)]
mod tests;
