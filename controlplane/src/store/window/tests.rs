use super::*;
use crate::store::Expect;
use crate::store::memory::Memory;
use bytes::Bytes;
use proptest::prelude::*;

fn state(snapshot: &Snapshot) -> BTreeMap<String, Bytes> {
    let objects = snapshot.objects.iter();
    objects
        .map(|(key, stored)| (key.to_string(), stored.raw().clone()))
        .collect()
}

/// Writes as told: (key, delete). Returns every state by revision, starting with the present one.
async fn write(store: &Memory, steps: &[(u8, bool)]) -> BTreeMap<Revision, BTreeMap<String, Bytes>> {
    let mut states = BTreeMap::new();
    for (number, (key, delete)) in steps.iter().enumerate() {
        let key = format!("/registry/{}/{}", if key % 4 == 3 { "other" } else { "pods" }, key);
        let (_, records) = store.range(&key).await.unwrap();
        let current = records.iter().find(|record| *record.key == *key);
        let value = Bytes::from(format!("{{\"n\":{number}}}"));
        let revision = match current {
            Some(record) if *delete => store.delete(&key, record.modified).await.unwrap(),
            Some(record) => store.put(&key, value, Expect::At(record.modified)).await.unwrap(),
            None => store.put(&key, value, Expect::Absent).await.unwrap(),
        };
        let (_, records) = store.range("/registry/pods/").await.unwrap();
        let state = records.into_iter().map(|r| (r.key.to_string(), r.value)).collect();
        states.insert(revision, state);
    }
    states
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any past revision reads as it was, and a watch from any revision replays exactly what leads from there to the present.
    #[test]
    fn the_past_reads_as_it_was(steps in prop::collection::vec((0u8..12, any::<bool>()), 1..700)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let store = Arc::new(Memory::new());
            let window = Window::open(store.clone()).await.unwrap();
            let pods = window.resource("/registry/pods/");
            let states = write(&store, &steps).await;
            let latest = pods.latest().await.unwrap();
            prop_assert_eq!(latest.revision, *states.last_key_value().unwrap().0);
            for (revision, expected) in states.iter().step_by(7) {
                let mut replayed = state(&pods.at(*revision).unwrap());
                prop_assert_eq!(&replayed, expected);
                let mut events = Box::pin(pods.watch(*revision).unwrap());
                let mut last = *revision;
                while let Some(Some(event)) = futures::FutureExt::now_or_never(events.next()) {
                    prop_assert!(event.revision > last, "in order, each once");
                    last = event.revision;
                    match (&event.old, &event.new) {
                        (old, Some(new)) => {
                            let before = replayed.insert(new.key.to_string(), new.raw().clone());
                            prop_assert_eq!(before.as_ref(), old.as_ref().map(|old| old.raw()));
                        }
                        (Some(old), None) => {
                            let removed = replayed.remove(&*old.key);
                            prop_assert_eq!(removed.as_ref(), Some(old.raw()));
                        }
                        (None, None) => prop_assert!(false, "an event of nothing"),
                    }
                }
                prop_assert_eq!(&replayed, &state(&latest));
            }
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_older_than_five_minutes_is_gone() {
    let store = Arc::new(Memory::new());
    let window = Window::open(store.clone()).await.unwrap();
    let pods = window.resource("/registry/pods/");
    let first = store
        .put("/registry/pods/a", Bytes::from_static(b"{}"), Expect::Absent)
        .await
        .unwrap();
    let second = store
        .put("/registry/pods/b", Bytes::from_static(b"{}"), Expect::Absent)
        .await
        .unwrap();
    pods.reach(second).await.unwrap();
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(pods.at(first).unwrap().objects.len(), 1);
    assert!(pods.watch(first).is_ok());
    tokio::time::sleep(Duration::from_secs(200)).await;
    let third = store
        .put("/registry/other/c", Bytes::from_static(b"{}"), Expect::Absent)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(pods.at(first), Err(RevisionError::Gone { .. })));
    assert!(matches!(pods.watch(first).err(), Some(RevisionError::Gone { .. })));
    assert_eq!(pods.at(second).unwrap().objects.len(), 2);
    assert!(matches!(pods.at(third + 1), Err(RevisionError::Future { .. })));
    assert!(
        pods.watch(second).is_ok(),
        "a quiet resource can be watched from its last change"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_falls_behind_is_closed_and_a_live_one_is_not() {
    let store = Arc::new(Memory::new());
    let window = Window::open(store.clone()).await.unwrap();
    let pods = window.resource("/registry/pods/");
    let mut lazy = Box::pin(pods.watch(1).unwrap());
    let mut live = Box::pin(pods.watch(1).unwrap());
    let big = Bytes::from(vec![b' '; 1 << 20]);
    let mut seen = 0;
    for number in 0..40 {
        let key = format!("/registry/pods/{number:03}");
        let revision = store.put(&key, big.clone(), Expect::Absent).await.unwrap();
        pods.reach(revision).await.unwrap();
        assert_eq!(live.next().await.unwrap().revision, revision);
        seen += 1;
    }
    assert_eq!(seen, 40);
    assert!(lazy.next().await.is_none(), "its events are gone, so it ends");
}

#[tokio::test(start_paused = true)]
async fn a_resource_claimed_late_has_what_was_written_before() {
    let store = Arc::new(Memory::new());
    store
        .put(
            "/registry/services/specs/a/x",
            Bytes::from_static(b"{}"),
            Expect::Absent,
        )
        .await
        .unwrap();
    let window = Window::open(store.clone()).await.unwrap();
    let revision = store
        .put(
            "/registry/services/endpoints/a/y",
            Bytes::from_static(b"{}"),
            Expect::Absent,
        )
        .await
        .unwrap();
    let specs = window.resource("/registry/services/specs/");
    let endpoints = window.resource("/registry/services/endpoints/");
    assert_eq!(specs.latest().await.unwrap().objects.len(), 1);
    let snapshot = endpoints.latest().await.unwrap();
    assert_eq!((snapshot.objects.len(), snapshot.revision), (1, revision));
    assert_eq!(snapshot.objects.values().next().unwrap().created, revision);
}
