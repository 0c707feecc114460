//! What a reader of an informer has not seen yet.

use super::Key;
use crate::ordered::Arrange;
use std::collections::BTreeMap;
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

/// The unread changes of one reader, merged by key. Bounded by the number of keys.
pub(super) struct Feed<K> {
    unread: Mutex<BTreeMap<Key, (u64, Change<K>)>>,
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
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, (u64, Change<K>)>> {
        self.unread.lock().expect("no holder of this lock panics")
    }

    pub(super) fn push(&self, key: Key, old: Option<Arc<K>>, new: Option<Arc<K>>) {
        let mut unread = self.lock();
        // Order of first occurrence, so that a busy key cannot starve others and causes come before effects.
        let order = unread.len() as u64;
        match unread.get_mut(&key) {
            Some((_, change)) => {
                change.new = new;
                if change.old.is_none() && change.new.is_none() {
                    unread.remove(&key);
                }
            }
            None => {
                unread.insert(key.clone(), (order, Change { key, old, new }));
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
        let mut changes: Vec<_> = unread.into_values().collect();
        changes.arrange_by_key(|(order, _)| *order);
        changes.into_iter().map(|(_, change)| change).collect()
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
