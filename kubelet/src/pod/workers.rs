//! The workers: one for each pod that is desired, or that the runtime still has.
//!
//! Owns the index of workers and the node's ledger. Decides only who gets a worker; everything about a pod is its worker's.
//! Nothing is ended for being unknown before every source has delivered once. Static pods of one name start strictly one after
//! another: a new one waits until no worker of that name is left.

mod devices;
mod leftovers;
mod order;
mod pinning;
mod preemption;
mod resize;
mod shares;
mod shutdown;
#[cfg(test)]
mod tests;
mod waiting;

use super::state::Cause;
use super::worker::{Desired, Exit, Kill, Shared, Worker};
use crate::admission::Ledger;
use crate::admission::description::Description;
use crate::admission::placement::NodeView;
use crate::allocation::PodResources;
use crate::autonomy::ended_for_good;
use crate::eviction::{Killer, Kills};
use crate::id::{FullName, PodUid};
use crate::node_shutdown::Phase;
use crate::pod_object;
use crate::runtime::RuntimeError;
use crate::source::Pods;
use crate::wake;
use devices::Giving;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use leftovers::Leftovers;
use order::{in_order, names_of_statics};
use pinning::Verdict;
use resize::{Freed, Resizing};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use waiting::Doubt;

/// The grace of a pod no source knows, seconds (kubelet contract §4.2).
const ORPHAN_GRACE_SECONDS: i64 = 1;
/// How long until an orphan that could not be looked at is tried again.
const ORPHAN_RETRY: Duration = Duration::from_secs(1);
/// How long until leftovers that could not be released are tried again, and the name that wait has among those of pods.
const LEFTOVERS_RETRY: Duration = Duration::from_secs(10);
const LEFTOVERS: &str = "leftovers of earlier pods";
/// How long a worker that panicked is left alone before it is started again.
const PANIC_PAUSE: Duration = Duration::from_secs(10);

/// Runs the workers.
pub struct Workers {
    shared: Arc<Shared>,
    ledger: Ledger,
    pods: watch::Receiver<Pods>,
    known: watch::Receiver<Arc<BTreeSet<PodUid>>>,
    /// The pods the node ends.
    kills: watch::Receiver<Kills>,
    killer: Killer,
    /// Critical pods for which others make room, and those that were counted when these began to.
    preempting: BTreeMap<PodUid, preemption::MakingRoom>,
    counted: BTreeSet<PodUid>,
    /// The node as it is described: what new pods are judged by.
    node: Description,
    /// Whether the machine goes down.
    phase: watch::Receiver<Phase>,
    live: BTreeMap<PodUid, Live>,
    tasks: JoinSet<Exit>,
    /// Pods that are left alone for a while: their worker panicked, or they could not be looked at.
    cooling: BTreeMap<PodUid, Instant>,
    /// Orphans that are being looked at, beside the loop: one look may hang.
    looks: JoinSet<(PodUid, Result<(), RuntimeError>)>,
    looking: BTreeSet<PodUid>,
    /// Those of them at which a look failed.
    unseen: BTreeSet<PodUid>,
    leftovers: Leftovers,
    /// Pods that the node's labels or taints refused when they were judged for the first time: what is known of the node may
    /// be older than what the scheduler has seen.
    doubted: BTreeMap<PodUid, Doubt>,
    /// New pods that wait for deleted ones to end, and until when.
    waiting: BTreeMap<PodUid, Instant>,
    /// Until when those of them wait at most that lack what others have alone.
    held_up: BTreeMap<PodUid, Instant>,
    /// When those they wait for have ended, unless they hang.
    ends: BTreeMap<PodUid, Instant>,
    shares: shares::Shares,
    resizes: resize::Resizes,
    giving: Giving,
    /// Since when pods that have no worker yet are known.
    seen: BTreeMap<PodUid, Instant>,
}

struct Live {
    name: FullName,
    desired: watch::Sender<Desired>,
    task: Id,
    resizing: Resizing,
}

impl Workers {
    /// Workers for the pods a source delivers.
    pub fn new(shared: Shared, ledger: Ledger, pods: watch::Receiver<Pods>, killer: Killer, node: Description) -> Self {
        let (known, phase) = (shared.parts.pleg.known(), shared.parts.phase.subscribe());
        let leftovers = Leftovers::new(shared.executor.clone());
        let shares = shares::Shares::new(&shared.parts.cgroups);
        Self {
            shared: Arc::new(shared),
            ledger,
            pods,
            known,
            kills: killer.subscribe(),
            killer,
            preempting: BTreeMap::new(),
            counted: BTreeSet::new(),
            node,
            phase,
            live: BTreeMap::new(),
            tasks: JoinSet::new(),
            cooling: BTreeMap::new(),
            looks: JoinSet::new(),
            looking: BTreeSet::new(),
            unseen: BTreeSet::new(),
            leftovers,
            doubted: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held_up: BTreeMap::new(),
            ends: BTreeMap::new(),
            shares,
            resizes: resize::Resizes::default(),
            giving: Giving::default(),
            seen: BTreeMap::new(),
        }
    }

