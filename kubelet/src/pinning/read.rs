//! What may be asked of who has what: reads alone, for whoever tells others (kubelet contract §8, PodResources).

use super::Pinning;
use super::cpu_set::CpuSet;
use super::memory::Block;
use crate::id::PodUid;

impl Pinning {
    /// The CPUs that containers can have to themselves or share, none where no policy gives CPUs.
    pub fn allocatable_cpus(&self) -> CpuSet {
        let cpu = self.0.as_ref().and_then(|inner| inner.cpu.as_ref());
        cpu.map(|cpu| cpu.available(&cpu.topology().all)).unwrap_or_default()
    }

    /// The CPUs a container has to itself.
    pub fn cpus_of(&self, uid: &PodUid, container: &str) -> CpuSet {
        let Some(inner) = &self.0 else { return CpuSet::default() };
        let held = inner.held();
        let own = held.cpus.exclusive.get(uid.as_str());
        own.and_then(|of| of.get(container)).cloned().unwrap_or_default()
    }

    /// What each NUMA node's memory and huge pages can be containers' own, none where no policy gives memory.
    pub fn allocatable_memory(&self) -> Vec<Block> {
        let memory = self.0.as_ref().and_then(|inner| inner.memory.as_ref());
        memory.map(super::memory::Static::allocatable).unwrap_or_default()
    }

    /// The memory and huge pages a container has to itself.
    pub fn memory_of(&self, uid: &PodUid, container: &str) -> Vec<Block> {
        let Some(inner) = &self.0 else { return Vec::new() };
        inner.held().memory.of(uid.as_str(), container).to_vec()
    }
}
