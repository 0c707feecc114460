//! The cluster as the scheduler knows it: nodes with what is reserved on them.
//!
//! One task owns it and changes it only between cycles, so it is its own snapshot. Pods are counted from the moment a cycle
//! decides (assumed), not from the moment the API shows it. Pure.

mod changes;
mod index;
mod nominated;
mod room;
mod topology;

pub use index::{BySlot, PodIndex};
pub use nominated::{Nominations, Waited};
pub use room::{Room, clamped};
pub use topology::{Column, NO_DOMAIN, Topology};

use self::changes::Changes;
use super::judged::Memory;
use super::plugin::node_declared_features::Features;
use super::pod::{Amounts, PodInfo};
use crate::held::{Node, Pod};
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;
use proto::api::resources;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Labels by whose values nodes take turns: a zone's name may be used in several regions.
const ORDERING: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// A node with what is reserved on it.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// Name.
    pub name: String,
    /// Where it stands among the nodes: what columns and indexes call it.
    pub slot: usize,
    /// Whether the node object is known (pods may be seen before it, or outlive it).
    pub present: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// What it says that it can.
    pub features: Features,
    /// What it offers.
    pub allocatable: Amounts,
    /// How many pods it takes.
    pub max_pods: i64,
    /// What of it is taken.
    pub room: Room,
    /// Its pods by UID.
    pub pods: BTreeMap<String, Arc<PodInfo>>,
    /// Names and sizes of images it has, in order; names are the cluster's.
    pub images: Vec<(Arc<str>, i64)>,
}

impl NodeInfo {
    fn describe(&mut self, node: &Node) {
        self.present = true;
        self.labels = node.labels().clone();
        let spec = node.spec.as_ref();
        self.taints = spec.and_then(|s| s.taints.clone()).unwrap_or_default();
        self.unschedulable = spec.and_then(|s| s.unschedulable).unwrap_or(false);
        let status = node.status.as_ref();
        let declared = status.and_then(|s| s.declared_features.as_ref());
        self.features = Features::named(declared.into_iter().flatten());
        let list = resources::parse_list(status.and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref())));
        self.max_pods = list.get("pods").map_or(0, |q| q.value());
        self.allocatable = Amounts::from_list(&list);
    }

    /// The size of an image that it has.
    pub fn image(&self, name: &str) -> Option<i64> {
        let at = self.images.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(self.images[at].1)
    }

    fn insert(&mut self, pod: Arc<PodInfo>) {
        self.remove(&pod.uid);
        self.room.add(&pod);
        self.pods.insert(pod.uid.clone(), pod);
    }

    fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.room.remove(&pod);
        Some(pod)
    }
}

/// What an update of a node changed that a cycle asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// Nothing.
    Nothing,
    /// The node is there now.
    Added,
    /// Something; these were its labels.
    Updated(BTreeMap<String, String>),
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Nodes; a removed one leaves a free slot, unless it is the last.
    slots: Vec<NodeInfo>,
    changes: Changes,
    free: BTreeSet<usize>,
    /// How many are present.
    nodes: usize,
    index: BTreeMap<String, usize>,
    /// Where each counted pod is.
    places: BTreeMap<String, usize>,
    /// Labels of namespaces.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Slots of present nodes, zones taking turns.
    order: Vec<usize>,
    stale_order: bool,
    /// How many nodes have each image.
    images: BTreeMap<Arc<str>, i64>,
    /// Domains of the labels that rules name.
    topology: Topology,
    /// Placed pods by what rules ask of them.
    pods: PodIndex,
    /// Who waits for room on which node.
    pub nominated: Nominations,
    /// Pods that are being evicted for others, by UID, from the decision until they are gone.
    pub doomed: BTreeSet<String>,
    /// What was said of nodes for pods that are alike.
    pub judged: Memory,
}

impl Cluster {
    /// The number of the node's last change, by slot: as long as it stays, all stays that a plugin can ask of the node alone.
    pub fn change(&self, slot: usize) -> u64 {
        self.changes.of(slot)
    }

    fn slot(&mut self, name: &str) -> usize {
        if let Some(slot) = self.index.get(name) {
            return *slot;
        }
        let info = NodeInfo {
            name: name.to_owned(),
            ..NodeInfo::default()
        };
        let slot = match self.free.pop_first() {
            Some(slot) => {
                self.slots[slot] = info;
                slot
            }
            None => {
                self.slots.push(info);
                self.slots.len() - 1
            }
        };
        self.slots[slot].slot = slot;
        self.changes.note(slot);
        self.index.insert(name.to_owned(), slot);
        slot
    }

