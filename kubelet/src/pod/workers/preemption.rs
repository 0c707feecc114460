//! Room for critical pods: who goes is [`crate::admission::preemption`]'s to say, here it happens (kubelet contract §10, §14).
//!
//! The critical pod holds its room at once, so that nobody else gets what is being freed; it starts when those who go are gone.

use super::Workers;
use crate::admission::decide::Rejection;
use crate::admission::placement::NodeView;
use crate::admission::preemption::{self, MESSAGE};
use crate::id::PodUid;
use crate::pod::state::Cause;
use crate::pod::worker::Kill;
use crate::pod_object;
use crate::reason;
use client::ordered::{Arrange, CollectOrdered};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often it is looked whether those who go are gone.
const LOOK: Duration = Duration::from_secs(1);
/// How long is waited for them at least; one and a half times the longest grace otherwise. After that the critical pod starts all the
/// same: what does not go hangs.
const PATIENCE_MIN: Duration = Duration::from_secs(10);

/// Those who go for one critical pod.
pub(super) struct MakingRoom {
    victims: BTreeSet<PodUid>,
    until: Instant,
}

/// How long is waited for pods whose graces these are, seconds.
pub(super) fn patience(graces: impl Iterator<Item = i64>) -> Duration {
    let longest = graces.max().and_then(|grace| u64::try_from(grace).ok()).unwrap_or(0);
    // Some manifests say forever.
    Duration::from_secs(longest.min(1 << 32).saturating_mul(3) / 2).max(PATIENCE_MIN)
}

impl Workers {
    /// Tells the workers of pods the node ends.
    pub(super) fn hand_on_kills(&mut self) {
        for (uid, kill) in self.kills.borrow_and_update().iter() {
            let Some(live) = self.live.get(uid) else { continue };
            live.desired.send_if_modified(|desired| {
                let news = desired.kill.as_ref() != Some(kill);
                if news {
                    desired.kill = Some(kill.clone());
                }
                news
            });
        }
    }

    /// Gives up the room of critical pods that are no longer wanted; who goes for them goes all the same.
    pub(super) fn drop_preemptions(&mut self, pods: &BTreeMap<PodUid, Arc<Pod>>) {
        let gone = self.preempting.keys().filter(|uid| !pods.contains_key(*uid));
        let gone: Vec<PodUid> = gone.cloned().collect();
        for uid in gone {
            self.preempting.remove(&uid);
            self.ledger.release(&uid);
            self.release_pinned(&uid);
        }
    }

    /// Whether others still make room for the pod, which does not fit beside who is left yet; it is looked at again in a while then.
    pub(super) fn makes_room(&mut self, uid: &PodUid, pod: &Pod, node: &NodeView) -> bool {
        let view = &self.shared.parts.pods;
        let there = |victim: &PodUid| view.by_uid(victim).is_some_and(|snapshot| !snapshot.ended);
        let is_over = |room: &MakingRoom| Instant::now() >= room.until || !room.victims.iter().any(there);
        let room = self.preempting.get(uid);
        let waits = room.is_some_and(|room| !is_over(room)) && !self.ledger.has_room(node, pod);
        if waits {
            self.cooling.insert(uid.clone(), Instant::now() + LOOK);
        } else {
            self.preempting.remove(uid);
        }
        waits
    }

    /// Whether a pod that was refused is one for which others go: a critical one that lacks nothing but resources.
    pub(super) fn may_preempt(&self, pod: &Pod, node: &NodeView, refused: &Rejection) -> bool {
        is_for_preemption(pod, refused) && self.ledger.missing(node, pod).is_ok()
    }

    /// Makes room for a critical pod that was refused for want of resources alone: nothing is left of the refusal then. `deleted` are
    /// those who go anyway, if they leave enough: then nobody else goes.
    pub(super) fn preempt(
        &mut self,
        uid: &PodUid,
        pod: &Pod,
        node: &NodeView,
        refused: Rejection,
        deleted: &[PodUid],
    ) -> Option<Rejection> {
        if !is_for_preemption(pod, &refused) {
            return Some(refused);
        }
        let missing = match self.ledger.missing(node, pod) {
            Ok(missing) => missing,
            Err(other) => return Some(other),
        };
        if !deleted.is_empty() {
            let needed = self.needed(pod, node, deleted);
            let until = self.end_of(&needed).unwrap_or_else(Instant::now);
            self.tell_wait(pod, &refused, &needed, until);
            self.hold_room(uid, pod, needed.into_iter().collect_ordered(), until);
            return None;
        }
        let snapshots = self.shared.parts.pods.list();
        let active = snapshots.iter().filter(|snapshot| snapshot.active && !snapshot.ended);
        let active: Vec<Arc<Pod>> = active.map(|snapshot| snapshot.pod.clone()).collect();
        let victims = match preemption::victims(pod, &active, &missing) {
            Ok(victims) => victims,
            Err(why) => {
                return Some(Rejection {
                    reason: reason::admission::UNEXPECTED_ADMISSION_ERROR.to_owned(),
                    message: format!("Unexpected error while attempting to recover from admission failure: {why}"),
                });
            }
        };
        let signal = missing.first().map_or("", |missing| missing.resource.as_str());
        for victim in &victims {
            tracing::info!(pod = %pod_object::uid(victim), critical = %uid, "ending a pod to make room for a critical one");
            self.shared.parts.metrics.pods.preempted(signal);
            let kill = Kill {
                cause: Cause::Failed {
                    reason: reason::pod::PREEMPTING.to_owned(),
                    message: MESSAGE.to_owned(),
                },
                grace_seconds: None,
                annotations: BTreeMap::new(),
            };
            self.killer.kill(pod_object::uid(victim), kill);
        }
        let graces = victims
            .iter()
            .map(|pod| pod_object::spec(pod).termination_grace_period_seconds.unwrap_or(0));
        let until = Instant::now() + patience(graces);
        let victims = victims.iter().map(|victim| pod_object::uid(victim));
        self.hold_room(uid, pod, victims.collect_ordered(), until);
        None
    }

    /// Those of the deleted whose room the pod needs, once all of theirs is enough. Who takes longest is done without first.
    fn needed(&mut self, pod: &Pod, node: &NodeView, deleted: &[PodUid]) -> Vec<PodUid> {
        let mut needed = deleted.to_vec();
        needed.arrange_by_key(|uid| self.end_of(std::slice::from_ref(uid)));
        for place in (0..needed.len()).rev() {
            let spared = needed.remove(place);
            let is_needed = |of: &PodUid| needed.contains(of);
            if self.ledger.judge_without(node, pod, is_needed).is_err() {
                needed.insert(place, spared);
            }
        }
        needed
    }

    fn hold_room(&mut self, uid: &PodUid, pod: &Pod, victims: BTreeSet<PodUid>, until: Instant) {
        self.ledger.grant(pod);
        self.preempting.insert(uid.clone(), MakingRoom { victims, until });
        self.cooling.insert(uid.clone(), Instant::now() + LOOK);
    }
}

fn is_for_preemption(pod: &Pod, refused: &Rejection) -> bool {
    pod_object::is_critical(pod) && refused.reason.starts_with(reason::admission::OUT_OF)
}
