//! What is told of who has what alone: to other givers of the node's resources, and to whoever asks the PodResources API.

use super::Pinning;
use super::cpu_set::CpuSet;
use super::hint::NumaMask;
use super::memory::Block;

impl Pinning {
    /// The NUMA nodes that containers are aligned on; none where nothing is aligned.
    pub fn numas(&self) -> NumaMask {
        self.0.as_ref().map_or(NumaMask::default(), |inner| inner.nodes.all)
    }

    /// The CPUs a container has to itself.
    pub fn cpus_alone(&self, uid: &str, container: &str) -> CpuSet {
        let Some(inner) = self.with_cpus() else {
            return CpuSet::default();
        };
        let held = inner.held();
        let own = held.cpus.exclusive.get(uid).and_then(|of| of.get(container));
        own.cloned().unwrap_or_default()
    }

    /// The CPUs that could be somebody's alone.
    pub fn allocatable_cpus(&self) -> CpuSet {
        let cpu = self.with_cpus().and_then(|inner| inner.cpu.as_ref());
        cpu.map_or(CpuSet::default(), |cpu| cpu.available(&cpu.topology().all))
    }

    /// The memory a container has to itself.
    pub fn memory_alone(&self, uid: &str, container: &str) -> Vec<Block> {
        let held = self.0.as_ref().map(|inner| inner.held());
        held.map(|held| held.memory.of(uid, container).to_vec()).unwrap_or_default()
    }

    /// The memory that could be somebody's alone.
    pub fn allocatable_memory(&self) -> Vec<Block> {
        let memory = self.0.as_ref().and_then(|inner| inner.memory.as_ref());
        memory.map(|memory| memory.allocatable()).unwrap_or_default()
    }
}
