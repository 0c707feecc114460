//! What a reader of an informer has not seen yet.

use super::store::{Held, known};
use super::{Key, Object};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// So many unread changes are looked through one by one: to arrange them would take longer.
const FEW: usize = 8;

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

/// What is unread of one key: [`Change`] before anybody knows of what kind.
#[derive(Clone)]
struct Unseen {
    key: Key,
    old: Option<Held>,
    new: Option<Held>,
}

impl Unseen {
    /// Whether the object has come and gone: there is nothing to tell.
    fn is_void(&self) -> bool {
        self.old.is_none() && self.new.is_none()
    }
}

/// Where changes stand, by the hashes of their keys. Made only where more than a few have to be looked through.
#[derive(Default)]
struct Places {
    hasher: RandomState,
    /// Keys of one hash have numbers that follow one another.
    by_hash: HashMap<u64, usize>,
    /// How many of the changes are in it, from the first on.
    known: usize,
}

impl Places {
    /// The number of the key, and its place among those that are known.
    fn look<'k>(&self, key: &Key, key_at: &dyn Fn(usize) -> &'k Key) -> (u64, Option<usize>) {
        let mut number = self.hasher.hash_one(key);
        while let Some(&at) = self.by_hash.get(&number) {
            if key_at(at) == key {
                return (number, Some(at));
            }
            number = number.wrapping_add(1);
        }
        (number, None)
    }

    /// The last place of the key among all `count` changes.
    fn find<'k>(&mut self, key: &Key, count: usize, key_at: &dyn Fn(usize) -> &'k Key) -> Option<usize> {
        while self.known < count {
            let (number, _) = self.look(key_at(self.known), key_at);
            self.by_hash.insert(number, self.known);
            self.known += 1;
        }
        self.look(key, key_at).1
    }
}

/// In the order in which keys were first touched, so that a busy key cannot starve others and causes come before effects.
#[derive(Default)]
struct Unread {
    changes: Vec<Unseen>,
    places: Places,
    /// Whether an object of these is not there any more.
    has_gone: bool,
    /// How many say nothing.
    void: usize,
}

impl Unread {
    /// Where the change of the key stands, if there is one that says something.
    fn find(&mut self, key: &Key) -> Option<usize> {
        let (changes, places) = (&self.changes, &mut self.places);
        let found = match changes.len() {
            0..=FEW => changes.iter().rposition(|change| change.key == *key),
            count => places.find(key, count, &|at| &changes[at].key),
        };
        found.filter(|at| !self.changes[*at].is_void())
    }

    fn push(&mut self, change: Unseen) {
        self.has_gone |= change.new.is_none();
        // Of what was not there nothing is unread, unless it has gone: a first list needs no looking.
        let known = match change.old.is_none() && !self.has_gone {
            true => None,
            false => self.find(&change.key),
        };
        let Some(known) = known.and_then(|at| self.changes.get_mut(at)) else {
            return self.changes.push(change);
        };
        known.new = change.new;
        if known.is_void() {
            self.void += 1;
            if self.void > FEW && 2 * self.void > self.changes.len() {
                self.changes.retain(|change| !change.is_void());
                (self.places, self.void) = (Places::default(), 0);
            }
        }
    }

    fn told(mut self) -> Vec<Unseen> {
        if self.void > 0 {
            self.changes.retain(|change| !change.is_void());
        }
        self.changes
    }
}

/// The unread changes of one reader, merged by key. Bounded by the number of keys.
#[derive(Default)]
pub(super) struct Feed {
    unread: Mutex<Unread>,
    wake: Notify,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().expect("no holder of this lock panics")
    }

    /// A change of what all changes before have left.
    pub(super) fn push(&self, key: Key, old: Option<Held>, new: Option<Held>) {
        self.lock().push(Unseen { key, old, new });
        self.wake.notify_one();
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
        let each = std::mem::take(&mut *self.feed.lock()).told().into_iter();
        each.map(|Unseen { key, old, new }| Change {
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The plain way: one change a key, which is looked for among all.
    #[derive(Default)]
    struct Plain(Vec<Unseen>);

    impl Plain {
        fn push(&mut self, change: Unseen) {
            let Some(at) = self.0.iter().position(|known| known.key == change.key) else {
                return self.0.push(change);
            };
            self.0[at].new = change.new;
            if self.0[at].is_void() {
                self.0.remove(at);
            }
        }
    }

    fn object(version: u32) -> Held {
        let metadata = ObjectMeta {
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        Arc::new(ConfigMap {
            metadata,
            ..ConfigMap::default()
        })
    }

    fn seen(changes: Vec<Unseen>) -> Vec<(String, Option<String>, Option<String>)> {
        let version = |object: Option<Held>| object.and_then(|object| object.metadata().resource_version.clone());
        let each = changes.into_iter();
        each.map(|change| (change.key.name, version(change.old), version(change.new)))
            .collect()
    }

    proptest! {
        /// Objects come, change and go; now and then they are read.
        #[test]
        fn what_is_unread_is_merged_as_the_plain_way_does(
            steps in proptest::collection::vec((0_usize..40, 0_u8..12), 0..400),
        ) {
            let (mut feed, mut plain) = (Unread::default(), Plain::default());
            let mut objects: BTreeMap<usize, Held> = BTreeMap::new();
            for (version, (at, what)) in (0_u32..).zip(steps) {
                if what == 0 && version % 3 == 0 {
                    prop_assert_eq!(seen(std::mem::take(&mut feed).told()), seen(std::mem::take(&mut plain.0)));
                    continue;
                }
                let new = (what > 4).then(|| object(version));
                let old = match &new {
                    Some(new) => objects.insert(at, Arc::clone(new)),
                    None => objects.remove(&at),
                };
                if old.is_some() || new.is_some() {
                    let change = Unseen { key: Key::new("n", at.to_string()), old, new };
                    feed.push(change.clone());
                    plain.push(change);
                }
            }
            prop_assert_eq!(seen(feed.told()), seen(plain.0));
        }
    }

    /// As long as nobody reads: names that come and go take no room for ever.
    #[test]
    fn what_has_come_and_gone_is_let_go_of() {
        let mut feed = Unread::default();
        for n in 0..1000 {
            let (key, there) = (Key::new("n", n.to_string()), Some(object(n)));
            let (new, gone) = (there.clone(), None);
            feed.push(Unseen {
                key: key.clone(),
                old: None,
                new,
            });
            feed.push(Unseen {
                key,
                old: there,
                new: gone,
            });
            assert!(feed.changes.len() <= 2 * (FEW + 1) && feed.places.by_hash.len() <= 2 * (FEW + 1));
        }
        assert!(feed.told().is_empty());
    }
}
