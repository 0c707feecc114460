//! What the scheduler counts of its queues, and of the points at which plugins are asked, under upstream's names. Labels are of fixed
//! sets, and profiles of the configuration.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Entry {
    queue: &'static str,
    event: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Asked {
    extension_point: &'static str,
    status: &'static str,
    profile: String,
}

/// From 0.1 ms to 200 ms, as upstream's.
fn point_times() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 12))
}

/// The counters.
#[derive(Debug)]
pub struct Scheduling {
    entries: Family<Entry, Counter>,
    points: Family<Asked, Histogram, fn() -> Histogram>,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            entries: Family::default(),
            points: Family::new_with_constructor(point_times),
        }
    }
}

impl Scheduling {
    /// Counts pods that came into a queue, `active`, `backoff` or `unschedulable`, by an event.
    pub fn entered(&self, queue: &'static str, event: &'static str, pods: u64) {
        self.entries.get_or_create(&Entry { queue, event }).inc_by(pods);
    }

    /// Counts that all plugins of a profile were asked at a point; `status` is upstream's name of what they said.
    pub fn asked(&self, (extension_point, status): (&'static str, &'static str), profile: &str, took: Duration) {
        let asked = Asked {
            extension_point,
            status,
            profile: profile.to_owned(),
        };
        self.points.get_or_create(&asked).observe(took.as_secs_f64());
    }

    /// Adds everything to `registry`, for one answer.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "scheduler_queue_incoming_pods",
            "Number of pods added to scheduling queues by event and queue type",
            self.entries.clone(),
        );
        registry.register(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point",
            self.points.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_upstreams() {
        let counters = Scheduling::default();
        counters.entered("active", "NodeAdd", 2);
        counters.entered("active", "NodeAdd", 1);
        counters.asked(("Filter", "Success"), "default-scheduler", Duration::from_micros(150));
        let mut registry = Registry::default();
        counters.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let labels = "extension_point=\"Filter\",status=\"Success\",profile=\"default-scheduler\"";
        for line in [
            "# TYPE scheduler_queue_incoming_pods counter".to_owned(),
            "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"NodeAdd\"} 3".to_owned(),
            "# TYPE scheduler_framework_extension_point_duration_seconds histogram".to_owned(),
            format!("scheduler_framework_extension_point_duration_seconds_bucket{{le=\"0.0001\",{labels}}} 0"),
            format!("scheduler_framework_extension_point_duration_seconds_bucket{{le=\"0.0002\",{labels}}} 1"),
            format!("scheduler_framework_extension_point_duration_seconds_bucket{{le=\"0.2048\",{labels}}} 1"),
        ] {
            assert!(text.lines().any(|had| had == line), "{line} is not in\n{text}");
        }
    }
}
