//! One write on its way to the writer (pure).

use crate::store::{Expect, Revision, StoreError};
use bytes::Bytes;
use tokio::sync::oneshot;

/// What is done to a key.
pub(super) enum Operation {
    Put {
        value: Bytes,
        expect: Expect,
        is_for_deletion: bool,
    },
    Delete {
        expect: Revision,
    },
}

/// A write that waits, and who waits for it.
pub(super) struct Job {
    pub(super) key: String,
    pub(super) write: Operation,
    pub(super) reply: oneshot::Sender<Result<Revision, StoreError>>,
}

impl Job {
    /// The length of what it writes.
    pub(super) fn bytes(&self) -> usize {
        match &self.write {
            Operation::Put { value, .. } => value.len(),
            Operation::Delete { .. } => 0,
        }
    }
}
