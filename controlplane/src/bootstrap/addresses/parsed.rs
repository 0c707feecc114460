//! What was read of stored objects, kept and brought up to date by the differences of snapshots: an object is read once for each
//! of its revisions, however many others there are.
//!
//! Owns what was read, and the snapshot it was read of. Never asks for a snapshot itself.

use crate::store::window::Stored;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The objects of a resource, by their storage keys.
pub(super) type Objects = OrdMap<Arc<str>, Arc<Stored>>;

/// What `read` makes of each object of a resource. `T` is shared with who works on it.
pub(super) struct Parsed<T> {
    seen: Objects,
    read: fn(&Stored) -> Option<T>,
    all: BTreeMap<Arc<str>, Arc<T>>,
}

impl<T> Parsed<T> {
    /// Nothing read yet. What `read` makes nothing of is left out.
    pub(super) fn new(read: fn(&Stored) -> Option<T>) -> Self {
        Self {
            seen: Objects::new(),
            read,
            all: BTreeMap::new(),
        }
    }

    /// Takes in what differs between `now` and what was seen last, and gives all there is, by key.
    pub(super) fn follow(&mut self, now: Objects) -> Vec<Arc<T>> {
        if !self.seen.ptr_eq(&now) {
            for item in self.seen.diff(&now) {
                let (key, read) = match item {
                    DiffItem::Add(key, stored) | DiffItem::Update { new: (key, stored), .. } => {
                        (key, (self.read)(stored))
                    }
                    DiffItem::Remove(key, _) => (key, None),
                };
                match read {
                    Some(read) => self.all.insert(Arc::clone(key), Arc::new(read)),
                    None => self.all.remove(key),
                };
            }
            self.seen = now;
        }
        self.all.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
