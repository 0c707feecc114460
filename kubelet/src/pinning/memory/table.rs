//! How much of which NUMA node is whose: the node's bookkeeping of the static memory policy, as upstream's state file shows it. Pure.

use super::Block;
use crate::pinning::hint::NumaMask;
use std::collections::BTreeMap;

/// One resource of one NUMA node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// All there is.
    pub total: u64,
    /// What the system keeps.
    pub system_reserved: u64,
    /// What containers can have.
    pub allocatable: u64,
    /// What of that they have.
    pub reserved: u64,
    /// What of that they do not.
    pub free: u64,
}

impl Table {
    /// One of which nobody has anything.
    pub fn new(total: u64, system_reserved: u64, allocatable: u64) -> Self {
        Self {
            total,
            system_reserved,
            allocatable,
            reserved: 0,
            free: allocatable,
        }
    }
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// How many blocks are of it.
    pub assignments: usize,
    /// By resource.
    pub memory: BTreeMap<String, Table>,
    /// The nodes of the group it belongs to; itself alone if it is in none.
    pub cells: NumaMask,
}

impl Node {
    /// One of which nobody has anything.
    pub fn new(id: u32, memory: BTreeMap<String, Table>) -> Self {
        Self {
            assignments: 0,
            memory,
            cells: NumaMask::of([id]),
        }
    }
}

/// All NUMA nodes, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables(pub BTreeMap<u32, Node>);

impl Tables {
    /// Whether these nodes may serve somebody together: one that is in no group, or nodes that serve nobody, or just such a group.
    pub fn serves(&self, numas: NumaMask) -> bool {
        let mut nodes = self.of(numas);
        match numas.len() {
            1 => nodes.all(|node| node.cells.len() <= 1),
            _ => nodes.all(|node| node.assignments == 0 || node.cells == numas),
        }
    }

    /// What is free of a resource, all together.
    pub fn free(&self, numas: NumaMask, resource: &str) -> u64 {
        self.sum(numas, resource, |table| table.free)
    }

    /// What containers could have of it if nobody had anything.
    pub fn allocatable(&self, numas: NumaMask, resource: &str) -> u64 {
        self.sum(numas, resource, |table| table.allocatable)
    }

    /// Gives a block, of the lowest node as much as it has; whether there was enough.
    pub fn take(&mut self, block: &Block) -> bool {
        let mut missing = block.bytes;
        for id in block.numas.ids() {
            let Some(node) = self.0.get_mut(&id) else { continue };
            node.assignments += 1;
            node.cells = block.numas;
            let Some(table) = node.memory.get_mut(&block.resource) else {
                continue;
            };
            let taken = missing.min(table.free);
            table.reserved += taken;
            table.free -= taken;
            missing -= taken;
        }
        missing == 0
    }

    /// Takes back a block of one node, as if it had never been given. `false`, and nothing is sure any more, where that cannot be told:
    /// which node of a group has how much of a block is not noted.
    pub fn take_back(&mut self, block: &Block) -> bool {
        let mut ids = block.numas.ids();
        let (Some(id), None) = (ids.next(), ids.next()) else {
            return false;
        };
        let alone = self.0.get_mut(&id).filter(|node| node.cells == block.numas);
        let Some(node) = alone else { return false };
        let Some(table) = node.memory.get_mut(&block.resource) else {
            return false;
        };
        let (Some(assignments), Some(reserved)) =
            (node.assignments.checked_sub(1), table.reserved.checked_sub(block.bytes))
        else {
            return false;
        };
        node.assignments = assignments;
        table.reserved = reserved;
        table.free += block.bytes;
        true
    }

    /// Whether another kubelet's bookkeeping says the same. Which node of a group has how much of what the group gave makes no
    /// difference.
    pub fn agrees(&self, other: &Self) -> bool {
        let same = |(id, node): (&u32, &Node)| {
            let Some(found) = other.0.get(id) else { return false };
            let sums = |of: &Self, resource: &str| {
                let reserved = of.sum(node.cells, resource, |table| table.reserved);
                (of.free(node.cells, resource), reserved)
            };
            let same_table = |(resource, table): (&String, &Table)| {
                let Some(found) = found.memory.get(resource) else {
                    return false;
                };
                let fixed = |table: &Table| (table.total, table.system_reserved, table.allocatable);
                fixed(table) == fixed(found) && sums(self, resource) == sums(other, resource)
            };
            (found.assignments, found.cells) == (node.assignments, node.cells)
                && found.memory.len() == node.memory.len()
                && node.memory.iter().all(same_table)
        };
        self.0.len() == other.0.len() && self.0.iter().all(same)
    }

    fn of(&self, numas: NumaMask) -> impl Iterator<Item = &Node> {
        self.0
            .iter()
            .filter(move |(id, _)| numas.has(**id))
            .map(|(_, node)| node)
    }

    fn sum(&self, numas: NumaMask, resource: &str, of: impl Fn(&Table) -> u64) -> u64 {
        let tables = self.of(numas).filter_map(|node| node.memory.get(resource));
        tables.fold(0, |sum, table| sum.saturating_add(of(table)))
    }
}
