use super::*;
use crate::store::Expect;
use crate::store::memory::Memory;
use bytes::Bytes;
use proptest::prelude::*;
use std::time::Duration;

fn state(snapshot: &Snapshot) -> BTreeMap<String, Bytes> {
    let objects = snapshot.objects.iter();
    objects.map(|(key, stored)| (key.to_string(), stored.raw())).collect()
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
                            let before = replayed.insert(new.key.to_string(), new.raw());
                            prop_assert_eq!(before, old.as_ref().map(|old| old.raw()));
                        }
                        (Some(old), None) => {
                            let removed = replayed.remove(&*old.key);
                            prop_assert_eq!(removed, Some(old.raw()));
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

/// Puts `value` over whatever the key has, and waits until the window shows it.
async fn overwrite(store: &Memory, resource: &ResourceWindow, key: &str, value: Bytes) -> Revision {
    let expect = match resource.cached().objects.get(key) {
        Some(stored) => Expect::At(stored.revision),
        None => Expect::Absent,
    };
    let revision = store.put(key, value, expect).await.unwrap();
    resource.reach(revision).await.unwrap();
    revision
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_falls_behind_is_closed_and_a_live_one_is_not() {
    let store = Arc::new(Memory::new());
    let window = Window::open_with(store.clone(), 16 << 20).await.unwrap();
    let pods = window.resource("/registry/pods/");
    let mut lazy = Box::pin(pods.watch(1).unwrap());
    let mut live = Box::pin(pods.watch(1).unwrap());
    let big = Bytes::from(vec![b' '; 1 << 20]);
    for _ in 0..40 {
        let revision = overwrite(&store, &pods, "/registry/pods/a", big.clone()).await;
        assert_eq!(live.next().await.unwrap().revision, revision);
        assert!(window.history_bytes() <= 16 << 20);
    }
    assert!(lazy.next().await.is_none(), "its events are gone, so it ends");
}

#[tokio::test(start_paused = true)]
async fn a_reader_takes_few_bytes_at_a_time_and_misses_nothing() {
    let store = Arc::new(Memory::new());
    let window = Window::open(store.clone()).await.unwrap();
    let pods = window.resource("/registry/pods/");
    let sizes = [10, 100 << 10, 100 << 10, 20, 1 << 20, 30, 40, 100 << 10];
    let mut last = 0;
    for size in sizes {
        last = overwrite(&store, &pods, "/registry/pods/a", Bytes::from(vec![b' '; size])).await;
    }
    let all: Vec<Revision> = (2..=last).collect();
    let interest = Interest::Key("/registry/pods/a".into());
    let mut joined = pods.cursor_of(last, Some(interest.clone())).unwrap();
    joined.take().unwrap();
    for size in sizes {
        last = overwrite(&store, &pods, "/registry/pods/a", Bytes::from(vec![b' '; size])).await;
    }
    let next: Vec<Revision> = (*all.last().unwrap() + 1..=last).collect();
    let everything: Vec<Revision> = all.iter().chain(&next).copied().collect();
    let from_the_start = pods.cursor(1).unwrap();
    for (mut cursor, expected) in [(from_the_start, &everything), (joined, &next)] {
        let mut got = Vec::new();
        loop {
            let batch = cursor.take().unwrap();
            let raw = |stored: &Option<Arc<Stored>>| stored.as_ref().map_or(0, |stored| stored.size());
            let bytes: usize = batch.events.iter().map(|event| raw(&event.old) + raw(&event.new)).sum();
            assert!(batch.events.len() == 1 || bytes <= 256 << 10, "{bytes}");
            got.extend(batch.events.iter().map(|event| event.revision));
            if batch.complete_to.is_some() {
                break;
            }
        }
        assert_eq!(&got, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn many_resources_with_one_large_event_each_share_the_bound() {
    let store = Arc::new(Memory::new());
    let window = Window::open_with(store.clone(), 4 << 20).await.unwrap();
    let large = Bytes::from(vec![b' '; 1 << 20]);
    for number in 0..10 {
        let resource = window.resource(&format!("/registry/r{number}/"));
        for _ in 0..2 {
            overwrite(&store, &resource, &format!("/registry/r{number}/a"), large.clone()).await;
        }
    }
    assert!(window.history_bytes() <= 4 << 20, "{}", window.history_bytes());
}

/// A store that can be read once, and whose changes make the reader panic.
#[derive(Default)]
struct Torn {
    memory: Memory,
    failed: Mutex<Vec<String>>,
}

#[async_trait::async_trait]
impl crate::store::around::Around for Torn {
    fn inner(&self) -> &dyn Store {
        &self.memory
    }

    async fn follow(&self, after: Revision) -> Result<crate::store::Steps, StoreError> {
        let steps = self.memory.follow(after).await?;
        Ok(steps.map(|_| panic!("torn")).boxed())
    }

    fn fail(&self, error: &StoreError) {
        self.failed.lock().unwrap().push(error.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_feeding_task_that_panics_is_told_to_the_store_and_fails_checks() {
    let store = Arc::new(Torn::default());
    let window = Window::open(store.clone()).await.unwrap();
    window.check().await.unwrap();
    store
        .put("/registry/pods/a", Bytes::new(), Expect::Absent)
        .await
        .unwrap();
    while !window.task.0.is_finished() {
        tokio::task::yield_now().await;
    }
    let failed = store.failed.lock().unwrap().clone();
    assert!(failed.len() == 1 && failed[0].contains("has panicked"), "{failed:?}");
    let checked = tokio::time::timeout(Duration::from_secs(2), window.check()).await;
    assert!(!matches!(checked, Ok(Ok(()))), "{checked:?}");
}

/// A store that takes writes and tells nothing.
#[derive(Default)]
struct Still(Memory);

#[async_trait::async_trait]
impl crate::store::around::Around for Still {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn follow(&self, _after: Revision) -> Result<crate::store::Steps, StoreError> {
        Ok(futures::stream::pending().boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_the_latest_is_told_when_the_store_stands_still() {
    let store = Arc::new(Still::default());
    let window = Window::open(store.clone()).await.unwrap();
    let pods = window.resource("/registry/pods/");
    let first = pods.latest().await.unwrap().revision;
    let key = "/registry/pods/a";
    store.put(key, Bytes::new(), Expect::Absent).await.unwrap();
    let begin = tokio::time::Instant::now();
    let told = pods.latest().await.err().unwrap();
    assert!(begin.elapsed() >= LATEST_WITHIN);
    let text = format!("the store stands still: nothing newer than revision {first} can be read");
    assert!(matches!(&told, StoreError::Unavailable(why) if *why == text), "{told}");
}

#[tokio::test(start_paused = true)]
async fn the_past_of_a_busy_resource_costs_a_quiet_one_nothing() {
    let store = Arc::new(Memory::new());
    let window = Window::open_with(store.clone(), 4 << 20).await.unwrap();
    let (quiet, busy) = (window.resource("/registry/nodes/"), window.resource("/registry/pods/"));
    let kilobyte = Bytes::from(vec![b' '; 1 << 10]);
    let mut start = 0;
    for number in 0..20_000_u64 {
        let key = format!("/registry/pods/{}", number % 50);
        let revision = overwrite(&store, &busy, &key, kilobyte.clone()).await;
        if number == 100 {
            start = revision;
        }
        if number.is_multiple_of(1_000) {
            overwrite(&store, &quiet, "/registry/nodes/a", kilobyte.clone()).await;
        }
    }
    assert!(window.history_bytes() <= 4 << 20, "{}", window.history_bytes());
    assert!(matches!(busy.cursor(start).err(), Some(RevisionError::Gone { .. })));
    assert_eq!(quiet.cursor(start).unwrap().take().unwrap().events.len(), 19);
}

/// The bound of the issue: five minutes at 500 writes a second, objects of a kilobyte, two kinds in turn.
#[tokio::test(start_paused = true)]
async fn a_watch_resumes_after_five_minutes_of_500_writes_a_second() {
    let store = Arc::new(Memory::new());
    let window = Window::open(store.clone()).await.unwrap();
    let pods = window.resource("/registry/pods/");
    let leases = window.resource("/registry/leases/");
    // A kilobyte that many events share, so that the test does not need what it counts.
    let value = Bytes::from(vec![b' '; 1 << 10]);
    let mut at: BTreeMap<String, Revision> = BTreeMap::new();
    let mut start = 0;
    for second in 0..330_u32 {
        for number in 0..500_u32 {
            let kind = if number.is_multiple_of(2) { "pods" } else { "leases" };
            let key = format!("/registry/{kind}/{}", (second * 500 + number) % 5_000);
            let expect = at.get(&key).map_or(Expect::Absent, |revision| Expect::At(*revision));
            let revision = store.put(&key, value.clone(), expect).await.unwrap();
            at.insert(key, revision);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        if second == 30 {
            start = pods.cached().revision;
        }
    }
    assert!(window.history_bytes() <= HISTORY_BYTES);
    for resource in [pods, leases] {
        let mut cursor = resource.cursor(start).expect("299 seconds ago");
        let mut seen = 0;
        loop {
            let batch = cursor.take().unwrap();
            seen += batch.events.len();
            if batch.complete_to.is_some() {
                break;
            }
        }
        assert_eq!(seen, 299 * 250);
        assert_eq!(resource.at(start).unwrap().revision, start);
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_whose_changes_were_compacted_away_reads_everything_anew() {
    let store = Arc::new(Memory::new());
    let window = Window::open(store.clone()).await.unwrap();
    let pods = window.resource("/registry/pods/");
    let mut watch = Box::pin(pods.watch(1).unwrap());
    let value = Bytes::from_static(b"{}");
    let mut newest = 0;
    for number in 0..40 {
        let key = format!("/registry/pods/{number:02}");
        newest = store.put(&key, value.clone(), Expect::Absent).await.unwrap();
    }
    // Before the window has had a chance to read any of it.
    store.compact(newest).await.unwrap();
    pods.reach(newest).await.unwrap();
    assert_eq!(pods.cached().objects.len(), 40);
    assert!(watch.next().await.is_none(), "it missed events, so it ends");
    assert!(matches!(pods.watch(2).err(), Some(RevisionError::Gone { .. })));
    let mut watch = Box::pin(pods.watch(newest).unwrap());
    let next = overwrite(&store, &pods, "/registry/pods/00", value).await;
    assert_eq!(watch.next().await.unwrap().revision, next);
}

/// More at once than the store's log holds: however the writes are grouped, every watch sees each of them.
async fn sees_all_of_a_burst(store: Arc<dyn Store>) {
    let window = Window::open(store.clone()).await.unwrap();
    let pods = window.resource("/registry/pods/");
    let mut watch = Box::pin(pods.watch(1).unwrap());
    let big = Bytes::from(vec![b' '; 1 << 20]);
    let writes = (0..40).map(|number| {
        let (store, big) = (Arc::clone(&store), big.clone());
        async move {
            let key = format!("/registry/pods/{number:02}");
            store.put(&key, big, Expect::Absent).await.unwrap()
        }
    });
    let newest = futures::future::join_all(writes).await.into_iter().max().unwrap();
    pods.reach(newest).await.unwrap();
    for revision in 2..=newest {
        assert_eq!(watch.next().await.unwrap().revision, revision);
    }
}

#[tokio::test]
async fn a_burst_of_large_writes_ends_no_watch() {
    sees_all_of_a_burst(Arc::new(Memory::new())).await;
    let directory = tempfile::tempdir().unwrap();
    sees_all_of_a_burst(Arc::new(crate::store::disk::Disk::open(directory.path()).unwrap())).await;
}

/// Readers on other threads than the writers and the window, cut off at random and resuming where a bookmark would tell them to:
/// each sees every revision once, however a group of writes becomes visible.
#[test]
fn a_reader_may_resume_wherever_it_is_said_to_be_complete() {
    const WRITERS: usize = 4;
    const WRITES: usize = 1_000;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Arc::new(Memory::new());
        let window = Window::open(store.clone()).await.unwrap();
        let pods = window.resource("/registry/pods/");
        let writers = (0..WRITERS).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..WRITES {
                    let key = format!(
                        "/registry/{}/{writer}-{number}",
                        if number.is_multiple_of(3) { "other" } else { "pods" }
                    );
                    store
                        .put(&key, Bytes::from_static(b"{}"), Expect::Absent)
                        .await
                        .unwrap();
                    if number.is_multiple_of(32) {
                        tokio::task::yield_now().await;
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let last = (WRITERS * WRITES) as Revision + 1;
        let readers = (0..3_u64).map(|seed| {
            let pods = Arc::clone(&pods);
            tokio::spawn(async move {
                let mut random = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed);
                let mut seen: Vec<Revision> = Vec::new();
                let mut complete = 1;
                'resume: while complete < last {
                    let mut cursor = pods.cursor(complete).unwrap();
                    // What came after the last complete revision comes again.
                    seen.retain(|revision| *revision <= complete);
                    loop {
                        let batch = cursor.take().unwrap();
                        seen.extend(batch.events.iter().map(|event| event.revision));
                        complete = batch.complete_to.unwrap_or(complete);
                        if complete >= last || rand::RngExt::random_bool(&mut random, 0.2) {
                            continue 'resume;
                        }
                        tokio::task::yield_now().await;
                    }
                }
                seen
            })
        });
        let readers: Vec<_> = readers.collect();
        for writer in writers {
            writer.await.unwrap();
        }
        pods.reach(last).await.unwrap();
        let truth: Vec<Revision> = {
            let mut all: Vec<Revision> = pods.cached().objects.values().map(|stored| stored.revision).collect();
            all.sort_unstable();
            all
        };
        for reader in readers {
            assert_eq!(reader.await.unwrap(), truth);
        }
    });
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
