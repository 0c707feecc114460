//! One Job as it stands: its pods sorted, its indexes read, what of it is not counted yet. Pure.

use super::backoff;
use super::indexes::Indexes;
use super::policy::{self, Outcome};
use crate::controller::pod::{self, is_active};
use crate::held::Pod;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proto::api::condition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Held by a pod until its end is counted.
pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label of an indexed Job's pod.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often pods of this index failed before.
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// How often they failed in ways that do not count.
pub const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// What `spec.managedBy` says when it means us.
pub const MANAGER: &str = "kubernetes.io/job-controller";

/// What an indexed Job has more.
pub struct ByIndex {
    /// How many indexes there are.
    pub completions: u32,
    /// Those that `status` says have succeeded.
    pub before: Indexes,
    /// These and those whose pods have succeeded since.
    pub succeeded: Indexes,
    /// Those that have failed, if each has a limit of its own.
    pub failed: Option<Indexes>,
    /// The pod of each index that is kept until its successor, which inherits its count of failures, is made.
    pub kept: BTreeMap<u32, Arc<Pod>>,
}

/// A Job and its pods at one moment.
pub struct View<'a> {
    /// The Job.
    pub job: &'a Job,
    /// Its spec.
    pub spec: &'a JobSpec,
    /// Its status as stored.
    pub status: JobStatus,
    /// Its pods, by index, then name.
    pub pods: Vec<Arc<Pod>>,
    /// What an indexed Job has more.
    pub by_index: Option<ByIndex>,
    /// UIDs that `status` lists as succeeded and not counted.
    pub uncounted_succeeded: BTreeSet<String>,
    /// UIDs that `status` lists as failed and not counted.
    pub uncounted_failed: BTreeSet<String>,
    /// Now.
    pub now: Timestamp,
}

/// The index of a pod; `None` if it has none that is valid.
pub fn index_of(pod: &Pod) -> Option<u32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

/// A count that an annotation says; 0 if it says none.
fn count_of(pod: &Pod, annotation: &str) -> i32 {
    let text = pod.annotations().get(annotation);
    text.and_then(|text| text.parse().ok())
        .filter(|count| *count >= 0)
        .unwrap_or(0)
}

/// How often the pods of this one's index failed before it, counted and ignored.
pub fn failures_before(pod: &Pod) -> (i32, i32) {
    (count_of(pod, INDEX_FAILURES), count_of(pod, INDEX_IGNORED))
}

/// Whether its end is still to be counted.
pub fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Whether it is over, for good or bad.
pub fn finished(job: &Job) -> Option<&JobCondition> {
    let conditions = job
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref())
        .flatten();
    conditions
        .into_iter()
        .find(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")
}

/// The controller that looks after it, as its spec says; ours, if that says nothing.
pub fn manager(job: &Job) -> &str {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.unwrap_or(MANAGER)
}

/// Whether somebody else's controller looks after it.
pub fn is_foreign(job: &Job) -> bool {
    manager(job) != MANAGER
}

impl<'a> View<'a> {
    /// Looks at a Job and the pods it owns; `None` if it has no spec.
    pub fn new(job: &'a Job, mut pods: Vec<Arc<Pod>>, now: Timestamp) -> Option<Self> {
        let spec = job.spec.as_ref()?;
        let status = job.status.clone().unwrap_or_default();
        pods.sort_by_cached_key(|pod| (index_of(pod), pod.name_any()));
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let mut view = Self {
            job,
            spec,
            status,
            pods,
            by_index: None,
            uncounted_succeeded: uncounted.succeeded.into_iter().flatten().collect(),
            uncounted_failed: uncounted.failed.into_iter().flatten().collect(),
            now,
        };
        if spec.completion_mode.as_deref() == Some("Indexed") {
            view.by_index = Some(view.read_indexes());
        }
        Some(view)
    }

