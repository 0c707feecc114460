//! Ending pods that use more of the node than they may.
//!
//! Owns the kills the node decides, which [`crate::pod::workers`] hands to the pods' workers: one way to die, as for every other
//! reason. Today these are pods that outgrow limits of their own ([`local_storage`]); pods that must go because the node runs
//! short of something have their place beside it.

mod decide;
pub mod local_storage;

use crate::id::PodUid;
use crate::pod::worker::Kill;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pods the node ends, until nothing of them is left.
pub type Kills = Arc<BTreeMap<PodUid, Kill>>;
