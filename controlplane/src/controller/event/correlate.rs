//! Which of a source's events are one: client-go's `EventCorrelator`. Pure.
//!
//! An event that was told before is counted. Of one object's events that differ in their messages alone ten are told in ten minutes; those
//! that follow are one, which has the last message. What one object may have of all is bounded by [`SpamFilter`], and counted nevertheless.

use super::memory::{Memory, digest, stamp};
use super::spam::SpamFilter;
use crate::controller::write::EventText;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Similar events that are told one by one.
const SIMILAR_MAX: usize = 10;
/// After so long without a similar event they are told one by one again.
const SIMILAR_FOR: Duration = Duration::from_secs(600);
/// How the message of one begins that stands for several.
const COMBINED: &str = "(combined from similar events): ";

/// Events that differ in their messages alone.
struct Similar {
    /// Digests of messages.
    messages: BTreeSet<u128>,
    last: Instant,
}

/// One event, however often it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    /// What its name ends with.
    pub(super) stamp: u64,
    pub(super) count: u32,
    pub(super) first: Timestamp,
}

/// What is to be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// What is the same for all of its repeats.
    pub(super) identity: u128,
    pub(super) observed: Observed,
    pub(super) message: String,
}

/// What is remembered of a source's events.
#[derive(Default)]
pub(super) struct Correlator {
    similar: Memory<Similar>,
    observed: Memory<Observed>,
    spam: SpamFilter,
    source: String,
    made: u64,
}

impl Correlator {
    /// One of a source that has told nothing yet.
    pub(super) fn of(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            ..Self::default()
        }
    }

    /// What is to be told of an event at this time, if anything.
    pub(super) fn correlate(&mut self, event: &EventText, now: Timestamp, at: Instant) -> Option<Told> {
        let (identity, message) = self.combine(event, at);
        self.made += 1;
        let fresh = Observed {
            stamp: stamp(now, (&self.source, identity, self.made)),
            count: 0,
            first: now,
        };
        let (observed, _) = self.observed.touch(identity, || fresh);
        observed.count = observed.count.saturating_add(1);
        let observed = *observed;
        self.spam.admits(&event.regarding, at).then_some(Told {
            identity,
            observed,
            message,
        })
    }

    /// What the event is the same by, and its message.
    fn combine(&mut self, event: &EventText, at: Instant) -> (u128, String) {
        let about = &event.regarding;
        let object = (
            &about.api_version,
            &about.kind,
            &about.namespace,
            &about.name,
            &about.uid,
        );
        let sort = digest((object, event.kind, event.reason));
        let message = digest(&event.message);
        let (similar, _) = self.similar.touch(sort, || Similar {
            messages: BTreeSet::new(),
            last: at,
        });
        if at.saturating_duration_since(similar.last) > SIMILAR_FOR {
            similar.messages.clear();
        }
        similar.last = at;
        similar.messages.insert(message);
        if similar.messages.len() < SIMILAR_MAX {
            return (digest((sort, &about.field_path, message)), event.message.clone());
        }
        similar.messages.remove(&message);
        (sort, format!("{COMBINED}{}", event.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;

    struct Source {
        correlator: Correlator,
        began: Instant,
    }

    impl Source {
        fn new() -> Self {
            Self {
                correlator: Correlator::default(),
                began: Instant::now(),
            }
        }

        /// Counts and messages of what is told of an object's event, so many seconds after the beginning.
        fn tell(&mut self, name: &str, reason: &'static str, message: &str, after: u64) -> Option<(u32, String)> {
            let event = EventText {
                regarding: ObjectReference {
                    name: Some(name.to_owned()),
                    ..ObjectReference::default()
                },
                kind: "Normal",
                reason,
                message: message.to_owned(),
            };
            let seconds = i64::try_from(after).unwrap();
            let now = Timestamp::from_second(1_000_000 + seconds).unwrap();
            let told = self
                .correlator
                .correlate(&event, now, self.began + Duration::from_secs(after));
            told.map(|told| (told.observed.count, told.message))
        }
    }

    fn told(count: u32, message: &str) -> Option<(u32, String)> {
        Some((count, message.to_owned()))
    }

    #[test]
    fn repeats_are_counted_by_what_they_are_about_and_say() {
        let mut source = Source::new();
        for (name, reason, message, count) in [
            ("a", "R", "m", 1),
            ("a", "R", "m", 2),
            ("b", "R", "m", 1),
            ("a", "S", "m", 1),
            ("a", "R", "n", 1),
            ("a", "R", "m", 3),
        ] {
            assert_eq!(
                source.tell(name, reason, message, 0),
                told(count, message),
                "{name} {reason} {message}"
            );
        }
    }

    #[test]
    fn similar_events_are_one_after_ten_in_ten_minutes() {
        let mut source = Source::new();
        for number in 0..9 {
            let message = format!("m{number}");
            assert_eq!(source.tell("a", "R", &message, 0), told(1, &message));
        }
        assert_eq!(
            source.tell("a", "R", "m9", 500),
            told(1, "(combined from similar events): m9")
        );
        assert_eq!(
            source.tell("a", "R", "m10", 500),
            told(2, "(combined from similar events): m10")
        );
        assert_eq!(
            source.tell("a", "R", "m10", 1100),
            told(3, "(combined from similar events): m10")
        );
        assert_eq!(
            source.tell("a", "R", "m0", 1100),
            told(2, "m0"),
            "one that is known by itself"
        );
        assert_eq!(source.tell("a", "S", "m11", 1100), told(1, "m11"), "another reason");
        assert_eq!(source.tell("a", "R", "m12", 1701), told(1, "m12"), "long after");
    }

    #[test]
    fn what_is_not_told_is_counted() {
        let mut source = Source::new();
        let spoken = (0..40).filter(|_| source.tell("a", "R", "m", 0).is_some()).count();
        assert_eq!(spoken, 25);
        assert_eq!(source.tell("a", "R", "m", 300), told(41, "m"));
    }

    #[test]
    fn names_of_events_differ_and_stay() {
        let stamp = |source: &mut Source, message: &str| {
            let event = EventText {
                regarding: ObjectReference::default(),
                kind: "Normal",
                reason: "R",
                message: message.to_owned(),
            };
            let now = Timestamp::UNIX_EPOCH;
            source
                .correlator
                .correlate(&event, now, source.began)
                .unwrap()
                .observed
                .stamp
        };
        let (mut one, mut other) = (Source::new(), Source::new());
        other.correlator = Correlator::of("other");
        let (first, second) = (stamp(&mut one, "m"), stamp(&mut one, "n"));
        assert_ne!(first, second);
        assert_eq!(stamp(&mut one, "m"), first);
        assert_ne!(stamp(&mut other, "m"), first, "of another source at the same time");
    }
}
