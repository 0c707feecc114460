//! When a log is looked at again, by its size and by how fast it grows. Pure.

use std::time::Duration;
use tokio::time::Instant;

/// A log is not looked at sooner than that after the last look.
pub(super) const SOONEST: Duration = Duration::from_secs(1);
/// The longest wait after failures.
const PATIENCE_MAX: Duration = Duration::from_secs(300);

/// A log's size at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) size: u64,
}

/// How long until the next look: `interval`, or half of what is left until the log is full if it goes on growing as it did between the
/// two samples, because it may grow faster than that.
pub(super) fn next(before: Option<Sample>, now: Sample, size_max: u64, interval: Duration) -> Duration {
    let Some(before) = before else {
        return interval;
    };
    let left = size_max.saturating_sub(now.size);
    // Shorter than it was: another file, all of which is growth.
    let grown = now.size.checked_sub(before.size).unwrap_or(now.size);
    let took = now.at.saturating_duration_since(before.at);
    if grown == 0 || took.is_zero() {
        return interval;
    }
    let seconds = left as f64 * took.as_secs_f64() / grown as f64 / 2.0;
    let wait = Duration::try_from_secs_f64(seconds).unwrap_or(interval);
    wait.max(SOONEST).min(interval)
}

/// How long until a look after so many failures before this one.
pub(super) fn after_failure(failures: u32, interval: Duration) -> Duration {
    interval
        .saturating_mul(1 << failures.min(16))
        .min(PATIENCE_MAX.max(interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn wait(before: Option<(u64, u64)>, now: (u64, u64), size_max: u64) -> u128 {
        let begin = Instant::now();
        let sample = |(seconds, size)| Sample {
            at: begin + Duration::from_secs(seconds),
            size,
        };
        next(before.map(sample), sample(now), size_max, INTERVAL).as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn the_faster_it_grows_the_sooner_it_is_looked_at() {
        for (what, before, now, expected) in [
            ("nothing is known of it", None, (0, 900), 10_000),
            ("silent", Some((0, 900)), (10, 900), 10_000),
            ("slow: 10 a second, 500 left", Some((0, 400)), (10, 500), 10_000),
            ("50 a second, 400 left", Some((0, 100)), (10, 600), 4_000),
            ("100 a second, 300 left", Some((0, 0)), (7, 700), 1_500),
            ("500 a second, 400 left", Some((0, 100)), (1, 600), 1_000),
            ("a new file, 60 in a second", Some((0, 990)), (1, 60), 7_833),
            ("no time between", Some((5, 0)), (5, 900), 10_000),
            ("full", Some((0, 0)), (10, 2_000), 1_000),
        ] {
            assert_eq!(wait(before, now, 1_000), expected, "{what}");
        }
    }

    #[test]
    fn failures_have_patience() {
        for (failures, seconds) in [(0, 10), (1, 20), (2, 40), (5, 300), (60, 300)] {
            assert_eq!(after_failure(failures, INTERVAL).as_secs(), seconds, "{failures}");
        }
        let slow = Duration::from_secs(1_000);
        assert_eq!(after_failure(9, slow), slow);
    }

    proptest! {
        /// A log that grows evenly is never more than a second's growth, or a quarter of an interval's, beyond its size.
        #[test]
        fn even_growth_is_caught_in_time(rate in 1u64..2_000, size_max in 1_000u64..100_000) {
            let (mut at, mut before) = (0.0_f64, None);
            let begin = Instant::now();
            loop {
                let size = (at * rate as f64) as u64;
                if size >= size_max {
                    prop_assert!(size - size_max <= rate * 2 || before.is_none(), "{size} of {size_max} at {rate}/s");
                    break;
                }
                let now = Sample { at: begin + Duration::from_secs_f64(at), size };
                at += next(before, now, size_max, INTERVAL).as_secs_f64();
                if before.is_none() && at * rate as f64 >= size_max as f64 {
                    break;
                }
                before = Some(now);
            }
        }
    }
}
