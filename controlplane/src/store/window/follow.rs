//! The one task that feeds the window from the store, and lets go of what the window has outlived.
//!
//! Owns the order in which a group of writes becomes visible. Never answers a reader.

use super::interest::{Asked, read_of};
use super::sweep::Sweep;
use super::{ResourceWindow, Resources, Selectable, Shared, Stored};
use crate::store::pace::{Failing, Line};
use crate::store::{Change, Record, Revision, Step, Steps, Store, StoreError};
use futures::FutureExt;
use futures::stream::{Fuse, StreamExt};
use imbl::OrdMap;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How many bytes are forgotten at a time when there is too much past.
const FORGET_BYTES: usize = 256 << 10;
/// Pause before a store that could not be read is read again: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How many changes are enough to become visible: what is more waits for the next time the lock is taken, but for the rest of their step.
const TOGETHER: usize = 256;

/// Applies the store's changes until the store is closed, and forgets what is older than [`super::sweep::KEEP`].
pub(super) async fn follow(store: Arc<dyn Store>, shared: Arc<Shared>, steps: Steps, start: Revision) {
    let mut steps = steps.fuse();
    let mut sweep = Sweep::begin(start);
    loop {
        tokio::select! {
            biased;
            first = steps.next() => {
                if let Some(ended) = take(&shared, gathered(&mut steps, first)) {
                    match resume(&store, &shared, ended).await {
                        Some(resumed) => steps = resumed.fuse(),
                        None => return,
                    }
                }
            },
            () = sweep.is_due() => {}
        }
        // One for each group of changes, too: there may always be some.
        sweep.step(&*store, &shared).await;
    }
}

/// Why the steps have ended: what the last of them said, if anything.
type Ended = Option<StoreError>;

/// What there is already after the first, until that is enough; `None` if the first was the end.
fn gathered(steps: &mut Fuse<Steps>, first: Option<Result<Step, StoreError>>) -> Option<Vec<Result<Step, StoreError>>> {
    let changes = |step: &Result<Step, StoreError>| step.as_ref().map_or(TOGETHER, |step| step.changes.len().max(1));
    let first = first?;
    let mut enough = changes(&first);
    let mut gathered = vec![first];
    while enough < TOGETHER
        && let Some(Some(step)) = steps.next().now_or_never()
    {
        enough += changes(&step);
        gathered.push(step);
    }
    Some(gathered)
}

/// Makes steps visible; tells if they have ended.
fn take(shared: &Shared, steps: Option<Vec<Result<Step, StoreError>>>) -> Option<Ended> {
    let Some(steps) = steps else { return Some(None) };
    let (mut newest, mut changes, mut ended) = (None, Vec::new(), None);
    for step in steps {
        match step {
            Ok(step) => {
                newest = Some(step.revision);
                changes.extend(step.changes);
            }
            Err(error) => {
                ended = Some(Some(error));
                break;
            }
        }
    }
    if let Some(newest) = newest {
        apply(shared, changes, newest);
    }
    ended
}

/// What selectors can ask of the changes, where somebody is interested in fields: read while nobody waits for a lock.
fn read_fields(shared: &Shared, batch: &[Change]) -> Vec<Option<Asked>> {
    let asks: Vec<_> = {
        let resources = shared.resources.read().unwrap_or_else(PoisonError::into_inner);
        let asks = batch.iter().map(|change| {
            let owner = resources.owner(&change.key)?;
            owner.history().asks(&change.key)
        });
        asks.collect()
    };
    let mut latest: HashMap<Arc<str>, Option<Arc<Selectable>>> = HashMap::new();
    let read = batch.iter().zip(asks).map(|(change, asks)| {
        let (read, old) = asks?;
        let old = match latest.remove(&change.key) {
            Some(written_before) => written_before,
            None => old.map(|old| read_of(&old, &*read)),
        };
        let new = change.value.as_ref().map(|value| {
            let new = Stored::new(Arc::clone(&change.key), change.revision, change.revision, value.clone());
            read_of(&new, &*read)
        });
        latest.insert(Arc::clone(&change.key), new.clone());
        Some(Asked { old, new })
    });
    read.collect()
}

