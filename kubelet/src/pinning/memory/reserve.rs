//! What of each NUMA node's memory is kept from containers (`reservedMemory`). Pure.

use super::{Amounts, MEMORY};
use crate::pinning::topology::NodeMemory;
use proto::api::quantity::{Format, Quantity};
use std::collections::BTreeMap;

/// What is kept of each node.
pub type Reserved = BTreeMap<u32, Amounts>;

/// One item of `reservedMemory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// `numaNode`.
    pub node: u32,
    /// By resource; no resource of a node is in two items.
    pub limits: BTreeMap<String, Quantity>,
}

/// Why that does not go together with the rest of the configuration, or the machine; in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The machine has no such node.
    #[error("the reserved memory configuration references a NUMA node {0} that does not exist on this machine")]
    NoNode(u32),
    /// All nodes together keep more or less than the node keeps.
    #[error(
        "the total amount \"{reserved}\" of type {resource:?} is not equal to the value \"{kept}\" determined by Node Allocatable feature"
    )]
    Sum {
        /// All nodes together.
        reserved: Quantity,
        /// The resource.
        resource: String,
        /// `kubeReserved`, `systemReserved` and hard eviction together.
        kept: Quantity,
    },
}

/// What is reserved of each NUMA node of a machine that keeps `kept` bytes of memory from pods in all.
///
/// # Errors
/// The reservations are of other nodes, or not as much as that.
pub fn reserve(
    machine: &BTreeMap<u32, NodeMemory>,
    reservations: &[Reservation],
    kept: i64,
) -> Result<Reserved, ReserveError> {
    let mut sums: BTreeMap<&str, Quantity> = [(MEMORY, Quantity::ZERO)].into();
    let mut reserved: Reserved = BTreeMap::new();
    for reservation in reservations {
        if !machine.contains_key(&reservation.node) {
            return Err(ReserveError::NoNode(reservation.node));
        }
        let own = reserved.entry(reservation.node).or_default();
        for (resource, amount) in &reservation.limits {
            let sum = sums.entry(resource).or_insert(Quantity::ZERO);
            *sum = sum.plus(*amount);
            own.insert(resource.clone(), u64::try_from(amount.value()).unwrap_or(0));
        }
    }
    for (resource, sum) in sums {
        // Huge pages are nothing that the node could keep.
        let kept = match resource {
            MEMORY => Quantity::ZERO.plus(Quantity::from_units(kept, Format::BinarySi)),
            _ => Quantity::ZERO,
        };
        if sum != kept {
            let (reserved, resource) = (sum, resource.to_owned());
            return Err(ReserveError::Sum {
                reserved,
                resource,
                kept,
            });
        }
    }
    Ok(reserved)
}
