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

    /// The devices.
    pub fn ids(&self) -> BTreeSet<String> {
        self.by_node.values().flatten().cloned().collect_ordered()
    }
}

type ByResource = BTreeMap<String, Given>;
type ByContainer = BTreeMap<String, ByResource>;

/// What containers have, by pod UID, container and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByPod(BTreeMap<String, ByContainer>);

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
        self.iter().any(|(_, _, resource, _)| resource == name)
    }

    /// The devices of a resource that are somebody's, or reserved.
    pub fn of_resource(&self, name: &str) -> BTreeSet<&str> {
        let own = self.iter().filter(|(_, _, resource, _)| *resource == name);
        own.flat_map(|(.., given)| given.by_node.values().flatten().map(String::as_str))
            .collect_ordered()
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

    /// Puts something in, in place of what there was.
    pub fn insert(&mut self, pod: &str, container: &str, resource: &str, given: Given) {
        let containers = self.0.entry(pod.to_owned()).or_default();
        let resources = containers.entry(container.to_owned()).or_default();
        resources.insert(resource.to_owned(), given);
    }

    pub(super) fn answer(&mut self, pod: &str, container: &str, resource: &str, answer: Vec<u8>) -> bool {
        let own = self.0.get_mut(pod).and_then(|containers| containers.get_mut(container));
        let Some(given) = own.and_then(|resources| resources.get_mut(resource)) else {
            return false;
        };
        given.answer = Some(answer.into());
        true
    }

    pub(super) fn unreserve(&mut self, pod: &str, container: &str, resource: &str) {
        let Some(containers) = self.0.get_mut(pod) else { return };
        if let Some(resources) = containers.get_mut(container) {
            resources.retain(|name, given| name != resource || given.answer.is_some());
        }
        containers.retain(|_, resources| !resources.is_empty());
        self.0.retain(|_, containers| !containers.is_empty());
    }

    pub(super) fn retain(&mut self, kept: impl Fn(&str) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|pod, _| kept(pod));
        self.0.len() < before
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
