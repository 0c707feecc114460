//! Garbage collection: objects whose owners are gone go too; foreground and orphaning deletions are carried out.
//!
//! Source: control-plane contract §12. The graph of owners ([`graph`], pure) is built from the metadata of every deletable
//! resource, found by discovery. An owner that the graph does not know is looked up live before anything is deleted for its
//! absence, so a graph that is late can delay a collection but never cause a wrong one. What rests on
//! knowing all dependents (letting a foreground or orphaning deletion end) waits until every resource has been listed.

use super::discovery;
use super::execute::execute;
use super::harness::Environment;
use super::informers::{AnyInformer, MetadataChange};
use super::queue::Queue;
use super::write::{Failure, PatchKind, Resource, Verb, Write};
use crate::planted;
use client::informer::Options;
use client::{Backoff, Informer, Key};
use futures::future::{BoxFuture, Shared};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use serde_json::{Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

pub mod graph;

use graph::{Action, Graph, ObjectId, Owner};

/// Upstream's service account name.
pub const NAME: &str = "generic-garbage-collector";
/// How often the server is asked for new resources.
pub(super) const REDISCOVERY: Duration = Duration::from_secs(30);
/// How long after a change of a definition the server is asked: a burst of them is one question a second.
const DEFINITIONS_SETTLE: Duration = Duration::from_secs(1);
/// How long a resource's first list may hold up everything.
const SYNC_PATIENCE: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 16;
/// Absent owners remembered.
const ABSENT: usize = 500;

type Metadata = PartialObjectMeta<DynamicObject>;

/// A followed resource.
struct Followed {
    /// Keeps our own informer running; shared ones run anyway.
    _own: Option<Informer<Metadata>>,
    feeding: tokio::task::AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.feeding.abort();
    }
}

struct Collector {
    environment: Environment,
    graph: Mutex<Graph>,
    queue: Queue<String>,
    /// Known resources by API version and kind, for owners.
    kinds: Mutex<BTreeMap<(String, String), Resource>>,
    absent: Mutex<Absent>,
    delays: Mutex<BTreeMap<String, Backoff>>,
    unlisted: Mutex<Unlisted>,
    /// A definition has changed, and with it perhaps what there is.
    definitions: Notify,
}

/// What the graph cannot know of yet.
struct Unlisted {
    /// Resources whose first list has not been taken in.
    resources: BTreeSet<Resource>,
    /// Groups whose resources could not be found out.
    groups: Vec<String>,
}

impl Unlisted {
    /// The first of what is missing, in words.
    fn first(&self) -> Option<String> {
        let resource = self.resources.first();
        resource
            .map(|resource| format!("{}.{}", resource.plural, resource.group))
            .or_else(|| self.groups.first().map(|group| format!("group {group}")))
    }
}

