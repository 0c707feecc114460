//! What the configuration says of CPUs and NUMA nodes (kubelet contract §1, §8). Values.

use super::cpu::options::Options;
use super::cpu_set::CpuSet;
use super::hint::Policy;
use super::memory::reserve::Reservation;
use std::time::Duration;

/// All of it; by default nobody has anything alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The static CPU policy (`cpuManagerPolicy`).
    pub cpu: Option<CpuRules>,
    /// What is kept from pods of each NUMA node (`reservedMemory`), if the static memory policy rules (`memoryManagerPolicy`).
    pub memory: Option<Vec<Reservation>>,
    /// `reservedSystemCPUs`.
    pub reserved: CpuSet,
    /// `cpuManagerReconcilePeriod`: how often containers on shared CPUs are brought to those that are shared.
    pub reconcile_every: Duration,
    /// Gate `DisableCPUQuotaWithExclusiveCPUs`: containers that have CPUs to themselves have no quota.
    pub no_quota: bool,
    /// How all givers are brought together.
    pub topology: TopologyRules,
}

/// The static CPU policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuRules {
    /// Its options.
    pub options: Options,
    /// What is kept from pods, thousandths of a CPU.
    pub reserved_milli: i64,
}

/// The topology manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopologyRules {
    /// `topologyManagerPolicy`.
    pub policy: Policy,
    /// `topologyManagerScope: pod`: a pod's containers all go to the same nodes.
    pub by_pod: bool,
    /// `prefer-closest-numa-nodes`.
    pub closest: bool,
    /// `max-allowable-numa-nodes`; upstream's 8 if not given.
    pub nodes_max: Option<usize>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            cpu: None,
            memory: None,
            reserved: CpuSet::default(),
            reconcile_every: Duration::from_secs(10),
            no_quota: true,
            topology: TopologyRules::default(),
        }
    }
}

impl Rules {
    /// Whether containers that have CPUs to themselves have no quota of them.
    pub fn lifts_quota(&self) -> bool {
        self.cpu.is_some() && self.no_quota
    }
}
