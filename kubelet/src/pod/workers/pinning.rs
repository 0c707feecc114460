//! What pods have alone of the node's CPUs, given and taken back together with the ledger's grants ([`crate::pinning`]).

use super::Workers;
use crate::admission::decide::Rejection;
use crate::admission::placement::NodeView;
use crate::id::PodUid;
use crate::pod::status::is_terminal;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What becomes of a new pod.
pub(super) enum Verdict {
    /// It has what it wants.
    Admitted,
    /// The node cannot take it.
    Rejected(Rejection),
    /// Others make room for it, or have CPUs that are not theirs for long.
    Later,
}

impl Workers {
    /// Judges a new pod: first by what nobody can give it, then by what it is to have alone, then by all the rest (kubelet
    /// contract §14). It is given all of it, or nothing.
    pub(super) fn judge_new(&mut self, uid: &PodUid, pod: &Arc<Pod>, node: &NodeView) -> Verdict {
        if let Some(verdict) = self.judged_before(uid) {
            return verdict;
        }
        let (pinning, metrics) = (&self.shared.parts.pinning, &self.shared.parts.metrics.pinning);
        let mut devices = self.shared.parts.devices.draft(pod, pinning.numas());
        let share = match pinning.place(pod, &mut [&mut devices], metrics) {
            Ok(share) => share,
            Err(refused) => {
                let first = self.ledger.judge_first(node, pod);
                // What is held by who is about to end is free soon.
                if first.is_ok() && self.is_held_by_others() {
                    return Verdict::Later;
                }
                // Others made room for it, and its devices went meanwhile.
                self.take_back(uid);
                return Verdict::Rejected(first.err().unwrap_or(refused));
            }
        };
        let rejection = self.ledger.admit(node, pod).err();
        let verdict = match rejection.map(|rejection| self.preempt(uid, pod, node, rejection)) {
            None => Verdict::Admitted,
            Some(Some(rejection)) => return Verdict::Rejected(rejection),
            Some(None) => Verdict::Later,
        };
        // What is being made room for holds its share at once, as it holds the rest.
        let (pinning, metrics) = (&self.shared.parts.pinning, &self.shared.parts.metrics.pinning);
        pinning.commit(uid, share, metrics);
        match verdict {
            Verdict::Admitted => self.give_devices(uid, devices.plan()),
            other => other,
        }
    }

    /// Leaves a pod that runs what it has. Where none was noted (the policy is new, and the node was not drained) it gets its share
    /// if there is still one; it runs on all the same.
    pub(super) fn keep_pinned(&self, uid: &PodUid, pod: &Pod) {
        let (pinning, metrics) = (&self.shared.parts.pinning, &self.shared.parts.metrics.pinning);
        match pinning.place(pod, &mut [], metrics) {
            Ok(share) => pinning.commit(uid, share, metrics),
            Err(why) => tracing::error!(pod = %uid, %why, "a pod that runs does not get what it is to have alone"),
        }
    }

    /// Takes back what pods hold of the node nothing of which can run any more.
    pub(super) fn release_ended(&mut self) {
        let view = &self.shared.parts.pods;
        let has_ended = |uid: &PodUid| view.by_uid(uid).is_some_and(|pod| pod.ended);
        self.ledger.release_ended(has_ended);
        let (pinning, metrics) = (&self.shared.parts.pinning, &self.shared.parts.metrics.pinning);
        let still_has = |uid: &str| !has_ended(&PodUid::from(uid));
        pinning.retain(still_has, metrics);
        self.shared.parts.devices.retain(still_has);
    }

    /// Takes back what pods have that went, or ended for good, while no kubelet looked. What the runtime still has may run, until a
    /// worker has ended it.
    pub(super) fn release_unknown(&self, desired: &BTreeMap<PodUid, Arc<Pod>>, known: &BTreeSet<PodUid>) {
        let (pinning, metrics) = (&self.shared.parts.pinning, &self.shared.parts.metrics.pinning);
        let is_kept = |uid: &PodUid| {
            let may_run = self.live.contains_key(uid) || known.contains(uid) || self.looking.contains(uid);
            may_run || desired.get(uid).is_some_and(|pod| !is_terminal(pod.status.as_ref()))
        };
        let still_has = |uid: &str| is_kept(&PodUid::from(uid));
        pinning.retain(still_has, metrics);
        self.shared.parts.devices.retain(still_has);
    }

    /// Whether somebody has CPUs who is not wanted any more, or not known yet.
    fn is_held_by_others(&self) -> bool {
        let pods = self.pods.borrow();
        let is_wanted = |uid: &str| {
            let pod = pods.desired.get(&PodUid::from(uid));
            pod.is_some_and(|pod| !is_terminal(pod.status.as_ref()))
        };
        let parts = &self.shared.parts;
        parts.pinning.is_held(|uid| !is_wanted(uid)) || parts.devices.is_held(|uid| !is_wanted(uid))
    }

    /// Takes back what a pod has that is gone.
    pub(super) fn release_pinned(&self, uid: &PodUid) {
        let (pinning, metrics) = (&self.shared.parts.pinning, &self.shared.parts.metrics.pinning);
        pinning.retain(|of| of != uid.as_str(), metrics);
        self.shared.parts.devices.retain(|of| of != uid.as_str());
    }
}
