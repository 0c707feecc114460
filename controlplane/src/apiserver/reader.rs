//! Reads for the parts around storage (authentication, authorization, admission, controllers in process): straight from the
//! window, without a request. Never writes.

use super::served::{Resource, Served};
use crate::resource::Kind;
use crate::store::value::TypeMeta;
use crate::store::window::{Expected, ResourceWindow, Snapshot, Stored};
use crate::store::{Revision, StoreError};
use imbl::OrdMap;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;

/// Objects as they are in memory. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    served: watch::Receiver<Arc<Served>>,
}

impl Reader {
    /// A reader of what is served at the moment it is asked.
    pub(super) fn of(served: watch::Receiver<Arc<Served>>) -> Self {
        Self { served }
    }

    /// A reader of the built-in kinds, without a server.
    #[cfg(test)]
    pub(super) fn new(window: &crate::store::window::Window) -> Self {
        let registry = crate::resource::Registry::built_in();
        super::served::Publisher::new(Arc::clone(registry), window.clone()).reader()
    }

    /// The window of a resource.
    pub(crate) fn window_of(&self, group: &str, plural: &str) -> Option<Arc<ResourceWindow>> {
        let found = self.resource(group, plural)?;
        Some(Arc::clone(&found.window))
    }

    fn resource(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.served.borrow().resource(group, plural).map(Arc::clone)
    }

    fn snapshot(&self, group: &str, resource: &str) -> Option<(Arc<Resource>, Snapshot)> {
        let found = self.resource(group, resource)?;
        let snapshot = found.window.cached();
        Some((found, snapshot))
    }

    /// One object (with `metadata.resourceVersion`, without kind and apiVersion); `namespace` is empty at cluster scope.
    /// As of the newest revision seen, which may be a moment behind the store: see [`Reader::refresh`].
    pub fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let (found, snapshot) = self.snapshot(group, resource)?;
        let key = key(&found.prefix, namespace, name);
        snapshot.objects.get(key.as_str()).map(|stored| stored.value())
    }

    /// All objects of a resource in key order, or those of one namespace if it is not empty.
    pub fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some((found, snapshot)) = self.snapshot(group, resource) else {
            return Vec::new();
        };
        let mut prefix = found.prefix.clone();
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
    pub(crate) fn objects(&self, group: &str, resource: &str) -> Option<OrdMap<Arc<str>, Arc<Stored>>> {
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
        let any = self.served.borrow().any_resource().map(Arc::clone);
        match any {
            Some(any) => any.window.latest().await.map(|_| ()),
            None => Ok(()),
        }
    }
}

/// The storage prefix of a stored kind, such as `/registry/pods/`.
pub(super) fn prefix(kind: &Kind) -> String {
    format!("/registry/{}/", kind.storage_prefix)
}

/// What stored objects of a kind say they are: which form they are stored in.
pub(super) fn stored_as(kind: &Arc<Kind>) -> TypeMeta<'_> {
    let storage = kind.storage();
    TypeMeta::new(&storage.api_version, &storage.kind)
}

/// What belongs under the storage prefix of a kind. What is built in is stored in one version for ever; a definition may have had another
/// storage version when an object was written.
pub(super) fn expected(kind: &Arc<Kind>) -> Expected {
    let of = stored_as(kind);
    match kind.structural {
        None => Expected::version(&of.api_version, &of.kind),
        Some(_) => Expected::any_version(&of.api_version, &of.kind),
    }
}

/// The storage key below `prefix`; `namespace` is empty at cluster scope.
pub(super) fn key(prefix: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("{prefix}{name}")
    } else {
        format!("{prefix}{namespace}/{name}")
    }
}
