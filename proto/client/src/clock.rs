//! The seam for wall time. Durations and timers use `tokio::time`; only *what time it is* is asked here.

use k8s_openapi::jiff::Timestamp;
#[cfg(any(test, feature = "test-util"))]
use std::time::Duration;
#[cfg(any(test, feature = "test-util"))]
use tokio::time::Instant;

/// Tells the wall-clock time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that follows tokio's time from a given start, so a paused runtime moves wall time and timers together.
#[cfg(any(test, feature = "test-util"))]
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Timestamp,
    origin: Instant,
}

#[cfg(any(test, feature = "test-util"))]
impl TokioClock {
    /// A clock that reads `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self {
            start,
            origin: Instant::now(),
        }
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let elapsed: Duration = self.origin.elapsed();
        self.start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wall_time_follows_the_paused_clock() {
        let clock = TokioClock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().as_second(), 90);
    }
}
