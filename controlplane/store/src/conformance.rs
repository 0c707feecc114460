//! What every backend must do: each runs it in its own tests.

use super::{Change, Expect, Revision, Steps, Store, StoreError};
use bytes::Bytes;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// The next so many changes; each step must be all there is up to its revision, and none may go back.
async fn take(steps: &mut Steps, count: usize) -> Vec<Change> {
    let (mut seen, mut reached) = (Vec::new(), 0);
    while seen.len() < count {
        let step = steps.next().await.expect("a watch does not end by itself").unwrap();
        assert!(step.revision > reached, "no step goes back");
        for change in &step.changes {
            assert!(reached < change.revision && change.revision <= step.revision);
        }
        reached = step.revision;
        seen.extend(step.changes);
    }
    assert_eq!(seen.len(), count, "nothing is seen that was not written");
    seen
}

/// Of what a watch that asks for too much of the past is told: by the call, or by its first item.
async fn refused(store: &dyn Store, after: Revision) -> StoreError {
    match store.watch("/registry/w/", after).await {
        Ok(mut steps) => steps.next().await.expect("told why").unwrap_err(),
        Err(error) => error,
    }
}

/// What is written only if other keys are as they were; of a backend that others write to.
async fn depending(store: &dyn Store) {
    let put = async |key: &str, expect| store.put(key, bytes("1"), expect).await.unwrap();
    let (a, b) = (
        put("/registry/d/a", Expect::Absent).await,
        put("/registry/d/b", Expect::Absent).await,
    );
    let of = |key: &str, revision| (key.to_owned(), revision);
    let both = [of("/registry/d/a", a), of("/registry/d/b", b)];
    let made = store
        .put_if("/registry/d/c", bytes("1"), Expect::Absent, &both)
        .await
        .unwrap();
    assert_eq!(made, b + 1, "one revision");
    let again = store.put_if("/registry/d/c", bytes("1"), Expect::Absent, &both).await;
    assert!(matches!(again, Err(StoreError::Conflict { key, current: Some(_) }) if key == "/registry/d/c"));
    let changed = put("/registry/d/b", Expect::At(b)).await;
    let refused = store.put_if("/registry/d/e", bytes("1"), Expect::Absent, &both).await;
    let Err(StoreError::Conflict { key, current }) = refused else {
        panic!("a key has changed: {refused:?}");
    };
    assert_eq!((key.as_str(), current.unwrap().modified), ("/registry/d/b", changed));
    store.delete("/registry/d/a", a).await.unwrap();
    let now = [of("/registry/d/b", changed), of("/registry/d/a", a)];
    let refused = store.put_if("/registry/d/c", bytes("2"), Expect::At(made), &now).await;
    assert!(matches!(refused, Err(StoreError::Conflict { key, current: None }) if key == "/registry/d/a"));
    let (_, left) = store.range("/registry/d/c").await.unwrap();
    assert_eq!(left[0].modified, made, "what is refused is not written");
}

async fn preconditions(store: &dyn Store) {
    let base = store.current_revision().await.unwrap();
    let first = store.put("/registry/r/a", bytes("1"), Expect::Absent).await.unwrap();
    assert_eq!(first, base + 1, "each write makes exactly one revision");
    let Err(StoreError::Conflict { current, .. }) = store.put("/registry/r/a", bytes("2"), Expect::Absent).await else {
        panic!("a second creation is a conflict");
    };
    assert_eq!(current.unwrap().modified, first);
    let second = store.put("/registry/r/a", bytes("2"), Expect::At(first)).await.unwrap();
    assert_eq!(second, base + 2, "a failed precondition costs no revision");
    assert!(matches!(
        store.put("/registry/r/a", bytes("3"), Expect::At(first)).await,
        Err(StoreError::Conflict { current: Some(_), .. })
    ));
    assert!(matches!(
        store.put("/registry/r/absent", bytes("3"), Expect::At(first)).await,
        Err(StoreError::Conflict { current: None, .. })
    ));
    assert!(matches!(
        store.delete("/registry/r/a", first).await,
        Err(StoreError::Conflict { .. })
    ));
    assert_eq!(store.delete("/registry/r/a", second).await.unwrap(), base + 3);
    assert!(matches!(
        store.delete("/registry/r/a", second).await,
        Err(StoreError::Conflict { current: None, .. })
    ));
    let again = store.put("/registry/r/a", bytes("4"), Expect::Absent).await.unwrap();
    let (revision, records) = store.range("/registry/r/").await.unwrap();
    assert_eq!(revision, again);
    assert_eq!((records[0].created, records[0].modified), (again, again));
}

