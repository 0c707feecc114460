//! How files are read for all who read logs: a block at a time, a few blocks at once, so that no reader keeps other file work of this
//! process waiting, and one that nobody waits for any more ends with its block.

use super::watch::Watches;
use std::io;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Blocks that are read at once, each on a thread.
pub(super) const READS_MAX: usize = 8;

/// What readers of logs share.
#[derive(Clone, Debug)]
pub(super) struct LogFiles {
    reads: Arc<Semaphore>,
    /// Tells of changes to files.
    pub(super) watches: Watches,
}

impl Default for LogFiles {
    fn default() -> Self {
        Self::reading(READS_MAX)
    }
}

impl LogFiles {
    /// So many blocks at once.
    pub(super) fn reading(most: usize) -> Self {
        Self {
            reads: Arc::new(Semaphore::new(most)),
            watches: Watches::default(),
        }
    }

    /// Does a short piece of file work in its turn. It is not begun when the future is dropped before.
    ///
    /// # Errors
    /// The work's, or that the process ends.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.reads.clone().acquire_owned().await.map_err(io::Error::other)?;
        let done = client::blocking::spawn(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await.map_err(io::Error::other)?
    }
}
