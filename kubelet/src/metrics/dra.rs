//! What becomes of resource claims (kubelet contract §13).

use super::labels::{Histograms, Labels, Numbers, histograms, label, numbers};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upstream's: fifteen from 0.1 to 40 seconds, each as much larger than the one before.
const BUCKETS: &[f64] = &[
    0.1,
    0.1534127404634391,
    0.23535468936502524,
    0.36106407876409946,
    0.5539182980610752,
    0.849781240983936,
    1.303672689737678,
    1.9999999999999993,
    3.0682548092687805,
    4.7070937873005025,
    7.221281575281985,
    11.078365961221499,
    16.995624819678714,
    26.07345379475354,
    39.99999999999997,
];

/// Counts what is prepared and let go of. Cheap to clone.
#[derive(Clone)]
pub struct DraMetrics {
    operations: Histograms,
    calls: Histograms,
    in_use: Numbers,
}

impl DraMetrics {
    pub(super) fn register(r: &mut Registry) -> Self {
        Self {
            operations: histograms(
                r,
                "dra_operations_duration_seconds",
                "Time that handling all claims of a pod took in seconds, by what was done with them",
                BUCKETS,
            ),
            calls: histograms(
                r,
                "dra_grpc_operations_duration_seconds",
                "Time that calls of DRA drivers took in seconds, by driver and method",
                BUCKETS,
            ),
            in_use: numbers(
                r,
                "dra_resource_claims_in_use",
                "Claims that are prepared here, by driver and in all",
            ),
        }
    }

    /// Counts what was done with all claims of a pod.
    pub fn handled(&self, operation: &'static str, worked: bool, took: Duration) {
        let is_error = if worked { "false" } else { "true" };
        let of: Labels = vec![("is_error", is_error.into()), ("operation_name", operation.into())];
        self.operations.get_or_create(&of).observe(took.as_secs_f64());
    }

    /// Counts a call. Drivers are those that are registered here.
    pub fn called(&self, driver: &str, method: String, code: &'static str, took: Duration) {
        let of: Labels = vec![
            ("driver_name", driver.to_owned().into()),
            ("grpc_status_code", code.into()),
            ("method_name", method.into()),
        ];
        self.calls.get_or_create(&of).observe(took.as_secs_f64());
    }

    /// Tells how many claims are prepared: in all, and by driver. Drivers that have none any more are not told of.
    pub fn in_use(&self, (all, by_driver): (usize, BTreeMap<String, usize>)) {
        self.in_use.clear();
        for (name, count) in by_driver.into_iter().chain([("<any>".to_owned(), all)]) {
            self.in_use.get_or_create(&label("driver_name", name)).set(count as f64);
        }
    }
}
