//! A store around all others: what fails there is said in the log, at a pace ([`super::pace`]), and writes that were not done are counted.
//!
//! Owns what is said of the store's failures: whoever asked is told each time, and answers with that; a line for each would fill the log
//! with what it says already, and most likely the disk. Changes nothing.

use super::pace::{Failing, Line};
use super::{Expect, Record, Replaced, Revision, Steps, Store, StoreError};
use crate::metrics::write_errors::{Unwritten, WriteErrors};
use crate::store::counted::{Locate, operation};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// What was asked for.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Asked {
    Read,
    Write,
}

/// A kind of failure.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Why {
    /// The store says it itself, when it begins and when it ends.
    Full,
    ReadOnly,
    Refused,
    Unavailable,
    Unknown,
    Failed,
}

impl Why {
    /// `None` for what is an answer.
    fn of(error: &StoreError) -> Option<Self> {
        Some(match error {
            StoreError::Conflict { .. } | StoreError::Compacted { .. } => return None,
            StoreError::Full { .. } => Self::Full,
            StoreError::ReadOnly(_) => Self::ReadOnly,
            StoreError::Refused(_) => Self::Refused,
            StoreError::Unavailable(_) => Self::Unavailable,
            StoreError::OutcomeUnknown(_) => Self::Unknown,
            StoreError::Older { .. } | StoreError::Unusable(_) | StoreError::Closed => Self::Failed,
        })
    }

    fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::ReadOnly => "read_only",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// See the module.
pub struct Told {
    inner: Arc<dyn Store>,
    errors: Arc<WriteErrors>,
    locate: Locate,
    failing: Mutex<HashMap<(Asked, Why), Failing>>,
    /// Whether there is anything whose end is to be said.
    is_failing: AtomicBool,
}

impl Told {
    /// Counts in `errors` what `inner` does not write.
    pub fn over(inner: Arc<dyn Store>, errors: Arc<WriteErrors>, locate: Locate) -> Self {
        Self {
            inner,
            errors,
            locate,
            failing: Mutex::default(),
            is_failing: AtomicBool::new(false),
        }
    }

    async fn write(
        &self,
        operation: &'static str,
        key: &str,
        asking: impl Future<Output = Result<Revision, StoreError>> + Send,
    ) -> Result<Revision, StoreError> {
        let answer = self.ask(Asked::Write, asking).await;
        if let Some(why) = answer.as_ref().err().and_then(Why::of) {
            let (group, resource) = (self.locate)(key).unwrap_or_default();
            self.errors.count(&Unwritten {
                operation,
                group,
                resource,
                reason: why.label(),
            });
        }
        answer
    }

    async fn ask<T>(
        &self,
        asked: Asked,
        asking: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let answer = asking.await;
        match &answer {
            Err(error) if Why::of(error).is_some() => self.failed(asked, error),
            _ if self.is_failing.load(Ordering::Relaxed) => self.well(asked),
            _ => {}
        }
        answer
    }

    fn failed(&self, asked: Asked, error: &StoreError) {
        let Some(why) = Why::of(error).filter(|why| *why != Why::Full) else {
            return;
        };
        let line = {
            let mut all = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_failing.store(true, Ordering::Relaxed);
            all.entry((asked, why)).or_default().failed(Instant::now())
        };
        match line {
            Some(Line::GoesOn(failed)) => tracing::error!(%error, failed, "the store goes on failing"),
            Some(_) => tracing::error!(%error, "the store failed"),
            None => tracing::debug!(%error, "the store failed once more"),
        }
    }

    fn well(&self, asked: Asked) {
        let mut over = 0;
        {
            let mut all = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            for (_, failing) in all.iter_mut().filter(|((of, _), _)| *of == asked) {
                if let Some(Line::Over(failed)) = failing.well(now) {
                    over += failed;
                }
            }
            let is_failing = all.values().any(Failing::is_one);
            self.is_failing.store(is_failing, Ordering::Relaxed);
        }
        if over > 0 {
            tracing::info!(failed = over, "the store does not fail any more");
        }
    }
}

#[async_trait]
impl Store for Told {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        self.write(operation(expect), key, self.inner.put(key, value, expect))
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
        self.write(operation(expect), key, putting).await
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        let putting = self.inner.put_for_deletion(key, value, expect);
        self.write("update", key, putting).await
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        self.write("delete", key, self.inner.delete(key, expect)).await
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        self.ask(Asked::Read, self.inner.range(prefix)).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        self.ask(Asked::Read, self.inner.get(key)).await
    }

    async fn is_stale(&self, key: &str, revision: Revision) -> bool {
        self.inner.is_stale(key, revision).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        self.inner.watch(prefix, after).await
    }

    /// Whoever follows says itself that it cannot: it tries again without end.
    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        self.inner.follow(after).await
    }

    async fn remembered(&self) -> Vec<Replaced> {
        self.inner.remembered().await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.ask(Asked::Read, self.inner.current_revision()).await
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
mod tests;
