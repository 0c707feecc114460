//! What is known of one cgroup. What the kernel does not tell is `None`, never zero. Pure data.

/// Everything of one cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    /// CPU time.
    pub cpu: Cpu,
    /// Memory.
    pub memory: Memory,
    /// What it may use.
    pub limits: Limits,
    /// Processes and threads.
    pub tasks: Tasks,
    /// How long it had to wait.
    pub pressure: Pressure,
    /// What it read and wrote, by block device.
    pub devices: Vec<Device>,
}

impl Numbers {
    /// Whether the cgroup is there: one that is tells of its CPU time or its memory.
    pub fn is_told(&self) -> bool {
        self.cpu.total_nanos.is_some() || self.memory.usage.is_some()
    }
}

/// CPU time since the cgroup was made, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// In all.
    pub total_nanos: Option<u64>,
    /// In user mode.
    pub user_nanos: Option<u64>,
    /// In the kernel.
    pub system_nanos: Option<u64>,
    /// What became of its quota.
    pub periods: Option<Periods>,
}

/// Periods in which a quota was enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// How many went by.
    pub elapsed: u64,
    /// In how many it was held up.
    pub throttled: u64,
    /// For how long, nanoseconds.
    pub throttled_nanos: u64,
    /// In how many it used what it had saved.
    pub bursts: u64,
    /// How much of that, nanoseconds.
    pub burst_nanos: u64,
}

/// Memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// In use.
    pub usage: Option<u64>,
    /// In use less the page cache that can go at once.
    pub working_set: Option<u64>,
    /// In swap.
    pub swap: Option<u64>,
    /// The kernel's own on its behalf.
    pub kernel: Option<u64>,
    /// The most it ever used.
    pub peak: Option<u64>,
    /// How often it met its limit.
    pub limit_hits: Option<u64>,
    /// How many of its processes were killed for want of memory.
    pub oom_kills: Option<u64>,
    /// What it consists of.
    pub parts: Option<MemoryParts>,
    /// Anonymous memory, where that is all that is known of it.
    pub rss_told: Option<u64>,
}

impl Memory {
    /// Anonymous memory.
    pub fn rss(&self) -> Option<u64> {
        self.parts.map(|parts| parts.rss).or(self.rss_told)
    }
}

/// What memory in use consists of, with all below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryParts {
    /// Anonymous memory.
    pub rss: u64,
    /// Page cache.
    pub cache: u64,
    /// Mapped files.
    pub mapped_file: u64,
    /// Page cache that was used lately.
    pub active_file: u64,
    /// Page cache that was not.
    pub inactive_file: u64,
    /// Page faults, and those that had to wait for a disk, without what is below it.
    pub own_faults: (u64, u64),
    /// The same with what is below it.
    pub faults: (u64, u64),
}

/// What a cgroup may use; `None` where nothing bounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// CPU shares in the terms of version 1.
    pub shares: Option<u64>,
    /// CPU time in a period, microseconds.
    pub quota_us: Option<u64>,
    /// The period, microseconds.
    pub period_us: Option<u64>,
    /// Memory, bytes.
    pub memory: Option<u64>,
    /// Memory in swap, bytes.
    pub swap: Option<u64>,
    /// Memory that is kept for it, bytes.
    pub reservation: Option<u64>,
    /// Whether it can be limited at all, in CPU time and in memory.
    pub has: (bool, bool),
}

/// Processes and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// Processes directly in it.
    pub processes: Option<u64>,
    /// Threads in it and below.
    pub threads: Option<u64>,
    /// How many there may be, where that is bounded.
    pub threads_max: Option<u64>,
    /// Open files of its processes.
    pub open_files: Option<u64>,
    /// Sockets among them.
    pub sockets: Option<u64>,
    /// How many files its first process may have open; -1 is as many as it likes.
    pub open_files_max: Option<i64>,
}

/// How long tasks waited for what was short.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// For a CPU.
    pub cpu: Option<Stalls>,
    /// For memory.
    pub memory: Option<Stalls>,
    /// For disks.
    pub io: Option<Stalls>,
}

/// Waiting for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    /// While some waited.
    pub some: Stall,
    /// While all waited.
    pub full: Stall,
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// The share of the last 10, 60 and 300 seconds, percent.
    pub averages: [f64; 3],
    /// In all, microseconds.
    pub total_us: u64,
}

/// What was read from and written to a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number, `8:0`.
    pub major: u32,
    /// The second part of its number.
    pub minor: u32,
    /// Its file, `/dev/sda`; empty if it is not known.
    pub name: String,
    /// Bytes read and written.
    pub bytes: (u64, u64),
    /// Reads and writes.
    pub operations: (u64, u64),
    /// What the kernel's cost model counted: time used, waited, in debt and delayed for that, microseconds.
    pub cost_us: Option<[u64; 4]>,
}