async fn ranges(store: &dyn Store) {
    for key in [
        "/registry/q/pods/b/x",
        "/registry/q/pods/a/y",
        "/registry/q/podsets/a/z",
        "/registry/q/pods/a/x",
    ] {
        store.put(key, bytes("v"), Expect::Absent).await.unwrap();
    }
    let (_, records) = store.range("/registry/q/pods/").await.unwrap();
    let keys: Vec<&str> = records.iter().map(|record| &*record.key).collect();
    assert_eq!(
        keys,
        ["/registry/q/pods/a/x", "/registry/q/pods/a/y", "/registry/q/pods/b/x"]
    );
    let one = store.get("/registry/q/pods/a/y").await.unwrap();
    assert_eq!(one.as_ref(), Some(&records[1]));
    assert_eq!(
        store.get("/registry/q/pods/a/").await.unwrap(),
        None,
        "a key, no prefix"
    );
}

async fn watches(store: Arc<dyn Store>) {
    let base = store.current_revision().await.unwrap();
    let mut live = store.watch("/registry/w/", base).await.unwrap();
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let mut at = store.put("/registry/w/a", bytes("0"), Expect::Absent).await.unwrap();
            for _ in 0..300 {
                store.put("/registry/other", bytes("o"), Expect::Absent).await.unwrap();
                let other = store.current_revision().await.unwrap();
                at = store.put("/registry/w/a", bytes("n"), Expect::At(at)).await.unwrap();
                store.delete("/registry/other", other).await.unwrap();
            }
            store.delete("/registry/w/a", at).await.unwrap();
        }
    });
    let seen = tokio::time::timeout(Duration::from_secs(60), take(&mut live, 302));
    let seen = seen.await.unwrap();
    writer.await.unwrap();
    assert!(seen[0].created && !seen[1].created);
    assert!(seen[301].value.is_none());
    assert!(seen.windows(2).all(|pair| pair[0].revision < pair[1].revision));
    assert!(seen.iter().all(|change| &*change.key == "/registry/w/a"));
    let replayed = take(&mut store.watch("/registry/w/", base).await.unwrap(), 302).await;
    assert_eq!(replayed, seen, "a later watch from the same revision sees the same");
    let middle = seen[150].revision;
    store.compact(middle).await.unwrap();
    let refusal = refused(&*store, middle - 1).await;
    assert!(
        matches!(refusal, StoreError::Compacted { oldest, .. } if oldest == middle),
        "{refusal}"
    );
    let rest = take(&mut store.watch("/registry/w/", middle).await.unwrap(), 151).await;
    assert_eq!(rest, seen[151..]);
}

/// Whoever follows everything reaches the newest revision, whatever it was that made it, and what is acknowledged is there.
async fn reaches(store: &dyn Store) {
    let base = store.current_revision().await.unwrap();
    let mut steps = store.follow(base).await.unwrap();
    let many: Vec<String> = (0..700).map(|number| format!("/registry/f/{number:03}")).collect();
    for key in &many {
        store.put(key, bytes("f"), Expect::Absent).await.unwrap();
    }
    let newest = store.current_revision().await.unwrap();
    assert_eq!(newest, base + 700);
    let mut seen = Vec::new();
    loop {
        let step = steps.next().await.unwrap().unwrap();
        seen.extend(step.changes.iter().map(|change| change.key.to_string()));
        if step.revision >= newest {
            break;
        }
    }
    assert_eq!(seen, many);
    let (revision, records) = store.range("/registry/f/").await.unwrap();
    assert_eq!((revision, records.len()), (newest, 700));
    // All is told at one revision, and no other key is.
    assert!(records.iter().zip(&many).all(|(record, key)| *record.key == **key));
}

/// Runs all of it against an empty store.
///
/// # Panics
/// At the first thing that is not as it must be.
pub async fn all(store: Arc<dyn Store>) {
    preconditions(&*store).await;
    if store.is_shared() {
        depending(&*store).await;
    }
    ranges(&*store).await;
    watches(Arc::clone(&store)).await;
    reaches(&*store).await;
}

#[cfg(test)]
#[tokio::test]
async fn memory_conforms() {
    all(Arc::new(super::memory::Memory::new())).await;
    all(Arc::new(super::memory::Memory::shared())).await;
}
