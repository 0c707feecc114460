//! A store around one that is elsewhere: counts what is asked of it, and how long that takes.
//!
//! Owns nothing that is stored, and changes nothing. What is counted is the window's loading and all writes: other reads are the window's.

use super::{Expect, Record, Replaced, Revision, Steps, Store, StoreError};
use crate::metrics::storage::{Asked, Storage};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use tokio::time::Instant;

/// Says which resource's a key is: group and plural name.
pub type Locate = Box<dyn Fn(&str) -> Option<(String, String)> + Send + Sync>;

/// See the module.
pub struct Counted {
    inner: Arc<dyn Store>,
    metrics: Arc<Storage>,
    locate: Locate,
}

impl Counted {
    /// Counts in `metrics` what `inner` is asked.
    pub fn over(inner: Arc<dyn Store>, metrics: Arc<Storage>, locate: Locate) -> Self {
        Self { inner, metrics, locate }
    }

    async fn count<T>(
        &self,
        operation: &'static str,
        key: &str,
        asking: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let answer = asking.await;
        let (group, resource) = (self.locate)(key).unwrap_or_default();
        let asked = Asked {
            operation,
            group,
            resource,
        };
        // That something else was there is an answer.
        let is_answered = matches!(&answer, Ok(_) | Err(StoreError::Conflict { .. }));
        self.metrics.asked(&asked, began.elapsed(), is_answered);
        answer
    }
}

/// What a write is called where writes are counted.
pub(super) fn operation(expect: Expect) -> &'static str {
    match expect {
        Expect::Absent => "create",
        Expect::At(_) => "update",
    }
}

#[async_trait]
impl Store for Counted {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.count(operation(expect), key, self.inner.put(key, value, expect))
            .await
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        let putting = self.inner.put_if(key, value, expect, unchanged);
        self.count(operation(expect), key, putting).await
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        let putting = self.inner.put_for_deletion(key, value, expect);
        self.count("update", key, putting).await
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.count("delete", key, self.inner.delete(key, expect)).await
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        self.count("list", prefix, self.inner.range(prefix)).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        self.count("get", key, self.inner.get(key)).await
    }

    async fn is_stale(&self, key: &str, revision: Revision) -> bool {
        self.inner.is_stale(key, revision).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        self.inner.watch(prefix, after).await
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        self.inner.follow(after).await
    }

    async fn remembered(&self) -> Vec<Replaced> {
        self.inner.remembered().await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.inner.current_revision().await
    }

    fn check(&self) -> Result<(), StoreError> {
        self.inner.check()
    }

    fn fail(&self, error: &StoreError) {
        self.inner.fail(error);
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.inner.compact(revision).await
    }

    async fn has_read(&self, revision: Revision) -> Result<(), StoreError> {
        self.inner.has_read(revision).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::stored::resource_of;
    use crate::store::memory::Memory;
    use prometheus_client::registry::Registry;

    fn counted(inner: Arc<dyn Store>) -> (Counted, Arc<Storage>) {
        let metrics = Arc::new(Storage::default());
        let counted = Counted::over(inner, Arc::clone(&metrics), Box::new(resource_of()));
        (counted, metrics)
    }

    #[tokio::test]
    async fn it_is_a_store() {
        let (counted, _) = counted(Arc::new(Memory::new()));
        crate::store::conformance::all(Arc::new(counted)).await;
    }

    #[tokio::test]
    async fn what_is_asked_is_counted_by_resource() {
        let (store, metrics) = counted(Arc::new(Memory::shared()));
        let value = Bytes::new;
        let key = "/registry/deployments/a/b";
        let made = store.put(key, value(), Expect::Absent).await.unwrap();
        assert!(store.put(key, value(), Expect::Absent).await.is_err(), "a conflict");
        let others = [(key.to_owned(), made)];
        let next = store.put_if(key, value(), Expect::At(made), &others).await.unwrap();
        let last = store.put_for_deletion(key, value(), next).await.unwrap();
        store.get(key).await.unwrap();
        store.delete(key, last).await.unwrap();
        store.range("").await.unwrap();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let apps = "group=\"apps\",resource=\"deployments\"}";
        for line in [
            format!("etcd_requests_total{{operation=\"create\",{apps} 2\n"),
            format!("etcd_requests_total{{operation=\"update\",{apps} 2\n"),
            format!("etcd_requests_total{{operation=\"get\",{apps} 1\n"),
            format!("etcd_requests_total{{operation=\"delete\",{apps} 1\n"),
            "etcd_requests_total{operation=\"list\",group=\"\",resource=\"\"} 1\n".to_owned(),
            format!("etcd_request_duration_seconds_count{{operation=\"create\",{apps} 2\n"),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("\netcd_request_errors_total{"), "{text}");
    }
}
