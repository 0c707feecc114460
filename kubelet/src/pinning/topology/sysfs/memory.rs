//! Reads what memory each NUMA node has out of `/sys`. Writes nothing.

use super::{TopologyError, node_ids, text};
use crate::pinning::topology::NodeMemory;
use client::ordered::CollectOrdered;
use proto::api::quantity::{Format, Quantity};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The memory of all NUMA nodes; a kernel without NUMA tells of none.
pub(super) fn read(nodes: &Path) -> Result<BTreeMap<u32, NodeMemory>, TopologyError> {
    let of = |id| {
        let home = nodes.join(format!("node{id}"));
        let memory = NodeMemory {
            total: total(&home.join("meminfo"))?,
            huge_pages: huge_pages(&home.join("hugepages"))?,
        };
        Ok((id, memory))
    };
    node_ids(nodes).into_iter().map(of).collect_ordered()
}

/// `Node 0 MemTotal:       16318496 kB`, in bytes.
fn total(path: &Path) -> Result<u64, TopologyError> {
    let info = text(path)?;
    let line = info.lines().find_map(|line| line.split_once("MemTotal:"));
    let kib = line.and_then(|(_, amount)| amount.trim().strip_suffix("kB")?.trim().parse().ok());
    let bytes = kib.and_then(|kib: u64| kib.checked_mul(1024));
    bytes.ok_or_else(|| TopologyError::Form {
        path: path.to_owned(),
        text: info.lines().next().unwrap_or_default().to_owned(),
    })
}

/// `hugepages-2048kB/nr_hugepages`, in bytes by size; a kernel without huge pages has none.
fn huge_pages(directory: &Path) -> Result<BTreeMap<String, u64>, TopologyError> {
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kib = name.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB"));
        let Some(kib) = kib.and_then(|kib| kib.parse::<u32>().ok()) else {
            continue;
        };
        let (page, path) = (u64::from(kib) * 1024, entry.path().join("nr_hugepages"));
        let count = text(&path)?;
        let bytes = count.parse().ok().and_then(|count: u64| count.checked_mul(page));
        let bytes = bytes.ok_or(TopologyError::Form { path, text: count })?;
        let size = Quantity::from_units(i64::from(kib) * 1024, Format::BinarySi);
        sizes.insert(size.to_string(), bytes);
    }
    Ok(sizes)
}
