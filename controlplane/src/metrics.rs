//! What the process counts, under upstream's names: requests, work queues, scheduling.
//!
//! Owns the counters. They are cheap to bump and are put into text only when somebody asks. One value per process part, nothing is
//! global: a simulation has one per control plane. Labels come from tables of fixed size, never from what a client wrote.

mod request;

pub use request::Request;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use request::Requests;
use std::time::Duration;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueName {
    name: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Attempt {
    /// Of the configuration.
    profile: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Pending {
    queue: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LeaseName {
    name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Scrape {
    success: &'static str,
}

/// From 10 ns to 10 s, as upstream's work queues count.
fn queue_times() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 10))
}

/// From 1 ms to 16 s, as upstream's scheduler counts.
fn attempt_times() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// Everything counted by one control plane.
#[derive(Debug)]
pub struct Metrics {
    requests: Requests,
    depths: Family<QueueName, Gauge>,
    adds: Family<QueueName, Counter>,
    retries: Family<QueueName, Counter>,
    waits: Family<QueueName, Histogram, fn() -> Histogram>,
    work: Family<QueueName, Histogram, fn() -> Histogram>,
    attempts: Family<Attempt, Counter>,
    attempt_durations: Family<Attempt, Histogram, fn() -> Histogram>,
    pending: Family<Pending, Gauge>,
    preemptions: Counter,
    victims: Histogram,
    scrapes: Family<Scrape, Counter>,
    scrape_durations: Histogram,
    leading: Family<LeaseName, Gauge>,
    mirroring_skipped: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Requests::default(),
            depths: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waits: Family::new_with_constructor(queue_times),
            work: Family::new_with_constructor(queue_times),
            attempts: Family::default(),
            attempt_durations: Family::new_with_constructor(attempt_times),
            pending: Family::default(),
            preemptions: Counter::default(),
            victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            leading: Family::default(),
            mirroring_skipped: Histogram::new(exponential_buckets(2.0, 2.0, 15)),
            scrapes: Family::default(),
            scrape_durations: Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]),
        }
    }
}

impl Metrics {
    /// Counts an answered request.
    pub fn answered(&self, request: &Request, code: u16, took: Duration) {
        self.requests.answered(request, code, took);
    }

    /// The counters of one controller's queue.
    pub fn queue(&self, name: &'static str) -> QueueMetrics {
        let name = QueueName { name };
        QueueMetrics {
            depth: self.depths.get_or_create(&name).clone(),
            adds: self.adds.get_or_create(&name).clone(),
            retries: self.retries.get_or_create(&name).clone(),
            wait: self.waits.get_or_create(&name).clone(),
            work: self.work.get_or_create(&name).clone(),
        }
    }

    /// Counts one scheduling attempt; `result` is `scheduled`, `unschedulable` or `error`.
    pub fn scheduled(&self, profile: &str, result: &'static str, took: Duration) {
        let attempt = Attempt {
            profile: profile.to_owned(),
            result,
        };
        self.attempts.get_or_create(&attempt).inc();
        self.attempt_durations
            .get_or_create(&attempt)
            .observe(took.as_secs_f64());
    }

    /// Counts an attempt to make room for a pod, and how many others are evicted for it if any are.
    pub fn preempted(&self, victims: Option<usize>) {
        self.preemptions.inc();
        if let Some(victims) = victims {
            self.victims.observe(victims as f64);
        }
    }

    /// Whether this process holds that lease: 1 while it does.
    pub fn leading(&self, lease: &str) -> Gauge {
        let name = lease.to_owned();
        self.leading.get_or_create(&LeaseName { name }).clone()
    }

    /// Addresses that a look at Endpoints left out of their EndpointSlices.
    pub fn mirroring_skipped(&self) -> Histogram {
        self.mirroring_skipped.clone()
    }

