//! Which of the recorded events become new objects, which raise a count, which are too many. Pure: time is passed in.
//!
//! The rules are those users know from upstream's recorder: identical events raise a count; from the tenth of similar ones
//! within ten minutes on they become one "combined" event; one object gets at most 25 at once and one more every five minutes.

use super::Severity;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::{BTreeMap, BTreeSet};

/// Objects and messages remembered; the least recently used half is forgotten beyond it.
const REMEMBERED_MAX: usize = 4096;
/// The distinct message of one kind from which on they are combined.
const SIMILAR_MAX: usize = 10;
/// How long similar messages are counted together, seconds.
const SIMILAR_SECONDS: i64 = 600;
/// Events one object may have at once.
const BURST: f64 = 25.0;
/// Seconds until one object may have one more.
const REFILL_SECONDS: f64 = 300.0;

/// A recorded event, before correlation.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) object: ObjectReference,
    pub(super) severity: Severity,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) at: Timestamp,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    /// The object's name, stable while the event repeats.
    pub(super) name: String,
    /// How often it happened.
    pub(super) count: i32,
    /// When it first did.
    pub(super) first: Timestamp,
    /// The message, possibly combined.
    pub(super) message: String,
}

/// What makes events similar: the object (of whatever container), their type and their reason.
type Kind = (String, Severity, String);
/// What makes them the same: also the container and the message; combined ones are the same whatever they say.
type Identity = (Kind, Option<(String, String)>);

#[derive(Clone)]
struct Seen {
    name: String,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

struct Bucket {
    tokens: f64,
    last: Timestamp,
}

/// The memory correlation needs, bounded.
#[derive(Default)]
pub(super) struct Correlator {
    seen: BTreeMap<Identity, Seen>,
    similar: BTreeMap<Kind, Similar>,
    buckets: BTreeMap<String, Bucket>,
    serial: u64,
}

impl Correlator {
    /// What to write for a recorded event; nothing if its object has had too many.
    pub(super) fn admit(&mut self, raw: &Raw) -> Option<Write> {
        self.forget();
        let object = raw.object.uid.clone().unwrap_or_default();
        let path = raw.object.field_path.clone().unwrap_or_default();
        let kind = (object.clone(), raw.severity, raw.reason.clone());
        let is_combined = self.is_one_too_many(&kind, raw);
        if !self.take_token(&object, raw.at) {
            return None;
        }
        self.serial += 1;
        let fresh = format!(
            "{}.{:016x}",
            raw.object.name.as_deref().unwrap_or("unknown"),
            u128::try_from(raw.at.as_nanosecond()).unwrap_or(0) as u64 ^ (self.serial << 48)
        );
        let same = (!is_combined).then(|| (path, raw.message.clone()));
        let seen = self.seen.entry((kind, same)).or_insert(Seen {
            name: fresh,
            count: 0,
            first: raw.at,
            last: raw.at,
        });
        seen.count += 1;
        seen.last = raw.at;
        Some(Write {
            name: seen.name.clone(),
            count: seen.count,
            first: seen.first,
            message: if is_combined {
                format!("(combined from similar events): {}", raw.message)
            } else {
                raw.message.clone()
            },
        })
    }

    /// Forgets that an event was written: its object is gone from the API, so the next one is new again.
    pub(super) fn disown(&mut self, name: &str) {
        self.seen.retain(|_, seen| seen.name != name);
    }

    fn is_one_too_many(&mut self, kind: &Kind, raw: &Raw) -> bool {
        let similar = self.similar.entry(kind.clone()).or_insert_with(|| Similar {
            messages: BTreeSet::new(),
            last: raw.at,
        });
        if raw.at.duration_since(similar.last) > SignedDuration::from_secs(SIMILAR_SECONDS) {
            similar.messages.clear();
        }
        similar.last = raw.at;
        if similar.messages.contains(&raw.message) {
            return false;
        }
        if similar.messages.len() + 1 < SIMILAR_MAX {
            similar.messages.insert(raw.message.clone());
            return false;
        }
        true
    }

