//! Reads a machine's topology out of `/sys`. Writes nothing.

mod memory;

use super::{Place, Topology};
use crate::pinning::cpu_set::CpuSet;
use client::ordered::Arrange;
use std::fs;
use std::path::{Path, PathBuf};

/// Why there is no topology.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A file that every kernel has is not there.
    #[error("could not read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file has another form than the kernel's.
    #[error("{path}: {text:?} is not what the kernel writes there")]
    Form {
        /// The file.
        path: PathBuf,
        /// What it has.
        text: String,
    },
    /// None is online.
    #[error("could not detect number of cpus")]
    None,
}

/// Reads the CPUs that are online and the memory there is, from `/sys` or what stands for it.
///
/// # Errors
/// What tells of them is not there or not as the kernel writes it.
pub fn read(sys: &Path) -> Result<Topology, TopologyError> {
    let cpus = sys.join("devices/system/cpu");
    let online = list(&cpus.join("online"))?;
    if online.is_empty() {
        return Err(TopologyError::None);
    }
    let of_nodes = sys.join("devices/system/node");
    let nodes = nodes(&of_nodes)?;
    let mut places = Vec::new();
    for cpu in online.iter() {
        let home = cpus.join(format!("cpu{cpu}"));
        let siblings = list(&home.join("topology/thread_siblings_list"))?.intersection(&online);
        // Some machines say -1: they know of no sockets.
        let socket = text(&home.join("topology/physical_package_id"))
            .ok()
            .and_then(|text| text.parse().ok());
        let socket = socket.unwrap_or(0);
        let place = Place {
            numa: nodes.iter().find(|(_, of)| of.contains(cpu)).map_or(0, |(id, _)| *id),
            socket,
            core: siblings.iter().next().unwrap_or(cpu),
            cache: last_level_cache(&home.join("cache")).unwrap_or(socket),
        };
        places.push((cpu, place));
    }
    Ok(Topology {
        distances: distances(&of_nodes),
        memory: memory::read(&of_nodes)?,
        ..Topology::new(places)
    })
}

/// The NUMA nodes and their CPUs; a kernel without NUMA tells of none.
fn nodes(directory: &Path) -> Result<Vec<(u32, CpuSet)>, TopologyError> {
    let mut nodes = Vec::new();
    for id in node_ids(directory) {
        nodes.push((id, list(&directory.join(format!("node{id}/cpulist")))?));
    }
    Ok(nodes)
}

/// How far each node is from each, in the kernel's order of nodes.
fn distances(directory: &Path) -> Vec<(u32, Vec<(u32, u32)>)> {
    let ids = node_ids(directory);
    let of = |id: &u32| {
        let line = text(&directory.join(format!("node{id}/distance"))).ok()?;
        let far = line.split_whitespace().filter_map(|far| far.parse().ok());
        Some((*id, ids.iter().copied().zip(far).collect()))
    };
    ids.iter().filter_map(of).collect()
}

/// The numbers of the NUMA nodes there are, in order.
pub(crate) fn node_ids(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut ids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .collect();
    ids.arrange();
    ids
}

/// What names a CPU's cache of level 3: its own number or, where the kernel tells none, the lowest CPU that has it.
fn last_level_cache(directory: &Path) -> Option<u32> {
    let indices = fs::read_dir(directory).ok()?.flatten();
    let mut indices = indices.filter(|entry| entry.file_name().to_string_lossy().starts_with("index"));
    let cache = indices.find(|entry| text(&entry.path().join("level")).is_ok_and(|level| level == "3"))?;
    let id = text(&cache.path().join("id")).ok().and_then(|id| id.parse().ok());
    id.or_else(|| list(&cache.path().join("shared_cpu_list")).ok()?.iter().next())
}

pub(crate) fn text(path: &Path) -> Result<String, TopologyError> {
    let read = fs::read_to_string(path).map_err(|source| TopologyError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(read.trim().to_owned())
}

fn list(path: &Path) -> Result<CpuSet, TopologyError> {
    let text = text(path)?;
    CpuSet::parse(&text).map_err(|_| TopologyError::Form {
        path: path.to_owned(),
        text,
    })
}

#[cfg(test)]
mod tests;
