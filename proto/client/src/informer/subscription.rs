//! What a reader of an informer has not seen yet.

use super::store::{Held, known};
use super::{Key, Object};
use crate::ordered::Arrange;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// The difference, for one key, between what the reader last saw and what is there now.
#[derive(Clone, Debug)]
pub struct Change<K> {
    /// The object's key.
    pub key: Key,
    /// What the reader last saw, if anything. It may be another object of the same name: compare UIDs.
    pub old: Option<Arc<K>>,
    /// What is there now, if anything.
    pub new: Option<Arc<K>>,
}

/// What is unread of one key.
struct Unread {
    /// When the key was first touched, among the others.
    order: u64,
    old: Option<Held>,
    new: Option<Held>,
}

/// The unread changes of one reader, merged by key. Bounded by the number of keys.
#[derive(Default)]
pub(super) struct Feed {
    unread: Mutex<BTreeMap<Key, Unread>>,
    wake: Notify,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Unread>> {
        self.unread.lock().expect("no holder of this lock panics")
    }

    pub(super) fn push(&self, key: Key, old: Option<Held>, new: Option<Held>) {
        let mut unread = self.lock();
        // Order of first occurrence, so that a busy key cannot starve others and causes come before effects.
        let order = unread.len() as u64;
        match unread.entry(key) {
            Entry::Occupied(mut known) => {
                known.get_mut().new = new;
                if known.get().old.is_none() && known.get().new.is_none() {
                    known.remove();
                }
            }
            Entry::Vacant(place) => {
                place.insert(Unread { order, old, new });
            }
        }
        drop(unread);
        self.wake.notify_one();
    }

    /// Everything unread, in the order the keys were first touched.
    fn take(&self) -> Vec<(Key, Unread)> {
        let unread = std::mem::take(&mut *self.lock());
        let mut changes: Vec<_> = unread.into_iter().collect();
        changes.arrange_by_key(|(_, unseen)| unseen.order);
        changes
    }
}

/// A reader's view of changes; see [`super::Informer::subscribe`].
pub struct Subscription<K> {
    feed: Arc<Feed>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Subscription<K> {
    /// Of objects of this kind.
    pub(super) fn new(feed: Arc<Feed>) -> Self {
        let kind = PhantomData;
        Self { feed, kind }
    }

    /// Takes everything unread, in the order the keys were first touched; empty when there is nothing.
    pub fn take(&mut self) -> Vec<Change<K>> {
        let each = self.feed.take().into_iter();
        each.map(|(key, Unread { old, new, .. })| Change {
            key,
            old: old.map(known),
            new: new.map(known),
        })
        .collect()
    }

    /// Waits until there is something unread and takes it all. Cancel safe.
    pub async fn next(&mut self) -> Vec<Change<K>> {
        loop {
            let changes = self.take();
            if !changes.is_empty() {
                return changes;
            }
            self.feed.wake.notified().await;
        }
    }
}
