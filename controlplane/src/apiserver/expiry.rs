//! Events are forgotten an hour after their last write (control-plane contract §10).
//!
//! Owns the deletion of expired events and nothing else. Objects do not carry the time of their last write, so the age is
//! taken from revisions: whatever is older than the revision of an hour ago goes. Which revision was when is itself kept in the
//! store, beside the objects, so that a restart gives nobody a new hour. It is written only after events were.
//!
//! A store that several servers share lets events go by itself (etcd's leases). What is left there are those that were written without:
//! moved from another store, or by a version before this. They go an hour after this process has first seen them, by its own clock alone:
//! what another's says is nothing to it, were it hours ahead.

mod revision_times;

use super::reader::Reader;
use crate::store::window::ResourceWindow;
use crate::store::{Expect, Revision, Store, StoreError};
use bytes::Bytes;
use client::Clock;
use revision_times::RevisionTimes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// How long an event is there after its last write (upstream's default).
pub(crate) const LIFETIME: Duration = Duration::from_secs(revision_times::LIFETIME_SECONDS as u64);

/// How often expired events are looked for, and the precision of saved.
const EVERY: Duration = Duration::from_secs(60);
/// Where the ages are kept: under no resource's prefix.
const KEY: &str = "/skiff/event-ages";

/// Deletes expired events until the store is closed.
pub(super) async fn run(store: Arc<dyn Store>, reader: Reader, clock: Arc<dyn Clock>) {
    let Some(window) = reader.window_of("", "events") else {
        return;
    };
    let Some(mut ages) = Ages::begin(&*store).await else {
        return;
    };
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = ages.now(&*clock);
        let snapshot = window.cached();
        let last_event = snapshot.objects.values().map(|stored| stored.revision).max();
        ages.times.note(now, snapshot.revision, last_event);
        drop(snapshot);
        if let Some(expired) = ages.times.expired(now)
            && delete(&*store, &window, expired).await.is_err()
        {
            return;
        }
        match ages.save(&*store).await {
            Ok(()) => {}
            Err(StoreError::Closed) => return,
            Err(error) => tracing::warn!(%error, "the ages of events cannot be written"),
        }
    }
}

/// Deletes what was last written at `expired` or before; fails only when the store is closed.
async fn delete(store: &dyn Store, window: &ResourceWindow, expired: Revision) -> Result<(), StoreError> {
    let snapshot = window.cached();
    for stored in snapshot.objects.values().filter(|stored| stored.revision <= expired) {
        match store.delete(&stored.key, stored.revision).await {
            // Written again or deleted meanwhile: then it is not ours.
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(StoreError::Closed) => return Err(StoreError::Closed),
            Err(error) => tracing::warn!(key = %stored.key, %error, "an expired event cannot be deleted"),
        }
    }
    Ok(())
}

/// The times, and what is known of their copy in the store.
struct Ages {
    times: RevisionTimes,
    /// `None` where they are this process's own.
    saved: Option<Saved>,
    origin: Instant,
}

/// The copy.
struct Saved {
    text: String,
    expect: Expect,
}

impl Ages {
    /// As they are known; `None` when the store is closed.
    async fn begin(store: &dyn Store) -> Option<Self> {
        if store.is_shared() {
            return Some(Self::own(store).await);
        }
        loop {
            match Self::load(store).await {
                Ok(ages) => return Some(ages),
                Err(StoreError::Closed) => return None,
                Err(error) => {
                    tracing::warn!(%error, "the ages of events cannot be read; they do not expire until they can")
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Those of this process; what others have left in the store is of no use to anybody.
    async fn own(store: &dyn Store) -> Self {
        if let Ok(Some(left)) = store.get(KEY).await {
            // The next start finds it again.
            let _ = store.delete(KEY, left.modified).await;
        }
        Self {
            times: RevisionTimes::default(),
            saved: None,
            origin: Instant::now(),
        }
    }

    async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let record = store.get(KEY).await?;
        let text = record.as_ref().map(|record| String::from_utf8_lossy(&record.value));
        let text = text.unwrap_or_default().into_owned();
        Ok(Self {
            times: RevisionTimes::parse(&text),
            saved: Some(Saved {
                text,
                expect: record.map_or(Expect::Absent, |record| Expect::At(record.modified)),
            }),
            origin: Instant::now(),
        })
    }

    /// The time in seconds, of a clock that goes on over restarts where ages do.
    fn now(&self, clock: &dyn Clock) -> i64 {
        match self.saved {
            Some(_) => clock.now().as_second(),
            None => self.origin.elapsed().as_secs() as i64,
        }
    }

    async fn save(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let Some(saved) = &mut self.saved else { return Ok(()) };
        let text = self.times.to_string();
        if text == saved.text {
            return Ok(());
        }
        match store.put(KEY, Bytes::from(text.clone()), saved.expect).await {
            Ok(revision) => {
                *saved = Saved {
                    text,
                    expect: Expect::At(revision),
                };
                Ok(())
            }
            // Somebody else keeps ages here too; the next time is over theirs.
            Err(StoreError::Conflict { current, .. }) => {
                saved.expect = current.map_or(Expect::Absent, |record| Expect::At(record.modified));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
