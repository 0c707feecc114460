//! The pod lifecycle observer: one current [`ObservedPod`] per pod the runtime has something of.
//!
//! Owns every observation. It looks at one pod again after an event about it and after each of its worker's operations
//! ([`Pleg::refresh`]), and at all of them, cheaply, in a sweep: a slow one, or a quick one while no events are reported. That
//! a container or sandbox ended which is being stopped is seen by the look its stop ends with: the event waits for that one,
//! a moment. A runtime call that hangs holds up the pod it is about and no other. Never decides anything about a pod.

mod look;
mod sweeps;
mod turns;

pub use sweeps::Sweeps;

use super::observed::{ContainerState, ContainerSummary, ObservedPod, SandboxSummary};
use super::{Runtime, RuntimeError, RuntimeEvent};
use crate::id::{FullName, PodUid};
use crate::metrics::PodMetrics;
use client::Clock;
use client::ordered::CollectOrdered;
use futures::FutureExt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// How often everything is listed while no events are reported (kubelet contract §4.1).
const RELIST_EVERY: Duration = Duration::from_secs(1);
/// Ended containers nobody had heard of yet that are remembered, oldest forgotten first.
const ENDED_UNKNOWN_MAX: usize = 256;
/// How long and how often an ended container is looked at until the runtime, too, says that it ended.
const CONFIRM_FIRST: Duration = Duration::from_millis(2);
const CONFIRM_TRIES: u32 = 12;
/// How long the event of something that is being stopped waits for the look its stop will end with. On a busy node the
/// runtime takes its time between the two.
const EVENT_PATIENCE: Duration = Duration::from_secs(1);

/// Observes the runtime. Cheap to clone.
#[derive(Clone)]
pub struct Pleg {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Arc<dyn Runtime>,
    sweep_every: Duration,
    clock: Arc<dyn Clock>,
    metrics: PodMetrics,
    /// When the last list began.
    listed_at: Mutex<Option<Instant>>,
    slots: Mutex<BTreeMap<PodUid, Arc<Slot>>>,
    /// Sandbox and container ids to their pods.
    index: Mutex<BTreeMap<String, PodUid>>,
    /// Ids that ended before any observation knew them.
    ended_unknown: Mutex<VecDeque<String>>,
    known: watch::Sender<Arc<BTreeSet<PodUid>>>,
    swept: AtomicBool,
    sweeps: watch::Sender<Sweeps>,
    tasks: TaskTracker,
}

struct Slot {
    uid: PodUid,
    /// Requests so far; a look covers every request made before it began.
    requests: AtomicU64,
    /// A sweep's look waits for its turn; the next sweep's would find no more.
    is_awaited: AtomicBool,
    covered: watch::Sender<u64>,
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
    /// What is being stopped or removed, by operations that end with a look.
    ending: Mutex<Vec<String>>,
    observed: watch::Sender<Option<Arc<ObservedPod>>>,
    /// The pod's namespace and name as lists tell it, also while looks fail.
    name: Mutex<Option<FullName>>,
    /// Why the last look failed, if it did.
    trouble: watch::Sender<Option<RuntimeError>>,
}

impl Slot {
    /// Asks for a look that begins after this call.
    fn request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// A container or sandbox is being stopped or removed, by an operation that will end with a look at its pod.
pub struct Ending {
    slot: Arc<Slot>,
    id: String,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut ending = lock(&self.slot.ending);
        if let Some(at) = ending.iter().position(|id| *id == self.id) {
            ending.swap_remove(at);
        }
    }
}

