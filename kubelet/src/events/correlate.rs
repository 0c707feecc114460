//! Which of the recorded events become new objects, which raise a count, which are too many. Pure: time is passed in.
//!
//! The rules are those users know from upstream's recorder: identical events raise a count; from the tenth of similar ones
//! within ten minutes on they become one "combined" event; one object gets at most 25 at once and one more every five minutes.

use super::Severity;
use client::ordered::Arrange;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};

/// Objects and messages remembered; the least recently used half is forgotten beyond it.
const REMEMBERED_MAX: usize = 2048;
/// The distinct message of one kind from which on they are combined.
const SIMILAR_MAX: usize = 10;
/// How long similar messages are counted together, seconds.
const SIMILAR_SECONDS: i64 = 600;
/// Events one object may have at once.
const BURST: f64 = 25.0;
/// Seconds until one object may have one more.
const REFILL_SECONDS: f64 = 300.0;
/// What says nothing any more is looked for once there is that much, and twice as much as was left the last time.
const SWEPT_MIN: usize = 64;

/// A recorded event, before correlation.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) object: ObjectReference,
    pub(super) severity: Severity,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) at: Timestamp,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    /// What it counts as.
    identity: Key,
    /// The object's name, stable while the event repeats.
    pub(super) name: String,
    /// How often it happened.
    pub(super) count: i32,
    /// When it first did.
    pub(super) first: Timestamp,
    /// The message, possibly combined.
    pub(super) message: String,
}

/// Half a digest of texts, in place of them: what is remembered outlives its pods by thousands.
type Key = u128;

/// The key of some texts. Of strangers' making (a message may be): no two texts can be found that have the same.
fn key(texts: &[&str]) -> Key {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    let digest: [u8; 32] = digest.finalize().into();
    let (half, _) = digest.split_at(size_of::<Key>());
    half.iter().fold(0, |key, byte| key << 8 | Key::from(*byte))
}

#[derive(Clone)]
struct Seen {
    /// What its object's name ends with, after that of the object it is about.
    suffix: u64,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

/// Messages of one kind.
struct Similar {
    /// The first of them; mostly there is no other.
    first: Key,
    others: Vec<Key>,
    last: Timestamp,
}

impl Similar {
    fn is_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) > SignedDuration::from_secs(SIMILAR_SECONDS)
    }
}

struct Bucket {
    tokens: f64,
    last: Timestamp,
}

impl Bucket {
    /// The tokens there are by now.
    fn refilled(&self, now: Timestamp) -> f64 {
        let seconds = now.duration_since(self.last).as_secs_f64().max(0.0);
        (self.tokens + seconds / REFILL_SECONDS).min(BURST)
    }
}

/// What is remembered of earlier events: digests and numbers, in one piece of memory each.
#[derive(Default)]
pub(super) struct Correlator {
    seen: HashMap<Key, Seen>,
    similar: HashMap<Key, Similar>,
    buckets: HashMap<Key, Bucket>,
    serial: u64,
    /// How much of the last two there was left when they were last swept.
    left: usize,
}

impl Correlator {
    /// What to write for this event; nothing if its object has had too many.
    pub(super) fn admit(&mut self, raw: &Raw) -> Option<Write> {
        self.forget(raw.at);
        let object = raw.object.uid.as_deref().unwrap_or_default();
        let path = raw.object.field_path.as_deref().unwrap_or_default();
        let of_kind = [object, raw.severity.as_str(), &raw.reason];
        let is_combined = self.is_one_too_many(key(&of_kind), raw);
        if !self.take_token(key(&[object]), raw.at) {
            return None;
        }
        self.serial += 1;
        let suffix = u128::try_from(raw.at.as_nanosecond()).unwrap_or(0) as u64 ^ (self.serial << 48);
        // Combined ones are the same whatever they say.
        let identity = match is_combined {
            true => key(&of_kind),
            false => key(&[object, raw.severity.as_str(), &raw.reason, path, &raw.message]),
        };
        let seen = self.seen.entry(identity).or_insert(Seen {
            suffix,
            count: 0,
            first: raw.at,
            last: raw.at,
        });
        seen.count += 1;
        seen.last = raw.at;
        let about = raw.object.name.as_deref().unwrap_or("unknown");
        Some(Write {
            identity,
            name: format!("{about}.{:016x}", seen.suffix),
            count: seen.count,
            first: seen.first,
            message: if is_combined {
                format!("(combined from similar events): {}", raw.message)
            } else {
                raw.message.clone()
            },
        })
    }

