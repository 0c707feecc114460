//! etcd v3 behind the store's trait: upstream's key layout, conditional transactions, one watch of everything, compaction.
//!
//! Owns the connections to etcd's members and which of them is asked; what a request whose answer was lost has done. Never caches
//! and never interprets a value: the window reads what [`Etcd::follow`](store::Store::follow) tells. Every read is linearizable.

mod address;
mod compactor;
mod connect;
mod keys;
mod members;
mod options;
mod rpc;
mod settle;
#[allow(clippy::unwrap_used, reason = "for tests: what fails ends them")]
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod txn;
mod verdict;
mod watching;

pub use options::{Deadlines, OpenError, Options, TlsFiles};

use async_trait::async_trait;
use bytes::Bytes;
use keys::Keys;
use proto::etcd::{KeyValue, RangeRequest};
use rpc::Rpc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Expect, Record, Revision, Steps, Store, StoreError};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// Records of one page of a range.
const PAGE: i64 = 1000;
/// How often a range begins anew whose revision is compacted while it is read.
const RANGE_TRIES: usize = 3;

/// The store on an etcd cluster; closed when it is dropped.
pub struct Etcd {
    rpc: Arc<Rpc>,
    keys: Keys,
    /// Questions for the revision so far, and the last answer with the number of questions it is for.
    asked: AtomicU64,
    answered: Mutex<(u64, Result<Revision, StoreError>)>,
    compactor: Option<JoinHandle<()>>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(compactor) = &self.compactor {
            compactor.abort();
        }
    }
}

impl Etcd {
    /// Connects to a cluster, and waits a while until one of its members answers.
    ///
    /// # Errors
    /// [`OpenError`]: what is wrong with a flag or a file, or why nobody answers.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let rpc = Arc::new(Rpc::new(&options)?);
        rpc.first_answer(options.deadlines.start).await?;
        let interval = options.compaction_interval;
        let compactor = interval.map(|interval| tokio::spawn(compactor::run(Arc::clone(&rpc), interval)));
        Ok(Self {
            rpc,
            keys: Keys::under(&options.prefix),
            asked: AtomicU64::new(0),
            answered: Mutex::new((0, Err(StoreError::Closed))),
            compactor,
        })
    }

    async fn pages(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        let (mut from, end) = self.keys.range_of(prefix);
        let (mut revision, mut records) = (0, Vec::new());
        loop {
            let request = RangeRequest {
                key: from,
                range_end: end.clone(),
                limit: PAGE,
                revision,
                ..RangeRequest::default()
            };
            let page = self.rpc.range(request).await?;
            if revision == 0 {
                revision = page.header.map_or(0, |header| header.revision);
            }
            from = match page.kvs.last() {
                Some(last) if page.more => [&last.key, &b"\0"[..]].concat(),
                _ => Vec::new(),
            };
            records.extend(page.kvs.into_iter().filter_map(|kv| record(&self.keys, kv)));
            if from.is_empty() {
                return Ok((revision as Revision, records));
            }
        }
    }
}

/// Where a key of ours is in etcd, for what is bound to that place.
pub fn place(prefix: &str, key: &str) -> String {
    Keys::under(prefix).place(key)
}

/// What etcd holds as the store has it; `None` for keys that are none of ours.
fn record(keys: &Keys, kv: KeyValue) -> Option<Record> {
    Some(Record {
        key: keys.ours(&kv.key)?,
        value: Bytes::from(kv.value),
        created: kv.create_revision as Revision,
        modified: kv.mod_revision as Revision,
    })
}

#[async_trait]
impl Store for Etcd {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.put_if(key, value, expect, &[]).await
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        self.write((key, unchanged), txn::Write::Put(&value), expect).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.write((key, &[]), txn::Write::Delete, Expect::At(expect)).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        let request = RangeRequest {
            key: self.keys.theirs(key),
            ..RangeRequest::default()
        };
        let found = self.rpc.range(request).await?.kvs.into_iter().next();
        Ok(found.and_then(|kv| record(&self.keys, kv)))
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        let mut tries = RANGE_TRIES;
        loop {
            tries -= 1;
            match self.pages(prefix).await {
                Err(StoreError::Compacted { .. }) if tries > 0 => {}
                answer => return answer,
            }
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        watching::watch(Arc::clone(&self.rpc), self.keys.clone(), prefix.to_owned(), after).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut answered = self.answered.lock().await;
        if answered.0 >= number {
            // Asked after this call began: as good as an answer of its own.
            return answered.1.clone();
        }
        let covered = self.asked.load(Ordering::SeqCst);
        let answer = self.rpc.revision().await;
        *answered = (covered, answer.clone());
        answer
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.rpc.compact(revision).await
    }

    /// Nothing: others read etcd's history too, and who compacts it is agreed on between them.
    async fn has_read(&self, _revision: Revision) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
