//! A reader's position in the changes of one resource.
//!
//! Owns the position and nothing else: a reader that wants few of the events ([`Interest`]) reads all until it has seen the newest,
//! and from then on hears of those alone. Events stay in the shared history, and a reader that falls behind what is kept there is
//! told so. What it says about completeness ([`Batch::complete_to`]) is decided under the history's lock, so that it holds
//! whatever writers and wake-ups do meanwhile.

use super::history::WatchClosed;
use super::interest::Interest;
use super::{Event, ResourceWindow, Revision, RevisionError};
use std::sync::Arc;
use tokio::sync::watch;

/// Some changes of a resource, in order.
#[derive(Debug)]
pub struct Batch {
    /// The changes that may matter to the reader; none if there is nothing new.
    pub events: Vec<Arc<Event>>,
    /// With these events the reader has seen every change that matters up to this revision, and may resume there. `None` while there is
    /// more to read.
    pub complete_to: Option<Revision>,
}

/// See the module.
pub struct Cursor {
    resource: Arc<ResourceWindow>,
    changed: watch::Receiver<u64>,
    position: u64,
    interest: Option<Interest>,
    /// Whether the interest's own wake-ups are waited for.
    has_joined: bool,
}

impl Cursor {
    pub(super) fn after(
        resource: &Arc<ResourceWindow>,
        after: Revision,
        interest: Option<Interest>,
    ) -> Result<Self, RevisionError> {
        let changed = resource.changed.subscribe();
        let current = resource.cached().revision;
        if after > current {
            return Err(RevisionError::Future { wanted: after, current });
        }
        let position = resource.history().position_after(after)?;
        Ok(Self {
            resource: Arc::clone(resource),
            changed,
            position,
            interest,
            has_joined: false,
        })
    }

    /// What there is to read now, without waiting.
    ///
    /// # Errors
    /// If changes not read yet are no longer kept.
    pub fn take(&mut self) -> Result<Batch, WatchClosed> {
        // Both before the lock. What changes afterwards wakes the next wait, and every change up to a revision that is applied
        // is in the history already; the history may be ahead of it, in the middle of a group of writes.
        self.changed.borrow_and_update();
        let applied = *self.resource.applied.borrow();
        let mut history = self.resource.history();
        let (events, next) = match &self.interest {
            Some(interest) if self.has_joined => history.batch_of(interest, self.position)?,
            _ => history.batch(self.position)?,
        };
        self.position = next;
        let is_complete = next == history.end();
        if let Some(interest) = self.interest.as_ref().filter(|_| is_complete && !self.has_joined) {
            let (interests, end) = history.interests();
            self.changed = interests.join(interest, end);
            self.has_joined = true;
        }
        let complete_to = is_complete.then(|| applied.max(history.newest()));
        Ok(Batch { events, complete_to })
    }

    /// As [`Cursor::take`], but waits until there is an event.
    ///
    /// # Errors
    /// As [`Cursor::take`], and when the store is closed.
    pub async fn next(&mut self) -> Result<Batch, WatchClosed> {
        loop {
            let batch = self.take()?;
            if !batch.events.is_empty() {
                return Ok(batch);
            }
            self.changed.changed().await.map_err(|_| WatchClosed)?;
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(interest) = self.interest.as_ref().filter(|_| self.has_joined) {
            self.resource.history().interests().0.leave(interest);
        }
    }
}
