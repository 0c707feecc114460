//! What a nearly full disk still takes. Pure: free space and a write in, a verdict out.
//!
//! A commit that finds no space ends the process, so a write is admitted only while there is space for the worst it can cost, and
//! each kind of write stops at a floor of its own: what adds something first, then steps of deletions, removals last. Space is
//! measured once per commit and only reckoned within one, so a commit ends early rather than with a guess.

use super::{Job, Operation};
use std::collections::HashMap;

/// Free space that writes which add something leave to the rest.
pub(super) const PUT_FLOOR_BYTES: u64 = 16 << 20;
/// Free space that steps of deletions leave to removals.
const DELETION_FLOOR_BYTES: u64 = 4 << 20;
/// Free space that removals leave.
const REMOVAL_FLOOR_BYTES: u64 = 1 << 20;
/// Free space in which no write is refused, whatever it adds: what is largest takes 8 MiB beside the floor.
const ROOMY_BYTES: u64 = 2 * PUT_FLOOR_BYTES;
/// What any write may cost beside its own value: the leaf it shares with one large value is written anew (3 MiB, in a page whose
/// size is a power of two), and so are the branches above it.
const NEIGHBOUR_BYTES: u64 = (4 << 20) + (128 << 10);
/// What an object on its way out may grow by in all once the disk is nearly full: its kubelet must say how it ended, controllers
/// what holds it up.
const LEAVING_GROWTH_BYTES: usize = 16 << 10;
/// How many growing objects are kept in mind; more may not grow.
const LEAVING_MAX: usize = 4096;

/// Whether a write may be refused where so many bytes are free.
pub(super) fn is_scarce(free_bytes: u64) -> bool {
    free_bytes < ROOMY_BYTES
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is written.
    Write,
    /// It is written if the object has not grown too much ([`Leaving`]).
    WriteIfSmall,
    /// Not in this commit: space has to be measured again first.
    Later,
    /// There is too little space: less than so many bytes.
    Refuse {
        /// Free space the write would have needed.
        needed_bytes: u64,
    },
}

/// The free space of one commit.
#[derive(Debug)]
pub(super) struct Budget {
    /// `None` when nobody knows: then everything is written.
    free_bytes: Option<u64>,
    spent_bytes: u64,
}

impl Budget {
    pub(super) fn new(free_bytes: Option<u64>) -> Self {
        Self {
            free_bytes,
            spent_bytes: 0,
        }
    }

    /// Decides about the next write of the commit; one that is written is reckoned.
    pub(super) fn judge(&mut self, job: &Job) -> Verdict {
        let Some(free_bytes) = self.free_bytes else {
            return Verdict::Write;
        };
        let (floor_bytes, is_step) = match &job.write {
            Operation::Put {
                is_for_deletion: false, ..
            } => (PUT_FLOOR_BYTES, false),
            Operation::Put { .. } => (DELETION_FLOOR_BYTES, true),
            Operation::Delete { .. } => (REMOVAL_FLOOR_BYTES, false),
        };
        let cost_bytes = cost_bytes(job);
        let needed_bytes = floor_bytes + cost_bytes;
        if free_bytes < self.spent_bytes + needed_bytes {
            return match self.spent_bytes {
                0 => Verdict::Refuse { needed_bytes },
                _ => Verdict::Later,
            };
        }
        let is_tight = free_bytes < self.spent_bytes + PUT_FLOOR_BYTES + cost_bytes;
        self.spent_bytes += cost_bytes;
        match is_step && is_tight {
            true => Verdict::WriteIfSmall,
            false => Verdict::Write,
        }
    }
}

/// The most the write can take from the disk. A value has pages of its own, together as large as the next power of two.
fn cost_bytes(job: &Job) -> u64 {
    let value = match &job.write {
        Operation::Put { value, .. } => (value.len() + job.key.len() + 64).next_power_of_two(),
        Operation::Delete { .. } => 0,
    };
    NEIGHBOUR_BYTES.saturating_add(value as u64)
}

/// Objects on their way out that grew while the disk was nearly full, with their size before.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    before: HashMap<String, usize>,
}

impl Leaving {
    /// Whether the object may have `bytes`, having `present` now.
    pub(super) fn may_have(&mut self, key: &str, present: usize, bytes: usize) -> bool {
        if bytes <= present {
            return true;
        }
        let is_known = self.before.contains_key(key);
        let before = self.before.get(key).copied().unwrap_or(present);
        let fits = bytes <= before.saturating_add(LEAVING_GROWTH_BYTES);
        if !fits || (!is_known && self.before.len() >= LEAVING_MAX) {
            return false;
        }
        self.before.entry(key.to_owned()).or_insert(before);
        true
    }

