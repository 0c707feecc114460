//! The ordered log of changes that a backend publishes once they are durable, and the streams that read it.
//!
//! Owns the order in which changes are seen. A stream holds a position, not a queue: a slow reader costs nothing, and one that
//! falls behind what is kept ([`LOG_BYTES`], and what compaction leaves) simply ends. Never decides whether a write is allowed.

use super::{Change, Revision, StoreError};
use futures::stream::{self, BoxStream, StreamExt};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How many changes a stream copies out of the log at once.
const BATCH: usize = 256;
/// What the log may hold on to. A reader that is so far behind is closed; the window then reads everything anew.
pub(super) const LOG_BYTES: usize = 16 << 20;
/// What a change costs beside its key and value, roughly.
const CHANGE_BYTES: usize = 128;

struct Log {
    /// Everything up to and including this revision is forgotten.
    compacted: Revision,
    /// One change per revision, starting at `compacted + 1`.
    changes: VecDeque<Change>,
    /// What the changes hold on to, at most [`LOG_BYTES`] unless one alone has more.
    bytes: usize,
}

impl Log {
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
pub(super) struct Feed {
    log: Arc<Mutex<Log>>,
    newest: Arc<watch::Sender<Revision>>,
}

impl Feed {
    /// A log that begins after `revision`.
    pub(super) fn after(revision: Revision) -> Self {
        Self {
            log: Arc::new(Mutex::new(Log {
                compacted: revision,
                changes: VecDeque::new(),
                bytes: 0,
            })),
            newest: Arc::new(watch::Sender::new(revision)),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest published revision.
    pub(super) fn newest(&self) -> Revision {
        *self.newest.borrow()
    }

    /// Appends changes whose revisions follow the newest one without a gap, then wakes the readers.
    pub(super) fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        let newest = {
            let mut log = self.log();
            for change in changes {
                let next = log.compacted + log.changes.len() as u64 + 1;
                assert_eq!(change.revision, next, "revisions are published without gaps");
                log.bytes += cost(&change);
                log.changes.push_back(change);
            }
            while log.bytes > LOG_BYTES && log.changes.len() > 1 {
                log.forget_first();
            }
            log.compacted + log.changes.len() as u64
        };
        self.newest.send_replace(newest);
    }

    /// Forgets changes up to and including `revision` (never beyond the newest).
    pub(super) fn compact(&self, revision: Revision) {
        let mut log = self.log();
        while log.compacted < revision && log.forget_first() {}
    }

    /// Every change after `after` under `prefix`; ends when the reader falls behind what is kept, or the backend is dropped.
    pub(super) fn stream(&self, prefix: &str, after: Revision) -> Result<BoxStream<'static, Change>, StoreError> {
        let oldest = self.log().compacted;
        if after < oldest {
            return Err(StoreError::Compacted { wanted: after, oldest });
        }
        let reader = Reader {
            log: Arc::clone(&self.log),
            newest: self.newest.subscribe(),
            seen: after,
        };
        let prefix = prefix.to_owned();
        let batches = stream::unfold(reader, |mut reader| async move {
            let batch = reader.next_batch().await?;
            Some((stream::iter(batch), reader))
        });
        let changes = batches
            .flatten()
            .filter(move |change| std::future::ready(change.key.starts_with(&prefix)));
        Ok(changes.boxed())
    }
}

struct Reader {
    log: Arc<Mutex<Log>>,
    newest: watch::Receiver<Revision>,
    seen: Revision,
}

impl Reader {
    async fn next_batch(&mut self) -> Option<Vec<Change>> {
        loop {
            if *self.newest.borrow_and_update() <= self.seen {
                self.newest.changed().await.ok()?;
                continue;
            }
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let skip = usize::try_from(self.seen.checked_sub(log.compacted)?).ok()?;
            let batch: Vec<Change> = log.changes.iter().skip(skip).take(BATCH).cloned().collect();
            drop(log);
            self.seen = batch.last()?.revision;
            return Some(batch);
        }
    }
}
