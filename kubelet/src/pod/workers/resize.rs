//! Resizes of live pods: what each was given, who is next, and whether it fits (kubelet contract §7).
//!
//! The decisions are [`crate::allocation::decide`]'s and the ledger's; here they are made one after another, kept on disk, and
//! only then handed to the pod's worker. Everything that waits is looked at again on every turn of the loop, and something
//! freed is such a turn.

use super::{Live, Workers};
use crate::admission::placement::NodeView;
use crate::allocation::checkpoint::CheckpointError;
use crate::allocation::decide::{self, Pending, Refusal};
use crate::allocation::{PodResources, message};
use crate::events::Severity;
use crate::id::PodUid;
use crate::metrics::ResizeMetrics;
use crate::pod::status;
use crate::pod::worker::Desired;
use crate::pod_object;
use crate::reason::{condition, event};
use client::ordered::{Arrange, CollectOrdered};
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long until a decision that could not be kept is made again.
const RETRY: Duration = Duration::from_secs(10);

/// What is under way for all of them.
#[derive(Default)]
pub(super) struct Resizes {
    /// Decisions being kept.
    pub(super) keeping: JoinSet<Kept>,
    /// When decisions are made again after one could not be kept.
    again: Option<Instant>,
    /// What made room last.
    freed: Freed,
    /// What was noted of pods that are unknown now is forgotten.
    pruned: bool,
}

/// What made room for others, as upstream calls it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Freed {
    /// Nothing that is known.
    #[default]
    Unknown,
    /// Nothing of a pod runs any more.
    PodTerminated,
    /// A pod is gone.
    PodsRemoved,
    /// Another pod was given less.
    PodResized,
}

/// What a live pod wants and what it was given.
pub(super) struct Resizing {
    /// The pod as last delivered.
    wanted: Arc<Pod>,
    /// What it was given.
    given: PodResources,
    /// Whether that differs.
    differs: bool,
    /// A decision is being kept.
    keeping: bool,
    /// Since when it waits for room.
    since: Option<Timestamp>,
}

/// A decision that was kept, or could not be.
pub(super) struct Kept {
    uid: PodUid,
    /// What a resize gave; nothing for a new pod, or one that is gone.
    given: Option<(PodResources, Arc<Pod>)>,
    result: Result<(), CheckpointError>,
}

impl Resizing {
    /// A pod that was given these resources.
    pub(super) fn new(wanted: Arc<Pod>, given: PodResources) -> Self {
        let differs = !given.agrees(&wanted);
        Self {
            wanted,
            given,
            differs,
            keeping: false,
            since: None,
        }
    }

    /// The pod with what it was given.
    pub(super) fn pod(&self) -> Arc<Pod> {
        self.given.applied_to(&self.wanted)
    }
}

/// Whether a static pod was taken away and is there again: what runs ends first, then it starts anew.
fn returns(desired: &Desired, wanted: &Pod) -> bool {
    let of_file = pod_object::is_of_file(wanted);
    pod_object::is_static(wanted)
        && (!desired.present || (of_file && pod_object::seen(&desired.pod) != pod_object::seen(wanted)))
}

/// Counts what containers ask for in a newer delivery of their pod.
fn count_requests(metrics: &ResizeMetrics, before: &Pod, now: &Pod) {
    for (_, container) in pod_object::containers(now) {
        let same = |(_, other): &(pod_object::Kind, &Container)| other.name == container.name;
        if let Some((_, other)) = pod_object::containers(before).find(same) {
            metrics.requested(other.resources.as_ref(), container.resources.as_ref());
        }
    }
}

impl Live {
    /// Whether the pod is on its way out, or was never let in: nothing is given to it any more.
    fn ends(&self) -> bool {
        let (desired, wanted) = (self.desired.borrow(), &self.resizing.wanted);
        desired.rejected.is_some()
            || desired.kill.is_some()
            || !desired.present
            || wanted.metadata.deletion_timestamp.is_some()
            || status::is_terminal(wanted.status.as_ref())
    }

