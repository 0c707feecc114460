//! Graceful shutdown of the node: pods are ended within their grace before the machine goes down (kubelet contract §10, KEP-2000,
//! KEP-2712).
//!
//! Two futures of one task. `link` speaks to logind: it holds the lock that delays the machine's shutdown, and tells whether one
//! was asked for. `closing` owns the shutdown: the node's phase, which pods end when ([`plan`], pure), the record on disk, and when
//! the lock may go. Neither runs where no period is configured.
//!
//! Pods are ended as everything else ends them, by [`crate::eviction::Killer`]; here is only said whom it hits.

mod closing;
mod kept;
mod link;
pub mod logind;
mod plan;
mod record;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use closing::Shutdown;
pub use plan::{Period, Periods};

/// The node's condition, while it is being shut down.
pub const PROBLEM: &str = "node is shutting down";
/// What pods are told that the shutdown ends.
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Whether the machine is going down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No.
    #[default]
    Up,
    /// It is not known yet: new pods wait.
    Asking,
    /// Yes: pods end, and none is let in.
    ShuttingDown,
}

impl Phase {
    /// At a kubelet's start. With no period nobody will ever ask.
    pub fn at_start(periods: &Periods) -> Self {
        match periods.is_empty() {
            true => Self::Up,
            false => Self::Asking,
        }
    }
}
