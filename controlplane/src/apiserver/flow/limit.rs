//! Waiting for a share of a limit, and giving it back: the acting half of [`FairQueue`].
//!
//! Owns a queue's lock and those who wait. A [`Permit`] gives its units back when it is dropped, wherever it has gone.

use super::fair_queue::{FairQueue, Offer, Ticket};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a request waits for its turn before it is told to come back.
const PATIENCE: Duration = Duration::from_secs(15);

/// The limit had nothing free in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// One limit with those who wait for it; cheap to clone.
#[derive(Clone)]
pub(super) struct Limit {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    queue: FairQueue,
    waiting: HashMap<Ticket, oneshot::Sender<Permit>>,
}

/// Units of a limit, until it is dropped.
pub(super) struct Permit {
    limit: Limit,
    user: Arc<str>,
    cost: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let entered = self.limit.inner().queue.leave(&self.user, self.cost);
        self.limit.tell(entered);
    }
}

impl Limit {
    pub(super) fn new(units: usize, units_of_user: usize) -> Self {
        let inner = Inner {
            queue: FairQueue::new(units, units_of_user),
            waiting: HashMap::new(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Units taken now.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.inner().queue.taken()
    }

    /// Whether somebody waits for units that this user has.
    pub(super) fn wants_units_of(&self, user: &str) -> bool {
        self.inner().queue.wants_units_of(user)
    }

    /// Waits for `units`, or for as many as one user may have if that is less.
    pub(super) async fn enter(&self, user: &Arc<str>, units: usize) -> Result<Permit, Refused> {
        let (ticket, turn, cost) = {
            let mut inner = self.inner();
            let cost = inner.queue.cost(units);
            match inner.queue.offer(user, cost) {
                Offer::Enter => {
                    drop(inner);
                    return Ok(self.permit(user, cost));
                }
                Offer::Refuse => return Err(Refused),
                Offer::Wait { ticket, instead } => {
                    if let Some(instead) = instead {
                        // Its receiver sees the sender go.
                        inner.waiting.remove(&instead);
                    }
                    let (sender, turn) = oneshot::channel();
                    inner.waiting.insert(ticket, sender);
                    (ticket, turn, cost)
                }
            }
        };
        let _waiting = Waiting {
            limit: self,
            user,
            ticket,
        };
        debug_assert!(cost > 0 || units == 0, "some units are asked for");
        match tokio::time::timeout(PATIENCE, turn).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Refused),
        }
    }

    /// As [`Limit::enter`], but waits for nothing.
    pub(super) fn try_enter(&self, user: &Arc<str>, units: usize) -> Result<Permit, Refused> {
        let mut inner = self.inner();
        let cost = inner.queue.cost(units);
        match inner.queue.offer(user, cost) {
            Offer::Enter => {
                drop(inner);
                Ok(self.permit(user, cost))
            }
            Offer::Refuse => Err(Refused),
            Offer::Wait { ticket, instead } => {
                if let Some(instead) = instead {
                    inner.waiting.remove(&instead);
                }
                let entered = inner.queue.give_up(user, ticket);
                drop(inner);
                self.tell(entered);
                Err(Refused)
            }
        }
    }

    fn permit(&self, user: &Arc<str>, cost: usize) -> Permit {
        Permit {
            limit: self.clone(),
            user: Arc::clone(user),
            cost,
        }
    }

    /// Hands their permits to those who have entered. Not under the lock: who has gone meanwhile gives his back at once.
    fn tell(&self, entered: Vec<(Ticket, Arc<str>, usize)>) {
        for (ticket, user, cost) in entered {
            let sender = self.inner().waiting.remove(&ticket);
            let permit = self.permit(&user, cost);
            if let Some(sender) = sender {
                // Whoever gave up meanwhile drops it, which lets the next one in.
                let _ = sender.send(permit);
            }
        }
    }
}

/// Somebody in line; leaves it when he stops waiting.
struct Waiting<'a> {
    limit: &'a Limit,
    user: &'a Arc<str>,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let entered = {
            let mut inner = self.limit.inner();
            // Gone from the list: he has entered, or was sent away.
            match inner.waiting.remove(&self.ticket) {
                Some(_) => inner.queue.give_up(self.user, self.ticket),
                None => return,
            }
        };
        self.limit.tell(entered);
    }
}
