//! What containers have to themselves, and what could not be given (kubelet contract §13).

use super::labels::{Counters, Labels, Number, Numbers, counter, counters, histogram, label, number, numbers};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Milliseconds.
const DURATION_BUCKETS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2,
];

/// Counts what is given alone. Cheap to clone.
#[derive(Clone)]
pub struct PinningMetrics {
    requests: Counter,
    errors: Counter,
    memory_requests: Counter,
    memory_errors: Counter,
    shared_pool: Number,
    exclusive: Number,
    by_node: Numbers,
    aligned: Counters,
    not_aligned: Counters,
    admissions: Counter,
    admission_errors: Counter,
    durations: Histogram,
}

impl PinningMetrics {
    pub(super) fn register(r: &mut Registry) -> Self {
        Self {
            requests: counter(
                r,
                "kubelet_cpu_manager_pinning_requests",
                "Containers that asked for CPUs to themselves",
            ),
            errors: counter(
                r,
                "kubelet_cpu_manager_pinning_errors",
                "Containers that did not get the CPUs they asked for",
            ),
            memory_requests: counter(
                r,
                "kubelet_memory_manager_pinning_requests",
                "Containers that asked for memory to themselves",
            ),
            memory_errors: counter(
                r,
                "kubelet_memory_manager_pinning_errors",
                "Containers that did not get the memory they asked for",
            ),
            shared_pool: number(
                r,
                "kubelet_cpu_manager_shared_pool_size_millicores",
                "CPUs that are not reserved and that nobody has alone, in thousandths",
            ),
            exclusive: number(
                r,
                "kubelet_cpu_manager_exclusive_cpu_allocation_count",
                "CPUs that containers have to themselves",
            ),
            by_node: numbers(
                r,
                "kubelet_cpu_manager_allocation_per_numa",
                "CPUs that containers have to themselves, by NUMA node",
            ),
            aligned: counters(
                r,
                "kubelet_container_aligned_compute_resources_count",
                "Containers or pods whose resources are aligned, by what with",
            ),
            not_aligned: counters(
                r,
                "kubelet_container_aligned_compute_resources_failure_count",
                "Containers or pods whose resources could not be aligned, by what with",
            ),
            admissions: counter(
                r,
                "kubelet_topology_manager_admission_requests",
                "Pods that were to be given what is theirs alone",
            ),
            admission_errors: counter(
                r,
                "kubelet_topology_manager_admission_errors",
                "Containers or pods that were refused because theirs could not be",
            ),
            durations: histogram(
                r,
                "kubelet_topology_manager_admission_duration_ms",
                "Time that giving pods what is theirs alone took",
                DURATION_BUCKETS,
            ),
        }
    }

    /// Tells what may be counted while it is nothing: of cores and caches where CPUs are given, of NUMA nodes where anything is aligned.
    pub fn expect(&self, cpus: bool, nodes: bool) {
        let none = |counters: &Counters, of| drop(counters.get_or_create(&of));
        if cpus {
            none(&self.aligned, of("container", "physical_cpu"));
            none(&self.not_aligned, of("container", "physical_cpu"));
            none(&self.aligned, of("container", "uncore_cache"));
        }
        for scope in ["container", "pod"].into_iter().filter(|_| nodes) {
            none(&self.aligned, of(scope, "numa_node"));
            none(&self.not_aligned, of(scope, "numa_node"));
        }
    }

    /// Counts a container that asked for CPUs, and whether it got them; with `whole_cores` they are then aligned with cores.
    pub fn pinned(&self, worked: bool, whole_cores: bool) {
        self.requests.inc();
        if !worked {
            self.errors.inc();
        }
        if whole_cores {
            self.align(worked, of("container", "physical_cpu"));
        }
    }

    /// Counts a container that was given CPUs which all have one cache.
    pub fn in_one_cache(&self) {
        self.align(true, of("container", "uncore_cache"));
    }

    /// Counts a container that asked for memory, and whether it got it.
    pub fn memory_pinned(&self, worked: bool) {
        self.memory_requests.inc();
        if !worked {
            self.memory_errors.inc();
        }
    }

    /// Counts what is to be on one NUMA node, and whether it is.
    pub fn on_one_node(&self, by_pod: bool, worked: bool) {
        self.align(worked, of(if by_pod { "pod" } else { "container" }, "numa_node"));
    }

    /// Counts what could not be.
    pub fn misaligned(&self) {
        self.admission_errors.inc();
    }

    /// Counts a pod that was to be given what is its own, and how long that took.
    pub fn admitted(&self, took: Duration) {
        self.admissions.inc();
        self.durations.observe(took.as_secs_f64() * 1e3);
    }

    /// Tells how many CPUs are left.
    pub fn shared_pool(&self, cpus: usize) {
        self.shared_pool.set((cpus * 1000) as f64);
    }

    /// Tells how many CPUs are given, in all and of each NUMA node: of these there are as many as the machine has.
    pub fn exclusive(&self, cpus: usize, by_node: impl Iterator<Item = (u32, usize)>) {
        self.exclusive.set(cpus as f64);
        for (node, cpus) in by_node {
            let of = label("numa_node", node.to_string());
            self.by_node.get_or_create(&of).set(cpus as f64);
        }
    }

    fn align(&self, worked: bool, of: Labels) {
        let counters = if worked { &self.aligned } else { &self.not_aligned };
        counters.get_or_create(&of).inc();
    }
}

fn of(scope: &'static str, boundary: &'static str) -> Labels {
    vec![("scope", scope.into()), ("boundary", boundary.into())]
}
