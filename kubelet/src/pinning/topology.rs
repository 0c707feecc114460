//! How a machine's CPUs and memory lie: which CPUs share a core, a cache, a NUMA node, a socket, and what memory each node has. A
//! value; [`sysfs`] reads it.

pub mod sysfs;
#[cfg(test)]
pub(crate) mod testing;

use super::cpu_set::CpuSet;
use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet};

/// Where a CPU lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its NUMA node.
    pub numa: u32,
    /// Its socket.
    pub socket: u32,
    /// Its core, named by the core's lowest CPU: the kernel's own numbers of cores are not unique.
    pub core: u32,
    /// Its last-level cache.
    pub cache: u32,
}

/// CPUs that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What names the group on its level.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// The memory of a NUMA node, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// All of it, huge pages among it.
    pub total: u64,
    /// What is set aside for huge pages, by their size as in `2Mi`.
    pub huge_pages: BTreeMap<String, u64>,
}

/// A machine's CPUs and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// All that are online.
    pub all: CpuSet,
    /// By NUMA node, as every list here in ascending order of ids.
    pub numas: Vec<Group>,
    /// By socket.
    pub sockets: Vec<Group>,
    /// By core.
    pub cores: Vec<Group>,
    /// By last-level cache.
    pub caches: Vec<Group>,
    /// How far NUMA nodes are from each other, as the kernel tells; nothing where it does not.
    pub distances: Vec<(u32, Vec<(u32, u32)>)>,
    /// By NUMA node, also of those without CPUs; nothing where the kernel knows of no nodes.
    pub memory: BTreeMap<u32, NodeMemory>,
}

impl Topology {
    /// The topology of CPUs at these places.
    pub fn new(places: impl IntoIterator<Item = (u32, Place)>) -> Self {
        let places: Vec<(u32, Place)> = places.into_iter().collect();
        let by = |of: fn(&Place) -> u32| {
            let mut groups: BTreeMap<u32, CpuSet> = BTreeMap::new();
            for (cpu, place) in &places {
                groups.entry(of(place)).or_default().insert(*cpu);
            }
            let groups = groups.into_iter();
            groups.map(|(id, cpus)| Group { id, cpus }).collect()
        };
        Self {
            all: places.iter().map(|(cpu, _)| *cpu).collect(),
            numas: by(|place| place.numa),
            sockets: by(|place| place.socket),
            cores: by(|place| place.core),
            caches: by(|place| place.cache),
            distances: Vec::new(),
            memory: BTreeMap::new(),
        }
    }

    /// The machine with all its memory on one NUMA node if the kernel told of none.
    pub fn or_memory(mut self, total: u64, huge_pages: impl FnOnce() -> BTreeMap<String, u64>) -> Self {
        if self.memory.is_empty() {
            let huge_pages = huge_pages();
            self.memory.insert(0, NodeMemory { total, huge_pages });
        }
        self
    }

    /// How many CPUs a core has: of a machine whose cores differ, the average, rounded down.
    pub fn cpus_per_core(&self) -> usize {
        self.all.len().checked_div(self.cores.len()).unwrap_or(0)
    }

    /// The CPUs of these NUMA nodes.
    pub fn in_numas(&self, wanted: impl Fn(u32) -> bool) -> CpuSet {
        let groups = self.numas.iter().filter(|group| wanted(group.id));
        groups.fold(CpuSet::default(), |all, group| all.union(&group.cpus))
    }

    /// Every CPU of the cores that have one of these.
    pub fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let touched = self.cores.iter().filter(|core| core.cpus.shared(cpus) > 0);
        touched.fold(CpuSet::default(), |all, core| all.union(&core.cpus))
    }

    /// The ids of all NUMA nodes, of those without CPUs too.
    pub fn all_numas(&self) -> BTreeSet<u32> {
        self.numa_ids().chain(self.memory.keys().copied()).collect_ordered()
    }

    /// The ids of the NUMA nodes that have CPUs.
    pub fn numa_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.numas.iter().map(|group| group.id)
    }
}
