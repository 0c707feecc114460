//! When the file gives the room inside it back to the disk. Pure: what was freed and what there is in, a verdict out.
//!
//! redb uses the pages that deletions freed again, but the file stays as long as its last page in use is far back, and the pages
//! need not lie side by side, as a large value wants them. So room inside the file is no space to reckon with ([`super::reserve`]).
//! Where writes would be refused and much has been freed, the file is compacted instead (redb moves its last pages to the front,
//! in ordinary commits: whatever happens in between loses nothing), and the file system's word about free space is true again.
//!
//! redb does all of it in one call (4.4's `compact_pages` moves up to a million pages in a commit), and what is written meanwhile waits:
//! 25 ms for each MiB in use, and 0.4 s for each GiB of file. So while writes are taken only what is small is compacted; what is larger is
//! told of, and compacted when the store is opened, before anybody waits.

use std::time::Duration;
use tokio::time::Instant;

/// The file is not compacted for less.
const WORTH_BYTES: u64 = 4 << 20;
/// Nor for less than this part of it: compacting reads all that is in use.
const WORTH_PART: u64 = 8;
/// Most bytes in use of a file that is compacted while writes are taken, and when it is opened, which bounds the time they wait (half a
/// second), or the start takes (some seconds), and the memory.
const USED_MAX_BYTES: (u64, u64) = (16 << 20, 256 << 20);
/// Most bytes of a file that is looked into at all: finding out how much of it is in use reads what is in use. One that is larger
/// stays as it is, however little of it that may be.
const FILE_MAX_BYTES: u64 = 1 << 30;
/// Most bytes of a file, without what was freed in it, that is looked into while writes are taken.
const LOOKED_MAX_BYTES: u64 = 64 << 20;
/// The shortest time between two attempts, which hold up all writes.
const PAUSE: Duration = Duration::from_secs(60);
/// Free space that the commits of a compaction need beside what is moved.
const COMMITS_BYTES: u64 = 5 << 20;

/// Who waits for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Nobody but the start.
    Opening,
    /// Whoever writes.
    Serving,
}

/// What has been freed inside the file, and when it was last attempted to give that back.
#[derive(Debug)]
pub(super) struct Freed {
    bytes: u64,
    /// What was freed before this process nobody knows.
    is_known: bool,
    attempted_at: Option<Instant>,
}

impl Freed {
    /// Nobody knows what was freed before this process began: the first time, looking is worth it. Unless an attempt has failed
    /// (`after_failure`), which may have ended the process: it is not begun again for the same room.
    pub(super) fn before_this_process(after_failure: bool) -> Self {
        Self {
            bytes: 0,
            is_known: after_failure,
            attempted_at: None,
        }
    }

    /// A value took the place of another; 0 stands for none.
    pub(super) fn replaced(&mut self, old_bytes: usize, new_bytes: usize) {
        self.bytes = self.bytes.saturating_add(old_bytes as u64);
        self.bytes = self.bytes.saturating_sub(new_bytes as u64);
    }

    /// Whether looking for what can be compacted in a file of so many bytes can be worth it now.
    pub(super) fn is_worth_it(&self, file_bytes: u64, now: Instant) -> bool {
        let is_too_soon = self
            .attempted_at
            .is_some_and(|then| now.saturating_duration_since(then) < PAUSE);
        let is_much = !self.is_known || self.bytes >= WORTH_BYTES.max(file_bytes / WORTH_PART);
        !is_too_soon && file_bytes <= FILE_MAX_BYTES && is_much
    }

    /// Whether that is done soon enough for those who write.
    pub(super) fn is_soon_done(&self, file_bytes: u64) -> bool {
        file_bytes.saturating_sub(self.bytes) <= LOOKED_MAX_BYTES
    }

    /// The file has been looked at, and compacted if that was possible; it ended `now`.
    pub(super) fn looked(&mut self, now: Instant) {
        (self.bytes, self.is_known) = (0, true);
        self.attempted_at = Some(now);
    }

