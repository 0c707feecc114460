//! A local copy of one resource: list, then watch, for as long as somebody holds it.
//!
//! Objects are kept as `Arc<K>` without managedFields, ordered by key and indexed by controlling owner. Readers never wait for
//! the network; they learn of changes through a [`Subscription`], which merges what they have not read yet, so memory stays
//! bounded by the number of objects. A disconnect resumes at the last revision; an expired revision lists again. Either way a
//! reader sees the difference between what it knew and what is, and never less.

use crate::backoff::Backoff;
use crate::tree::AsTree;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

mod events;
mod store;
mod subscription;

use events::Events;
use store::Store;
pub use subscription::{Change, Subscription};

/// Deadline of one list request.
const LIST_DEADLINE: Duration = Duration::from_secs(60);
/// Longest life of one watch request, asked of the server.
const WATCH_SECONDS: u32 = 280;
/// Longest silence on a watch before we give it up ourselves; the server should have ended it by then.
const WATCH_DEADLINE: Duration = Duration::from_secs(300);

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
        let meta = object.meta();
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
}

/// What types an informer can hold.
pub trait Object: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}
impl<K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Object for K {}

struct Shared<K> {
    store: Store<K>,
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
    shared: Arc<Shared<K>>,
    running: Arc<Running>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            running: self.running.clone(),
        }
    }
}

impl<K: Object> Informer<K> {
    /// Starts keeping a copy of what `api` lists. Must be called inside a tokio runtime.
    pub fn spawn(api: Api<K>, options: Options) -> Self {
        Self::spawn_from(api, options, |object| object)
    }

    /// The same with less code and some more time: see [`crate::tree`].
    pub fn spawn_as_tree(api: Api<AsTree<K>>, options: Options) -> Self {
        Self::spawn_from(api, options, AsTree::into_object)
    }

    /// `object` takes an object out of the form it arrives in, and may leave parts of it out: what is kept of it is what it
    /// returns. Its name, namespace and resourceVersion must stay.
    pub fn spawn_from<W: Object>(api: Api<W>, options: Options, object: fn(W) -> K) -> Self {
        let shared = Arc::new(Shared {
            store: Store::default(),
            progress: watch::Sender::new(Progress::default()),
        });
        let task = tokio::spawn(follow(api, options, shared.clone(), object)).abort_handle();
        Self {
            shared,
            running: Arc::new(Running { task }),
        }
    }

    /// The object of that namespace (empty for cluster-scoped) and name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.shared.store.get(&Key::new(namespace, name))
    }

    /// The object of that key.
    pub fn get_key(&self, key: &Key) -> Option<Arc<K>> {
        self.shared.store.get(key)
    }

    /// All objects, ordered by key.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.shared.store.list()
    }

    /// The objects of one namespace, ordered by name.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.store.list_namespace(namespace)
    }

    /// The objects whose controller reference names this UID, ordered by key.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.shared.store.controlled_by(uid)
    }

    /// The objects of one namespace without a controller reference, ordered by key.
    pub fn uncontrolled(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.store.uncontrolled(namespace)
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
        self.shared.store.subscribe()
    }
}

/// Why a watch ended.
enum Ended {
    /// Resume at the last revision at once.
    Normally,
    /// Resume after a delay.
    Failed(String),
    /// The revision is gone: list again.
    Expired,
}

async fn follow<W: Object, K: Object>(api: Api<W>, options: Options, shared: Arc<Shared<K>>, object: fn(W) -> K) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10), options.seed);
    loop {
        shared.progress.send_modify(|p| p.lists_begun += 1);
        let resource = api.resource_url();
        match list(&api, &options, &shared, object).await {
            Ok(mut revision) => {
                backoff.reset();
                watch_until_expired(&api, &options, &shared, object, &mut revision, &mut backoff).await;
                tracing::debug!(resource, "watch revision expired, listing again");
            }
            Err(error) => tracing::warn!(resource, error, "list failed, retrying"),
        }
        tokio::time::sleep(backoff.fail()).await;
    }
}

async fn list<W: Object, K: Object>(
    api: &Api<W>,
    options: &Options,
    shared: &Shared<K>,
    object: fn(W) -> K,
) -> Result<String, String> {
    let params = ListParams {
        label_selector: (!options.labels.is_empty()).then(|| options.labels.clone()),
        field_selector: (!options.fields.is_empty()).then(|| options.fields.clone()),
        ..ListParams::default()
    };
    let listed = timeout(LIST_DEADLINE, api.list(&params))
        .await
        .map_err(|_| "list: deadline exceeded".to_owned())?;
    let listed = listed.map_err(|e| describe(&e))?;
    let revision = listed.metadata.resource_version.clone().unwrap_or_default();
    shared.store.replace(listed.items.into_iter().map(object).collect());
    shared.progress.send_modify(|p| {
        p.revision = parse_revision(Some(&revision));
        p.listed = p.lists_begun;
    });
    Ok(revision)
}

async fn watch_until_expired<W: Object, K: Object>(
    api: &Api<W>,
    options: &Options,
    shared: &Shared<K>,
    object: fn(W) -> K,
    revision: &mut String,
    backoff: &mut Backoff,
) {
    loop {
        let before = revision.clone();
        let ended = watch_once(api, options, shared, object, revision).await;
        if before != *revision {
            backoff.reset();
        }
        match ended {
            Ended::Expired => return,
            Ended::Normally if before != *revision => {}
            Ended::Normally => tokio::time::sleep(backoff.fail()).await,
            Ended::Failed(error) => {
                tracing::debug!(resource = api.resource_url(), error, "watch ended, resuming");
                tokio::time::sleep(backoff.fail()).await;
            }
        }
    }
}

async fn watch_once<W: Object, K: Object>(
    api: &Api<W>,
    options: &Options,
    shared: &Shared<K>,
    object: fn(W) -> K,
    revision: &mut String,
) -> Ended {
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    if !options.labels.is_empty() {
        params = params.labels(&options.labels);
    }
    if !options.fields.is_empty() {
        params = params.fields(&options.fields);
    }
    let mut events = match timeout(LIST_DEADLINE, Events::watch(api, &params, revision)).await {
        Err(_) => return Ended::Failed("watch: deadline exceeded".into()),
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Ended::Expired,
        Ok(Err(error)) => return Ended::Failed(describe(&error)),
        Ok(Ok(events)) => events,
    };
    loop {
        let event = match timeout(WATCH_DEADLINE, events.next::<W>()).await {
            Err(_) => return Ended::Failed("watch: silent for too long".into()),
            Ok(Ok(None)) => return Ended::Normally,
            Ok(Err(error)) => return Ended::Failed(describe(&error)),
            Ok(Ok(Some(event))) => event,
        };
        let seen = match event {
            WatchEvent::Added(wire) | WatchEvent::Modified(wire) => {
                let seen = wire.resource_version();
                shared.store.put(object(wire));
                seen
            }
            WatchEvent::Deleted(wire) => {
                shared.store.remove(&Key::of(&wire));
                wire.resource_version()
            }
            WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
            WatchEvent::Error(status) if status.code == 410 => return Ended::Expired,
            WatchEvent::Error(status) => return Ended::Failed(status.message),
        };
        let Some(seen) = seen.filter(|s| !s.is_empty()) else {
            continue;
        };
        let number = parse_revision(Some(&seen));
        *revision = seen;
        shared.progress.send_modify(|p| p.revision = p.revision.max(number));
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests;
