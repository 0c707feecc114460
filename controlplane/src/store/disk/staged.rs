//! A batch of writes between their being applied and their being durable.

use crate::store::{Change, Revision, StoreError};

/// What a writer is told.
pub(super) type Answer = Result<Revision, StoreError>;

/// A batch that has been applied and is not on disk.
pub(super) struct Staged {
    pub(super) transaction: redb::WriteTransaction,
    pub(super) changes: Vec<Change>,
    pub(super) answers: Vec<Answer>,
}

impl Staged {
    /// Makes it durable; gives what readers and writers are told then.
    pub(super) fn commit(self) -> Result<(Vec<Change>, Vec<Answer>), redb::Error> {
        if self.changes.is_empty() {
            self.transaction.abort()?;
        } else {
            self.transaction.commit()?;
        }
        Ok((self.changes, self.answers))
    }
}