    /// The object is gone.
    pub(super) fn removed(&mut self, key: &str) {
        self.before.remove(key);
    }
}

/// What is told of the disk's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Writes begin to be refused.
    Scarce,
    /// None is refused any more.
    Roomy,
}

/// Whether writes are being refused: said once when it begins and once when it is over, however many are refused in between.
#[derive(Debug, Default)]
pub(super) struct Scarcity {
    is_scarce: bool,
}

impl Scarcity {
    /// A commit that found so much free space refused a write, or none.
    pub(super) fn commit(&mut self, free_bytes: Option<u64>, has_refused: bool) -> Option<Told> {
        let is_roomy = !free_bytes.is_some_and(is_scarce);
        match (self.is_scarce, has_refused) {
            (false, true) => {
                self.is_scarce = true;
                Some(Told::Scarce)
            }
            (true, false) if is_roomy => {
                self.is_scarce = false;
                Some(Told::Roomy)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Expect;
    use bytes::Bytes;

    fn job(write: Operation) -> Job {
        Job {
            key: "/k".to_owned(),
            write,
            reply: tokio::sync::oneshot::channel().0,
        }
    }

    fn put(bytes: usize, is_for_deletion: bool) -> Job {
        job(Operation::Put {
            value: Bytes::from(vec![0; bytes]),
            expect: Expect::Absent,
            is_for_deletion,
        })
    }

    #[test]
    fn what_adds_stops_first_and_removals_last() {
        let removal = job(Operation::Delete { expect: 1 });
        for (free_mib, plain, step, gone) in [
            (30, true, true, true),
            (19, false, true, true),
            (7, false, false, true),
            (4, false, false, false),
        ] {
            let is_written =
                |job: &Job| !matches!(Budget::new(Some(free_mib << 20)).judge(job), Verdict::Refuse { .. });
            assert_eq!(is_written(&put(10, false)), plain, "{free_mib}");
            assert_eq!(is_written(&put(10, true)), step, "{free_mib}");
            assert_eq!(is_written(&removal), gone, "{free_mib}");
        }
        assert_eq!(Budget::new(None).judge(&put(10, false)), Verdict::Write);
    }

    #[test]
    fn a_commit_holds_no_more_than_there_is_space_for() {
        let mut budget = Budget::new(Some(40 << 20));
        let verdicts: Vec<Verdict> = (0..5).map(|_| budget.judge(&put(1 << 20, false))).collect();
        assert_eq!(verdicts[..3], [Verdict::Write; 3]);
        assert_eq!(verdicts[3..], [Verdict::Later; 2]);
    }

    #[test]
    fn scarcity_is_told_once_and_so_is_its_end() {
        let mut scarcity = Scarcity::default();
        let mut commit = |mib: u64, has_refused| scarcity.commit(Some(mib << 20), has_refused);
        assert_eq!(commit(19, false), None, "it fitted");
        assert_eq!(commit(19, true), Some(Told::Scarce));
        assert_eq!(commit(19, true), None);
        assert_eq!(commit(23, false), None, "something larger would not fit");
        assert_eq!(commit(19, true), None);
        assert_eq!(commit(32, false), Some(Told::Roomy));
        assert_eq!(commit(100, false), None);
        assert_eq!(commit(19, true), Some(Told::Scarce));
        assert_eq!(scarcity.commit(None, false), Some(Told::Roomy));
        assert_eq!(
            Budget::new(Some(ROOMY_BYTES)).judge(&put(3 << 20, false)),
            Verdict::Write
        );
    }

    #[test]
    fn growth_is_measured_from_the_first_one_on() {
        let mut leaving = Leaving::default();
        assert!(leaving.may_have("/a", 100, 100 + LEAVING_GROWTH_BYTES));
        assert!(!leaving.may_have("/a", 100 + LEAVING_GROWTH_BYTES, 101 + LEAVING_GROWTH_BYTES));
        assert!(leaving.may_have("/a", 100 + LEAVING_GROWTH_BYTES, 50));
        leaving.removed("/a");
        assert!(leaving.may_have("/a", 50, 60));
        for number in 1..LEAVING_MAX {
            assert!(leaving.may_have(&number.to_string(), 0, 1));
        }
        assert!(!leaving.may_have("/b", 0, 1), "nothing is kept in mind without a bound");
    }
}
