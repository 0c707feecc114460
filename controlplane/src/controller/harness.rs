//! Runs controllers: informers wake keys, reconciling a key means to plan (pure), write, wait until the
//! informers show the own writes, and plan again.
//!
//! Planning never starts on informers older than the key's last write, so plans need no expectations of what is in flight; a creation
//! whose answer got lost is repeated under the same name first. What failed is tried again after 5 ms·2ⁿ, or what the
//! controller says. All I/O of controllers is here, in [`super::execute`], and in what a controller looks up before a plan ([`Controller::look_up`]).

use super::event::Recorder;
use super::execute::{Applied, execute_once, recheck};
use super::informers::Informers;
use super::queue::Queue;
use super::write::{EventText, Failure, Plan, Verb, Write};
use crate::metrics::QueueMetrics;
use crate::metrics::controllers::Controllers as Counters;
use crate::turn::{self, TURN};
use client::informer::{Change, Object};
use client::{Clock, Informer, Key};
use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use k8s_openapi::jiff::Timestamp;
use proto::api::selector::Selector;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod repeat;

use repeat::Repeats;

/// Largest slow-start batch.
const BATCH: usize = 500;

/// A controller: which changes wake which keys, and what a key wants.
pub trait Controller: Send + Sync + 'static {
    /// Upstream's service account name.
    const NAME: &'static str;
    /// Keys that are reconciled at the same time: one, where a plan must see what the last one wrote.
    const AT_ONCE: usize = 16;
    /// Whether each write of a plan is a matter of its own: what the server refuses of one stands in no other's way.
    const EACH_ALONE: bool = false;
    /// Whether at least its deletions are: one that the server refuses keeps nothing that comes after it from being done.
    const DELETIONS_ALONE: bool = false;
    /// How long the first retry of what failed waits; each further one twice as long.
    const RETRY_FIRST: Duration = Duration::from_millis(5);
    /// The longest it waits.
    const RETRY_MAX: Duration = Duration::from_secs(80);

    /// Connects informers to keys.
    fn wire(&self, wiring: &mut Wiring);

    /// Finds out what the key's next plan needs to know and no informer does; the controller keeps it.
    fn look_up<'a>(&'a self, _key: &Key, _client: &'a kube::Client) -> Option<BoxFuture<'a, ()>> {
        None
    }

    /// What the key wants now. Reads the informers, decides in a pure function.
    fn plan(&self, key: &Key, now: Timestamp) -> Plan;

    /// Counts a write, which worked or did not; informers do not show it yet.
    fn wrote(&self, _counters: &Counters, _key: &Key, _write: &Write, _failure: Option<&Failure>, _now: Timestamp) {}

    /// Counts a look at a key: these are the writes of its plan, and a failure of any write that came of it.
    fn reconciled(
        &self,
        _counters: &Counters,
        _key: &Key,
        _writes: &[Write],
        _failure: Option<&Failure>,
        _took: Duration,
    ) {
    }

    /// Status writes: asked for when the plan wrote nothing, or when a write failed.
    fn status(&self, _key: &Key, _now: Timestamp, _failure: Option<&Failure>) -> Vec<Write> {
        Vec::new()
    }
}

/// What a running controller is given.
#[derive(Clone)]
pub struct Environment {
    /// The controller's own identity.
    pub client: kube::Client,
    /// The shared informers.
    pub informers: Informers,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Where events go.
    pub recorder: Recorder,
    /// The counters of its queue.
    pub metrics: QueueMetrics,
    /// Ends the controller.
    pub shutdown: CancellationToken,
}

/// Connects informers to a controller's queue.
pub struct Wiring {
    queue: Arc<Queue<Key>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    counters: Arc<Counters>,
}

impl Wiring {
    /// For what is counted of changes.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Wakes the keys that `keys_of` names for each change.
    pub fn on<K: Object>(&mut self, informer: &Informer<K>, keys_of: impl Fn(&Change<K>) -> Vec<Key> + Send + 'static) {
        let soon = move |change: &Change<K>| keys_of(change).into_iter().map(|key| (key, Duration::ZERO)).collect();
        self.on_later(informer, soon);
    }

    /// Wakes keys some time after each change: the earliest of several times counts.
    pub fn on_later<K: Object>(
        &mut self,
        informer: &Informer<K>,
        keys_of: impl Fn(&Change<K>) -> Vec<(Key, Duration)> + Send + 'static,
    ) {
        let mut changes = informer.subscribe();
        let queue = self.queue.clone();
        let mut take_in = move |change: Change<K>| {
            let keys = keys_of(&change).into_iter();
            keys.for_each(|(key, delay)| queue.add_after(key, delay));
        };
        self.tasks.push(tokio::spawn(async move {
            loop {
                turn::each(changes.next().await, TURN, &mut take_in).await;
            }
        }));
    }

