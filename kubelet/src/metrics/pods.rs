//! What becomes of pods: how long they take to run, what was started, refused, told (kubelet contract §13).

use super::counts::{Counts, of_static};
use super::labels::{
    Counters, DEFAULT_BUCKETS, Histograms, Number, counter, counters, histogram, histograms, label, number,
};
use crate::pod::view::PodSnapshot;
use crate::pod_object::Kind;
use crate::reason::terminated;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const START_BUCKETS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const STATUS_BUCKETS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Containers of a pod.
const COUNT_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];

/// How long a pod took until it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Since this kubelet had seen it first.
    pub since_seen: Duration,
    /// Since it was created; unknown of static pods, which nobody creates.
    pub since_created: Option<Duration>,
    /// Of that, the time images were being pulled.
    pub pulling: Duration,
    /// Whether it has a network of its own.
    pub own_network: bool,
}

/// What a worker works at, as upstream calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It starts its pod.
    Create,
    /// It makes its pod what it is to be now.
    Update,
    /// It keeps its pod as it is to be.
    Sync,
    /// It ends its pod.
    Kill,
    /// It releases what an ended pod held.
    Terminated,
}

/// A container that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended<'a> {
    /// Whether it was a container of its pod's start, a regular or an ephemeral one.
    pub kind: Kind,
    /// Its exit code.
    pub exit_code: i32,
    /// Why, as its status says.
    pub reason: &'a str,
}

/// Exit codes of programs; what a runtime says beyond them is one code.
const EXIT_CODES: std::ops::RangeInclusive<i32> = 0..=255;

/// Counts what becomes of pods. Cheap to clone.
#[derive(Clone)]
pub struct PodMetrics {
    starts: Histogram,
    starts_sli: Histogram,
    starts_total: Histogram,
    containers: Histogram,
    worker_starts: Histogram,
    works: Histograms,
    first_network: Number,
    network_seen: Arc<AtomicBool>,
    ended_containers: Counters,
    sleeps: Counter,
    statuses: Histogram,
    started_containers: Counters,
    started_containers_errors: Counters,
    rejections: Counters,
    restarted: Counters,
    orphaned: Counter,
    fallbacks: Counter,
    evictions: Counters,
    eviction_stats_ages: Histograms,
    preemptions: Counters,
    relists: Histogram,
    relist_intervals: Histogram,
    looks: Histogram,
    last_seen: Number,
    cgroups: Histograms,
    counts: Counts,
}

