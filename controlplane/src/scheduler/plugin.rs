//! Plugins under upstream's names, at upstream's extension points. Pure: a pod and a node in, a verdict or a score out.

use super::cluster::NodeInfo;
use super::pod::PodInfo;
use std::borrow::Cow;

pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod taint_toleration;

/// Why a node will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Upstream's plugin name.
    pub plugin: &'static str,
    /// Upstream's reasons.
    pub reasons: Vec<Cow<'static, str>>,
    /// Whether removing pods from the node could help.
    pub resolvable: bool,
}

impl Rejection {
    /// A rejection that removing pods cannot change.
    pub fn fixed(plugin: &'static str, reason: &'static str) -> Self {
        Self {
            plugin,
            reasons: vec![Cow::Borrowed(reason)],
            resolvable: false,
        }
    }
}

type Filter = fn(&PodInfo, &NodeInfo) -> Result<(), Rejection>;

/// The filters that need the pod and the node alone, in upstream's order; [`inter_pod_affinity`] comes after them.
const FILTERS: [Filter; 6] = [
    node_unschedulable::filter,
    node_name::filter,
    taint_toleration::filter,
    node_affinity::filter,
    node_ports::filter,
    node_resources_fit::filter,
];

/// Whether the pod may run on the node; the first plugin that refuses decides.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    FILTERS.iter().try_for_each(|filter| filter(pod, node))
}

/// Scales scores so that the highest becomes 100; reversed, so that the highest becomes 0.
pub fn normalize(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let share = if max == 0 { 0 } else { 100 * *score / max };
        *score = if reverse { 100 - share } else { share };
    }
}

#[cfg(test)]
mod tests;
