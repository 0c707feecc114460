//! Who is served when there is more to do than can be done: places for requests, for their bodies and for their replies.
//!
//! Owns every limit on requests from the network. Each limit is shared fairly by users ([`fair_queue`]), requests have one limit
//! per level ([`level`]), and what keeps the cluster alive (nodes, controllers, administrators) has limits of its own. A body is
//! read before its request takes a place, so that a slow sender holds up nobody; a place is kept until the reply has been sent.
//! Requests from within the process are bounded by their senders. Never decides what a request may do.

mod fair_queue;
mod level;
mod limit;

use super::request::RequestInfo;
use super::status::ApiError;
use super::user::User;
pub(super) use fair_queue::{WAITING_MAX, WAITING_OF_USER};
use level::Level;
use limit::{Limit, Permit, Refused};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The limits of one server.
pub(super) struct Flow {
    levels: Vec<(Level, Limit)>,
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
}

impl ClassLimits {
    fn new(watches: usize) -> Self {
        let limit = |bytes: usize| Limit::new(bytes / UNIT_BYTES, bytes / UNIT_BYTES / PARTS);
        Self {
            bodies: limit(BODIES_BYTES),
            replies: limit(REPLIES_BYTES),
            watches: Limit::new(watches, WATCHES_OF_USER),
            heavy: Limit::new(HEAVY, 1),
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
    _permit: Option<Permit>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.counts.of(self.is_read).fetch_sub(1, Ordering::Relaxed);
    }
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
        let level = |level: Level| (level, Limit::new(level.seats(), level.seats().div_ceil(2)));
        Self {
            levels: Level::LIMITED.into_iter().map(level).collect(),
            vital: ClassLimits::new(WATCHES_VITAL),
            others: ClassLimits::new(WATCHES),
            counts: Arc::default(),
        }
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
        match Level::of(user, info) {
            Level::WorkloadLow | Level::GlobalDefault => &self.others,
            _ => &self.vital,
        }
    }

    /// Waits until the request may run.
    ///
    /// # Errors
    /// 429 when its turn does not come in time, or too many wait.
    pub(super) async fn seat(&self, user: &User, info: &RequestInfo) -> Result<Seat, ApiError> {
        let own = Level::of(user, info);
        let limit = self.levels.iter().find(|(level, _)| *level == own);
        let permit = match limit {
            Some((_, limit)) => Some(limit.enter(&name(user), 1).await.map_err(|Refused| refusal())?),
            None => None,
        };
        let is_read = matches!(info.verb.as_str(), "get" | "list" | "watch" | "head" | "options");
        self.counts.of(is_read).fetch_add(1, Ordering::Relaxed);
        Ok(Seat {
            counts: Arc::clone(&self.counts),
            is_read,
            _permit: permit,
        })
    }

    /// A place among the user's watches, which last too long to wait for.
    ///
    /// # Errors
    /// 429 when the user, or all users together, have as many as they may.
    pub(super) fn watch(&self, user: &User, info: &RequestInfo) -> Result<Option<ByteReservation>, ApiError> {
        if Level::of(user, info) == Level::Exempt {
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
        let permit = self.class(user, info).heavy.enter(&name(user), 1).await;
        permit
            .map(|permit| HeavyTurn { _permit: permit })
            .map_err(|Refused| refusal())
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