    /// Runs until shut down; the pods go on.
    pub async fn run(mut self) {
        let shutdown = self.shared.shutdown.clone();
        loop {
            self.shared.parts.heartbeat.beat();
            self.reconcile();
            let cooled = self.next_wake();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(joined) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => self.take(joined),
                Ok(()) = self.pods.changed() => {}
                Ok(()) = self.known.changed() => {}
                Ok(()) = self.kills.changed() => {}
                Ok(()) = self.node.changed() => {}
                Ok(()) = self.phase.changed() => {}
                Some(Ok((uid, looked))) = self.looks.join_next(), if !self.looks.is_empty() => self.end_orphan(uid, looked),
                report = self.leftovers.next() => self.take_leftovers(report),
                given = self.giving.next() => self.take_given(given),
                Some(_) = self.shares.task.join_next(), if !self.shares.task.is_empty() => {}
                Some(Ok(kept)) = self.resizes.keeping.join_next(), if !self.resizes.keeping.is_empty() => self.take_kept(kept),
                () = wake::at(cooled) => {}
                () = tokio::time::sleep(self.shared.parts.heartbeat.period()) => {}
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Gives every desired pod a worker and every worker its pod. Waits for nothing: whatever may hang has a task.
    fn reconcile(&mut self) {
        let Pods {
            desired: pods,
            complete,
            kept,
            ..
        } = self.pods.borrow_and_update().clone();
        let known = self.known.borrow_and_update().clone();
        let phase = *self.phase.borrow_and_update();
        let mut node = NodeView {
            groups_policy: self.shared.parts.runtime_status.borrow().has_groups_policy(),
            pressure: self.shared.parts.pressure.borrow().clone(),
            shutting_down: phase == Phase::ShuttingDown,
            ..self.node.current()
        };
        let devices = &self.shared.parts.devices;
        devices.look(|state| node.extended.retain(|name, _| !state.knows(name)));
        let now = Instant::now();
        self.cooling.retain(|_, until| *until > now);
        self.drop_waits(&pods, &known, complete);
        self.seen.retain(|uid, _| pods.contains_key(uid));
        self.unseen.retain(|uid| known.contains(uid));
        self.drop_preemptions(&pods);
        self.drop_given(&pods);
        for (uid, live) in &self.live {
            if !pods.contains_key(uid) {
                live.desired
                    .send_if_modified(|desired| std::mem::replace(&mut desired.present, false));
            }
        }
        self.look_at_orphans(&pods, &known, complete);
        if complete {
            self.release_unknown(&pods, &known);
        }
        for pod in in_order(&pods, &known) {
            let uid = pod_object::uid(pod);
            if phase == Phase::Up {
                self.bring_back(&uid, pod);
            }
            if let Some(live) = self.live.get_mut(&uid) {
                live.update(pod, &self.shared.parts.metrics.resizes);
                continue;
            }
            self.seen.entry(uid.clone()).or_insert(now);
            let waits = self.cooling.contains_key(&uid) || self.leftovers.holds(&uid);
            // Two static pods of one name come after each other; the end of the first is the next turn.
            let is_behind = || pod_object::is_static(pod) && self.is_taken(&pod_object::full_name(pod), &known);
            // A node whose labels and taints are not known yet would refuse for good what it may well take.
            let was_let_in = known.contains(&uid) || kept.contains(&uid);
            let is_unclear = || phase == Phase::Asking || (!node.known && !pod_object::is_static(pod));
            let is_early = || !was_let_in && is_unclear();
            if !waits && !is_behind() && !is_early() {
                self.admit(uid, pod, (&known, &kept), &node);
            }
        }
        self.hand_on_kills();
        // What vanished from the runtime meanwhile has nobody else to release it.
        if complete && !self.cooling.contains_key(&PodUid::from(LEFTOVERS)) {
            self.leftovers.look();
        }
        if complete {
            self.forget_unknown(&pods);
        }
        self.resize(&node);
        self.refresh_shares(&pods, complete);
    }

    fn is_taken(&self, name: &FullName, known: &BTreeSet<PodUid>) -> bool {
        self.live.values().any(|live| live.name == *name) || self.may_be_taken(name, known)
    }

    /// Looks at what runs though no source has it, to end it, once every source has delivered; before that only what was not
    /// seen yet, or had the name of a static pod that is to run now.
    fn look_at_orphans(&mut self, pods: &BTreeMap<PodUid, Arc<Pod>>, known: &BTreeSet<PodUid>, complete: bool) {
        let statics = names_of_statics(pods);
        for uid in known.iter().filter(|uid| !pods.contains_key(*uid)) {
            let busy = self.looking.contains(uid) || self.cooling.contains_key(uid);
            if self.live.contains_key(uid) || busy {
                continue;
            }
            let unseen = self.shared.parts.pleg.watch(uid).borrow().is_none();
            if complete || unseen || self.name_of(uid).is_some_and(|name| statics.contains(&name)) {
                self.looking.insert(uid.clone());
                let (pleg, uid) = (self.shared.parts.pleg.clone(), uid.clone());
                self.looks.spawn(async move {
                    let looked = pleg.refresh(&uid).await;
                    (uid, looked)
                });
            }
        }
    }

    /// The name of what runs of a pod, once that was listed or seen.
    fn name_of(&self, uid: &PodUid) -> Option<FullName> {
        let listed = self.shared.parts.pleg.name(uid);
        if listed.is_some() {
            return listed;
        }
        let observed = self.shared.parts.pleg.watch(uid).borrow().clone();
        let sandbox = observed.as_ref().and_then(|observed| observed.sandbox())?;
        Some(FullName {
            namespace: sandbox.namespace.clone(),
            name: sandbox.name.clone(),
        })
    }

    /// Whether something that no source has may have the name: it is being looked at, or could not be. What has no sandbox
    /// tells no name; it is waited for until a look at it failed, and no longer: another pod of its name is unlikely.
    fn may_be_taken(&self, name: &FullName, known: &BTreeSet<PodUid>) -> bool {
        let waiting = self.looking.iter().chain(self.cooling.keys());
        waiting
            .filter(|uid| known.contains(*uid) && !self.live.contains_key(*uid))
            .any(|uid| match self.name_of(uid) {
                Some(taken) => taken == *name,
                None => !self.unseen.contains(uid),
            })
    }

    /// `let_in` are the pods the runtime has, and those that are delivered because they were kept: they are not judged again.
    fn admit(&mut self, uid: PodUid, pod: &Arc<Pod>, let_in: (&BTreeSet<PodUid>, &BTreeSet<PodUid>), node: &NodeView) {
        let (known, kept) = (let_in.0.contains(&uid), let_in.1.contains(&uid));
        let over = super::status::is_terminal(pod.status.as_ref());
        let ending = pod.metadata.deletion_timestamp.is_some();
        let resizing = Resizing::new(pod.clone(), self.given(&uid, pod));
        let pod = &resizing.pod();
        let rejected = if over {
            None
        } else if known || (kept && !ending) {
            // What runs holds what it has until it has ended, also on its way there.
            self.ledger.grant(pod);
            self.keep_pinned(&uid, pod);
            None
        } else if ending {
            None
        } else {
            self.release_ended();
            if self.makes_room(&uid, pod, node) {
                return;
            }
            let rejection = match self.judge_new(&uid, pod, node) {
                Verdict::Admitted => None,
                Verdict::Rejected(rejection) => Some(rejection),
                Verdict::Later => return,
            };
            rejection.map(|rejection| (rejection.reason, rejection.message))
        };
        let ended = if kept { ended_for_good(pod) } else { BTreeMap::new() };
        let desired = Desired {
            pod: pod.clone(),
            present: true,
            ended,
            returns: false,
            rejected,
            kill: None,
            pending: None,
            given: None,
        };
        self.spawn(uid, desired, resizing);
    }

    /// When something is to be looked at again though nothing happens.
    fn next_wake(&self) -> Option<Instant> {
        let now = Instant::now();
        let doubts = self.doubted.values().map(|doubt| doubt.until);
        let waits = self.waiting.values().chain(self.held_up.values());
        let doubts = doubts.chain(waits.copied());
        let doubts = doubts.filter(|until| *until > now);
        self.cooling
            .values()
            .copied()
            .chain(doubts)
            .chain(self.shares.next)
            .min()
    }

    /// Ends a pod that runs though no source has it; tries again in a while if it cannot be looked at.
    fn end_orphan(&mut self, uid: PodUid, looked: Result<(), RuntimeError>) {
        self.looking.remove(&uid);
        if let Err(error) = looked {
            tracing::warn!(pod = %uid, %error, "looking at an orphaned pod failed");
            self.cooling.insert(uid.clone(), Instant::now() + ORPHAN_RETRY);
            self.unseen.insert(uid);
            return;
        }
        // It may have been delivered, and got its worker, meanwhile.
        let pods = self.pods.borrow().clone();
        if self.live.contains_key(&uid) || pods.desired.contains_key(&uid) {
            return;
        }
        let in_the_way = |name: FullName| names_of_statics(&pods.desired).contains(&name);
        if !pods.complete && !self.name_of(&uid).is_some_and(in_the_way) {
            return;
        }
        let observed = self.shared.parts.pleg.watch(&uid).borrow().clone();
        let Some(observed) = observed.filter(|observed| !observed.is_empty()) else {
            self.shared.parts.pleg.forget(&uid);
            self.release_pinned(&uid);
            // It vanished between two looks (a removal an earlier kubelet had asked for): its directories are still there.
            self.leftovers.look_again();
            return;
        };
        // Containers whose sandbox is gone do not tell their pod's name.
        let sandbox = observed.sandbox();
        let named = sandbox.map(|sandbox| (sandbox.name.clone(), sandbox.namespace.clone()));
        let (name, namespace) = named.unwrap_or_else(|| (uid.to_string(), "default".to_owned()));
        tracing::info!(pod = %uid, name, namespace, "ending a pod no source has");
        self.shared.parts.metrics.pods.orphaned();
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace),
                uid: Some(uid.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec::default()),
            status: None,
        };
        let kill = Kill {
            cause: Cause::Orphaned,
            grace_seconds: Some(ORPHAN_GRACE_SECONDS),
            annotations: BTreeMap::new(),
        };
        let desired = Desired {
            pod: Arc::new(pod),
            present: false,
            ended: BTreeMap::new(),
            returns: false,
            rejected: None,
            kill: Some(kill),
            pending: None,
            given: None,
        };
        let resizing = Resizing::new(desired.pod.clone(), PodResources::default());
        self.spawn(uid, desired, resizing);
    }

