//! Who is served when there is more to do than can be done: places for requests, for their bodies and for their replies.
//!
//! Owns every limit on requests from the network. Places are priority levels' ([`fairness`]), by the stored flow schemas. Every
//! other limit is shared fairly by users ([`fair_queue`]), and what keeps the cluster alive (nodes, controllers, administrators) has
//! limits of its own ([`class`]). A body is read before its request takes a place, so that a slow sender holds up nobody; a place is
//! kept until the reply has been sent. Requests from within the process are bounded by their senders. Never decides what a request
//! may do.

mod allocation;
mod class;
mod counters;
mod demand;
mod dump;
mod fair_queue;
pub(super) mod fairness;
mod level;
mod limit;
mod queue_set;
mod schema;
mod spec;
mod width;

use super::request::{Query, RequestInfo};
use super::status::ApiError;
use super::user::User;
use class::Class;
pub(super) use fair_queue::{WAITING_MAX, WAITING_OF_USER};
use fairness::Fairness;
use jiff::Timestamp;
use level::{Asks, Detail, Place};
use limit::{Limit, Permit, Refused};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Limits of bytes count in kilobytes.
const UNIT_BYTES: usize = 1024;
/// Bodies of requests, read or being read: for the cluster's own parts and again for everybody else.
pub(super) const BODIES_BYTES: usize = 64 << 20;
/// Lists being sent, with what they keep from being forgotten: for the cluster's own parts and again for everybody else.
const REPLIES_BYTES: usize = 128 << 20;
/// One user may have a quarter of what a limit of bytes allows.
pub(super) const PARTS: usize = 4;
/// Watches under way of one user, of the cluster's own parts together (5,000 nodes have a dozen each), and of everybody else.
const WATCHES_OF_USER: usize = 1_000;
const WATCHES_VITAL: usize = 64_000;
const WATCHES: usize = 4_000;

/// Requests whose bodies take long to work on ([`super::heavy`]), at once: for the cluster's own parts and again for everybody
/// else. A user has one turn, so that they never have all processors.
const HEAVY: usize = 2;
/// How long a request waits for its place at most; less if a quarter of its time is less (upstream's).
const PATIENCE: Duration = Duration::from_secs(15);
/// The part of its time that a request waits at most.
const PATIENCE_PART: u32 = 4;
/// What begins the paths of [`Flow::dump`].
const DUMPS: &str = "/debug/api_priority_and_fairness/dump_";

/// The limits of one server.
pub(super) struct Flow {
    fairness: Fairness,
    vital: ClassLimits,
    others: ClassLimits,
    counts: Arc<Counts>,
}

/// The limits of one class of users, beside requests'.
struct ClassLimits {
    bodies: Limit,
    replies: Limit,
    watches: Limit,
    heavy: Limit,
    heavy_locked: Limit,
}

impl ClassLimits {
    fn new(watches: usize) -> Self {
        let limit = |bytes: usize| Limit::new(bytes / UNIT_BYTES, bytes / UNIT_BYTES / PARTS);
        Self {
            bodies: limit(BODIES_BYTES),
            replies: limit(REPLIES_BYTES),
            watches: Limit::new(watches, WATCHES_OF_USER),
            heavy: Limit::new(HEAVY, 1),
            heavy_locked: Limit::new(HEAVY, 1),
        }
    }
}

/// Requests that have a place now.
#[derive(Default)]
struct Counts {
    reads: AtomicUsize,
    writes: AtomicUsize,
}

