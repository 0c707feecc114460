//! What pods have alone of the node's CPUs, given and taken back together with the ledger's grants ([`crate::pinning`]).

use super::Workers;
use crate::admission::decide::{Rejection, is_by_object};
use crate::admission::placement::NodeView;
use crate::device::draft::Draft;
use crate::id::PodUid;
use crate::pinning::Share;
use crate::pod::status::is_terminal;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// What becomes of a new pod.
pub(super) enum Verdict {
    /// It has what it wants.
    Admitted,
    /// The node cannot take it.
    Rejected(Rejection),
    /// Others make room for it, or have CPUs that are not theirs for long.
    Later,
}

/// Where room for a pod comes from that the ledger refused.
enum Room {
    /// Others go for it.
    Made,
    /// Those who go anyway leave some soon.
    Awaited,
    /// There is none.
    None(Rejection),
}

impl Workers {
    /// Judges a new pod: first by what nobody can give it, then by what it is to have alone, then by all the rest (kubelet
    /// contract §14). It is given all of it, or nothing. That is its one admission, however long it waited for it.
    pub(super) fn judge_new(&mut self, uid: &PodUid, pod: &Arc<Pod>, node: &NodeView) -> Verdict {
        if let Some(verdict) = self.judged_before(uid) {
            return verdict;
        }
        let pinning = &self.shared.parts.pinning;
        let mut devices = self.shared.parts.devices.draft(pod, pinning.numas());
        let (placed, tally) = pinning.try_place(pod, &mut [&mut devices]);
        let verdict = self.judge_placed((uid, pod), node, placed, devices);
        if let Verdict::Rejected(refused) = &verdict
            && is_by_object(refused)
            && self.is_doubtful(uid, node)
        {
            return Verdict::Later;
        }
        // Who waits has been given nothing; who preempts others is judged again, and was counted before.
        let waits = matches!(verdict, Verdict::Later) && !self.giving.has(uid) && !self.preempting.contains_key(uid);
        if !waits && !self.counted.remove(uid) {
            tally.tell(&self.shared.parts.metrics.pinning);
        }
        if self.preempting.contains_key(uid) {
            self.counted.insert(uid.clone());
        }
        verdict
    }

