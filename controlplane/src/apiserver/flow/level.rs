//! One priority level at work: the acting half of [`QueueSet`].
//!
//! Owns the level's lock and those who wait in it. A [`Place`] gives its seats back when it is dropped, wherever it has gone, and
//! whoever stops waiting (time, a client that has gone) leaves his queue. A level that is deleted goes on until it is empty.

use super::allocation::{Bounds, Claim, smoothed};
use super::counters::FlowCounters;
use super::demand::{Demand, Integrator};
use super::queue_set::{Held, Offer, QueueSet, QueueView, Reason, Ticket, Turn};
use super::spec::LevelSpec;
use super::width;
use crate::apiserver::request::RequestInfo;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Empty queues are shown of levels with as many at most.
const QUEUES_SHOWN: usize = 1024;

/// The hash a flow's queues are dealt by: the same in every process.
pub(super) fn flow_hash(schema: &str, distinguisher: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (schema, distinguisher).hash(&mut hasher);
    hasher.finish()
}

/// Bytes that are kept of a name, path or selector of somebody who waits: his head may be large, and the same is known of it here.
const SHOWN_MAX: usize = 253;

/// As much of a text as is shown of it.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(SHOWN_MAX)].to_owned()
}

/// What is shown of a request that waits.
fn shown(info: &RequestInfo) -> RequestInfo {
    RequestInfo {
        verb: cut(&info.verb),
        path: cut(&info.path),
        namespace: cut(&info.namespace),
        name: cut(&info.name),
        group: cut(&info.group),
        version: cut(&info.version),
        resource: cut(&info.resource),
        subresource: cut(&info.subresource),
        ..RequestInfo::default()
    }
}

/// How much of a level is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Detail {
    Numbers,
    /// Its queues as well.
    Queues,
    /// And those who wait in them.
    Requests,
}

/// What a request asks a level for.
pub(super) struct Asks<'a> {
    pub(super) schema: &'a str,
    pub(super) distinguisher: &'a str,
    pub(super) user: &'a str,
    pub(super) info: &'a RequestInfo,
    pub(super) seats: usize,
    /// How long it waits at most.
    pub(super) patience: Duration,
}

/// A request that waits, as it is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    pub(super) schema: String,
    pub(super) distinguisher: String,
    pub(super) user: String,
    pub(super) info: RequestInfo,
    /// Since the server began.
    pub(super) arrived: Duration,
}

/// What a level has at the moment.
#[derive(Clone, Debug, Default)]
pub(super) struct LevelView {
    pub(super) name: Arc<str>,
    pub(super) is_idle: bool,
    pub(super) is_quiescing: bool,
    pub(super) waiting: usize,
    pub(super) executing: usize,
    pub(super) bounds: Bounds,
    pub(super) limit: usize,
    pub(super) demand: Demand,
    pub(super) smoothed: f64,
    pub(super) target: f64,
    /// Queues in which something waits.
    pub(super) active: usize,
    pub(super) queues: Vec<QueueView>,
    pub(super) notes: BTreeMap<Ticket, Arc<Note>>,
    /// Requests so far: let in, sent away, gone after waiting too long, gone by themselves.
    pub(super) counts: [u64; 4],
}

/// See the module.
pub(super) struct Level {
    pub(super) name: Arc<str>,
    origin: Instant,
    /// Beside the lock, for it is read first.
    most_seats: AtomicUsize,
    inner: Mutex<Inner>,
}

fn most_seats(spec: &LevelSpec, bounds: Bounds) -> usize {
    match spec.queuing {
        Some(queuing) if !spec.is_exempt => width::most_of(bounds.nominal, queuing.hand_size),
        _ => width::SEATS_MAX,
    }
}

struct Inner {
    set: QueueSet,
    waiting: BTreeMap<Ticket, (oneshot::Sender<Place>, Arc<Note>)>,
    spec: LevelSpec,
    bounds: Bounds,
    limit: usize,
    demand: Integrator,
    last: Demand,
    smoothed: f64,
    target: f64,
    is_quiescing: bool,
    /// Whether its places are what was shared out, and no more what it began with.
    is_shared: bool,
    counts: [u64; 4],
}

/// Seats of a level, until it is dropped.
pub(super) struct Place {
    level: Arc<Level>,
    held: Held,
}