/// A request's place; given back when dropped.
pub(super) struct Seat {
    counts: Arc<Counts>,
    is_read: bool,
    is_watch: bool,
    began: Instant,
    flow: Arc<fairness::Flow>,
    place: Place,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.counts.of(self.is_read).fetch_sub(1, Ordering::Relaxed);
        if let Some(counters) = self.flow.made_counters() {
            counters.executing.dec();
            counters.seats.dec_by(whole(self.place.seats()));
            counters.executed(self.is_watch, self.began.elapsed());
        }
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Counts {
    fn of(&self, is_read: bool) -> &AtomicUsize {
        if is_read { &self.reads } else { &self.writes }
    }
}

/// Bytes a body or reply may hold; given back when dropped.
pub(super) struct ByteReservation {
    _permit: Permit,
}

/// A turn to work on a large body; given back when dropped.
pub(super) struct HeavyTurn {
    _permit: Permit,
}

impl Flow {
    pub(super) fn new() -> Self {
        Self {
            fairness: Fairness::new(),
            vital: ClassLimits::new(WATCHES_VITAL),
            others: ClassLimits::new(WATCHES),
            counts: Arc::default(),
        }
    }

    /// Flow schemas and priority levels.
    fn fairness(&self) -> &Fairness {
        &self.fairness
    }

    /// What the request is sorted into, by the schemas there are now.
    pub(super) fn classify(&self, user: &User, info: &RequestInfo) -> Option<Arc<fairness::Flow>> {
        self.fairness.classify(user, info)
    }

    /// What waits where, if this is the path of one of upstream's three dumps.
    pub(super) fn dump(&self, path: &str, query: &Query, now: Timestamp) -> Option<String> {
        let what = path.strip_prefix(DUMPS)?;
        Some(match what {
            "priority_levels" => dump::priority_levels(&self.fairness.views(Detail::Numbers)),
            "queues" => dump::queues(&self.fairness.views(Detail::Queues)),
            "requests" => {
                let with_details = !query.text("includeRequestDetails").is_empty();
                let since = self.fairness.origin.elapsed();
                dump::requests(&self.fairness.views(Detail::Requests), with_details, now, since)
            }
            _ => return None,
        })
    }

    /// Adds what is counted of levels and schemas to `registry`, for one answer.
    pub(super) fn register(&self, registry: &mut Registry) {
        self.fairness.register(registry);
    }

    /// Requests under way now: reads, writes.
    pub(super) fn inflight(&self) -> (usize, usize) {
        (
            self.counts.reads.load(Ordering::Relaxed),
            self.counts.writes.load(Ordering::Relaxed),
        )
    }

    /// What replies under way are counted to hold, in bytes: at most twice [`REPLIES_BYTES`].
    #[cfg(test)]
    pub(super) fn reply_bytes(&self) -> usize {
        (self.vital.replies.taken() + self.others.replies.taken()) * UNIT_BYTES
    }

    /// What bodies under way are counted to hold, in bytes: at most twice [`BODIES_BYTES`].
    #[cfg(test)]
    pub(super) fn body_bytes(&self) -> usize {
        (self.vital.bodies.taken() + self.others.bodies.taken()) * UNIT_BYTES
    }

    fn class(&self, user: &User, info: &RequestInfo) -> &ClassLimits {
        match Class::of(user, info) {
            Class::Other => &self.others,
            Class::Exempt | Class::Vital => &self.vital,
        }
    }

    /// Waits until the request may run, which ends at `ends_at`; `stored` says how many objects its resource has.
    ///
    /// # Errors
    /// 429 when its turn does not come in time, or too many wait.
    pub(super) async fn seat(
        &self,
        flow: Arc<fairness::Flow>,
        (user, info, query): (&User, &RequestInfo, &Query),
        ends_at: Instant,
        stored: impl FnOnce() -> usize,
    ) -> Result<Seat, ApiError> {
        let came = Instant::now();
        let counters = flow.counters(&self.fairness.metrics);
        let most = flow.level.most_seats();
        let asks = Asks {
            schema: &flow.schema.name,
            distinguisher: flow.schema.distinguisher.of(user, info),
            user: &user.name,
            info,
            seats: width::seats(info, query, most, stored),
            patience: (ends_at.saturating_duration_since(came) / PATIENCE_PART).min(PATIENCE),
        };
        counters.estimated.observe(asks.seats as f64);
        let place = match flow.level.enter(asks, counters).await {
            Ok(place) => place,
            Err(reason) => {
                counters.rejected(reason);
                counters.waited_in_vain.observe(came.elapsed().as_secs_f64());
                return Err(refusal());
            }
        };
        counters.waited.observe(came.elapsed().as_secs_f64());
        counters.dispatched.inc();
        counters.executing.inc();
        counters.seats.inc_by(whole(place.seats()));
        let is_read = matches!(info.verb.as_str(), "get" | "list" | "watch" | "head" | "options");
        self.counts.of(is_read).fetch_add(1, Ordering::Relaxed);
        Ok(Seat {
            counts: Arc::clone(&self.counts),
            is_read,
            is_watch: info.verb == "watch",
            began: Instant::now(),
            flow,
            place,
        })
    }

