//! The ordered log of changes that a backend publishes once they are durable, and the streams that read it.
//!
//! Owns the order in which changes are seen. A stream holds a position, not a queue: a slow reader costs nothing, and one that
//! falls behind what is kept ([`LOG_BYTES`], and what compaction leaves) simply ends. A follower (the window) does not: what it
//! has not read is kept, and the writer waits for it. Never decides whether a write is allowed.

use super::{Change, Revision, Step, Steps, StoreError};
use futures::stream::{self, StreamExt};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How many changes a stream copies out of the log at once.
const BATCH: usize = 256;
/// How many changes are forgotten before who publishes has a turn.
const FORGET: usize = 1024;
/// What the log may hold on to. A reader that is so far behind is closed; writers wait for a follower that is.
pub const LOG_BYTES: usize = 16 << 20;
/// What a change costs beside its key and value, roughly.
const CHANGE_BYTES: usize = 128;
/// How often a waiting writer looks whether the store is being closed.
const CLOSE_CHECK: Duration = Duration::from_millis(100);

struct Log {
    /// Everything up to and including this revision is forgotten.
    compacted: Revision,
    /// One change per revision, starting at `compacted + 1`.
    changes: VecDeque<Change>,
    /// What the changes hold on to: at most [`LOG_BYTES`], unless a follower has more to read or one alone has more.
    bytes: usize,
    /// What each follower has read, by its number.
    followers: BTreeMap<u64, Revision>,
    next_follower: u64,
}

impl Log {
    /// Forgets the oldest changes until the rest fits, or a follower has not read the next one.
    fn trim(&mut self) {
        let unread = self.followers.values().min().copied().unwrap_or(Revision::MAX);
        while self.bytes > LOG_BYTES && self.changes.len() > 1 && self.compacted < unread {
            self.forget_first();
        }
    }

    /// Forgets the oldest change, if there is one.
    fn forget_first(&mut self) -> bool {
        let Some(change) = self.changes.pop_front() else {
            return false;
        };
        self.bytes -= cost(&change);
        self.compacted += 1;
        true
    }
}

fn cost(change: &Change) -> usize {
    CHANGE_BYTES + change.key.len() + change.value.as_ref().map_or(0, bytes::Bytes::len)
}

/// The log with its readers' wake-up; cheap to clone.
#[derive(Clone)]
pub struct Feed {
    log: Arc<Mutex<Log>>,
    newest: Arc<watch::Sender<Revision>>,
    /// Woken when a follower has read, or is gone.
    read: Arc<Condvar>,
}

impl Feed {
    /// A log that begins after `revision`.
    pub fn after(revision: Revision) -> Self {
        Self {
            log: Arc::new(Mutex::new(Log {
                compacted: revision,
                changes: VecDeque::new(),
                bytes: 0,
                followers: BTreeMap::new(),
                next_follower: 0,
            })),
            newest: Arc::new(watch::Sender::new(revision)),
            read: Arc::default(),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest published revision.
    pub fn newest(&self) -> Revision {
        *self.newest.borrow()
    }

    /// Appends changes whose revisions follow the newest one without a gap, then wakes the readers.
    pub fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        let newest = {
            let mut log = self.log();
            for change in changes {
                let next = log.compacted + log.changes.len() as u64 + 1;
                assert_eq!(change.revision, next, "revisions are published without gaps");
                log.bytes += cost(&change);
                log.changes.push_back(change);
            }
            log.trim();
            log.compacted + log.changes.len() as u64
        };
        self.newest.send_replace(newest);
    }

    /// Forgets changes up to and including `revision` (never beyond the newest).
    pub fn compact(&self, revision: Revision) {
        loop {
            let mut log = self.log();
            for _ in 0..FORGET {
                if log.compacted >= revision || !log.forget_first() {
                    return;
                }
            }
        }
    }

    /// Blocks until the log has space again: until the followers have read enough, or `is_closing` says that none will.
    pub fn wait_for_space(&self, is_closing: impl Fn() -> bool) {
        let mut log = self.log();
        while log.bytes > LOG_BYTES && !log.followers.is_empty() && !is_closing() {
            let woken = self.read.wait_timeout(log, CLOSE_CHECK);
            log = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Every change after `after` under `prefix`; ends when the reader falls behind what is kept, or the backend is dropped.
    pub fn stream(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        let reader = self.reader(after, false)?;
        let prefix = prefix.to_owned();
        let steps = reader.steps().map(move |mut step| {
            step.changes.retain(|change| change.key.starts_with(&prefix));
            Ok(step)
        });
        Ok(steps.boxed())
    }

    /// Every change after `after`, all of them: nothing is forgotten before this reader has read it.
    pub fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        Ok(self.reader(after, true)?.steps().map(Ok).boxed())
    }

    fn reader(&self, after: Revision, is_follower: bool) -> Result<Reader, StoreError> {
        let mut log = self.log();
        let oldest = log.compacted;
        if after < oldest {
            return Err(StoreError::Compacted { wanted: after, oldest });
        }
        let follower = is_follower.then_some(log.next_follower);
        if let Some(number) = follower {
            log.next_follower += 1;
            log.followers.insert(number, after);
        }
        Ok(Reader {
            log: Arc::clone(&self.log),
            read: Arc::clone(&self.read),
            newest: self.newest.subscribe(),
            seen: after,
            follower,
        })
    }
}

struct Reader {
    log: Arc<Mutex<Log>>,
    read: Arc<Condvar>,
    newest: watch::Receiver<Revision>,
    seen: Revision,
    /// Its number among the followers, if it is one.
    follower: Option<u64>,
}

impl Reader {
    fn steps(self) -> impl stream::Stream<Item = Step> + Send {
        stream::unfold(self, |mut reader| async move {
            let step = reader.next_step().await?;
            Some((step, reader))
        })
    }

    async fn next_step(&mut self) -> Option<Step> {
        loop {
            if *self.newest.borrow_and_update() <= self.seen {
                self.newest.changed().await.ok()?;
                continue;
            }
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let skip = usize::try_from(self.seen.checked_sub(log.compacted)?).ok()?;
            let changes: Vec<Change> = log.changes.iter().skip(skip).take(BATCH).cloned().collect();
            self.seen = changes.last()?.revision;
            if let Some(number) = self.follower {
                log.followers.insert(number, self.seen);
                log.trim();
                self.read.notify_all();
            }
            return Some(Step {
                revision: self.seen,
                changes,
            });
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(number) = self.follower else { return };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.followers.remove(&number);
        log.trim();
        self.read.notify_all();
    }
}

#[cfg(test)]
mod tests;
