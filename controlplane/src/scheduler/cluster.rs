//! The cluster as the scheduler knows it: nodes with what is reserved on them.
//!
//! One task owns it and changes it only between cycles, so it is its own snapshot. Pods are counted from the moment a cycle
//! decides (assumed), not from the moment the API shows it. Pure.

use super::pod::{Amounts, HostPort, PodInfo};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use proto::api::resources;
use std::collections::BTreeMap;
use std::sync::Arc;

const ZONE: &str = "topology.kubernetes.io/zone";

/// A node with what is reserved on it.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// Name.
    pub name: String,
    /// Whether the node object is known (pods may be seen before it, or outlive it).
    pub present: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// What it offers.
    pub allocatable: Amounts,
    /// How many pods it takes.
    pub max_pods: i64,
    /// What its pods request.
    pub requested: Amounts,
    /// CPU and memory its pods count for in scoring.
    pub assumed: (i64, i64),
    /// Its pods by UID.
    pub pods: BTreeMap<String, Arc<PodInfo>>,
    /// Ports in use.
    pub ports: Vec<HostPort>,
    /// Sizes of images it has.
    pub images: BTreeMap<String, i64>,
}

impl NodeInfo {
    fn describe(&mut self, node: &Node) {
        self.present = true;
        self.labels = node.labels().clone();
        let spec = node.spec.as_ref();
        self.taints = spec.and_then(|s| s.taints.clone()).unwrap_or_default();
        self.unschedulable = spec.and_then(|s| s.unschedulable).unwrap_or(false);
        let status = node.status.as_ref();
        let list = resources::parse_list(status.and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref())));
        self.max_pods = list.get("pods").map_or(0, |q| q.value());
        self.allocatable = Amounts::from_list(&list);
        let images = status.and_then(|s| s.images.as_ref()).into_iter().flatten();
        let names = images.flat_map(|i| i.names.iter().flatten().map(|n| (n.clone(), i.size_bytes.unwrap_or(0))));
        self.images = names.collect();
    }

    fn count(&mut self, pod: &PodInfo, sign: i64) {
        self.requested.add(&pod.requests, sign);
        self.assumed.0 += sign * pod.assumed.0;
        self.assumed.1 += sign * pod.assumed.1;
    }

    fn insert(&mut self, pod: Arc<PodInfo>) {
        self.remove(&pod.uid);
        self.count(&pod, 1);
        self.ports.extend(pod.ports.iter().cloned());
        self.pods.insert(pod.uid.clone(), pod);
    }

    fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.count(&pod, -1);
        for port in &pod.ports {
            if let Some(at) = self.ports.iter().position(|p| p == port) {
                self.ports.swap_remove(at);
            }
        }
        Some(pod)
    }
}

/// What a node update can make possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// Nothing a cycle asks for.
    Nothing,
    /// Pods that did not fit may fit now.
    Relevant,
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Nodes; a removed one leaves a free slot.
    slots: Vec<NodeInfo>,
    free: Vec<usize>,
    index: BTreeMap<String, usize>,
    /// Where each counted pod is.
    places: BTreeMap<String, usize>,
    /// Those of them that keep other pods away, by UID.
    repelling: BTreeMap<String, Arc<PodInfo>>,
    /// Labels of namespaces.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Slots of present nodes, zones taking turns.
    order: Vec<usize>,
    stale_order: bool,
    /// How many nodes have each image.
    images: BTreeMap<String, i64>,
}

impl Cluster {
    fn slot(&mut self, name: &str) -> usize {
        if let Some(slot) = self.index.get(name) {
            return *slot;
        }
        let info = NodeInfo {
            name: name.to_owned(),
            ..NodeInfo::default()
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = info;
                slot
            }
            None => {
                self.slots.push(info);
                self.slots.len() - 1
            }
        };
        self.index.insert(name.to_owned(), slot);
        slot
    }

    fn release_if_unused(&mut self, slot: usize) {
        let info = &self.slots[slot];
        if !info.present && info.pods.is_empty() {
            self.index.remove(&info.name);
            self.free.push(slot);
        }
    }

    fn forget_images(&mut self, images: BTreeMap<String, i64>) {
        for image in images.into_keys() {
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
        let info = &mut self.slots[slot];
        let before = info.present.then(|| info.description());
        let had = std::mem::take(&mut info.images);
        info.describe(node);
        let after = info.description();
        for image in info.images.keys() {
            *self.images.entry(image.clone()).or_default() += 1;
        }
        self.forget_images(had);
        match before {
            Some(before) if before == after => NodeChange::Nothing,
            before => {
                self.stale_order |= before.is_none_or(|b| b.labels.get(ZONE) != after.labels.get(ZONE));
                NodeChange::Relevant
            }
        }
    }

    /// Forgets a node. Its pods stay counted until they are gone too.
    pub fn remove_node(&mut self, name: &str) {
        let Some(&slot) = self.index.get(name) else { return };
        let info = &mut self.slots[slot];
        info.present = false;
        let images = std::mem::take(&mut info.images);
        self.forget_images(images);
        self.release_if_unused(slot);
        self.stale_order = true;
    }

    /// Counts a pod on a node, wherever it was counted before.
    pub fn place(&mut self, pod: Arc<PodInfo>, node: &str) {
        let slot = self.slot(node);
        if self.places.get(&pod.uid).is_some_and(|at| *at != slot) {
            self.remove_pod(&pod.uid);
        }
        self.places.insert(pod.uid.clone(), slot);
        match pod.repelled.is_empty() {
            true => self.repelling.remove(&pod.uid),
            false => self.repelling.insert(pod.uid.clone(), Arc::clone(&pod)),
        };
        self.slots[slot].insert(pod);
    }

    /// Stops counting a pod; tells on which node it was.
    pub fn remove_pod(&mut self, uid: &str) -> Option<String> {
        let slot = self.places.remove(uid)?;
        self.repelling.remove(uid);
        self.slots[slot].remove(uid);
        let name = self.slots[slot].name.clone();
        self.release_if_unused(slot);
        Some(name)
    }

    /// A counted pod.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.slots[*self.places.get(uid)?].pods.get(uid)
    }

    /// Counted pods that keep other pods away, each with its node.
    pub fn repelling(&self) -> impl Iterator<Item = (&PodInfo, &NodeInfo)> {
        let with_node = |pod| self.node_of(pod).filter(|node| node.present).map(|node| (pod, node));
        self.repelling.values().map(Arc::as_ref).filter_map(with_node)
    }

    /// Whether a pod on the node keeps other pods away.
    pub fn repels_from(&self, node: &str) -> bool {
        let on_it = |pod: &Arc<PodInfo>| self.node_of(pod).is_some_and(|found| found.name == node);
        self.repelling.values().any(on_it)
    }

    fn node_of(&self, pod: &PodInfo) -> Option<&NodeInfo> {
        self.places.get(&pod.uid).and_then(|slot| self.slots.get(*slot))
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
        let mut zones: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for slot in self.index.values().filter(|slot| self.slots[**slot].present) {
            let zone = self.slots[*slot].labels.get(ZONE).map_or("", String::as_str);
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
    allocatable: Amounts,
    max_pods: i64,
}

impl NodeInfo {
    fn description(&self) -> Description {
        Description {
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            unschedulable: self.unschedulable,
            allocatable: self.allocatable.clone(),
            max_pods: self.max_pods,
        }
    }
}
