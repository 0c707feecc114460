//! What the scheduler's recorder says of repeats.

use super::*;
use client::SystemClock;

fn about(name: &str, version: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        name: Some(name.to_owned()),
        namespace: Some("a".to_owned()),
        resource_version: Some(version.to_owned()),
        ..ObjectReference::default()
    }
}

fn note(name: &str, version: &str, text: &str) -> Note {
    Note {
        regarding: about(name, version),
        related: None,
        kind: "Warning",
        reason: "FailedScheduling",
        action: "Scheduling",
        note: text.to_owned(),
    }
}

fn events() -> SeriesEvents {
    SeriesEvents::new(
        Arc::new(SystemClock),
        "default-scheduler",
        "default-scheduler-host".to_owned(),
    )
}

/// Of each delivery: whether it is a patch, whose it is, and the count of its series.
fn told(all: Vec<Delivery>) -> Vec<(bool, String, Option<u64>)> {
    let each = all.into_iter().map(|delivery| {
        let whole = &delivery.whole;
        let series = &whole["series"];
        assert_eq!(
            delivery.patch.as_ref().map(|patch| &patch["series"]),
            series.is_object().then_some(series)
        );
        let name = whole["regarding"]["name"].as_str().unwrap().to_owned();
        (delivery.patch.is_some(), name, series["count"].as_u64())
    });
    each.collect()
}

#[test]
fn an_event_says_who_did_what_to_whom() {
    let mut preempted = note("v", "1", "Preempted by pod u on node n");
    preempted.related = Some(about("p", "2"));
    let delivery = events().take(preempted).remove(0);
    let (mut event, name) = (delivery.whole, delivery.name);
    assert!(name.starts_with("v."), "{name}");
    let time = event["eventTime"].take();
    assert!(
        time.as_str().unwrap().len() == "2026-01-01T00:00:00.000000Z".len(),
        "{time}"
    );
    let expected = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": "a"},
        "eventTime": null, "type": "Warning", "reason": "FailedScheduling", "action": "Scheduling",
        "note": "Preempted by pod u on node n", "regarding": about("v", "1"), "related": about("p", "2"),
        "reportingController": "default-scheduler", "reportingInstance": "default-scheduler-host",
    });
    assert_eq!(event, expected);
    assert_eq!(delivery.collection, "/apis/events.k8s.io/v1/namespaces/a/events");
}

#[tokio::test(start_paused = true)]
async fn repeats_are_a_series_that_is_told_when_it_begins_and_when_it_ends() {
    let mut events = events();
    assert_eq!(events.due(), None, "there is nothing to end");
    let one = |count| (true, "p".to_owned(), Some(count));
    assert_eq!(told(events.take(note("p", "1", "m"))), [(false, "p".to_owned(), None)]);
    assert_eq!(told(events.take(note("p", "1", "m"))), [one(2)]);
    for _ in 0..100 {
        assert_eq!(told(events.take(note("p", "1", "m"))), []);
    }
    // Another version of the pod, or another pod, begins anew.
    assert_eq!(told(events.take(note("p", "2", "n"))), [(false, "p".to_owned(), None)]);
    assert_eq!(told(events.take(note("q", "1", "m"))), [(false, "q".to_owned(), None)]);
    tokio::time::sleep(ENDS_AFTER).await;
    assert!(events.due().is_some_and(|due| due <= Instant::now()));
    assert_eq!(told(events.tick()), [], "it may go on");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        told(events.take(note("q", "1", "m"))),
        [(true, "q".to_owned(), Some(2))]
    );
    tokio::time::sleep(ENDS_AFTER).await;
    assert_eq!(told(events.tick()), [one(102)]);
    assert_eq!(events.known.len(), 1, "what did not repeat goes, too");
    assert_eq!(told(events.take(note("p", "1", "m"))), [(false, "p".to_owned(), None)]);
}

#[tokio::test(start_paused = true)]
async fn a_series_that_goes_on_is_told_now_and_then() {
    let mut events = events();
    let mut all = Vec::new();
    for _ in 0..=60 {
        all.extend(told(events.take(note("p", "1", "m"))));
        tokio::time::sleep(Duration::from_secs(60)).await;
        if events.due().is_some_and(|due| due <= Instant::now()) {
            all.extend(told(events.tick()));
        }
    }
    let counts: Vec<Option<u64>> = all.into_iter().map(|(_, _, count)| count).collect();
    assert_eq!(counts, [None, Some(2), Some(30), Some(60)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_and_what_a_pod_may_have_is_bounded() {
    let mut events = events();
    let many = (0..100).map(|version| events.take(note("p", &version.to_string(), "m")).len());
    assert_eq!(many.sum::<usize>(), 25);
    // What was never told is no series that ends, but a repeat of it may be told when there is room again.
    assert_eq!(told(events.take(note("p", "99", "m"))), []);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(
        told(events.take(note("p", "99", "m"))),
        [(true, "p".to_owned(), Some(3))]
    );
    let before = told(events.take(note("p", "99", "m")));
    assert_eq!(before, [], "then it goes on");
    let mut forgotten = Vec::new();
    for other in 0..2 * crate::controller::event::memory::ENTRIES {
        let mut said = told(events.take(note(&format!("o{other}"), "1", "m")));
        said.retain(|(_, name, _)| name == "p");
        forgotten.extend(said);
    }
    assert_eq!(events.known.len(), crate::controller::event::memory::ENTRIES);
    assert_eq!(forgotten, [(true, "p".to_owned(), Some(4))], "its last word");
}
