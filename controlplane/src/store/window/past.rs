//! The changes of before this process, where the store still knows what they took the place of. Pure.
//!
//! Owns them until a resource is claimed whose past they are. What does not lead exactly to the records there are is not believed.

use super::Stored;
use super::expected::Expected;
use super::history::History;
use crate::store::{Change, Record, Replaced, Revision};
use imbl::OrdMap;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;

/// What changes under prefixes that nobody has claimed may hold; beyond it they are forgotten.
const UNCLAIMED_BYTES: usize = 32 << 20;
const EACH_BYTES: usize = 200;

type Objects = OrdMap<Arc<str>, Arc<Stored>>;

/// One change of before.
struct Earlier {
    revision: Revision,
    key: Arc<str>,
    old: Option<Arc<Stored>>,
}

/// See the module.
#[derive(Default)]
pub(super) struct UnclaimedPast {
    /// What was at this revision can be told; `None` if nothing can.
    base: Option<Revision>,
    changes: VecDeque<Earlier>,
    bytes: usize,
}

impl UnclaimedPast {
    /// What the store remembers of how the records of `revision` came to be.
    pub(super) fn of(remembered: Vec<Replaced>, revision: Revision, records: &[Record]) -> Self {
        let mut past = Self {
            base: Some(revision),
            ..Self::default()
        };
        if !leads_to(&remembered, revision, records) {
            return past;
        }
        past.base = remembered.first().map(|first| first.revision - 1).or(past.base);
        for change in remembered {
            let old = change.old.map(|record| Arc::new(Stored::from(record)));
            past.push(change.revision, change.key, old);
        }
        past
    }

    /// The oldest revision that can be told of; `None` if only the present can.
    pub(super) fn base(&self) -> Option<Revision> {
        self.base
    }

    fn push(&mut self, revision: Revision, key: Arc<str>, old: Option<Arc<Stored>>) {
        self.bytes += EACH_BYTES + old.as_ref().map_or(0, |old| old.size());
        self.changes.push_back(Earlier { revision, key, old });
    }

    /// A change under a prefix that nobody has claimed.
    pub(super) fn note(&mut self, revision: Revision, key: Arc<str>, old: Option<Arc<Stored>>) {
        if self.base.is_none() {
            return;
        }
        self.push(revision, key, old);
        if self.bytes > UNCLAIMED_BYTES {
            self.forget();
        }
    }

    /// From now on only the present of what is claimed can be told.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The history of the objects under `prefix`, which are these at `revision`.
    pub(super) fn claim(
        &mut self,
        prefix: &str,
        objects: Objects,
        revision: Revision,
        expected: Option<Expected>,
    ) -> History {
        let Some(base) = self.base else {
            return History::new(objects, revision, expected);
        };
        let (own, others) = std::mem::take(&mut self.changes)
            .into_iter()
            .partition(|change| change.key.starts_with(prefix));
        let own: VecDeque<Earlier> = own;
        self.changes = others;
        self.bytes = self
            .changes
            .iter()
            .map(|change| EACH_BYTES + change.old.as_ref().map_or(0, |old| old.size()))
            .sum();
        // Back to what was at the base, and from there on as it happened.
        let mut objects = objects;
        let mut values: Vec<_> = own
            .iter()
            .rev()
            .map(|change| {
                let new = match &change.old {
                    Some(old) => objects.insert(Arc::clone(&change.key), Arc::clone(old)),
                    None => objects.remove(&change.key),
                };
                new.map(|new| new.raw())
            })
            .collect();
        values.reverse();
        let mut history = History::new(objects, base, expected);
        let now = Instant::now();
        for (change, value) in own.into_iter().zip(values) {
            let created = value.is_some() && change.old.is_none();
            let (revision, key) = (change.revision, change.key);
            history.replay(
                Change {
                    revision,
                    key,
                    value,
                    created,
                },
                now,
            );
        }
        history
    }
}

/// Whether the changes, and nothing else, lead to these records: each write left what the next one of its key found, and the last
/// ones what is there.
fn leads_to(remembered: &[Replaced], revision: Revision, records: &[Record]) -> bool {
    if remembered.last().is_none_or(|last| last.revision != revision) {
        return false;
    }
    let base = remembered.first().map_or(revision, |first| first.revision - 1);
    let mut found: HashMap<&str, Option<Revision>> = HashMap::new();
    for change in remembered {
        let before = change.old.as_ref().map(|old| old.modified);
        let follows = match found.get(&*change.key) {
            Some(left) => *left == before,
            None => before.is_none_or(|before| before <= base),
        };
        if !follows {
            return false;
        }
        let left = (!change.is_deletion).then_some(change.revision);
        found.insert(&change.key, left);
    }
    let is_deleted = |record: &Record| found.get(&*record.key) == Some(&None);
    if records.iter().any(is_deleted) {
        return false;
    }
    let newer = records.iter().filter(|record| record.modified > base);
    let mut count = 0;
    for record in newer {
        if found.get(&*record.key) != Some(&Some(record.modified)) {
            return false;
        }
        count += 1;
    }
    count == found.values().flatten().count()
}

#[cfg(test)]
mod tests;
