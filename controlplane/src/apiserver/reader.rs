//! Live state for those who judge requests (authentication, authorization, admission): reads of the window, never of the disk.

use crate::resource::{Kind, registry};
use crate::store::StoreError;
use crate::store::window::{ResourceWindow, Stored, Window};
use imbl::OrdMap;
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// Root of all storage keys (control-plane contract §10).
pub const ROOT: &str = "/registry/";

/// Objects of one resource by full key.
pub type Objects = OrdMap<Arc<str>, Arc<Stored>>;

/// Reads stored objects by group and plural, whatever version they are served in. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    window: Window,
}

/// The stored kind of a group and plural.
pub fn stored_kind(group: &str, resource: &str) -> Option<&'static Kind> {
    type Table = HashMap<(&'static str, &'static str), &'static Kind>;
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let stored = registry().kinds().iter().filter(|kind| kind.is_stored());
        stored.map(|kind| ((kind.group, kind.plural), kind)).collect()
    });
    table.get(&(group, resource)).copied()
}

impl Reader {
    /// A reader of `window`.
    pub fn new(window: Window) -> Self {
        Self { window }
    }

    /// The window of a resource; `None` if no such resource is stored.
    pub fn resource(&self, group: &str, resource: &str) -> Option<Arc<ResourceWindow>> {
        let kind = stored_kind(group, resource)?;
        Some(self.window.resource(&format!("{ROOT}{}/", kind.storage_prefix)))
    }

    /// Every object of a resource as last seen.
    pub fn objects(&self, group: &str, resource: &str) -> Objects {
        self.resource(group, resource)
            .map(|window| window.cached().objects)
            .unwrap_or_default()
    }

    /// One object as last seen; `namespace` is empty at cluster scope.
    pub fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = key(group, resource, namespace, name)?;
        self.objects(group, resource)
            .get(key.as_str())
            .map(|stored| Arc::clone(stored.value()))
    }

    /// One object no older than any write acknowledged before the call.
    ///
    /// # Errors
    /// The store is closed.
    pub async fn get_latest(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, StoreError> {
        let (Some(window), Some(key)) = (self.resource(group, resource), key(group, resource, namespace, name)) else {
            return Ok(None);
        };
        let snapshot = window.latest().await?;
        Ok(snapshot
            .objects
            .get(key.as_str())
            .map(|stored| Arc::clone(stored.value())))
    }

    /// The objects of a namespace as last seen; of all namespaces (or at cluster scope) if `namespace` is empty.
    pub fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let objects = self.objects(group, resource);
        let Some(prefix) = key(group, resource, namespace, "") else {
            return Vec::new();
        };
        let within = objects.range::<_, str>((Bound::Included(prefix.as_str()), Bound::Unbounded));
        within
            .take_while(|(key, _)| key.starts_with(prefix.as_str()))
            .map(|(_, stored)| Arc::clone(stored.value()))
            .collect()
    }
}

/// The storage key of an object, or the prefix of a namespace if `name` is empty.
fn key(group: &str, resource: &str, namespace: &str, name: &str) -> Option<String> {
    let prefix = stored_kind(group, resource)?.storage_prefix;
    Some(if namespace.is_empty() {
        format!("{ROOT}{prefix}/{name}")
    } else {
        format!("{ROOT}{prefix}/{namespace}/{name}")
    })
}
