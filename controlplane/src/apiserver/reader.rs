//! Reads for the parts around storage (authentication, authorization, admission, controllers in process): straight from the
//! window, without a request. Never writes.

use crate::resource::{Kind, registry};
use crate::store::window::{ResourceWindow, Snapshot, Window};
use crate::store::{Revision, StoreError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects as they are in memory. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    resources: Arc<BTreeMap<(&'static str, &'static str), Arc<ResourceWindow>>>,
}

impl Reader {
    /// A reader of every stored kind.
    pub(super) fn new(window: &Window) -> Self {
        let stored = registry().kinds().iter().filter(|kind| kind.is_stored());
        let resources = stored
            .map(|kind| ((kind.group, kind.plural), window.resource(&prefix(kind))))
            .collect();
        Self {
            resources: Arc::new(resources),
        }
    }

    /// The window of a stored kind.
    pub(super) fn window(&self, kind: &Kind) -> Option<&Arc<ResourceWindow>> {
        self.resources.get(&(kind.group, kind.plural))
    }

    fn snapshot(&self, group: &str, resource: &str) -> Option<(String, Snapshot)> {
        let ((group, plural), window) = self
            .resources
            .iter()
            .find(|((own, plural), _)| *own == group && *plural == resource)?;
        let kind = registry()
            .kinds()
            .iter()
            .find(|kind| kind.group == *group && kind.plural == *plural)?;
        Some((prefix(kind), window.cached()))
    }

    /// One object (with `metadata.resourceVersion`, without kind and apiVersion); `namespace` is empty at cluster scope.
    /// As of the newest revision seen, which may be a moment behind the store: see [`Reader::refresh`].
    pub fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let (prefix, snapshot) = self.snapshot(group, resource)?;
        let key = key(&prefix, namespace, name);
        snapshot
            .objects
            .get(key.as_str())
            .map(|stored| Arc::clone(stored.value()))
    }

    /// All objects of a resource in key order, or those of one namespace if it is not empty.
    pub fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some((mut prefix, snapshot)) = self.snapshot(group, resource) else {
            return Vec::new();
        };
        if !namespace.is_empty() {
            prefix.push_str(namespace);
            prefix.push('/');
        }
        let found = snapshot
            .objects
            .range::<_, str>((std::ops::Bound::Included(prefix.as_str()), std::ops::Bound::Unbounded));
        found
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(_, stored)| Arc::clone(stored.value()))
            .collect()
    }

    /// The revision of the resource's last change seen; moves only when the resource changes, so that an index built from
    /// [`Reader::list`] knows when it is out of date.
    pub fn changed(&self, group: &str, resource: &str) -> Revision {
        let found = self
            .resources
            .iter()
            .find(|((own, plural), _)| *own == group && *plural == resource);
        found.map_or(0, |(_, window)| window.last_change())
    }

    /// Waits until every write acknowledged before the call can be read here.
    ///
    /// # Errors
    /// If the store cannot tell its revision, or is closed.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        match self.resources.values().next() {
            Some(any) => any.latest().await.map(|_| ()),
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