    /// A place among the user's watches, which last too long to wait for.
    ///
    /// # Errors
    /// 429 when the user, or all users together, have as many as they may.
    pub(super) fn watch(&self, user: &User, info: &RequestInfo) -> Result<Option<ByteReservation>, ApiError> {
        if Class::of(user, info) == Class::Exempt {
            return Ok(None);
        }
        let permit = self.class(user, info).watches.try_enter(&name(user), 1);
        permit
            .map(|permit| Some(ByteReservation { _permit: permit }))
            .map_err(|Refused| refusal())
    }

    /// Waits for a turn to work on a large body.
    ///
    /// # Errors
    /// As [`Flow::seat`].
    pub(super) async fn heavy(&self, user: &User, info: &RequestInfo) -> Result<HeavyTurn, ApiError> {
        turn(&self.class(user, info).heavy, user).await
    }

    /// As [`Flow::heavy`], for whoever holds locks that others with a turn may be waiting for.
    ///
    /// # Errors
    /// As [`Flow::seat`].
    pub(super) async fn heavy_locked(&self, user: &User, info: &RequestInfo) -> Result<HeavyTurn, ApiError> {
        turn(&self.class(user, info).heavy_locked, user).await
    }

    /// Waits until there is room for a body of so many bytes.
    ///
    /// # Errors
    /// As [`Flow::seat`].
    pub(super) async fn body(
        &self,
        user: &User,
        info: &RequestInfo,
        bytes: usize,
    ) -> Result<ByteReservation, ApiError> {
        enter(&self.class(user, info).bodies, user, bytes).await
    }

    /// Whether somebody waits for room that a body of this user has: for the user's own, or for what all have together.
    pub(super) fn wants_room_of(&self, user: &User, info: &RequestInfo) -> bool {
        self.class(user, info).bodies.wants_units_of(&name(user))
    }

    /// Waits until there is room for a reply that holds so many bytes.
    ///
    /// # Errors
    /// As [`Flow::seat`].
    pub(super) async fn reply(
        &self,
        user: &User,
        info: &RequestInfo,
        bytes: usize,
    ) -> Result<ByteReservation, ApiError> {
        enter(&self.class(user, info).replies, user, bytes).await
    }
}

async fn turn(limit: &Limit, user: &User) -> Result<HeavyTurn, ApiError> {
    let permit = limit.enter(&name(user), 1).await;
    permit
        .map(|permit| HeavyTurn { _permit: permit })
        .map_err(|Refused| refusal())
}

async fn enter(limit: &Limit, user: &User, bytes: usize) -> Result<ByteReservation, ApiError> {
    let permit = limit.enter(&name(user), bytes.div_ceil(UNIT_BYTES)).await;
    permit
        .map(|permit| ByteReservation { _permit: permit })
        .map_err(|Refused| refusal())
}

fn name(user: &User) -> Arc<str> {
    Arc::from(user.name.as_str())
}

/// Upstream's words.
fn refusal() -> ApiError {
    let mut error = ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.");
    error.retry_after_seconds = Some(1);
    error
}

#[cfg(test)]
mod tests;
