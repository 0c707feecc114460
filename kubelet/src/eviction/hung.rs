//! Pods of which a count of files hangs: since when, and whether that was told. Pure.
//!
//! A count hangs because a file system does not answer. That is not the pod's doing, but whoever looks after it is told: what it has is not
//! known until then, and its limits are not kept.

use super::earlier::COUNT_FAIR;
use crate::id::PodUid;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
struct Hang {
    since: Instant,
    told: bool,
}

/// Knows them.
#[derive(Debug, Default)]
pub(super) struct Hung(BTreeMap<PodUid, Hang>);

impl Hung {
    /// A pod's count hangs; tells whether it has for so long now that it is to be told, which it is once.
    pub(super) fn hangs(&mut self, uid: &PodUid, now: Instant) -> bool {
        let hang = self.0.entry(uid.clone()).or_insert(Hang {
            since: now,
            told: false,
        });
        let is_long = now.saturating_duration_since(hang.since) >= COUNT_FAIR;
        is_long && !std::mem::replace(&mut hang.told, is_long)
    }

    /// Whether a count that hangs has hung for as long as one may need.
    pub(super) fn is_long(&self, uid: &PodUid, now: Instant) -> bool {
        let hang = self.0.get(uid);
        hang.is_some_and(|hang| now.saturating_duration_since(hang.since) >= COUNT_FAIR)
    }

    /// A pod's count does not hang; tells whether it was told that it does.
    pub(super) fn ended(&mut self, uid: &PodUid) -> bool {
        self.0.remove(uid).is_some_and(|hang| hang.told)
    }

    /// Forgets all other pods.
    pub(super) fn keep(&mut self, there: &BTreeSet<PodUid>) {
        self.0.retain(|uid, _| there.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_hang_is_told_once_and_again_when_there_is_another() {
        let (mut hung, uid, begun) = (Hung::default(), PodUid::from("p"), Instant::now());
        let moment = Duration::from_millis(100);
        for _ in 0..2 {
            assert!(!hung.hangs(&uid, begun));
            assert!(!hung.hangs(&uid, begun + COUNT_FAIR - moment), "a disk may be busy");
            assert!(!hung.is_long(&uid, begun + COUNT_FAIR - moment));
            assert!(hung.hangs(&uid, begun + COUNT_FAIR));
            assert!(!hung.hangs(&uid, begun + COUNT_FAIR + moment), "it was told");
            assert!(hung.is_long(&uid, begun + COUNT_FAIR));
            assert!(hung.ended(&uid) && !hung.ended(&uid));
        }
        hung.hangs(&uid, begun);
        assert!(!hung.ended(&uid), "nobody heard of it");
        hung.hangs(&uid, begun);
        hung.keep(&BTreeSet::new());
        assert!(hung.0.is_empty());
    }
}