    /// Judges a pod by all the rest. What it was to have alone it is given with that.
    fn judge_placed(
        &mut self,
        (uid, pod): (&PodUid, &Arc<Pod>),
        node: &NodeView,
        placed: Result<Share, Rejection>,
        devices: Draft,
    ) -> Verdict {
        let share = match placed {
            Ok(share) => share,
            Err(refused) => {
                let first = self.ledger.judge_first(node, pod);
                if first.is_ok() && self.waits_for_holders(uid, pod, &refused) {
                    return Verdict::Later;
                }
                // Others made room for it, and its devices went meanwhile.
                self.take_back(uid);
                return Verdict::Rejected(first.err().unwrap_or(refused));
            }
        };
        let verdict = match self.ledger.admit(node, pod) {
            Ok(()) => Verdict::Admitted,
            Err(refused) => match self.find_room(uid, pod, node, refused) {
                Room::Made => Verdict::Later,
                Room::Awaited => return Verdict::Later,
                Room::None(refused) => return Verdict::Rejected(refused),
            },
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

    /// Takes back what pods have that went, or ended for good, while no kubelet looked, or went while they waited for the rest. What
    /// the runtime still has may run, until a worker has ended it.
    pub(super) fn release_unknown(&mut self, desired: &BTreeMap<PodUid, Arc<Pod>>, known: &BTreeSet<PodUid>) {
        let (pinning, metrics) = (&self.shared.parts.pinning, &self.shared.parts.metrics.pinning);
        let is_kept = |uid: &PodUid| {
            let may_run = self.live.contains_key(uid) || known.contains(uid) || self.looking.contains(uid);
            may_run || desired.get(uid).is_some_and(|pod| !is_terminal(pod.status.as_ref()))
        };
        self.ledger.release_ended(|uid| !is_kept(uid));
        let still_has = |uid: &str| is_kept(&PodUid::from(uid));
        pinning.retain(still_has, metrics);
        self.shared.parts.devices.retain(still_has);
    }

    /// What becomes of a pod that the ledger refuses. Where only those are in the way whose objects are gone while they still end, as
    /// after a delete without grace, the scheduler has given their room away already: refused for good, the pod would be
    /// replaced by one that is refused alike, and one that others were preempted for would be lost. A critical one has their room at once.
    fn find_room(&mut self, uid: &PodUid, pod: &Pod, node: &NodeView, refused: Rejection) -> Room {
        let (refused, deleted) = match self.judge_without_the_deleted(pod, node) {
            Ok(deleted) => (refused, deleted),
            // No wait helps.
            Err(other) => (other, Vec::new()),
        };
        if !self.may_preempt(pod, node, &refused) && self.waits_for(uid, pod, &refused, &deleted) {
            return Room::Awaited;
        }
        match self.preempt(uid, pod, node, refused, &deleted) {
            Some(refused) => Room::None(refused),
            None => Room::Made,
        }
    }

    /// Judges a pod as if those were gone whose objects are, but those that hang; tells who these are.
    fn judge_without_the_deleted(&self, pod: &Pod, node: &NodeView) -> Result<Vec<PodUid>, Rejection> {
        let pods = self.pods.borrow();
        let is_gone = |uid: &PodUid| pods.complete && !pods.desired.contains_key(uid) && !self.hangs(uid);
        self.ledger.judge_without(node, pod, is_gone)
    }

    /// Whether a pod that gets nothing alone waits for those who have some of it and are about to end: without them it would get it. It
    /// waits as long as the first of these may take; who else comes to be deleted meanwhile makes that no longer.
    fn waits_for_holders(&mut self, uid: &PodUid, pod: &Pod, refused: &Rejection) -> bool {
        let mut holders = self.unwanted_holders();
        holders.retain(|holder| !self.hangs(holder));
        if holders.is_empty() || !self.would_be_placed_without(pod, &holders) {
            return false;
        }
        let Some(end) = self.end_of(&holders) else { return false };
        let until = *self.held_up.entry(uid.clone()).or_insert(end);
        Instant::now() < until && self.waits_for(uid, pod, refused, &holders)
    }

    fn would_be_placed_without(&self, pod: &Pod, gone: &[PodUid]) -> bool {
        let (pinning, devices) = (&self.shared.parts.pinning, &self.shared.parts.devices);
        let is_kept = |uid: &str| !gone.iter().any(|of| of.as_str() == uid);
        let mut devices = devices.draft_beside(pod, pinning.numas(), is_kept);
        pinning.would_place(pod, &mut [&mut devices], is_kept)
    }

    /// Those who have CPUs, memory or devices and are not wanted any more, or not known yet.
    fn unwanted_holders(&self) -> Vec<PodUid> {
        let pods = self.pods.borrow();
        let is_wanted = |uid: &PodUid| {
            let pod = pods.desired.get(uid);
            pod.is_some_and(|pod| !is_terminal(pod.status.as_ref()))
        };
        let mut unwanted = BTreeSet::new();
        let mut note = |uid: &str| {
            let uid = PodUid::from(uid);
            if !is_wanted(&uid) {
                unwanted.insert(uid);
            }
            false
        };
        let parts = &self.shared.parts;
        parts.pinning.is_held(&mut note);
        parts.devices.is_held(&mut note);
        unwanted.into_iter().collect()
    }

    /// Takes back what a pod has that is gone.
    pub(super) fn release_pinned(&self, uid: &PodUid) {
        let (pinning, metrics) = (&self.shared.parts.pinning, &self.shared.parts.metrics.pinning);
        pinning.retain(|of| of != uid.as_str(), metrics);
        self.shared.parts.devices.retain(|of| of != uid.as_str());
    }
}