    fn release_if_unused(&mut self, slot: usize) {
        let info = &self.slots[slot];
        if !info.present && info.pods.is_empty() {
            self.index.remove(&info.name);
            self.free.insert(slot);
            while self.free.last().is_some_and(|last| last + 1 == self.slots.len()) {
                self.free.pop_last();
                self.slots.pop();
            }
        }
    }

    /// The images of a node, each counted once more: names that many nodes have are held once.
    fn take_images(&mut self, node: &Node) -> Vec<(Arc<str>, i64)> {
        let images = node.status.as_ref().and_then(|status| status.images.as_ref());
        let sizes: BTreeMap<&str, i64> = images
            .into_iter()
            .flatten()
            .flat_map(|image| {
                let names = image.names.iter().flatten();
                names.map(|name| (name.as_str(), image.size_bytes.unwrap_or(0)))
            })
            .collect();
        let each = sizes.into_iter().map(|(name, size)| {
            let known = self.images.get_key_value(name).map(|(known, _)| Arc::clone(known));
            let name = known.unwrap_or_else(|| Arc::from(name));
            *self.images.entry(Arc::clone(&name)).or_default() += 1;
            (name, size)
        });
        each.collect()
    }

    fn forget_images(&mut self, images: Vec<(Arc<str>, i64)>) {
        for (image, _) in images {
            if let Some(count) = self.images.get_mut(&image) {
                *count -= 1;
                if *count == 0 {
                    self.images.remove(&image);
                }
            }
        }
    }

    /// Takes in a node as it is now.
    pub fn set_node(&mut self, node: &Node) -> NodeChange {
        let slot = self.slot(&node.name_any());
        let images = self.take_images(node);
        self.changes.note(slot);
        let info = &mut self.slots[slot];
        let before = info.present.then(|| info.description());
        let had = std::mem::replace(&mut info.images, images);
        info.describe(node);
        let after = info.description();
        self.forget_images(had);
        match before {
            Some(before) if before == after => NodeChange::Nothing,
            Some(before) => {
                self.stale_order |= ORDERING
                    .iter()
                    .any(|key| before.labels.get(*key) != after.labels.get(*key));
                self.topology.set_node(slot, Some(&after.labels));
                NodeChange::Updated(before.labels)
            }
            None => {
                self.nodes += 1;
                self.stale_order = true;
                self.topology.set_node(slot, Some(&after.labels));
                NodeChange::Added
            }
        }
    }

    /// Forgets a node. Its pods stay counted until they are gone too.
    pub fn remove_node(&mut self, name: &str) {
        let Some(&slot) = self.index.get(name) else { return };
        self.changes.note(slot);
        let info = &mut self.slots[slot];
        self.nodes -= usize::from(info.present);
        info.present = false;
        let images = std::mem::take(&mut info.images);
        self.forget_images(images);
        self.topology.set_node(slot, None);
        self.release_if_unused(slot);
        self.stale_order = true;
    }

    /// What cycles ask of a pod; what it has in common with counted ones is shared with them.
    pub fn describe(&self, pod: Arc<Pod>) -> PodInfo {
        let mut info = PodInfo::new(pod);
        if let Some(kin) = self.pods.alike(&info) {
            info.kin = kin;
        }
        info
    }

    /// Counts a pod on a node, wherever it was counted or nominated before; tells for which other node it waited.
    pub fn place(&mut self, pod: Arc<PodInfo>, node: &str) -> Option<Waited> {
        let slot = self.slot(node);
        let mut is_counted = false;
        match self.places.get(&pod.uid) {
            Some(at) if *at != slot => drop(self.uncount(&pod.uid)),
            Some(_) => {
                if let Some(old) = self.slots[slot].pods.get(&pod.uid) {
                    // Mostly the API confirms what was assumed.
                    is_counted = PodIndex::counts_alike(old, &pod);
                    if !is_counted {
                        self.pods.count(old, slot, -1);
                    }
                }
            }
            None => {}
        }
        let waited = self.nominated.remove(&pod.uid);
        for term in pod.terms.all() {
            self.know(&term.topology_key);
        }
        self.places.insert(pod.uid.clone(), slot);
        if !is_counted {
            self.pods.count(&pod, slot, 1);
        }
        self.slots[slot].insert(pod);
        self.changes.note(slot);
        waited.filter(|(_, other)| other != node)
    }

    fn uncount(&mut self, uid: &str) -> Option<(Arc<PodInfo>, usize)> {
        let slot = self.places.remove(uid)?;
        let pod = self.slots[slot].remove(uid)?;
        self.changes.note(slot);
        self.pods.count(&pod, slot, -1);
        self.release_if_unused(slot);
        Some((pod, slot))
    }

