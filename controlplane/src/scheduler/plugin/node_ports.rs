//! NodePorts: a host port is had once per node, address and protocol.

use super::{Plugin, Rejection};
use crate::scheduler::cluster::Room;
use crate::scheduler::pod::PodInfo;

/// Refuses nodes where a wanted port is taken.
pub fn filter(pod: &PodInfo, room: &Room) -> Result<(), Rejection> {
    if !pod.ports.iter().any(|want| want.is_taken(&room.ports)) {
        return Ok(());
    }
    Err(Rejection::resolvable(
        Plugin::NodePorts,
        "node(s) didn't have free ports for the requested pod ports",
    ))
}
