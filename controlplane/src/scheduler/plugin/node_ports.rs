//! NodePorts: a host port is had once per node, address and protocol.

use super::Rejection;
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;
use std::borrow::Cow;

/// Refuses nodes where a wanted port is taken.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let taken = pod
        .ports
        .iter()
        .any(|want| node.ports.iter().any(|have| have.conflicts(want)));
    if !taken {
        return Ok(());
    }
    Err(Rejection {
        plugin: "NodePorts",
        reasons: vec![Cow::Borrowed(
            "node(s) didn't have free ports for the requested pod ports",
        )],
        resolvable: true,
    })
}
