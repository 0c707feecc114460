//! Which resources there are, and what of them has been read: they come and go with their definitions.

use super::{Collector, graph, lock};
use crate::controller::discovery::{self, Discovered, FailedVersion};
use crate::controller::informers::MetadataChange;
use crate::controller::write::Resource;
use client::informer::{Listed, Listener, Options};
use client::{Key, Reflector};
use futures::future::BoxFuture;
use futures::{FutureExt, future};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How often the server is asked for new resources.
pub(in crate::controller) const REDISCOVERY: Duration = Duration::from_secs(30);
/// How long after a change of a definition the server is asked: a burst of them is one question a second.
const DEFINITIONS_SETTLE: Duration = Duration::from_secs(1);
/// How long a resource's first list may hold up everything.
const SYNC_PATIENCE: Duration = Duration::from_secs(10);

type Metadata = PartialObjectMeta<DynamicObject>;

/// A followed resource: by its shared informer, or, where nobody else has a copy of it, without one.
pub(super) enum Followed {
    Shared(Feeding),
    Alone(Reflector),
}

impl Followed {
    /// Ends it: nothing of the resource is taken in afterwards.
    async fn stop(self) {
        match self {
            Self::Shared(mut feeding) => {
                feeding.0.abort();
                let _ = (&mut feeding.0).await;
            }
            Self::Alone(reflector) => reflector.stop().await,
        }
    }
}

/// What takes in the changes that a shared informer tells; ends with this.
pub(super) struct Feeding(JoinHandle<()>);

impl Drop for Feeding {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the collector hears of a resource that it follows alone.
struct Ear {
    collector: Weak<Collector>,
    resource: Resource,
    /// Whether something of it may be in the graph. Until then there is nothing to be taken out.
    has_heard: AtomicBool,
}

impl Listener<Metadata> for Ear {
    fn all(&self, objects: Listed<'_, Metadata>) -> Result<(), serde_json::Error> {
        let Some(collector) = self.collector.upgrade() else {
            return Ok(());
        };
        let is_first = !self.has_heard.swap(true, Ordering::Relaxed);
        let mut listed = graph::Listed::default();
        for object in objects {
            let object = object?;
            if !is_first {
                listed.add(object.metadata.uid.as_deref().unwrap_or_default());
            }
            collector.observe(&self.resource, &change(object, true));
        }
        if !is_first {
            collector.keep(&self.resource, &listed);
        }
        collector.listed(&self.resource);
        Ok(())
    }

    fn there(&self, object: Metadata) {
        if let Some(collector) = self.collector.upgrade() {
            collector.observe(&self.resource, &change(object, true));
        }
    }