impl Pleg {
    /// An observer that sweeps every `sweep_every` once [`Pleg::run`] runs, every second while the runtime reports no events,
    /// and counts its work.
    pub fn new(runtime: Arc<dyn Runtime>, sweep_every: Duration, clock: Arc<dyn Clock>, metrics: PodMetrics) -> Self {
        Self {
            inner: Arc::new(Inner {
                runtime,
                sweep_every,
                clock,
                metrics,
                listed_at: Mutex::default(),
                slots: Mutex::default(),
                index: Mutex::default(),
                ended_unknown: Mutex::default(),
                known: watch::Sender::new(Arc::default()),
                swept: AtomicBool::new(false),
                sweeps: watch::Sender::new(Sweeps::begin()),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// The pod's observation, `None` until it was looked at once. A pod the runtime had nothing of in the last sweep is
    /// observed as empty from the start.
    pub fn watch(&self, uid: &PodUid) -> watch::Receiver<Option<Arc<ObservedPod>>> {
        self.slot(uid).observed.subscribe()
    }

    /// The pod's namespace and name, once a sandbox of it was listed.
    pub fn name(&self, uid: &PodUid) -> Option<FullName> {
        lock(&self.slot(uid).name).clone()
    }

    /// Why the pod's last look failed; nothing while looks succeed.
    pub fn trouble(&self, uid: &PodUid) -> watch::Receiver<Option<RuntimeError>> {
        self.slot(uid).trouble.subscribe()
    }

    /// How the sweeps go.
    pub fn sweeps(&self) -> watch::Receiver<Sweeps> {
        self.inner.sweeps.subscribe()
    }

    /// The pods the runtime has something of.
    pub fn known(&self) -> watch::Receiver<Arc<BTreeSet<PodUid>>> {
        self.inner.known.subscribe()
    }

    /// Whether the runtime was ever listed: before, nothing is known of what it has.
    pub fn has_listed(&self) -> bool {
        self.inner.swept.load(Ordering::SeqCst)
    }

    /// Looks at one pod; when this returns `Ok`, its observation is newer than the call. Requests made while a look is
    /// under way share the next one.
    pub async fn refresh(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let slot = self.slot(uid);
        let ticket = slot.request();
        self.cover(&slot, ticket).await
    }

    /// Says that a container or sandbox is being stopped or removed by an operation that will look at the pod when it ends,
    /// for as long as the value lives.
    pub fn ending(&self, uid: &PodUid, id: String) -> Ending {
        let slot = self.slot(uid);
        lock(&slot.ending).push(id.clone());
        Ending { slot, id }
    }

    /// Looks at the pod unless somebody else's look covers the request.
    async fn cover(&self, slot: &Arc<Slot>, ticket: u64) -> Result<(), RuntimeError> {
        let _one = slot.looking.lock().await;
        if *slot.covered.borrow() >= ticket {
            return Ok(());
        }
        slot.is_awaited.store(false, Ordering::SeqCst);
        let covers = slot.requests.load(Ordering::SeqCst);
        let previous = slot.observed.borrow().clone();
        let begun = Instant::now();
        let looked = look::look(&*self.inner.runtime, &slot.uid, previous.as_deref()).await;
        self.inner.metrics.looked(begun.elapsed());
        let trouble = looked.as_ref().err().cloned();
        slot.trouble.send_if_modified(|known| {
            let changed = *known != trouble;
            *known = trouble;
            changed
        });
        self.publish(slot, looked?);
        slot.covered.send_replace(covers);
        Ok(())
    }

    /// Covers the request of an event, the end of `ended`: by the look of its stop if that comes soon, else by one of its own.
    async fn cover_event(&self, slot: &Arc<Slot>, ticket: u64, ended: Option<&str>) -> Result<(), RuntimeError> {
        let is_expected = ended.is_some_and(|ended| lock(&slot.ending).iter().any(|id| id == ended));
        if is_expected {
            let mut covered = slot.covered.subscribe();
            let seen = covered.wait_for(|covered| *covered >= ticket);
            // Either way the rest is the same: a look, if there still has to be one.
            drop(tokio::time::timeout(EVENT_PATIENCE, seen).await);
        }
        self.cover(slot, ticket).await
    }

    /// Forgets a pod whose worker finished. If the runtime still has something of it, the next sweep finds it again.
    pub fn forget(&self, uid: &PodUid) {
        lock(&self.inner.slots).remove(uid);
        lock(&self.inner.index).retain(|_, pod| pod != uid);
        self.inner
            .known
            .send_if_modified(|known| Arc::make_mut(known).remove(uid));
    }

    /// Lists everything in two calls and looks again at each pod whose list entries differ from its observation.
    #[cfg(test)]
    async fn sweep(&self) -> Result<(), RuntimeError> {
        let differing = self.list().await?;
        self.look_at(differing).await;
        Ok(())
    }

    /// Lists everything in two calls and looks again at each pod whose list entries differ from its observation. Returns once it
    /// is known what there is, and looks at it meanwhile: a look that hangs is about one pod, and at a start a pod is left alone
    /// until it was looked at.
    pub async fn begin(&self) -> Result<(), RuntimeError> {
        let differing = self.list().await?;
        let pleg = self.clone();
        self.inner
            .tasks
            .spawn(async move { pleg.look_at(differing).await }.boxed());
        Ok(())
    }

    /// Lists everything; returns the pods that differ from their observation.
    async fn list(&self) -> Result<BTreeSet<PodUid>, RuntimeError> {
        let (runtime, begun) = (&self.inner.runtime, Instant::now());
        let listed = futures::future::try_join(runtime.list_pod_sandboxes(None), runtime.list_containers(None)).await;
        self.count_list(begun, listed.is_ok());
        // What follows is about single pods, one of which may hang.
        self.inner.sweeps.send_modify(|sweeps| sweeps.note(&listed));
        let (sandboxes, containers) = listed?;
        let listed = group(sandboxes, containers);
        let mut differing: BTreeSet<PodUid> = BTreeSet::new();
        for (uid, summary) in &listed {
            let slot = self.slot(uid);
            if let Some(sandbox) = summary.sandboxes.first() {
                *lock(&slot.name) = Some(sandbox.name.clone());
            }
            let current = slot.observed.borrow();
            if !current.as_deref().is_some_and(|observed| summary.agrees_with(observed)) {
                differing.insert(uid.clone());
            }
        }
        for (uid, slot) in lock(&self.inner.slots).iter() {
            let something = slot
                .observed
                .borrow()
                .as_deref()
                .is_none_or(|observed| !observed.is_empty());
            if !listed.contains_key(uid) && something {
                differing.insert(uid.clone());
            }
        }
        let known: BTreeSet<PodUid> = listed.keys().cloned().collect_ordered();
        self.inner.known.send_if_modified(|current| {
            let changed = **current != known;
            *current = Arc::new(known);
            changed
        });
        self.inner.swept.store(true, Ordering::SeqCst);
        Ok(differing)
    }

    fn count_list(&self, begun: Instant, worked: bool) {
        let last = lock(&self.inner.listed_at).replace(begun);
        let now = worked.then(|| self.inner.clock.now().as_second() as f64);
        let since = last.map(|last| begun - last);
        self.inner.metrics.relisted(begun.elapsed(), since, now);
    }

    async fn look_at(&self, differing: BTreeSet<PodUid>) {
        // A look that has not begun yet will see what this sweep saw.
        let unasked = |uid: &&PodUid| !self.slot(uid).is_awaited.swap(true, Ordering::SeqCst);
        let looks = differing.iter().filter(unasked).map(async |uid| {
            if let Err(error) = self.refresh(uid).await {
                tracing::warn!(pod = %uid, %error, "looking at a pod failed");
            }
        });
        futures::future::join_all(looks).await;
    }

    fn handle(&self, event: RuntimeEvent) {
        let pod = event
            .pod
            .clone()
            .or_else(|| lock(&self.inner.index).get(&event.id).cloned());
        let Some(pod) = pod else {
            if event.ended {
                let mut ended = lock(&self.inner.ended_unknown);
                ended.truncate(ENDED_UNKNOWN_MAX - 1);
                ended.push_front(event.id);
            }
            return;
        };
        self.spawn_confirm(pod, event.ended.then_some(event.id));
    }

    /// Looks at a pod, and if a container of it ended, looks again until the runtime says so too: the event can be ahead
    /// of the runtime's own books.
    fn spawn_confirm(&self, pod: PodUid, ended: Option<String>) {
        let pleg = self.clone();
        let slot = self.slot(&pod);
        // Now, not when the task runs: an operation's look may begin before that.
        let mut ticket = slot.request();
        self.inner.tasks.spawn(
            async move {
                let mut wait = CONFIRM_FIRST;
                for _ in 0..CONFIRM_TRIES {
                    if let Err(error) = pleg.cover_event(&slot, ticket, ended.as_deref()).await {
                        tracing::warn!(%pod, %error, "looking at a pod failed");
                    }
                    let settled = match &ended {
                        Some(id) => !pleg.appears_alive(&pod, id),
                        None => true,
                    };
                    if settled {
                        return;
                    }
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                    ticket = slot.request();
                }
            }
            .boxed(),
        );
    }

    fn appears_alive(&self, pod: &PodUid, id: &str) -> bool {
        let slot = lock(&self.inner.slots).get(pod).cloned();
        let Some(slot) = slot else { return false };
        let observed = slot.observed.borrow();
        observed.as_deref().is_some_and(|observed| {
            observed
                .containers
                .iter()
                .any(|c| c.id.as_str() == id && c.state == ContainerState::Running)
                || observed.sandboxes.iter().any(|s| s.id.as_str() == id && s.ready)
        })
    }

    fn publish(&self, slot: &Slot, observed: ObservedPod) {
        let ids: Vec<String> = observed
            .containers
            .iter()
            .map(|c| c.id.to_string())
            .chain(observed.sandboxes.iter().map(|s| s.id.to_string()))
            .collect();
        {
            let mut index = lock(&self.inner.index);
            for id in &ids {
                index.entry(id.clone()).or_insert_with(|| slot.uid.clone());
            }
        }
        slot.observed.send_if_modified(|current| {
            let changed = current.as_deref() != Some(&observed);
            if changed {
                *current = Some(Arc::new(observed));
            }
            changed
        });
        let mut ended = lock(&self.inner.ended_unknown);
        let now_known: Vec<String> = ended.iter().filter(|id| ids.contains(id)).cloned().collect();
        ended.retain(|id| !ids.contains(id));
        drop(ended);
        for id in now_known {
            self.spawn_confirm(slot.uid.clone(), Some(id));
        }
    }

    fn slot(&self, uid: &PodUid) -> Arc<Slot> {
        let mut slots = lock(&self.inner.slots);
        if let Some(slot) = slots.get(uid) {
            return slot.clone();
        }
        let absent = self.inner.swept.load(Ordering::SeqCst) && !self.inner.known.borrow().contains(uid);
        let initial = absent.then(|| Arc::new(ObservedPod::empty(uid.clone())));
        let slot = Arc::new(Slot {
            uid: uid.clone(),
            requests: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            covered: watch::Sender::new(0),
            looking: tokio::sync::Mutex::default(),
            ending: Mutex::default(),
            observed: watch::Sender::new(initial),
            name: Mutex::default(),
            trouble: watch::Sender::new(None),
        });
        slots.insert(uid.clone(), slot.clone());
        slot
    }
}

/// One pod's list entries.
#[derive(Debug, Default)]
struct Listed {
    sandboxes: Vec<SandboxSummary>,
    containers: Vec<ContainerSummary>,
}

impl Listed {
    fn agrees_with(&self, observed: &ObservedPod) -> bool {
        let sandboxes: BTreeMap<_, _> = self.sandboxes.iter().map(|s| (&s.id, s.ready)).collect_ordered();
        let containers: BTreeMap<_, _> = self.containers.iter().map(|c| (&c.id, c.state)).collect_ordered();
        sandboxes == observed.sandboxes.iter().map(|s| (&s.id, s.ready)).collect_ordered()
            && containers == observed.containers.iter().map(|c| (&c.id, c.state)).collect_ordered()
    }
}

fn group(sandboxes: Vec<SandboxSummary>, containers: Vec<ContainerSummary>) -> BTreeMap<PodUid, Listed> {
    let mut listed: BTreeMap<PodUid, Listed> = BTreeMap::new();
    for sandbox in sandboxes {
        listed.entry(sandbox.pod.clone()).or_default().sandboxes.push(sandbox);
    }
    for container in containers {
        listed
            .entry(container.pod.clone())
            .or_default()
            .containers
            .push(container);
    }
    listed
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
