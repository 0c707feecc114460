//! Writes that work and do not last: somebody else undoes them, or a webhook makes something else of them, and the next plan wants the
//! same again. Pure: time is passed in.
//!
//! Upstream's controllers go round in the same circle, at the pace that their client's twenty requests a second leave them. Here nothing
//! holds a client back, so the key is: first for no time at all, then for ever longer. It is objects that are remembered, not plans: between
//! two writes that are undone a status is told, or another object is written.

use crate::controller::write::{Verb, Write};
use client::Key;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::time::Instant;

/// The same writes so often are no fight yet: whoever tries out what a controller does may do so by hand.
const PATIENCE: u32 = 8;
/// Keys that are remembered without a look at which of them are old.
const FEW: usize = 1024;
/// Objects that are remembered of one key, and that are looked at of one plan.
const OBJECTS: usize = 16;
/// Writes of one object that are remembered.
const WRITES: usize = 4;
/// Who undoes a write in less than this does so because of it.
const QUICK: Duration = Duration::from_secs(1);
/// The longest wait where one object is written in turns: it may be that what a controller goes by changes as fast.
const TURNS_MAX: Duration = Duration::from_secs(2);

/// What was written of one object, the last at the end, each with how often it was the same again.
struct Written {
    object: u64,
    prints: VecDeque<(u64, u32)>,
}

/// What a key wrote.
struct Last {
    /// The last at the end.
    objects: VecDeque<Written>,
    /// The highest revision that came of it, and of what has been written since.
    revision: u64,
    since: u64,
    /// When it was ready for the next.
    ready: Instant,
}

/// What each key wrote last, for a while.
#[derive(Default)]
pub(super) struct Repeats {
    all: BTreeMap<Key, Last>,
    /// So many were left when the old ones were taken out last.
    left: usize,
}

impl Repeats {
    /// This revision came of a key's write.
    pub(super) fn wrote(&mut self, key: &Key, revision: u64) {
        if let Some(last) = self.all.get_mut(key) {
            last.since = last.since.max(revision);
        }
    }

    /// A key's writes worked: how long it has to wait for the next, if it does the same again and again. `waits` are the first wait and
    /// the longest, which is as long as writes are remembered, too.
    ///
    /// What is written of an object as it was the last time has been undone, whatever else was written meanwhile. What was written before
    /// that, and otherwise in between, counts only where somebody else wrote in between, too, and at once: two who undo each other in turns.
    pub(super) fn note(
        &mut self,
        key: &Key,
        writes: &[Write],
        waits: (Duration, Duration),
        now: Instant,
    ) -> Option<Duration> {
        let (first, longest) = waits;
        let prints: Vec<Print> = writes.iter().filter_map(Print::of).take(OBJECTS).collect();
        if prints.is_empty() {
            return None;
        }
        let is_fresh = |last: &Last| now.saturating_duration_since(last.ready) <= longest.saturating_mul(2);
        if self.all.len() >= FEW + 2 * self.left {
            self.all.retain(|_, last| is_fresh(last));
            self.left = self.all.len();
        }
        let last = self.all.entry(key.clone()).or_insert_with(|| Last::at(now));
        if !is_fresh(last) {
            *last = Last::at(now);
        }
        let is_quick = now.saturating_duration_since(last.ready) < QUICK;
        let wait = |(times, is_in_turns): (u32, bool)| {
            let over = times.checked_sub(PATIENCE)?;
            let most = if is_in_turns { longest.min(TURNS_MAX) } else { longest };
            Some(first.saturating_mul(1 << over.min(20)).min(most))
        };
        let waits = prints.iter().map(|print| last.put(print, is_quick)).filter_map(wait);
        let wait = waits.max();
        last.revision = last.since;
        last.ready = now + wait.unwrap_or_default();
        wait
    }
}

impl Last {
    fn at(now: Instant) -> Self {
        Self {
            objects: VecDeque::new(),
            revision: 0,
            since: 0,
            ready: now,
        }
    }

    /// How often this was written now, and whether in turns with something else.
    fn put(&mut self, print: &Print, is_quick: bool) -> (u32, bool) {
        let is_rivalled = is_quick && print.seen.is_none_or(|seen| seen > self.revision);
        let at = self.objects.iter().position(|written| written.object == print.object);
        let mut written = at.and_then(|at| self.objects.remove(at)).unwrap_or(Written {
            object: print.object,
            prints: VecDeque::new(),
        });
        let at = written.prints.iter().position(|(known, _)| *known == print.whole);
        let is_in_turns = at.is_some_and(|at| at + 1 < written.prints.len());
        let times = match at.and_then(|at| written.prints.remove(at)) {
            Some((_, times)) if !is_in_turns || is_rivalled => times.saturating_add(1),
            _ => 0,
        };
        written.prints.push_back((print.whole, times));
        if written.prints.len() > WRITES {
            written.prints.pop_front();
        }
        self.objects.push_back(written);
        if self.objects.len() > OBJECTS {
            self.objects.pop_front();
        }
        (times, is_in_turns)
    }
}