/// UIDs known to be gone: they never come back.
#[derive(Default)]
struct Absent {
    known: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Absent {
    fn add(&mut self, uid: &str) {
        if self.known.insert(uid.to_owned()) {
            self.order.push_back(uid.to_owned());
        }
        while self.order.len() > ABSENT {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

/// Collects until shutdown.
pub async fn run(environment: Environment) {
    let shutdown = environment.shutdown.clone();
    let collector = Arc::new(Collector {
        environment,
        graph: Mutex::default(),
        queue: Queue::default(),
        kinds: Mutex::default(),
        absent: Mutex::default(),
        delays: Mutex::default(),
        unlisted: Mutex::new(Unlisted {
            resources: BTreeSet::new(),
            groups: vec!["/".to_owned()],
        }),
        definitions: Notify::new(),
    });
    let mut followed = BTreeMap::new();
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = async {
            collector.discover(&mut followed).await;
            tokio::join!(collector.process_queue(), collector.rediscover(&mut followed));
        } => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Collector {
    async fn rediscover(self: &Arc<Self>, followed: &mut BTreeMap<Resource, Followed>) {
        loop {
            // Upstream asks every half minute alone: until then nothing goes with a new kind's objects.
            tokio::select! {
                biased;
                () = self.definitions.notified() => sleep(DEFINITIONS_SETTLE).await,
                () = sleep(REDISCOVERY) => {}
            }
            self.discover(followed).await;
        }
    }

    /// Follows what is new, and forgets what is gone.
    async fn discover(self: &Arc<Self>, followed: &mut BTreeMap<Resource, Followed>) {
        let (found, failed) = match discovery::resources(&self.environment.client).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error, "resources not discovered, retrying");
                return;
            }
        };
        {
            let mut kinds = lock(&self.kinds);
            for discovered in &found {
                let resource = &discovered.resource;
                kinds.insert(
                    (resource.group.to_string(), resource.kind.to_string()),
                    resource.clone(),
                );
            }
        }
        let collectable = found
            .into_iter()
            .filter(|d| d.can(&["list", "watch", "delete"]) && !d.is_event());
        let wanted: BTreeSet<Resource> = collectable.map(|d| d.resource).collect();
        if failed.is_empty() {
            followed.retain(|resource, _| wanted.contains(resource));
            lock(&self.unlisted)
                .resources
                .retain(|resource| wanted.contains(resource));
        }
        // In this order: there is no moment at which something seems to be known that is not.
        let new = wanted.iter().filter(|resource| !followed.contains_key(*resource));
        lock(&self.unlisted).resources.extend(new.cloned());
        lock(&self.unlisted).groups = failed;
        let mut syncing = Vec::new();
        for resource in wanted {
            if let Entry::Vacant(place) = followed.entry(resource) {
                let (followed, synced) = self.follow(place.key());
                place.insert(followed);
                syncing.push(synced);
            }
        }
        let all = futures::future::join_all(syncing);
        if timeout(SYNC_PATIENCE, all).await.is_err() {
            let first = lock(&self.unlisted).first().unwrap_or_default();
            tracing::warn!(
                first,
                "some resources cannot be listed: foreground and orphaning deletions wait"
            );
        }
    }

    fn follow(self: &Arc<Self>, resource: &Resource) -> (Followed, Shared<BoxFuture<'static, ()>>) {
        let (mut feed, own, synced) = match self.environment.informers.informer_of(resource) {
            Some(shared) => {
                let informers = self.environment.informers.clone();
                let resource = resource.clone();
                let synced = async move {
                    if let Some(copy) = informers.informer_of(&resource) {
                        copy.synced().await;
                    }
                };
                (shared.metadata(), None, synced.boxed())
            }
            None => {
                let kind = ApiResource {
                    group: resource.group.to_string(),
                    version: resource.version.to_string(),
                    api_version: resource.api_version(),
                    kind: resource.kind.to_string(),
                    plural: resource.plural.to_string(),
                };
                let api = kube::Api::<Metadata>::all_with(self.environment.client.clone(), &kind);
                let own = Informer::spawn(api, Options::default());
                let copy = own.clone();
                let synced = async move { Informer::synced(&copy).await };
                (own.metadata(), Some(own), synced.boxed())
            }
        };
        let (collector, resource) = (Arc::downgrade(self), resource.clone());
        let synced = synced.shared();
        let listed = synced.clone();
        let feeding = tokio::spawn(async move {
            listed.await;
            while let Some(changes) = feed.next().now_or_never() {
                let Some(collector) = collector.upgrade() else { return };
                changes
                    .into_iter()
                    .for_each(|change| collector.observe(&resource, &change));
            }
            match collector.upgrade() {
                Some(collector) => collector.listed(&resource),
                None => return,
            }
            loop {
                let changes = feed.next().await;
                let Some(collector) = collector.upgrade() else { return };
                changes
                    .into_iter()
                    .for_each(|change| collector.observe(&resource, &change));
            }
        });
        let followed = Followed {
            _own: own,
            feeding: feeding.abort_handle(),
        };
        (followed, synced)
    }

    /// The resource's first list is in the graph.
    fn listed(&self, resource: &Resource) {
        let all = {
            let mut unlisted = lock(&self.unlisted);
            unlisted.resources.remove(resource);
            unlisted.first().is_none()
        };
        if all {
            lock(&self.delays).keys().for_each(|uid| self.queue.add(uid.clone()));
        }
    }

    fn observe(&self, resource: &Resource, change: &MetadataChange) {
        if resource.plural == "customresourcedefinitions" {
            self.definitions.notify_one();
        }
        self.environment.informers.freed.tell(resource, change);
        let woken = lock(&self.graph).observe(resource, change);
        woken.into_iter().for_each(|uid| self.queue.add(uid));
    }

    async fn process_queue(&self) {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(uid) = running.next(), if !running.is_empty() => self.queue.done(&uid),
                uid = self.queue.next(), if running.len() < CONCURRENCY => running.push(self.reconcile(uid)),
            }
        }
    }