    /// Hands the worker its pod if it is another delivery of it, with what it was given.
    pub(super) fn update(&mut self, wanted: &Arc<Pod>, metrics: &ResizeMetrics) {
        if returns(&self.desired.borrow(), wanted) {
            self.desired.send_if_modified(|desired| {
                let changed = desired.present || !desired.returns;
                (desired.present, desired.returns) = (false, true);
                changed
            });
            return;
        }
        let is_new = !Arc::ptr_eq(&self.resizing.wanted, wanted);
        if is_new {
            count_requests(metrics, &self.resizing.wanted, wanted);
            self.resizing.wanted = wanted.clone();
            self.resizing.differs = !self.resizing.given.agrees(wanted);
        }
        let (resizing, differs) = (&self.resizing, self.resizing.differs);
        self.desired.send_if_modified(|desired| {
            let changed = is_new || !desired.present;
            if changed {
                desired.pod = resizing.pod();
                desired.present = true;
            }
            if !differs {
                desired.pending = None;
            }
            changed
        });
        if !self.resizing.differs {
            self.resizing.since = None;
        }
    }
}

impl Workers {
    /// What a pod was given: as the last kubelet noted, or what its spec says.
    pub(super) fn given(&self, uid: &PodUid, pod: &Pod) -> PodResources {
        let noted = self.shared.parts.allocated.get(uid);
        noted.unwrap_or_else(|| PodResources::of(pod))
    }

    /// A pod with what it was given, if it has a worker.
    pub(super) fn as_given(&self, uid: &PodUid, pod: &Arc<Pod>) -> Arc<Pod> {
        self.live
            .get(uid)
            .map_or_else(|| pod.clone(), |live| live.resizing.pod())
    }

    /// Has the next kubelet know what a pod was given when it was let in.
    pub(super) fn keep_given(&mut self, uid: &PodUid, desired: &Desired, resizing: &Resizing) {
        if desired.rejected.is_some() || !desired.present {
            return;
        }
        let (checkpoint, uid) = (self.shared.parts.allocated.clone(), uid.clone());
        let resources = resizing.given.clone();
        self.resizes.keeping.spawn(
            async move {
                let result = checkpoint.put(&uid, resources).await;
                let given = None;
                Kept { uid, given, result }
            }
            .boxed(),
        );
    }

    /// Forgets what a pod was given and what it ran with.
    pub(super) fn forget_given(&mut self, uid: &PodUid) {
        let (allocated, actuated) = (self.shared.parts.allocated.clone(), self.shared.parts.actuated.clone());
        let uid = uid.clone();
        self.resizes.keeping.spawn(
            async move {
                let first = allocated.remove(&uid).await;
                let result = first.and(actuated.remove(&uid).await);
                let given = None;
                Kept { uid, given, result }
            }
            .boxed(),
        );
    }

    /// Forgets that of pods which went while no kubelet looked, once every source has delivered.
    pub(super) fn forget_unknown(&mut self, desired: &BTreeMap<PodUid, Arc<Pod>>) {
        if std::mem::replace(&mut self.resizes.pruned, true) {
            return;
        }
        let kept = self.live.keys().chain(desired.keys());
        let kept: BTreeSet<String> = kept.map(ToString::to_string).collect_ordered();
        let (allocated, actuated) = (self.shared.parts.allocated.clone(), self.shared.parts.actuated.clone());
        self.resizes.keeping.spawn(
            async move {
                let first = allocated.retain(|uid| kept.contains(uid)).await;
                let result = first.and(actuated.retain(|uid| kept.contains(uid)).await);
                let (uid, given) = (PodUid::from(""), None);
                Kept { uid, given, result }
            }
            .boxed(),
        );
    }

    /// Notes what made room.
    pub(super) fn note_freed(&mut self, freed: Freed) {
        self.resizes.freed = freed;
    }

    /// Looks at every resize that waits, one after another as their turns come.
    pub(super) fn resize(&mut self, node: &NodeView) {
        let now = self.shared.parts.clock.now();
        let view = self.shared.parts.pods.clone();
        let has_ended = |uid: &PodUid| view.by_uid(uid).is_some_and(|pod| pod.ended);
        let is_waiting = |uid: &PodUid, live: &Live| {
            live.resizing.differs && !live.resizing.keeping && !live.ends() && !has_ended(uid)
        };
        let waiting = self.live.iter().filter(|(uid, live)| is_waiting(uid, live));
        let mut waiting: Vec<(PodUid, _)> = waiting
            .map(|(uid, live)| {
                let resizing = &live.resizing;
                let since = resizing.since.unwrap_or(now);
                (uid.clone(), decide::turn(&resizing.wanted, &resizing.given, since))
            })
            .collect();
        if waiting.is_empty() || self.resizes.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        waiting.arrange_by(|(a, first), (b, second)| first.cmp(second).then_with(|| a.cmp(b)));
        if self.ledger.release_ended(has_ended) {
            self.note_freed(Freed::PodTerminated);
        }
        for (uid, _) in waiting {
            self.judge(&uid, node, now);
        }
    }

