//! Readers of few events: what they get, what they miss, and whom a write wakes.

use super::*;
use crate::store::memory::Memory;
use crate::store::window::history::History;
use crate::store::window::{Cursor, ResourceWindow, Window};
use crate::store::{Change, Expect, Revision, Store};
use bytes::Bytes;
use imbl::OrdMap;
use proptest::prelude::*;
use std::time::Duration;
use tokio::time::Instant;

const NODE: &str = "spec.nodeName";

fn node_of(value: &Value) -> BTreeMap<&'static str, String> {
    let node = value["spec"]["nodeName"].as_str().unwrap_or_default();
    BTreeMap::from([(NODE, node.to_owned())])
}

fn on_node(value: &str) -> Interest {
    Interest::Field {
        field: NODE.into(),
        value: value.into(),
        read: Arc::new(node_of),
    }
}

fn on(node: &str) -> Bytes {
    Bytes::from(format!("{{\"metadata\":{{}},\"spec\":{{\"nodeName\":\"{node}\"}}}}"))
}

fn key(number: u8) -> String {
    format!(
        "/registry/pods/{}/{}",
        ["a", "ab", "b"][usize::from(number % 3)],
        number / 3
    )
}

fn matters(interest: Option<&Interest>, event: &Event) -> bool {
    [&event.old, &event.new]
        .into_iter()
        .flatten()
        .any(|stored| match interest {
            None => true,
            Some(Interest::Key(key)) => stored.key == Arc::from(&**key),
            Some(Interest::Prefix(prefix)) => stored.key.starts_with(&**prefix),
            Some(Interest::Field { value, .. }) => node_of(&stored.tree())[NODE] == **value,
        })
}

/// One write: an object, where it is then, or gone.
async fn write(store: &Memory, number: u8, node: Option<u8>) -> Revision {
    let key = key(number);
    let (_, found) = store.range(&key).await.unwrap();
    let found = found.iter().find(|record| *record.key == *key);
    match (found, node) {
        (Some(found), None) => store.delete(&key, found.modified).await.unwrap(),
        (found, node) => {
            let expect = found.map_or(Expect::Absent, |found| Expect::At(found.modified));
            let node = node.map_or("", |node| ["", "n1", "n2"][usize::from(node % 3)]);
            store.put(&key, on(node), expect).await.unwrap()
        }
    }
}

fn interests() -> [Option<Interest>; 6] {
    [
        None,
        Some(Interest::Key(key(0).into())),
        Some(Interest::Prefix("/registry/pods/a/".into())),
        Some(on_node("n1")),
        Some(on_node("n2")),
        Some(on_node("")),
    ]
}

/// What the readers have got: revisions of events that matter, and up to where they were told to have all.
async fn read(cursor: &mut Cursor, interest: Option<&Interest>, got: &mut Vec<Revision>, all: &[Revision]) {
    loop {
        let batch = cursor.take().unwrap();
        got.extend(
            batch
                .events
                .iter()
                .filter(|event| matters(interest, event))
                .map(|event| event.revision),
        );
        if let Some(revision) = batch.complete_to {
            let expected: Vec<Revision> = all.iter().copied().filter(|known| *known <= revision).collect();
            assert!(
                got.starts_with(&expected),
                "{got:?} has not all of {expected:?} up to {revision}"
            );
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whenever they read, and wherever they begin, readers get exactly the events that matter to them, in order.
    #[test]
    fn readers_get_what_matters_to_them(
        steps in prop::collection::vec((0u8..12, prop::option::of(0u8..3), 0usize..8), 1..300), from in 0usize..100,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let store = Arc::new(Memory::new());
            let window = Window::open(store.clone()).await.unwrap();
            let pods = window.resource("/registry/pods/");
            let interests = interests();
            let mut expected = vec![Vec::new(); interests.len()];
            let mut got = vec![Vec::new(); interests.len()];
            let mut everything = pods.cursor(pods.cached().revision).unwrap();
            let mut cursors: Vec<Option<Cursor>> = interests.iter().map(|_| None).collect();
            let mut begins = 0;
            for (number, (object, node, reader)) in steps.iter().enumerate() {
                let revision = write(&store, *object, *node).await;
                if number == from.min(steps.len() / 2) {
                    begins = revision;
                }
                pods.reach(revision).await.unwrap();
                for event in everything.take().unwrap().events {
                    for (interest, expected) in interests.iter().zip(&mut expected) {
                        if matters(interest.as_ref(), &event) && event.revision > begins && begins > 0 {
                            expected.push(event.revision);
                        }
                    }
                }
                if begins > 0 && let Some(interest) = interests.get(*reader) {
                    let cursor = cursors[*reader]
                        .get_or_insert_with(|| pods.cursor_of(begins, interest.clone()).unwrap());
                    read(cursor, interest.as_ref(), &mut got[*reader], &expected[*reader]).await;
                }
            }
            for (reader, interest) in interests.iter().enumerate() {
                let cursor = cursors[reader].get_or_insert_with(|| pods.cursor_of(begins, interest.clone()).unwrap());
                read(cursor, interest.as_ref(), &mut got[reader], &expected[reader]).await;
            }
            prop_assert_eq!(got, expected);
            Ok(())
        })?;
    }
}