/// What stands for a write.
struct Print {
    /// The object, and which part of it.
    object: u64,
    /// All of it, whatever it found there.
    whole: u64,
    /// The revision it is made of, if it says so.
    seen: Option<u64>,
}

impl Print {
    /// `None` for what makes something new, which is never the same.
    fn of(write: &Write) -> Option<Self> {
        let (part, body) = match &write.verb {
            Verb::Create(_) => return None,
            Verb::Delete { .. } => ("delete", None),
            Verb::Replace(body) => ("", Some(body)),
            Verb::ReplaceSub(part, body) | Verb::Patch(_, part, body) => (*part, Some(body)),
        };
        let mut hasher = DefaultHasher::new();
        (&write.resource, &write.key, part).hash(&mut hasher);
        let object = hasher.finish();
        if let Verb::Delete { uid, .. } = &write.verb {
            uid.hash(&mut hasher);
        }
        if let Some(body) = body {
            tree(body, &mut hasher);
        }
        let seen = body.and_then(|body| body["metadata"]["resourceVersion"].as_str());
        Some(Self {
            object,
            whole: hasher.finish(),
            seen: seen.and_then(|revision| revision.parse().ok()),
        })
    }
}

/// All of a tree but what is another after every write, and when it was that a condition became what it is. (No deeper than what a controller writes, which is as deep as what it read.)
fn tree(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(members) => {
            members.len().hash(hasher);
            for (name, member) in members {
                if !["resourceVersion", "generation", "lastTransitionTime", "lastUpdateTime"].contains(&name.as_str()) {
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

    /// Notes a key's writes until they have been done so often; returns the waits. Each is made of a revision that this key did not write
    /// (or did, where nobody else writes), so long after it was ready.
    fn waits(rounds: &[Vec<Write>], times: usize, pause: Duration, is_alone: bool) -> Vec<Duration> {
        let (mut repeats, key, mut now) = (Repeats::default(), Key::new("default", "web"), Instant::now());
        let mut waits = Vec::new();
        let mut revision = 10_u64;
        for round in rounds.iter().cycle().take(times) {
            let mut writes = round.clone();
            for write in &mut writes {
                let Verb::Patch(_, _, body) = &mut write.verb else {
                    panic!()
                };
                body["metadata"]["resourceVersion"] = json!(revision.to_string());
            }
            revision += 1;
            repeats.wrote(&key, revision);
            let wait = repeats.note(&key, &writes, WAITS, now);
            revision += u64::from(!is_alone);
            waits.extend(wait);
            now += wait.unwrap_or_default() + pause;
        }
        waits
    }

    fn conditions(status: &str, at: u32) -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": at.to_string()}]}})
    }

    #[test]
    fn what_is_undone_waits_whatever_else_is_written_meanwhile() {
        let scale = || vec![patch("rs", json!({"spec": {"replicas": 3}}))];
        let told = |replicas: usize| vec![patch("web", json!({"status": {"replicas": replicas}}))];
        let other = || vec![patch("other", json!({"spec": {"replicas": 1}}))];
        let with = |between: &dyn Fn(usize) -> Vec<Write>| -> Vec<Vec<Write>> {
            (0..40).flat_map(|round| [scale(), between(round)]).collect()
        };
        // Between two of them another status is told each time, or another object is written that is undone as well.
        for rounds in [with(&told), with(&|_| other())] {
            let waits = waits(&rounds, rounds.len(), Duration::from_millis(1), false);
            assert_eq!(waits[0], WAITS.0);
            assert!(waits.is_sorted(), "{waits:?}");
            assert_eq!(waits.last(), Some(&WAITS.1));
        }
    }

    #[test]
    fn two_who_undo_each_other_in_turns_are_held_back() {
        let in_turns = [
            vec![patch("p", json!({"spec": {"replicas": 1}}))],
            vec![patch("p", json!({"spec": {"replicas": 2}}))],
        ];
        let once = Duration::from_millis(1);
        let held = waits(&in_turns, 80, once, false);
        assert_eq!(held[..4], [5, 5, 10, 10].map(Duration::from_millis));
        assert_eq!(held.last(), Some(&TURNS_MAX));
        // When a condition became what it is does not make it another.
        let told: Vec<_> = (0..80)
            .map(|at| vec![patch("p", conditions(["True", "False"][at as usize % 2], at))])
            .collect();
        assert_eq!(waits(&told, 80, once, false).last(), Some(&TURNS_MAX));
        // What changes by itself is followed at once: nobody else wrote, or not because of it.
        assert!(waits(&in_turns, 80, once, true).is_empty());
        assert!(waits(&in_turns, 80, QUICK, false).is_empty());
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
