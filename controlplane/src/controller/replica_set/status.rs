//! What a replica set reports.

use crate::controller::pod;
use crate::controller::write::Failure;
use crate::held::Pod;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::condition;
use std::sync::Arc;
use std::time::Duration;

fn min_ready(rs: &ReplicaSet) -> i32 {
    rs.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
}

/// When the next ready pod becomes available; `None` if all ready ones are.
pub fn available_in(rs: &ReplicaSet, owned: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    let active = owned.iter().filter(|p| pod::is_active(p));
    active
        .filter_map(|p| pod::available_in(p, min_ready(rs), now))
        .filter(|d| !d.is_zero())
        .min()
}

fn count(pods: &[&Arc<Pod>], of: impl Fn(&Pod) -> bool) -> i32 {
    i32::try_from(pods.iter().filter(|p| of(p)).count()).unwrap_or(i32::MAX)
}

/// The status, from the pods the set owns and what the last writes failed with.
pub fn status(rs: &ReplicaSet, owned: &[Arc<Pod>], failure: Option<&Failure>, now: Timestamp) -> ReplicaSetStatus {
    let template = rs.spec.as_ref().and_then(|s| s.template.as_ref());
    let labels = template
        .and_then(|t| t.metadata.as_ref())
        .and_then(|m| m.labels.clone())
        .unwrap_or_default();
    let fully = |p: &Pod| labels.iter().all(|(k, v)| p.labels().get(k) == Some(v));
    let active: Vec<_> = owned.iter().filter(|p| pod::is_active(p)).collect();
    let all: Vec<_> = owned.iter().collect();
    let terminating = |p: &Pod| p.metadata.deletion_timestamp.is_some() && !pod::is_terminal(p);
    let old = rs.status.clone().unwrap_or_default();
    // Absent and zero are the same to the API server; keep the spelling that is there.
    let counted = |n: i32, old: Option<i32>| if n == 0 && old.is_none() { None } else { Some(n) };
    ReplicaSetStatus {
        replicas: count(&active, |_| true),
        fully_labeled_replicas: counted(count(&active, fully), old.fully_labeled_replicas),
        ready_replicas: counted(count(&active, pod::is_ready), old.ready_replicas),
        available_replicas: counted(
            count(&active, |p| {
                pod::available_in(p, min_ready(rs), now).is_some_and(|d| d.is_zero())
            }),
            old.available_replicas,
        ),
        terminating_replicas: counted(count(&all, terminating), old.terminating_replicas),
        observed_generation: rs.metadata.generation.or(old.observed_generation),
        conditions: conditions(old.conditions, failure, now),
    }
}

fn conditions(
    old: Option<Vec<ReplicaSetCondition>>,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut list = old.unwrap_or_default();
    match failure {
        None => {
            condition::remove(&mut list, "ReplicaFailure");
        }
        // Losing a race is no failure to report.
        Some(failure) if failure.reason == "Conflict" || failure.resource != "pods" => {}
        // Nor is it one of these where a pod cannot be adopted, or let go of.
        Some(failure) if !failure.creating && !failure.deleting => {}
        // The first failure stays told, as upstream: each try names another pod, and a status that changes with every try would
        // wake the set, which would try at once.
        Some(_) if list.iter().any(|known| known.type_ == "ReplicaFailure") => {}
        Some(failure) => {
            condition::set(
                &mut list,
                ReplicaSetCondition {
                    type_: "ReplicaFailure".into(),
                    status: "True".into(),
                    reason: Some(
                        if failure.creating {
                            "FailedCreate"
                        } else {
                            "FailedDelete"
                        }
                        .into(),
                    ),
                    message: Some(failure.message.clone()),
                    last_transition_time: Some(Time(now)),
                },
            );
        }
    }
    (!list.is_empty()).then_some(list)
}
