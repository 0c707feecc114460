//! A store that lives in memory: for tests, the simulation and `--store memory`.
//!
//! Owns the records of one process's life. No threads, no timers: it behaves the same under a paused clock.

use super::feed::Feed;
use super::{Change, Expect, Record, Replaced, Revision, Steps, Store, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The in-memory backend.
pub struct Memory {
    records: Mutex<BTreeMap<Arc<str>, Record>>,
    feed: Feed,
    is_shared: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty store at revision 1 (an empty etcd also answers with revision 1).
    pub fn new() -> Self {
        Self {
            records: Mutex::default(),
            feed: Feed::after(1),
            is_shared: false,
        }
    }

    /// An empty store that several API servers use, as they would use one of another process.
    pub fn shared() -> Self {
        Self {
            is_shared: true,
            ..Self::new()
        }
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.put_if(key, value, expect, &[]).await
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        self.put(key, value, Expect::At(expect)).await
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        let mut records = self.records();
        for (other, revision) in unchanged {
            let current = records.get(other.as_str());
            if !Expect::At(*revision).holds(current.map(|record| record.modified)) {
                return Err(StoreError::Conflict {
                    key: other.clone(),
                    current: current.cloned(),
                });
            }
        }
        let current = records.get(key);
        if !expect.holds(current.map(|record| record.modified)) {
            return Err(StoreError::Conflict {
                key: key.to_owned(),
                current: current.cloned(),
            });
        }
        let revision = self.feed.newest() + 1;
        let (key, created) = match current {
            Some(record) => (Arc::clone(&record.key), record.created),
            None => (Arc::from(key), revision),
        };
        let record = Record {
            key: Arc::clone(&key),
            value: value.clone(),
            created,
            modified: revision,
        };
        records.insert(Arc::clone(&key), record);
        // Published under the lock, so that revisions leave in order.
        self.feed.publish([Change {
            revision,
            key,
            value: Some(value),
            created: created == revision,
        }]);
        Ok(revision)
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        let mut records = self.records();
        let current = records.get(key);
        if !Expect::At(expect).holds(current.map(|record| record.modified)) {
            return Err(StoreError::Conflict {
                key: key.to_owned(),
                current: current.cloned(),
            });
        }
        let revision = self.feed.newest() + 1;
        records.remove(key);
        self.feed.publish([Change {
            revision,
            key: Arc::from(key),
            value: None,
            created: false,
        }]);
        Ok(revision)
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        let records = self.records();
        let found = records
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(_, record)| record.clone())
            .collect();
        Ok((self.feed.newest(), found))
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.records().get(key).cloned())
    }

    async fn is_stale(&self, _key: &str, _revision: Revision) -> bool {
        // Bytes are stored as they are given.
        false
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        self.feed.stream(prefix, after)
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        self.feed.follow(after)
    }

    async fn remembered(&self) -> Vec<Replaced> {
        Vec::new()
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.feed.newest())
    }

    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn fail(&self, error: &StoreError) {
        tracing::error!(%error, "the store is not read any more");
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.feed.compact(revision);
        Ok(())
    }

    async fn has_read(&self, revision: Revision) -> Result<(), StoreError> {
        self.compact(revision).await
    }
}
