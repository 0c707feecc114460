//! Whether a Job has come to its end, and why. Pure.
//!
//! An end is told twice: `FailureTarget` or `SuccessCriteriaMet` first, `Failed` or `Complete` once no pod of it runs. What was
//! told stands.

use super::policy::{self, Outcome};
use super::view::View;
use crate::held::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether it succeeded.
    pub is_success: bool,
    /// Upstream's reason.
    pub reason: String,
    /// Upstream's message.
    pub message: String,
}

impl End {
    fn failure(reason: &str, message: &str) -> Self {
        Self {
            is_success: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// The reason of the event about it; a stored condition may say what no controller of ours would.
    pub fn event_reason(&self) -> &'static str {
        FAILURES
            .into_iter()
            .find(|reason| *reason == self.reason)
            .unwrap_or("Failed")
    }

    /// The condition that announces it, and the one that ends the Job.
    pub fn conditions(&self) -> (&'static str, &'static str) {
        if self.is_success {
            ("SuccessCriteriaMet", "Complete")
        } else {
            ("FailureTarget", "Failed")
        }
    }
}

/// Reasons of failures.
const FAILURES: [&str; 5] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
];

/// Reasons of success.
const SUCCESSES: [&str; 2] = ["CompletionsReached", "SuccessPolicy"];

/// The reason, if it is one of ours; a stored condition may say anything.
pub fn known_reason(reason: &str) -> &'static str {
    let mut known = FAILURES.into_iter().chain(SUCCESSES);
    known.find(|known| *known == reason).unwrap_or_default()
}

/// The end that calls for the pods that still run to be ended.
pub fn early(view: &View<'_>) -> Option<End> {
    announced(view)
        .or_else(|| by_failure_policy(view))
        .or_else(|| beyond_limits(view))
        .or_else(|| by_indexes(view))
}

fn announced(view: &View<'_>) -> Option<End> {
    let met = view.condition("SuccessCriteriaMet").map(|condition| (true, condition));
    let (is_success, condition) =
        met.or_else(|| view.condition("FailureTarget").map(|condition| (false, condition)))?;
    Some(End {
        is_success,
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    })
}

fn by_failure_policy(view: &View<'_>) -> Option<End> {
    view.spec.pod_failure_policy.as_ref()?;
    let failed = view.pods.iter().filter(|pod| view.is_failed(pod));
    failed.map(|pod| view.outcome(pod)).find_map(|outcome| match outcome {
        Outcome::FailJob(message) => Some(End::failure("PodFailurePolicy", &message)),
        _ => None,
    })
}

fn beyond_limits(view: &View<'_>) -> Option<End> {
    let limit = usize::try_from(view.spec.backoff_limit.unwrap_or(6)).unwrap_or(0);
    if view.failed() > limit || restarts_too_often(view, limit) {
        let message = "Job has reached the specified backoff limit";
        return Some(End::failure("BackoffLimitExceeded", message));
    }
    let is_late = deadline(view).is_some_and(|deadline| deadline <= view.now);
    is_late.then(|| End::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

/// Containers that restart in place count, too.
fn restarts_too_often(view: &View<'_>, limit: usize) -> bool {
    let policy = view
        .spec
        .template
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let of_pod = |pod: &Pod| -> i64 {
        let Some(status) = &pod.status else { return 0 };
        let all = [&status.init_container_statuses, &status.container_statuses];
        let containers = all.into_iter().flatten().flatten();
        containers
            .map(|container| i64::from(container.restart_count.max(0)))
            .sum()
    };
    let pods = view
        .pods
        .iter()
        .filter(|pod| matches!(crate::controller::pod::phase(pod), "Running" | "Pending"));
    let restarts: i64 = pods.map(|pod| of_pod(pod)).sum();
    usize::try_from(restarts).unwrap_or(usize::MAX) >= limit.max(1)
}

fn by_indexes(view: &View<'_>) -> Option<End> {
    let by = view.by_index.as_ref()?;
    if let Some(failed) = &by.failed {
        let most = view.spec.max_failed_indexes.and_then(|most| u32::try_from(most).ok());
        if most.is_some_and(|most| failed.total() > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(End::failure("MaxFailedIndexesExceeded", message));
        }
        let decided = u64::from(failed.total()) + u64::from(by.succeeded.total());
        if failed.total() > 0 && decided >= u64::from(by.completions) {
            return Some(End::failure("FailedIndexes", "Job has failed indexes"));
        }
    }
    let message = policy::success(view.spec.success_policy.as_ref(), &by.succeeded, by.completions)?;
    Some(End {
        is_success: true,
        reason: "SuccessPolicy".to_owned(),
        message,
    })
}

/// The end of a Job that has done what it was to do, once nothing of it runs.
pub fn complete(view: &View<'_>) -> Option<End> {
    if view.active().next().is_some() {
        return None;
    }
    let succeeded = view.succeeded();
    let is_complete = match view.spec.completions {
        None => succeeded > 0,
        Some(wanted) => succeeded >= usize::try_from(wanted).unwrap_or(0),
    };
    is_complete.then(|| End {
        is_success: true,
        reason: "CompletionsReached".to_owned(),
        message: "Reached expected number of succeeded pods".to_owned(),
    })
}

/// When the Job has run too long.
fn deadline(view: &View<'_>) -> Option<Timestamp> {
    let seconds = view.spec.active_deadline_seconds?;
    let start = view.status.start_time.as_ref()?.0;
    if view.is_suspended() {
        return None;
    }
    start.checked_add(SignedDuration::from_secs(seconds.max(0))).ok()
}

/// How long until then.
pub fn deadline_in(view: &View<'_>) -> Option<Duration> {
    let left = deadline(view)?.duration_since(view.now);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}
