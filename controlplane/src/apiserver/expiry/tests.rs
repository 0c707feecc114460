//! Expiry over a real window, across restarts.

use super::*;
use crate::store::memory::Memory;
use crate::store::value::testing::as_stored;
use crate::store::window::Window;
use client::TokioClock;
use k8s_openapi::jiff::Timestamp;

const EVENTS: &str = "/registry/events/";

/// Runs the expiry for `minutes` as one process would.
async fn live(store: &Arc<dyn Store>, clock: &Arc<dyn Clock>, minutes: u64) {
    let window = Window::open(Arc::clone(store)).await.unwrap();
    let running = tokio::spawn(run(Arc::clone(store), Reader::new(&window), Arc::clone(clock)));
    tokio::time::sleep(Duration::from_secs(minutes * 60 + 1)).await;
    running.abort();
}

async fn names(store: &Arc<dyn Store>) -> Vec<String> {
    let (_, records) = store.range(EVENTS).await.unwrap();
    records
        .iter()
        .map(|record| record.key[EVENTS.len()..].to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_restart_gives_events_no_new_hour() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(start));
    let event = as_stored(
        "/registry/events/a/old",
        &serde_json::json!({"metadata": {"name": "e"}}),
    );
    store
        .put("/registry/events/a/old", event.clone(), Expect::Absent)
        .await
        .unwrap();
    live(&store, &clock, 30).await;
    store
        .put("/registry/events/a/new", event, Expect::Absent)
        .await
        .unwrap();
    live(&store, &clock, 20).await;
    assert_eq!(names(&store).await, ["a/new", "a/old"]);
    live(&store, &clock, 11).await;
    assert_eq!(
        names(&store).await,
        ["a/new"],
        "an hour after its write, in three processes"
    );
    live(&store, &clock, 31).await;
    assert!(names(&store).await.is_empty());
    let quiet = store.current_revision().await.unwrap();
    live(&store, &clock, 90).await;
    assert_eq!(
        store.current_revision().await.unwrap(),
        quiet,
        "without events nothing is written"
    );
}

/// Another server's clock is hours ahead, and what it noted is in the store.
#[tokio::test(start_paused = true)]
async fn where_several_write_each_goes_by_its_own_clock_and_leaves_nothing_behind() {
    let store: Arc<dyn Store> = Arc::new(Memory::shared());
    let start = 1_800_000_000;
    let at = |second| -> Arc<dyn Clock> {
        let start = Timestamp::from_second(second).unwrap();
        Arc::new(TokioClock::starting_at(start))
    };
    let event = as_stored(
        "/registry/events/a/unleased",
        &serde_json::json!({"metadata": {"name": "e"}}),
    );
    let key = "/registry/events/a/unleased";
    let made = store.put(key, event, Expect::Absent).await.unwrap();
    let noted = format!("{start} {made}\n");
    store.put(KEY, Bytes::from(noted), Expect::Absent).await.unwrap();
    live(&store, &at(start + 7200), 58).await;
    assert_eq!(names(&store).await, ["a/unleased"], "two hours by that clock");
    assert_eq!(store.get(KEY).await.unwrap(), None);
    live(&store, &at(start), 61).await;
    assert!(names(&store).await.is_empty(), "an hour after it was first seen");
    assert_eq!(store.get(KEY).await.unwrap(), None, "nothing is kept");
}
