//! What a reader of an informer has not seen yet.

use super::Key;
use crate::ordered::Arrange;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
struct Unread<K> {
    /// When the key was first touched, among the others.
    order: u64,
    old: Option<Arc<K>>,
    new: Option<Arc<K>>,
}

/// The unread changes of one reader, merged by key. Bounded by the number of keys.
pub(super) struct Feed<K> {
    unread: Mutex<BTreeMap<Key, Unread<K>>>,
    wake: Notify,
}

impl<K> Default for Feed<K> {
    fn default() -> Self {
        Self {
            unread: Mutex::new(BTreeMap::new()),
            wake: Notify::new(),
        }
    }
}

impl<K> Feed<K> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Unread<K>>> {
        self.unread.lock().expect("no holder of this lock panics")
    }

    pub(super) fn push(&self, key: Key, old: Option<Arc<K>>, new: Option<Arc<K>>) {
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
}

/// A reader's view of changes; see [`super::Informer::subscribe`].
pub struct Subscription<K> {
    feed: Arc<Feed<K>>,
}

impl<K> Subscription<K> {
    pub(super) fn new(feed: Arc<Feed<K>>) -> Self {
        Self { feed }
    }

    /// Takes everything unread, in the order the keys were first touched; empty when there is nothing.
    pub fn take(&mut self) -> Vec<Change<K>> {
        let unread = std::mem::take(&mut *self.feed.lock());
        let mut changes: Vec<_> = unread.into_iter().collect();
        changes.arrange_by_key(|(_, unseen)| unseen.order);
        let each = changes.into_iter();
        each.map(|(key, Unread { old, new, .. })| Change { key, old, new })
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
