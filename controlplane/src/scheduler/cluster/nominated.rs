//! Pods that evicted others from a node and wait for the room there. Pure.

use super::super::pod::PodInfo;
use super::topology::Needed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who waits for which node.
#[derive(Debug, Default)]
pub struct Nominations {
    by_node: BTreeMap<String, BTreeMap<String, Arc<PodInfo>>>,
    /// By UID of the pod.
    nodes: BTreeMap<String, String>,
    /// Labels of nodes that their terms name.
    needed: Needed,
}

impl Nominations {
    /// The pod waits for that node, and for no other.
    pub fn set(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove(&pod.uid);
        self.nodes.insert(pod.uid.clone(), node.to_owned());
        pod.terms.all().for_each(|term| self.needed.add(&term.topology_key));
        let waiting = self.by_node.entry(node.to_owned()).or_default();
        waiting.insert(pod.uid.clone(), pod);
    }

    /// The pod waits for no node any more; tells for which it did.
    pub fn remove(&mut self, uid: &str) -> Option<String> {
        let node = self.nodes.remove(uid)?;
        if let Some(waiting) = self.by_node.get_mut(&node) {
            if let Some(pod) = waiting.remove(uid) {
                pod.terms.all().for_each(|term| self.needed.remove(&term.topology_key));
            }
            if waiting.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(node)
    }

    /// Labels of nodes that rules of nominated pods name.
    pub fn needed(&self) -> &Needed {
        &self.needed
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node the pod waits for.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.nodes.get(uid).map(String::as_str)
    }

    /// Pods that wait for the node.
    pub fn on(&self, node: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.by_node.get(node).into_iter().flat_map(BTreeMap::values)
    }
}
