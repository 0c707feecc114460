//! How many events one object may have: as client-go's spam filter, a bucket of tokens for each object. Pure.

use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Events an object may have at once (client-go's `EventCorrelator`).
const BURST: u32 = 25;
/// After so long it may have another one.
const REFILL: Duration = Duration::from_secs(300);
/// Objects that are remembered; the one that was told of longest ago is forgotten first.
const OBJECTS: usize = 4096;

/// API version, kind, namespace, name and UID of an object.
type Subject = [Option<String>; 5];

/// The buckets of a source.
#[derive(Default)]
pub(super) struct SpamFilter {
    /// When the bucket is full again, and the turn of its last event.
    buckets: BTreeMap<Subject, (Instant, u64)>,
    /// By turn.
    turns: BTreeMap<u64, Subject>,
    turn: u64,
}

impl SpamFilter {
    /// Whether there may be another event about the object now; if so, it takes a token.
    pub(super) fn admits(&mut self, about: &ObjectReference, now: Instant) -> bool {
        let subject = [
            about.api_version.clone(),
            about.kind.clone(),
            about.namespace.clone(),
            about.name.clone(),
            about.uid.clone(),
        ];
        let known = self.buckets.get(&subject).copied();
        let full_at = known.map_or(now, |(full_at, _)| full_at.max(now));
        let admits = full_at - now <= REFILL * (BURST - 1);
        let full_at = if admits { full_at + REFILL } else { full_at };
        match known {
            Some((_, turn)) => drop(self.turns.remove(&turn)),
            None if self.buckets.len() >= OBJECTS => {
                if let Some((_, oldest)) = self.turns.pop_first() {
                    self.buckets.remove(&oldest);
                }
            }
            None => {}
        }
        self.turn += 1;
        self.turns.insert(self.turn, subject.clone());
        self.buckets.insert(subject, (full_at, self.turn));
        admits
    }
}

#[cfg(test)]
mod tests {
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
        for other in 0..OBJECTS - 1 {
            assert_eq!(admitted(&mut filter, &format!("o{other}"), 1, now), 1);
        }
        assert_eq!(admitted(&mut filter, "a", 1, now), 0, "still known");
        for other in OBJECTS..3 * OBJECTS {
            assert_eq!(admitted(&mut filter, &format!("o{other}"), 1, now), 1);
        }
        assert_eq!((filter.buckets.len(), filter.turns.len()), (OBJECTS, OBJECTS));
        assert_eq!(admitted(&mut filter, "a", 100, now), 25, "forgotten");
    }
}
