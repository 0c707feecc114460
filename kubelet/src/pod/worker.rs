//! One worker owns one pod's life on this node.
//!
//! A turn: take a snapshot of everything, plan, publish the status, start what is missing and end what is no longer wanted,
//! then wait for anything to change. Wake-ups carry no meaning, so losing or merging them is harmless; a restart is the same
//! turn with an empty memory.

mod effects;
mod ended;
mod notices;
mod publish;
mod resize;
mod starting;
#[cfg(test)]
mod tests;
mod upkeep;
mod working;

use super::backoff::Bounds;
use super::execute::{Executor, Reply, Subject};
use super::memory::{ImageState, Memory};
use super::operation::{End, Key, Operation};
use super::plan::{self, Advance, InFlight, Plan};
use super::state::{Cause, PodState, Termination};
use super::status;
use crate::allocation::decide::Pending;
use crate::api_status::StatusWriter;
use crate::id::PodUid;
use crate::node_shutdown::Phase;
use crate::parts::Parts;
use crate::probe::prober::{self, Prober};
use crate::reason;
use crate::runtime::observed::ObservedPod;
use crate::volume::{Ending, HostVolume};
use crate::wake;
use client::ordered::CollectOrdered;
use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What every worker of a kubelet shares.
pub struct Shared {
    /// The kubelet's parts.
    pub parts: Arc<Parts>,
    /// Carries operations out.
    pub executor: Arc<Executor>,
    /// What probing needs.
    pub probing: prober::ProbeContext,
    /// Sends statuses.
    pub statuses: StatusWriter,
    /// Whether the network is ready, and if not, what the runtime says.
    pub network: watch::Receiver<Network>,
    /// The scheme of container ids.
    pub runtime_name: String,
    /// The bounds of crash back-offs.
    pub crash: Bounds,
    /// Ends every worker without ending its pod.
    pub shutdown: CancellationToken,
}

/// The runtime's network as workers need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Whether pods with a network of their own can be started.
    pub ready: bool,
    /// What the runtime says if not.
    pub message: String,
}

/// A request to end a pod from the node's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Why.
    pub cause: Cause,
    /// A shorter grace than the pod's own, seconds.
    pub grace_seconds: Option<i64>,
    /// Annotations of the event that tells it.
    pub annotations: BTreeMap<String, String>,
}

/// What a worker is to make of its pod.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The pod as last delivered.
    pub pod: Arc<Pod>,
    /// Whether its source still has it.
    pub present: bool,
    /// Of a pod that was delivered because it was kept, its regular containers that had ended for good, with their exit codes.
    pub ended: BTreeMap<String, i32>,
    /// Whether it starts again once it has ended: its logs stay, and its restarts are counted on.
    pub returns: bool,
    /// Why it was not let in, as reason and message.
    pub rejected: Option<(String, String)>,
    /// Whether the node ends it.
    pub kill: Option<Kill>,
    /// Why it was not given what it wants; `pod` has what it was given.
    pub pending: Option<Pending>,
    /// The generation whose resize it was given last.
    pub given: Option<i64>,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nothing is left of the pod.
    Finished,
    /// The kubelet stops; the pod goes on.
    Shutdown,
}

struct Running {
    task: AbortHandle,
    grace_ends: Option<Timestamp>,
}

/// The owner of one pod.
pub struct Worker {
    shared: Arc<Shared>,
    uid: PodUid,
    desired: watch::Receiver<Desired>,
    observed: watch::Receiver<Option<Arc<ObservedPod>>>,
    prober: Prober,
    state: PodState,
    memory: Memory,
    volumes: Arc<BTreeMap<String, HostVolume>>,
    status: Arc<PodStatus>,
    tasks: JoinSet<Reply>,
    running: BTreeMap<Key, Running>,
    /// The pod whose volumes are kept current, as it was delivered last, and what does.
    refreshing: Option<(watch::Sender<Arc<Pod>>, AbortHandle)>,
    told: notices::StandingNotices,
    starting: starting::Starting,
    working: working::Working,
    /// The end an earlier kubelet began, until the turn that takes it up or finds that the pod does not end.
    resumed: Option<Ending>,
}

