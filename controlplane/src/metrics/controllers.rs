//! What controllers count beside their queues, under upstream's names. Labels are of fixed sets; those that others write have room for
//! [`MANAGERS`] values each, and what comes later counts as [`OTHERS`].

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Values of the labels `controller_name` and `zone`, at most.
const MANAGERS: usize = 100;
/// The label of those beyond.
const OTHERS: &str = "other";

/// What a Job's sync was: `completion_mode` is `Indexed` or `NonIndexed`, `result` `success` or `error`, `action` one of
/// `tracking`, `pods_created`, `pods_deleted`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct JobSync {
    /// The Job's mode.
    pub completion_mode: &'static str,
    /// What came of it.
    pub result: &'static str,
    /// What was done.
    pub action: &'static str,
}

/// How a Job, with its reason, or a pod of one, without, ended.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct JobEnd {
    /// The Job's mode.
    pub completion_mode: &'static str,
    /// `succeeded` or `failed`.
    pub result: &'static str,
    /// Of the Job's last condition.
    pub reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PodEnd {
    completion_mode: &'static str,
    result: &'static str,
}

#[allow(non_snake_case, reason = "upstream's label")]
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct IndexEnd {
    status: &'static str,
    backoffLimit: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Creation {
    reason: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Finalizer {
    event: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Manager {
    controller_name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Zone {
    zone: String,
}

/// Names that others write, as far as there is room.
#[derive(Debug, Default)]
struct Names(Mutex<BTreeSet<String>>);

impl Names {
    fn label(&self, name: &str) -> String {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = known.len() < MANAGERS && known.insert(name.to_owned());
        let is_known = has_room || known.contains(name);
        if is_known { name.to_owned() } else { OTHERS.to_owned() }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Scaling {
    action: &'static str,
    error: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

type Timed<L> = Family<L, Histogram, fn() -> Histogram>;

fn job_syncs() -> Histogram {
    Histogram::new(exponential_buckets(0.004, 2.0, 15))
}

fn reconciliations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// The counters.
#[derive(Debug)]
pub struct Controllers {
    syncs: Family<JobSync, Counter>,
    sync_durations: Timed<JobSync>,
    finished: Family<JobEnd, Counter>,
    pods_finished: Family<PodEnd, Counter>,
    indexes_finished: Family<IndexEnd, Counter>,
    creations: Family<Creation, Counter>,
    by_policy: Family<Action, Counter>,
    finalizers: Family<Finalizer, Counter>,
    foreign: Family<Manager, Counter>,
    managers: Names,
    drained: Family<Zone, Counter>,
    zones: Names,
    scalings: Family<Scaling, Counter>,
    scaling_durations: Timed<Scaling>,
    slices: Family<Operation, Counter>,
    slice_syncs: Family<Outcome, Counter>,
    skew: Histogram,
    expired: Histogram,
    evicted: Counter,
}

impl Default for Controllers {
    fn default() -> Self {
        Self {
            syncs: Family::default(),
            sync_durations: Family::new_with_constructor(job_syncs),
            finished: Family::default(),
            pods_finished: Family::default(),
            indexes_finished: Family::default(),
            creations: Family::default(),
            by_policy: Family::default(),
            finalizers: Family::default(),
            foreign: Family::default(),
            managers: Names::default(),
            drained: Family::default(),
            zones: Names::default(),
            scalings: Family::default(),
            scaling_durations: Family::new_with_constructor(reconciliations),
            slices: Family::default(),
            slice_syncs: Family::default(),
            skew: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            expired: Histogram::new(exponential_buckets(0.1, 2.0, 15)),
            evicted: Counter::default(),
        }
    }
}

impl Controllers {
    /// Counts a look at a Job.
    pub fn job_synced(&self, sync: &JobSync, took: Duration) {
        self.syncs.get_or_create(sync).inc();
        self.sync_durations.get_or_create(sync).observe(took.as_secs_f64());
    }

    /// Counts the end of a Job.
    pub fn job_finished(&self, end: &JobEnd) {
        self.finished.get_or_create(end).inc();
    }

    /// Counts so many ends of pods, which stand in their Job's status from now on; `result` is `succeeded` or `failed`.
    pub fn job_pods_finished(&self, completion_mode: &'static str, result: &'static str, pods: u64) {
        let end = PodEnd {
            completion_mode,
            result,
        };
        self.pods_finished.get_or_create(&end).inc_by(pods);
    }

    /// Counts so many indexes that are done; `status` is `succeeded` or `failed`.
    pub fn job_indexes_finished(&self, status: &'static str, is_per_index: bool, indexes: u64) {
        let end = IndexEnd {
            status,
            backoffLimit: if is_per_index { "perIndex" } else { "global" },
        };
        self.indexes_finished.get_or_create(&end).inc_by(indexes);
    }

    /// Counts the creation of a Job's pod; `reason` is `new`, `recreate_terminating_or_failed` or `recreate_failed`.
    pub fn job_pod_created(&self, reason: &'static str, is_done: bool) {
        let status = if is_done { "succeeded" } else { "failed" };
        self.creations.get_or_create(&Creation { reason, status }).inc();
    }

    /// Counts a failed pod that a rule of its Job's policy fitted.
    pub fn job_pod_judged(&self, action: &'static str) {
        self.by_policy.get_or_create(&Action { action }).inc();
    }

    /// Counts that a pod that is over got (or no longer has) the finalizer of Jobs.
    pub fn job_finalizer(&self, is_added: bool) {
        let event = if is_added { "add" } else { "delete" };
        self.finalizers.get_or_create(&Finalizer { event }).inc();
    }

    /// Counts a Job that is somebody else's.
    pub fn job_of(&self, manager: &str) {
        let controller_name = self.managers.label(manager);
        self.foreign.get_or_create(&Manager { controller_name }).inc();
    }

    /// Counts a decision of an autoscaler: `action` is `scale_up`, `scale_down` or `none`, `error` is `spec`, `internal` or `none`.
    pub fn scaled(&self, action: &'static str, error: &'static str, took: Duration) {
        let scaling = Scaling { action, error };
        self.scalings.get_or_create(&scaling).inc();
        self.scaling_durations
            .get_or_create(&scaling)
            .observe(took.as_secs_f64());
    }

    /// Counts a write of an EndpointSlice: `create`, `update` or `delete`.
    pub fn slice_changed(&self, operation: &'static str) {
        self.slices.get_or_create(&Operation { operation }).inc();
    }

    /// Counts a look at a Service's EndpointSlices.
    pub fn slices_synced(&self, is_done: bool) {
        let result = if is_done { "success" } else { "error" };
        self.slice_syncs.get_or_create(&Outcome { result }).inc();
    }

    /// Seconds between the time a CronJob's Job was due and its creation.
    pub fn cron_job_late(&self, seconds: f64) {
        self.skew.observe(seconds);
    }

    /// Seconds between the time a finished Job was to go and its deletion.
    pub fn job_expired(&self, seconds: f64) {
        self.expired.observe(seconds);
    }

    /// Counts nodes of a zone, by upstream's key of it, that were given a taint that ends their pods; of a zone with none the series is
    /// there from now on.
    pub fn nodes_drained(&self, zone: &str, nodes: u64) {
        let zone = self.zones.label(zone);
        self.drained.get_or_create(&Zone { zone }).inc_by(nodes);
    }

    /// Counts a pod that a taint ended.
    pub fn tainted_pod_deleted(&self) {
        self.evicted.inc();
    }

    /// Adds everything to `registry`, for one answer.
    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_jobs(registry);
        let autoscaler = "horizontal_pod_autoscaler_controller_reconciliation";
        registry.register(
            format!("{autoscaler}s"),
            "Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, \
             the label 'error' should be either 'spec', 'internal', or 'none'",
            self.scalings.clone(),
        );
        registry.register(
            format!("{autoscaler}_duration_seconds"),
            "The time(seconds) that the HPA controller takes to reconcile once",
            self.scaling_durations.clone(),
        );
        registry.register(
            "endpoint_slice_controller_changes",
            "Number of EndpointSlice changes",
            self.slices.clone(),
        );
        registry.register(
            "endpoint_slice_controller_syncs",
            "Number of EndpointSlice syncs",
            self.slice_syncs.clone(),
        );
        registry.register(
            "cronjob_controller_job_creation_skew_duration_seconds",
            "Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
            self.skew.clone(),
        );
        registry.register(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "The time it took to delete the job since it became eligible for deletion",
            self.expired.clone(),
        );
        registry.register(
            "node_collector_evictions",
            "Number of Node evictions that happened since current instance of NodeController started",
            self.drained.clone(),
        );
        registry.register(
            "taint_eviction_controller_pod_deletions",
            "Total number of Pods deleted by TaintEvictionController since its start",
            self.evicted.clone(),
        );
    }

    fn register_jobs(&self, registry: &mut Registry) {
        let name = |name: &str| format!("job_controller_{name}");
        registry.register(name("job_syncs"), "The number of job syncs", self.syncs.clone());
        registry.register(
            name("job_sync_duration_seconds"),
            "The time it took to sync a job",
            self.sync_durations.clone(),
        );
        registry.register(
            name("jobs_finished"),
            "The number of finished jobs",
            self.finished.clone(),
        );
        registry.register(
            name("job_pods_finished"),
            "The number of finished Pods that are fully tracked",
            self.pods_finished.clone(),
        );
        registry.register(
            name("job_finished_indexes"),
            "The number of finished indexes, by status (succeeded, failed) and backoffLimit (perIndex, global)",
            self.indexes_finished.clone(),
        );
        registry.register(
            name("job_pods_creation"),
            "The number of Pods created by the Job controller, by the reason for it and by what came of it",
            self.creations.clone(),
        );
        registry.register(
            name("pod_failures_handled_by_failure_policy"),
            "The number of failed Pods handled by failure policy, by the action of the rule that matched",
            self.by_policy.clone(),
        );
        registry.register(
            name("terminated_pods_tracking_finalizer"),
            "The number of terminated pods (phase=Failed|Succeeded) that have the finalizer batch.kubernetes.io/job-tracking, by the \
             event (add, delete)",
            self.finalizers.clone(),
        );
        registry.register(
            name("jobs_by_external_controller"),
            "The number of Jobs managed by an external controller",
            self.foreign.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_fill_a_label_only_so_far() {
        let counters = Controllers::default();
        for number in 0..2 * MANAGERS {
            counters.job_of(&format!("zoo.example/{number}"));
        }
        counters.job_of("zoo.example/0");
        let of = |name: &str| {
            let controller_name = name.to_owned();
            counters.foreign.get_or_create(&Manager { controller_name }).get()
        };
        assert_eq!((of("zoo.example/0"), of(OTHERS)), (2, MANAGERS as u64));
        let mut registry = Registry::default();
        counters.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines = text.lines().filter(|line| line.contains("controller_name="));
        assert_eq!(lines.count(), MANAGERS + 1);
    }
}