impl PodMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let r = registry;
        let _: Counter = counter(
            r,
            "kubelet_pleg_discard_events",
            "Events of pods that were dropped: none ever is",
        );
        Self {
            starts: histogram(
                r,
                "kubelet_pod_start_duration_seconds",
                "Time from a pod's being seen to its running",
                START_BUCKETS,
            ),
            starts_sli: histogram(
                r,
                "kubelet_pod_start_sli_duration_seconds",
                "Time from a pod's creation to its running, without that of image pulls",
                START_BUCKETS,
            ),
            starts_total: histogram(
                r,
                "kubelet_pod_start_total_duration_seconds",
                "Time from a pod's creation to its running",
                START_BUCKETS,
            ),
            containers: histogram(
                r,
                "kubelet_containers_per_pod_count",
                "Containers of the pods that were let in",
                COUNT_BUCKETS,
            ),
            worker_starts: histogram(
                r,
                "kubelet_pod_worker_start_duration_seconds",
                "Time from a pod's being seen to its worker's start",
                DEFAULT_BUCKETS,
            ),
            works: histograms(
                r,
                "kubelet_pod_worker_duration_seconds",
                "Time from a worker's beginning to work at its pod to nothing of it being under way, by what it does",
                DEFAULT_BUCKETS,
            ),
            first_network: number(
                r,
                "kubelet_first_network_pod_start_sli_duration_seconds",
                "Time from the creation to the running of the first pod with a network of its own, without that of image pulls",
            ),
            network_seen: Arc::default(),
            ended_containers: counters(
                r,
                "kubelet_terminated_containers",
                "Containers that ended, by kind, exit code and reason",
            ),
            sleeps: counter(
                r,
                "kubelet_sleep_action_terminated_early",
                "Hooks that were to sleep for longer than their grace let them",
            ),
            statuses: histogram(
                r,
                "kubelet_pod_status_sync_duration_seconds",
                "Time from a change of a pod's status to the API server's knowing it",
                STATUS_BUCKETS,
            ),
            started_containers: counters(r, "kubelet_started_containers", "Containers that were begun, by kind"),
            started_containers_errors: counters(
                r,
                "kubelet_started_containers_errors",
                "Containers that were not started, by kind and reason",
            ),
            rejections: counters(
                r,
                "kubelet_admission_rejections",
                "Pods that were not let in, by reason",
            ),
            restarted: counters(
                r,
                "kubelet_restarted_pods",
                "Pods that came back with the same UID after they had been taken away",
            ),
            orphaned: counter(
                r,
                "kubelet_orphaned_runtime_pods",
                "Pods that the runtime had and no source knew",
            ),
            fallbacks: counter(
                r,
                "kubelet_lifecycle_handler_http_fallbacks",
                "Hooks that asked for TLS, were answered without it and worked without it",
            ),
            eviction_stats_ages: histograms(
                r,
                "kubelet_eviction_stats_age_seconds",
                "Time from the look at the node to the end of a pod by what was seen",
                DEFAULT_BUCKETS,
            ),
            preemptions: counters(
                r,
                "kubelet_preemptions",
                "Pods that made room for a critical one, by what there was too little of",
            ),
            evictions: counters(
                r,
                "kubelet_evictions",
                "Pods the node ended, by what it or they ran short of",
            ),
            relists: histogram(
                r,
                "kubelet_pleg_relist_duration_seconds",
                "Time that listing all pods of the runtime took",
                DEFAULT_BUCKETS,
            ),
            relist_intervals: histogram(
                r,
                "kubelet_pleg_relist_interval_seconds",
                "Time between two lists of all pods of the runtime",
                DEFAULT_BUCKETS,
            ),
            looks: histogram(
                r,
                "kubelet_pleg_pod_relist_duration_seconds",
                "Time that looking at one pod of the runtime took",
                DEFAULT_BUCKETS,
            ),
            last_seen: number(
                r,
                "kubelet_pleg_last_seen_seconds",
                "When all pods of the runtime were last listed, in seconds since 1970",
            ),
            cgroups: histograms(
                r,
                "kubelet_cgroup_manager_duration_seconds",
                "Time that work on pods' cgroups took, by kind",
                DEFAULT_BUCKETS,
            ),
            counts: Counts::register(r),
        }
    }

    /// Counts a pod that runs now.
    pub fn runs(&self, start: Start) {
        self.starts.observe(start.since_seen.as_secs_f64());
        if let Some(total) = start.since_created {
            self.starts_total.observe(total.as_secs_f64());
            let own = total.saturating_sub(start.pulling);
            self.starts_sli.observe(own.as_secs_f64());
            if start.own_network && !self.network_seen.swap(true, Ordering::Relaxed) {
                self.first_network.set(own.as_secs_f64());
            }
        }
    }

    /// Counts work at a pod that is done.
    pub fn worked(&self, at: Work, took: Duration) {
        let of = label(
            "operation_type",
            match at {
                Work::Create => "create",
                Work::Update => "update",
                Work::Sync => "sync",
                Work::Kill => "kill",
                Work::Terminated => "terminated",
            },
        );
        self.works.get_or_create(&of).observe(took.as_secs_f64());
    }

    /// Counts a container that ended. Programs choose their exit codes, so there are at most so many of them.
    pub fn container_ended(&self, ended: Ended<'_>) {
        let reason = terminated::COUNTED.iter().find(|known| **known == ended.reason);
        let code = match EXIT_CODES.contains(&ended.exit_code) {
            true => ended.exit_code,
            false => -1,
        };
        let mut of = label("container_type", type_of(ended.kind));
        of.push(("exit_code", code.to_string().into()));
        of.push(("reason", reason.copied().unwrap_or(terminated::ERROR).into()));
        self.ended_containers.get_or_create(&of).inc();
    }

    /// Counts a hook that slept until its grace was over.
    pub fn sleep_cut_short(&self) {
        self.sleeps.inc();
    }

    /// Counts a pod that was let in, with so many containers.
    pub fn admitted(&self, containers: usize) {
        self.containers.observe(containers as f64);
    }

    /// Counts a pod that was not let in. The reasons are a fixed set and the names of resources.
    pub fn rejected(&self, reason: &str) {
        self.rejections.get_or_create(&label("reason", reason.to_owned())).inc();
    }

    /// Counts a worker that starts, so long after its pod was seen.
    pub fn worker_started(&self, after: Duration) {
        self.worker_starts.observe(after.as_secs_f64());
    }

    /// Counts a pod of the same UID that is back.
    pub fn restarted(&self, is_static: bool) {
        self.restarted.get_or_create(&of_static(is_static)).inc();
    }

    /// Counts a pod that only the runtime knew.
    pub fn orphaned(&self) {
        self.orphaned.inc();
    }

    /// Counts a container that is begun, and why it was not if it was not; `code` is one of the waiting reasons.
    pub fn container_started(&self, kind: Kind, code: Option<&'static str>) {
        let mut of = label("container_type", type_of(kind));
        self.started_containers.get_or_create(&of).inc();
        if let Some(code) = code {
            of.push(("code", code.into()));
            self.started_containers_errors.get_or_create(&of).inc();
        }
    }

    /// Counts a hook that was answered without the TLS it asked for.
    pub fn hook_fell_back(&self) {
        self.fallbacks.inc();
    }

    /// Counts a pod that the node ends; the signals are a fixed set.
    pub fn evicted(&self, signal: &'static str) {
        self.evictions.get_or_create(&label("eviction_signal", signal)).inc();
    }

    /// Counts the age of what was seen when a pod is ended by it.
    pub fn eviction_stats_age(&self, signal: &'static str, age: Duration) {
        let of = label("eviction_signal", signal);
        self.eviction_stats_ages.get_or_create(&of).observe(age.as_secs_f64());
    }

    /// Counts a pod that makes room for a critical one: the node's resources are few, others count as one.
    pub fn preempted(&self, resource: &str) {
        let known = ["cpu", "memory", "ephemeral-storage", "pods"];
        let signal = known.into_iter().find(|name| *name == resource).unwrap_or("other");
        self.preemptions
            .get_or_create(&label("preemption_signal", signal))
            .inc();
    }

    /// Counts a status the API server knows now, so long after it changed.
    pub fn status_written(&self, after: Duration) {
        self.statuses.observe(after.as_secs_f64());
    }

    /// Counts a list of all pods of the runtime: how long it took, how long after the last, and at what time it worked.
    pub fn relisted(&self, took: Duration, since_last: Option<Duration>, at_seconds: Option<f64>) {
        self.relists.observe(took.as_secs_f64());
        if let Some(since) = since_last {
            self.relist_intervals.observe(since.as_secs_f64());
        }
        if let Some(at) = at_seconds {
            self.last_seen.set(at);
        }
    }

    /// Counts a look at one pod of the runtime.
    pub fn looked(&self, took: Duration) {
        self.looks.observe(took.as_secs_f64());
    }

    /// Counts work on a pod's cgroup: `create`, `update` or `destroy`.
    pub fn cgroup(&self, operation: &'static str, took: Duration) {
        let of = label("operation_type", operation);
        self.cgroups.get_or_create(&of).observe(took.as_secs_f64());
    }

    /// Counts the pods there are now.
    pub(super) fn count(&self, pods: &[Arc<PodSnapshot>]) {
        self.counts.take(pods);
    }
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "container",
        Kind::Init | Kind::Sidecar => "init_container",
        Kind::Ephemeral => "ephemeral_container",
    }
}