    /// Goes on with the release of what earlier pods left. What the runtime still has is ended and released by a worker of
    /// its own.
    fn take_leftovers(&mut self, report: Result<(Id, leftovers::Report), JoinError>) {
        let desired = self.pods.borrow().desired.clone();
        let known = self.known.borrow().clone();
        let is_gone = |uid: &PodUid| !desired.contains_key(uid) && !self.live.contains_key(uid) && !known.contains(uid);
        if self.leftovers.take(report, is_gone) {
            self.cooling
                .insert(PodUid::from(LEFTOVERS), Instant::now() + LEFTOVERS_RETRY);
        }
    }

    fn spawn(&mut self, uid: PodUid, desired: Desired, resizing: Resizing) {
        let metrics = &self.shared.parts.metrics.pods;
        if let Some(seen) = self.seen.remove(&uid) {
            metrics.worker_started(seen.elapsed());
        }
        match &desired.rejected {
            Some((reason, _)) => metrics.rejected(reason),
            None => metrics.admitted(pod_object::regulars(&desired.pod).len()),
        }
        self.shares.outdated = true;
        self.keep_given(&uid, &desired, &resizing);
        let name = pod_object::full_name(&desired.pod);
        let (sender, receiver) = watch::channel(desired);
        let worker = Box::new(Worker::new(self.shared.clone(), uid.clone(), receiver));
        let task = self.tasks.spawn(worker.run()).id();
        let live = Live {
            name,
            desired: sender,
            task,
            resizing,
        };
        self.live.insert(uid, live);
    }

