//! A local copy of one resource: list, then watch, for as long as somebody holds it.
//!
//! Objects are kept as `Arc<K>` without managedFields, ordered by key and indexed by controlling owner and, if wanted, by place. Readers never wait for
//! the network; they learn of changes through a [`Subscription`], which merges what they have not read yet, so memory stays
//! bounded by the number of objects. A disconnect resumes at the last revision; an expired revision lists again. Either way a
//! reader sees the difference between what it knew and what is, and never less.

use crate::tree::AsTree;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Api;
use serde::de::DeserializeOwned;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::sync::watch;

mod events;
mod follow;
mod reflector;
mod sink;
mod store;
mod subscription;
mod text;

use follow::{Source, follow};
pub use reflector::{Listed, Listener, Reflector};
pub use sink::Read;
use sink::{Plain, Sink, Trees};
use store::{Store, known};
pub use subscription::{Change, Subscription};

/// Namespace and name of an object; the namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key from its parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::named(object.meta())
    }

    /// The key of what has this metadata.
    fn named(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The revision an object was last written at; 0 when it has none.
pub fn revision_of<K: Resource>(object: &K) -> u64 {
    parse_revision(object.meta().resource_version.as_deref())
}

fn parse_revision(text: Option<&str>) -> u64 {
    text.and_then(|t| t.parse().ok()).unwrap_or(0)
}

/// What to keep a copy of.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Label selector text; empty for all.
    pub labels: String,
    /// Field selector text; empty for all.
    pub fields: String,
    /// Seed of the retry jitter.
    pub seed: u64,
}

/// How far the copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// Highest revision seen, bookmarks included.
    revision: u64,
    /// Lists begun so far.
    lists_begun: u64,
    /// The number of the last list that was completed.
    listed: u64,
    /// The server answered the last list by having no such resource, or none for us.
    is_refused: bool,
}

/// What types an informer can hold.
pub trait Object: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}
impl<K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Object for K {}

struct Shared {
    store: Store,
    progress: watch::Sender<Progress>,
}

struct Running {
    task: tokio::task::AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A handle on the local copy; clones share it, and the last one dropped ends it.
pub struct Informer<K> {
    shared: Arc<Shared>,
    running: Arc<Running>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            running: self.running.clone(),
            kind: PhantomData,
        }
    }
}

impl<K: Object> Informer<K> {
    /// Starts keeping a copy of what `api` lists. Must be called inside a tokio runtime.
    pub fn spawn(api: Api<K>, options: Options) -> Self {
        Self::spawn_keeping(api, options, |object| object)
    }

    /// As [`Informer::spawn`]; of an object is kept what `trim` returns, with its name, namespace and resourceVersion.
    pub fn spawn_keeping(api: Api<K>, options: Options, trim: fn(K) -> K) -> Self {
        Self::spawn_plain(api, options, Store::default(), trim)
    }

    /// As [`Informer::spawn_keeping`]; [`Informer::at`] finds objects by the place that `place_of` names of what is kept, empty for none.
    pub fn spawn_placed(api: Api<K>, options: Options, trim: fn(K) -> K, place_of: fn(&K) -> &str) -> Self {
        Self::spawn_plain(api, options, Store::placed_by(place_of), trim)
    }

    fn spawn_plain(api: Api<K>, options: Options, store: Store, trim: fn(K) -> K) -> Self {
        Self::spawn_from(api, options, store, move |shared| Arc::new(Plain { shared, trim }))
    }

    /// The same with less code and some more time: see [`crate::tree`].
    pub fn spawn_as_tree(api: Api<AsTree<K>>, options: Options) -> Self {
        Self::spawn_trimmed(api, options, |object| object)
    }

    /// As [`Informer::spawn_as_tree`]; of an object is kept what `trim` returns, with its name, namespace and resourceVersion.
    pub fn spawn_trimmed(api: Api<AsTree<K>>, options: Options, trim: fn(K) -> K) -> Self {
        let sink = move |shared| Arc::new(Trees::new(shared, serde_json::from_value, trim)) as Arc<dyn Sink>;
        Self::spawn_from(api, options, Store::default(), sink)
    }

    /// As [`Informer::spawn_placed`]; what is kept is what `read` makes of an object's tree.
    pub fn spawn_read(api: Api<K>, options: Options, read: Read<K>, place_of: fn(&K) -> &str) -> Self {
        let store = Store::placed_by(place_of);
        let trim = |object| object;
        Self::spawn_from(api, options, store, move |shared| {
            Arc::new(Trees::new(shared, read, trim))
        })
    }

