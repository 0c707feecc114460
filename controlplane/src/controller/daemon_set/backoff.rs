//! How long a failed daemon pod stays before the next is tried. Pure: times are given.

use client::Key;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Copy, Debug)]
struct Entry {
    delay: Duration,
    since: Timestamp,
}

/// The back-offs of all sets. What has not failed for half an hour is forgotten, so it holds little more than what failed meanwhile.
#[derive(Debug, Default)]
pub struct Backoffs {
    /// By the set's UID and observed generation, and the node.
    entries: BTreeMap<(String, i64, String), Entry>,
    /// When those that are forgotten were taken out last: pods may fail on all nodes at once, and each would look at all others.
    swept: Option<Timestamp>,
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    // A clock that went back has nothing wait longer than it would have.
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}

fn is_remembered(entry: &Entry, now: Timestamp) -> bool {
    age(entry.since, now) <= MAX * 2
}

impl Backoffs {
    /// How long a failed pod is left alone; `None` when it may go now, which is then counted.
    pub fn wait(&mut self, set: (&str, i64), node: &str, now: Timestamp) -> Option<Duration> {
        let key = (set.0.to_owned(), set.1, node.to_owned());
        let last = self.entries.get(&key).copied();
        if let Some(entry) = &last
            && let Some(left) = entry
                .delay
                .checked_sub(age(entry.since, now))
                .filter(|left| !left.is_zero())
        {
            return Some(left);
        }
        if self.swept.is_none_or(|swept| age(swept, now) >= MAX) {
            self.entries.retain(|_, entry| is_remembered(entry, now));
            self.swept = Some(now);
        }
        let delay = match last.filter(|entry| is_remembered(entry, now)) {
            Some(entry) => (entry.delay * 2).min(MAX),
            None => FIRST,
        };
        self.entries.insert(key, Entry { delay, since: now });
        None
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What a set's back-offs go by.
pub fn identity(set: &k8s_openapi::api::apps::v1::DaemonSet) -> (String, i64) {
    let uid = set.metadata.uid.clone().unwrap_or_else(|| Key::of(set).to_string());
    let observed = set.status.as_ref().and_then(|s| s.observed_generation).unwrap_or(0);
    (uid, observed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_double_the_wait_up_to_a_quarter_of_an_hour() {
        let mut backoffs = Backoffs::default();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..13 {
            assert_eq!(backoffs.wait(("u", 1), "n", at(now)), None);
            let wait = backoffs.wait(("u", 1), "n", at(now)).unwrap();
            waits.push(wait.as_secs());
            now += i64::try_from(wait.as_secs()).unwrap();
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]);
        assert_eq!(
            backoffs.wait(("u", 2), "n", at(now)),
            None,
            "another generation begins anew"
        );
        assert_eq!(backoffs.wait(("u", 1), "m", at(now)), None, "so does another node");
        assert_eq!(backoffs.len(), 3);
        let late = now + 2 * 900 + 1;
        assert_eq!(backoffs.wait(("u", 1), "n", at(late)), None);
        assert_eq!(backoffs.wait(("u", 1), "n", at(late)).unwrap().as_secs(), 1);
        assert_eq!(backoffs.len(), 1, "what has not failed for long is forgotten");
        assert!(backoffs.wait(("u", 1), "n", at(0)).is_some(), "a clock that went back");
    }

    #[test]
    fn what_is_forgotten_is_so_before_it_is_taken_out() {
        let mut backoffs = Backoffs::default();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert_eq!(backoffs.wait(("u", 1), "a", at(0)), None);
        assert_eq!(backoffs.wait(("u", 1), "b", at(1000)), None);
        assert_eq!(backoffs.wait(("u", 1), "c", at(1850)), None);
        assert_eq!(backoffs.len(), 3, "they are not all looked at each time");
        assert_eq!(backoffs.wait(("u", 1), "a", at(1850)), None);
        assert_eq!(backoffs.wait(("u", 1), "a", at(1850)).unwrap().as_secs(), 1);
        assert_eq!(backoffs.wait(("u", 1), "d", at(2900)), None);
        assert_eq!(backoffs.len(), 3, "b is gone");
    }
}
