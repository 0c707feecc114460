//! What a budget says: healthy pods, disruptions allowed, evictions not seen through yet. Pure.

use super::PATIENCE;
use super::expected::{Expected, Scaler, expected};
use crate::controller::pod;
use crate::controller::printed;
use crate::controller::write::{self, EventText, Plan, Write, event};
use crate::held::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::condition;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const ALLOWED: &str = "DisruptionAllowed";

/// Evictions that are to be seen through.
#[derive(Default)]
struct Disrupted {
    /// By pod, when it was evicted.
    pods: BTreeMap<String, Time>,
    /// When the first of them has had its time.
    again_in: Option<Duration>,
    /// Of pods that have had theirs.
    events: Vec<EventText>,
}

/// How long an eviction of that time may still take; `None` when it had its time.
fn left(since: &Time, now: Timestamp) -> Option<Duration> {
    let age = Duration::try_from(now.duration_since(since.0)).unwrap_or(Duration::ZERO);
    PATIENCE.checked_sub(age)
}

fn disrupted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Timestamp) -> Disrupted {
    let mut found = Disrupted::default();
    let Some(known) = budget.status.as_ref().and_then(|s| s.disrupted_pods.as_ref()) else {
        return found;
    };
    for pod in pods.iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let name = pod.name_any();
        let Some(since) = known.get(&name) else { continue };
        if let Some(left) = left(since, now) {
            // What expires now is looked at again, not at once but soon.
            let left = left.max(Duration::from_millis(1));
            found.again_in = Some(found.again_in.map_or(left, |other| other.min(left)));
            found.pods.insert(name, since.clone());
            continue;
        }
        let namespace = budget.namespace().unwrap_or_default();
        // Upstream names the namespace twice.
        let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
        found
            .events
            .push(event(&write::PODS, &**pod, "Warning", "NotDeleted", message));
    }
    found
}

fn healthy(pods: &[Arc<Pod>], disrupted: &BTreeMap<String, Time>) -> i32 {
    let counts = |pod: &&Arc<Pod>| {
        let stays = pod.metadata.deletion_timestamp.is_none() && !disrupted.contains_key(&pod.name_any());
        stays && pod::is_ready(pod)
    };
    i32::try_from(pods.iter().filter(counts).count()).unwrap_or(i32::MAX)
}

fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    is_allowed: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let new = Condition {
        type_: ALLOWED.to_owned(),
        status: if is_allowed { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: status.observed_generation,
        last_transition_time: Time(now),
    };
    condition::set(status.conditions.get_or_insert_default(), new);
}

/// Whether the one says what the other says: an absent number is 0, an absent map empty.
fn same(old: Option<&PodDisruptionBudgetStatus>, new: &PodDisruptionBudgetStatus) -> bool {
    let plain = |status: &PodDisruptionBudgetStatus| PodDisruptionBudgetStatus {
        current_healthy: Some(status.current_healthy.unwrap_or(0)),
        desired_healthy: Some(status.desired_healthy.unwrap_or(0)),
        disruptions_allowed: Some(status.disruptions_allowed.unwrap_or(0)),
        expected_pods: Some(status.expected_pods.unwrap_or(0)),
        disrupted_pods: Some(status.disrupted_pods.clone().unwrap_or_default()),
        ..status.clone()
    };
    old.is_some_and(|old| plain(old) == plain(new))
}

fn written(budget: &PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> Vec<Write> {
    if same(budget.status.as_ref(), &status) {
        return vec![];
    }
    let mut budget = budget.clone();
    budget.status = Some(status);
    vec![Write::replace_status(write::BUDGETS, &budget)]
}

/// The status when the pods cannot be counted: nothing is allowed, and the condition says why.
pub fn failed(budget: &PodDisruptionBudget, why: &str, events: Vec<EventText>, now: Timestamp) -> Plan {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    set_condition(&mut status, false, "SyncFailed", why, now);
    Plan {
        writes: written(budget, status),
        events,
        again_in: None,
    }
}

/// The status, from the pods that the budget selects and those who own them.
///
/// # Errors
/// The plan that says so, when the pods cannot be counted.
pub fn plan(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scaler: &Scaler<'_>,
    now: Timestamp,
) -> Result<Plan, Plan> {
    let told = |kind, reason, message: String| event(&write::BUDGETS, budget, kind, reason, message);
    let mut events = Vec::new();
    if pods.is_empty() {
        events.push(told("Normal", "NoPods", "No matching pods found".to_owned()));
    }
    match expected(budget, pods, scaler) {
        Err(why) => {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            events.push(told("Warning", "CalculateExpectedPodCountFailed", message));
            Err(failed(budget, &why, events, now))
        }
        Ok(expected) => {
            if expected.some_unmanaged {
                events.push(told("Warning", "UnmanagedPods", unmanaged(budget)));
            }
            let mut plan = counted(budget, pods, &expected, now);
            plan.events.extend(events);
            Ok(plan)
        }
    }
}

fn unmanaged(budget: &PodDisruptionBudget) -> String {
    let selector = printed::selector(budget.spec.as_ref().and_then(|s| s.selector.as_ref()));
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status of the \
         PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value."
    )
}

fn counted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], expected: &Expected, now: Timestamp) -> Plan {
    let disrupted = disrupted(budget, pods, now);
    let healthy = healthy(pods, &disrupted.pods);
    let surplus = healthy.saturating_sub(expected.healthy).max(0);
    // One that expects no pods allows nothing: the first may be there before they are counted.
    let allowed = if expected.pods <= 0 { 0 } else { surplus };
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(expected.healthy),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected.pods),
        disrupted_pods: (!disrupted.pods.is_empty()).then_some(disrupted.pods),
        observed_generation: budget.metadata.generation,
        conditions: budget.status.as_ref().and_then(|s| s.conditions.clone()),
    };
    let reason = if allowed > 0 {
        "SufficientPods"
    } else {
        "InsufficientPods"
    };
    set_condition(&mut status, allowed > 0, reason, "", now);
    Plan {
        writes: written(budget, status),
        events: disrupted.events,
        again_in: disrupted.again_in,
    }
}
