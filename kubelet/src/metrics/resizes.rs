//! In-place resizes: what was asked for, how long it took, what was refused or given late (kubelet contract §13).

use super::labels::{Counters, Histograms, Labels, counters, histograms, label};
use crate::allocation::{Resizable, amounts};
use k8s_openapi::api::core::v1::ResourceRequirements;
use prometheus_client::registry::Registry;
use proto::api::quantity::Quantity;
use std::time::Duration;

/// Milliseconds.
const DURATION_BUCKETS: &[f64] = &[
    10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 30000.0, 60000.0, 120_000.0, 300_000.0,
    600_000.0,
];

/// Counts resizes. Cheap to clone.
#[derive(Clone)]
pub struct ResizeMetrics {
    requested: Counters,
    durations: Histograms,
    infeasible: Counters,
    deferred: Counters,
}

impl ResizeMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let r = registry;
        Self {
            requested: counters(
                r,
                "kubelet_container_requested_resizes",
                "Resizes that were asked for, by container and resource",
            ),
            durations: histograms(
                r,
                "kubelet_pod_resize_duration_milliseconds",
                "Time that bringing pods to what they were given took",
                DURATION_BUCKETS,
            ),
            infeasible: counters(
                r,
                "kubelet_pod_infeasible_resizes",
                "Resizes that were refused for good, by what is in their way",
            ),
            deferred: counters(
                r,
                "kubelet_pod_deferred_accepted_resizes",
                "Resizes that waited and were given, by what made room",
            ),
        }
    }

    /// Counts what a container asks for now and did not before.
    pub fn requested(&self, before: Option<&ResourceRequirements>, now: Option<&ResourceRequirements>) {
        for resource in Resizable::ALL {
            let ((request, limit), (new_request, new_limit)) = (amounts(before, resource), amounts(now, resource));
            for (requirement, before, now) in [("requests", request, new_request), ("limits", limit, new_limit)] {
                if let Some(operation) = operation(before, now) {
                    self.requested
                        .get_or_create(&of(resource, requirement, operation))
                        .inc();
                }
            }
        }
    }

    /// Counts a pod's being brought to what it was given, and how that ended.
    pub fn done(&self, took: Duration, worked: bool) {
        let of = label("success", if worked { "true" } else { "false" });
        self.durations.get_or_create(&of).observe(took.as_secs_f64() * 1e3);
    }

    /// Counts a resize that is refused for good; the details are a fixed set.
    pub fn infeasible(&self, detail: &'static str) {
        self.infeasible.get_or_create(&label("reason_detail", detail)).inc();
    }

    /// Counts a resize that waited and was given now; what made room for it is of a fixed set.
    pub fn accepted(&self, trigger: &'static str) {
        self.deferred.get_or_create(&label("retry_trigger", trigger)).inc();
    }
}

fn of(resource: Resizable, requirement: &'static str, operation: &'static str) -> Labels {
    vec![
        ("resource", resource.name().into()),
        ("requirement", requirement.into()),
        ("operation", operation.into()),
    ]
}

/// What becomes of an amount; nothing that is zero counts as none.
fn operation(before: Option<Quantity>, now: Option<Quantity>) -> Option<&'static str> {
    let some = |amount: Option<Quantity>| amount.filter(|amount| *amount != Quantity::ZERO);
    match (some(before), some(now)) {
        (Some(_), None) => Some("remove"),
        (None, Some(_)) => Some("add"),
        (Some(before), Some(now)) if now > before => Some("increase"),
        (Some(before), Some(now)) if now < before => Some("decrease"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    #[test]
    fn a_container_is_counted_by_what_it_asks_for() {
        let mut registry = Registry::default();
        let metrics = ResizeMetrics::register(&mut registry);
        let resources = |value| serde_json::from_value::<ResourceRequirements>(value).expect("resources");
        let before = resources(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "0"}}));
        let now = resources(json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "0"}}));
        metrics.requested(Some(&before), Some(&now));
        metrics.requested(Some(&now), Some(&now));
        metrics.requested(None, None);
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        let mut counted: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("kubelet_container_requested_resizes_total"))
            .collect();
        counted.sort_unstable();
        assert_eq!(
            counted,
            [
                r#"{resource="cpu",requirement="limits",operation="add"} 1"#,
                r#"{resource="cpu",requirement="requests",operation="decrease"} 1"#,
                r#"{resource="memory",requirement="requests",operation="remove"} 1"#,
            ]
        );
    }
}
