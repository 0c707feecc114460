//! The places of one priority level: who goes on, who waits in which queue, who is sent away. Pure; the time is passed in.
//!
//! A flow is dealt a hand of the level's queues by its hash and waits in the one with least to do (shuffle sharding, KEP-1040), so
//! that a flow with much to do fills its own queues and hardly another's. Queues are served by start-time fair queueing: each has a
//! virtual time that moves on by the work done for it (places times time, [`EXPECTED`] at first and what it really was in the
//! end), the level's is that of the queue served last, and the queue that is furthest behind comes next.
//! Beyond upstream, no user has more than half of the level's places, because a place is kept until the reply has been read: who
//! reads nothing leaves places to others, and room in the queues: one who has his half fills half of a queue at most, and a full
//! queue refuses nobody who finds a place at once. Owns no lock, knows nobody who waits but by his ticket.

mod queue;

use super::spec::Queuing;
use queue::{Queue, Waiting};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most queues in a hand: more would take more bits than a hash has (validation refuses them).
pub(super) const HAND_MAX: usize = 32;
/// Requests of one level that wait at most, however long its queues may be.
pub(super) const WAITING_MAX: usize = 16_384;
/// How long a request is taken to last, as upstream.
const EXPECTED: Duration = Duration::from_millis(3);

/// Somebody who waits.
pub(super) type Ticket = u64;

/// Why a request is sent away, as its metric says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    QueueFull,
    ConcurrencyLimit,
    TimeOut,
    Cancelled,
}

/// What a request has while it is worked on.
#[derive(Debug)]
pub(super) struct Held {
    /// Where it is counted; nowhere at a level that had no queues when it came.
    queue: Option<usize>,
    user: Arc<str>,
    pub(super) seats: usize,
    began: Duration,
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Offer {
    Enter(Held),
    /// It waits in a queue.
    Wait(Ticket, usize),
    Refuse(Reason),
}

/// Somebody's turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) ticket: Ticket,
    pub(super) held: Held,
}

/// One queue as it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QueueView {
    pub(super) index: usize,
    /// With the places they want, the first one first.
    pub(super) waiting: Vec<(Ticket, usize)>,
    pub(super) executing: usize,
    pub(super) seats: usize,
    /// Seconds times places.
    pub(super) virtual_start: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct QueueSet {
    is_exempt: bool,
    queuing: Option<Queuing>,
    limit: usize,
    seats: usize,
    executing: usize,
    waiting: usize,
    /// What those want together.
    wanted: usize,
    virtual_time: u64,
    /// Those in which something waits or is worked on.
    queues: BTreeMap<usize, Queue>,
    /// Places by user.
    users: BTreeMap<Arc<str>, usize>,
    next_ticket: Ticket,
    /// Hands dealt so far: where the next one is looked at first.
    dealt: usize,
}

fn work(seats: usize, time: Duration) -> u64 {
    let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    time.saturating_mul(seats as u64)
}

/// The hand of queues that a hash is dealt: different ones, each as likely as any other.
fn hand(mut hash: u64, queues: usize, size: usize) -> ([usize; HAND_MAX], usize) {
    let mut hand = [0; HAND_MAX];
    let size = size.min(queues).min(HAND_MAX);
    for dealt in 0..size {
        let left = (queues - dealt) as u64;
        // Of those that are left, in their order.
        let mut card = usize::try_from(hash % left).unwrap_or_default();
        hash /= left;
        let (before, rest) = hand.split_at_mut(dealt);
        before.sort_unstable();
        for &mut taken in before {
            if card >= taken {
                card += 1;
            }
        }
        if let Some(place) = rest.first_mut() {
            *place = card;
        }
    }
    (hand, size)
}

impl QueueSet {
    /// A level of `limit` places; without any, nobody goes on.
    pub(super) fn new(is_exempt: bool, queuing: Option<Queuing>, limit: usize) -> Self {
        Self {
            is_exempt,
            queuing,
            limit,
            seats: 0,
            executing: 0,
            waiting: 0,
            wanted: 0,
            virtual_time: 0,
            queues: BTreeMap::new(),
            users: BTreeMap::new(),
            next_ticket: 0,
            dealt: 0,
        }
    }

    /// Places taken.
    #[cfg(test)]
    pub(super) fn seats(&self) -> usize {
        self.seats
    }

