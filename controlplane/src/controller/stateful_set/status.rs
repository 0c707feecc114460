//! What a stateful set reports. Pure.

use super::View;
use crate::controller::history::REVISION_LABEL;
use crate::controller::pod;
use crate::held::Pod;
use k8s_openapi::api::apps::v1::StatefulSetStatus;

/// Whether the pod runs and is ready.
pub fn is_ready(pod: &Pod) -> bool {
    pod::phase(pod) == "Running" && pod::is_ready(pod)
}

/// The status. A rollout that has reached every pod makes the template's revision the current one.
pub fn status(view: &View<'_>) -> StatefulSetStatus {
    let old = view.set.status.clone().unwrap_or_default();
    let count = |of: &dyn Fn(&Pod) -> bool| {
        let counted = view
            .pods
            .values()
            .filter(|p| !pod::phase(p).is_empty() && of(p))
            .count();
        i32::try_from(counted).unwrap_or(i32::MAX)
    };
    let of_revision =
        |name: &str| count(&|p| p.metadata.deletion_timestamp.is_none() && pod::label(p, REVISION_LABEL) == name);
    let (replicas, ready) = (count(&|_| true), count(&is_ready));
    let available = count(&|p| is_ready(p) && pod::is_available(p, view.min_ready(), view.now));
    let updated = of_revision(view.update.name());
    let strategy = view.spec.update_strategy.as_ref().and_then(|s| s.type_.as_deref());
    let wanted = view.spec.replicas.unwrap_or(1);
    let is_complete = strategy == Some("RollingUpdate") && [updated, ready, replicas] == [wanted; 3];
    let current = if is_complete { &view.update } else { &view.current };
    StatefulSetStatus {
        replicas,
        ready_replicas: Some(ready),
        available_replicas: Some(available),
        current_replicas: Some(of_revision(current.name())),
        updated_replicas: Some(updated),
        current_revision: Some(current.name().to_owned()),
        update_revision: Some(view.update.name().to_owned()),
        collision_count: Some(old.collision_count.unwrap_or(0)),
        conditions: old.conditions,
        observed_generation: view.set.metadata.generation.or(old.observed_generation),
    }
}

/// Whether the one says what the other says: an absent number is 0.
pub fn same(old: Option<&StatefulSetStatus>, new: &StatefulSetStatus) -> bool {
    let plain = |status: &StatefulSetStatus| StatefulSetStatus {
        ready_replicas: Some(status.ready_replicas.unwrap_or(0)),
        available_replicas: Some(status.available_replicas.unwrap_or(0)),
        current_replicas: Some(status.current_replicas.unwrap_or(0)),
        updated_replicas: Some(status.updated_replicas.unwrap_or(0)),
        ..status.clone()
    };
    old.is_some_and(|old| plain(old) == plain(new))
}