    /// Wakes the keys that `keys` names whenever the value changes.
    pub fn on_value<T: Send + Sync + 'static>(
        &mut self,
        mut value: watch::Receiver<T>,
        keys: impl Fn() -> Vec<Key> + Send + 'static,
    ) {
        let queue = self.queue.clone();
        self.tasks.push(tokio::spawn(async move {
            while value.changed().await.is_ok() {
                keys().into_iter().for_each(|key| queue.add(key));
            }
        }));
    }

    /// Wakes the controlling owner of a changed object and, for one without any, whoever selects it and so may adopt it.
    pub fn on_owned<K: Object, O: Object>(
        &mut self,
        informer: &Informer<K>,
        owners: &Informer<O>,
        kind: &'static str,
        selector_of: fn(&O) -> Option<Selector>,
    ) {
        let owners = owners.clone();
        self.on(informer, move |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let mut keys: Vec<Key> = sides
                .into_iter()
                .flatten()
                .filter_map(|object| controller_key(object, kind))
                .collect();
            let is_controlled = |object: &&K| {
                let mut references = object.meta().owner_references.iter().flatten();
                references.any(|owner| owner.controller == Some(true))
            };
            if let Some(orphan) = change.new.as_deref().filter(|object| !is_controlled(object)) {
                let labels = orphan.meta().labels.as_ref();
                let all = owners.list_namespace(&change.key.namespace);
                let selecting = all
                    .iter()
                    .filter(|owner| selector_of(owner).is_some_and(|selector| selector.matches_optional(labels)));
                keys.extend(selecting.map(|owner| Key::of(&**owner)));
            }
            keys
        });
    }

    /// Wakes the changed object's own key.
    pub fn on_self<K: Object>(&mut self, informer: &Informer<K>) {
        self.on(informer, |change| vec![change.key.clone()]);
    }
}

/// The object's controlling owner, if it is of that kind.
pub fn controller_key<K: kube::Resource>(object: &K, kind: &str) -> Option<Key> {
    let meta = object.meta();
    let owner = meta
        .owner_references
        .iter()
        .flatten()
        .find(|o| o.controller == Some(true) && o.kind == kind)?;
    Some(Key::new(meta.namespace.clone().unwrap_or_default(), owner.name.clone()))
}

fn is_deletion(write: &Write) -> bool {
    matches!(write.verb, Verb::Delete { .. })
}

struct Running<C> {
    controller: C,
    environment: Environment,
    queue: Arc<Queue<Key>>,
    failures: Mutex<BTreeMap<Key, u32>>,
    /// What each key wrote last.
    repeats: Mutex<Repeats>,
    /// Names chosen so far.
    named: AtomicU64,
}

