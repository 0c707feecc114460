//! What earlier counts told of pods' files, for those of which a count does not come to its end. Pure. Never counts anything.

use super::rank::PodUse;
use crate::host::usage::TreeUsage;
use crate::id::PodUid;
use std::collections::{BTreeMap, BTreeSet};

/// How often in a row a count does not come to its end though it had its time until that is the pod's doing and not the disk's.
const MISSES_MAX: u32 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// What its files were when they were last counted to the end.
    counted: TreeUsage,
    /// Counts since then that had their time.
    misses: u32,
}

/// What is known of pods that may have to go.
#[derive(Debug, Default)]
pub(super) struct Earlier(BTreeMap<PodUid, Known>);

impl Earlier {
    /// Takes the counts of one pass, each with whether it had its time, and adds to each what is known from before; forgets all other pods.
    /// Where no count at all came to its end, the disk stands still: that is nobody's doing.
    pub(super) fn complete_all(&mut self, counts: Vec<(PodUid, PodUse, bool)>) -> Vec<PodUse> {
        let uids: BTreeSet<&PodUid> = counts.iter().map(|(uid, ..)| uid).collect();
        self.0.retain(|uid, _| uids.contains(uid));
        let some_ended = counts.iter().any(|(_, used, _)| !used.files().incomplete);
        let completed = counts.into_iter().map(|(uid, mut used, had_time)| {
            self.complete(&uid, &mut used, had_time && some_ended);
            used
        });
        completed.collect()
    }

    /// Takes what a count told, and adds what is known from before where it did not come to its end; `had_time` says whether it could
    /// have. One that is again and again given its time, when others of the same disk are done, is as one that can never be counted: else
    /// it would be a way to stay while everybody else goes.
    fn complete(&mut self, uid: &PodUid, used: &mut PodUse, had_time: bool) {
        let files = used.files();
        let known = self.0.entry(uid.clone()).or_default();
        if !files.incomplete {
            *known = Known {
                counted: files,
                misses: 0,
            };
            return;
        }
        known.misses = known.misses.saturating_add(u32::from(had_time));
        used.before = known.counted;
        used.volumes.uncountable |= known.misses >= MISSES_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(bytes: u64, incomplete: bool) -> PodUse {
        PodUse {
            volumes: TreeUsage {
                bytes,
                incomplete,
                ..TreeUsage::default()
            },
            ..PodUse::default()
        }
    }

    #[test]
    fn what_was_counted_last_holds_until_the_next_count_ends_and_who_never_ends_is_uncountable() {
        let mut earlier = Earlier::default();
        let uid = PodUid::from("p");
        // What each count told, whether it had its time, and then: what was known before, and whether it is given up.
        for (bytes, incomplete, had_time, before, uncountable) in [
            (1, true, true, 0, false),
            (900, false, true, 0, false),
            (2, true, true, 900, false),
            (3, true, true, 900, false),
            // The disk kept it from its end: that is nobody's doing.
            (0, true, false, 900, false),
            (0, true, false, 900, false),
            (4, true, true, 900, true),
            (0, true, false, 900, true),
            (800, false, false, 0, false),
            (4, true, true, 800, false),
        ] {
            let mut count = used(bytes, incomplete);
            earlier.complete(&uid, &mut count, had_time);
            assert_eq!(
                (count.before.bytes, count.volumes.uncountable),
                (before, uncountable),
                "{bytes}"
            );
        }
        assert!(earlier.complete_all(Vec::new()).is_empty());
        assert!(earlier.0.is_empty());
    }

    #[test]
    fn a_disk_that_stands_still_makes_nobody_uncountable() {
        let mut earlier = Earlier::default();
        let mut uncountable = |others_end: bool| {
            let counts = vec![
                (PodUid::from("p"), used(1, true), true),
                (PodUid::from("q"), used(1, !others_end), true),
            ];
            let uses = earlier.complete_all(counts);
            uses.iter().map(|used| used.volumes.uncountable).collect::<Vec<_>>()
        };
        for _ in 0..2 * MISSES_MAX {
            assert_eq!(uncountable(false), [false, false]);
        }
        for _ in 1..MISSES_MAX {
            assert_eq!(uncountable(true), [false, false]);
        }
        assert_eq!(uncountable(true), [true, false], "another one's count ends");
    }
}