    fn judge(&mut self, uid: &PodUid, node: &NodeView, now: Timestamp) {
        let Some(live) = self.live.get_mut(uid) else { return };
        let wanted = live.resizing.wanted.clone();
        let generation = wanted.metadata.generation;
        let pending = |reason, message| Pending {
            reason,
            message,
            generation,
        };
        let given = live.resizing.given.applied_to(&wanted);
        let refusal = decide::refusal(&wanted, &given, self.shared.parts.pinning.fixed());
        let verdict = match refusal {
            Some(why) => Err(pending(condition::INFEASIBLE, why.to_string())),
            None => self
                .ledger
                .resize(node, &wanted)
                .map_err(|rejection| pending(condition::DEFERRED, rejection.message)),
        };
        match verdict {
            Ok(()) => {
                live.resizing.keeping = true;
                let (checkpoint, uid) = (self.shared.parts.allocated.clone(), uid.clone());
                self.resizes.keeping.spawn(
                    async move {
                        let resources = PodResources::of(&wanted);
                        let result = checkpoint.put(&uid, resources.clone()).await;
                        let given = Some((resources, wanted));
                        Kept { uid, given, result }
                    }
                    .boxed(),
                );
            }
            Err(pending) => {
                live.resizing.since.get_or_insert(now);
                self.defer(uid, pending, refusal);
            }
        }
    }

    /// Tells the worker, and users, that a resize waits.
    fn defer(&self, uid: &PodUid, pending: Pending, refusal: Option<Refusal>) {
        let Some(live) = self.live.get(uid) else { return };
        let is_news = live.desired.borrow().pending.as_ref().is_none_or(|told| {
            // The amounts in the message change as other pods come and go.
            (told.reason, told.generation) != (pending.reason, pending.generation)
        });
        if is_news {
            let pod = &live.resizing.wanted;
            let kind = match refusal {
                Some(refusal) => {
                    self.shared.parts.metrics.resizes.infeasible(refusal.detail());
                    event::RESIZE_INFEASIBLE
                }
                None => event::RESIZE_DEFERRED,
            };
            let generation = pending.generation.unwrap_or(0);
            let text = message::pending(pod, generation, pending.reason, &pending.message);
            self.shared.parts.recorder.pod(pod, Severity::Warning, kind, text);
        }
        live.desired.send_if_modified(|desired| {
            let changed = desired.pending.as_ref() != Some(&pending);
            desired.pending = Some(pending);
            changed
        });
    }

    /// Hands a decision to the pod's worker once it is on disk.
    pub(super) fn take_kept(&mut self, kept: Kept) {
        let Kept { uid, given, result } = kept;
        if let Err(error) = &result {
            tracing::warn!(pod = %uid, %error, "what a pod was given is not kept");
        }
        let Some((resources, by)) = given else { return };
        let Some(live) = self.live.get_mut(&uid) else { return };
        live.resizing.keeping = false;
        if result.is_err() {
            self.resizes.again = Some(Instant::now() + RETRY);
            return;
        }
        live.resizing.given = resources;
        live.resizing.differs = !live.resizing.given.agrees(&live.resizing.wanted);
        let generation = by.metadata.generation;
        let pending = live.desired.borrow().pending.clone();
        if let Some(pending) = pending.filter(|pending| pending.reason == condition::DEFERRED) {
            let trigger = match self.resizes.freed {
                _ if pending.generation != generation => "pod_updated",
                Freed::PodTerminated => "pod_terminated",
                Freed::PodsRemoved => "pods_removed",
                Freed::PodResized => "pod_resized",
                Freed::Unknown => "periodic_retry",
            };
            self.shared.parts.metrics.resizes.accepted(trigger);
        }
        live.resizing.since = None;
        self.resizes.freed = Freed::PodResized;
        self.shares.outdated = true;
        let text = message::started(&by, generation.unwrap_or(0));
        let recorder = &self.shared.parts.recorder;
        recorder.pod(&by, Severity::Normal, event::RESIZE_STARTED, text);
        let pod = live.resizing.pod();
        live.desired.send_modify(|desired: &mut Desired| {
            desired.pod = pod;
            desired.pending = None;
            desired.given = generation;
        });
    }
}