    /// The object that this one counts in is gone (an event lives an hour): the next one starts again.
    pub(super) fn disown(&mut self, write: &Write) {
        self.seen.remove(&write.identity);
    }

    fn is_one_too_many(&mut self, kind: Key, raw: &Raw) -> bool {
        let message = key(&[&raw.message]);
        let similar = self.similar.entry(kind).or_insert(Similar {
            first: message,
            others: Vec::new(),
            last: raw.at,
        });
        if similar.is_over(raw.at) {
            (similar.first, similar.others) = (message, Vec::new());
        }
        similar.last = raw.at;
        if similar.first == message || similar.others.contains(&message) {
            return false;
        }
        // With this one.
        let distinct = similar.others.len() + 2;
        if distinct < SIMILAR_MAX {
            similar.others.push(message);
        }
        distinct >= SIMILAR_MAX
    }

    fn take_token(&mut self, object: Key, now: Timestamp) -> bool {
        let bucket = self.buckets.entry(object).or_insert(Bucket {
            tokens: BURST,
            last: now,
        });
        bucket.tokens = bucket.refilled(now);
        bucket.last = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    /// Keeps to the bounds, and forgets what would be as new.
    fn forget(&mut self, now: Timestamp) {
        if self.similar.len() + self.buckets.len() > SWEPT_MIN.max(2 * self.left) {
            self.similar.retain(|_, similar| !similar.is_over(now));
            self.buckets.retain(|_, bucket| bucket.refilled(now) < BURST);
            self.similar.shrink_to(SWEPT_MIN);
            self.buckets.shrink_to(SWEPT_MIN);
            self.left = self.similar.len() + self.buckets.len();
        }
        forget_older_half(&mut self.seen, |seen| seen.last);
        forget_older_half(&mut self.similar, |similar| similar.last);
        forget_older_half(&mut self.buckets, |bucket| bucket.last);
    }
}

fn forget_older_half<V>(map: &mut HashMap<Key, V>, last: impl Fn(&V) -> Timestamp) {
    if map.len() <= REMEMBERED_MAX {
        return;
    }
    let mut times: Vec<Timestamp> = map.values().map(&last).collect();
    times.arrange();
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
            annotations: BTreeMap::new(),
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
        correlator.disown(&first);
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

    #[test]
    fn what_would_be_as_new_is_forgotten() {
        let mut correlator = Correlator::default();
        let of = |n: i64, second: i64| {
            let mut one = raw("m", second);
            one.object.uid = Some(n.to_string());
            one
        };
        for n in 0..1000 {
            correlator.admit(&of(n, 0));
        }
        assert_eq!((correlator.similar.len(), correlator.buckets.len()), (1000, 1000));
        // The token each took is back, and what is similar is no longer counted.
        for n in 1000..1900 {
            correlator.admit(&of(n, 2 * SIMILAR_SECONDS));
        }
        let left = (correlator.similar.len(), correlator.buckets.len());
        assert!(left.0 <= 900 && left.1 <= 900, "{left:?}");
        assert_eq!(correlator.seen.len(), 1900, "the same event still raises a count");
        let again = correlator.admit(&of(7, 2 * SIMILAR_SECONDS)).expect("admitted");
        assert_eq!(again.count, 2);
    }

    #[test]
    fn keys_tell_where_a_text_ends() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["ab"]), key(&["ab", ""]));
    }
}
