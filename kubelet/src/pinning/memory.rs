//! The static memory policy: which NUMA nodes' memory and huge pages the containers of Guaranteed pods have to themselves (kubelet
//! contract §8, KEP-1769). Pure.
//!
//! What is reserved for the system is never given. Containers have theirs of one NUMA node each, or of a group of nodes that serves
//! nobody but containers of just that group: so nothing of a node is promised twice. Memory of an init container is given again to
//! those after it; a sidecar keeps its own. How much of which node is whose follows from the blocks alone ([`table`]).

pub mod draft;
pub mod reserve;
pub mod state;
pub mod table;
#[cfg(test)]
mod tests;

use super::hint::NumaMask;
use super::topology::NodeMemory;
use draft::Draft;
use reserve::Reserved;
use std::collections::BTreeMap;
use table::{Node, Table, Tables};

/// Upstream's name of the resource that is no huge page.
pub const MEMORY: &str = "memory";

/// Bytes by resource: `memory`, `hugepages-2Mi`.
pub type Amounts = BTreeMap<String, u64>;

/// What one container has of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The NUMA nodes it is of.
    pub numas: NumaMask,
    /// `memory`, `hugepages-2Mi`.
    pub resource: String,
    /// How much; less than the container asked for where later ones were given some of it again.
    pub bytes: u64,
}

/// What containers have, by pod UID and container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments(pub BTreeMap<String, BTreeMap<String, Vec<Block>>>);

/// Why the policy cannot be, or what was left by an earlier kubelet does not fit it; in upstream's words where it has any.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Nothing is reserved.
    #[error("[memorymanager] you should specify the system reserved memory")]
    NothingReserved,
    /// A NUMA node has less than is reserved of it.
    #[error("[memorymanager] NUMA node {node} has {has} bytes of {resource}, of which {reserved} cannot be reserved")]
    Short {
        /// The node.
        node: u32,
        /// The resource.
        resource: String,
        /// What it has, without its huge pages.
        has: u64,
        /// What is reserved.
        reserved: u64,
    },
    /// Containers have something of an unknown machine.
    #[error("[memorymanager] machine state can not be empty when it has memory assignments")]
    NoMachine,
    /// A NUMA node went.
    #[error(
        "[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses the NUMA that does not exist"
    )]
    NoNode {
        /// The pod's UID.
        pod: String,
        /// The container.
        container: String,
    },
    /// A size of huge pages went.
    #[error(
        "[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses memory resource that does not exist"
    )]
    NoResource {
        /// The pod's UID.
        pod: String,
        /// The container.
        container: String,
    },
    /// Memory came or went, or something else is reserved.
    #[error("[memorymanager] the expected machine state is different from the real one")]
    OtherMachine,
}

/// The policy on one machine.
#[derive(Clone, Debug)]
pub struct Static {
    /// The machine when nobody has anything.
    empty: Tables,
}

impl Static {
    /// The policy of a machine of which this is reserved.
    ///
    /// # Errors
    /// Nothing is reserved, or more than there is.
    pub fn new(machine: &BTreeMap<u32, NodeMemory>, reserved: &Reserved) -> Result<Self, PolicyError> {
        let of_memory = reserved.values().filter_map(|of| of.get(MEMORY));
        if of_memory.sum::<u64>() == 0 {
            return Err(PolicyError::NothingReserved);
        }
        let none = Amounts::new();
        let mut nodes = BTreeMap::new();
        for (id, memory) in machine {
            let reserved = reserved.get(id).unwrap_or(&none);
            let of = |resource: &str, total: u64, paged: u64| {
                let (has, reserved) = (
                    total.saturating_sub(paged),
                    reserved.get(resource).copied().unwrap_or(0),
                );
                match has.checked_sub(reserved) {
                    Some(allocatable) => Ok((resource.to_owned(), Table::new(total, reserved, allocatable))),
                    None => Err(PolicyError::Short {
                        node: *id,
                        resource: resource.to_owned(),
                        has,
                        reserved,
                    }),
                }
            };
            let paged = memory.huge_pages.values().sum();
            let mut tables = BTreeMap::from([of(MEMORY, memory.total, paged)?]);
            for (size, bytes) in &memory.huge_pages {
                tables.extend([of(&format!("hugepages-{size}"), *bytes, 0)?]);
            }
            nodes.insert(*id, Node::new(*id, tables));
        }
        Ok(Self { empty: Tables(nodes) })
    }