    async fn reconcile(&self, uid: String) -> String {
        match self.collect(&uid).await {
            Ok(()) => {
                lock(&self.delays).remove(&uid);
            }
            Err(error) => {
                let new = || Backoff::new(Duration::from_millis(5), Duration::from_secs(60), 0);
                let delay = lock(&self.delays).entry(uid.clone()).or_insert_with(new).fail();
                tracing::debug!(uid, error, ?delay, "not collected, retrying");
                self.queue.add_after(uid.clone(), delay);
            }
        }
        uid
    }

    async fn collect(&self, uid: &str) -> Result<(), String> {
        let unknown = lock(&self.graph).unknown_owners(uid);
        let mut absent = BTreeSet::new();
        for (id, owner) in unknown {
            if !self.exists(&id, &owner).await? {
                absent.insert(owner.uid);
            }
        }
        let judge = |owner: &OwnerReference| {
            if absent.contains(&owner.uid) {
                Owner::Absent
            } else {
                Owner::Present
            }
        };
        let action = lock(&self.graph).decide(uid, judge);
        self.act(action).await
    }

    /// Whether the owner that a reference names is there, asked live.
    async fn exists(&self, dependent: &ObjectId, owner: &OwnerReference) -> Result<bool, String> {
        if lock(&self.absent).known.contains(&owner.uid) || planted::is(planted::Fault::NoLiveLookup) {
            return Ok(false);
        }
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let resource = lock(&self.kinds).get(&(group.to_owned(), owner.kind.clone())).cloned();
        let Some(resource) = resource else {
            return Err(format!(
                "owner kind {} of {} is not known",
                owner.kind, owner.api_version
            ));
        };
        let namespace = if resource.namespaced {
            dependent.key.namespace.as_str()
        } else {
            ""
        };
        if resource.namespaced && namespace.is_empty() {
            // A cluster-scoped object cannot have a namespaced owner.
            return Ok(false);
        }
        let path = resource.path(&Key::new(namespace, owner.name.clone()));
        let request = Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
        let live = match timeout(DEADLINE, self.environment.client.request::<Value>(request)).await {
            Err(_) => return Err("deadline exceeded".into()),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => None,
            Ok(Err(error)) => return Err(error.to_string()),
            Ok(Ok(object)) => object["metadata"]["uid"].as_str().map(str::to_owned),
        };
        let exists = live.as_deref() == Some(&owner.uid);
        if !exists {
            lock(&self.absent).add(&owner.uid);
        }
        Ok(exists)
    }

    async fn act(&self, action: Action) -> Result<(), String> {
        if action.needs_all_dependents()
            && let Some(first) = lock(&self.unlisted).first()
        {
            return Err(format!("{first} has not been listed yet: there may be more dependents"));
        }
        match action {
            Action::Nothing => Ok(()),
            Action::Wake(uids) => {
                uids.into_iter().for_each(|uid| self.queue.add(uid));
                Ok(())
            }
            Action::Delete { object, propagation } => {
                let verb = Verb::Delete {
                    uid: object.uid.clone(),
                    revision: None,
                    grace: None,
                    propagation: Some(propagation),
                };
                self.write(&Write::new(object.resource, object.key, verb)).await
            }
            Action::SetOwners {
                object,
                revision,
                owners,
            } => {
                let owners = if owners.is_empty() { Value::Null } else { json!(owners) };
                self.patch(object, &revision, "ownerReferences", owners).await
            }
            Action::SetFinalizers {
                object,
                revision,
                finalizers,
            } => self.patch(object, &revision, "finalizers", json!(finalizers)).await,
            Action::Orphan {
                object,
                dependents,
                revision,
                finalizers,
            } => {
                for (dependent, revision, owners) in dependents {
                    let owners = if owners.is_empty() { Value::Null } else { json!(owners) };
                    self.patch(dependent, &revision, "ownerReferences", owners).await?;
                }
                self.patch(object, &revision, "finalizers", json!(finalizers)).await
            }
        }
    }

    async fn patch(&self, object: ObjectId, revision: &str, field: &str, value: Value) -> Result<(), String> {
        let body = json!({"metadata": {"uid": object.uid, "resourceVersion": revision, field: value}});
        self.write(&Write::patch(object.resource, object.key, PatchKind::Merge, body))
            .await
    }

    async fn write(&self, write: &Write) -> Result<(), String> {
        match execute(&self.environment.client, write).await {
            Ok(_) => Ok(()),
            // Gone already: the informer will tell.
            Err(Failure { code: 404, .. }) => Ok(()),
            Err(failure) => Err(failure.message),
        }
    }
}

#[cfg(test)]
mod tests;
