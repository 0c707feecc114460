//! So many a second and so many at once: the token bucket behind `eventRecordQPS` and `registryPullQPS`. And ever more seldom: [`Damper`].

use std::time::Duration;
use tokio::sync::watch;
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

/// The shortest and the longest pause between two that are told. Longer than upstream's kubelet nobody waits.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// After so long without any the next is the first again.
const CALM: Duration = Duration::from_secs(60);

/// Changes that may come without end, such as the health of a device that flaps: the first is told at once, those that follow ever more
/// seldom until there is calm.
#[derive(Debug, Default)]
pub struct Damper {
    last: Option<Instant>,
    pause: Duration,
}

impl Damper {
    /// Waits for a change, and until it may be told. When the wait is given up meanwhile, whoever does tells it with the rest.
    ///
    /// # Errors
    /// There will be none any more.
    pub async fn change(&mut self, of: &mut watch::Receiver<u64>) -> Result<(), watch::error::RecvError> {
        of.changed().await?;
        tokio::time::sleep_until(self.due(Instant::now())).await;
        self.told(Instant::now());
        Ok(())
    }

    fn due(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| (last + self.pause).max(now))
    }

    fn told(&mut self, now: Instant) {
        let follows = self.last.is_some_and(|last| now < last + CALM);
        self.pause = match follows {
            true => (self.pause * 2).min(PAUSE_MAX),
            false => PAUSE,
        };
        self.last = Some(now);
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

    #[tokio::test(start_paused = true)]
    async fn what_flaps_is_told_ever_more_seldom_until_there_is_calm() {
        let (flap, mut news) = watch::channel(0_u64);
        let (mut damper, begun) = (Damper::default(), Instant::now());
        let mut told = Vec::new();
        for _ in 0..8 {
            flap.send_modify(|count| *count += 1);
            damper.change(&mut news).await.expect("a change");
            told.push(begun.elapsed().as_millis());
        }
        assert_eq!(told, [0, 500, 1500, 3500, 7500, 15_500, 25_500, 35_500]);
        tokio::time::advance(CALM).await;
        let again = Instant::now();
        flap.send_modify(|count| *count += 1);
        damper.change(&mut news).await.expect("a change");
        assert_eq!(again.elapsed(), Duration::ZERO, "the first after a while");
        flap.send_modify(|count| *count += 1);
        damper.change(&mut news).await.expect("a change");
        assert_eq!(again.elapsed(), PAUSE);
        drop(flap);
        assert!(damper.change(&mut news).await.is_err());
    }
}
