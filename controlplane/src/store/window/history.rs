//! A resource's present and recent past (pure): the current map, the events that led to it, and snapshots in between.
//!
//! Owns which revisions can still be read. A past state is rebuilt by undoing events from the nearest later snapshot.

use super::{RevisionError, Stored};
use crate::store::{Change, Revision};
use imbl::OrdMap;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::time::Instant;

type Objects = OrdMap<Arc<str>, Arc<Stored>>;

/// A snapshot is kept every so many events.
const CHECKPOINT_EVERY: u64 = 256;
/// Stored bytes the events of one resource may hold on to.
const LIMIT_BYTES: usize = 16 << 20;
/// What an event costs beside the stored bytes, roughly.
const EVENT_BYTES: usize = 256;
/// Events a watcher copies at once.
const BATCH: usize = 128;

/// A change with what was there before, so that selectors can tell who enters and who leaves.
#[derive(Debug)]
pub struct Event {
    /// The revision of the write.
    pub revision: Revision,
    /// The object before; `None` if it was created.
    pub old: Option<Arc<Stored>>,
    /// The object after; `None` if it was deleted.
    pub new: Option<Arc<Stored>>,
}

/// A watcher fell behind what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchClosed;

pub(super) struct History {
    objects: Objects,
    /// Changes up to and including this revision are forgotten.
    trimmed: Revision,
    /// The revision of the newest event, or of the start.
    newest: Revision,
    /// Position of the first event kept.
    base: u64,
    events: VecDeque<(Instant, Arc<Event>)>,
    bytes: usize,
    /// (position, state before the event at it), ascending.
    checkpoints: VecDeque<(u64, Objects)>,
}

impl History {
    pub(super) fn new(objects: Objects, revision: Revision) -> Self {
        Self {
            objects,
            trimmed: revision,
            newest: revision,
            base: 0,
            events: VecDeque::new(),
            bytes: 0,
            checkpoints: VecDeque::new(),
        }
    }

    pub(super) fn objects(&self) -> Objects {
        self.objects.clone()
    }

    pub(super) fn newest(&self) -> Revision {
        self.newest
    }

    fn end(&self) -> u64 {
        self.base + self.events.len() as u64
    }

    pub(super) fn apply(&mut self, change: Change, now: Instant) {
        if self.end().is_multiple_of(CHECKPOINT_EVERY) {
            self.checkpoints.push_back((self.end(), self.objects.clone()));
        }
        let old = self.objects.get(&change.key).map(Arc::clone);
        let new = change.value.map(|value| {
            let created = match &old {
                Some(old) if !change.created => old.created,
                _ => change.revision,
            };
            Arc::new(Stored::new(Arc::clone(&change.key), change.revision, created, value))
        });
        match &new {
            Some(stored) => {
                self.objects.insert(change.key, Arc::clone(stored));
            }
            None => {
                self.objects.remove(&change.key);
            }
        }
        if let Some(old) = &old {
            old.forget_tree();
        }
        self.newest = change.revision;
        let event = Arc::new(Event {
            revision: change.revision,
            old,
            new,
        });
        self.bytes += cost(&event);
        self.events.push_back((now, event));
        while self.bytes > LIMIT_BYTES && self.events.len() > 1 {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((_, event)) = self.events.pop_front() else {
            return;
        };
        self.bytes -= cost(&event);
        self.trimmed = event.revision;
        self.base += 1;
        while self.checkpoints.front().is_some_and(|(at, _)| *at < self.base) {
            self.checkpoints.pop_front();
        }
    }

    pub(super) fn forget_before(&mut self, limit: Option<Instant>) {
        let Some(limit) = limit else { return };
        while self.events.front().is_some_and(|(at, _)| *at < limit) {
            self.forget_first();
        }
    }

    /// The position of the first event after `revision`.
    pub(super) fn position_after(&self, revision: Revision) -> Result<u64, RevisionError> {
        if revision < self.trimmed {
            return Err(RevisionError::Gone {
                wanted: revision,
                oldest: self.trimmed,
            });
        }
        let index = self.events.partition_point(|(_, event)| event.revision <= revision);
        Ok(self.base + index as u64)
    }

    /// The state at `revision`, which is not in the future.
    pub(super) fn at(&self, revision: Revision) -> Result<Objects, RevisionError> {
        let wanted = self.position_after(revision)?;
        let later = self.checkpoints.partition_point(|(at, _)| *at < wanted);
        let (mut position, mut objects) = match self.checkpoints.get(later) {
            Some((at, objects)) => (*at, objects.clone()),
            None => (self.end(), self.objects.clone()),
        };
        while position > wanted {
            position -= 1;
            let index = usize::try_from(position - self.base).unwrap_or(usize::MAX);
            let Some((_, event)) = self.events.get(index) else {
                break;
            };
            match (&event.old, &event.new) {
                (Some(old), _) => {
                    objects.insert(Arc::clone(&old.key), Arc::clone(old));
                }
                (None, Some(new)) => {
                    objects.remove(&new.key);
                }
                (None, None) => {}
            }
        }
        Ok(objects)
    }

    /// Some events from `position` on; empty when there is none yet.
    pub(super) fn batch(&self, position: u64) -> Result<Vec<Arc<Event>>, WatchClosed> {
        let skip = position.checked_sub(self.base).ok_or(WatchClosed)?;
        let skip = usize::try_from(skip).map_err(|_| WatchClosed)?;
        let events = self.events.iter().skip(skip).take(BATCH);
        Ok(events.map(|(_, event)| Arc::clone(event)).collect())
    }
}

fn cost(event: &Event) -> usize {
    EVENT_BYTES + event.new.as_ref().map_or(0, |new| new.raw().len())
}