    /// Counts one question to a kubelet about what its node and pods use.
    pub fn scraped(&self, is_answered: bool, took: Duration) {
        let success = if is_answered { "true" } else { "false" };
        self.scrapes.get_or_create(&Scrape { success }).inc();
        self.scrape_durations.observe(took.as_secs_f64());
    }

    /// How many pods wait in one of the scheduler's queues now.
    pub fn pending(&self, queue: &'static str, pods: usize) {
        let pods = i64::try_from(pods).unwrap_or(i64::MAX);
        self.pending.get_or_create(&Pending { queue }).set(pods);
    }

    /// Adds everything to `registry`, for one answer.
    pub fn register(&self, registry: &mut Registry) {
        self.requests.register(registry);
        let mut queue = |name: &str, help: &str, metric: &Family<QueueName, Counter>| {
            registry.register(format!("workqueue_{name}"), help, metric.clone());
        };
        queue("adds", "Total number of adds handled by workqueue", &self.adds);
        queue("retries", "Total number of retries handled by workqueue", &self.retries);
        registry.register("workqueue_depth", "Current depth of workqueue", self.depths.clone());
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            self.waits.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            self.work.clone(),
        );
        registry.register(
            "scheduler_schedule_attempts",
            "Number of attempts to schedule pods, by the result",
            self.attempts.clone(),
        );
        registry.register(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm)",
            self.attempt_durations.clone(),
        );
        registry.register(
            "scheduler_preemption_attempts",
            "Total preemption attempts in the cluster till now",
            self.preemptions.clone(),
        );
        registry.register(
            "scheduler_preemption_victims",
            "Number of selected preemption victims",
            self.victims.clone(),
        );
        registry.register(
            "scheduler_pending_pods",
            "Number of pending pods, by the queue type",
            self.pending.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
             'name' is the string used to identify the lease. Please make sure to group by name",
            self.leading.clone(),
        );
        registry.register(
            "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
            "Number of addresses skipped on each Endpoints sync due to being invalid or exceeding MaxEndpointsPerSubset",
            self.mirroring_skipped.clone(),
        );
        registry.register(
            "metrics_server_kubelet_request",
            "Number of requests sent to Kubelet API",
            self.scrapes.clone(),
        );
        registry.register(
            "metrics_server_kubelet_request_duration_seconds",
            "Duration of requests to Kubelet API in seconds",
            self.scrape_durations.clone(),
        );
    }
}

/// The counters of one work queue.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    /// Keys that wait now.
    pub depth: Gauge,
    /// Keys that were added.
    pub adds: Counter,
    /// Keys that come again after a failure.
    pub retries: Counter,
    /// Seconds a key waited.
    pub wait: Histogram,
    /// Seconds a key was worked on.
    pub work: Histogram,
}

impl Default for QueueMetrics {
    fn default() -> Self {
        Metrics::default().queue("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_upstreams() {
        let metrics = Metrics::default();
        let queue = metrics.queue("deployment-controller");
        queue.adds.inc();
        queue.depth.set(3);
        queue.work.observe(0.5);
        metrics.scheduled("default-scheduler", "scheduled", Duration::from_millis(3));
        metrics.pending("active", 2);
        metrics.mirroring_skipped().observe(3.0);
        let request = Request {
            verb: "LIST",
            resource: "pods".into(),
            version: "v1".into(),
            scope: "namespace",
            ..Request::default()
        };
        metrics.answered(&request, 200, Duration::from_millis(30));
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "workqueue_adds_total{name=\"deployment-controller\"} 1",
            "workqueue_depth{name=\"deployment-controller\"} 3",
            "workqueue_work_duration_seconds_count{name=\"deployment-controller\"} 1",
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1",
            "scheduler_pending_pods{queue=\"active\"} 2",
            "endpoint_slice_mirroring_controller_addresses_skipped_per_sync_count 1",
            "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",\
             scope=\"namespace\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(
            text.contains("apiserver_request_duration_seconds_bucket{le=\"0.05\",component=\"apiserver\""),
            "{text}"
        );
    }
}
