//! The store around a store: values leave encrypted and come back in clear.
//!
//! Owns nothing that is stored. Preconditions, revisions and the order of changes are the inner store's.

use crate::provider::{OpenError, Opened, Providers, open_plain};
use crate::transformers::Transformers;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use store::{Expect, Record, Replaced, Revision, Step, Steps, Store, StoreError, unreadable};

/// How long a plugin that does not answer is left in peace before a stream of changes ends for it.
const PAUSE: Duration = Duration::from_secs(1);
/// Records that are decrypted at one go; others have a turn then.
const TURN: usize = 64;

/// Says which resource's a key is: group and plural name. `None` for what is nobody's and stays in clear.
pub type Locate = Arc<dyn Fn(&str) -> Option<(String, String)> + Send + Sync>;
/// Says where a key is in what the inner store writes to: upstream binds values to that place, `--etcd-prefix` and all.
pub type Place = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// What is written and read how, which may change; all clones are one.
#[derive(Clone)]
pub struct Encryption {
    now: Arc<RwLock<Arc<Transformers>>>,
    locate: Locate,
    place: Option<Place>,
}

impl Encryption {
    /// As `transformers` say, of keys as `locate` says.
    pub fn new(transformers: Transformers, locate: Locate) -> Self {
        Self {
            now: Arc::new(RwLock::new(Arc::new(transformers))),
            locate,
            place: None,
        }
    }

    /// The same of a store that keeps its keys elsewhere: values are bound to the places `place` tells.
    #[must_use]
    pub fn at(self, place: Place) -> Self {
        Self {
            place: Some(place),
            ..self
        }
    }

    /// What the value of a key is bound to.
    fn place<'k>(&self, key: &'k str) -> Cow<'k, str> {
        self.place
            .as_ref()
            .map_or(Cow::Borrowed(key), |place| Cow::Owned(place(key)))
    }

    /// From now on these hold.
    pub fn replace(&self, transformers: Arc<Transformers>) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = transformers;
    }

    /// What holds now.
    pub fn transformers(&self) -> Arc<Transformers> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn providers(&self, key: &str) -> Option<Providers> {
        let now = self.transformers();
        if now.is_empty() {
            return None;
        }
        let (group, resource) = (self.locate)(key)?;
        now.of(&group, &resource)
    }

    async fn seal(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        let Some(providers) = self.providers(key) else {
            return Ok(value);
        };
        let sealed = providers.seal(&self.place(key), value).await;
        sealed.map_err(|error| StoreError::Unusable(format!("unable to transform key {key:?}: {error}")))
    }

    async fn open(&self, key: &str, stored: &Bytes) -> Result<Opened, OpenError> {
        match self.providers(key) {
            Some(providers) => providers.open(&self.place(key), stored).await,
            None => open_plain(stored),
        }
    }

    /// The value, or a mark in its place that says why there is none.
    ///
    /// # Errors
    /// Only if a plugin does not answer.
    async fn shown(&self, key: &str, stored: &Bytes) -> Result<Bytes, StoreError> {
        match self.open(key, stored).await {
            Ok(opened) => Ok(opened.value),
            Err(OpenError::Unreadable(why)) => Ok(unreadable::mark(key, &why)),
            Err(OpenError::Unavailable(why)) => {
                Err(StoreError::Unusable(format!("unable to transform key {key:?}: {why}")))
            }
        }
    }

    /// A conflict with what is there in clear. What cannot be read is nobody's to write over: they would do it without having seen it.
    async fn conflict(&self, error: StoreError, expect: Option<Expect>) -> StoreError {
        let StoreError::Conflict {
            key,
            current: Some(current),
        } = error
        else {
            return error;
        };
        let value = match self.open(&current.key, &current.value).await {
            Ok(opened) => opened.value,
            Err(OpenError::Unreadable(why) | OpenError::Unavailable(why)) => unreadable::mark(&current.key, &why),
        };
        let current = Record { value, ..current };
        match unreadable::reason(&current.value) {
            Some(why) if expect != Some(Expect::Absent) => StoreError::Unusable(why.to_owned()),
            _ => StoreError::Conflict {
                key,
                current: Some(current),
            },
        }
    }

    /// Ends while a plugin does not answer that changes need: a mark would stand for a readable value for good. Who follows
    /// goes on after the last change it was shown.
    fn steps(&self, steps: Steps) -> Steps {
        let shown = futures::stream::unfold(Some((self.clone(), steps)), |going| async move {
            let (own, mut steps) = going?;
            match own.shown_step(steps.next().await?).await {
                Ok(step) => Some((Ok(step), Some((own, steps)))),
                Err(error) => Some((Err(error), None)),
            }
        });
        shown.boxed()
    }

    async fn shown_step(&self, step: Result<Step, StoreError>) -> Result<Step, StoreError> {
        let mut step = step?;
        for change in &mut step.changes {
            let Some(value) = &mut change.value else { continue };
            *value = match self.shown(&change.key, value).await {
                Ok(shown) => shown,
                Err(error) => {
                    tokio::time::sleep(PAUSE).await;
                    return Err(StoreError::Unavailable(error.to_string()));
                }
            };
        }
        Ok(step)
    }
}

