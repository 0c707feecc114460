//! Who has which devices, and what their plugins said to it. Pure.

use super::Device;
use crate::pod_object::Kind;
use bytes::Bytes;
use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet};

/// Upstream's number for devices on no NUMA node.
pub const NO_NODE: i64 = -1;

/// What one container has of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Devices by NUMA node, [`NO_NODE`] for those without; one may stand at several.
    pub by_node: BTreeMap<i64, Vec<String>>,
    /// What the plugin said to it, as sent; nothing while it is asked.
    pub answer: Option<Bytes>,
}

impl Given {
    /// These devices, for which the plugin is still to be asked.
    pub fn reserved(devices: &BTreeMap<String, Device>, chosen: &BTreeSet<String>) -> Self {
        let mut by_node: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for id in chosen {
            let nodes = devices.get(id).map_or(&[][..], |device| &device.nodes);
            let nodes: BTreeSet<i64> = match nodes {
                [] => BTreeSet::from([NO_NODE]),
                some => some.iter().copied().collect_ordered(),
            };
            for node in nodes {
                by_node.entry(node).or_default().push(id.clone());
            }
        }
        Self { by_node, answer: None }
    }

    /// What it takes, bytes.
    pub fn weight(&self) -> usize {
        let ids = self.by_node.values().flatten();
        let ids: usize = ids.map(|id| size_of::<String>() + id.len()).sum();
        GIVEN_BYTES + ids + self.answer.as_ref().map_or(0, Bytes::len)
    }

    /// The devices.
    pub fn ids(&self) -> BTreeSet<String> {
        self.by_node.values().flatten().cloned().collect_ordered()
    }
}

/// What it takes that a container has something of a resource at all, bytes.
const GIVEN_BYTES: usize = 256;

type ByResource = BTreeMap<String, Given>;
type ByContainer = BTreeMap<String, ByResource>;

/// What of one resource is somebody's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Used {
    /// How many containers have something of it.
    containers: usize,
    /// By device, how many have it: more than one where it was left to be used again.
    devices: BTreeMap<String, usize>,
}

/// What containers have, by pod UID, container and resource. What of a resource is somebody's, and what all of it takes, is counted along:
/// a node has many pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByPod(BTreeMap<String, ByContainer>, BTreeMap<String, Used>, usize);

/// A resource, and devices of it.
pub(super) type Touched = (String, BTreeSet<String>);