    fn read_indexes(&self) -> ByIndex {
        let completions = u32::try_from(self.spec.completions.unwrap_or(0)).unwrap_or(0);
        let read = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), completions);
        let before = read(&self.status.completed_indexes);
        let tracked = || self.pods.iter().filter(|pod| is_tracked(pod));
        let within = |pod: &Arc<Pod>| index_of(pod).filter(|index| *index < completions);
        // An index is decided once: a pod that was being deleted when its index failed may succeed all the same.
        let lost = read(&self.status.failed_indexes);
        let succeeded = tracked()
            .filter(|pod| pod::phase(pod) == "Succeeded")
            .filter_map(within);
        let succeeded = before.with(succeeded.filter(|index| !lost.has(*index)));
        let Some(limit) = self.spec.backoff_limit_per_index else {
            return ByIndex {
                completions,
                before,
                succeeded,
                failed: None,
                kept: BTreeMap::new(),
            };
        };
        let fails = |pod: &&Arc<Pod>| match self.is_failed(pod).then(|| self.outcome(pod)) {
            None | Some(Outcome::Ignore) => false,
            Some(Outcome::FailIndex) => true,
            Some(_) => failures_before(pod).0 >= limit,
        };
        let failed = tracked().filter(fails).filter_map(within);
        let failed = lost.with(failed.filter(|index| !succeeded.has(*index)));
        let active: BTreeSet<u32> = self
            .pods
            .iter()
            .filter(|pod| is_active(pod))
            .filter_map(within)
            .collect();
        let mut kept: BTreeMap<u32, Arc<Pod>> = BTreeMap::new();
        let order = |pod: &Pod| {
            let (counted, ignored) = failures_before(pod);
            (i64::from(counted) + i64::from(ignored), backoff::ended(pod))
        };
        for pod in tracked().filter(|pod| self.is_failed(pod)) {
            let Some(index) = within(pod) else { continue };
            if succeeded.has(index) || failed.has(index) || active.contains(&index) {
                continue;
            }
            let is_newest = kept.get(&index).is_none_or(|other| order(other) <= order(pod));
            if is_newest {
                kept.insert(index, pod.clone());
            }
        }
        ByIndex {
            completions,
            before,
            succeeded,
            failed: Some(failed),
            kept,
        }
    }

    /// What comes of a pod's failure.
    pub fn outcome(&self, pod: &Pod) -> Outcome {
        policy::outcome(self.spec.pod_failure_policy.as_ref(), pod)
    }

    /// Whether a pod is replaced only once it has ended.
    pub fn replaces_only_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some()
    }

    /// Whether it counts as failed: it is, or it is being deleted and that is enough.
    pub fn is_failed(&self, pod: &Pod) -> bool {
        let is_dying = || pod.metadata.deletion_timestamp.is_some() && pod::phase(pod) != "Succeeded";
        pod::phase(pod) == "Failed" || (!self.replaces_only_failed() && is_dying())
    }

    /// Whether it is not to run.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// Whether the Job itself is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    /// Whether a pod has an index that counts, or needs none.
    pub fn has_valid_index(&self, pod: &Pod) -> bool {
        let by_index = self.by_index.as_ref();
        by_index.is_none_or(|by| index_of(pod).is_some_and(|index| index < by.completions))
    }

    /// The pods whose index is valid.
    pub fn valid(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| self.has_valid_index(pod))
    }

    /// Pods that run or may come to run.
    pub fn active(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| is_active(pod))
    }

    /// Pods that are being deleted and have not ended.
    pub fn terminating(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let is_dying = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_some() && !pod::is_terminal(pod);
        self.pods.iter().filter(is_dying)
    }

    /// Pods that have succeeded, counted or not; of an indexed Job, its indexes.
    pub fn succeeded(&self) -> usize {
        if let Some(by) = &self.by_index {
            return usize::try_from(by.succeeded.total()).unwrap_or(usize::MAX);
        }
        let fresh = self.valid().filter(|pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            let is_listed = self.uncounted_succeeded.contains(uid) || self.uncounted_failed.contains(uid);
            is_tracked(pod) && !is_listed && pod::phase(pod) == "Succeeded"
        });
        counted(self.status.succeeded) + self.uncounted_succeeded.len() + fresh.count()
    }

    /// Pods that have failed in ways that count, counted or not.
    pub fn failed(&self) -> usize {
        let fresh = self.valid().filter(|pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            let is_fresh = is_tracked(pod) && !self.uncounted_failed.contains(uid) && self.is_failed(pod);
            is_fresh && self.outcome(pod).counts()
        });
        counted(self.status.failed) + self.uncounted_failed.len() + fresh.count()
    }

    /// How many pods it has had: those that are counted, and those that are still to be.
    pub fn made(&self) -> usize {
        let tracked = self
            .pods
            .iter()
            .filter(|pod| is_tracked(pod))
            .filter_map(|pod| pod.metadata.uid.as_ref());
        let listed = self.uncounted_succeeded.iter().chain(&self.uncounted_failed);
        let open: BTreeSet<&String> = listed.chain(tracked).collect();
        counted(self.status.succeeded) + counted(self.status.failed) + open.len()
    }

    /// The stored condition of that type, if it is true.
    pub fn condition(&self, kind: &str) -> Option<&JobCondition> {
        condition::find(self.status.conditions.as_ref(), kind).filter(|condition| condition.status == "True")
    }
}

/// A stored count.
pub fn counted(stored: Option<i32>) -> usize {
    stored.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}
