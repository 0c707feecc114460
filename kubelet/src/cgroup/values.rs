//! What is written to a cgroup and read of it. Values.

use std::collections::BTreeMap;

/// What a cgroup has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds since the cgroup was made.
    pub cpu_nanos: Option<u64>,
    /// Memory in use, bytes.
    pub memory: Option<u64>,
    /// Memory in use less the page cache that can go at once, bytes.
    pub working_set: Option<u64>,
    /// Memory in swap, bytes; unknown of cgroups of version 1.
    pub swap: Option<u64>,
    /// Processes and threads in it.
    pub processes: Option<u64>,
}

/// Values to write into one cgroup: abstract keys, the hierarchy knows its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    /// CPU shares in v1 terms.
    pub cpu_shares: Option<i64>,
    /// Quota and period in microseconds; quota -1 lifts it.
    pub cpu_quota: Option<(i64, i64)>,
    /// Memory limit in bytes; -1 lifts it.
    pub memory: Option<i64>,
    /// Memory that is never reclaimed, bytes; version 2 alone knows it.
    pub memory_min: Option<i64>,
    /// Memory that is reclaimed last, bytes; likewise.
    pub memory_low: Option<i64>,
    /// Process limit.
    pub pids: Option<i64>,
    /// Bytes by huge page size in the kernel's spelling (`2MB`).
    pub hugepages: BTreeMap<String, i64>,
}