async fn window(bytes: usize) -> (Arc<Memory>, Window, Arc<ResourceWindow>) {
    let store = Arc::new(Memory::new());
    let window = Window::open_with(store.clone(), bytes).await.unwrap();
    let pods = window.resource("/registry/pods/");
    (store, window, pods)
}

/// A reader that has joined and read everything.
fn joined(pods: &Arc<ResourceWindow>, interest: Interest) -> Cursor {
    let mut cursor = pods.cursor_of(pods.cached().revision, Some(interest)).unwrap();
    assert!(cursor.take().unwrap().complete_to.is_some());
    cursor
}

#[tokio::test(start_paused = true)]
async fn what_others_forget_costs_a_quiet_reader_nothing() {
    let (store, _window, pods) = window(4 << 10).await;
    let mut quiet = joined(&pods, on_node("n1"));
    let mut late = joined(&pods, on_node("n2"));
    let mut all = pods.cursor(pods.cached().revision).unwrap();
    write(&store, 1, Some(2)).await;
    let mut last = 0;
    for _ in 0..50 {
        last = write(&store, 0, Some(0)).await;
    }
    pods.reach(last).await.unwrap();
    assert!(all.take().is_err());
    let batch = quiet.take().unwrap();
    assert_eq!((batch.events.len(), batch.complete_to), (0, Some(last)));
    assert!(late.take().is_err(), "its own event has been forgotten");
    let revision = write(&store, 2, Some(1)).await;
    let batch = quiet.next().await.unwrap();
    assert_eq!(
        batch.events.iter().map(|event| event.revision).collect::<Vec<_>>(),
        [revision]
    );
}

