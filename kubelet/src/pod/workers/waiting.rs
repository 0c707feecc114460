//! New pods that would be refused, and are not yet: what is known of the node is still to be confirmed, or deleted pods have not ended
//! and leave room soon.
//!
//! Owns how long either is waited for. A pod that waits is judged again with each turn; once its time is over it is refused as if it had
//! not waited.

use super::Workers;
use super::preemption::patience;
use crate::admission::decide::Rejection;
use crate::admission::placement::NodeView;
use crate::events::Severity;
use crate::id::PodUid;
use crate::pod::grace;
use crate::pod::status::is_terminal;
use crate::pod_object;
use crate::reason;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a look at the node's object may take before a pod is refused by what is known of it.
const SECOND_LOOK: Duration = Duration::from_secs(10);
/// The grace of a pod that is not known (yet), seconds: it is looked at before it is ended, which takes as long as a call of the runtime
/// may, two minutes.
const UNKNOWN_GRACE_SECONDS: i64 = 150;
/// How many deleted pods are told by name.
const NAMES_MAX: usize = 5;

/// Why a pod that would be refused is not yet.
pub(super) struct Doubt {
    /// The look at the node's object that was asked for.
    pub(super) look: u64,
    /// When nobody waits for it any more.
    pub(super) until: Instant,
}

impl Workers {
    /// Whether a pod is not refused yet, because what is known of the node is still to be confirmed. Refused for good by what is
    /// no longer true, a pod would be replaced by one that is refused alike, as fast as its controller can.
    pub(super) fn is_doubtful(&mut self, uid: &PodUid, node: &NodeView) -> bool {
        if let Some(doubt) = self.doubted.get(uid) {
            return node.looked < doubt.look && Instant::now() < doubt.until;
        }
        let Some(look) = self.node.ask() else { return false };
        let until = Instant::now() + SECOND_LOOK;
        self.doubted.insert(uid.clone(), Doubt { look, until });
        true
    }

    /// Whether a pod that is refused waits for those who are to end first: as long as they may take, and no longer.
    pub(super) fn waits_for(&mut self, uid: &PodUid, pod: &Pod, refused: &Rejection, ending: &[PodUid]) -> bool {
        let Some(until) = self.end_of(ending).filter(|until| *until > Instant::now()) else {
            return false;
        };
        if self.waiting.insert(uid.clone(), until).is_none() {
            self.tell_wait(pod, refused, ending, until);
        }
        true
    }

    /// When these pods have ended unless they hang: each has its grace, and half as much again, from when it was first waited for.
    pub(super) fn end_of(&mut self, ending: &[PodUid]) -> Option<Instant> {
        let (view, now) = (&self.shared.parts.pods, Instant::now());
        let of = |uid: &PodUid| {
            let snapshot = view.by_uid(uid);
            let grace = snapshot.map_or(UNKNOWN_GRACE_SECONDS, |snapshot| {
                grace::pod_seconds(&snapshot.pod, None)
            });
            *self
                .ends
                .entry(uid.clone())
                .or_insert_with(|| now + patience([grace].into_iter()))
        };
        ending.iter().map(of).max()
    }

    /// Whether a pod has not ended though it was waited for long enough.
    pub(super) fn hangs(&self, uid: &PodUid) -> bool {
        self.ends.get(uid).is_some_and(|until| *until <= Instant::now())
    }

    /// Forgets those who wait no longer, and those who have ended.
    pub(super) fn drop_waits(&mut self, pods: &BTreeMap<PodUid, Arc<Pod>>, known: &BTreeSet<PodUid>, complete: bool) {
        let live = &self.live;
        self.doubted.retain(|uid, _| pods.contains_key(uid));
        let waits = |uid: &PodUid| pods.contains_key(uid) && !live.contains_key(uid);
        self.waiting.retain(|uid, _| waits(uid));
        self.held_up.retain(|uid, _| waits(uid));
        self.counted.retain(waits);
        // A static pod that comes back is the same one; once it goes again it has its time again.
        let is_wanted = |uid: &PodUid| pods.get(uid).is_some_and(|pod| !is_terminal(pod.status.as_ref()));
        let ends = |uid: &PodUid| !complete || live.contains_key(uid) || known.contains(uid);
        self.ends.retain(|uid, _| ends(uid) && !is_wanted(uid));
    }

    /// Tells that a pod waits for others to end.
    pub(super) fn tell_wait(&self, pod: &Pod, refused: &Rejection, ending: &[PodUid], until: Instant) {
        let parts = &self.shared.parts;
        let name = |uid: &PodUid| match parts.pods.by_uid(uid) {
            Some(snapshot) => pod_object::full_name(&snapshot.pod).to_string(),
            None => uid.to_string(),
        };
        let mut names: Vec<String> = ending.iter().take(NAMES_MAX).map(name).collect();
        if ending.len() > NAMES_MAX {
            names.push(format!("{} more", ending.len() - NAMES_MAX));
        }
        let seconds = until.saturating_duration_since(Instant::now()).as_secs();
        let names = names.join(", ");
        tracing::info!(pod = %pod_object::described(pod), reason = refused.reason, seconds, names, "a new pod waits for others to end");
        let message = format!(
            "{}; waiting up to {seconds}s for pods that end: {names}",
            refused.message
        );
        let waiting = reason::event::WAITING_FOR_ROOM;
        parts.recorder.pod(pod, Severity::Normal, waiting, message);
    }
}