    /// Counts a pod that was taken away, and is wanted again with the same UID now that its worker is done.
    fn count_return(&self, uid: &PodUid) {
        let pods = self.pods.borrow();
        let back = pods.desired.get(uid).filter(|pod| {
            pod.metadata.deletion_timestamp.is_none() && !super::status::is_terminal(pod.status.as_ref())
        });
        if let Some(pod) = back {
            self.shared.parts.metrics.pods.restarted(pod_object::is_static(pod));
        }
    }

    /// Takes a worker that ended; a pod that is desired again gets a new one with the next turn.
    fn take(&mut self, joined: Result<(Id, Exit), JoinError>) {
        let (id, panicked) = match &joined {
            Ok((id, _)) => (*id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let uid = self
            .live
            .iter()
            .find(|(_, live)| live.task == id)
            .map(|(uid, _)| uid.clone());
        let Some(uid) = uid else { return };
        self.live.remove(&uid);
        self.shares.outdated = true;
        if panicked {
            tracing::error!(pod = %uid, "a pod's worker panicked, it is started again in a while");
            self.cooling.insert(uid, Instant::now() + PANIC_PAUSE);
            return;
        }
        if joined.is_ok_and(|(_, exit)| exit == Exit::Finished) {
            self.count_return(&uid);
            self.ledger.release(&uid);
            self.release_pinned(&uid);
            self.killer.forget(&uid);
            self.note_freed(Freed::PodsRemoved);
            self.forget_given(&uid);
            self.shared.parts.pleg.forget(&uid);
            self.shared.parts.pods.remove(&uid);
            self.shared.statuses.forget(&uid);
        }
    }
}
