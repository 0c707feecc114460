//! So many a second and so many at once: the token bucket behind `eventRecordQPS` and `registryPullQPS`.

use std::time::Duration;
use tokio::time::Instant;

/// How fast something may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Times a second; 0 means no bound.
    pub per_second: u32,
    /// Times at once.
    pub burst: u32,
}

impl Rate {
    /// No bound.
    pub const UNBOUND: Self = Self {
        per_second: 0,
        burst: 0,
    };
}

impl Default for Rate {
    /// Upstream's defaults for events (kubelet contract §1).
    fn default() -> Self {
        Self {
            per_second: 50,
            burst: 100,
        }
    }
}

/// A rate's memory.
#[derive(Debug)]
pub struct Bucket {
    rate: Rate,
    tokens: f64,
    refilled: Instant,
}

impl Bucket {
    /// A full bucket.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            tokens: f64::from(rate.burst),
            refilled: Instant::now(),
        }
    }

    /// Takes one time; the error tells how long until there is one.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        if self.rate.per_second == 0 {
            return Ok(());
        }
        let per_second = f64::from(self.rate.per_second);
        // Less than one at a time would be none at all.
        let burst = f64::from(self.rate.burst.max(1));
        let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.tokens = (self.tokens + passed * per_second).min(burst);
        self.refilled = now;
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / per_second));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_the_rate() {
        let mut bucket = Bucket::new(Rate {
            per_second: 5,
            burst: 10,
        });
        let begin = Instant::now();
        assert_eq!((0..20).filter(|_| bucket.take(begin).is_ok()).count(), 10);
        let wait = bucket.take(begin).expect_err("empty");
        assert_eq!(wait.as_millis(), 200);
        assert_eq!(bucket.take(begin + wait), Ok(()));
        assert!(bucket.take(begin + wait).is_err());
        let later = begin + Duration::from_secs(1000);
        assert_eq!((0..20).filter(|_| bucket.take(later).is_ok()).count(), 10);
        let mut unbound = Bucket::new(Rate::UNBOUND);
        assert!((0..1000).all(|_| unbound.take(begin).is_ok()));
    }
}
