//! Waits that end together. A process that wakes for one loop at a time is woken, and has its caches cold, for each: idle, that is most of
//! what it costs.
//!
//! Owns when the beats of this process are. Never makes anybody wait for longer than an eighth more than was asked for.

use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// How far apart beats are.
const APART: Duration = Duration::from_secs(5);

/// When the first beat was; there are none before.
static FIRST: OnceLock<Instant> = OnceLock::new();

/// Has this process beats, from now on. For daemons alone, once: in tests time is each runtime's own, and there waits are as long as they
/// are told to be.
pub fn begin() {
    let _begun_before = FIRST.set(Instant::now());
}

/// Waits for about as long, of a loop that does something now and then: until a beat, if it is for as long as between two of them.
pub async fn wait(about: Duration) {
    tokio::time::sleep_until(after(about)).await;
}

/// When [`wait`] ends.
pub fn after(about: Duration) -> Instant {
    moment(about, about / 8)
}

/// The same, of a wait that must not be longer than it is told to be.
pub fn within(most: Duration) -> Instant {
    moment(most, Duration::ZERO)
}

fn moment(about: Duration, late: Duration) -> Instant {
    let now = Instant::now();
    let since = FIRST.get().and_then(|first| now.checked_duration_since(*first));
    now + since.and_then(|since| left(since, about, late)).unwrap_or(about)
}

/// How long it is, `since` the first beat, to the last one that is no later than `about` and `late`. Nothing if that is not a beat's
/// distance away, or comes at once: whoever takes as long as from one beat to the next would never rest.
fn left(since: Duration, about: Duration, late: Duration) -> Option<Duration> {
    if about < APART {
        return None;
    }
    let last = since.checked_add(about)?.checked_add(late)?;
    let beat = APART.checked_mul(u32::try_from(last.as_secs() / APART.as_secs()).ok()?)?;
    beat.checked_sub(since).filter(|left| *left > about / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_ends_with_a_beat_and_no_later_than_an_eighth() {
        for (since, about, expected) in [
            (0, 5_000, Some(5_000)),
            (20, 5_000, Some(4_980)),
            (20, 10_000, Some(9_980)),
            // Not in step yet: sooner once, or a little later, and in step from then on.
            (13_000, 5_000, Some(2_000)),
            (14_500, 5_000, Some(5_500)),
            (14_999, 10_000, Some(10_001)),
            (12_000, 10_000, Some(8_000)),
            (7_000, 60_000, Some(63_000)),
            // Shorter than between two beats.
            (0, 4_999, None),
            (3_000, 0, None),
        ] {
            assert_eq!(
                left(ms(since), ms(about), ms(about) / 8),
                expected.map(ms),
                "{about} ms, {since} ms after the first"
            );
        }
        for (since, most, expected) in [
            (20, 5_500, Some(4_980)),
            (14_500, 5_000, None),
            (14_000, 6_000, Some(6_000)),
            (0, 4_999, None),
        ] {
            assert_eq!(
                left(ms(since), ms(most), ms(0)),
                expected.map(ms),
                "{most} ms at most, {since} after the first"
            );
        }
        assert_eq!(left(Duration::MAX, ms(5_000), ms(0)), None);
        assert_eq!(left(ms(1), Duration::MAX, ms(0)), None);
    }

    #[test]
    fn nobody_goes_without_rest_and_nobody_waits_for_long() {
        for about in [5_000, 7_000, 10_000, 20_000, 30_000, 60_000] {
            for since in (0..10_000).step_by(7) {
                let left = left(ms(since), ms(about), ms(about) / 8).expect("a beat");
                assert!(
                    left > ms(about / 8) && left <= ms(about + about / 8),
                    "{about} ms, {since} after the first"
                );
                assert_eq!((ms(since) + left).as_millis() % APART.as_millis(), 0);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_beats_a_wait_is_as_long_as_it_is_told_to_be() {
        let begun = Instant::now();
        wait(ms(7_300)).await;
        assert_eq!(begun.elapsed(), ms(7_300));
    }
}
