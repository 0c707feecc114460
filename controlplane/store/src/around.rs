//! A store around a store for tests, which changes what it says and leaves the rest as it is.

use crate::{Expect, Record, Replaced, Revision, Steps, Store, StoreError};
use async_trait::async_trait;
use bytes::Bytes;

/// Everything is the inner store's but what an implementation has itself.
#[async_trait]
#[allow(missing_docs, reason = "they are the store's")]
pub trait Around: Send + Sync + 'static {
    /// What it stands around.
    fn inner(&self) -> &dyn Store;

    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.inner().put(key, value, expect).await
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        self.inner().put_for_deletion(key, value, expect).await
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        self.inner().put_if(key, value, expect, unchanged).await
    }

    fn is_shared(&self) -> bool {
        self.inner().is_shared()
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.inner().delete(key, expect).await
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        self.inner().range(prefix).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        self.inner().get(key).await
    }

    async fn is_stale(&self, key: &str, revision: Revision) -> bool {
        self.inner().is_stale(key, revision).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        self.inner().watch(prefix, after).await
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        self.inner().follow(after).await
    }

    async fn remembered(&self) -> Vec<Replaced> {
        self.inner().remembered().await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.inner().current_revision().await
    }

    fn check(&self) -> Result<(), StoreError> {
        self.inner().check()
    }

    fn fail(&self, error: &StoreError) {
        self.inner().fail(error);
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.inner().compact(revision).await
    }

    async fn has_read(&self, revision: Revision) -> Result<(), StoreError> {
        self.inner().has_read(revision).await
    }
}

#[async_trait]
impl<T: Around> Store for T {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        Around::put(self, key, value, expect).await
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        Around::put_for_deletion(self, key, value, expect).await
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        Around::put_if(self, key, value, expect, unchanged).await
    }

    fn is_shared(&self) -> bool {
        Around::is_shared(self)
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        Around::delete(self, key, expect).await
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        Around::range(self, prefix).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        Around::get(self, key).await
    }

    async fn is_stale(&self, key: &str, revision: Revision) -> bool {
        Around::is_stale(self, key, revision).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        Around::watch(self, prefix, after).await
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        Around::follow(self, after).await
    }

    async fn remembered(&self) -> Vec<Replaced> {
        Around::remembered(self).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Around::current_revision(self).await
    }

    fn check(&self) -> Result<(), StoreError> {
        Around::check(self)
    }

    fn fail(&self, error: &StoreError) {
        Around::fail(self, error);
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        Around::compact(self, revision).await
    }

    async fn has_read(&self, revision: Revision) -> Result<(), StoreError> {
        Around::has_read(self, revision).await
    }
}
