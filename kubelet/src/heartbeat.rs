//! The sign of life of the loop that gives every pod its worker (`syncloop` among upstream's health checks).
//!
//! Owned by that loop alone; whoever answers `/healthz` or systemd's watchdog only reads it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The least time a loop may take before it counts as stuck (kubelet contract §4.1).
const LIMIT_MIN: Duration = Duration::from_secs(300);

/// A loop's sign of life. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    last: Arc<Mutex<Instant>>,
    limit: Duration,
}

/// The loop has not come around for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sync Loop took longer than expected")]
pub struct Stuck;

impl Heartbeat {
    /// Of a loop that is to look at everything once per `sync_frequency`; it begins now.
    pub fn new(sync_frequency: Duration) -> Self {
        Self {
            last: Arc::new(Mutex::new(Instant::now())),
            limit: (sync_frequency * 2).max(LIMIT_MIN),
        }
    }

    /// The loop comes around.
    pub fn beat(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long the loop may sleep: often enough to be seen alive.
    pub fn period(&self) -> Duration {
        self.limit / 5
    }

    /// Whether the loop lives.
    pub fn check(&self) -> Result<(), Stuck> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() > self.limit {
            Err(Stuck)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stands_still_is_stuck_until_it_comes_around() {
        let heartbeat = Heartbeat::new(Duration::from_secs(200));
        let of_the_loop = heartbeat.clone();
        tokio::time::advance(Duration::from_secs(399)).await;
        assert_eq!(heartbeat.check(), Ok(()));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(heartbeat.check(), Err(Stuck));
        of_the_loop.beat();
        assert_eq!(heartbeat.check(), Ok(()));
        assert_eq!(Heartbeat::new(Duration::from_secs(10)).limit, LIMIT_MIN);
    }
}
