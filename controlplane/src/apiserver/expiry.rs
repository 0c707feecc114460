//! Events are forgotten an hour after their last write (control-plane contract §10).
//!
//! Owns the deletion of expired events and nothing else. Objects do not carry the time of their last write, so the age is
//! taken from revisions: whatever is older than the revision of an hour ago goes. Which revision was when is itself kept in the
//! store, beside the objects, so that a restart gives nobody a new hour. It is written only after events were.

mod revision_times;

use super::reader::Reader;
use crate::store::window::ResourceWindow;
use crate::store::{Expect, Revision, Store, StoreError};
use bytes::Bytes;
use client::Clock;
use revision_times::RevisionTimes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often expired events are looked for, and the precision of saved.
const EVERY: Duration = Duration::from_secs(60);
/// Where the ages are kept: under no resource's prefix.
const KEY: &str = "/skiff/event-ages";

/// Deletes expired events until the store is closed.
pub(super) async fn run(store: Arc<dyn Store>, reader: Reader, clock: Arc<dyn Clock>) {
    let Some(window) = reader.window_of("", "events") else {
        return;
    };
    let mut saved = loop {
        match SavedTimes::load(&*store).await {
            Ok(saved) => break saved,
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "the ages of events cannot be read; they do not expire until they can")
            }
        }
        tokio::time::sleep(EVERY).await;
    };
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = clock.now().as_second();
        let snapshot = window.cached();
        let last_event = snapshot.objects.values().map(|stored| stored.revision).max();
        saved.times.note(now, snapshot.revision, last_event);
        drop(snapshot);
        if let Some(expired) = saved.times.expired(now)
            && delete(&*store, &window, expired).await.is_err()
        {
            return;
        }
        match saved.save(&*store).await {
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

/// The times with what is known of their copy in the store.
struct SavedTimes {
    times: RevisionTimes,
    saved: String,
    expect: Expect,
}

impl SavedTimes {
    async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let (_, records) = store.range(KEY).await?;
        let record = records.into_iter().find(|record| *record.key == *KEY);
        let saved = record
            .as_ref()
            .map(|record| String::from_utf8_lossy(&record.value).into_owned());
        Ok(Self {
            times: RevisionTimes::parse(saved.as_deref().unwrap_or_default()),
            saved: saved.unwrap_or_default(),
            expect: record.map_or(Expect::Absent, |record| Expect::At(record.modified)),
        })
    }

    async fn save(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let text = self.times.to_string();
        if text == self.saved {
            return Ok(());
        }
        match store.put(KEY, Bytes::from(text.clone()), self.expect).await {
            Ok(revision) => {
                self.expect = Expect::At(revision);
                self.saved = text;
                Ok(())
            }
            // Somebody else keeps ages here too; the next time is over theirs.
            Err(StoreError::Conflict { current, .. }) => {
                self.expect = current.map_or(Expect::Absent, |record| Expect::At(record.modified));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
