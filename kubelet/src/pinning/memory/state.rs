//! `memory_manager_state`: what of the NUMA nodes' memory is whose, as upstream's kubelets keep it (kubelet contract §2), so that a
//! node can be switched over either way with its pods running. Pure.
//!
//! Written in the form every upstream that has a memory manager reads. What newer ones add for the memory of whole pods (gate
//! `PodLevelResourceManagers`, off) is read as long as it gives nothing to anybody.

use super::table::{Node, Table, Tables};
use super::{Assignments, Block};
use crate::checksum::fnv32a;
use crate::pinning::hint::NumaMask;
use client::ordered::CollectOrdered;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why a file is of no use; in upstream's words where it has any.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is no JSON, or not of the form.
    #[error("{0}")]
    Form(serde_json::Error),
    /// Somebody else wrote in it, or it is damaged.
    #[error("checkpoint is corrupted")]
    Checksum,
    /// Another policy wrote it.
    #[error("[memorymanager] configured policy {configured:?} differs from state checkpoint policy {found:?}")]
    Policy {
        /// The policy of the configuration.
        configured: &'static str,
        /// That of the file.
        found: String,
    },
    /// A kubelet with that gate gave whole pods memory.
    #[error("podEntries give whole pods memory, which this kubelet does not do")]
    OfPods,
    /// A NUMA node that no machine of ours has.
    #[error("NUMA node {0} has a number above 63")]
    Number(u32),
}

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(rename = "policyName", default)]
    policy: String,
    #[serde(rename = "machineState", default)]
    machine: BTreeMap<u32, FileNode>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, BTreeMap<String, Vec<FileBlock>>>,
    #[serde(rename = "podEntries", default, skip_serializing)]
    of_pods: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    checksum: u32,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FileNode {
    number_of_assignments: usize,
    memory_map: BTreeMap<String, FileTable>,
    cells: Vec<u32>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FileTable {
    total: u64,
    system_reserved: u64,
    allocatable: u64,
    reserved: u64,
    free: u64,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct FileBlock {
    #[serde(rename = "numaAffinity")]
    numas: Vec<u32>,
    #[serde(rename = "type")]
    resource: String,
    size: u64,
}

impl File {
    /// Upstream's checksum: of what Go's dump makes of the whole, itself being zero.
    fn sum(&self, kind: &str, of_pods: &str) -> u32 {
        let nodes = self.machine.iter().map(|(id, node)| format!("{id}:{}", node.dump()));
        let pods = self.entries.iter().map(|(pod, own)| {
            let own = own.iter().map(|(name, blocks)| {
                let blocks = blocks.iter().map(FileBlock::dump);
                format!("{name}:[{}]", joined(blocks))
            });
            format!("{pod}:map[{}]", joined(own))
        });
        let dump = format!(
            "(*state.{kind}){{PolicyName:(string){} MachineState:(state.NUMANodeMap)map[{}] \
             Entries:(state.ContainerMemoryAssignments)map[{}]{of_pods} Checksum:(checksum.Checksum)0}}",
            self.policy,
            joined(nodes),
            joined(pods),
        );
        fnv32a(dump.bytes())
    }

    /// Whether nobody but a kubelet wrote it; some that read both forms name the older one otherwise.
    fn is_sound(&self) -> bool {
        let none = " PodEntries:(state.PodMemoryAssignments)map[]";
        self.checksum == 0
            || [(KIND, ""), ("MemoryManagerCheckpointV1", ""), (KIND, none)]
                .iter()
                .any(|(kind, of_pods)| self.checksum == self.sum(kind, of_pods))
    }
}

const KIND: &str = "MemoryManagerCheckpoint";

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" ")
}

fn ids(list: &[u32]) -> String {
    joined(list.iter().map(u32::to_string))
}