    /// Requests that are worked on.
    pub(super) fn executing(&self) -> usize {
        self.executing
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Places that are taken or waited for.
    pub(super) fn demand(&self) -> usize {
        self.seats + self.wanted
    }

    /// Whether nothing waits or is worked on.
    pub(super) fn is_idle(&self) -> bool {
        self.executing == 0 && self.waiting == 0
    }

    /// Other places and queues from now on; who waits stays where he is. Gives who goes on because of it.
    pub(super) fn configure(&mut self, queuing: Option<Queuing>, limit: usize, now: Duration) -> Vec<Turn> {
        self.queuing = queuing;
        self.limit = limit;
        self.dispatch(now)
    }

    /// A request of a flow (by its hash) and a user wants places.
    pub(super) fn arrive(&mut self, hash: u64, user: &str, seats: usize, now: Duration) -> (Offer, Vec<Turn>) {
        if self.is_exempt {
            self.seats += seats;
            self.executing += 1;
            let user = Arc::default();
            return (
                Offer::Enter(Held {
                    queue: None,
                    user,
                    seats,
                    began: now,
                }),
                Vec::new(),
            );
        }
        let Some(queuing) = self.queuing else {
            if !self.fits(seats) || !self.may_have(user, seats) {
                return (Offer::Refuse(Reason::ConcurrencyLimit), Vec::new());
            }
            let user = self.user(user);
            return (Offer::Enter(self.enter(None, user, seats, now)), Vec::new());
        };
        let index = self.choose(hash, queuing);
        let is_capped = !self.may_have(user, seats);
        if self.waiting == 0 && self.fits(seats) && !is_capped {
            self.activate(index);
            let user = self.user(user);
            return (Offer::Enter(self.enter(Some(index), user, seats, now)), Vec::new());
        }
        let (length, own) = self
            .queues
            .get(&index)
            .map_or((0, 0), |queue| (queue.len(), queue.of_user(user)));
        let is_full = length >= queuing.length || self.waiting >= WAITING_MAX;
        let has_his_part = is_capped && own >= queuing.length.div_ceil(2);
        if has_his_part || (is_full && (is_capped || !self.fits(seats))) {
            return (Offer::Refuse(Reason::QueueFull), Vec::new());
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.activate(index);
        let (user, arrived) = (self.user(user), self.virtual_time);
        if let Some(queue) = self.queues.get_mut(&index) {
            queue.push(ticket, Waiting { user, seats, arrived });
        }
        self.waiting += 1;
        self.wanted += seats;
        let mut turns = self.dispatch(now);
        match turns.iter().position(|turn| turn.ticket == ticket) {
            Some(own) => (Offer::Enter(turns.remove(own).held), turns),
            None if is_full => {
                self.remove(index, ticket);
                (Offer::Refuse(Reason::QueueFull), turns)
            }
            None => (Offer::Wait(ticket, index), turns),
        }
    }

    /// A request has been answered. Gives whose turn it is.
    pub(super) fn leave(&mut self, held: &Held, now: Duration) -> Vec<Turn> {
        self.seats -= held.seats;
        self.executing -= 1;
        if self.is_exempt {
            return Vec::new();
        }
        if let Some(taken) = self.users.get_mut(&held.user) {
            *taken -= held.seats;
            if *taken == 0 {
                self.users.remove(&held.user);
            }
        }
        if let Some(index) = held.queue {
            if let Some(queue) = self.queues.get_mut(&index) {
                queue.end(held.seats, now.saturating_sub(held.began));
            }
            self.forget(index);
        }
        self.dispatch(now)
    }

    /// Somebody waits no longer. Gives whose turn it is because of that.
    pub(super) fn give_up(&mut self, index: usize, ticket: Ticket, now: Duration) -> Vec<Turn> {
        self.remove(index, ticket);
        self.dispatch(now)
    }

    /// Takes somebody out of his queue.
    fn remove(&mut self, index: usize, ticket: Ticket) -> Option<Waiting> {
        let queue = self.queues.get_mut(&index)?;
        let gone = queue.remove(ticket);
        queue.catch_up();
        if let Some(gone) = &gone {
            self.waiting -= 1;
            self.wanted -= gone.seats;
        }
        self.forget(index);
        gone
    }

    /// Queues in which something waits.
    pub(super) fn active(&self) -> usize {
        self.queues.values().filter(|queue| queue.len() > 0).count()
    }

    /// What each queue has, where there is something; empty ones as well as long as they are no more than `most`.
    pub(super) fn view(&self, most: usize) -> Vec<QueueView> {
        let queues = self.queuing.map_or(0, |queuing| queuing.queues);
        let shown: std::collections::BTreeSet<usize> = match queues <= most {
            true => (0..queues).chain(self.queues.keys().copied()).collect(),
            false => self.queues.keys().copied().collect(),
        };
        let view = |index: usize| match self.queues.get(&index) {
            None => QueueView {
                index,
                ..QueueView::default()
            },
            Some(queue) => QueueView {
                index,
                waiting: queue.waiting().collect(),
                executing: queue.executing,
                seats: queue.seats,
                virtual_start: queue.virtual_start as f64 / 1e6,
            },
        };
        shown.into_iter().map(view).collect()
    }

    /// One place is always had by whoever comes first, or what is too wide would never go.
    fn fits(&self, seats: usize) -> bool {
        self.limit > 0 && (self.seats == 0 || self.seats + seats <= self.limit)
    }

    fn may_have(&self, user: &str, seats: usize) -> bool {
        may_have(&self.users, self.limit, user, seats)
    }

    /// The name as others of this user have it.
    fn user(&self, name: &str) -> Arc<str> {
        let known = self.users.get_key_value(name).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| Arc::from(name))
    }

    /// The queue of the flow's hand that has least to do; of several, not always the same.
    fn choose(&mut self, hash: u64, queuing: Queuing) -> usize {
        let (hand, size) = hand(hash, queuing.queues, queuing.hand_size);
        self.dealt = self.dealt.wrapping_add(1);
        let (before, after) = hand.split_at(size).0.split_at(self.dealt % size.max(1));
        let load = |index: &&usize| {
            let queue = self.queues.get(*index);
            queue.map_or((false, 0), |queue| {
                (queue.len() >= queuing.length, queue.wanted + queue.seats)
            })
        };
        let least = after.iter().chain(before).min_by_key(load);
        least.copied().unwrap_or_default()
    }

    /// A queue in which nothing waited begins no earlier than the level is.
    fn activate(&mut self, index: usize) {
        let queue = self.queues.entry(index).or_default();
        if queue.len() == 0 {
            queue.virtual_start = queue.virtual_start.max(self.virtual_time);
        }
    }

    fn forget(&mut self, index: usize) {
        if self.queues.get(&index).is_some_and(Queue::is_idle) {
            self.queues.remove(&index);
        }
    }

    fn enter(&mut self, index: Option<usize>, user: Arc<str>, seats: usize, now: Duration) -> Held {
        self.seats += seats;
        self.executing += 1;
        *self.users.entry(Arc::clone(&user)).or_default() += seats;
        if let Some(queue) = index.and_then(|index| self.queues.get_mut(&index)) {
            self.virtual_time = self.virtual_time.max(queue.virtual_start);
            queue.begin(seats);
        }
        Held {
            queue: index,
            user,
            seats,
            began: now,
        }
    }

    fn dispatch(&mut self, now: Duration) -> Vec<Turn> {
        let mut turns = Vec::new();
        while self.waiting > 0 && self.seats < self.limit {
            let (users, limit, virtual_time) = (&self.users, self.limit, self.virtual_time);
            let candidates = self.queues.iter_mut().filter_map(|(index, queue)| {
                let Some((ticket, seats)) = queue.next(|user, seats| may_have(users, limit, user, seats)) else {
                    // Kept back by its users' part of the level and not by others: it saves up no credit meanwhile.
                    if queue.len() > 0 {
                        queue.virtual_start = queue.virtual_start.max(virtual_time);
                    }
                    return None;
                };
                Some((queue.virtual_start, ticket, *index, seats))
            });
            let next = candidates.min();
            // Who is next and finds too little waits for more; nobody passes him.
            let Some((_, ticket, index, _)) = next.filter(|next| self.fits(next.3)) else {
                break;
            };
            let Some(next) = self.queues.get_mut(&index).and_then(|queue| queue.remove(ticket)) else {
                break;
            };
            self.waiting -= 1;
            self.wanted -= next.seats;
            let held = self.enter(Some(index), next.user, next.seats, now);
            turns.push(Turn { ticket, held });
        }
        turns
    }
}

/// One place is had by any user, more only up to half of the level's.
fn may_have(users: &BTreeMap<Arc<str>, usize>, limit: usize, user: &str, seats: usize) -> bool {
    let taken = users.get(user).copied().unwrap_or(0);
    taken == 0 || taken + seats <= limit.div_ceil(2)
}

#[cfg(test)]
mod tests;
