//! The store of a simulated cluster: in memory, or on disk with commits that take time and with crashes in between.
//!
//! It outlives control planes, hands on every acknowledgement to the judges, and shows them every change first hand.

use crate::judge::Judge;
use async_trait::async_trait;
use bytes::Bytes;
use controlplane::store::disk::Disk;
use controlplane::store::disk::paced::Pace;
use controlplane::store::memory::Memory;
use controlplane::store::{Expect, Record, Replaced, Revision, Steps, Store, StoreError};
use futures::StreamExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Every key begins with it.
const EVERYTHING: &str = "/";

enum Engine {
    Memory(Arc<Memory>),
    Disk(Arc<Disk>),
}

impl Engine {
    fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => store.clone(),
            Self::Disk(store) => store.clone(),
        }
    }
}

/// The store, whatever engine it has at the moment.
pub struct Witnessed {
    engine: Mutex<Option<Engine>>,
    /// Where it lives, if on disk, and how it is paced.
    disk: Option<(PathBuf, Pace)>,
    judge: Judge,
    feeding: Mutex<Option<JoinHandle<()>>>,
    /// The newest revision the judges have been told.
    seen: Arc<AtomicU64>,
}

impl Witnessed {
    pub fn new(disk: Option<(PathBuf, Pace)>, judge: Judge) -> Self {
        Self {
            engine: Mutex::new(None),
            disk,
            judge,
            feeding: Mutex::default(),
            seen: Arc::default(),
        }
    }

    /// Opens it, if it is not open; the judges compare what is there with what was acknowledged.
    pub async fn open(&self) {
        if self.engine.lock().expect("no holder panics").is_some() {
            return;
        }
        let engine = match &self.disk {
            None => Engine::Memory(Arc::default()),
            Some((path, pace)) => Engine::Disk(Arc::new(Disk::open_paced(path, *pace).expect("the store opens"))),
        };
        let store = engine.store();
        let (revision, records) = store.range(EVERYTHING).await.expect("the store can be read");
        self.judge.reopened(revision, &records);
        let mut changes = store
            .watch(EVERYTHING, revision)
            .await
            .expect("the store can be watched");
        let (judge, seen) = (self.judge.clone(), self.seen.clone());
        seen.store(revision, Ordering::Relaxed);
        let feeding = tokio::spawn(async move {
            // An error is the store's end: it has been crashed.
            while let Some(Ok(step)) = changes.next().await {
                for change in &step.changes {
                    judge.changed(change);
                }
                seen.store(step.revision, Ordering::Relaxed);
            }
        });
        *self.feeding.lock().expect("no holder panics") = Some(feeding);
        *self.engine.lock().expect("no holder panics") = Some(engine);
    }

    /// The death of the process: what is on disk stays, and nothing else. A store in memory lives on.
    pub async fn crash(&self) -> bool {
        let engine = self.engine.lock().expect("no holder panics").take();
        let disk = match engine {
            Some(Engine::Disk(disk)) => disk,
            other => {
                *self.engine.lock().expect("no holder panics") = other;
                return false;
            }
        };
        disk.crash().await;
        // What was told before the crash is judged; then the file is let go.
        let feeding = self.feeding.lock().expect("no holder panics").take();
        while Arc::strong_count(&disk) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(disk);
        if let Some(feeding) = feeding {
            feeding.await.expect("the judge does not panic");
        }
        true
    }

    fn store(&self) -> Result<Arc<dyn Store>, StoreError> {
        let engine = self.engine.lock().expect("no holder panics");
        engine.as_ref().map(Engine::store).ok_or(StoreError::Closed)
    }
}

#[async_trait]
impl Store for Witnessed {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        let revision = self.store()?.put(key, value, expect).await?;
        let base = match expect {
            Expect::Absent => None,
            Expect::At(base) => Some(base),
        };
        self.judge.acknowledged(key, revision, base);
        Ok(revision)
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        match unchanged {
            [] => self.put(key, value, expect).await,
            _ => Err(StoreError::Unusable("simulated stores are one process's".to_owned())),
        }
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        let revision = self.store()?.put_for_deletion(key, value, expect).await?;
        self.judge.acknowledged(key, revision, Some(expect));
        Ok(revision)
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        let revision = self.store()?.delete(key, expect).await?;
        self.judge.acknowledged(key, revision, Some(expect));
        Ok(revision)
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        self.store()?.range(prefix).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        self.store()?.get(key).await
    }

    async fn is_stale(&self, key: &str, revision: Revision) -> bool {
        match self.store() {
            Ok(store) => store.is_stale(key, revision).await,
            Err(_) => false,
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        self.store()?.watch(prefix, after).await
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        self.watch("", after).await
    }

    /// Nothing: every window of a simulation begins without a past.
    async fn remembered(&self) -> Vec<Replaced> {
        Vec::new()
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.store()?.current_revision().await
    }

    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn fail(&self, error: &StoreError) {
        tracing::error!(%error, "the store is not read any more");
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        // What the judges have not read yet stays.
        self.store()?
            .compact(revision.min(self.seen.load(Ordering::Relaxed)))
            .await
    }

    async fn has_read(&self, revision: Revision) -> Result<(), StoreError> {
        self.compact(revision).await
    }
}
