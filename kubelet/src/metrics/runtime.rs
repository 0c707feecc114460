//! What the runtime was asked, and what its pods, containers and images cost in time (kubelet contract §13).

use super::labels::{Counters, DEFAULT_BUCKETS, Histograms, counter, counters, histograms, label};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// From 5 ms on, each two and a half times the one before, seconds.
const OPERATION_BUCKETS: &[f64] = &[
    0.005,
    0.0125,
    0.03125,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
    298.023_223_876_953_1,
    745.058_059_692_382_8,
];
const PULL_BUCKETS: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0,
    3600.0,
];
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The classes of image sizes: more than so many bytes.
const SIZES: &[(u64, &str)] = &[
    (100 * GIB, "GT100GB"),
    (60 * GIB, "60GB-100GB"),
    (40 * GIB, "40GB-60GB"),
    (30 * GIB, "30GB-40GB"),
    (20 * GIB, "20GB-30GB"),
    (10 * GIB, "10GB-20GB"),
    (5 * GIB, "5GB-10GB"),
    (GIB, "1GB-5GB"),
    (500 * MIB, "500MB-1GB"),
    (100 * MIB, "100MB-500MB"),
    (10 * MIB, "10MB-100MB"),
    (0, "0-10MB"),
];

fn size_class(bytes: u64) -> &'static str {
    let class = SIZES.iter().find(|(above, _)| bytes > *above);
    class.map_or("N/A", |(_, class)| class)
}

/// Counts calls of the runtime. Cheap to clone.
#[derive(Clone)]
pub struct RuntimeMetrics {
    calls: Counters,
    errors: Counters,
    durations: Histograms,
    sandboxes: Histograms,
    sandbox_errors: Counters,
    started: Counter,
    started_errors: Counter,
    started_with_users: Counter,
    started_with_users_errors: Counter,
    pulls: Histograms,
    collected: Counters,
}

impl RuntimeMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let r = registry;
        Self {
            calls: counters(
                r,
                "kubelet_runtime_operations",
                "Calls of the container runtime, by kind",
            ),
            errors: counters(
                r,
                "kubelet_runtime_operations_errors",
                "Calls of the container runtime that failed, by kind",
            ),
            durations: histograms(
                r,
                "kubelet_runtime_operations_duration_seconds",
                "Time that calls of the container runtime took, by kind",
                OPERATION_BUCKETS,
            ),
            sandboxes: histograms(
                r,
                "kubelet_run_podsandbox_duration_seconds",
                "Time that making sandboxes took, by the runtime class's handler",
                DEFAULT_BUCKETS,
            ),
            sandbox_errors: counters(
                r,
                "kubelet_run_podsandbox_errors",
                "Sandboxes that were not made, by the runtime class's handler",
            ),
            started: counter(r, "kubelet_started_pods", "Sandboxes of pods that were begun"),
            started_errors: counter(r, "kubelet_started_pods_errors", "Sandboxes of pods that were not made"),
            started_with_users: counter(
                r,
                "kubelet_started_user_namespaced_pods",
                "Sandboxes of pods with users of their own that were begun",
            ),
            started_with_users_errors: counter(
                r,
                "kubelet_started_user_namespaced_pods_errors",
                "Sandboxes of pods with users of their own that were not made",
            ),
            pulls: histograms(
                r,
                "kubelet_image_pull_duration_seconds",
                "Time that pulls of images took, by the image's size",
                PULL_BUCKETS,
            ),
            collected: counters(
                r,
                "kubelet_image_garbage_collected",
                "Images that were removed because nothing used them, by reason",
            ),
        }
    }

    /// Counts a call and how it ended. `operation` is one of a fixed set.
    pub fn call(&self, operation: &'static str, took: Duration, worked: bool) {
        let of = label("operation_type", operation);
        self.calls.get_or_create(&of).inc();
        self.durations.get_or_create(&of).observe(took.as_secs_f64());
        if !worked {
            self.errors.get_or_create(&of).inc();
        }
    }

    /// Counts a sandbox and how its making ended.
    pub fn sandbox(&self, handler: &str, own_users: bool, took: Duration, worked: bool) {
        let of = label("runtime_handler", handler.to_owned());
        self.sandboxes.get_or_create(&of).observe(took.as_secs_f64());
        self.started.inc();
        if own_users {
            self.started_with_users.inc();
        }
        if worked {
            return;
        }
        self.sandbox_errors.get_or_create(&of).inc();
        self.started_errors.inc();
        if own_users {
            self.started_with_users_errors.inc();
        }
    }

    /// Counts an image that was removed because nothing used it. `reason` is one of a fixed set.
    pub fn image_collected(&self, reason: &'static str) {
        self.collected.get_or_create(&label("reason", reason)).inc();
    }

    /// Counts a pull that worked, of an image of so many bytes.
    pub fn pulled(&self, bytes: u64, took: Duration) {
        let of = label("image_size_in_bytes", size_class(bytes));
        self.pulls.get_or_create(&of).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_classes() {
        for (bytes, class) in [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 * MIB, "0-10MB"),
            (10 * MIB + 1, "10MB-100MB"),
            (750 * MIB, "500MB-1GB"),
            (GIB, "500MB-1GB"),
            (GIB + 1, "1GB-5GB"),
            (u64::MAX, "GT100GB"),
        ] {
            assert_eq!(size_class(bytes), class, "{bytes}");
        }
    }
}
