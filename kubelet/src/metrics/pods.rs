//! What becomes of pods: how long they take to run, what was started, refused, told (kubelet contract §13).

use super::labels::{
    Counters, DEFAULT_BUCKETS, Histograms, Labels, Number, Numbers, counter, counters, histogram, histograms, label,
    number, numbers,
};
use crate::pod::view::PodSnapshot;
use crate::pod_object::{self, Kind};
use crate::reason::condition;
use crate::runtime::observed::ContainerState;
use k8s_openapi::api::core::v1::PodCondition;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
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
}

/// Counts what becomes of pods. Cheap to clone.
#[derive(Clone)]
pub struct PodMetrics {
    starts: Histogram,
    starts_sli: Histogram,
    starts_total: Histogram,
    containers: Histogram,
    worker_starts: Histogram,
    statuses: Histogram,
    started_containers: Counters,
    started_containers_errors: Counters,
    rejections: Counters,
    restarted: Counters,
    orphaned: Counter,
    fallbacks: Counter,
    evictions: Counters,
    relists: Histogram,
    relist_intervals: Histogram,
    looks: Histogram,
    last_seen: Number,
    cgroups: Histograms,
    counts: Counts,
}

/// Numbers that are counted when somebody asks.
#[derive(Clone)]
struct Counts {
    running: Number,
    containers: Numbers,
    desired: Numbers,
    active: Numbers,
    working: Numbers,
    mirrors: Number,
    ephemerals: Number,
    resizes_pending: Numbers,
    resizing: Number,
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
        }
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
        let kind = match kind {
            Kind::Regular => "container",
            Kind::Init | Kind::Sidecar => "init_container",
            Kind::Ephemeral => "ephemeral_container",
        };
        let mut of = label("container_type", kind);
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

fn of_static(is_static: bool) -> Labels {
    label("static", if is_static { "true" } else { "" })
}

impl Counts {
    fn register(r: &mut Registry) -> Self {
        Self {
            running: number(r, "kubelet_running_pods", "Pods whose sandbox runs"),
            containers: numbers(r, "kubelet_running_containers", "Containers, by state"),
            desired: numbers(r, "kubelet_desired_pods", "Pods this kubelet is to run"),
            active: numbers(
                r,
                "kubelet_active_pods",
                "Pods that hold resources of the node when others ask for some",
            ),
            working: numbers(
                r,
                "kubelet_working_pods",
                "Pods that have a worker, by how far their life is and whether they are still wanted",
            ),
            mirrors: number(
                r,
                "kubelet_mirror_pods",
                "Static pods that have a mirror pod, or are to have one",
            ),
            ephemerals: number(
                r,
                "kubelet_managed_ephemeral_containers",
                "Ephemeral containers of all pods",
            ),
            resizes_pending: numbers(
                r,
                "kubelet_pod_pending_resizes",
                "Resizes that were not given, by reason",
            ),
            resizing: number(
                r,
                "kubelet_pod_in_progress_resizes",
                "Resizes that were given and are not done",
            ),
        }
    }

    fn take(&self, pods: &[Arc<PodSnapshot>]) {
        let count = |test: &dyn Fn(&PodSnapshot) -> bool| pods.iter().filter(|pod| test(pod)).count() as f64;
        self.running
            .set(count(&|pod| pod.observed.sandboxes.iter().any(|sandbox| sandbox.ready)));
        for (state, name) in [
            (ContainerState::Created, "created"),
            (ContainerState::Running, "running"),
            (ContainerState::Exited, "exited"),
            (ContainerState::Unknown, "unknown"),
        ] {
            let all = pods.iter().flat_map(|pod| &pod.observed.containers);
            let number = all.filter(|container| container.state == state).count();
            let of = label("container_state", name);
            self.containers.get_or_create(&of).set(number as f64);
        }
        for is_static in [false, true] {
            let of_kind = |pod: &PodSnapshot| pod_object::is_static(&pod.pod) == is_static;
            let of = of_static(is_static);
            self.desired
                .get_or_create(&of)
                .set(count(&|pod| of_kind(pod) && pod.life.present));
            self.active
                .get_or_create(&of)
                .set(count(&|pod| of_kind(pod) && !pod.ended));
        }
        self.count_lives(pods);
        self.mirrors
            .set(count(&|pod| pod_object::is_static(&pod.pod) && !pod.ended));
        let ephemerals = pods.iter().map(|pod| pod_object::ephemerals(&pod.pod).len());
        self.ephemerals.set(ephemerals.sum::<usize>() as f64);
        self.count_resizes(pods);
    }

    fn count_lives(&self, pods: &[Arc<PodSnapshot>]) {
        let mut numbers: BTreeMap<_, f64> = BTreeMap::new();
        for lifecycle in ["sync", "terminating", "terminated"] {
            for config in ["desired", "orphan", "runtime_only"] {
                for is_static in [false, true] {
                    // Of those the runtime alone knows nobody can tell whether they were static.
                    let known = config == "runtime_only" && is_static;
                    if !known {
                        numbers.insert((lifecycle, config, is_static), 0.0);
                    }
                }
            }
        }
        for pod in pods {
            let lifecycle = match (pod.ended, pod.life.ending) {
                (true, _) => "terminated",
                (false, true) => "terminating",
                (false, false) => "sync",
            };
            let config = if pod.life.present { "desired" } else { "orphan" };
            let place = (lifecycle, config, pod_object::is_static(&pod.pod));
            *numbers.entry(place).or_default() += 1.0;
        }
        for ((lifecycle, config, is_static), number) in numbers {
            let mut of = label("lifecycle", lifecycle);
            of.push(("config", config.into()));
            let is_static = if config == "runtime_only" {
                "unknown"
            } else if is_static {
                "true"
            } else {
                ""
            };
            of.push(("static", is_static.into()));
            self.working.get_or_create(&of).set(number);
        }
    }

    fn count_resizes(&self, pods: &[Arc<PodSnapshot>]) {
        let conditions = |kind: &'static str| {
            let all = pods.iter().flat_map(|pod| pod.status.conditions.iter().flatten());
            all.filter(move |found: &&PodCondition| found.type_ == kind && found.status == "True")
        };
        for (reason, name) in [(condition::DEFERRED, "deferred"), (condition::INFEASIBLE, "infeasible")] {
            let pending = conditions(condition::POD_RESIZE_PENDING);
            let number = pending.filter(|found| found.reason.as_deref() == Some(reason)).count();
            let of = label("reason", name);
            self.resizes_pending.get_or_create(&of).set(number as f64);
        }
        self.resizing
            .set(conditions(condition::POD_RESIZE_IN_PROGRESS).count() as f64);
    }
}