    /// Stops counting a pod that is gone, or done; tells on which node it was.
    pub fn remove_pod(&mut self, uid: &str) -> Option<(Arc<PodInfo>, String)> {
        self.doomed.remove(uid);
        let slot = *self.places.get(uid)?;
        let name = self.slots[slot].name.clone();
        self.uncount(uid).map(|(pod, _)| (pod, name))
    }

    /// The pod waits for room on that node, once others have left it; tells for which other it did.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) -> Option<Waited> {
        for term in pod.terms.all() {
            self.know(&term.topology_key);
        }
        self.nominated.set(pod, node)
    }

    fn know(&mut self, label: &str) {
        let present = self.slots.iter().filter(|node| node.present);
        self.topology.know(label, present.map(|node| (node.slot, &node.labels)));
    }

    /// Makes the domains of these labels known; call before a cycle asks for them.
    pub fn know_all<'l>(&mut self, labels: impl Iterator<Item = &'l str>) {
        self.topology.limit([self.pods.needed(), self.nominated.needed()]);
        labels.for_each(|label| self.know(label));
    }

    /// Domains of the labels that are known.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Placed pods by what rules ask of them.
    pub fn index(&self) -> &PodIndex {
        &self.pods
    }

    /// All slots are below it.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The nodes there are, in the order of slots.
    pub fn present(&self) -> impl Iterator<Item = &NodeInfo> {
        self.slots.iter().filter(|node| node.present)
    }

    /// How many nodes there are, and how many pods are counted.
    pub fn sizes(&self) -> (usize, usize) {
        (self.nodes, self.places.len())
    }

    /// Where a pod is counted.
    pub fn node_of(&self, uid: &str) -> Option<&NodeInfo> {
        self.places.get(uid).map(|slot| &self.slots[*slot])
    }

    /// A newer state of a counted pod that is no other to cycles ([`PodInfo::is_as`]): the one that all others let go of is not kept.
    pub fn renew(&mut self, uid: &str, pod: Arc<Pod>) {
        let slot = self.places.get(uid).map(|slot| &mut self.slots[*slot]);
        if let Some(info) = slot.and_then(|node| node.pods.get_mut(uid)) {
            Arc::make_mut(info).pod = pod;
        }
    }

    /// A counted pod.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.slots[*self.places.get(uid)?].pods.get(uid)
    }

    /// Takes in a namespace's labels (`None`: it is gone); tells whether they are others than before.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) -> bool {
        match labels {
            Some(labels) if self.namespaces.get(name) == Some(&labels) => false,
            Some(labels) => {
                self.namespaces.insert(name.to_owned(), labels);
                true
            }
            None => self.namespaces.remove(name).is_some(),
        }
    }

    /// A namespace's labels; none if it is not known.
    pub fn namespace_labels(&self, name: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.namespaces.get(name).unwrap_or(&NONE)
    }

    /// A node by name.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.index.get(name).map(|slot| &self.slots[*slot])
    }

    /// A node by slot.
    pub fn at(&self, slot: usize) -> &NodeInfo {
        &self.slots[slot]
    }

    /// How many present nodes have an image.
    pub fn nodes_with_image(&self, image: &str) -> i64 {
        self.images.get(image).copied().unwrap_or(0)
    }

    /// Brings the visiting order up to date; call before [`Cluster::order`].
    pub fn refresh(&mut self) {
        if std::mem::take(&mut self.stale_order) {
            self.order = self.interleave();
        }
    }

    /// Slots of present nodes in the order cycles visit them: zones take turns.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    fn interleave(&self) -> Vec<usize> {
        let mut zones: BTreeMap<[&str; 2], Vec<usize>> = BTreeMap::new();
        for slot in self.index.values().filter(|slot| self.slots[**slot].present) {
            let labels = &self.slots[*slot].labels;
            let zone = ORDERING.map(|key| labels.get(key).map_or("", String::as_str));
            zones.entry(zone).or_default().push(*slot);
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or(0);
        let turn = |i: usize| zones.values().filter_map(move |z| z.get(i).copied());
        (0..longest).flat_map(turn).collect()
    }
}

/// What a node says of itself, without what is reserved on it.
#[derive(PartialEq)]
struct Description {
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    unschedulable: bool,
    features: Features,
    allocatable: Amounts,
    max_pods: i64,
}

impl NodeInfo {
    fn description(&self) -> Description {
        Description {
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            unschedulable: self.unschedulable,
            features: self.features,
            allocatable: self.allocatable.clone(),
            max_pods: self.max_pods,
        }
    }
}
