//! Which revision was newest when (pure).

use crate::store::Revision;
use std::collections::VecDeque;
use std::fmt;

/// How long an event lives after its last write, in seconds.
pub(super) const LIFETIME_SECONDS: i64 = 3600;

/// Times, in Unix seconds, with the newest revision of each; both ascend.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RevisionTimes(VecDeque<(i64, Revision)>);

impl RevisionTimes {
    /// Reads what `Display` wrote; what cannot be read is left out, which only makes events live longer.
    pub(super) fn parse(text: &str) -> Self {
        let mark = |line: &str| {
            let (time, revision) = line.split_once(' ')?;
            Some((time.parse().ok()?, revision.parse().ok()?))
        };
        Self(text.lines().filter_map(mark).collect())
    }

    /// At `now` the newest revision is `newest`, and the last event's is `event`. Without a newer event there is nothing to note.
    pub(super) fn note(&mut self, now: i64, newest: Revision, event: Option<Revision>) {
        // A clock that was set back: what it said before would keep events for too long.
        while self.0.back().is_some_and(|(at, _)| *at > now) {
            self.0.pop_back();
        }
        if event > self.0.back().map(|(_, known)| *known) {
            self.0.push_back((now, newest));
        }
    }

    /// The newest revision that is an hour old at `now`; its mark is forgotten.
    pub(super) fn expired(&mut self, now: i64) -> Option<Revision> {
        let mut expired = None;
        while let Some(&(at, revision)) = self.0.front() {
            if now - at < LIFETIME_SECONDS {
                break;
            }
            expired = Some(revision);
            self.0.pop_front();
        }
        expired
    }
}

impl fmt::Display for RevisionTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(at, revision)| writeln!(f, "{at} {revision}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_expires_after_an_hour_and_survives_its_text() {
        let mut times = RevisionTimes::default();
        times.note(1000, 5, Some(5));
        times.note(1060, 9, Some(5));
        times.note(1120, 12, Some(11));
        assert_eq!(
            times.to_string(),
            "1000 5\n1120 12\n",
            "without a new event nothing is noted"
        );
        let mut times = RevisionTimes::parse(&format!("{times}rubbish\n1 x\n"));
        assert_eq!(times.expired(1000 + 3599), None);
        assert_eq!(times.expired(1000 + 3600), Some(5));
        assert_eq!(times.expired(1000 + 3600), None);
        assert_eq!(times.expired(9000), Some(12));
        times.note(9000, 12, None);
        assert_eq!(times, RevisionTimes::default());
    }

    #[test]
    fn a_clock_set_back_keeps_ages_ascending() {
        let mut times = RevisionTimes::parse("1000 5\n2000 6\n");
        times.note(1500, 8, Some(7));
        assert_eq!(times.to_string(), "1000 5\n1500 8\n");
    }
}
