//! What a deployment reports: counts, and the conditions Available, Progressing, ReplicaFailure.

use super::{View, available, rolling, size, template};
use crate::controller::amount::narrow;
use crate::controller::write::Failure;
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::condition;
use std::sync::Arc;
use std::time::Duration;

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";

fn zero(value: Option<i32>) -> i32 {
    value.unwrap_or(0)
}

/// Whether every wanted pod is of the new template and available, and no other is left.
pub fn is_complete(view: &View<'_>, status: &DeploymentStatus) -> bool {
    let wanted = view.wanted();
    zero(status.updated_replicas) == wanted
        && zero(status.replicas) == wanted
        && zero(status.available_replicas) == wanted
        && status.observed_generation.unwrap_or(0) >= view.deployment.metadata.generation.unwrap_or(0)
}

/// Whether the rollout got further than the status in place says.
fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let outdated = |s: &DeploymentStatus| zero(s.replicas) - zero(s.updated_replicas);
    zero(new.updated_replicas) > zero(old.updated_replicas)
        || outdated(new) < outdated(old)
        || zero(new.ready_replicas) > zero(old.ready_replicas)
        || zero(new.available_replicas) > zero(old.available_replicas)
}

fn deadline(view: &View<'_>) -> Option<Duration> {
    let seconds = view.spec.progress_deadline_seconds.filter(|s| *s != i32::MAX)?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// How long until the rollout counts as stuck; `None` when it cannot.
pub fn deadline_in(view: &View<'_>, now: Timestamp) -> Option<Duration> {
    let deadline = deadline(view)?;
    let status = view.deployment.status.as_ref()?;
    let progressing = condition::find(status.conditions.as_ref(), PROGRESSING)?;
    let settled = matches!(
        progressing.reason.as_deref(),
        Some("NewReplicaSetAvailable" | "ProgressDeadlineExceeded")
    );
    if settled || view.spec.paused == Some(true) {
        return None;
    }
    let since = progressing.last_update_time.as_ref()?.0;
    let age = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
    // Strictly after the deadline, as upstream compares.
    Some(deadline.saturating_sub(age) + Duration::from_secs(1))
}

fn is_overdue(view: &View<'_>, current: &DeploymentCondition, now: Timestamp) -> bool {
    match current.reason.as_deref() {
        Some("NewReplicaSetAvailable") => false,
        Some("ProgressDeadlineExceeded") => true,
        _ => {
            let since = current.last_update_time.as_ref().map_or(now, |t| t.0);
            let age = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
            deadline(view).is_some_and(|deadline| age > deadline)
        }
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: String, now: Timestamp) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Sets a condition the way upstream does: nothing moves while status and reason stay, unless `refresh` asks for a new update
/// time.
fn put(list: &mut Vec<DeploymentCondition>, mut new: DeploymentCondition, refresh: bool) {
    if let Some(old) = list.iter().find(|c| c.type_ == new.type_) {
        if !refresh && old.status == new.status && old.reason == new.reason {
            return;
        }
        if old.status == new.status {
            new.last_transition_time = old.last_transition_time.clone();
        }
    }
    list.retain(|c| c.type_ != new.type_);
    list.push(new);
}

/// The status, from the replica sets and what the last writes failed with.
pub fn status(view: &View<'_>, failure: Option<&Failure>, now: Timestamp) -> DeploymentStatus {
    let old = view.deployment.status.clone().unwrap_or_default();
    let mut status = counts(view, &old);
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let least = view.wanted() - rolling::max_unavailable(view);
    let new = if zero(status.available_replicas) >= least {
        let text = "Deployment has minimum availability.";
        condition(AVAILABLE, "True", "MinimumReplicasAvailable", text.into(), now)
    } else {
        let text = "Deployment does not have minimum availability.";
        condition(AVAILABLE, "False", "MinimumReplicasUnavailable", text.into(), now)
    };
    put(&mut conditions, new, false);
    progressing(view, &old, &status, &mut conditions, failure, now);
    replica_failure(view, &mut conditions);
    status.conditions = Some(conditions);
    status
}

fn counts(view: &View<'_>, old: &DeploymentStatus) -> DeploymentStatus {
    let all = |of: fn(&ReplicaSet) -> i32| view.all().map(|rs| i64::from(of(rs))).sum::<i64>();
    let sum = |of: fn(&ReplicaSet) -> i32| narrow(all(of));
    // Absent and zero are the same to the API server; keep the spelling that is there.
    let counted = |n: i32, old: Option<i32>| if n == 0 && old.is_none() { None } else { Some(n) };
    let reported = |rs: &ReplicaSet| rs.status.as_ref().map_or(0, |s| s.replicas);
    let updated = view.new.as_ref().map_or(0, |rs| reported(rs));
    DeploymentStatus {
        observed_generation: view.deployment.metadata.generation.or(old.observed_generation),
        replicas: counted(sum(reported), old.replicas),
        updated_replicas: counted(updated, old.updated_replicas),
        ready_replicas: counted(
            sum(|rs| zero(rs.status.as_ref().and_then(|s| s.ready_replicas))),
            old.ready_replicas,
        ),
        available_replicas: counted(sum(available), old.available_replicas),
        unavailable_replicas: counted(narrow((all(size) - all(available)).max(0)), old.unavailable_replicas),
        terminating_replicas: counted(
            sum(|rs| zero(rs.status.as_ref().and_then(|s| s.terminating_replicas))),
            old.terminating_replicas,
        ),
        collision_count: old.collision_count,
        conditions: None,
    }
}

fn progressing(
    view: &View<'_>,
    old: &DeploymentStatus,
    new: &DeploymentStatus,
    list: &mut Vec<DeploymentCondition>,
    failure: Option<&Failure>,
    now: Timestamp,
) {
    if deadline(view).is_none() {
        condition::remove(list, PROGRESSING);
        return;
    }
    let current = list.iter().find(|c| c.type_ == PROGRESSING).cloned();
    let reason = current.as_ref().and_then(|c| c.reason.clone()).unwrap_or_default();
    let set = |list: &mut Vec<_>, status, reason, message, refresh| {
        put(list, condition(PROGRESSING, status, reason, message, now), refresh);
    };
    if view.spec.paused == Some(true) {
        if reason != "ProgressDeadlineExceeded" {
            set(
                list,
                "Unknown",
                "DeploymentPaused",
                "Deployment is paused".into(),
                false,
            );
        }
        return;
    }
    if reason == "DeploymentPaused" {
        set(
            list,
            "Unknown",
            "DeploymentResumed",
            "Deployment is resumed".into(),
            false,
        );
        return;
    }
    if let Some(failure) = failure.filter(|f| f.creating && f.reason != "AlreadyExists") {
        let name = template::name(view);
        let message = format!("Failed to create new replica set {name:?}: {}", failure.message);
        set(list, "False", "ReplicaSetCreateError", message, false);
        return;
    }
    let subject = match &view.new {
        Some(rs) => format!("ReplicaSet {:?}", rs.name_any()),
        None => format!("Deployment {:?}", view.deployment.name_any()),
    };
    let speaks_of_new = current
        .as_ref()
        .and_then(|c| c.message.as_ref())
        .is_some_and(|message| {
            view.new
                .as_ref()
                .is_none_or(|rs| message.contains(&format!("{:?}", rs.name_any())))
        });
    let started = !speaks_of_new && !is_complete(view, new);
    if let Some(rs) = view
        .new
        .as_ref()
        .filter(|_| started && (current.is_none() || reason == "NewReplicaSetAvailable"))
    {
        let fresh = rs.status.as_ref().is_none_or(|s| s.replicas == 0);
        if fresh {
            let message = format!("Created new replica set {:?}", rs.name_any());
            set(list, "True", "NewReplicaSetCreated", message, true);
        } else {
            let message = format!("Found new replica set {:?}", rs.name_any());
            set(list, "True", "FoundNewReplicaSet", message, true);
        }
        return;
    }
    let settled = reason == "NewReplicaSetAvailable" && new.replicas == new.updated_replicas && speaks_of_new;
    if settled {
        return;
    }
    if is_complete(view, new) {
        let message = format!("{subject} has successfully progressed.");
        set(list, "True", "NewReplicaSetAvailable", message, true);
    } else if has_progressed(old, new) {
        set(
            list,
            "True",
            "ReplicaSetUpdated",
            format!("{subject} is progressing."),
            true,
        );
    } else if current.is_some_and(|c| is_overdue(view, &c, now)) {
        set(
            list,
            "False",
            "ProgressDeadlineExceeded",
            format!("{subject} has timed out progressing."),
            false,
        );
    }
}

/// Copies the failure of a replica set, the new one's first.
fn replica_failure(view: &View<'_>, list: &mut Vec<DeploymentCondition>) {
    let failing = |rs: &Arc<ReplicaSet>| {
        let conditions = rs.status.as_ref().and_then(|s| s.conditions.as_ref());
        condition::find(conditions, REPLICA_FAILURE).cloned()
    };
    match view.new.iter().chain(&view.old).find_map(failing) {
        None => {
            condition::remove(list, REPLICA_FAILURE);
        }
        Some(failed) => {
            let new = DeploymentCondition {
                type_: failed.type_,
                status: failed.status,
                reason: failed.reason,
                message: failed.message,
                last_update_time: failed.last_transition_time.clone(),
                last_transition_time: failed.last_transition_time,
            };
            put(list, new, false);
        }
    }
}
