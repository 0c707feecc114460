//! The objects of one informer: ordered by key, indexed by controlling owner and by place, with the readers to tell of changes.
//!
//! Of what kind they are only the informer knows, and its readers: what a store does is there once, and not for each kind.

use super::subscription::Feed;
use super::{Key, Object};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// The UID that stands for no controlling owner.
const NOBODY: &str = "";

/// An object of whatever kind.
pub(super) trait Kept: Any + Send + Sync {
    /// Its metadata.
    fn metadata(&self) -> &ObjectMeta;
}

impl<K: Object> Kept for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// A kept object.
pub(super) type Held = Arc<dyn Kept>;

/// The object, to who knows its kind.
pub(super) fn known<K: Object>(object: Held) -> Arc<K> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().expect("a store holds objects of one kind")
}

/// Names an object's place; empty for none.
type PlaceOf = Box<dyn for<'a> Fn(&'a dyn Kept) -> &'a str + Send + Sync>;

/// Keys by what their objects have in common: the same that the objects have, not copies of them.
#[derive(Default)]
struct Index(BTreeMap<String, BTreeSet<Arc<Key>>>);

impl Index {
    fn insert(&mut self, value: &str, key: Arc<Key>) {
        match self.0.get_mut(value) {
            Some(keys) => drop(keys.insert(key)),
            None => drop(self.0.insert(value.to_owned(), BTreeSet::from([key]))),
        }
    }

    fn remove(&mut self, value: &str, key: &Key) {
        if let Some(keys) = self.0.get_mut(value) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(value);
            }
        }
    }
}

struct Tables {
    objects: BTreeMap<Arc<Key>, Held>,
    /// By controlling owner's UID; objects without one are under [`NOBODY`].
    controlled: Index,
    /// By the place `place_of` names; objects without one are in none.
    placed: Index,
    place_of: PlaceOf,
    feeds: Vec<Weak<Feed>>,
}

/// The store. Its lock is never held across an await.
pub(super) struct Store {
    tables: RwLock<Tables>,
}

impl Default for Store {
    fn default() -> Self {
        Self::with(Box::new(|_| ""))
    }
}

fn controller_uid(object: &dyn Kept) -> &str {
    let owners = object.metadata().owner_references.iter().flatten();
    let mut controllers = owners.filter(|o| o.controller == Some(true));
    controllers.next().map_or(NOBODY, |o| o.uid.as_str())
}

impl Tables {
    fn unindex(&mut self, key: &Key, object: &dyn Kept) {
        self.controlled.remove(controller_uid(object), key);
        self.placed.remove((self.place_of)(object), key);
    }

    fn index(&mut self, key: &Arc<Key>, object: &dyn Kept) {
        self.controlled.insert(controller_uid(object), Arc::clone(key));
        let place = (self.place_of)(object);
        if !place.is_empty() {
            self.placed.insert(place, Arc::clone(key));
        }
    }

    fn put(&mut self, object: Held) {
        let key = Key::named(object.metadata());
        let key = match self.objects.get_key_value(&key) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(key),
        };
        let old = self.objects.insert(Arc::clone(&key), object.clone());
        if let Some(old) = &old {
            let (before, now) = (old.metadata(), object.metadata());
            if before.resource_version == now.resource_version && before.uid == now.uid {
                return;
            }
            self.unindex(&key, &**old);
        }
        self.index(&key, &*object);
        self.tell(&key, old, Some(object));
    }

    fn remove(&mut self, key: &Key) {
        if let Some(old) = self.objects.remove(key) {
            self.unindex(key, &*old);
            self.tell(key, Some(old), None);
        }
    }

    fn tell(&mut self, key: &Key, old: Option<Held>, new: Option<Held>) {
        self.feeds.retain(|feed| match feed.upgrade() {
            Some(feed) => {
                feed.push(key.clone(), old.clone(), new.clone());
                true
            }
            None => false,
        });
    }

    /// Of a controlling owner's objects, or of nobody's, those of one namespace.
    fn pick(&self, namespace: &str, uid: &str) -> Vec<Held> {
        let Some(keys) = self.controlled.0.get(uid) else {
            return Vec::new();
        };
        let range = keys.range::<Key, _>((Bound::Included(Key::new(namespace, "")), Bound::Unbounded));
        let keys = range.take_while(|k| k.namespace == namespace);
        keys.filter_map(|k| self.objects.get(k).cloned()).collect()
    }

    /// Who has no UID owns nothing.
    fn pick_owned(&self, namespace: &str, uid: &str) -> Vec<Held> {
        match uid {
            NOBODY => Vec::new(),
            uid => self.pick(namespace, uid),
        }
    }
}

impl Store {
    /// An empty store that finds objects by the place `place_of` names, too.
    pub(super) fn placed_by<K: Object>(place_of: fn(&K) -> &str) -> Self {
        Self::with(Box::new(move |object| {
            let object: &dyn Any = object;
            place_of(object.downcast_ref().expect("a store holds objects of one kind"))
        }))
    }

