//! Whose local storage is counted when, and for how long (kubelet contract §10). Pure.
//!
//! Everybody is counted for a moment at a time. A pod that takes longer is heavy: it is counted to the end, one such pod after a round of all
//! others, so that nobody is looked at the less often for how many files somebody else makes. Both kinds rest several times as long as they
//! took.
//!
//! Times are since an instant of the caller's.

use crate::id::PodUid;
use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The pause between two rounds, and between two counts of a heavy pod, at least.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// How long the files of one pod may take to be counted in a round.
pub(super) const GLANCE: Duration = Duration::from_millis(200);
/// How many times as long as something took is rested from it.
const REST: u32 = 4;

/// What is known of how long counts take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    /// When the next round is due.
    round: Duration,
    /// The heavy pods, each with when it may be counted next.
    heavy: BTreeMap<PodUid, Duration>,
    /// When any of them may.
    rested: Duration,
}

impl Turns {
    /// The first round is a period from the beginning.
    pub(super) fn new() -> Self {
        Self {
            round: PERIOD,
            ..Self::default()
        }
    }

    /// Forgets pods that are not there any more.
    pub(super) fn keep(&mut self, there: &BTreeSet<PodUid>) {
        self.heavy.retain(|uid, _| there.contains(uid));
    }

    /// Whether a round is due.
    pub(super) fn is_round_due(&self, now: Duration) -> bool {
        self.round <= now
    }

    /// Whether a pod is counted in a turn of its own.
    pub(super) fn is_heavy(&self, uid: &PodUid) -> bool {
        self.heavy.contains_key(uid)
    }

    /// A round counted these pods, of whom these were not counted to the end.
    pub(super) fn had_round(&mut self, begun: Duration, ended: Duration, unfinished: Vec<PodUid>) {
        self.round = ended + PERIOD.max(ended.saturating_sub(begun) * REST);
        self.heavy.extend(unfinished.into_iter().map(|uid| (uid, ended)));
    }

    /// The heavy pod whose turn it is, if it is anybody's: who waits longest.
    pub(super) fn turn(&self, now: Duration) -> Option<PodUid> {
        let (uid, due) = self.heavy.iter().min_by_key(|(_, due)| **due)?;
        (self.rested.max(*due) <= now).then(|| uid.clone())
    }

    /// A heavy pod was counted, to the end if it is `finished`; one that takes a moment only is none any more.
    pub(super) fn had_turn(&mut self, uid: PodUid, begun: Duration, ended: Duration, finished: bool) {
        let took = ended.saturating_sub(begun);
        self.rested = ended + took * REST;
        match finished && took <= GLANCE {
            true => drop(self.heavy.remove(&uid)),
            false => drop(self.heavy.insert(uid, ended + PERIOD)),
        }
    }

    /// When something is due.
    pub(super) fn wake_at(&self) -> Duration {
        let heavy = self.heavy.values().min();
        let heavy = heavy.map(|due| self.rested.max(*due));
        heavy.map_or(self.round, |heavy| heavy.min(self.round))
    }
}

/// The UIDs of pods, as a set.
pub(super) fn uids<'a>(of: impl Iterator<Item = &'a PodUid>) -> BTreeSet<PodUid> {
    of.cloned().collect_ordered()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rounds_rest_and_whoever_takes_long_is_counted_in_turns_of_its_own() {
        let mut turns = Turns::new();
        assert!(!turns.is_round_due(at(9)) && turns.is_round_due(PERIOD));
        turns.had_round(at(10), at(11), vec!["b".into(), "a".into()]);
        assert_eq!((turns.turn(at(11)), turns.wake_at()), (Some("a".into()), at(11)));
        turns.had_turn("a".into(), at(11), at(41), false);
        // However long that took, the others' round does not wait for its rest, and who waits for a turn does.
        assert_eq!((turns.is_round_due(at(41)), turns.turn(at(41))), (true, None));
        turns.had_round(at(41), at(42), Vec::new());
        assert_eq!((turns.turn(at(160)), turns.wake_at()), (None, at(52)));
        assert_eq!(turns.turn(at(161)), Some("b".into()), "it waits longer");
        turns.had_turn("b".into(), at(161), at(161) + GLANCE, true);
        assert!(turns.is_heavy(&"a".into()) && !turns.is_heavy(&"b".into()));
        turns.keep(&uids([].into_iter()));
        assert_eq!((turns.turn(at(1000)), turns.wake_at()), (None, at(52)));
        // A round of many is followed by a longer rest.
        turns.had_round(at(60), at(70), Vec::new());
        assert_eq!(turns.wake_at(), at(110));
    }

    #[test]
    fn nobody_waits_longer_for_a_look_than_one_count_and_a_rest_however_many_are_heavy() {
        let mut turns = Turns::new();
        let (mut now, mut longest, mut last, mut counted) = (PERIOD, Duration::ZERO, Duration::ZERO, 0);
        let heavy: Vec<PodUid> = (0..50)
            .map(|number| PodUid::from(format!("u{number}").as_str()))
            .collect();
        for step in 0.. {
            assert!(step < 10_000, "time goes on");
            if now >= at(3600) {
                break;
            }
            if turns.is_round_due(now) {
                longest = longest.max(now - last);
                let begun = now;
                let new = heavy.iter().filter(|uid| !turns.is_heavy(uid));
                let new: Vec<PodUid> = new.cloned().collect();
                now += GLANCE * u32::try_from(new.len()).expect("few");
                turns.had_round(begun, now, new);
                last = now;
            }
            if let Some(uid) = turns.turn(now) {
                let begun = now;
                now += at(30);
                turns.had_turn(uid, begun, now, false);
                counted += 1;
            }
            now = now.max(turns.wake_at());
        }
        assert!(longest <= PERIOD + at(40), "{longest:?}");
        // A fifth of the time goes into them.
        assert!((22..=26).contains(&counted), "{counted}");
    }
}
