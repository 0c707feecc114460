//! NodeName: a pod that names its node goes nowhere else.

use super::{Plugin, Rejection};
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;

/// Refuses other nodes.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if pod.node().is_empty() || pod.node() == node.name {
        return Ok(());
    }
    Err(Rejection::fixed(
        Plugin::NodeName,
        "node(s) didn't match the requested node name",
    ))
}