/// What the reader hears of while `what` is done, which it waits for already.
async fn heard<T>(mut cursor: Cursor, what: impl Future<Output = T>) -> Option<Result<Vec<Revision>, WatchClosed>> {
    let waiting = tokio::spawn(async move { cursor.next().await });
    // It has come to wait when all else has.
    tokio::time::sleep(Duration::from_millis(1)).await;
    what.await;
    let batch = tokio::time::timeout(Duration::from_secs(1), waiting)
        .await
        .ok()?
        .unwrap();
    Some(batch.map(|batch| batch.events.iter().map(|event| event.revision).collect()))
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_keeps_no_other_from_hearing() {
    for interest in interests().into_iter().flatten() {
        let (store, window, pods) = window(1 << 20).await;
        // An object that changes hands matters to all of them.
        let moves = || async {
            for node in 0..3 {
                let revision = write(&store, 0, Some(node)).await;
                pods.reach(revision).await.unwrap();
            }
        };
        let late = || pods.cursor_of(pods.cached().revision, Some(interest.clone())).unwrap();
        let mut unread = joined(&pods, interest.clone());
        moves().await;
        assert!(heard(late(), moves()).await.is_some_and(|got| !got.unwrap().is_empty()));
        assert!(unread.take().unwrap().events.len() >= 2);
        moves().await;
        let end = async { window.release("/registry/pods/") };
        assert_eq!(heard(late(), end).await, Some(Err(WatchClosed)), "nor from the end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_known_without_the_object() {
    let (store, _window, pods) = window(1 << 20).await;
    let of_name = Interest::Field {
        field: "metadata.name".into(),
        value: "0".into(),
        read: Arc::new(|_| panic!("the key says it")),
    };
    let mut reader = joined(&pods, of_name);
    let mut last = 0;
    // Of 0 to 2 the name is 0, in three namespaces.
    for number in [0, 3, 1, 2, 4] {
        last = write(&store, number, Some(1)).await;
    }
    pods.reach(last).await.unwrap();
    let got = reader.take().unwrap();
    let keys: Vec<&str> = got
        .events
        .iter()
        .filter_map(|event| Some(&*event.new.as_ref()?.key))
        .collect();
    assert_eq!(keys, [0, 1, 2].map(key));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_dropped_leaves_nothing_behind() {
    let (_store, _window, pods) = window(1 << 20).await;
    let kept = || {
        let mut history = pods.history();
        let (interests, _) = history.interests();
        (interests.keys.len(), interests.prefixes.len(), interests.fields.len())
    };
    let all = || {
        interests()
            .into_iter()
            .flatten()
            .map(|interest| joined(&pods, interest))
    };
    let (first, second): (Vec<Cursor>, Vec<Cursor>) = (all().collect(), all().collect());
    drop(first);
    assert_eq!(kept(), (1, 1, 1));
    drop(second);
    assert_eq!(kept(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_ends_ends_all_its_readers() {
    let (store, window, pods) = window(1 << 20).await;
    let interests = interests();
    let cursors = interests.into_iter().flatten().map(|interest| joined(&pods, interest));
    let mut waiting: Vec<_> = cursors
        .map(|mut cursor| tokio::spawn(async move { cursor.next().await.is_err() }))
        .collect();
    tokio::task::yield_now().await;
    window.release("/registry/pods/");
    for one in waiting.drain(..) {
        assert!(one.await.unwrap());
    }
    drop(store);
}

fn change(revision: Revision, number: u8, node: &str) -> Change {
    Change {
        revision,
        key: Arc::from(key(number)),
        value: Some(on(node)),
        created: false,
    }
}

/// As the feeding task does.
fn apply(history: &mut History, change: Change) {
    let asked = history.asks(&change.key).map(|(read, old)| {
        let new = change.value.clone();
        let new = new.map(|value| Stored::new(Arc::clone(&change.key), change.revision, change.revision, value));
        Asked {
            old: old.map(|old| read_of(&old, &*read)),
            new: new.map(|new| read_of(&new, &*read)),
        }
    });
    history.apply(change, asked.as_ref(), Instant::now());
}

#[test]
fn a_write_wakes_those_it_matters_to_and_nothing_is_kept_for_those_who_left() {
    let mut history = History::new(OrdMap::new(), 0, None);
    let nodes: Vec<Interest> = (0..100).map(|node| on_node(&format!("n{node}"))).collect();
    let receivers: Vec<_> = nodes.iter().map(|node| history.interests().0.join(node, 0)).collect();
    apply(&mut history, change(1, 0, "n7"));
    assert_eq!(history.take_woken().len(), 1);
    apply(&mut history, change(2, 0, "n8"));
    assert_eq!(
        history.take_woken().len(),
        1,
        "who left has been woken, and has not read yet"
    );
    let events = |history: &mut History, node: &Interest| history.batch_of(node, 0).unwrap().0.len();
    assert_eq!(
        [7, 8, 9].map(|node: usize| events(&mut history, &nodes[node])),
        [2, 1, 0]
    );
    apply(&mut history, change(3, 0, "n7"));
    assert_eq!(history.take_woken().len(), 2);
    for node in &nodes {
        history.interests().0.leave(node);
    }
    let (interests, _) = history.interests();
    assert!(interests.fields.is_empty());
    drop(receivers);
}