fn apply(shared: &Shared, batch: Vec<Change>, newest: Revision) {
    let now = Instant::now();
    let asked = read_fields(shared, &batch);
    let mut touched: Vec<Arc<ResourceWindow>> = Vec::new();
    // Held for the whole batch: a claim sees either all of it or nothing.
    let mut guard = shared.resources.write().unwrap_or_else(PoisonError::into_inner);
    let resources = &mut *guard;
    for (change, asked) in batch.into_iter().zip(asked) {
        if let Some(owner) = resources.owner(&change.key) {
            owner.change(|history| history.apply(change, asked.as_ref(), now));
            if !touched.iter().any(|seen| Arc::ptr_eq(seen, owner)) {
                touched.push(Arc::clone(owner));
            }
        } else {
            apply_unclaimed(resources, change);
        }
    }
    if shared.held_bytes.load(Ordering::Relaxed) > shared.history_bytes {
        bound_history(resources, shared.history_bytes);
    }
    for resource in touched {
        resource.wake();
    }
    shared.applied.send_replace(newest);
}

fn apply_unclaimed(resources: &mut Resources, change: Change) {
    let (revision, key) = (change.revision, change.key);
    let old = resources.unclaimed.remove(&key);
    if let Some(value) = change.value {
        let created = match &old {
            Some(old) if !change.created => old.created,
            _ => revision,
        };
        let stored = Stored::new(Arc::clone(&key), revision, created, value);
        resources.unclaimed.insert(Arc::clone(&key), Arc::new(stored));
    }
    resources.past.note(revision, key, old);
}

/// Makes all resources together hold no more than `limit` of their past: the one with the largest past forgets first, so that
/// a busy resource never costs a quiet one its few events.
fn bound_history(resources: &Resources, limit: usize) {
    let mut held: Vec<(usize, &Arc<ResourceWindow>)> = resources
        .by_prefix
        .values()
        .map(|resource| (resource.history().bytes(), resource))
        .collect();
    let mut total: usize = held.iter().map(|(bytes, _)| bytes).sum();
    while total > limit {
        let largest = held.iter_mut().max_by_key(|(bytes, _)| *bytes);
        let Some((bytes, resource)) = largest.filter(|(bytes, _)| *bytes > 0) else {
            return;
        };
        let freed = resource.change(|history| history.forget_bytes((total - limit).min(FORGET_BYTES)));
        if freed == 0 {
            // The others may have something.
            (total, *bytes) = (total - *bytes, 0);
            continue;
        }
        *bytes -= freed;
        total -= freed;
    }
}

/// The changes after what has been applied, once the stream of them has ended. The store keeps a bounded log: if the window
/// fell behind it, everything is read anew, and watches end (their clients list again). `None` when the store is closed.
async fn resume(store: &Arc<dyn Store>, shared: &Shared, ended: Ended) -> Option<Steps> {
    let applied = *shared.applied.borrow();
    let mut failed = match ended {
        Some(error) => Some(error),
        // Nothing was said, and there is nothing to read: it is closed.
        None if store.current_revision().await.ok()? == applied => return None,
        None => None,
    };
    let (mut pause, mut failing) = (RETRY.0, Failing::default());
    loop {
        match failed {
            None => {}
            Some(StoreError::Closed) => return None,
            Some(StoreError::Compacted { .. }) => match read_anew(store, shared).await {
                Ok(()) => {}
                Err(StoreError::Closed) => return None,
                Err(error) => {
                    wait(shared, &error, &mut pause, &mut failing).await;
                    failed = Some(StoreError::Compacted { wanted: 0, oldest: 0 });
                    continue;
                }
            },
            Some(error) => wait(shared, &error, &mut pause, &mut failing).await,
        }
        let applied = *shared.applied.borrow();
        match store.follow(applied).await {
            Ok(steps) => {
                shared.silence.ends();
                if let Some(Line::Over(failed)) = failing.over() {
                    tracing::info!(failed, "the store is read again");
                }
                return Some(steps);
            }
            Err(error) => failed = Some(error),
        }
    }
}

