//! The end of a definition's objects: those in the window go, in groups that are committed together, whoever served them.
//!
//! Owns how many are held at once: a share of the window's own, never a copy of all.

use crate::apiserver::state::ServerState;
use crate::apiserver::verbs;
use crate::resource::custom;
use crate::resource::field::{at, list};
use crate::store::value::{TypeMeta, canonical};
use crate::store::window::Stored;
use crate::store::{Store, StoreError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use std::sync::Arc;

/// Deletions on their way at once: the store commits together what comes together.
const AT_ONCE: usize = 64;

/// Deletes objects of a definition that ends; those with finalizers are marked. Gives how many are left that were there when it began
/// its last look.
pub(super) async fn sweep(state: &ServerState, group: &str, plural: &str) -> Result<usize, StoreError> {
    let prefix = custom::storage_prefix(group, plural);
    // What was begun before is stored then, and what comes later sees that the definition ends.
    let _nothing_is_made = state.write_locks().end_of(&prefix).await;
    let prefix = format!("/registry/{prefix}/");
    let windows = state.publisher().window();
    let is_served = state.served().resource(group, plural).is_some();
    let window = windows.resource(&prefix);
    let snapshot = window.latest().await?;
    let count = snapshot.objects.len();
    let (store, now) = (Arc::clone(state.store()), state.now());
    let objects = snapshot
        .objects
        .into_iter()
        .map(move |(_, stored)| end(Arc::clone(&store), now, stored));
    let swept = stream::iter(objects)
        .buffer_unordered(AT_ONCE)
        .try_for_each(|()| async { Ok(()) })
        .await;
    if !is_served {
        windows.release(&prefix);
    }
    swept.map(|()| count)
}

/// The end of one object, or a step of it.
async fn end(store: Arc<dyn Store>, now: Timestamp, stored: Arc<Stored>) -> Result<(), StoreError> {
    let mut object = stored.owned_tree();
    let written = match list(&object, &["metadata", "finalizers"]).is_empty() {
        true => store.delete(&stored.key, stored.revision).await,
        false if !at(&object, &["metadata", "deletionTimestamp"]).is_null() => return Ok(()),
        false => {
            verbs::mark_deleting(&mut object, now);
            // It stays in the version it was stored in.
            let of = stored.type_meta().unwrap_or(TypeMeta::new("", ""));
            let raw = Bytes::from(canonical(&of, &object));
            store.put_for_deletion(&stored.key, raw, stored.revision).await
        }
    };
    match written {
        // Changed meanwhile: the next look sees it.
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
