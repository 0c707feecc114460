//! What shapes the limits of the tree: configuration and machine, as values.

use super::limits::memory::MemoryQos;
use super::name::CgroupNaming;
use std::collections::BTreeMap;

/// All of it.
#[derive(Debug, Clone)]
pub struct CgroupSettings {
    /// Names.
    pub naming: CgroupNaming,
    /// `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_cfs_period_us: i64,
    /// `podPidsLimit`; not positive means none.
    pub pod_pids_limit: i64,
    /// The sizes of huge pages the machine has, as cgroups name them (`2MB`).
    pub huge_page_sizes: Vec<String>,
    /// What all pods together may use: the machine, less what is reserved if that is enforced. `None` sets nothing.
    pub node_limits: Option<NodeLimits>,
    /// The cgroups that are held to what is set aside for them.
    pub reserved: Vec<ReservedCgroup>,
    /// Gate `MemoryQoS`.
    pub memory_qos: Option<MemoryQos>,
    /// `qosReserved.memory`: how much of what pods request is kept from those of the classes below, percent.
    pub qos_reserved_percent: Option<i64>,
}

#[cfg(any(test, feature = "test-util"))]
impl CgroupSettings {
    /// Upstream's defaults of everything but the names, and nothing enforced for all pods together.
    pub fn with_defaults(naming: CgroupNaming) -> Self {
        Self {
            naming,
            cpu_cfs_quota: true,
            cpu_cfs_period_us: 100_000,
            pod_pids_limit: -1,
            huge_page_sizes: Vec::new(),
            node_limits: None,
            reserved: Vec::new(),
            memory_qos: None,
            qos_reserved_percent: None,
        }
    }
}

/// Limits of the whole `kubepods` cgroup (kubelet contract §7).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeLimits {
    /// `enforceNodeAllocatable: pods`: they are what reservations leave, not the machine's whole.
    pub enforced: bool,
    /// Bytes.
    pub memory: i64,
    /// Millicores.
    pub cpu_milli: i64,
    /// Processes.
    pub pids: Option<i64>,
    /// Bytes by huge page size in the kernel's spelling.
    pub hugepages: BTreeMap<String, i64>,
    /// What reservations leave of the memory whether that is enforced or not, bytes.
    pub allocatable_memory: i64,
}

/// A cgroup that others made, of the system or of Kubernetes' own daemons, and what is set aside for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedCgroup {
    /// Whose it is.
    pub whose: Whose,
    /// Only what can be compressed is limited: CPU.
    pub compressible: bool,
    /// Its name, as configured.
    pub cgroup: String,
    /// Millicores, where there is a word of them.
    pub cpu_milli: Option<i64>,
    /// Bytes, likewise.
    pub memory: Option<i64>,
    /// Processes, likewise.
    pub pids: Option<i64>,
}

/// For whom something is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// `systemReserved`.
    System,
    /// `kubeReserved`.
    Kube,
}

impl Whose {
    /// The word in `enforceNodeAllocatable`.
    pub fn word(self) -> &'static str {
        match self {
            Self::System => "system-reserved",
            Self::Kube => "kube-reserved",
        }
    }

    /// The field with the amounts.
    pub fn amounts(self) -> &'static str {
        match self {
            Self::System => "systemReserved",
            Self::Kube => "kubeReserved",
        }
    }

    /// The field with the cgroup's name.
    pub fn field(self) -> &'static str {
        match self {
            Self::System => "systemReservedCgroup",
            Self::Kube => "kubeReservedCgroup",
        }
    }
}
