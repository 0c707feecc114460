//! Events are forgotten an hour after their last write (control-plane contract §10).
//!
//! Owns the deletion of expired events and nothing else. Objects do not carry the time of their last write, so the age is
//! taken from revisions: whatever is older than the revision of an hour ago goes. After a restart the hour begins again.

use super::reader::Reader;
use crate::resource::Kind;
use crate::store::{Revision, Store, StoreError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// How long an event lives after its last write.
const LIFETIME: Duration = Duration::from_secs(3600);
/// How often expired events are looked for.
const EVERY: Duration = Duration::from_secs(60);

/// Deletes expired events until the store is closed.
pub(super) async fn run(store: Arc<dyn Store>, reader: Reader, events: &'static Kind) {
    let Some(window) = reader.window(events).map(Arc::clone) else {
        return;
    };
    let mut marks: VecDeque<(Instant, Revision)> = VecDeque::new();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let snapshot = window.cached();
        marks.push_back((now, snapshot.revision));
        let mut expired = None;
        while let Some(&(at, revision)) = marks.front() {
            if now.duration_since(at) < LIFETIME {
                break;
            }
            expired = Some(revision);
            marks.pop_front();
        }
        let Some(expired) = expired else { continue };
        for stored in snapshot.objects.values().filter(|stored| stored.revision <= expired) {
            match store.delete(&stored.key, stored.revision).await {
                // Written again or deleted meanwhile: then it is not ours.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(key = %stored.key, %error, "an expired event cannot be deleted"),
            }
        }
    }
}
