//! Writes that work and do not last: somebody else undoes them, or a webhook makes something else of them, and the next plan wants the
//! same again. Pure: time is passed in.
//!
//! Upstream's controllers go round in the same circle, at the pace that their client's twenty requests a second leave them. Here nothing
//! holds a client back, so the key is: first for no time at all, then for ever longer.

use crate::controller::write::{Verb, Write};
use client::Key;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::time::Instant;

/// The same writes so often in a row are no fight yet: whoever tries out what a controller does may do so by hand.
const PATIENCE: u32 = 8;
/// Keys that are remembered without a look at which of them are old.
const FEW: usize = 1024;

struct Last {
    print: u64,
    times: u32,
    at: Instant,
}

/// What each key wrote last, for a while.
#[derive(Default)]
pub(super) struct Repeats {
    all: BTreeMap<Key, Last>,
    /// So many were left when the old ones were taken out last.
    left: usize,
}

impl Repeats {
    /// A key's writes worked: how long it has to wait for the next, if it does the same again and again. `waits` are the first wait and
    /// the longest, which is as long as writes are remembered, too.
    pub(super) fn note(
        &mut self,
        key: &Key,
        writes: &[Write],
        waits: (Duration, Duration),
        now: Instant,
    ) -> Option<Duration> {
        let (first, longest) = waits;
        let print = print(writes)?;
        let is_fresh = |last: &Last| now.saturating_duration_since(last.at) <= longest.saturating_mul(2);
        if self.all.len() >= FEW + 2 * self.left {
            self.all.retain(|_, last| is_fresh(last));
            self.left = self.all.len();
        }
        let known = self.all.get(key).filter(|last| last.print == print && is_fresh(last));
        let times = known.map_or(0, |last| last.times.saturating_add(1));
        self.all.insert(key.clone(), Last { print, times, at: now });
        let over = times.checked_sub(PATIENCE)?;
        Some(first.saturating_mul(1 << over.min(20)).min(longest))
    }
}

/// What stands for these writes, whatever they found there; `None` where all make something new, which are never the same.
fn print(writes: &[Write]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut is_any = false;
    for write in writes {
        let what = match &write.verb {
            Verb::Create(_) => continue,
            Verb::Delete { uid, .. } => {
                uid.hash(&mut hasher);
                None
            }
            Verb::Replace(body) | Verb::ReplaceSub(_, body) | Verb::Patch(_, _, body) => Some(body),
        };
        is_any = true;
        (&write.resource, &write.key).hash(&mut hasher);
        if let Some(body) = what {
            tree(body, &mut hasher);
        }
    }
    is_any.then(|| hasher.finish())
}

/// All of a tree but what is another after every write. (No deeper than what a controller writes, which is as deep as what it read.)
fn tree(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(members) => {
            members.len().hash(hasher);
            for (name, member) in members {
                if !["resourceVersion", "generation"].contains(&name.as_str()) {
                    name.hash(hasher);
                    tree(member, hasher);
                }
            }
        }
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| tree(item, hasher));
        }
        Value::Null => 0u8.hash(hasher),
        Value::Bool(is) => is.hash(hasher),
        Value::Number(number) => number.hash(hasher),
        Value::String(text) => text.hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::write::{PODS, PatchKind};
    use serde_json::json;

    const WAITS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(80));

    fn patch(name: &str, body: Value) -> Write {
        Write::patch(PODS, Key::new("default", name), PatchKind::Merge, body)
    }

    #[test]
    fn the_same_write_again_and_again_waits_ever_longer() {
        let (mut repeats, key, mut now) = (Repeats::default(), Key::new("default", "web"), Instant::now());
        let mut waits = Vec::new();
        for revision in 0..30 {
            let body = json!({"metadata": {"resourceVersion": revision.to_string(), "labels": {"a": "b"}}});
            let wait = repeats.note(&key, &[patch("p", body)], WAITS, now);
            waits.extend(wait);
            now += wait.unwrap_or(Duration::from_millis(1));
        }
        assert_eq!(waits.len(), 22, "after eight without a wait");
        assert_eq!(waits[..4], [5, 10, 20, 40].map(Duration::from_millis));
        assert_eq!(waits.last(), Some(&WAITS.1));
        // Somebody else gave up meanwhile.
        now += WAITS.1 * 3;
        let body = json!({"metadata": {"resourceVersion": "99", "labels": {"a": "b"}}});
        assert_eq!(repeats.note(&key, &[patch("p", body)], WAITS, now), None);
    }

    #[test]
    fn what_goes_on_never_waits() {
        let (mut repeats, key, now) = (Repeats::default(), Key::new("default", "web"), Instant::now());
        let create = || Write::create(PODS, &k8s_openapi::api::core::v1::Pod::default());
        for number in 0..100 {
            for writes in [
                vec![create()],
                vec![patch("p", json!({"spec": {"replicas": number}}))],
                vec![patch(&format!("p{number}"), json!({}))],
            ] {
                assert_eq!(repeats.note(&key, &writes, WAITS, now), None);
            }
        }
        // What another key does is no matter.
        for number in 0..100 {
            let other = Key::new("default", format!("web{number}"));
            assert_eq!(repeats.note(&other, &[patch("p", json!({}))], WAITS, now), None);
        }
    }

    #[test]
    fn those_that_are_over_are_forgotten() {
        let (mut repeats, mut now) = (Repeats::default(), Instant::now());
        for number in 0..20_000 {
            let key = Key::new("default", format!("p{number}"));
            repeats.note(&key, &[patch("p", json!({}))], WAITS, now);
            now += Duration::from_secs(1);
        }
        assert!(repeats.all.len() < 2 * FEW, "{}", repeats.all.len());
    }
}
