//! When a failure that comes again and again is said in the log: the first one at once, then how many there were, now and then, and that
//! it is over. Pure: failures and what goes well in, lines out. Owns the counting; never says anything itself.

use std::time::Duration;
use tokio::time::Instant;

/// The shortest time between two lines about a failure that goes on.
const AGAIN: Duration = Duration::from_secs(60);
/// What has not failed for so long does not fail any more: who asks for other things may be answered in between.
const WELL: Duration = Duration::from_secs(10);

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The first of them.
    Begins,
    /// It goes on: so many since the line before.
    GoesOn(u64),
    /// There have been no more of them for a while: so many in all.
    Over(u64),
}

/// A failure, and whether it is one at present.
#[derive(Debug, Default)]
pub(super) struct Failing(Option<Since>);

#[derive(Debug)]
struct Since {
    told: Instant,
    last: Instant,
    untold: u64,
    all: u64,
}

impl Failing {
    /// It has failed once more.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Line> {
        let Some(since) = &mut self.0 else {
            self.0 = Some(Since {
                told: now,
                last: now,
                untold: 0,
                all: 1,
            });
            return Some(Line::Begins);
        };
        since.last = now;
        since.untold += 1;
        since.all += 1;
        if now.saturating_duration_since(since.told) < AGAIN {
            return None;
        }
        since.told = now;
        Some(Line::GoesOn(std::mem::take(&mut since.untold)))
    }

    /// Something of the kind went well.
    pub(super) fn well(&mut self, now: Instant) -> Option<Line> {
        let since = self
            .0
            .take_if(|since| now.saturating_duration_since(since.last) >= WELL)?;
        Some(Line::Over(since.all))
    }

    /// It is over, whenever the last of them was.
    pub(super) fn over(&mut self) -> Option<Line> {
        self.0.take().map(|since| Line::Over(since.all))
    }

    /// Whether its end has not been said.
    pub(super) fn is_one(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_then_how_many_and_then_the_end() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut failing = Failing::default();
        assert_eq!(failing.well(at(0)), None);
        assert_eq!(failing.failed(at(0)), Some(Line::Begins));
        let lines: Vec<Line> = (1..600_u64)
            .filter_map(|tenth| failing.failed(start + Duration::from_millis(100 * tenth)))
            .collect();
        assert_eq!(lines, [], "599 more within a minute");
        assert_eq!(failing.well(at(60)), None, "another key's, in between");
        assert_eq!(failing.failed(at(60)), Some(Line::GoesOn(600)));
        assert_eq!(failing.failed(at(61)), None);
        assert_eq!(failing.failed(at(120)), Some(Line::GoesOn(2)), "counted anew");
        assert_eq!((failing.well(at(129)), failing.is_one()), (None, true));
        assert_eq!(failing.well(at(130)), Some(Line::Over(603)));
        assert_eq!((failing.well(at(200)), failing.is_one()), (None, false));
        assert_eq!(failing.failed(at(200)), Some(Line::Begins), "the next is another");
        assert_eq!((failing.over(), failing.over()), (Some(Line::Over(1)), None));
    }
}
