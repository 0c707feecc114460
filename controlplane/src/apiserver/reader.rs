//! Reads for the parts around storage (authentication, authorization, admission, controllers in process): straight from the
//! window, without a request. Never writes.

use crate::resource::{Kind, registry};
use crate::store::window::{ResourceWindow, Snapshot, Stored, Window};
use crate::store::{Revision, StoreError};
use imbl::OrdMap;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects as they are in memory. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    /// By group, then by plural.
    groups: Arc<BTreeMap<&'static str, BTreeMap<&'static str, Resource>>>,
}

struct Resource {
    /// `/registry/<prefix>/`.
    prefix: String,
    window: Arc<ResourceWindow>,
}

impl Reader {
    /// A reader of every stored kind.
    pub(super) fn new(window: &Window) -> Self {
        let mut groups: BTreeMap<&str, BTreeMap<&str, Resource>> = BTreeMap::new();
        for kind in registry().kinds().iter().filter(|kind| kind.is_stored()) {
            let prefix = prefix(kind);
            let window = window.resource(&prefix);
            let group = groups.entry(kind.group).or_default();
            group.insert(kind.plural, Resource { prefix, window });
        }
        Self {
            groups: Arc::new(groups),
        }
    }

    /// The window of a stored kind.
    pub(super) fn window(&self, kind: &Kind) -> Option<&Arc<ResourceWindow>> {
        self.resource(kind.group, kind.plural).map(|found| &found.window)
    }

    fn resource(&self, group: &str, plural: &str) -> Option<&Resource> {
        self.groups.get(group)?.get(plural)
    }

    fn snapshot(&self, group: &str, resource: &str) -> Option<(&str, Snapshot)> {
        let found = self.resource(group, resource)?;
        Some((&found.prefix, found.window.cached()))
    }

    /// One object (with `metadata.resourceVersion`, without kind and apiVersion); `namespace` is empty at cluster scope.
    /// As of the newest revision seen, which may be a moment behind the store: see [`Reader::refresh`].
    pub fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let (prefix, snapshot) = self.snapshot(group, resource)?;
        let key = key(prefix, namespace, name);
        snapshot.objects.get(key.as_str()).map(|stored| stored.value())
    }

    /// All objects of a resource in key order, or those of one namespace if it is not empty.
    pub fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some((prefix, snapshot)) = self.snapshot(group, resource) else {
            return Vec::new();
        };
        let mut prefix = prefix.to_owned();
        if !namespace.is_empty() {
            prefix.push_str(namespace);
            prefix.push('/');
        }
        let found = snapshot
            .objects
            .range::<_, str>((std::ops::Bound::Included(prefix.as_str()), std::ops::Bound::Unbounded));
        found
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(_, stored)| stored.value())
            .collect()
    }

    /// How many objects of a resource there are.
    pub fn count(&self, group: &str, resource: &str) -> usize {
        self.snapshot(group, resource)
            .map_or(0, |(_, snapshot)| snapshot.objects.len())
    }

    /// All objects of a resource by storage key, as one snapshot; differences between two snapshots are cheap to find.
    pub(super) fn objects(&self, group: &str, resource: &str) -> Option<OrdMap<Arc<str>, Arc<Stored>>> {
        self.snapshot(group, resource).map(|(_, snapshot)| snapshot.objects)
    }

    /// The revision of the resource's last change seen; moves only when the resource changes, so that an index built from
    /// [`Reader::list`] knows when it is out of date.
    pub fn changed(&self, group: &str, resource: &str) -> Revision {
        let found = self.resource(group, resource);
        found.map_or(0, |found| found.window.last_change())
    }

    /// Waits until every write acknowledged before the call can be read here.
    ///
    /// # Errors
    /// If the store cannot tell its revision, or is closed.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        match self.groups.values().flat_map(BTreeMap::values).next() {
            Some(any) => any.window.latest().await.map(|_| ()),
            None => Ok(()),
        }
    }
}

/// The storage prefix of a stored kind, such as `/registry/pods/`.
pub(super) fn prefix(kind: &Kind) -> String {
    format!("/registry/{}/", kind.storage_prefix)
}

/// The storage key below `prefix`; `namespace` is empty at cluster scope.
pub(super) fn key(prefix: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("{prefix}{name}")
    } else {
        format!("{prefix}{namespace}/{name}")
    }
}