impl FileNode {
    fn dump(&self) -> String {
        let tables = self.memory_map.iter().map(|(name, table)| {
            format!(
                "{name}:<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} \
                 Reserved:(uint64){} Free:(uint64){}}}",
                table.total, table.system_reserved, table.allocatable, table.reserved, table.free
            )
        });
        format!(
            "<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{}] Cells:([]int)[{}]}}",
            self.number_of_assignments,
            joined(tables),
            ids(&self.cells)
        )
    }
}

impl FileBlock {
    fn dump(&self) -> String {
        let (numas, resource, size) = (ids(&self.numas), &self.resource, self.size);
        format!("{{NUMAAffinity:([]int)[{numas}] Type:(v1.ResourceName){resource} Size:(uint64){size}}}")
    }
}

/// What a file tells a kubelet of this policy.
///
/// # Errors
/// It is damaged, another policy's, or tells of what this kubelet does not do.
pub fn read(bytes: &[u8], configured: &'static str) -> Result<(Tables, Assignments), StateError> {
    let file: File = serde_json::from_slice(bytes).map_err(StateError::Form)?;
    if !file.of_pods.is_empty() {
        return Err(StateError::OfPods);
    }
    if !file.is_sound() {
        return Err(StateError::Checksum);
    }
    if file.policy != configured {
        return Err(StateError::Policy {
            configured,
            found: file.policy,
        });
    }
    let mut nodes = BTreeMap::new();
    for (id, node) in file.machine {
        let tables = node.memory_map.into_iter().map(|(name, of)| {
            let table = Table {
                total: of.total,
                system_reserved: of.system_reserved,
                allocatable: of.allocatable,
                reserved: of.reserved,
                free: of.free,
            };
            (name, table)
        });
        let node = Node {
            assignments: node.number_of_assignments,
            memory: tables.collect_ordered(),
            cells: mask(&node.cells)?,
        };
        nodes.insert(id, node);
    }
    let mut held = Assignments::default();
    for (pod, containers) in file.entries {
        let own = held.0.entry(pod).or_default();
        for (container, blocks) in containers {
            let blocks = blocks.into_iter().map(|block| {
                Ok(Block {
                    numas: mask(&block.numas)?,
                    resource: block.resource,
                    bytes: block.size,
                })
            });
            own.insert(container, blocks.collect::<Result<_, StateError>>()?);
        }
    }
    Ok((Tables(nodes), held))
}

fn mask(ids: &[u32]) -> Result<NumaMask, StateError> {
    match ids.iter().find(|id| **id >= u64::BITS) {
        Some(id) => Err(StateError::Number(*id)),
        None => Ok(NumaMask::of(ids.iter().copied())),
    }
}

/// The file of a policy.
pub fn write(policy: &str, tables: &Tables, held: &Assignments) -> Vec<u8> {
    let table = |of: &Table| FileTable {
        total: of.total,
        system_reserved: of.system_reserved,
        allocatable: of.allocatable,
        reserved: of.reserved,
        free: of.free,
    };
    let node = |node: &Node| FileNode {
        number_of_assignments: node.assignments,
        memory_map: node
            .memory
            .iter()
            .map(|(name, of)| (name.clone(), table(of)))
            .collect_ordered(),
        cells: node.cells.ids().collect(),
    };
    let block = |block: &Block| FileBlock {
        numas: block.numas.ids().collect(),
        resource: block.resource.clone(),
        size: block.bytes,
    };
    let of_pod = |own: &BTreeMap<String, Vec<Block>>| {
        let own = own.iter();
        own.map(|(name, blocks)| (name.clone(), blocks.iter().map(block).collect()))
            .collect_ordered()
    };
    let mut file = File {
        policy: policy.to_owned(),
        machine: tables.0.iter().map(|(id, of)| (*id, node(of))).collect_ordered(),
        entries: held
            .0
            .iter()
            .map(|(pod, own)| (pod.clone(), of_pod(own)))
            .collect_ordered(),
        of_pods: BTreeMap::new(),
        checksum: 0,
    };
    file.checksum = file.sum(KIND, "");
    serde_json::to_vec(&file).unwrap_or_default()
}

#[cfg(test)]
mod tests;
