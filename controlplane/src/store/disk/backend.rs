//! The store's trait, of the store on disk: writes wait for the writer, reads of the file are done where blocking keeps nobody waiting.
//!
//! Owns nothing: what is written and told is the writer's.

use super::job::Operation;
use super::{Disk, records};
use crate::store::{Expect, Record, Replaced, Revision, Steps, Store, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::PoisonError;

#[async_trait]
impl Store for Disk {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        let is_for_deletion = false;
        self.submit(
            key,
            Operation::Put {
                value,
                expect,
                is_for_deletion,
            },
        )
        .await
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        let (expect, is_for_deletion) = (Expect::At(expect), true);
        self.submit(
            key,
            Operation::Put {
                value,
                expect,
                is_for_deletion,
            },
        )
        .await
    }

    /// Nobody else writes here: what keeps others out is a lock of the process that asks.
    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        match unchanged {
            [] => self.put(key, value, expect).await,
            _ => Err(StoreError::Unusable(
                "this store makes no write depend on other keys".to_owned(),
            )),
        }
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn is_stale(&self, _key: &str, _revision: Revision) -> bool {
        // Bytes are stored as they are given.
        false
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.submit(key, Operation::Delete { expect }).await
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        let prefix = prefix.to_owned();
        self.read(move |database| records::range(database, &prefix)).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        let key = key.to_owned();
        self.read(move |database| records::get(database, &key)).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        self.feed.stream(prefix, after)
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        self.feed.follow(after)
    }

    async fn remembered(&self) -> Vec<Replaced> {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut remembered)
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.feed.newest())
    }

    fn check(&self) -> Result<(), StoreError> {
        // The writer has the other end.
        (!self.jobs.is_closed()).then_some(()).ok_or(StoreError::Closed)
    }

    fn fail(&self, error: &StoreError) {
        (self.on_fatal)(error);
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.feed.compact(revision);
        Ok(())
    }

    async fn has_read(&self, revision: Revision) -> Result<(), StoreError> {
        self.compact(revision).await
    }
}
