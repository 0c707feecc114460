//! One queue of a priority level: who waits in it, in order and by user. Pure; knows nothing of other queues.
//!
//! Each user's requests keep their order, and the first of each user is known, so that whoever may go on is found without walking
//! past all that a user who may have no more has put there.

use super::{EXPECTED, Ticket, work};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Somebody in a queue.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) user: Arc<str>,
    pub(super) seats: usize,
    /// The level's virtual time when he came.
    pub(super) arrived: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Ticket, Waiting>,
    users: BTreeMap<Arc<str>, BTreeSet<Ticket>>,
    /// The first of each user.
    fronts: BTreeSet<Ticket>,
    /// What those who wait want together.
    pub(super) wanted: usize,
    pub(super) executing: usize,
    pub(super) seats: usize,
    /// In microseconds times places.
    pub(super) virtual_start: u64,
}

impl Queue {
    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits or is worked on.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.executing == 0
    }

    /// Those of one user.
    pub(super) fn of_user(&self, user: &str) -> usize {
        self.users.get(user).map_or(0, BTreeSet::len)
    }

    /// Those who wait, with the places they want.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Ticket, usize)> {
        self.waiting.iter().map(|(ticket, waiting)| (*ticket, waiting.seats))
    }

    /// Somebody comes, after all others.
    pub(super) fn push(&mut self, ticket: Ticket, waiting: Waiting) {
        self.wanted += waiting.seats;
        let own = self.users.entry(Arc::clone(&waiting.user)).or_default();
        if own.is_empty() {
            self.fronts.insert(ticket);
        }
        own.insert(ticket);
        self.waiting.insert(ticket, waiting);
    }

    /// Somebody goes, wherever he was.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let gone = self.waiting.remove(&ticket)?;
        self.wanted -= gone.seats;
        if let Some(own) = self.users.get_mut(&gone.user) {
            own.remove(&ticket);
            if self.fronts.remove(&ticket) {
                self.fronts.extend(own.first());
            }
            if own.is_empty() {
                self.users.remove(&gone.user);
            }
        }
        Some(gone)
    }

    /// Who goes on next, with the places he wants: the first of those that are first of their user and `may`.
    pub(super) fn next(&self, may: impl Fn(&str, usize) -> bool) -> Option<(Ticket, usize)> {
        let mut fronts = self
            .fronts
            .iter()
            .filter_map(|ticket| Some((*ticket, self.waiting.get(ticket)?)));
        let (ticket, found) = fronts.find(|(_, waiting)| may(&waiting.user, waiting.seats))?;
        Some((ticket, found.seats))
    }

    /// One of its requests begins.
    pub(super) fn begin(&mut self, seats: usize) {
        self.virtual_start = self.virtual_start.saturating_add(work(seats, EXPECTED));
        self.executing += 1;
        self.seats += seats;
        self.catch_up();
    }

    /// One has ended and took that long.
    pub(super) fn end(&mut self, seats: usize, took: Duration) {
        self.executing -= 1;
        self.seats -= seats;
        let (took, expected) = (work(seats, took), work(seats, EXPECTED));
        self.virtual_start = self.virtual_start.saturating_add(took).saturating_sub(expected);
        self.catch_up();
    }

    /// Nothing begins before the first that waits came: no credit is saved up from before, as upstream.
    pub(super) fn catch_up(&mut self) {
        if let Some((_, first)) = self.waiting.first_key_value() {
            self.virtual_start = self.virtual_start.max(first.arrived);
        }
    }
}
