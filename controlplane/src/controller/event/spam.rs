//! How many events one object may have: as client-go's spam filter, a bucket of tokens for each object. Pure.

use super::memory::{Memory, digest};
use k8s_openapi::api::core::v1::ObjectReference;
use std::time::Duration;
use tokio::time::Instant;

/// Events an object may have at once (client-go's `EventCorrelator`).
const BURST: u32 = 25;
/// After so long it may have another one.
const REFILL: Duration = Duration::from_secs(300);

/// The buckets of a source: when each is full again.
#[derive(Default)]
pub(crate) struct SpamFilter(Memory<Instant>);

impl SpamFilter {
    /// Whether there may be another event about the object now; if so, it takes a token.
    pub(crate) fn admits(&mut self, about: &ObjectReference, now: Instant) -> bool {
        let subject = (
            &about.api_version,
            &about.kind,
            &about.namespace,
            &about.name,
            &about.uid,
        );
        let (full_at, _) = self.0.touch(digest(subject), || now);
        *full_at = now.max(*full_at);
        let admits = *full_at - now <= REFILL * (BURST - 1);
        if admits {
            *full_at += REFILL;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::ENTRIES;
    use super::*;

    fn about(name: &str) -> ObjectReference {
        ObjectReference {
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        }
    }

    fn admitted(filter: &mut SpamFilter, name: &str, asked: usize, now: Instant) -> usize {
        (0..asked).filter(|_| filter.admits(&about(name), now)).count()
    }

    #[test]
    fn each_object_has_a_burst_and_then_one_in_five_minutes() {
        let mut filter = SpamFilter::default();
        let began = Instant::now();
        for (after, asked, expected) in [
            (0, 100, 25),
            (299, 100, 0),
            (300, 100, 1),
            (899, 1, 1),
            (900, 100, 1),
            // It never has more than a burst.
            (1_000_000, 100, 25),
        ] {
            let now = began + Duration::from_secs(after);
            assert_eq!(admitted(&mut filter, "a", asked, now), expected, "after {after} s");
        }
        assert_eq!(admitted(&mut filter, "b", 100, began), 25);
    }

    #[test]
    fn objects_remembered_are_bounded() {
        let mut filter = SpamFilter::default();
        let now = Instant::now();
        assert_eq!(admitted(&mut filter, "a", 100, now), 25);
        for other in 0..ENTRIES - 1 {
            assert_eq!(admitted(&mut filter, &format!("o{other}"), 1, now), 1);
        }
        assert_eq!(admitted(&mut filter, "a", 1, now), 0, "still known");
        for other in ENTRIES..3 * ENTRIES {
            assert_eq!(admitted(&mut filter, &format!("o{other}"), 1, now), 1);
        }
        assert_eq!(filter.0.len(), ENTRIES);
        assert_eq!(admitted(&mut filter, "a", 100, now), 25, "forgotten");
    }
}