/// See the module.
pub struct Encrypted {
    inner: Arc<dyn Store>,
    encryption: Encryption,
}

impl Encrypted {
    /// Around `inner`.
    pub fn new(inner: Arc<dyn Store>, encryption: Encryption) -> Self {
        Self { inner, encryption }
    }
}

#[async_trait]
impl Store for Encrypted {
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<Revision, StoreError> {
        let value = self.encryption.seal(key, value).await?;
        match self.inner.put(key, value, expect).await {
            Err(error) => Err(self.encryption.conflict(error, Some(expect)).await),
            put => put,
        }
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
        unchanged: &[(String, Revision)],
    ) -> Result<Revision, StoreError> {
        let value = self.encryption.seal(key, value).await?;
        match self.inner.put_if(key, value, expect, unchanged).await {
            Err(error) => Err(self.encryption.conflict(error, Some(expect)).await),
            put => put,
        }
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn put_for_deletion(&self, key: &str, value: Bytes, expect: Revision) -> Result<Revision, StoreError> {
        let value = self.encryption.seal(key, value).await?;
        match self.inner.put_for_deletion(key, value, expect).await {
            Err(error) => Err(self.encryption.conflict(error, None).await),
            put => put,
        }
    }

    async fn delete(&self, key: &str, expect: Revision) -> Result<Revision, StoreError> {
        match self.inner.delete(key, expect).await {
            Err(error) => Err(self.encryption.conflict(error, None).await),
            deleted => deleted,
        }
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        let Some(record) = self.inner.get(key).await? else {
            return Ok(None);
        };
        let value = self.encryption.shown(key, &record.value).await?;
        Ok(Some(Record { value, ..record }))
    }

    async fn range(&self, prefix: &str) -> Result<(Revision, Vec<Record>), StoreError> {
        let (revision, mut records) = self.inner.range(prefix).await?;
        for (number, record) in records.iter_mut().enumerate() {
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            record.value = self.encryption.shown(&record.key, &record.value).await?;
        }
        Ok((revision, records))
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Steps, StoreError> {
        Ok(self.encryption.steps(self.inner.watch(prefix, after).await?))
    }

    async fn follow(&self, after: Revision) -> Result<Steps, StoreError> {
        Ok(self.encryption.steps(self.inner.follow(after).await?))
    }

    async fn remembered(&self) -> Vec<Replaced> {
        let mut remembered = self.inner.remembered().await;
        for replaced in &mut remembered {
            if let Some(old) = &mut replaced.old {
                let Ok(value) = self.encryption.shown(&old.key, &old.value).await else {
                    // Only a past that is whole is of use.
                    return Vec::new();
                };
                old.value = value;
            }
        }
        remembered
    }

    async fn is_stale(&self, key: &str, revision: Revision) -> bool {
        let Some(providers) = self.encryption.providers(key) else {
            return false;
        };
        // What cannot be told is left as it is.
        let Ok(Some(record)) = self.inner.get(key).await else {
            return false;
        };
        if record.modified != revision {
            return false;
        }
        match providers.open(&self.encryption.place(key), &record.value).await {
            Ok(opened) => opened.is_stale,
            // It was read with a key that has gone since: with this write it can be read again.
            Err(OpenError::Unreadable(_)) => true,
            Err(OpenError::Unavailable(_)) => false,
        }
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
mod tests;
