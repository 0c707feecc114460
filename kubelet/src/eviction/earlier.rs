//! What earlier counts told of pods' files, for those of which a count does not come to its end, and whose turn it is to be counted for long.
//! Pure. Never counts anything.

use super::rank::PodUse;
use crate::host::usage::TreeUsage;
use crate::id::PodUid;
use client::ordered::Arrange;
use client::ordered::CollectOrdered;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often in a row a count does not come to its end though it had its time until that is the pod's doing and not the disk's.
const MISSES_MAX: u32 = 3;
/// A count that had so much time might have come to its end: with less, many are being counted, and the disk is slow for all.
pub(super) const COUNT_FAIR: Duration = Duration::from_secs(3);
/// For how long each pod's files are counted at first: with less than that nothing more is learnt.
pub(super) const GLANCE: Duration = Duration::from_millis(200);

/// How much time a pod's files were counted for in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// None: its turn did not come.
    None,
    /// Less than a count may need.
    Moment,
    /// Enough, or it hung.
    Fair,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// What its files were when they were last counted to the end, or more that was found since.
    counted: TreeUsage,
    /// Counts since then that had their time.
    misses: u32,
    /// Since which pass it waits for its time; nothing if it was counted to the end, or nobody looked yet.
    waits: Option<u64>,
}

/// What is known of pods that may have to go.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// How many passes there were.
    passes: u64,
    known: BTreeMap<PodUid, Known>,
}

/// How long the next of `waiting` pods is counted: a like part of what is left of the pass for as many of them as can have their time.
/// Nothing if none waits, or there is too little to learn more in.
pub(super) fn share(left: Duration, waiting: usize) -> Option<Duration> {
    let fair = u32::try_from(left.as_millis() / COUNT_FAIR.as_millis()).unwrap_or(u32::MAX);
    let served = u32::try_from(waiting).unwrap_or(u32::MAX).min(fair.max(1));
    left.checked_div(served).filter(|share| *share > GLANCE)
}

impl Earlier {
    /// In which order these are counted for a moment, as places among them: those whose last count did not come to its end come last, so
    /// that they keep nobody from being counted.
    pub(super) fn glances(&self, uids: &[PodUid]) -> Vec<usize> {
        let mut places: Vec<usize> = (0..uids.len()).collect();
        places.arrange_by_key(|place| uids.get(*place).and_then(|uid| self.known.get(uid)?.waits));
        places
    }

    /// In which order those at these places among `uids` are given time. Of whom most is known is to be known soon, else whoever waits
    /// longest; last are those that cannot be counted anyway.
    pub(super) fn turns(&self, uids: &[PodUid], mut places: Vec<usize>) -> Vec<usize> {
        places.arrange_by_key(|place| {
            let known = uids.get(*place).and_then(|uid| self.known.get(uid)).copied();
            let Known { misses, waits, .. } = known.unwrap_or_default();
            (
                misses >= MISSES_MAX,
                Reverse(misses.min(MISSES_MAX)),
                waits.unwrap_or(u64::MAX),
            )
        });
        places
    }

    /// Takes the counts of one pass, each with the time it had, and adds to each what is known from before; forgets all other pods.
    /// Where no count at all came to its end, the disk stands still: that is nobody's doing.
    pub(super) fn complete_all(&mut self, counts: Vec<(PodUid, PodUse, Time)>) -> Vec<PodUse> {
        let uids: BTreeSet<&PodUid> = counts.iter().map(|(uid, ..)| uid).collect_ordered();
        self.known.retain(|uid, _| uids.contains(uid));
        self.passes = self.passes.saturating_add(1);
        let some_ended = counts.iter().any(|(_, used, _)| !used.files().incomplete);
        let completed = counts.into_iter().map(|(uid, mut used, time)| {
            self.complete(&uid, &mut used, time, some_ended);
            used
        });
        completed.collect()
    }

    /// Takes what a count told, and adds what is known from before where it did not come to its end, as it could have with its time, if any
    /// could. One that is again and again given its time, when others of the same disk are done, is as one that can never be
    /// counted: else it would be a way to stay while everybody else goes.
    fn complete(&mut self, uid: &PodUid, used: &mut PodUse, time: Time, some_ended: bool) {
        let files = used.files();
        let known = self.known.entry(uid.clone()).or_default();
        if !files.incomplete {
            *known = Known {
                counted: files,
                misses: 0,
                waits: None,
            };
            return;
        }
        used.before = known.counted;
        if time == Time::Moment {
            known.waits = known.waits.or(Some(self.passes));
        }
        if time == Time::Fair {
            known.waits = Some(self.passes);
            known.misses = known.misses.saturating_add(u32::from(some_ended));
            // What was found in its own time counts until it is given time again.
            known.counted.bytes = known.counted.bytes.max(files.bytes);
            known.counted.inodes = known.counted.inodes.max(files.inodes);
        }
        used.volumes.uncountable |= known.misses >= MISSES_MAX;
    }
}

#[cfg(test)]
mod tests;
