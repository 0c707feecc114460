//! InterPodAffinity, as far as it is evaluated: pods that have a node keep others out of their topology domain by required
//! anti-affinity. What the pod itself demands is in [`constraint`](crate::scheduler::constraint).

use super::Rejection;
use crate::scheduler::cluster::{Cluster, NodeInfo};
use crate::scheduler::pod::PodInfo;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Topology domains that a pod may not enter: label and value of their nodes.
#[derive(Clone, Debug, Default)]
pub struct Closed(BTreeSet<(String, String)>);

/// The domains that pods with a node keep the pod out of. A repelling pod whose node is unknown, or lacks the label, has none.
pub fn closed_to(pod: &PodInfo, cluster: &Cluster) -> Closed {
    let own_namespace = cluster.namespace_labels(&pod.key.namespace);
    let mut closed = BTreeSet::new();
    for (other, node) in cluster.repelling() {
        for term in &other.repelled {
            if let Some(value) = node.labels.get(&term.topology_key)
                && term.is_about(pod, own_namespace)
            {
                closed.insert((term.topology_key.clone(), value.clone()));
            }
        }
    }
    Closed(closed)
}

/// Refuses nodes in a closed domain.
pub fn filter(closed: &Closed, node: &NodeInfo) -> Result<(), Rejection> {
    if !closed
        .0
        .iter()
        .any(|(label, value)| node.labels.get(label) == Some(value))
    {
        return Ok(());
    }
    Err(Rejection {
        plugin: "InterPodAffinity",
        reasons: vec![Cow::Borrowed(
            "node(s) didn't satisfy existing pods anti-affinity rules",
        )],
        resolvable: true,
    })
}
