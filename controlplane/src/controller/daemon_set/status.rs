//! What a daemon set reports. Pure.

use super::View;
use crate::controller::pod;
use k8s_openapi::api::apps::v1::DaemonSetStatus;

/// The status: counted are nodes, by the oldest pod on each.
pub fn status(view: &View<'_>) -> DaemonSetStatus {
    let old = view.set.status.clone().unwrap_or_default();
    let (mut current, mut misscheduled, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0);
    for (node, fit) in &view.fits {
        let Some(oldest) = view.on(node).first() else { continue };
        if !fit.should_run {
            misscheduled += 1;
            continue;
        }
        current += 1;
        ready += i32::from(pod::is_ready(oldest));
        available += i32::from(view.is_available(oldest));
        updated += i32::from(view.is_updated(oldest));
    }
    DaemonSetStatus {
        collision_count: old.collision_count,
        conditions: old.conditions,
        current_number_scheduled: current,
        desired_number_scheduled: view.wanted(),
        number_available: Some(available),
        number_misscheduled: misscheduled,
        number_ready: ready,
        number_unavailable: Some(view.wanted() - available),
        observed_generation: view.set.metadata.generation.or(old.observed_generation),
        updated_number_scheduled: Some(updated),
    }
}

/// Whether the one says what the other says: an absent number is 0.
pub fn same(old: Option<&DaemonSetStatus>, new: &DaemonSetStatus) -> bool {
    let plain = |status: &DaemonSetStatus| DaemonSetStatus {
        number_available: Some(status.number_available.unwrap_or(0)),
        number_unavailable: Some(status.number_unavailable.unwrap_or(0)),
        updated_number_scheduled: Some(status.updated_number_scheduled.unwrap_or(0)),
        ..status.clone()
    };
    old.is_some_and(|old| plain(old) == plain(new))
}