impl Worker {
    /// A worker for the pod; it does nothing before [`Worker::run`].
    pub fn new(shared: Arc<Shared>, uid: PodUid, desired: watch::Receiver<Desired>) -> Self {
        let observed = shared.parts.pleg.watch(&uid);
        let prober = Prober::new(shared.probing.clone(), observed.clone());
        let status = Arc::new(desired.borrow().pod.status.clone().unwrap_or_default());
        let ended = desired.borrow().ended.clone();
        let begun_before = observed.borrow().as_ref().is_some_and(|observed| !observed.is_empty());
        let pending = status.phase.as_deref().is_none_or(|phase| phase == "Pending");
        Self {
            shared,
            uid,
            desired,
            observed,
            prober,
            state: PodState::Syncing,
            memory: Memory::of_kept(ended),
            volumes: Arc::default(),
            status,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            refreshing: None,
            told: notices::StandingNotices::default(),
            starting: starting::Starting::new(Instant::now(), begun_before || !pending),
            working: working::Working::default(),
            resumed: None,
        }
    }

    /// Lives the pod's life. Boxed: a task would hold what it is given twice.
    pub async fn run(mut self: Box<Self>) -> Exit {
        let shutdown = self.shared.shutdown.clone();
        let mut outcomes = self.prober.outcomes();
        let mut network = self.shared.network.clone();
        let mut host_ips = self.shared.parts.context.host_ips.clone();
        let mut trouble = self.shared.parts.pleg.trouble(&self.uid);
        let mut garbage = self.shared.parts.garbage.subscribe();
        let has_claims = crate::dra::has_claims(&self.desired.borrow().pod);
        let mut health = has_claims.then(|| self.shared.parts.dra.health_changes());
        let has_devices = crate::device::may_have(&self.desired.borrow().pod);
        let mut devices = has_devices.then(|| self.shared.parts.devices.news());
        let mut remembered = false;
        loop {
            let desired = self.desired.borrow_and_update().clone();
            let observed = self.observed.borrow_and_update().clone();
            if !remembered && let Some(observed) = observed.as_deref() {
                self.remember(&desired.pod, observed);
                self.remember_resources(&desired.pod, observed);
                if !observed.is_empty() {
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return Exit::Shutdown,
                        mark = mark(&self.shared, &self.uid, &desired.pod, observed) => self.resumed = mark,
                    }
                }
                remembered = true;
            }
            // A statement of its own: the turn may publish outcomes, which waits for every borrow to end.
            let told = outcomes.borrow_and_update().clone();
            let plan = match self.turn(&desired, observed.as_ref(), &told) {
                Turn::Finished => return Exit::Finished,
                Turn::Planned(plan) => plan,
            };
            let wake = self.wake_in(&plan);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Exit::Shutdown,
                Some(joined) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => self.take(joined),
                changed = self.desired.changed() => {
                    if changed.is_err() {
                        return Exit::Shutdown;
                    }
                }
                Ok(()) = self.observed.changed() => {}
                Ok(()) = outcomes.changed() => {}
                Ok(()) = network.changed() => {}
                Ok(()) = trouble.changed() => self.tell_trouble(&desired, trouble.borrow_and_update().as_ref()),
                () = host_ips.changed() => {}
                Ok(()) = garbage.changed() => {}
                () = told_of(&mut health) => {}
                () = told_of(&mut devices) => {}
                () = wake::after(wake) => {}
            }
        }
    }

    /// One turn: plan to the end of all steps forward, publish, start and end operations.
    fn turn(
        &mut self,
        desired: &Desired,
        observed: Option<&Arc<ObservedPod>>,
        outcomes: &crate::probe::outcome::Outcomes,
    ) -> Turn {
        let now = self.shared.parts.clock.now();
        self.move_forward(desired, now);
        if observed.is_some()
            && let Some(ending) = self.resumed.take()
        {
            self.state.resume(&ending, &desired.pod, now);
        }
        let mut plan = loop {
            let plan = self.plan(desired, observed, outcomes, now);
            match plan.advance {
                None => break plan,
                Some(Advance::Finished) => {
                    self.count_work(desired);
                    return Turn::Finished;
                }
                Some(advance) => self.advance(advance, desired, now),
            }
        };
        if let Some(observed) = observed {
            self.publish(desired, observed, outcomes, &plan, now);
        }
        self.tell(desired, &plan);
        self.tell_resize(desired, &plan);
        plan.wake_at = plan.wake_at.into_iter().chain(self.tell_overdue(desired, now)).min();
        self.apply(desired, observed, &plan, now);
        self.count_work(desired);
        let pulls = self.running.keys().any(|key| matches!(key, Key::Image(..)));
        self.starting.note_pulls(Instant::now(), pulls);
        self.probe(desired, &plan);
        self.refresh_volumes(&desired.pod);
        self.memory.shed();
        Turn::Planned(plan)
    }

    /// Takes over what the API server knew of containers that ran before this kubelet did.
    fn remember(&self, pod: &Pod, observed: &ObservedPod) {
        let status = pod.status.as_ref();
        let lists = status.map(|status| [&status.init_container_statuses, &status.container_statuses]);
        for told in lists.into_iter().flatten().flatten().flatten() {
            let Some(newest) = observed.newest(&told.name) else {
                continue;
            };
            let same = told
                .container_id
                .as_deref()
                .is_some_and(|id| id.ends_with(newest.id.as_str()));
            let before = newest
                .started_at
                .is_some_and(|at| at < self.shared.probing.kubelet_start);
            if same && before {
                self.prober
                    .remember(&told.name, &newest.id, told.started == Some(true), told.ready);
            }
        }
    }

    /// Moves to the end if anything outside says so.
    fn move_forward(&mut self, desired: &Desired, now: Timestamp) {
        let pod = &*desired.pod;
        if let Some((reason, message)) = &desired.rejected {
            let message = format!("Pod was rejected: {message}");
            self.state.terminate(
                Cause::Failed {
                    reason: reason.clone(),
                    message,
                },
                pod,
                None,
                now,
            );
        }
        if let Some(kill) = &desired.kill {
            self.tell_kill(kill, pod, now);
            self.state.terminate(kill.cause.clone(), pod, kill.grace_seconds, now);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            self.state.terminate(Cause::Deleted, pod, None, now);
        }
        if !desired.present {
            self.state.terminate(Cause::Removed, pod, None, now);
        }
        if status::is_terminal(Some(&self.status)) {
            self.state.terminate(Cause::Completed, pod, None, now);
        }
    }

    fn advance(&mut self, advance: Advance, desired: &Desired, now: Timestamp) {
        tracing::info!(pod = %self.uid, ?advance, "pod moves on");
        let pod = &*desired.pod;
        match advance {
            Advance::Complete => self.state.terminate(Cause::Completed, pod, None, now),
            Advance::DeadlineExceeded => {
                let cause = Cause::Failed {
                    reason: reason::pod::DEADLINE_EXCEEDED.to_owned(),
                    message: "Pod was active on the node longer than the specified deadline".to_owned(),
                };
                self.told.deadline_exceeded(&self.shared.parts.recorder, pod);
                self.state.terminate(cause, pod, None, now);
            }
            Advance::Stopped => self.state.stopped(),
            Advance::Released => self.state.released(),
            Advance::Finished => {}
        }
    }

    fn plan(
        &self,
        desired: &Desired,
        observed: Option<&Arc<ObservedPod>>,
        outcomes: &crate::probe::outcome::Outcomes,
        now: Timestamp,
    ) -> Plan {
        let in_flight: BTreeMap<Key, InFlight> = self
            .running
            .iter()
            .map(|(key, r)| {
                (
                    key.clone(),
                    InFlight {
                        grace_ends: r.grace_ends,
                    },
                )
            })
            .collect_ordered();
        let garbage = self.shared.parts.garbage.borrow().clone();
        plan::plan(&plan::Inputs {
            pod: &desired.pod,
            present: desired.present,
            state: &self.state,
            observed: observed.map(|observed| &**observed),
            outcomes,
            in_flight: &in_flight,
            memory: &self.memory,
            network_ready: self.shared.network.borrow().ready,
            start_time: self.status.start_time.as_ref().map(|time| time.0),
            crash: self.shared.crash,
            garbage: &garbage,
            now,
        })
    }

    /// Takes over what the plan says of the memory, starts what is missing, ends what is no longer wanted.
    fn apply(&mut self, desired: &Desired, observed: Option<&Arc<ObservedPod>>, plan: &Plan, now: Timestamp) {
        for change in &plan.changes {
            self.memory.take(change);
        }
        let wanted: Vec<Key> = plan.operations.iter().map(Operation::key).collect();
        for (key, running) in &self.running {
            if key.end() == End::Cancel && !wanted.contains(key) {
                running.task.abort();
            }
        }
        let observed = observed
            .cloned()
            .unwrap_or_else(|| Arc::new(ObservedPod::empty(self.uid.clone())));
        for operation in &plan.operations {
            let key = operation.key();
            let grace_ends = operation.grace_ends(now);
            match self.running.get(&key) {
                None => self.start(desired, &observed, operation, grace_ends, now),
                Some(running) if key.end() == End::Shorten && shortens(running.grace_ends, grace_ends) => {
                    // The call under way goes on; the runtime takes the shorter of both.
                    self.start(desired, &observed, operation, grace_ends, now);
                }
                Some(_) => {}
            }
        }
    }

    fn start(
        &mut self,
        desired: &Desired,
        observed: &Arc<ObservedPod>,
        operation: &Operation,
        grace_ends: Option<Timestamp>,
        now: Timestamp,
    ) {
        tracing::debug!(pod = %self.uid, ?operation, "starting");
        let (image, volume_images) = match operation {
            Operation::StartContainer { container, .. } => {
                let named = crate::pod_object::find(&desired.pod, container);
                let image = match named.map(|(_, spec)| self.memory.image(&spec, now)) {
                    Some(ImageState::Ready(image)) => Some(image.clone()),
                    _ => None,
                };
                (image, self.memory.volume_images(&desired.pod, container, now))
            }
            _ => (None, BTreeMap::new()),
        };
        let pod = self.subject_pod(&desired.pod, operation);
        self.note_resources(&pod, operation);
        let subject = Subject {
            uid: self.uid.clone(),
            pod,
            applied: self.subject_applied(operation),
            observed: observed.clone(),
            volumes: self.volumes.clone(),
            image,
            volume_images,
            returns: desired.returns,
            ending: self.state.termination().map(Termination::mark),
        };
        let work = self.shared.executor.clone().run(subject, operation.clone());
        let task = self.tasks.spawn(work.boxed());
        self.running.insert(operation.key(), Running { task, grace_ends });
    }

    fn wake_in(&self, plan: &Plan) -> Option<Duration> {
        let at = plan.wake_at?;
        let left = at.duration_since(self.shared.parts.clock.now());
        // Rounded up: waking a moment early would only plan the same again.
        Some(Duration::try_from(left).unwrap_or_default() + Duration::from_millis(1))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some((_, task)) = self.refreshing.take() {
            task.abort();
        }
    }
}

/// The mark of an end that an earlier kubelet began and that is to go on. Whether the machine goes down is waited for: who it ended
/// would start once more.
async fn mark(shared: &Shared, uid: &PodUid, pod: &Pod, observed: &ObservedPod) -> Option<Ending> {
    let mark = shared.parts.volumes.ending(uid).await?;
    let mut phase = shared.parts.phase.subscribe();
    let phase = phase.wait_for(|phase| *phase != Phase::Asking).await;
    let phase = phase.map_or(Phase::Up, |phase| *phase);
    PodState::resumes(&mark, pod, observed, phase).then_some(mark)
}

enum Turn {
    Finished,
    Planned(Plan),
}

/// Whether a stop that is asked for would end clearly sooner than the one under way.
fn shortens(running: Option<Timestamp>, wanted: Option<Timestamp>) -> bool {
    match (running, wanted) {
        (Some(running), Some(wanted)) => running.duration_since(wanted) > SignedDuration::from_secs(1),
        _ => false,
    }
}

/// Waits for a change, if there is anything that changes.
async fn told_of(changes: &mut Option<watch::Receiver<u64>>) {
    if let Some(changes) = changes
        && changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
