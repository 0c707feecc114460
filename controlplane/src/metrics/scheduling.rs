//! What the scheduler counts of its queues, and of the points at which plugins are asked, under upstream's names. Labels are of fixed
//! sets, and profiles of the configuration.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
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

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ran {
    plugin: &'static str,
    extension_point: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Blamed {
    plugin: &'static str,
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Handled {
    event: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Evicted {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Working {
    operation: &'static str,
}

/// From 0.1 ms to 200 ms, as upstream's.
fn point_times() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 12))
}

/// From 10 µs to 22 ms, as upstream's.
fn plugin_times() -> Histogram {
    Histogram::new(exponential_buckets(0.000_01, 1.5, 20))
}

/// From 10 ms to an hour and a half, as upstream's.
fn eviction_times() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

/// Something that is under way, as long as it is held.
#[derive(Debug)]
pub struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The counters.
#[derive(Debug)]
pub struct Scheduling {
    entries: Family<Entry, Counter>,
    points: Family<Asked, Histogram, fn() -> Histogram>,
    plugins: Family<Ran, Histogram, fn() -> Histogram>,
    blamed: Family<Blamed, Gauge>,
    events: Family<Handled, Histogram, fn() -> Histogram>,
    evictions: Family<Evicted, Counter>,
    eviction_durations: Family<Evicted, Histogram, fn() -> Histogram>,
    working: Family<Working, Gauge>,
    after_long: Counter,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            entries: Family::default(),
            points: Family::new_with_constructor(point_times),
            plugins: Family::new_with_constructor(plugin_times),
            blamed: Family::default(),
            events: Family::new_with_constructor(point_times),
            evictions: Family::default(),
            eviction_durations: Family::new_with_constructor(eviction_times),
            working: Family::default(),
            after_long: Counter::default(),
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

    /// Counts that a plugin was asked at a point, in a cycle whose plugins are timed; `status` is upstream's name of what it said.
    pub fn ran(&self, (plugin, extension_point, status): (&'static str, &'static str, &'static str), took: Duration) {
        let ran = Ran {
            plugin,
            extension_point,
            status,
        };
        self.plugins.get_or_create(&ran).observe(took.as_secs_f64());
    }

    /// How many pods of a profile wait because of a plugin now.
    pub fn blamed(&self, plugin: &'static str, profile: &str, pods: usize) {
        let blamed = Blamed {
            plugin,
            profile: profile.to_owned(),
        };
        let pods = i64::try_from(pods).unwrap_or(i64::MAX);
        self.blamed.get_or_create(&blamed).set(pods);
    }

    /// Counts that an event has been taken in.
    pub fn handled(&self, event: &'static str, took: Duration) {
        let events = self.events.get_or_create(&Handled { event });
        events.observe(took.as_secs_f64());
    }

    /// Counts that others have been evicted for a pod, or not all of them.
    pub fn evicted(&self, is_done: bool, took: Duration) {
        let result = if is_done { "success" } else { "error" };
        self.evictions.get_or_create(&Evicted { result }).inc();
        let durations = self.eviction_durations.get_or_create(&Evicted { result });
        durations.observe(took.as_secs_f64());
    }

    /// A binding begins, which is under way until what this gives is dropped.
    pub fn binding(&self) -> UnderWay {
        let gauge = self.working.get_or_create(&Working { operation: "binding" }).clone();
        gauge.inc();
        UnderWay(gauge)
    }

    /// Counts a pod that was bound after it had been tried again because nothing had happened for it for long.
    pub fn placed_after_long(&self) {
        self.after_long.inc();
    }

    fn register_plugins(&self, registry: &mut Registry) {
        registry.register(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point",
            self.plugins.clone(),
        );
        registry.register(
            "scheduler_unschedulable_pods",
            "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to \
             not schedule and so this metric have meaning only when broken down by plugin",
            self.blamed.clone(),
        );
        registry.register(
            "scheduler_event_handling_duration_seconds",
            "Event handling latency in seconds",
            self.events.clone(),
        );
        registry.register(
            "scheduler_goroutines",
            "Number of running goroutines split by the work they do such as binding",
            self.working.clone(),
        );
        registry.register(
            "scheduler_preemption_goroutines_duration_seconds",
            "Duration in seconds for running goroutines for the preemption",
            self.eviction_durations.clone(),
        );
        registry.register(
            "scheduler_preemption_goroutines_execution",
            "Number of preemption goroutines executed",
            self.evictions.clone(),
        );
        registry.register(
            "scheduler_pod_scheduled_after_flush",
            "Number of pods that were successfully scheduled after being flushed from unschedulablePods due to timeout. This metric helps \
             detect potential queueing hint misconfigurations or event handling issues",
            self.after_long.clone(),
        );
    }

    /// Adds everything to `registry`, for one answer.
    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_plugins(registry);
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
        counters.ran(("NodeName", "Filter", "Success"), Duration::from_micros(12));
        counters.blamed("NodeName", "default-scheduler", 4);
        counters.handled("NodeAdd", Duration::from_micros(150));
        counters.evicted(true, Duration::from_millis(15));
        counters.evicted(false, Duration::from_millis(15));
        counters.placed_after_long();
        let (_first, second) = (counters.binding(), counters.binding());
        drop(second);
        let mut registry = Registry::default();
        counters.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let labels = "extension_point=\"Filter\",status=\"Success\",profile=\"default-scheduler\"";
        let ran = "plugin=\"NodeName\",extension_point=\"Filter\",status=\"Success\"";
        for line in [
            format!("scheduler_plugin_execution_duration_seconds_bucket{{le=\"0.00001\",{ran}}} 0"),
            format!("scheduler_plugin_execution_duration_seconds_count{{{ran}}} 1"),
            "scheduler_unschedulable_pods{plugin=\"NodeName\",profile=\"default-scheduler\"} 4".to_owned(),
            "scheduler_event_handling_duration_seconds_bucket{le=\"0.0002\",event=\"NodeAdd\"} 1".to_owned(),
            "scheduler_goroutines{operation=\"binding\"} 1".to_owned(),
            "scheduler_preemption_goroutines_execution_total{result=\"success\"} 1".to_owned(),
            "scheduler_preemption_goroutines_duration_seconds_bucket{le=\"0.02\",result=\"error\"} 1".to_owned(),
            "scheduler_pod_scheduled_after_flush_total 1".to_owned(),
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
