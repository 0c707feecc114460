//! Waits that end together. A process that wakes for one loop at a time is woken, and has its caches cold, for each: idle, that is most of
//! what it costs.
//!
//! Owns when the beats of this process are. Never makes a wait less than half as long as it is told to be, nor longer by more than half of
//! what lies between two beats.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// How far apart beats are.
const APART: Duration = Duration::from_secs(5);

/// When the first beat was; there are none before.
static FIRST: OnceLock<Instant> = OnceLock::new();

/// Has this process beats, from now on. For daemons alone, once: in tests time is each runtime's own, and there waits are as long as they
/// are told to be. Where between two beats this is is left to chance: machines that begin together are not to ask a server together for ever.
pub fn begin() {
    let now = Instant::now();
    let ago = Duration::from_nanos(RandomState::new().hash_one(()) % nanos(APART));
    let _begun_before = FIRST.set(now.checked_sub(ago).unwrap_or(now));
}

/// Waits for as long, of a loop that does something now and then: until the nearest beat, if it is for as long as between some of them.
pub async fn wait(about: Duration) {
    tokio::time::sleep_until(after(about)).await;
}

/// When [`wait`] ends.
pub fn after(about: Duration) -> Instant {
    let now = Instant::now();
    now + since(now).and_then(|since| nearest(since, about)).unwrap_or(about)
}

/// When a wait of any length ends that must not be longer than it is told to be: with the last beat by then, if at least half of it is
/// waited for.
pub fn within(most: Duration) -> Instant {
    let now = Instant::now();
    now + since(now).and_then(|since| last(since, most)).unwrap_or(most)
}

fn since(now: Instant) -> Option<Duration> {
    now.checked_duration_since(*FIRST.get()?)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long it is, `since` the first beat, to the one that is nearest to `about` from now. Nothing for what is not as long as between some
/// beats: that would always be too long or too short.
fn nearest(since: Duration, about: Duration) -> Option<Duration> {
    if about.is_zero() || !nanos(about).is_multiple_of(nanos(APART)) {
        return None;
    }
    let end = since.checked_add(about)?;
    beat_by(end.checked_add(APART / 2)?).checked_sub(since)
}

/// How long it is, `since` the first beat, to the last one no later than `most` from now; nothing if that is less than half as long.
fn last(since: Duration, most: Duration) -> Option<Duration> {
    let beat = beat_by(since.checked_add(most)?);
    beat.checked_sub(since).filter(|left| *left >= most / 2)
}

/// The last beat by then, both since the first one.
fn beat_by(then: Duration) -> Duration {
    Duration::from_nanos(nanos(then) / nanos(APART) * nanos(APART))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_ends_with_the_nearest_beat() {
        for (since, about, expected) in [
            (0, 5_000, Some(5_000)),
            (20, 5_000, Some(4_980)),
            (20, 10_000, Some(9_980)),
            // Not in step yet: somewhat sooner or later, and in step from then on.
            (12_000, 5_000, Some(3_000)),
            (13_000, 5_000, Some(7_000)),
            (12_000, 10_000, Some(8_000)),
            (14_999, 10_000, Some(10_001)),
            (7_000, 60_000, Some(58_000)),
            // Not as long as between some.
            (0, 4_999, None),
            (0, 7_500, None),
            (3_000, 0, None),
        ] {
            let told = nearest(ms(since), ms(about));
            assert_eq!(told, expected.map(ms), "{about} ms, {since} ms after the first");
        }
        assert_eq!(nearest(Duration::MAX, ms(5_000)), None);
    }

    #[test]
    fn a_wait_with_an_end_is_never_longer() {
        for (since, most, expected) in [
            (20, 10_000, Some(9_980)),
            (20, 5_500, Some(4_980)),
            (14_400, 10_000, Some(5_600)),
            (14_500, 5_500, Some(5_500)),
            (14_400, 5_500, None),
            (0, 4_999, None),
            (4_000, 1_500, Some(1_000)),
        ] {
            let told = last(ms(since), ms(most));
            assert_eq!(told, expected.map(ms), "{most} ms at most, {since} after the first");
        }
        assert_eq!(last(Duration::MAX, ms(5_000)), None);
        assert_eq!(last(ms(1), Duration::MAX), None);
    }

    #[test]
    fn whenever_it_begins_it_is_shifted_by_half_of_what_lies_between_beats_at_most() {
        for since in (0..10_000).step_by(7).map(ms) {
            for about in [5_000, 10_000, 20_000, 60_000].map(ms) {
                let left = nearest(since, about).expect("a beat");
                assert!(
                    left.abs_diff(about) <= APART / 2,
                    "{about:?}, {since:?} after the first: {left:?}"
                );
                assert_eq!((since + left).as_millis() % APART.as_millis(), 0);
            }
            for most in (0..30_000).step_by(501).map(ms) {
                let left = last(since, most).unwrap_or(most);
                assert!(
                    left <= most && left >= most / 2,
                    "{most:?} at most, {since:?} after the first: {left:?}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_beats_a_wait_is_as_long_as_it_is_told_to_be() {
        let begun = Instant::now();
        wait(ms(10_000)).await;
        assert_eq!(begun.elapsed(), ms(10_000));
        tokio::time::advance(ms(300)).await;
        assert_eq!(within(ms(6_000)).duration_since(begun), ms(16_300));
    }
}
