//! What the run loop tells: that changes wait, that they are in the kernel, that they could not be brought there.

use client::informer::Change;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use crate::model::{ServiceName, Snapshot};

/// The annotation of EndpointSlices with the time of the last change of a pod or Service that changed them.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

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

/// Objects that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// How many Services.
    pub services: usize,
    /// How many EndpointSlices.
    pub slices: usize,
    /// When what changed these slices happened, where they tell.
    pub triggers: Vec<Timestamp>,
}

impl Changed {
    /// Services changed.
    pub fn services(changes: &[Change<Service>]) -> Self {
        Self {
            services: changes.len(),
            ..Self::default()
        }
    }

    /// EndpointSlices changed.
    pub fn slices(changes: &[Change<EndpointSlice>]) -> Self {
        let trigger = |change: &Change<EndpointSlice>| {
            let annotations = change.new.as_ref()?.metadata.annotations.as_ref()?;
            annotations.get(TRIGGER)?.parse().ok()
        };
        Self {
            slices: changes.len(),
            triggers: changes.iter().filter_map(trigger).collect(),
            ..Self::default()
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Objects changed; [`Notice::Queued`] follows, unless a change waits already.
    Changed(Changed),
    /// A change waits to be written since then; told once until the next write.
    Queued(Instant),
    /// All changes known are in the kernel.
    Synced(Synced),
    /// A Service has so many more endpoints than are used of it; told once until it has fewer.
    Crowded(ServiceName, usize),
    /// A Service is not served at its addresses from outside: those of its namespace's Services are more than this number of elements. Told
    /// once until it is.
    Without(ServiceName, usize),
    /// A Service has ports of SCTP, which this kernel does not follow; told once until it has none.
    Unfollowed(ServiceName),
    /// The kernel follows so many connections, and has no room for more; told once until it has.
    Full(u64),
    /// So many clients of Services with session affinity are remembered in a family that there is hardly room for more; told once until there is.
    Forgets {
        /// IPv4, or IPv6.
        v4: bool,
        /// How many.
        clients: usize,
    },
    /// A write failed and will be tried again.
    Failed(String),
}

/// Called by the run loop, in order, on its own task: it must not block.
pub type Observer = Arc<dyn Fn(&Notice) + Send + Sync>;
