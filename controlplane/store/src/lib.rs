//! Revisions: etcd's semantics behind one trait, the backend in memory, and what every backend must do.
//!
//! Owns what a write, a watch and a revision are. Never interprets a value: what an object means is the API server's.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use std::sync::Arc;

#[cfg(any(test, feature = "test-util"))]
pub mod around;
#[cfg(any(test, feature = "test-util"))]
#[allow(clippy::unwrap_used, reason = "a suite of tests: what fails ends it")]
pub mod conformance;
pub mod feed;
pub mod form;
pub mod memory;
pub mod unreadable;

/// A store-wide revision, counted from 1; each write through this trait makes exactly one (control-plane contract §10). What others
/// do to a shared backend may write several keys at one.
pub type Revision = u64;

/// A key with its value, as of some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Full key, such as `/registry/pods/default/web`.
    pub key: Arc<str>,
    /// Stored bytes.
    pub value: Bytes,
    /// Revision of the key's creation.
    pub created: Revision,
    /// Revision of the last write.
    pub modified: Revision,
}

/// One write, as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The write's revision.
    pub revision: Revision,
    /// Full key.
    pub key: Arc<str>,
    /// The new value; `None` when the key was deleted.
    pub value: Option<Bytes>,
    /// Whether the key did not exist before.
    pub created: bool,
}

/// What a watch tells at once: all there is up to a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whoever has taken this step has seen every change up to this revision, and may go on from it. It may be newer than the newest
    /// change: what made it was none of the watch's.
    pub revision: Revision,
    /// The changes since the step before, in order. Several may have one revision, which is never split between steps.
    pub changes: Vec<Change>,
}

/// A watch: steps without end. The first error is its last item and says why it ended; one that ends without an error is of a store
/// that has been closed, or of a reader that fell behind what is kept.
pub type Steps = BoxStream<'static, Result<Step, StoreError>>;

/// A write of before, by what it took the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The write's revision.
    pub revision: Revision,
    /// Full key.
    pub key: Arc<str>,
    /// Whether the key was deleted.
    pub is_deletion: bool,
    /// What was there before; `None` if the key was created.
    pub old: Option<Record>,
}

/// Precondition of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key must not exist.
    Absent,
    /// The key's last write must be this revision.
    At(Revision),
}

impl Expect {
    /// Whether the precondition holds for a key whose last write is `current` (`None`: no such key).
    pub fn holds(self, current: Option<Revision>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::At(revision) => current == Some(revision),
        }
    }
}

/// Why a store operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The precondition did not hold; carries what is there now.
    #[error("precondition failed for {key}")]
    Conflict {
        /// The key.
        key: String,
        /// The present record, if the key exists.
        current: Option<Record>,
    },
    /// The revision has been compacted away.
    #[error("revision {wanted} has been compacted; the oldest is {oldest}")]
    Compacted {
        /// The revision asked for.
        wanted: Revision,
        /// The oldest revision still there.
        oldest: Revision,
    },
    /// The data are of an older format than this binary's, which it reads only once they are upgraded.
    #[error(
        "data in {} has format {format}, older than {present}: it has to be upgraded first",
        directory.display()
    )]
    Older {
        /// The data directory.
        directory: std::path::PathBuf,
        /// The format found.
        format: u64,
        /// The format of this binary.
        present: u64,
    },
    /// The store cannot be opened or used; the text names the path and the reason.
    #[error("{0}")]
    Unusable(String),
    /// The disk is nearly full: what would add to it is refused, reads and deletions go on.
    #[error(
        "no space left for {}: {free_mib} MiB are free, and writes are refused below {reserve_mib} MiB",
        directory.display()
    )]
    Full {
        /// The data directory.
        directory: std::path::PathBuf,
        /// Free space in MiB.
        free_mib: u64,
        /// Free space below which nothing is added, in MiB.
        reserve_mib: u64,
    },
    /// The store cannot be reached or has no quorum; nothing has been written. It may be back in a moment.
    #[error("{0}")]
    Unavailable(String),
    /// Whether the write has been done is not known, and could not be found out.
    #[error("{0}")]
    OutcomeUnknown(String),
    /// Nothing is written here at present, as the text says why; nothing has been written.
    #[error("{0}")]
    ReadOnly(String),
    /// The store refused, and would again.
    #[error("{0}")]
    Refused(String),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

/// A key-value store with etcd's semantics: one global revision per write, conditional writes, ordered watches.
///
/// Backends: `memory` (tests), `disk` (the default), `etcd`. Readers see nothing before it is durable. No method has a default: a store
/// around a store that forgot one would silently be less than what it stands around. Tests' own use [`around::Around`].
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes `value` if `expect` holds; returns the write's revision.
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError>;

    /// As [`Store::put`] over the revision `expect`, for what frees space, now or later: a smaller value, a step of
    /// the key's deletion. A backend that refuses what would add to a nearly full disk ([`StoreError::Full`]) takes it for longer,
    /// unless the object keeps growing.
    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError>;

    /// As [`Store::put`], if in the same moment the last write of each of the keys `unchanged` is still that revision: what the write
    /// was judged by. Where one is not, the conflict names that key. Only what is shared needs it ([`Store::is_shared`]).
    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError>;

    /// Whether other processes may write here at the same time. What locks of one process keep apart has to be claimed in the store then.
    fn is_shared(&self) -> bool;

    /// Deletes the key if its last write is `expect`; returns the deletion's revision.
    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError>;

    /// Every record under `prefix` in key order, with the revision the answer is from.
    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError>;

    /// The record of a key.
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError>;

    /// Whether the key's value of this revision would be stored as other bytes if it were written again: with another key, in another
    /// form. Then a write that changes nothing is made all the same.
    async fn is_stale(&self, key: &str, revision: Revision) -> bool;

    /// Every change after revision `after` under `prefix`, each once and in order, without end. That `after` has been compacted away
    /// is said here, or by the first item.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError>;

    /// As [`Store::watch`] of everything, for a reader that must not miss anything and always reads on: the backend keeps what it
    /// has not read, and may hold writes back meanwhile.
    async fn follow(&self, after: Revision) -> Result<Steps, StoreError>;

    /// What the backend remembers of the writes of before it was opened, the oldest first and the newest of all the last; told once.
    /// Nothing where it remembers none, or not all of them.
    async fn remembered(&self) -> Vec<Replaced>;

    /// The newest durable revision (linearizable).
    async fn current_revision(&self) -> Result<Revision, StoreError>;

    /// Whether writes can be taken, as far as can be told at once.
    ///
    /// # Errors
    /// `Closed` if nobody is there to take them.
    fn check(&self) -> Result<(), StoreError>;

    /// A reader without which nothing can be served has ended: there is no going on. A backend that ends the process when it fails
    /// itself does so now.
    fn fail(&self, error: &StoreError);

    /// Forgets history up to and including `revision`.
    async fn compact(&self, revision: Revision) -> Result<(), StoreError>;

    /// The reader of everything has read up to `revision`: a backend of this process alone needs its history no more. One that others
    /// read too decides by itself when it compacts.
    async fn has_read(&self, revision: Revision) -> Result<(), StoreError>;
}