impl Place {
    pub(super) fn seats(&self) -> usize {
        self.held.seats
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.level.now();
        let mut inner = self.level.inner();
        let turns = inner.set.leave(&self.held, now);
        inner.note_demand(now);
        drop(inner);
        self.level.tell(turns);
    }
}

impl Inner {
    fn note_demand(&mut self, now: Duration) {
        self.demand.set(self.set.demand(), now);
    }

    fn count(&mut self, reason: Option<Reason>) {
        let [dispatched, rejected, timed_out, cancelled] = &mut self.counts;
        let count = match reason {
            None => dispatched,
            Some(Reason::TimeOut) => timed_out,
            Some(Reason::Cancelled) => cancelled,
            Some(Reason::QueueFull | Reason::ConcurrencyLimit) => rejected,
        };
        *count += 1;
    }
}

impl Level {
    /// A level that has its nominal places at first.
    pub(super) fn new(name: &str, origin: Instant, spec: &LevelSpec, bounds: Bounds) -> Self {
        let inner = Inner {
            set: QueueSet::new(spec.is_exempt, spec.queuing, bounds.nominal),
            waiting: BTreeMap::new(),
            spec: spec.clone(),
            bounds,
            limit: bounds.nominal,
            demand: Integrator::new(origin.elapsed()),
            last: Demand::default(),
            smoothed: 0.0,
            target: 0.0,
            is_quiescing: false,
            is_shared: false,
            counts: [0; 4],
        };
        Self {
            name: name.into(),
            origin,
            most_seats: AtomicUsize::new(most_seats(spec, bounds)),
            inner: Mutex::new(inner),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// What it is to be.
    pub(super) fn spec(&self) -> LevelSpec {
        self.inner().spec.clone()
    }

    /// Its share of the server's places.
    pub(super) fn nominal(&self) -> usize {
        self.inner().bounds.nominal
    }

    /// The seats one of its requests takes at most.
    pub(super) fn most_seats(&self) -> usize {
        self.most_seats.load(Ordering::Relaxed)
    }

    /// Whether a level that is to end has nobody in it, and nobody on his way to it: a request keeps its level from when it is sorted
    /// into it. For whoever has the only configuration with this level.
    pub(super) fn is_over(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.inner().set.is_idle()
    }

    /// Whether it ends as soon as nobody is in it.
    pub(super) fn is_quiescing(&self) -> bool {
        self.inner().is_quiescing
    }

    /// What it is to be from now on. What it has borrowed or lent stays so as far as its bounds allow.
    pub(super) fn configure(self: &Arc<Self>, spec: &LevelSpec, bounds: Bounds, is_quiescing: bool) {
        let now = self.now();
        self.most_seats.store(most_seats(spec, bounds), Ordering::Relaxed);
        let mut inner = self.inner();
        inner.is_quiescing = is_quiescing;
        if inner.spec == *spec && inner.bounds == bounds {
            return;
        }
        if inner.bounds != bounds {
            inner.limit = match inner.is_shared {
                true => {
                    let limit = inner.limit.clamp(bounds.lower, bounds.upper.max(bounds.lower));
                    limit.max(bounds.nominal.min(1))
                }
                false => bounds.nominal,
            };
        }
        inner.spec = spec.clone();
        inner.bounds = bounds;
        let limit = inner.limit;
        let turns = inner.set.configure(spec.queuing, limit, now);
        drop(inner);
        self.tell(turns);
    }

    /// What the level claims of the server's places; for the next period, if one is over.
    pub(super) fn claim(&self, is_over: bool) -> Claim {
        let now = self.now();
        let mut inner = self.inner();
        if is_over {
            inner.last = inner.demand.take(now);
            inner.smoothed = smoothed(inner.smoothed, inner.last.average, inner.last.deviation);
        }
        // What it used of its own stays its own, lent out before or not.
        let own = inner.last.high.min(inner.bounds.nominal as f64);
        let lower = own.max(inner.bounds.lower as f64);
        inner.target = inner.smoothed.max(lower).max(1.0);
        Claim {
            lower,
            upper: inner.bounds.upper as f64,
            target: inner.target,
        }
    }

    /// Its places from now on.
    pub(super) fn set_limit(self: &Arc<Self>, limit: usize) {
        let now = self.now();
        let mut inner = self.inner();
        inner.is_shared = true;
        // Who has a share has a place, whatever he has lent.
        let limit = limit.max(inner.bounds.nominal.min(1));
        if inner.limit == limit {
            return;
        }
        inner.limit = limit;
        let (queuing, limit) = (inner.spec.queuing, inner.limit);
        let turns = inner.set.configure(queuing, limit, now);
        drop(inner);
        self.tell(turns);
    }

    /// Waits for seats.
    ///
    /// # Errors
    /// Why there are none in time.
    pub(super) async fn enter(self: &Arc<Self>, asks: Asks<'_>, counters: &FlowCounters) -> Result<Place, Reason> {
        let began = self.now();
        let hash = flow_hash(asks.schema, asks.distinguisher);
        let (ticket, queue, turn) = {
            let mut inner = self.inner();
            let (offer, turns) = inner.set.arrive(hash, asks.user, asks.seats, began);
            let waits = match offer {
                Offer::Enter(held) => {
                    inner.count(None);
                    Ok(Place {
                        level: Arc::clone(self),
                        held,
                    })
                }
                Offer::Refuse(reason) => {
                    inner.count(Some(reason));
                    drop(inner);
                    self.tell(turns);
                    return Err(reason);
                }
                Offer::Wait(ticket, queue) => {
                    let (sender, turn) = oneshot::channel();
                    let note = Note {
                        schema: cut(asks.schema),
                        distinguisher: cut(asks.distinguisher),
                        user: cut(asks.user),
                        info: shown(asks.info),
                        arrived: began,
                    };
                    inner.waiting.insert(ticket, (sender, Arc::new(note)));
                    Err((ticket, queue, turn))
                }
            };
            inner.note_demand(began);
            drop(inner);
            self.tell(turns);
            match waits {
                Ok(place) => return Ok(place),
                Err(waits) => waits,
            }
        };
        counters.queued.inc();
        let mut waiting = InLine {
            level: self,
            counters,
            ticket,
            queue,
            reason: Reason::Cancelled,
        };
        match tokio::time::timeout(asks.patience, turn).await {
            Ok(Ok(place)) => Ok(place),
            _ => {
                waiting.reason = Reason::TimeOut;
                Err(Reason::TimeOut)
            }
        }
    }

    /// Hands their places to those whose turn it is. Not under the lock: who has gone meanwhile gives his back at once.
    fn tell(self: &Arc<Self>, turns: Vec<Turn>) {
        for Turn { ticket, held } in turns {
            let found = {
                let mut inner = self.inner();
                inner.count(None);
                inner.waiting.remove(&ticket)
            };
            let place = Place {
                level: Arc::clone(self),
                held,
            };
            if let Some((sender, _)) = found {
                // Whoever gave up meanwhile drops it, which lets the next one in.
                let _ = sender.send(place);
            }
        }
    }

    /// What it has now.
    pub(super) fn view(&self, detail: Detail) -> LevelView {
        let inner = self.inner();
        let notes = match detail >= Detail::Requests {
            true => inner
                .waiting
                .iter()
                .map(|(ticket, (_, note))| (*ticket, Arc::clone(note)))
                .collect(),
            false => BTreeMap::new(),
        };
        LevelView {
            name: Arc::clone(&self.name),
            is_idle: inner.set.is_idle(),
            is_quiescing: inner.is_quiescing,
            waiting: inner.set.waiting(),
            executing: inner.set.executing(),
            bounds: inner.bounds,
            limit: inner.limit,
            demand: inner.last,
            smoothed: inner.smoothed,
            target: inner.target,
            active: inner.set.active(),
            queues: match detail >= Detail::Queues {
                true => inner.set.view(QUEUES_SHOWN),
                false => Vec::new(),
            },
            notes,
            counts: inner.counts,
        }
    }
}

/// Somebody in line; leaves it when he stops waiting.
struct InLine<'a> {
    level: &'a Arc<Level>,
    counters: &'a FlowCounters,
    ticket: Ticket,
    queue: usize,
    reason: Reason,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.counters.queued.dec();
        let now = self.level.now();
        let turns = {
            let mut inner = self.level.inner();
            // Gone from the list: it was his turn.
            if inner.waiting.remove(&self.ticket).is_none() {
                return;
            }
            let turns = inner.set.give_up(self.queue, self.ticket, now);
            inner.count(Some(self.reason));
            inner.note_demand(now);
            turns
        };
        if self.reason == Reason::Cancelled {
            self.counters.rejected(Reason::Cancelled);
        }
        self.level.tell(turns);
    }
}
