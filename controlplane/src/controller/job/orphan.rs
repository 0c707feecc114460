//! Pods that no Job counts any more: they are let go of, so that they can be deleted.
//!
//! These are pods whose Job is over, or is gone while they are being deleted, or no longer controls them. A pod whose Job is not
//! known is left alone until it is being deleted: the Job may be newer than what is known of Jobs, and the garbage collector deletes
//! what has no owner. A Job is over only when it holds no pod: one that it holds after that, and that runs, was made by a creation that
//! came late, and is deleted.

use super::manage::untrack;
use super::view::{finished, is_foreign, is_tracked};
use super::{Jobs, view};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::pod::{is_active, is_uncontrolled};
use crate::controller::write::{self, Plan, Write};
use crate::held::Pod;
use client::Key;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

/// The controller. Its keys are pods.
pub struct Orphans {
    /// The shared informers.
    pub informers: Informers,
}

/// Whether nothing holds a pod but its finalizer. `find`: the Job of that name.
pub fn is_orphan(pod: &Pod, find: impl FnOnce(&str) -> Option<std::sync::Arc<Job>>) -> bool {
    if !is_tracked(pod) {
        return false;
    }
    let Some(owner) = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
    else {
        return true;
    };
    if owner.kind != "Job" || owner.api_version != write::JOBS.api_version() {
        return false;
    }
    match find(&owner.name).filter(|job| job.metadata.uid.as_deref() == Some(owner.uid.as_str())) {
        Some(job) => !is_foreign(&job) && finished(&job).is_some(),
        None => pod.metadata.deletion_timestamp.is_some(),
    }
}

/// Lets go of an orphan, and ends it if it was made too late.
pub fn release(pod: &Pod) -> Vec<Write> {
    let is_late = is_active(pod) && !is_uncontrolled(pod);
    let end = is_late.then(|| Write::delete(write::PODS, pod));
    std::iter::once(untrack(pod)).chain(end).collect()
}

impl Orphans {
    fn is_orphan(&self, pod: &Pod) -> bool {
        let namespace = pod.namespace().unwrap_or_default();
        is_orphan(pod, |name| self.informers.jobs.get(&namespace, name))
    }
}

impl Controller for Orphans {
    const NAME: &'static str = Jobs::NAME;
    const RETRY_FIRST: Duration = Jobs::RETRY_FIRST;
    const RETRY_MAX: Duration = Jobs::RETRY_MAX;

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on(&self.informers.pods, |change| {
            let tracked = change.new.as_deref().filter(|pod| is_tracked(pod));
            tracked.map(|_| change.key.clone()).into_iter().collect()
        });
        let pods = self.informers.pods.clone();
        wiring.on(&self.informers.jobs, move |change| {
            let over = change.new.as_deref().is_none_or(|job| view::finished(job).is_some());
            let job = change.new.as_deref().or(change.old.as_deref()).filter(|_| over);
            let owned = job.map(|job| pods.controlled_by(&change.key.namespace, &job.uid().unwrap_or_default()));
            let owned = owned.into_iter().flatten().filter(|pod| is_tracked(pod));
            owned.map(|pod| Key::of(&*pod)).collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let pod = self.informers.pods.get_key(key).filter(|pod| self.is_orphan(pod));
        Plan {
            writes: pod.map(|pod| release(&pod)).unwrap_or_default(),
            ..Plan::default()
        }
    }
}
