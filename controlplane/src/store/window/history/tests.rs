//! That the present and the past of a resource take little where its objects are like one another, and read as they were written.

use super::*;
use bytes::Bytes;

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
