//! Pods that evicted others from a node and wait for the room there. Pure.

use super::super::pod::PodInfo;
use super::topology::Needed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who waited, and for which node.
pub type Waited = (Arc<PodInfo>, String);

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
    /// The pod waits for that node, and for no other; tells for which other it did, and as what.
    pub fn set(&mut self, pod: Arc<PodInfo>, node: &str) -> Option<Waited> {
        let before = self.remove(&pod.uid);
        self.nodes.insert(pod.uid.clone(), node.to_owned());
        pod.terms.all().for_each(|term| self.needed.add(&term.topology_key));
        let waiting = self.by_node.entry(node.to_owned()).or_default();
        waiting.insert(pod.uid.clone(), pod);
        before.filter(|(_, other)| other != node)
    }

    /// The pod waits for no node any more; tells for which it did, and as what.
    pub fn remove(&mut self, uid: &str) -> Option<Waited> {
        let node = self.nodes.remove(uid)?;
        let waiting = self.by_node.get_mut(&node)?;
        let pod = waiting.remove(uid)?;
        if waiting.is_empty() {
            self.by_node.remove(&node);
        }
        pod.terms.all().for_each(|term| self.needed.remove(&term.topology_key));
        Some((pod, node))
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
