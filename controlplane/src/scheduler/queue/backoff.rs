//! How long pods wait after failures. Pure.

use std::time::Duration;

/// The times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffTimes {
    /// After the first; it doubles with each.
    pub first: Duration,
    /// At most.
    pub cap: Duration,
}

impl Default for BackoffTimes {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            cap: Duration::from_secs(10),
        }
    }
}

impl BackoffTimes {
    /// After a failure that so many of its kind came before.
    pub(super) fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.min(20)).min(self.cap)
    }
}