    fn with(place_of: PlaceOf) -> Self {
        Self {
            tables: RwLock::new(Tables {
                objects: BTreeMap::new(),
                controlled: Index::default(),
                placed: Index::default(),
                place_of,
                feeds: Vec::new(),
            }),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().expect("no holder of this lock panics")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().expect("no holder of this lock panics")
    }

    pub(super) fn put(&self, object: Held) {
        self.write().put(object);
    }

    pub(super) fn remove(&self, key: &Key) {
        self.write().remove(key);
    }

    /// Makes the store hold exactly `objects`.
    pub(super) fn replace(&self, objects: Vec<Held>) {
        let mut tables = self.write();
        let kept: BTreeSet<Key> = objects.iter().map(|object| Key::named(object.metadata())).collect();
        let is_gone = |key: &&Arc<Key>| !kept.contains(&***key);
        let gone: Vec<Arc<Key>> = tables.objects.keys().filter(is_gone).cloned().collect();
        for key in gone {
            tables.remove(&key);
        }
        for object in objects {
            tables.put(object);
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Held> {
        self.read().objects.get(key).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.read().objects.len()
    }

    pub(super) fn list(&self) -> Vec<Held> {
        self.read().objects.values().cloned().collect()
    }

    pub(super) fn list_namespace(&self, namespace: &str) -> Vec<Held> {
        let from = Key::new(namespace, "");
        let tables = self.read();
        let range = tables
            .objects
            .range::<Key, _>((Bound::Included(from), Bound::Unbounded));
        range
            .take_while(|(k, _)| k.namespace == namespace)
            .map(|(_, o)| o.clone())
            .collect()
    }

    pub(super) fn at(&self, place: &str) -> Vec<Held> {
        let tables = self.read();
        let keys = tables.placed.0.get(place).into_iter().flatten();
        keys.filter_map(|key| tables.objects.get(key).cloned()).collect()
    }

    pub(super) fn controlled_by(&self, namespace: &str, uid: &str) -> Vec<Held> {
        self.read().pick_owned(namespace, uid)
    }

    pub(super) fn claimable(&self, namespace: &str, uid: &str) -> (Vec<Held>, Vec<Held>) {
        let tables = self.read();
        (tables.pick_owned(namespace, uid), tables.pick(namespace, NOBODY))
    }

    pub(super) fn subscribe(&self) -> Arc<Feed> {
        let mut tables = self.write();
        let feed = Arc::new(Feed::default());
        for (key, object) in &tables.objects {
            feed.push(Key::clone(key), None, Some(object.clone()));
        }
        tables.feeds.push(Arc::downgrade(&feed));
        feed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    #[test]
    fn who_knows_an_owners_uid_owns_nothing_of_it_elsewhere() {
        let store = Store::default();
        let of =
            |owner: &str| json!([{"apiVersion": "v1", "kind": "K", "name": "o", "uid": owner, "controller": true}]);
        let all = [
            ("a", "one", of("u")),
            ("b", "one", of("u")),
            ("b", "two", of("u")),
            ("b", "other", of("v")),
            ("b", "nobodys", json!([])),
            ("c", "one", of("u")),
            ("c", "nobodys", json!([])),
        ];
        for (namespace, name, owners) in all {
            let meta = json!({"namespace": namespace, "name": name, "uid": "1", "ownerReferences": owners});
            store.put(Arc::new(
                serde_json::from_value::<ConfigMap>(json!({ "metadata": meta })).unwrap(),
            ));
        }
        let keys =
            |found: Vec<Held>| -> Vec<Key> { found.iter().map(|object| Key::named(object.metadata())).collect() };
        let owned = [Key::new("b", "one"), Key::new("b", "two")];
        assert_eq!(keys(store.controlled_by("b", "u")), owned);
        assert_eq!(keys(store.controlled_by("d", "u")), []);
        assert_eq!(keys(store.controlled_by("b", "")), []);
        for (uid, own) in [("u", &owned[..]), ("", &[])] {
            let (controlled, orphans) = store.claimable("b", uid);
            assert_eq!(keys(controlled), own, "{uid}");
            assert_eq!(keys(orphans), [Key::new("b", "nobodys")], "{uid}");
        }
    }

    #[test]
    fn what_moves_is_found_where_it_is() {
        let store = Store::placed_by(|map: &ConfigMap| map.metadata.generate_name.as_deref().unwrap_or_default());
        let revision = std::cell::Cell::new(0);
        let put = |name: &str, place: &str| {
            revision.set(revision.get() + 1);
            let meta = json!({"namespace": "n", "name": name, "generateName": place, "resourceVersion": revision.get().to_string()});
            store.put(Arc::new(
                serde_json::from_value::<ConfigMap>(json!({ "metadata": meta })).unwrap(),
            ));
        };
        let found = || -> Vec<Vec<String>> {
            let names = |place| {
                store
                    .at(place)
                    .iter()
                    .map(|map| Key::named(map.metadata()).name)
                    .collect()
            };
            ["", "here", "there"].map(names).to_vec()
        };
        put("one", "");
        put("two", "here");
        put("three", "here");
        assert_eq!(found(), [vec![], vec!["three", "two"], vec![]]);
        put("one", "there");
        put("two", "there");
        assert_eq!(found(), [vec![], vec!["three"], vec!["one", "two"]]);
        store.remove(&Key::new("n", "three"));
        store.remove(&Key::new("n", "one"));
        assert_eq!(found(), [vec![], vec![], vec!["two"]]);
        store.replace(Vec::new());
        assert_eq!(found(), [const { Vec::<&str>::new() }; 3]);
        let tables = store.read();
        assert!(tables.placed.0.is_empty() && tables.controlled.0.is_empty());
    }
}