    fn gone(&self, object: Metadata) {
        if let Some(collector) = self.collector.upgrade() {
            collector.observe(&self.resource, &change(object, false));
        }
    }
}

/// An object that is there, or that was.
fn change(object: Metadata, is_there: bool) -> MetadataChange {
    let (key, meta) = (Key::of(&object), Some(object.metadata));
    let (old, new) = if is_there { (None, meta) } else { (meta, None) };
    MetadataChange { key, old, new }
}

/// What the graph cannot know of yet.
pub(super) struct Unlisted {
    /// Resources whose first list has not been taken in.
    resources: BTreeSet<Resource>,
    /// Versions of groups whose resources could not be found out.
    versions: Vec<String>,
}

impl Default for Unlisted {
    /// Nothing has been found out yet.
    fn default() -> Self {
        Self {
            resources: BTreeSet::new(),
            versions: vec!["/".to_owned()],
        }
    }
}

impl Unlisted {
    /// The first of what is missing, in words.
    pub(super) fn first(&self) -> Option<String> {
        let resource = self.resources.first();
        resource
            .map(|resource| format!("{}.{}", resource.plural, resource.group))
            .or_else(|| self.versions.first().map(|version| format!("group {version}")))
    }
}

/// The resources to follow, given what was found and is followed. Of a group that could be read in part alone, what is followed stays as it is.
fn wanted(found: Vec<Discovered>, failed: &[FailedVersion], followed: &BTreeSet<Resource>) -> BTreeSet<Resource> {
    let has_failed = |resource: &Resource| failed.iter().any(|version| version.group == *resource.group);
    let mut wanted: BTreeSet<Resource> = followed.iter().filter(|r| has_failed(r)).cloned().collect();
    let is_collectable = |d: &Discovered| d.can(&["list", "watch", "delete"]) && !d.is_event();
    let collectable = found.into_iter().filter(is_collectable).map(|d| d.resource);
    let is_kept = |resource: &Resource| {
        let same = |other: &Resource| other.group == resource.group && other.plural == resource.plural;
        has_failed(resource) && followed.iter().any(same)
    };
    wanted.extend(collectable.filter(|resource| !is_kept(resource)));
    wanted
}

/// The versions whose failure leaves something unknown that may be depended on: those of groups of which nothing is followed. Of another
/// group's new resources a dependent may be heard of late, as of any: it is judged then.
fn unlisted_versions(failed: &[FailedVersion], wanted: &BTreeSet<Resource>) -> Vec<String> {
    let is_followed = |version: &FailedVersion| wanted.iter().any(|resource| *resource.group == version.group);
    let unknown = failed.iter().filter(|version| !is_followed(version));
    unknown.map(ToString::to_string).collect()
}

impl Collector {
    pub(super) async fn rediscover(self: &Arc<Self>, followed: &mut BTreeMap<Resource, Followed>) {
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
    pub(super) async fn discover(self: &Arc<Self>, followed: &mut BTreeMap<Resource, Followed>) {
        let discovery = match discovery::resources(&self.environment.client).await {
            Ok(discovery) => discovery,
            Err(error) => {
                tracing::warn!(error, "resources not discovered, retrying");
                return;
            }
        };
        let failed = discovery.failed;
        self.name_kinds(&discovery.resources, &failed);
        let present = followed.keys().cloned().collect();
        let wanted = wanted(discovery.resources, &failed, &present);
        // In this order: there is no moment at which something seems to be known that is not.
        {
            let mut unlisted = lock(&self.unlisted);
            unlisted.resources.retain(|resource| wanted.contains(resource));
            unlisted.resources.extend(wanted.difference(&present).cloned());
            unlisted.versions = unlisted_versions(&failed, &wanted);
        }
        for gone in present.difference(&wanted) {
            if let Some(followed) = followed.remove(gone) {
                followed.stop().await;
            }
            let woken = lock(&self.graph).forget(gone);
            woken.into_iter().for_each(|uid| self.queue.add(uid));
        }
        self.follow_all(wanted, followed).await;
    }

    /// Kinds that are served no longer are known no longer, unless their group could not be read.
    fn name_kinds(&self, found: &[Discovered], failed: &[FailedVersion]) {
        let mut kinds = lock(&self.kinds);
        kinds.retain(|(group, _), _| failed.iter().any(|version| version.group == *group));
        for Discovered { resource, .. } in found {
            let kind = (resource.group.to_string(), resource.kind.to_string());
            kinds.entry(kind).or_insert_with(|| resource.clone());
        }
    }

    async fn follow_all(self: &Arc<Self>, wanted: BTreeSet<Resource>, followed: &mut BTreeMap<Resource, Followed>) {
        let mut syncing = Vec::new();
        for resource in wanted {
            if let Entry::Vacant(place) = followed.entry(resource) {
                let (followed, synced) = self.follow(place.key());
                place.insert(followed);
                syncing.push(synced);
            }
        }
        let all = future::join_all(syncing);
        if timeout(SYNC_PATIENCE, all).await.is_err() {
            let first = lock(&self.unlisted).first().unwrap_or_default();
            tracing::warn!(
                first,
                "some resources cannot be listed: foreground and orphaning deletions wait"
            );
        }
    }

    fn follow(self: &Arc<Self>, resource: &Resource) -> (Followed, BoxFuture<'static, ()>) {
        let Some(shared) = self.environment.informers.informer_of(resource) else {
            let ear = Ear {
                collector: Arc::downgrade(self),
                resource: resource.clone(),
                has_heard: AtomicBool::new(false),
            };
            let reflector = Reflector::spawn(self.all_of(resource), Options::default(), ear);
            let synced = reflector.synced().boxed();
            return (Followed::Alone(reflector), synced);
        };
        let mut feed = shared.metadata();
        let (informers, of) = (self.environment.informers.clone(), resource.clone());
        let synced = async move {
            if let Some(copy) = informers.informer_of(&of) {
                copy.synced().await;
            }
        };
        let (collector, resource) = (Arc::downgrade(self), resource.clone());
        let synced = synced.boxed().shared();
        let listed = synced.clone();
        let feeding = tokio::spawn(async move {
            listed.await;
            while let Some(changes) = feed.next().now_or_never() {
                let Some(collector) = collector.upgrade() else { return };
                collector.observe_all(&resource, &changes);
            }
            match collector.upgrade() {
                Some(collector) => collector.listed(&resource),
                None => return,
            }
            loop {
                let changes = feed.next().await;
                let Some(collector) = collector.upgrade() else { return };
                collector.observe_all(&resource, &changes);
            }
        });
        (Followed::Shared(Feeding(feeding)), synced.boxed())
    }

    fn all_of(&self, resource: &Resource) -> kube::Api<Metadata> {
        let kind = ApiResource {
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            plural: resource.plural.to_string(),
        };
        kube::Api::all_with(self.environment.client.clone(), &kind)
    }

    /// The resource's first list is in the graph.
    fn listed(&self, resource: &Resource) {
        let all = {
            let mut unlisted = lock(&self.unlisted);
            let is_first = unlisted.resources.remove(resource);
            is_first && unlisted.first().is_none()
        };
        if all {
            lock(&self.delays).keys().for_each(|uid| self.queue.add(uid.clone()));
        }
    }

    fn observe_all(&self, resource: &Resource, changes: &[MetadataChange]) {
        changes.iter().for_each(|change| self.observe(resource, change));
    }

    fn observe(&self, resource: &Resource, change: &MetadataChange) {
        if resource.plural == "customresourcedefinitions" {
            self.definitions.notify_one();
        }
        self.environment.informers.freed.tell(resource, change);
        let observed = lock(&self.graph).observe(resource, change);
        self.take_in(observed);
    }

    /// Of the resource there are these objects alone, all of which have been observed.
    fn keep(&self, resource: &Resource, listed: &graph::Listed) {
        let gone = lock(&self.graph).unlisted(resource, listed);
        if !gone.is_empty() {
            // Where they were, nobody knows any more.
            self.environment.informers.freed.tell_everywhere(resource);
        }
        gone.iter().for_each(|uid| self.remove(uid));
    }

    /// An object of that UID is gone.
    pub(super) fn remove(&self, uid: &str) {
        let observed = lock(&self.graph).remove_unnamed(uid);
        self.take_in(observed);
    }
}

#[cfg(test)]
mod tests;
