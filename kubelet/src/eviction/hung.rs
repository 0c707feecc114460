//! Pods of which a count of files hangs: since when, and when that was told. Pure.
//!
//! A count hangs because a file system does not answer. That is not the pod's doing, but whoever looks after it is told: what it has is not
//! known until then, and its limits are not kept.

use super::earlier::COUNT_FAIR;
use crate::id::PodUid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// A pod whose counts hang, end and hang again is told of no oftener.
const TOLD_EVERY: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, Default)]
struct Hang {
    /// Since when it does; nothing while it does not.
    since: Option<Instant>,
    /// Whether that was told.
    told: bool,
    /// When it was last told, of this hang or of one before.
    last: Option<Instant>,
}

impl Hang {
    fn is_long(&self, now: Instant) -> bool {
        self.since
            .is_some_and(|since| now.saturating_duration_since(since) >= COUNT_FAIR)
    }

    fn was_told_lately(&self, now: Instant) -> bool {
        self.last
            .is_some_and(|last| now.saturating_duration_since(last) < TOLD_EVERY)
    }
}

/// Knows them.
#[derive(Debug, Default)]
pub(super) struct Hung(BTreeMap<PodUid, Hang>);

impl Hung {
    /// A pod's count hangs; tells whether it has for so long now that it is to be told, which it is once.
    pub(super) fn hangs(&mut self, uid: &PodUid, now: Instant) -> bool {
        let hang = self.0.entry(uid.clone()).or_default();
        hang.since.get_or_insert(now);
        let is_news = hang.is_long(now) && !hang.told && !hang.was_told_lately(now);
        if is_news {
            (hang.told, hang.last) = (true, Some(now));
        }
        is_news
    }

    /// Whether a count that hangs has hung for as long as one may need.
    pub(super) fn is_long(&self, uid: &PodUid, now: Instant) -> bool {
        self.0.get(uid).is_some_and(|hang| hang.is_long(now))
    }

    /// A pod's count does not hang; tells whether it was told that it does.
    pub(super) fn ended(&mut self, uid: &PodUid, now: Instant) -> bool {
        let Some(hang) = self.0.get_mut(uid) else { return false };
        let was_told = std::mem::take(&mut hang.told);
        hang.since = None;
        if !hang.was_told_lately(now) {
            self.0.remove(uid);
        }
        was_told
    }

    /// Forgets all other pods.
    pub(super) fn keep(&mut self, there: &BTreeSet<PodUid>) {
        self.0.retain(|uid, _| there.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn a_hang_is_told_once_and_again_when_there_is_another_much_later() {
        let (mut hung, uid, mut begun) = (Hung::default(), PodUid::from("p"), Instant::now());
        for _ in 0..2 {
            assert!(!hung.hangs(&uid, begun));
            assert!(!hung.hangs(&uid, begun + COUNT_FAIR - MOMENT), "a disk may be busy");
            assert!(!hung.is_long(&uid, begun + COUNT_FAIR - MOMENT));
            let told = begun + COUNT_FAIR;
            assert!(hung.hangs(&uid, told));
            assert!(!hung.hangs(&uid, told + MOMENT), "it was told");
            assert!(!hung.hangs(&uid, told + TOLD_EVERY), "and is the same");
            assert!(hung.is_long(&uid, told));
            begun = told + TOLD_EVERY + MOMENT;
            assert!(hung.ended(&uid, begun) && !hung.ended(&uid, begun));
            assert!(hung.0.is_empty());
        }
        hung.hangs(&uid, begun);
        assert!(!hung.ended(&uid, begun), "nobody heard of it");
        hung.hangs(&uid, begun);
        hung.keep(&BTreeSet::new());
        assert!(hung.0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_again_and_again_is_told_now_and_then() {
        let (mut hung, uid, begun) = (Hung::default(), PodUid::from("p"), Instant::now());
        let (mut told, mut ended) = (Vec::new(), 0);
        for minute in 0..25 {
            let at = begun + Duration::from_secs(60) * minute;
            assert!(!hung.hangs(&uid, at));
            if hung.hangs(&uid, at + COUNT_FAIR) {
                told.push(minute);
            }
            assert!(hung.is_long(&uid, at + COUNT_FAIR), "whether it is told or not");
            ended += u32::from(hung.ended(&uid, at + COUNT_FAIR + MOMENT));
            assert!(!hung.is_long(&uid, at + COUNT_FAIR + MOMENT));
        }
        assert_eq!((told, ended), (vec![0, 10, 20], 3));
    }
}
