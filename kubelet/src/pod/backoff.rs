//! Back-off arithmetic: crash loops as upstream counts them, and retries of the kubelet's own operations. Pure.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// The bounds of a back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait; twice as long without a failure starts over.
    pub max: Duration,
}

impl Bounds {
    /// The crash-loop bounds: 10 s doubling to `max`, starting at `max` if that is less (kubelet contract §4.1).
    pub fn crash_loop(max: Duration) -> Self {
        Self {
            initial: Duration::from_secs(10).min(max),
            max,
        }
    }

    /// The image pull bounds: 10 s doubling to 300 s.
    pub const IMAGE_PULL: Self = Self {
        initial: Duration::from_secs(10),
        max: Duration::from_secs(300),
    };

    /// The bounds for retrying an operation of the kubelet itself.
    pub const RETRY: Self = Self {
        initial: Duration::from_millis(500),
        max: Duration::from_secs(10),
    };

    /// The wait after so many failures in a row.
    pub fn after(&self, failures: u32) -> Duration {
        let doubled = self
            .initial
            .saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.max)
    }
}

/// One container's crash back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// What the back-off belongs to: a changed image or changed resources clear it.
    pub key: String,
    /// The wait after the next exit.
    pub wait: Duration,
    /// When the wait was last set.
    pub updated: Timestamp,
}

impl Crash {
    /// How long a container of `key` that exited at `finished` has to wait, counted from its exit.
    pub fn waiting(entry: Option<&Self>, key: &str, finished: Timestamp, bounds: Bounds) -> Option<Duration> {
        let entry = entry.filter(|entry| entry.key == key)?;
        (!entry.expired(finished, bounds)).then_some(entry.wait)
    }

    /// The entry after a restart of a container that exited at `finished`.
    pub fn next(entry: Option<&Self>, key: &str, finished: Timestamp, bounds: Bounds, now: Timestamp) -> Self {
        let wait = match entry {
            Some(entry) if entry.key == key && !entry.expired(finished, bounds) => (entry.wait * 2).min(bounds.max),
            _ => bounds.initial,
        };
        Self {
            key: key.to_owned(),
            wait,
            updated: now,
        }
    }

    fn expired(&self, finished: Timestamp, bounds: Bounds) -> bool {
        let quiet = SignedDuration::try_from(bounds.max * 2).unwrap_or(SignedDuration::MAX);
        finished.duration_since(self.updated) > quiet
    }
}

/// `now` plus a duration, at most the end of time.
pub fn later(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// A duration as Go prints it in messages users know (`10s`, `2m40s`, `5m0s`).
pub fn go_seconds(wait: Duration) -> String {
    let total = wait.as_secs();
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    match (hours, minutes) {
        (0, 0) if wait.subsec_millis() > 0 && total == 0 => format!("{}ms", wait.as_millis()),
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::at;

    const BOUNDS: Bounds = Bounds {
        initial: Duration::from_secs(10),
        max: Duration::from_secs(300),
    };

    #[test]
    fn a_crash_loop_doubles_to_its_limit() {
        let mut entry: Option<Crash> = None;
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let finished = at(now);
            let wait = Crash::waiting(entry.as_ref(), "k", finished, BOUNDS);
            waits.push(wait.map_or(0, |w| w.as_secs()));
            now += wait.map_or(0, |w| w.as_secs() as i64);
            entry = Some(Crash::next(entry.as_ref(), "k", finished, BOUNDS, at(now)));
            now += 1;
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn ten_quiet_minutes_or_another_key_start_over() {
        let entry = Crash {
            key: "k".into(),
            wait: Duration::from_secs(160),
            updated: at(0),
        };
        assert_eq!(
            Crash::waiting(Some(&entry), "k", at(600), BOUNDS),
            Some(Duration::from_secs(160))
        );
        assert_eq!(Crash::waiting(Some(&entry), "k", at(601), BOUNDS), None);
        assert_eq!(Crash::waiting(Some(&entry), "other", at(5), BOUNDS), None);
        assert_eq!(
            Crash::next(Some(&entry), "k", at(601), BOUNDS, at(601)).wait,
            Duration::from_secs(10)
        );
    }

    #[test]
    fn a_small_limit_is_also_the_start() {
        assert_eq!(
            Bounds::crash_loop(Duration::from_secs(3)).initial,
            Duration::from_secs(3)
        );
        assert_eq!(Bounds::RETRY.after(1), Duration::from_millis(500));
        assert_eq!(Bounds::RETRY.after(2), Duration::from_secs(1));
        assert_eq!(Bounds::RETRY.after(40), Duration::from_secs(10));
    }

    #[test]
    fn durations_read_as_go_prints_them() {
        let read = |seconds| go_seconds(Duration::from_secs(seconds));
        assert_eq!(
            [read(10), read(80), read(160), read(300), read(3600)],
            ["10s", "1m20s", "2m40s", "5m0s", "1h0m0s"]
        );
    }
}