async fn wait(shared: &Shared, error: &StoreError, pause: &mut Duration, failing: &mut Failing) {
    shared.silence.begins();
    match failing.failed(Instant::now()) {
        Some(Line::GoesOn(failed)) => tracing::warn!(%error, failed, "the store cannot be read yet"),
        Some(_) => tracing::warn!(%error, "the store cannot be read"),
        None => {}
    }
    tokio::time::sleep(*pause).await;
    *pause = (*pause * 2).min(RETRY.1);
}

async fn read_anew(store: &Arc<dyn Store>, shared: &Shared) -> Result<(), StoreError> {
    let applied = *shared.applied.borrow();
    tracing::warn!(applied, "the window fell behind the store; it reads everything anew");
    let (revision, records) = store.range("").await?;
    replace(shared, revision, records);
    Ok(())
}

/// Makes the window show exactly these records, without a past.
fn replace(shared: &Shared, revision: Revision, records: Vec<Record>) {
    let mut guard = shared.resources.write().unwrap_or_else(PoisonError::into_inner);
    let mut rest: OrdMap<Arc<str>, Arc<Stored>> = records
        .into_iter()
        .map(|record| (Arc::clone(&record.key), Arc::new(Stored::from(record))))
        .collect();
    for (prefix, resource) in &guard.by_prefix {
        let own: OrdMap<Arc<str>, Arc<Stored>> = rest
            .range::<_, str>((std::ops::Bound::Included(prefix.as_str()), std::ops::Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix.as_str()))
            .map(|(key, stored)| (Arc::clone(key), Arc::clone(stored)))
            .collect();
        for key in own.keys() {
            rest.remove(key);
        }
        resource.change(|history| history.replace(own, revision));
    }
    guard.unclaimed = rest;
    guard.past.forget();
    for resource in guard.by_prefix.values() {
        resource.wake();
    }
    shared.oldest.send_replace(revision);
    shared.applied.send_replace(revision);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn step(revision: Revision, changes: usize) -> Result<Step, StoreError> {
        let change = Change {
            key: Arc::from("/registry/pods/a/b"),
            revision,
            value: Some(Bytes::from_static(b"{}")),
            created: false,
        };
        Ok(Step {
            revision,
            changes: vec![change; changes],
        })
    }

    /// How many steps are taken at a time.
    async fn taken(all: Vec<Result<Step, StoreError>>) -> Vec<usize> {
        let steps: Steps = futures::stream::iter(all).boxed();
        let mut steps = steps.fuse();
        let mut taken = Vec::new();
        loop {
            let first = steps.next().await;
            let Some(batch) = gathered(&mut steps, first) else {
                return taken;
            };
            taken.push(batch.len());
        }
    }

    #[tokio::test]
    async fn what_is_taken_at_a_time_is_counted_in_changes() {
        assert_eq!(taken((1..=5).map(|at| step(at, 100)).collect()).await, [3, 2]);
        assert_eq!(taken(vec![step(1, 1), step(2, 1000), step(3, 1)]).await, [2, 1]);
        let single = TOGETHER as u64 + 2;
        assert_eq!(taken((1..=single).map(|at| step(at, 1)).collect()).await, [TOGETHER, 2]);
        // Steps without changes cost a turn, too; an error is the last that is taken.
        assert_eq!(taken((1..=single).map(|at| step(at, 0)).collect()).await, [TOGETHER, 2]);
        assert_eq!(taken(vec![step(1, 1), Err(StoreError::Closed)]).await, [2]);
        assert!(taken(Vec::new()).await.is_empty());
    }
}
