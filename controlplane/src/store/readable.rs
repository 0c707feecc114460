//! Values as upstream's API server writes them (protobuf in its envelope), read as what everything here reads: a store around a store.
//!
//! The one place where such values enter. What is written is JSON, which upstream reads; an object keeps its form until it is written.
//! Never judges an object: bytes that cannot be read are passed on as they are, and the window names their key.

use super::value::{TypeMeta, canonical};
use super::{Expect, Record, Replaced, Revision, Steps, Store, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;
use std::sync::Arc;

/// How such a value begins (control-plane contract §1).
const MAGIC: &[u8] = b"k8s\0";

/// Reads an enveloped object into the tree of its JSON form.
pub type ReadEnvelope = fn(&[u8]) -> Result<Value, String>;

/// See the module.
pub struct Readable<S: ?Sized> {
    store: Arc<S>,
    read: ReadEnvelope,
}

impl<S: Store + ?Sized> Readable<S> {
    /// Reads with `read` what is found in `store`.
    pub fn over(store: Arc<S>, read: ReadEnvelope) -> Self {
        Self { store, read }
    }

    fn record(&self, record: Record) -> Record {
        let value = value(self.read, &record.key, record.value);
        Record { value, ..record }
    }

    fn outcome<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        outcome.map_err(|error| match error {
            StoreError::Conflict { key, current } => {
                let current = current.map(|record| self.record(record));
                StoreError::Conflict { key, current }
            }
            other => other,
        })
    }

    fn steps(&self, steps: Steps) -> Steps {
        let read = self.read;
        let steps = steps.map(move |step| {
            let mut step = step?;
            for change in &mut step.changes {
                let found = change.value.take();
                change.value = found.map(|found| value(read, &change.key, found));
            }
            Ok(step)
        });
        steps.boxed()
    }
}

/// A value as everything here reads it.
fn value(read: ReadEnvelope, key: &str, found: Bytes) -> Bytes {
    if !found.starts_with(MAGIC) {
        return found;
    }
    match read(&found) {
        Ok(object) => {
            let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
            let of = TypeMeta::new(text("apiVersion"), text("kind"));
            Bytes::from(canonical(&of, &object))
        }
        Err(error) => {
            tracing::error!(key, error, "a stored object in protobuf cannot be read");
            found
        }
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Readable<S> {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.outcome(self.store.put(key, value, expect).await)
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        self.outcome(self.store.put_if(key, value, expect, unchanged).await)
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        self.outcome(self.store.put_for_deletion(key, value, expect).await)
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.outcome(self.store.delete(key, expect).await)
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        let (revision, records) = self.store.range(prefix).await?;
        let records = records.into_iter().map(|record| self.record(record));
        Ok((revision, records.collect()))
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.store.get(key).await?.map(|record| self.record(record)))
    }

    async fn is_stale(&self, key: &str, revision: Revision) -> bool {
        self.store.is_stale(key, revision).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        Ok(self.steps(self.store.watch(prefix, after).await?))
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        Ok(self.steps(self.store.follow(after).await?))
    }

    async fn remembered(&self) -> Vec<Replaced> {
        let mut remembered = self.store.remembered().await;
        for replaced in &mut remembered {
            replaced.old = replaced.old.take().map(|old| self.record(old));
        }
        remembered
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.store.current_revision().await
    }

    fn check(&self) -> Result<(), StoreError> {
        self.store.check()
    }

    fn fail(&self, error: &StoreError) {
        self.store.fail(error);
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }

    async fn has_read(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.has_read(revision).await
    }
}
