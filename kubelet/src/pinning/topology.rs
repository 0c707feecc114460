//! How a machine's CPUs lie: which share a core, a cache, a NUMA node, a socket. A value; [`sysfs`] reads it.

pub mod sysfs;
#[cfg(test)]
pub(crate) mod testing;

use super::cpu_set::CpuSet;
use std::collections::BTreeMap;

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

/// A machine's CPUs.
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
        }
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

    /// The ids of the NUMA nodes.
    pub fn numa_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.numas.iter().map(|group| group.id)
    }
}
