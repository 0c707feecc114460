//! Who refers to what: which nodes have pods that name an object. Follows the window by the difference between two snapshots, so
//! a question costs what has changed since the last one; bounded by what the stored pods and volumes say.

use crate::apiserver::reader::Reader;
use crate::resource::field::{at, text};
use crate::resource::pod::reference::{Referent, of_pod, secrets_of_volume};
use crate::store::window::Stored;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Objects by storage key, as a snapshot holds them.
type Objects = OrdMap<Arc<str>, Arc<Stored>>;

/// An object in a namespace: kind, and `namespace/name`.
type Target = (Referent, String);

/// What one pod refers to on behalf of its node.
#[derive(Debug, PartialEq, Eq)]
struct PodEdges {
    node: Arc<str>,
    targets: Vec<Target>,
}

/// What one volume refers to on behalf of its claim.
#[derive(Debug, PartialEq, Eq)]
struct VolumeEdges {
    claim: String,
    secrets: Vec<String>,
}

#[derive(Default)]
pub(super) struct Graph {
    pods_seen: Objects,
    volumes_seen: Objects,
    pods: HashMap<Arc<str>, PodEdges>,
    volumes: HashMap<Arc<str>, VolumeEdges>,
    /// How many pods of each node refer to a target.
    nodes: HashMap<Target, BTreeMap<Arc<str>, usize>>,
    /// How many volumes of each claim need a Secret.
    claims: HashMap<String, BTreeMap<String, usize>>,
}

impl Graph {
    /// Takes in what has changed.
    pub(super) fn follow(&mut self, reader: &Reader) {
        if let Some(pods) = reader.objects("", "pods") {
            for (key, stored) in changes(&self.pods_seen, &pods) {
                self.set_pod(&key, stored.and_then(|stored| pod_edges(&stored.tree())));
            }
            self.pods_seen = pods;
        }
        if let Some(volumes) = reader.objects("", "persistentvolumes") {
            for (key, stored) in changes(&self.volumes_seen, &volumes) {
                self.set_volume(&key, stored.and_then(|stored| volume_edges(&stored.tree())));
            }
            self.volumes_seen = volumes;
        }
    }

    /// Whether a pod of the node leads to the object.
    pub(super) fn reaches(&self, node: &str, referent: Referent, namespace: &str, name: &str) -> bool {
        let target = (referent, format!("{namespace}/{name}"));
        if self.refers(node, &target) {
            return true;
        }
        let claims = (referent == Referent::Secret)
            .then(|| self.claims.get(&target.1))
            .flatten();
        let mut claims = claims.into_iter().flat_map(BTreeMap::keys);
        claims.any(|claim| self.refers(node, &(Referent::Claim, claim.clone())))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.nodes.is_empty() && self.volumes.is_empty() && self.claims.is_empty()
    }

    fn refers(&self, node: &str, target: &Target) -> bool {
        self.nodes.get(target).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn set_pod(&mut self, key: &Arc<str>, edges: Option<PodEdges>) {
        if self.pods.get(key) == edges.as_ref() {
            return;
        }
        if let Some(old) = self.pods.remove(key) {
            old.targets
                .iter()
                .for_each(|target| take(&mut self.nodes, target, &old.node));
        }
        if let Some(new) = edges {
            for target in &new.targets {
                let nodes = self.nodes.entry(target.clone()).or_default();
                *nodes.entry(Arc::clone(&new.node)).or_default() += 1;
            }
            self.pods.insert(Arc::clone(key), new);
        }
    }

    fn set_volume(&mut self, key: &Arc<str>, edges: Option<VolumeEdges>) {
        if self.volumes.get(key) == edges.as_ref() {
            return;
        }
        if let Some(old) = self.volumes.remove(key) {
            old.secrets
                .iter()
                .for_each(|secret| take(&mut self.claims, secret, &old.claim));
        }
        if let Some(new) = edges {
            for secret in &new.secrets {
                let claims = self.claims.entry(secret.clone()).or_default();
                *claims.entry(new.claim.clone()).or_default() += 1;
            }
            self.volumes.insert(Arc::clone(key), new);
        }
    }
}

/// Removes one of several equal edges.
fn take<T, S>(edges: &mut HashMap<T, BTreeMap<S, usize>>, to: &T, from: &S)
where
    T: std::hash::Hash + Eq,
    S: Ord,
{
    let Some(sources) = edges.get_mut(to) else { return };
    if let Some(count) = sources.get_mut(from) {
        *count -= 1;
        if *count == 0 {
            sources.remove(from);
        }
    }
    if sources.is_empty() {
        edges.remove(to);
    }
}

/// What is different between two snapshots: keys, with the object that is there now.
fn changes(old: &Objects, new: &Objects) -> Vec<(Arc<str>, Option<Arc<Stored>>)> {
    if old.ptr_eq(new) {
        return Vec::new();
    }
    let different = old.diff(new).map(|item| match item {
        DiffItem::Add(key, stored) => (Arc::clone(key), Some(Arc::clone(stored))),
        DiffItem::Update { new: (key, stored), .. } => (Arc::clone(key), Some(Arc::clone(stored))),
        DiffItem::Remove(key, _) => (Arc::clone(key), None),
    });
    different.collect()
}

/// What a pod leads its node to; nothing before it has a node, and nothing from mirror pods, which nodes make themselves.
fn pod_edges(pod: &Value) -> Option<PodEdges> {
    let node = text(pod, &["spec", "nodeName"]);
    let mirrors = at(pod, &["metadata", "annotations", "kubernetes.io/config.mirror"]);
    if node.is_empty() || !mirrors.is_null() {
        return None;
    }
    let namespace = text(pod, &["metadata", "namespace"]);
    let targets = of_pod(pod).into_iter();
    Some(PodEdges {
        node: Arc::from(node),
        targets: targets
            .map(|(kind, name)| (kind, format!("{namespace}/{name}")))
            .collect(),
    })
}

fn volume_edges(volume: &Value) -> Option<VolumeEdges> {
    let claim = at(volume, &["spec", "claimRef"]);
    let (namespace, name) = (text(claim, &["namespace"]), text(claim, &["name"]));
    let secrets: Vec<String> = secrets_of_volume(volume).into_iter().collect();
    (!name.is_empty() && !secrets.is_empty()).then(|| VolumeEdges {
        claim: format!("{namespace}/{name}"),
        secrets,
    })
}
