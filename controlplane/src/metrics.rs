//! What the process counts, under upstream's names: requests, work queues, scheduling.
//!
//! Owns the counters. They are cheap to bump and are put into text only when somebody asks. One value per process part, nothing is
//! global: a simulation has one per control plane. Labels come from tables of fixed size, never from what a client wrote.

pub mod controllers;
mod queue;
mod request;
pub mod scheduling;
pub mod storage;
pub mod write_errors;

pub use queue::{QueueMetrics, Running, Work};
pub use request::Request;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use request::Requests;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

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
struct Cached {
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Attempts {
    attempts: &'static str,
}

/// Attempts as upstream's label has them.
const ATTEMPTS: [&str; 15] = [
    "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15+",
];

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

/// From 10 ms to an hour and a half, as upstream's scheduler counts from a pod's arrival.
fn arrival_times() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

/// Seconds, as they are when somebody asks.
type Seconds = Family<QueueName, Gauge<f64, AtomicU64>>;

/// Adds to a registry, for one answer, what a part of the process counts by itself.
pub type Part = Box<dyn Fn(&mut Registry) + Send + Sync>;

#[derive(Default)]
struct PartList(Mutex<Vec<Part>>);

impl std::fmt::Debug for PartList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("parts")
    }
}

/// Everything counted by one control plane.
#[derive(Debug)]
pub struct Metrics {
    parts: PartList,
    requests: Requests,
    depths: Family<QueueName, Gauge>,
    adds: Family<QueueName, Counter>,
    retries: Family<QueueName, Counter>,
    waits: Family<QueueName, Histogram, fn() -> Histogram>,
    work: Family<QueueName, Histogram, fn() -> Histogram>,
    attempts: Family<Attempt, Counter>,
    attempt_durations: Family<Attempt, Histogram, fn() -> Histogram>,
    algorithm_durations: Histogram,
    pending: Family<Pending, Gauge>,
    cached: Family<Cached, Gauge>,
    attempts_of_pods: Histogram,
    arrivals: Family<Attempts, Histogram, fn() -> Histogram>,
    preemptions: Counter,
    victims: Histogram,
    scrapes: Family<Scrape, Counter>,
    scrape_durations: Histogram,
    leading: Family<LeaseName, Gauge>,
    mirroring_skipped: Histogram,
    /// By name of the queue.
    running: Mutex<BTreeMap<&'static str, Arc<Running>>>,
    controllers: Arc<controllers::Controllers>,
    /// What the scheduler's queues and plugins are counted by.
    pub scheduling: scheduling::Scheduling,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            parts: PartList::default(),
            requests: Requests::default(),
            running: Mutex::default(),
            controllers: Arc::default(),
            scheduling: scheduling::Scheduling::default(),
            depths: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waits: Family::new_with_constructor(queue_times),
            work: Family::new_with_constructor(queue_times),
            attempts: Family::default(),
            attempt_durations: Family::new_with_constructor(attempt_times),
            algorithm_durations: attempt_times(),
            pending: Family::default(),
            cached: Family::default(),
            attempts_of_pods: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            arrivals: Family::new_with_constructor(arrival_times),
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
    /// What a part counts is told with the rest from now on.
    pub fn add(&self, part: Part) {
        self.parts.0.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }

    /// Counts an answered request.
    pub fn answered(&self, request: &Request, code: u16, took: Duration) {
        self.requests.answered(request, code, took);
    }

    /// The counters of one controller's queue.
    pub fn queue(&self, name: &'static str) -> QueueMetrics {
        let running = {
            let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(name).or_default())
        };
        let name = QueueName { name };
        QueueMetrics {
            running,
            controllers: Arc::clone(&self.controllers),
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
        if result == "scheduled" {
            self.algorithm_durations.observe(took.as_secs_f64());
        }
    }

    /// Counts a pod that was bound after so many attempts, so long after it could first have been.
    pub fn placed(&self, attempts: u32, took: Duration) {
        self.attempts_of_pods.observe(f64::from(attempts));
        let at = usize::try_from(attempts).unwrap_or(usize::MAX).clamp(1, ATTEMPTS.len());
        let attempts = ATTEMPTS[at - 1];
        let arrivals = self.arrivals.get_or_create(&Attempts { attempts });
        arrivals.observe(took.as_secs_f64());
    }

    /// How many `nodes`, `pods` or `assumed_pods` the scheduler knows now.
    pub fn cached(&self, r#type: &'static str, number: usize) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.cached.get_or_create(&Cached { r#type }).set(number);
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

    /// Of what is being worked on, which nothing counts until it is done.
    fn register_running(&self, registry: &mut Registry) {
        let (unfinished, longest) = (Seconds::default(), Seconds::default());
        let now = Instant::now();
        for (name, running) in &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            let seconds = running.seconds(now);
            unfinished.get_or_create(&QueueName { name }).set(seconds.0);
            longest.get_or_create(&QueueName { name }).set(seconds.1);
        }
        registry.register(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate \
             stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases",
            unfinished,
        );
        registry.register(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running",
            longest,
        );
    }

    fn register_pods(&self, registry: &mut Registry) {
        registry.register(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            self.algorithm_durations.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod",
            self.attempts_of_pods.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling \
             attempts",
            self.arrivals.clone(),
        );
        registry.register(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache",
            self.cached.clone(),
        );
    }

    /// Adds everything to `registry`, for one answer.
    pub fn register(&self, registry: &mut Registry) {
        self.requests.register(registry);
        for part in &*self.parts.0.lock().unwrap_or_else(PoisonError::into_inner) {
            part(registry);
        }
        self.register_running(registry);
        self.controllers.register(registry);
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
        self.register_pods(registry);
        self.scheduling.register(registry);
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
        queue.controllers.job_pods_finished("Indexed", "failed", 2);
        metrics.scheduled("default-scheduler", "scheduled", Duration::from_millis(3));
        metrics.pending("active", 2);
        metrics.placed(3, Duration::from_millis(15));
        metrics.placed(40, Duration::from_secs(60));
        metrics.cached("nodes", 5);
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
            "workqueue_unfinished_work_seconds{name=\"deployment-controller\"} 0.0",
            "job_controller_job_pods_finished_total{completion_mode=\"Indexed\",result=\"failed\"} 2",
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1",
            "scheduler_pending_pods{queue=\"active\"} 2",
            "scheduler_scheduling_algorithm_duration_seconds_count 1",
            "scheduler_pod_scheduling_attempts_bucket{le=\"4.0\"} 1",
            "scheduler_pod_scheduling_attempts_count 2",
            "scheduler_pod_scheduling_sli_duration_seconds_bucket{le=\"0.02\",attempts=\"3\"} 1",
            "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"15+\"} 1",
            "scheduler_cache_size{type=\"nodes\"} 5",
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
