//! What is served at one moment: the kinds, the windows their objects are read from, and the documents that tell clients of them.
//!
//! [`Publisher`] owns which moment is the present one. Whoever answers a request takes one [`Served`] and asks nothing newer, so
//! that a definition that comes or goes meanwhile changes nothing half way. Never knows an object.

use super::discovery::Aggregated;
use super::openapi::OpenApi;
use super::reader::{self, Reader};
use crate::resource::{Kind, Name, Registry};
use crate::store::window::{ResourceWindow, Window};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Where the objects of a resource are.
pub(super) struct Resource {
    /// `/registry/<prefix>/`.
    pub(super) prefix: String,
    pub(super) window: Arc<ResourceWindow>,
}

/// By group, then by plural.
type Resources = BTreeMap<Name, Arc<BTreeMap<Name, Arc<Resource>>>>;

/// See the module.
pub(super) struct Served {
    registry: Arc<Registry>,
    resources: Resources,
    aggregated: Aggregated,
    openapi: OpenApi,
}

impl Served {
    fn new(registry: Arc<Registry>, window: &Window) -> Self {
        let mut resources: BTreeMap<Name, BTreeMap<Name, Arc<Resource>>> = BTreeMap::new();
        for kind in registry.kinds().filter(|kind| kind.is_stored()) {
            let group = resources.entry(kind.group.clone()).or_default();
            group.insert(kind.plural.clone(), resource(kind, window));
        }
        Self {
            resources: resources
                .into_iter()
                .map(|(name, group)| (name, Arc::new(group)))
                .collect(),
            aggregated: Aggregated::default(),
            openapi: OpenApi::new(Arc::clone(&registry)),
            registry,
        }
    }

    /// Documents of these kinds, and no windows.
    #[cfg(test)]
    pub(super) fn of_documents(registry: &Arc<Registry>) -> Self {
        Self {
            registry: Arc::clone(registry),
            resources: BTreeMap::new(),
            aggregated: Aggregated::default(),
            openapi: OpenApi::new(Arc::clone(registry)),
        }
    }

    /// What is served once a resource is served as these kinds (of one storage), or not any more.
    fn with_resource(&self, group: &str, plural: &str, kinds: &[Arc<Kind>], window: &Window) -> Self {
        let registry = Arc::new(self.registry.with_resource(group, plural, kinds));
        let mut resources = self.resources.clone();
        let mut own = resources.remove(group).map_or_else(BTreeMap::new, Arc::unwrap_or_clone);
        own.remove(plural);
        if let Some(kind) = kinds.iter().find(|kind| kind.is_stored()) {
            own.insert(plural.to_owned().into(), resource(kind, window));
        }
        if !own.is_empty() {
            resources.insert(group.to_owned().into(), Arc::new(own));
        }
        Self {
            resources,
            aggregated: Aggregated::default(),
            openapi: self.openapi.successor(Arc::clone(&registry)),
            registry,
        }
    }

    /// The kinds.
    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The documents of aggregated discovery.
    pub(super) fn aggregated(&self) -> &Aggregated {
        &self.aggregated
    }

    /// The OpenAPI documents.
    pub(super) fn openapi(&self) -> &OpenApi {
        &self.openapi
    }

    pub(super) fn resource(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(group)?.get(plural)
    }

    /// Any of the resources.
    pub(super) fn any_resource(&self) -> Option<&Arc<Resource>> {
        self.resources.values().find_map(|group| group.values().next())
    }
}

fn resource(kind: &Arc<Kind>, window: &Window) -> Arc<Resource> {
    let prefix = reader::prefix(kind);
    let window = window.resource_of(&prefix, Some(reader::expected(kind)));
    Arc::new(Resource { prefix, window })
}

/// Owns what is served now.
pub(super) struct Publisher {
    window: Window,
    current: watch::Sender<Arc<Served>>,
}

impl Publisher {
    /// Serves the kinds of `registry` from `window`.
    pub(super) fn new(registry: Arc<Registry>, window: Window) -> Self {
        let served = Arc::new(Served::new(registry, &window));
        Self {
            window,
            current: watch::Sender::new(served),
        }
    }

    /// What is served now.
    pub(super) fn current(&self) -> Arc<Served> {
        Arc::clone(&self.current.borrow())
    }

    /// The store's window.
    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    /// What is served, as it changes.
    pub(super) fn follow(&self) -> watch::Receiver<Arc<Served>> {
        self.current.subscribe()
    }

    /// Reads objects of whatever is served when it is asked.
    pub(super) fn reader(&self) -> Reader {
        Reader::of(self.current.subscribe())
    }

    /// Serves a resource as these kinds from now on, one for each version; as none, it is served no more, and watches of it end.
    /// Built-in resources stay what they are.
    pub(super) fn serve(&self, group: &str, plural: &str, kinds: &[Arc<Kind>]) {
        self.current.send_modify(|current| {
            if current.registry.is_built_in(group, plural) {
                return;
            }
            let next = current.with_resource(group, plural, kinds, &self.window);
            let before = std::mem::replace(current, Arc::new(next));
            let (old, new) = (before.resource(group, plural), current.resource(group, plural));
            if let Some(old) = old
                && new.is_none_or(|new| new.prefix != old.prefix)
            {
                self.window.release(&old.prefix);
            }
        });
    }
}

#[cfg(test)]
mod tests;
