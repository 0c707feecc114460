//! Exponential back-off with seeded jitter, and the small generator behind it.

use std::time::Duration;

/// SplitMix64: a tiny deterministic generator for jitter and tie-breaking. Never for secrets.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// A generator with that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound` (0 when `bound` is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }
}

/// Delays that double from `first` to `cap`; each is shortened by up to a half at random, so that clients spread.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    failures: u32,
    random: Seeded,
}

impl Backoff {
    /// A back-off that has not failed yet.
    pub fn new(first: Duration, cap: Duration, seed: u64) -> Self {
        Self {
            first,
            cap,
            failures: 0,
            random: Seeded::new(seed),
        }
    }

    /// Counts a failure and gives the delay before the next try.
    pub fn fail(&mut self) -> Duration {
        let full = self.first.saturating_mul(1u32 << self.failures.min(20)).min(self.cap);
        self.failures = self.failures.saturating_add(1);
        let half = u64::try_from(full.as_micros() / 2).unwrap_or(u64::MAX);
        full - Duration::from_micros(self.random.below(half.saturating_add(1)))
    }

    /// Forgets the failures.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_within_bounds_and_repeat_with_the_seed() {
        let delays = |seed| {
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), seed);
            (0..12).map(|_| backoff.fail()).collect::<Vec<_>>()
        };
        let (one, two) = (delays(1), delays(1));
        assert_eq!(one, two);
        assert_ne!(one, delays(2));
        for (i, delay) in one.iter().enumerate() {
            let full = Duration::from_millis(100)
                .saturating_mul(1 << i)
                .min(Duration::from_secs(10));
            assert!(*delay <= full && *delay >= full / 2, "{i}: {delay:?}");
        }
    }
}