impl ByPod {
    /// All of it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &str, &Given)> {
        self.0.iter().flat_map(|(pod, containers)| {
            containers.iter().flat_map(move |(container, resources)| {
                let of = resources.iter();
                of.map(move |(resource, given)| (pod.as_str(), container.as_str(), resource.as_str(), given))
            })
        })
    }

    /// What all of it takes, bytes.
    pub fn weight(&self) -> usize {
        self.2
    }

    /// What a container has for good, by resource.
    pub fn of(&self, pod: &str, container: &str) -> impl Iterator<Item = (&str, &Given)> {
        let own = self.0.get(pod).and_then(|containers| containers.get(container));
        let all = own.into_iter().flatten();
        all.filter(|(_, given)| given.answer.is_some())
            .map(|(resource, given)| (resource.as_str(), given))
    }

    /// What a container has of a resource for good.
    pub fn get(&self, pod: &str, container: &str, resource: &str) -> Option<&Given> {
        let given = self.find(pod, container, resource)?;
        given.answer.is_some().then_some(given)
    }

    fn find(&self, pod: &str, container: &str, resource: &str) -> Option<&Given> {
        self.0.get(pod)?.get(container)?.get(resource)
    }

    /// Whether somebody has something of a resource.
    pub fn has_resource(&self, name: &str) -> bool {
        self.1.contains_key(name)
    }

    /// The devices of a resource that are somebody's, or reserved.
    pub fn of_resource(&self, name: &str) -> impl Iterator<Item = &str> {
        let used = self.1.get(name).into_iter();
        used.flat_map(|used| used.devices.keys().map(String::as_str))
    }

    /// Whether a device is somebody's, or reserved.
    pub fn is_used(&self, name: &str, id: &str) -> bool {
        self.1.get(name).is_some_and(|used| used.devices.contains_key(id))
    }

    /// What one pod has.
    pub(super) fn of_pod(&self, pod: &str) -> Self {
        let mut own = Self::default();
        for (container, resources) in self.0.get(pod).into_iter().flatten() {
            for (resource, given) in resources {
                own.insert(pod, container, resource, given.clone());
            }
        }
        own
    }

    /// Counts what a container has of a resource from now on.
    fn use_for(&mut self, resource: &str, ids: &BTreeSet<String>) {
        let used = self.1.entry(resource.to_owned()).or_default();
        used.containers += 1;
        for id in ids {
            *used.devices.entry(id.clone()).or_default() += 1;
        }
    }

    /// Counts what a container has of a resource no longer.
    fn leave(&mut self, resource: &str, ids: &BTreeSet<String>) {
        let Some(used) = self.1.get_mut(resource) else { return };
        used.containers = used.containers.saturating_sub(1);
        for id in ids {
            if let Some(count) = used.devices.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    used.devices.remove(id);
                }
            }
        }
        if used.containers == 0 {
            self.1.remove(resource);
        }
    }

    /// What is reserved for a container and not its own yet.
    pub(super) fn reserved(&self, pod: &str, container: &str, resource: &str) -> BTreeSet<String> {
        let own = self.find(pod, container, resource);
        own.filter(|given| given.answer.is_none())
            .map(Given::ids)
            .unwrap_or_default()
    }

    /// What everybody but this container has. What is merely promised to others of its pod does not count: they are asked again, after it.
    pub(super) fn of_others(&self, pod: &str, container: &str, name: &str) -> BTreeSet<String> {
        let others = self
            .iter()
            .filter(|(of, in_it, resource, _)| *resource == name && (*of, *in_it) != (pod, container));
        let others = others.filter(|(of, .., given)| *of != pod || given.answer.is_some());
        others.flat_map(|(.., given)| given.ids()).collect_ordered()
    }

    /// Puts something in, in place of what there was; tells which devices are somebody else's than before, or nobody's.
    pub fn insert(&mut self, pod: &str, container: &str, resource: &str, given: Given) -> BTreeSet<String> {
        let mut touched = given.ids();
        self.2 += given.weight();
        self.use_for(resource, &touched);
        let containers = self.0.entry(pod.to_owned()).or_default();
        let resources = containers.entry(container.to_owned()).or_default();
        if let Some(before) = resources.insert(resource.to_owned(), given) {
            self.2 -= before.weight();
            let before = before.ids();
            self.leave(resource, &before);
            touched.extend(before);
        }
        touched
    }

    pub(super) fn answer(&mut self, pod: &str, container: &str, resource: &str, answer: Vec<u8>) -> bool {
        let own = self.0.get_mut(pod).and_then(|containers| containers.get_mut(container));
        let Some(given) = own.and_then(|resources| resources.get_mut(resource)) else {
            return false;
        };
        let before = given.weight();
        given.answer = Some(answer.into());
        self.2 = self.2 + given.weight() - before;
        true
    }

    /// Takes back what is reserved for a container and not its own yet; tells what that was.
    pub(super) fn unreserve(&mut self, pod: &str, container: &str, resource: &str) -> BTreeSet<String> {
        let is_reserved = self
            .find(pod, container, resource)
            .is_some_and(|given| given.answer.is_none());
        let Some(containers) = self.0.get_mut(pod).filter(|_| is_reserved) else {
            return BTreeSet::new();
        };
        let given = containers.get_mut(container).and_then(|of| of.remove(resource));
        containers.retain(|_, resources| !resources.is_empty());
        if containers.is_empty() {
            self.0.remove(pod);
        }
        self.2 -= given.as_ref().map_or(0, Given::weight);
        let left = given.map(|given| given.ids()).unwrap_or_default();
        self.leave(resource, &left);
        left
    }

    /// Takes back what pods have that are not kept; tells what that was, nothing if none of them had anything.
    pub(super) fn retain(&mut self, kept: impl Fn(&str) -> bool) -> Option<Vec<Touched>> {
        let gone: Vec<String> = self.0.keys().filter(|pod| !kept(pod)).cloned().collect();
        let mut left = Vec::new();
        for pod in &gone {
            let containers = self.0.remove(pod).into_iter().flatten();
            for (resource, given) in containers.flat_map(|(_, resources)| resources) {
                let ids = given.ids();
                self.2 -= given.weight();
                self.leave(&resource, &ids);
                left.push((resource, ids));
            }
        }
        (!gone.is_empty()).then_some(left)
    }
}

/// What init containers leave to those that come after them, by resource.
#[derive(Clone, Debug, Default)]
pub struct Reuse {
    left: BTreeMap<String, BTreeSet<String>>,
    none: BTreeSet<String>,
}

impl Reuse {
    /// What is left of a resource.
    pub fn of(&self, resource: &str) -> &BTreeSet<String> {
        self.left.get(resource).unwrap_or(&self.none)
    }

    /// A container of this kind has these devices: an init container leaves them, all others keep them.
    pub fn after(&mut self, kind: Kind, resource: &str, ids: &BTreeSet<String>) {
        let left = self.left.entry(resource.to_owned()).or_default();
        match kind {
            Kind::Init => left.extend(ids.iter().cloned()),
            _ => left.retain(|id| !ids.contains(id)),
        }
    }
}
