//! etcd v3 behind the store's trait: upstream's key layout, conditional transactions, one watch of everything, compaction.
//!
//! Owns the connections to etcd's members and which of them is asked; what a request whose answer was lost has done. Never caches
//! and never interprets a value: the window reads what [`Etcd::follow`](store::Store::follow) tells. Every read is linearizable.

mod address;
mod agreement;
mod compactor;
mod connect;
mod fence;
mod form;
mod hashes;
mod history;
mod keys;
mod leases;
mod lifetimes;
mod members;
pub mod moving;
mod options;
mod over;
mod pages;
mod rpc;
mod settle;
#[allow(clippy::unwrap_used, reason = "for tests: what fails ends them")]
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod txn;
mod verdict;
mod watching;

pub use lifetimes::{Lifetime, OnLeaseOver};
pub use options::{Deadlines, OpenError, Options, TlsFiles};
#[cfg(any(test, feature = "test-util"))]
pub use testing::binary;

use async_trait::async_trait;
use bytes::Bytes;
use fence::Fence;
use futures::Stream;
use keys::Keys;
use lifetimes::Lifetimes;
use pages::Pages;
use proto::etcd::{KeyValue, RangeRequest};
use rpc::{At, Rpc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{Expect, Record, Replaced, Revision, Steps, Store, StoreError};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// How often etcd is asked how large it is (upstream's default).
pub const LOOK_AT_SIZE: Duration = Duration::from_secs(30);
/// How often a range begins anew whose revision is compacted while it is read.
const RANGE_TRIES: usize = 3;

/// The store on an etcd cluster; closed when it is dropped.
pub struct Etcd {
    rpc: Arc<Rpc>,
    keys: Keys,
    fence: Arc<Fence>,
    lifetimes: Lifetimes,
    /// Questions for the revision so far, and the last answer with the number of questions it is for.
    asked: AtomicU64,
    answered: Mutex<(u64, Result<Revision, StoreError>)>,
    /// What goes on beside what is asked.
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
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
        // Before anything is read of one that may have other data.
        rpc.compare_hashes_and_tell(At::Start).await;
        let (keys, noted) = form::read(&rpc, Keys::under(&options.prefix), &options.prefix).await?;
        if let Some(found) = moving::mark(&rpc, &keys).await.map_err(no_answer)? {
            return Err(OpenError::Moving {
                prefix: options.prefix,
                why: found.mark.text,
            });
        }
        let interval = options.compaction_interval;
        let mut tasks = vec![tokio::spawn(Arc::clone(&rpc).compare())];
        tasks.extend(interval.map(|interval| tokio::spawn(compactor::run(Arc::clone(&rpc), interval))));
        Ok(Self {
            fence: Arc::new(Fence::new(keys.clone(), &options.prefix, noted, Arc::clone(&rpc.over))),
            rpc,
            keys,
            lifetimes: Lifetimes::of(&[], Box::new(|_| ())),
            asked: AtomicU64::new(0),
            answered: Mutex::new((0, Err(StoreError::Closed))),
            tasks,
        })
    }

    /// The same store, whose values of these lifetimes go by themselves; with each lease that is written with no more, `on_over` is told
    /// how many values were.
    #[must_use]
    pub fn with_lifetimes(mut self, lifetimes: &[Lifetime], on_over: OnLeaseOver) -> Self {
        self.lifetimes = Lifetimes::of(lifetimes, on_over);
        self
    }

    /// Notes in etcd which form of values is written from now on, unless that is noted already; for who is about to write.
    ///
    /// # Errors
    /// As of any write.
    pub async fn note_form(&self) -> Result<(), StoreError> {
        let noted = form::note(&self.rpc, &self.keys).await?;
        self.fence.take(fence::found(noted.as_ref()))
    }

    /// Ends when nothing is read or written here any more, with the reason: what is under the prefix is not what it was when the store
    /// was opened, of a form this binary does not read, or of another history than what was read before.
    pub fn over(&self) -> impl Future<Output = String> + Send + use<> {
        self.rpc.over.reason()
    }

    /// Tells at once and then every [`LOOK_AT_SIZE`] how large etcd's database is, in bytes, as a member has it that answers.
    pub fn sizes(&self) -> impl Stream<Item = u64> + Send + use<> {
        let rpc = Arc::clone(&self.rpc);
        futures::stream::unfold((rpc, Duration::ZERO), |(rpc, mut pause)| async move {
            loop {
                tokio::time::sleep(pause).await;
                pause = LOOK_AT_SIZE;
                match rpc.size().await {
                    Ok(size) => return Some((size, (rpc, pause))),
                    Err(error) => tracing::debug!(%error, "etcd does not say how large it is"),
                }
            }
        })
    }

    /// Compares what the members have at once, and not when it is time.
    #[cfg(any(test, feature = "test-util"))]
    pub async fn compare_members(&self) {
        self.rpc.compare_hashes_and_tell(At::Work).await;
    }

    async fn pages(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        let mut pages = Pages::of_one_revision(self.keys.range_of(prefix));
        let (mut revision, mut records) = (0, Vec::new());
        while let Some(page) = pages.next(&self.rpc, &self.keys).await? {
            revision = page.revision;
            records.extend(page.records);
        }
        if prefix.is_empty() {
            let note = self.keys.ours(&self.keys.form());
            let found = records.iter().find(|record| note.as_ref() == Some(&record.key));
            self.fence.look(found.map(|found| (&found.value[..], 0)))?;
        }
        self.fence.check()?;
        Ok((self.keys.ours_at(revision), records))
    }
}

fn no_answer(error: StoreError) -> OpenError {
    OpenError::NoAnswer(error.to_string())
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
        created: keys.ours_at(kv.create_revision),
        modified: keys.ours_at(kv.mod_revision),
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

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        self.put(key, value, Expect::At(expect)).await
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
        self.fence.check()?;
        Ok(found.and_then(|kv| record(&self.keys, kv)))
    }

    async fn is_stale(&self, _key: &str, _revision: Revision) -> bool {
        // Bytes are stored as they are given.
        false
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
        self.fence.check()?;
        let fence = Arc::clone(&self.fence);
        watching::watch(
            (Arc::clone(&self.rpc), fence),
            self.keys.clone(),
            prefix.to_owned(),
            after,
        )
        .await
    }

    /// Everything is watched at once anyway, and etcd keeps history for who has not read it, until it is compacted.
    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        self.watch("", after).await
    }

    async fn remembered(&self) -> Vec<Replaced> {
        // etcd has the history itself.
        Vec::new()
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
        let answer = self.fence.check().and(answer);
        let answer = answer.map(|revision| self.keys.ours_at(revision as i64));
        *answered = (covered, answer.clone());
        answer
    }

    fn check(&self) -> Result<(), StoreError> {
        // Only a request tells.
        Ok(())
    }

    fn fail(&self, error: &StoreError) {
        tracing::error!(%error, "the store is not read any more");
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        match self.keys.theirs_at(revision) {
            // Of a store before this one.
            ..=0 => Ok(()),
            theirs => self.rpc.compact(theirs as Revision).await,
        }
    }

    /// Nothing: others read etcd's history too, and who compacts it is agreed on between them.
    async fn has_read(&self, _revision: Revision) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
