//! What every backend must do: each runs it in its own tests.

use super::{Change, Expect, Store, StoreError};
use bytes::Bytes;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn preconditions(store: &dyn Store) {
    let base = store.current_revision().await.unwrap();
    let first = store.put("/r/a", bytes("1"), Expect::Absent).await.unwrap();
    assert_eq!(first, base + 1, "each write makes exactly one revision");
    let Err(StoreError::Conflict { current, .. }) = store.put("/r/a", bytes("2"), Expect::Absent).await else {
        panic!("a second creation is a conflict");
    };
    assert_eq!(current.unwrap().modified, first);
    let second = store.put("/r/a", bytes("2"), Expect::At(first)).await.unwrap();
    assert_eq!(second, base + 2, "a failed precondition costs no revision");
    assert!(matches!(
        store.put("/r/a", bytes("3"), Expect::At(first)).await,
        Err(StoreError::Conflict { current: Some(_), .. })
    ));
    assert!(matches!(
        store.put("/r/absent", bytes("3"), Expect::At(first)).await,
        Err(StoreError::Conflict { current: None, .. })
    ));
    assert!(matches!(
        store.delete("/r/a", first).await,
        Err(StoreError::Conflict { .. })
    ));
    assert_eq!(store.delete("/r/a", second).await.unwrap(), base + 3);
    assert!(matches!(
        store.delete("/r/a", second).await,
        Err(StoreError::Conflict { current: None, .. })
    ));
    let again = store.put("/r/a", bytes("4"), Expect::Absent).await.unwrap();
    let (revision, records) = store.range("/r/").await.unwrap();
    assert_eq!(revision, again);
    assert_eq!((records[0].created, records[0].modified), (again, again));
}

async fn ranges(store: &dyn Store) {
    for key in ["/q/pods/b/x", "/q/pods/a/y", "/q/podsets/a/z", "/q/pods/a/x"] {
        store.put(key, bytes("v"), Expect::Absent).await.unwrap();
    }
    let (_, records) = store.range("/q/pods/").await.unwrap();
    let keys: Vec<&str> = records.iter().map(|record| &*record.key).collect();
    assert_eq!(keys, ["/q/pods/a/x", "/q/pods/a/y", "/q/pods/b/x"]);
    assert_eq!(store.get("/q/pods/a/y").await.unwrap().as_ref(), Some(&records[1]));
    assert_eq!(store.get("/q/pods/a/").await.unwrap(), None, "a key, no prefix");
}

async fn watches(store: Arc<dyn Store>) {
    let base = store.current_revision().await.unwrap();
    let live = store.watch("/w/", base).await.unwrap();
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let mut at = store.put("/w/a", bytes("0"), Expect::Absent).await.unwrap();
            for _ in 0..300 {
                store.put("/other", bytes("o"), Expect::Absent).await.unwrap();
                let other = store.current_revision().await.unwrap();
                at = store.put("/w/a", bytes("n"), Expect::At(at)).await.unwrap();
                store.delete("/other", other).await.unwrap();
            }
            store.delete("/w/a", at).await.unwrap();
        }
    });
    let seen: Vec<Change> = tokio::time::timeout(Duration::from_secs(60), live.take(302).collect())
        .await
        .unwrap();
    writer.await.unwrap();
    assert!(seen[0].created && !seen[1].created);
    assert!(seen[301].value.is_none());
    assert!(seen.windows(2).all(|pair| pair[0].revision < pair[1].revision));
    assert!(seen.iter().all(|change| &*change.key == "/w/a"));
    let replayed: Vec<Change> = store.watch("/w/", base).await.unwrap().take(302).collect().await;
    assert_eq!(replayed, seen, "a later watch from the same revision sees the same");
    let middle = seen[150].revision;
    store.compact(middle).await.unwrap();
    assert!(matches!(
        store.watch("/w/", middle - 1).await,
        Err(StoreError::Compacted { oldest, .. }) if oldest == middle
    ));
    let rest: Vec<Change> = store.watch("/w/", middle).await.unwrap().take(151).collect().await;
    assert_eq!(rest, seen[151..]);
}

/// Runs all of it against an empty store.
///
/// # Panics
/// At the first thing that is not as it must be.
pub async fn all(store: Arc<dyn Store>) {
    preconditions(&*store).await;
    ranges(&*store).await;
    watches(store).await;
}

#[cfg(test)]
#[tokio::test]
async fn memory_conforms() {
    all(Arc::new(super::memory::Memory::new())).await;
}