    /// Nothing is done about it for a while.
    pub(super) fn left(&mut self, now: Instant) {
        self.attempted_at = Some(now);
    }
}

/// The front of the file, in bytes, into which a compaction moves what is in use. Pages have sizes of powers of two and places that
/// are multiples of their sizes: the smallest leave nothing empty, larger ones (`large_bytes` together) as much as they are.
pub(super) fn front_bytes(used_bytes: u64, large_bytes: u64) -> u64 {
    used_bytes.saturating_add(large_bytes).saturating_add(4 << 20)
}

/// Whether a file with so many bytes in use can be compacted: soon enough, and certainly within the free space. What is moved to
/// where the file has no disk behind it yet (`unbacked_bytes` of its front) costs as much until the end.
pub(super) fn is_possible(when: When, used_bytes: u64, free_bytes: u64, unbacked_bytes: u64) -> bool {
    let most_bytes = match when {
        When::Opening => USED_MAX_BYTES.1,
        When::Serving => USED_MAX_BYTES.0,
    };
    used_bytes <= most_bytes && free_bytes >= COMMITS_BYTES.saturating_add(unbacked_bytes.min(used_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_for_much_and_once() {
        let (start, mut minutes) = (Instant::now(), 0);
        let mut later = || {
            minutes += 1;
            start + minutes * PAUSE
        };
        let mut freed = Freed::before_this_process(false);
        freed.replaced(0, 10);
        assert!(freed.is_worth_it(1 << 30, later()), "unknown");
        assert!(!freed.is_worth_it((1 << 30) + 1, later()), "looking takes too long");
        freed.looked(later());
        freed.replaced(5 << 20, 2 << 20);
        assert!(!freed.is_worth_it(0, later()), "what was added took some of it");
        freed.replaced(1 << 20, 0);
        assert!(freed.is_worth_it(32 << 20, later()));
        assert!(!freed.is_worth_it(33 << 20, later()), "too small a part");
        freed.looked(later());
        freed.replaced(0, 5);
        assert!(!freed.is_worth_it(0, later()));
    }

    #[test]
    fn it_is_done_once_a_minute() {
        let start = Instant::now();
        let mut freed = Freed::before_this_process(false);
        assert!(freed.is_worth_it(0, start));
        freed.looked(start);
        freed.replaced(1 << 30, 0);
        assert!(!freed.is_worth_it(0, start + Duration::from_secs(59)));
        assert!(freed.is_worth_it(0, start + Duration::from_secs(60)));
    }

    #[test]
    fn what_failed_is_not_begun_again_before_something_new_is_freed() {
        let mut freed = Freed::before_this_process(true);
        assert!(!freed.is_worth_it(0, Instant::now()));
        freed.replaced(4 << 20, 0);
        assert!(freed.is_worth_it(0, Instant::now()));
    }

    #[test]
    fn it_never_takes_the_last_space_or_very_long() {
        use When::{Opening, Serving};
        for (when, most) in [(Opening, 256 << 20), (Serving, 16 << 20)] {
            assert!(is_possible(when, most, 5 << 20, 0));
            assert!(!is_possible(when, most, 5 << 20, 1));
            assert!(
                is_possible(when, 1 << 20, 6 << 20, 100 << 20),
                "no more is moved than there is"
            );
            assert!(!is_possible(when, most + 1, 1 << 40, 0));
        }
    }

    #[test]
    fn what_takes_long_is_not_looked_into_while_anybody_waits() {
        let now = Instant::now();
        let mut freed = Freed::before_this_process(false);
        assert!(
            freed.is_soon_done(64 << 20) && !freed.is_soon_done(65 << 20),
            "nobody knows what of it was freed"
        );
        freed.replaced(500 << 20, 0);
        assert!(freed.is_soon_done(564 << 20) && !freed.is_soon_done(565 << 20));
        freed.left(now);
        assert!(!freed.is_worth_it(600 << 20, now) && freed.is_worth_it(600 << 20, now + PAUSE));
        assert!(freed.is_soon_done(564 << 20), "what was freed is known still");
    }
}
