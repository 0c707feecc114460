//! A reader's position in the changes of one resource.
//!
//! Owns the position and nothing else: events stay in the shared history, and a reader that falls behind what is kept there is
//! told so. What it says about completeness ([`Batch::complete_to`]) is decided under the history's lock, so that it holds
//! whatever writers and wake-ups do meanwhile.

use super::history::WatchClosed;
use super::{Event, ResourceWindow, Revision, RevisionError};
use std::sync::Arc;
use tokio::sync::watch;

/// Some changes of a resource, in order.
#[derive(Debug)]
pub struct Batch {
    /// The changes; none if there is nothing new.
    pub events: Vec<Arc<Event>>,
    /// With these events the reader has seen every change up to this revision, and may resume there. `None` while there is
    /// more to read.
    pub complete_to: Option<Revision>,
}

/// See the module.
pub struct Cursor {
    resource: Arc<ResourceWindow>,
    changed: watch::Receiver<u64>,
    position: u64,
}

impl Cursor {
    pub(super) fn after(resource: &Arc<ResourceWindow>, after: Revision) -> Result<Self, RevisionError> {
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
        let history = self.resource.history();
        let events = history.batch(self.position)?;
        self.position += events.len() as u64;
        let complete_to = (self.position == history.end()).then(|| applied.max(history.newest()));
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