    fn take_token(&mut self, object: &str, now: Timestamp) -> bool {
        let bucket = self.buckets.entry(object.to_owned()).or_insert(Bucket {
            tokens: BURST,
            last: now,
        });
        let seconds = now.duration_since(bucket.last).as_secs_f64().max(0.0);
        bucket.tokens = (bucket.tokens + seconds / REFILL_SECONDS).min(BURST);
        bucket.last = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    fn forget(&mut self) {
        forget_older_half(&mut self.seen, |seen| seen.last);
        forget_older_half(&mut self.similar, |similar| similar.last);
        forget_older_half(&mut self.buckets, |bucket| bucket.last);
    }
}

fn forget_older_half<K: Ord, V>(map: &mut BTreeMap<K, V>, last: impl Fn(&V) -> Timestamp) {
    if map.len() <= REMEMBERED_MAX {
        return;
    }
    let mut times: Vec<Timestamp> = map.values().map(&last).collect();
    times.sort_unstable();
    let middle = times[times.len() / 2];
    map.retain(|_, value| last(value) > middle);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(message: &str, second: i64) -> Raw {
        Raw {
            object: ObjectReference {
                uid: Some("u".into()),
                name: Some("web".into()),
                ..ObjectReference::default()
            },
            severity: Severity::Warning,
            reason: "BackOff".into(),
            message: message.to_owned(),
            at: Timestamp::from_second(second).expect("in range"),
        }
    }

    #[test]
    fn identical_events_raise_the_count_of_one_object() {
        let mut correlator = Correlator::default();
        let first = correlator.admit(&raw("m", 1)).expect("admitted");
        let second = correlator.admit(&raw("m", 5)).expect("admitted");
        assert_eq!((first.count, second.count), (1, 2));
        assert_eq!((&first.name, first.first), (&second.name, second.first));
        assert_ne!(correlator.admit(&raw("other", 5)).expect("admitted").name, first.name);
    }

    #[test]
    fn an_event_whose_object_is_gone_starts_again_under_a_new_name() {
        let mut correlator = Correlator::default();
        let first = correlator.admit(&raw("m", 1)).expect("admitted");
        correlator.disown(&first.name);
        let again = correlator.admit(&raw("m", 2)).expect("admitted");
        assert_eq!(again.count, 1);
        assert_ne!(again.name, first.name);
    }

    #[test]
    fn the_tenth_similar_message_is_combined() {
        let mut correlator = Correlator::default();
        let writes: Vec<Write> = (0..12)
            .map(|n| {
                let mut event = raw(&format!("m{n}"), n);
                event.object.field_path = Some(format!("spec.containers{{c{}}}", n % 2));
                correlator.admit(&event).expect("admitted")
            })
            .collect();
        assert_eq!(writes[8].message, "m8");
        assert_eq!(writes[9].message, "(combined from similar events): m9");
        assert_eq!(writes[11].message, "(combined from similar events): m11");
        assert_eq!((&writes[9].name, writes[11].count), (&writes[11].name, 3), "one object");
        let later = correlator.admit(&raw("m99", 12 + SIMILAR_SECONDS)).expect("admitted");
        assert_eq!(later.message, "m99", "ten quiet minutes end the counting");
    }

    #[test]
    fn one_object_is_limited_and_recovers_slowly() {
        let mut correlator = Correlator::default();
        let admitted = (0..40).filter(|_| correlator.admit(&raw("m", 1)).is_some()).count();
        assert_eq!(admitted, 25);
        assert!(correlator.admit(&raw("m", 200)).is_none());
        assert!(correlator.admit(&raw("m", 301)).is_some());
    }

    #[test]
    fn memory_is_bounded() {
        let mut correlator = Correlator::default();
        for n in 0..3 * REMEMBERED_MAX as i64 {
            let mut one = raw("m", n);
            one.object.uid = Some(n.to_string());
            correlator.admit(&one);
        }
        assert!(correlator.seen.len() <= REMEMBERED_MAX + 1, "{}", correlator.seen.len());
        assert!(correlator.buckets.len() <= REMEMBERED_MAX + 1);
    }
}