/// Runs a controller until shutdown.
pub async fn run<C: Controller>(controller: C, environment: Environment) {
    let queue = Arc::new(Queue::counted(environment.metrics.clone()));
    let mut wiring = Wiring {
        queue: queue.clone(),
        tasks: Vec::new(),
        counters: Arc::clone(&environment.metrics.controllers),
    };
    controller.wire(&mut wiring);
    let shutdown = environment.shutdown.clone();
    let running = Running {
        controller,
        environment,
        queue,
        failures: Mutex::new(BTreeMap::new()),
        repeats: Mutex::default(),
        named: AtomicU64::new(0),
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = running.process_queue() => {}
    }
    wiring.tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

impl<C: Controller> Running<C> {
    async fn process_queue(&self) {
        self.environment.informers.synced().await;
        let mut reconciling = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(key) = reconciling.next(), if !reconciling.is_empty() => {
                    self.queue.done(&key);
                    // A plan that writes nothing waits for nothing either.
                    tokio::task::yield_now().await;
                }
                key = self.queue.next(), if reconciling.len() < C::AT_ONCE => reconciling.push(self.reconcile(key)),
            }
        }
    }

    async fn reconcile(&self, key: Key) -> Key {
        let began = Instant::now();
        let _work = self.environment.metrics.running.begin();
        if let Some(asking) = self.controller.look_up(&key, &self.environment.client) {
            asking.await;
        }
        let now = self.environment.clock.now();
        let Plan {
            writes,
            events,
            again_in,
        } = self.controller.plan(&key, now);
        events.into_iter().for_each(|e| self.environment.recorder.record(e));
        let wrote = !writes.is_empty();
        let mut failure = self.batches(&key, &writes).await;
        if !wrote || failure.is_some() {
            let status = self.controller.status(&key, now, failure.as_ref());
            let failed = self.batches(&key, &status).await;
            failure = failure.or(failed);
            self.pace(&key, &status, failure.as_ref());
        } else {
            self.pace(&key, &writes, None);
            // The status follows when the key is reconciled again, on informers that show the writes.
            self.queue.add(key.clone());
        }
        let (counters, took) = (&*self.environment.metrics.controllers, began.elapsed());
        self.controller
            .reconciled(counters, &key, &writes, failure.as_ref(), took);
        match failure {
            Some(failure) => {
                let delay = self.failed(&key);
                self.environment.metrics.retries.inc();
                tracing::debug!(controller = C::NAME, %key, message = failure.message, ?delay, "reconciling failed");
                self.queue.add_after(key.clone(), delay);
            }
            None => {
                self.succeeded(&key);
                if let Some(delay) = again_in {
                    self.queue.add_after(key.clone(), delay);
                }
            }
        }
        self.environment.metrics.work.observe(began.elapsed().as_secs_f64());
        key
    }

    /// Holds the key back where these writes, which worked, are the same again and again.
    fn pace(&self, key: &Key, writes: &[Write], failure: Option<&Failure>) {
        if failure.is_some() || writes.is_empty() {
            return;
        }
        let mut repeats = self.repeats.lock().expect("no holder of this lock panics");
        let wait = repeats.note(key, writes, (C::RETRY_FIRST, C::RETRY_MAX), Instant::now());
        drop(repeats);
        if let Some(wait) = wait {
            self.environment.metrics.retries.inc();
            tracing::warn!(controller = C::NAME, %key, ?wait, "what is written does not last: somebody else writes otherwise");
            self.queue.hold(key, wait);
        }
    }

    fn failed(&self, key: &Key) -> Duration {
        let mut failures = self.failures.lock().expect("no holder of this lock panics");
        let count = failures.entry(key.clone()).or_default();
        *count += 1;
        C::RETRY_FIRST
            .saturating_mul(1 << (*count - 1).min(20))
            .min(C::RETRY_MAX)
    }

    fn succeeded(&self, key: &Key) {
        self.failures.lock().expect("no holder of this lock panics").remove(key);
    }

    /// Does the writes in batches of 1, 2, 4, ...; stops after the first batch with a failure, but where each is a matter of its own
    /// (as deletions are, where nothing else is done, or the controller says so) and the server says no to this one. Where some give an
    /// owner what is nobody's, it is asked for first, once: informers may not show yet that it goes, and lets go of its own.
    async fn batches(&self, key: &Key, writes: &[Write]) -> Option<Failure> {
        if let Some(adopter) = writes.iter().find_map(|write| write.adopter.as_deref())
            && let Err(failure) = recheck(&self.environment.client, adopter).await
        {
            return Some(failure);
        }
        let each_alone = C::EACH_ALONE || writes.iter().all(is_deletion);
        let mut rest = writes;
        let mut size = 1;
        let mut first = None;
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(size.min(rest.len()));
            let done = join_all(batch.iter().map(|write| self.write(key, write))).await;
            let is_over = batch.iter().zip(&done).any(|(write, failure)| {
                let is_alone = each_alone || (C::DELETIONS_ALONE && is_deletion(write));
                let stops = |failure: &Failure| !(is_alone && failure.is_refusal());
                failure.as_ref().is_some_and(stops)
            });
            first = first.or(done.into_iter().flatten().next());
            if is_over {
                break;
            }
            (rest, size) = (after, (size * 2).min(BATCH));
        }
        first
    }

    /// Bits that no other creation of this process has, for a name.
    fn random(&self, write: &Write) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        (C::NAME, &write.key, self.environment.clock.now().as_nanosecond()).hash(&mut hasher);
        self.named.fetch_add(1, Ordering::Relaxed).hash(&mut hasher);
        hasher.finish()
    }

    async fn write(&self, key: &Key, write: &Write) -> Option<Failure> {
        let done = execute_once(&self.environment.client, write, || self.random(write)).await;
        let (counters, now) = (&*self.environment.metrics.controllers, self.environment.clock.now());
        self.controller.wrote(counters, key, write, done.as_ref().err(), now);
        match done {
            Ok(applied) => {
                self.tell(write.on_success.as_ref(), &applied.key().name);
                if let Applied::At { revision, .. } = &applied {
                    let mut repeats = self.repeats.lock().expect("no holder of this lock panics");
                    repeats.wrote(key, *revision);
                }
                self.environment.informers.reflect(&write.resource, &applied).await;
                self.trace(write, &applied);
                None
            }
            Err(failure) => {
                // Both are ordinary: somebody else wrote first, or an answer was late, and the next plan sees it.
                if failure.reason != "Conflict" && failure.reason != "AlreadyExists" {
                    self.tell(write.on_failure.as_ref(), &failure.message);
                }
                Some(failure)
            }
        }
    }

    fn trace(&self, write: &Write, applied: &Applied) {
        tracing::trace!(controller = C::NAME, resource = %write.resource.plural, key = %applied.key(), "wrote");
    }

    fn tell(&self, event: Option<&EventText>, filling: &str) {
        if let Some(event) = event {
            let mut event = event.clone();
            event.message = event.message.replacen("{}", filling, 1);
            self.environment.recorder.record(event);
        }
    }
}

#[cfg(test)]
mod tests;
