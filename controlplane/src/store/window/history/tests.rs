//! That the present and the past of a resource take little where its objects are like one another, and read as they were written.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;

/// A pod of a controller, with a status; more than a kilobyte.
fn pod(name: &str, status: usize) -> Bytes {
    made(1, name, status)
}

/// What another controller makes has nothing in common with it.
fn made(by: u32, name: &str, status: usize) -> Bytes {
    let field = |number: u32| format!("\"f:{:x}\":{{}},", (by * 1000 + number).wrapping_mul(0x9e37_79b9));
    let fields: String = (0..80).map(field).collect();
    Bytes::from(format!(
        "{{\"name\":\"{name}\",{fields}\"uid\":\"{name}-uid\",\"status\":{{\"restarts\":{status}}}}}"
    ))
}

fn write(revision: Revision, name: &str, status: usize) -> Change {
    Change {
        key: Arc::from(format!("/registry/pods/a/{name}")),
        revision,
        value: Some(pod(name, status)),
        created: status == 0,
    }
}

#[test]
fn objects_that_are_like_others_take_little_in_the_present_and_in_the_past() {
    let names: Vec<String> = (100..130).map(|number| format!("web-{number}")).collect();
    let read = names.iter().map(|name| {
        let key: Arc<str> = Arc::from(format!("/registry/pods/a/{name}"));
        (Arc::clone(&key), Arc::new(Stored::new(key, 1, 1, pod(name, 0))))
    });
    let mut history = History::new(read.collect(), 1, None);
    assert!(!history.sample(7) && !history.sample(7) && history.sample(100) && history.sample(1));
    let large = |history: &History| {
        history
            .objects()
            .values()
            .filter(|stored| stored.kept_size() > 100)
            .count()
    };
    assert_eq!(large(&history), 1, "the sample");
    let mut revision = 1;
    for status in 1..20 {
        for name in &names {
            revision += 1;
            history.apply(write(revision, name, status), None, Instant::now());
        }
    }
    for number in 200..230 {
        revision += 1;
        history.apply(write(revision, &format!("web-{number}"), 0), None, Instant::now());
    }
    assert_eq!((history.objects().len(), large(&history)), (60, 0));
    let events = (revision - 1) as usize;
    let most = events * (EVENT_BYTES + OLD_BYTES + 100) + pod("web-100", 0).len();
    let checkpoint = NODE_BYTES * (30 / NODE_OBJECTS + 1);
    assert!(history.bytes() <= most + checkpoint, "{} of {most}", history.bytes());
    for Kept { event, .. } in &history.events {
        let Some(old) = &event.old else { continue };
        let status = event.revision as usize - 2;
        assert_eq!(old.raw(), pod(old.name(), status / names.len()));
    }
}

#[test]
fn what_is_like_nothing_is_like_what_it_was() {
    let mut history = History::new(Objects::default(), 0, None);
    let mut revision = 0;
    let mut apply = |by, name: String, status| {
        revision += 1;
        let change = Change {
            value: Some(made(by, &name, status)),
            ..write(revision, &name, status)
        };
        history.apply(change, None, Instant::now());
    };
    for status in 0..20 {
        apply(1, "web".to_owned(), status);
        // None of the objects that others are compared with is it.
        (0..5).for_each(|other| {
            let by = 2 + other + 5 * status as u32;
            apply(by, format!("other-{by}"), 0);
        });
    }
    let events = history.events.iter();
    let written_over: Vec<&Arc<Stored>> = events.filter_map(|kept| kept.event.old.as_ref()).collect();
    let large = written_over.iter().filter(|old| old.kept_size() > 100).count();
    assert_eq!((written_over.len(), large), (19, 19 / 8));
    for (number, old) in written_over.iter().enumerate() {
        assert_eq!(old.raw(), made(1, "web", number));
    }
}

/// What is written: an object of one of few makers, in several sizes, changed in the middle, or of no form at all; `None` for a deletion.
fn value() -> impl Strategy<Value = Option<Bytes>> {
    let like = (0..3_u32, 0..60_usize, 0..4_usize).prop_map(|(by, status, longer)| {
        let object = made(by, &format!("web-{status}"), status).to_vec();
        let at = object.len() * status / 60;
        let more = format!("\"more\":\"{}\",", "abcdefgh".repeat([0, 3, 40, 900][longer]));
        Bytes::from([&object[..at], more.as_bytes(), &object[at..]].concat())
    });
    let any = prop::collection::vec(0_u8..3, 0..2000).prop_map(Bytes::from);
    prop_oneof![8 => like.prop_map(Some), 2 => any.prop_map(Some), 1 => Just(None)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However revisions follow one another, whoever reads which of them, and whatever has been forgotten of those before.
    #[test]
    fn every_revision_reads_as_it_was_written(
        read in prop::collection::vec(value(), 0..8),
        writes in prop::collection::vec((0..4_usize, value()), 0..120),
        forgotten in 0..120_usize,
    ) {
        let key = |number: usize| -> Arc<str> { Arc::from(format!("/registry/pods/a/{number}")) };
        let mut present: std::collections::BTreeMap<Arc<str>, Bytes> = std::collections::BTreeMap::new();
        present.extend(read.into_iter().flatten().enumerate().map(|(number, value)| (key(number), value)));
        let stored = present.iter().map(|(key, value)| (Arc::clone(key), Arc::new(Stored::new(Arc::clone(key), 1, 1, value.clone()))));
        let mut history = History::new(stored.collect(), 1, None);
        let mut states = vec![present.clone()];
        let (begin, mut held) = (Instant::now(), Vec::new());
        let mut samples_at = forgotten % 7;
        for (number, (at, value)) in writes.into_iter().enumerate() {
            let key = key(at);
            let created = !present.contains_key(&key);
            if created && value.is_none() {
                continue;
            }
            let revision = states.len() as Revision + 1;
            let now = begin + std::time::Duration::from_millis(number as u64);
            history.apply(Change { key: Arc::clone(&key), revision, value: value.clone(), created }, None, now);
            match value {
                Some(value) => present.insert(key, value),
                None => present.remove(&key),
            };
            samples_at = match samples_at {
                0 => {
                    history.sample(2);
                    3
                }
                left => left - 1,
            };
            states.push(present.clone());
            held.push(history.objects());
            prop_assert_eq!(history.newest(), revision);
        }
        let is_state = |objects: &Objects, state: &std::collections::BTreeMap<Arc<str>, Bytes>| {
            objects.len() == state.len() && objects.values().zip(state).all(|(stored, (key, value))| {
                stored.key == *key && stored.raw() == *value && stored.size() == value.len()
            })
        };
        for (revision, state) in (1..).zip(&states) {
            prop_assert!(is_state(&history.past(revision).unwrap().rebuild(), state), "{}", revision);
        }
        let limit = begin + std::time::Duration::from_millis(forgotten as u64);
        let _ = history.forget_before(Some(limit), usize::MAX);
        for (objects, state) in held.iter().zip(&states[1..]) {
            prop_assert!(is_state(objects, state));
        }
        history.forget_before(Some(begin + std::time::Duration::from_secs(60)), usize::MAX);
        prop_assert_eq!(history.bytes(), 0, "what is forgotten is not counted any more");
        prop_assert!(is_state(&history.objects(), states.last().unwrap()));
    }
}