    /// Looks at what an earlier kubelet left; what nobody has begun yet is begun, which is `true`.
    ///
    /// # Errors
    /// It does not fit this machine, or what is reserved on it now.
    pub fn check(&self, found: &Tables, held: &Assignments) -> Result<bool, PolicyError> {
        if found.0.is_empty() {
            return match held.0.is_empty() {
                true => Ok(true),
                false => Err(PolicyError::NoMachine),
            };
        }
        let mut expected = self.empty.clone();
        for (pod, containers) in &held.0 {
            for (container, blocks) in containers {
                for block in blocks {
                    let (pod, container) = (pod.clone(), container.clone());
                    if block.numas.is_empty() || !block.numas.ids().all(|id| expected.0.contains_key(&id)) {
                        return Err(PolicyError::NoNode { pod, container });
                    }
                    let has = |id: u32| {
                        expected
                            .0
                            .get(&id)
                            .is_some_and(|node| node.memory.contains_key(&block.resource))
                    };
                    if !block.numas.ids().all(has) {
                        return Err(PolicyError::NoResource { pod, container });
                    }
                    // More than there is, or of a node that serves others: nobody but a policy like this one writes such a file.
                    if !expected.serves(block.numas) || !expected.take(block) {
                        return Err(PolicyError::OtherMachine);
                    }
                }
            }
        }
        match expected.agrees(found) {
            true => Ok(false),
            false => Err(PolicyError::OtherMachine),
        }
    }

    /// How much of which node is whose.
    pub fn tables(&self, held: &Assignments) -> Tables {
        let mut tables = self.empty.clone();
        for block in held.0.values().flat_map(BTreeMap::values).flatten() {
            tables.take(block);
        }
        tables
    }

    /// What each NUMA node has for containers, if it has anything.
    pub fn allocatable(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (id, node) in &self.empty.0 {
            let some = node.memory.iter().filter(|(_, table)| table.allocatable > 0);
            blocks.extend(some.map(|(resource, table)| Block {
                numas: NumaMask::of([*id]),
                resource: resource.clone(),
                bytes: table.allocatable,
            }));
        }
        blocks
    }

    /// Begins to give a pod what it asks for; nobody has it before that is committed. From tables that were kept along, which are made
    /// where there are none.
    pub fn draft(&self, tables: &mut Option<Tables>, held: &Assignments, pod: &str) -> Draft {
        let tables = tables.get_or_insert_with(|| self.tables(held)).clone();
        Draft::new(tables, held.0.get(pod).cloned().unwrap_or_default())
    }
}

impl Assignments {
    /// Gives a pod's containers what was drafted for them.
    pub fn commit(&mut self, pod: &str, given: BTreeMap<String, Vec<Block>>) {
        if !given.is_empty() {
            self.0.insert(pod.to_owned(), given);
        }
    }

    /// [`Assignments::commit`], with the tables kept along.
    pub fn commit_with(&mut self, tables: &mut Option<Tables>, pod: &str, given: BTreeMap<String, Vec<Block>>) {
        let is_new = !self.0.contains_key(pod);
        let kept = tables.take().filter(|_| is_new || given.is_empty());
        *tables = kept.map(|mut kept| {
            for block in given.values().flatten() {
                kept.take(block);
            }
            kept
        });
        self.commit(pod, given);
    }

    /// Takes back what pods have that are not `kept`, with the tables kept along; tells whether there was anything.
    pub fn retain(&mut self, tables: &mut Option<Tables>, kept: impl Fn(&str) -> bool) -> bool {
        let gone: Vec<String> = self.0.keys().filter(|pod| !kept(pod)).cloned().collect();
        for pod in &gone {
            let blocks = self.0.remove(pod).into_iter().flat_map(BTreeMap::into_values).flatten();
            for block in blocks {
                if tables.as_mut().is_some_and(|tables| !tables.take_back(&block)) {
                    *tables = None;
                }
            }
        }
        !gone.is_empty()
    }

    /// What a container has.
    pub fn of(&self, pod: &str, container: &str) -> &[Block] {
        let own = self.0.get(pod).and_then(|of| of.get(container));
        own.map_or(&[], Vec::as_slice)
    }

    /// The NUMA nodes a container's memory comes from, none if it is of all.
    pub fn numas(&self, pod: &str, container: &str) -> NumaMask {
        let blocks = self.of(pod, container).iter();
        NumaMask::of(blocks.flat_map(|block| block.numas.ids()))
    }
}
