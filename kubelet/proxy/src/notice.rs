//! What the run loop tells: that changes wait, that they are in the kernel, that they could not be brought there.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use crate::model::Snapshot;

/// One finished write.
#[derive(Clone, Debug)]
pub struct Synced {
    /// What the kernel serves now.
    pub snapshot: Arc<Snapshot>,
    /// What it served before; `None` for the first write of this process, when what the kernel's connections were made by
    /// is not known.
    pub previous: Option<Arc<Snapshot>>,
    /// Everything was written anew (first start, a table that was gone, other settings).
    pub full: bool,
    /// When the oldest change in this write became known, if a change caused it.
    pub queued_at: Option<Instant>,
    /// How long deciding and writing took.
    pub duration: Duration,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A change waits to be written since then; told once until the next write.
    Queued(Instant),
    /// All changes known are in the kernel.
    Synced(Synced),
    /// A write failed and will be tried again.
    Failed(String),
}

/// Called by the run loop, in order, on its own task: it must not block.
pub type Observer = Arc<dyn Fn(&Notice) + Send + Sync>;
