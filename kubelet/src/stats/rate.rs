//! CPU time as a rate: the difference between two looks, the earlier of which is remembered while somebody asks. Pure.
//!
//! Two samples of each cgroup are kept, at least [`APART`] apart, so that several readers who ask at different moments get rates over
//! about the same time, and none over a moment too short to tell. A first look gives no rate, as with CRI.

use std::collections::BTreeMap;
use std::time::Duration;

/// How far apart the kept samples are, at least.
pub const APART: Duration = Duration::from_secs(10);
/// The shortest time a rate is made over.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest: what is older is forgotten, as upstream forgets it.
pub const LONGEST: Duration = Duration::from_secs(600);

/// CPU time, nanoseconds, by cgroup.
pub type Sample = BTreeMap<String, u64>;

/// The kept samples, with the moments they are of, on a clock that only goes forward.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    older: Option<(Duration, Sample)>,
    newer: Option<(Duration, Sample)>,
}

impl Rates {
    /// Begins a look: forgets what is too long ago to be compared with.
    pub fn begin(&mut self, now: Duration) {
        let is_old =
            |kept: &Option<(Duration, Sample)>| kept.as_ref().is_some_and(|(at, _)| now.saturating_sub(*at) > LONGEST);
        if is_old(&self.older) {
            self.older = None;
        }
        if is_old(&self.newer) {
            self.newer = None;
        }
    }

    /// Ends a look: keeps its sample, if one is due.
    pub fn end(&mut self, now: Duration, sample: impl FnOnce() -> Sample) {
        let due = self
            .newer
            .as_ref()
            .is_none_or(|(at, _)| now.saturating_sub(*at) >= APART);
        if due {
            self.older = self.newer.take();
            self.newer = Some((now, sample()));
        }
    }

    /// The rate at `now`, in nanoseconds a second, of a cgroup with so much CPU time, if its earlier time is known.
    ///
    /// Since the newer sample if that is long enough ago, else since the older; a cgroup in one alone is compared with that.
    pub fn of(&self, now: Duration, id: &str, total: u64) -> Option<u64> {
        let since = |kept: &Option<(Duration, Sample)>, least: Duration| {
            let (at, sample) = kept.as_ref()?;
            let passed = now.checked_sub(*at).filter(|passed| *passed >= least)?;
            // A time that went backwards is another cgroup's of that name.
            let used = total.checked_sub(*sample.get(id)?)?;
            let rate = u128::from(used) * 1_000_000_000 / passed.as_nanos();
            u64::try_from(rate).ok()
        };
        since(&self.newer, APART)
            .or_else(|| since(&self.older, SHORTEST))
            .or_else(|| since(&self.newer, SHORTEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(rates: &mut Rates, at_ms: u64, used: &[(&str, u64)]) -> Vec<(String, u64)> {
        let now = Duration::from_millis(at_ms);
        rates.begin(now);
        let told = used
            .iter()
            .filter_map(|(id, nanos)| Some(((*id).to_owned(), rates.of(now, id, *nanos)?)));
        let told = told.collect();
        rates.end(now, || {
            used.iter().map(|(id, nanos)| ((*id).to_owned(), *nanos)).collect()
        });
        told
    }

    #[test]
    fn a_rate_is_over_the_time_between_two_looks() {
        let mut rates = Rates::default();
        assert_eq!(look(&mut rates, 0, &[("a", 0)]), []);
        assert_eq!(look(&mut rates, 500, &[("a", 500)]), [], "too short to tell");
        assert_eq!(look(&mut rates, 2_000, &[("a", 4_000)]), [("a".into(), 2_000)]);
        assert_eq!(look(&mut rates, 10_000, &[("a", 10_000)]), [("a".into(), 1_000)]);
        // The sample of 10 s is kept now, and that of 0 s with it: a look a moment later is compared with the older.
        assert_eq!(look(&mut rates, 11_000, &[("a", 22_000)]), [("a".into(), 2_000)]);
        assert_eq!(look(&mut rates, 20_000, &[("a", 40_000)]), [("a".into(), 3_000)]);
    }

    #[test]
    fn what_began_or_began_anew_has_no_rate_yet() {
        let mut rates = Rates::default();
        look(&mut rates, 0, &[("a", 9)]);
        look(&mut rates, 10_000, &[("a", 9), ("b", 5)]);
        assert_eq!(look(&mut rates, 12_000, &[("a", 8), ("b", 25)]), [("b".into(), 10)]);
    }

    #[test]
    fn nothing_is_compared_with_what_was_long_ago_and_nobody_is_kept_who_is_gone() {
        let mut rates = Rates::default();
        look(&mut rates, 0, &[("a", 0), ("gone", 0)]);
        let late = u64::try_from(LONGEST.as_millis()).expect("fits") + 1;
        assert_eq!(look(&mut rates, late, &[("a", 1)]), []);
        look(&mut rates, late + 10_000, &[("a", 1)]);
        let kept = [&rates.older, &rates.newer].map(|kept| kept.as_ref().map_or(0, |(_, sample)| sample.len()));
        assert_eq!(kept, [1, 1]);
    }
}