    /// `sink` says in which form the objects arrive. (Behind it, so that what follows a resource is there once, and not for each kind.)
    fn spawn_from<W: Resource>(
        api: Api<W>,
        options: Options,
        store: Store,
        sink: impl FnOnce(Arc<Shared>) -> Arc<dyn Sink>,
    ) -> Self {
        let shared = Arc::new(Shared {
            store,
            progress: watch::Sender::new(Progress::default()),
        });
        let task = tokio::spawn(follow(source_of(api, options), sink(shared.clone()))).abort_handle();
        Self {
            shared,
            running: Arc::new(Running { task }),
            kind: PhantomData,
        }
    }

    /// The object of that namespace (empty for cluster-scoped) and name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get_key(&Key::new(namespace, name))
    }

    /// The object of that key.
    pub fn get_key(&self, key: &Key) -> Option<Arc<K>> {
        self.shared.store.get(key).map(known)
    }

    /// All objects, ordered by key.
    pub fn list(&self) -> Vec<Arc<K>> {
        all(self.shared.store.list())
    }

    /// The objects of one namespace, ordered by name.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        all(self.shared.store.list_namespace(namespace))
    }

    /// The objects of one namespace whose controller reference names this UID, ordered by key: an owner owns nothing of other
    /// namespaces, whatever is written there.
    pub fn controlled_by(&self, namespace: &str, uid: &str) -> Vec<Arc<K>> {
        all(self.shared.store.controlled_by(namespace, uid))
    }

    /// What an owner of this UID may have in its namespace, at one moment and ordered by key: what [`Self::controlled_by`] gives, and
    /// what has no controller reference.
    pub fn claimable(&self, namespace: &str, uid: &str) -> (Vec<Arc<K>>, Vec<Arc<K>>) {
        let (own, nobodys) = self.shared.store.claimable(namespace, uid);
        (all(own), all(nobodys))
    }

    /// The objects at this place, ordered by key: see [`Informer::spawn_placed`].
    pub fn at(&self, place: &str) -> Vec<Arc<K>> {
        all(self.shared.store.at(place))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.store.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The highest revision seen, bookmarks included.
    pub fn revision(&self) -> u64 {
        self.shared.progress.borrow().revision
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        self.shared.progress.borrow().listed > 0
    }

    /// Waits for the first list.
    pub async fn synced(&self) {
        let mut progress = self.shared.progress.subscribe();
        // The sender lives in `self.shared`, so this cannot fail.
        let _ = progress.wait_for(|p| p.listed > 0).await;
    }

    /// Waits for the first list, or until the server says that it has no such resource (404) or not for us (403); whether it is the
    /// list. It is asked again all the same.
    pub async fn synced_or_refused(&self) -> bool {
        let mut progress = self.shared.progress.subscribe();
        let known = progress.wait_for(|p| p.listed > 0 || p.is_refused).await;
        // The sender lives in `self.shared`, so this cannot fail.
        known.is_ok_and(|p| p.listed > 0)
    }

    /// Waits until the copy contains a write of this resource at `revision`, or a list that began after this call is complete
    /// (which contains it whatever the numbers say).
    pub async fn wait_for_revision(&self, revision: u64) {
        let mut progress = self.shared.progress.subscribe();
        let begun = progress.borrow().lists_begun;
        // The sender lives in `self.shared`, so this cannot fail.
        let _ = progress.wait_for(|p| p.revision >= revision || p.listed > begun).await;
    }

    /// Waits until `holds` is true of the copy; asked again after every change.
    pub async fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        let mut progress = self.shared.progress.subscribe();
        // The sender lives in `self.shared`, so this cannot fail.
        let _ = progress.wait_for(|_| holds(self)).await;
    }

    /// A merging stream of changes, which begins with everything there is.
    pub fn subscribe(&self) -> Subscription<K> {
        Subscription::new(self.shared.store.subscribe())
    }
}

/// Where the objects of `api` come from.
fn source_of<W: Resource>(api: Api<W>, options: Options) -> Source {
    Source {
        url: api.resource_url().to_owned(),
        metadata_only: W::metadata_api(),
        client: api.into_client(),
        options,
    }
}

/// Objects of this kind.
fn all<K: Object>(objects: Vec<store::Held>) -> Vec<Arc<K>> {
    objects.into_iter().map(known).collect()
}

#[cfg(test)]
mod tests;
