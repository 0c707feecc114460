use super::*;
use async_trait::async_trait;
use store::around::Around;
use store::memory::Memory;
use store::{Record, StoreError};

/// A store that takes its time, and refuses writes once it has begun to.
#[derive(Default)]
struct Slow {
    inner: Memory,
    refuses: AtomicBool,
}

impl Slow {
    async fn turn(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn takes(&self) -> Result<(), StoreError> {
        self.turn().await;
        match self.refuses.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("for good".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Around for Slow {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.takes().await?;
        self.inner.put(key, value, expect).await
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.takes().await?;
        self.inner.delete(key, expect).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        self.turn().await;
        self.inner.get(key).await
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        self.turn().await;
        self.inner.range(prefix).await
    }
}

fn load(seed: u64) -> (Load, Arc<Slow>) {
    let store = Arc::<Slow>::default();
    let load = Load::over(vec![Arc::clone(&store) as Arc<dyn Store>], seed, LONG);
    (load, store)
}

#[tokio::test]
async fn a_store_that_answers_reads_alone_has_not_healed() {
    let (mut load, store) = load(1);
    load.goes_on(20, "at first").await.unwrap();
    store.refuses.store(true, Ordering::SeqCst);
    load.is_felt().await.unwrap();
    load.patience = Duration::from_millis(200);
    // As many as clients there are may have been taken before it began.
    let error = load.goes_on(CLIENTS + 1, "although all is mended").await.unwrap_err();
    assert!(error.to_string().contains("although all is mended"), "{error:#}");
    // Fine again, and so is the history.
    store.refuses.store(false, Ordering::SeqCst);
    load.patience = LONG;
    load.goes_on(20, "again").await.unwrap();
    let (report, parts) = load.end().await.unwrap();
    assert!(
        report.wrong.is_empty() && report.counts[2] > 0 && parts == 1,
        "{parts} {report:?}"
    );
}

#[tokio::test]
async fn who_was_away_while_history_was_compacted_reads_anew() {
    let (load, _store) = load(2);
    load.goes_on(5, "at first").await.unwrap();
    load.compacts().await.unwrap();
    load.goes_on(5, "again").await.unwrap();
    let (report, parts) = load.end().await.unwrap();
    assert!(report.wrong.is_empty(), "{report:?}");
    assert!(parts > 1, "{parts}");
}

#[tokio::test]
async fn a_fault_that_nobody_feels_is_none() {
    let (mut load, _store) = load(3);
    load.patience = Duration::from_millis(100);
    assert!(load.is_felt().await.is_err());
    load.patience = LONG;
    load.end().await.unwrap();
}
