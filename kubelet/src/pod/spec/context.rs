//! What the translation needs to know of the node.

use crate::cgroup::CgroupNaming;
use crate::cgroup::limits::memory::{MemoryQos, Swap};
use crate::downward::NodeAllocatable;
use crate::host::addresses::HostIps;
use std::path::PathBuf;

/// The node's resolver configuration (kubelet contract §6, DNS).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// `nameserver` lines.
    pub nameservers: Vec<String>,
    /// The last `search` line's domains.
    pub searches: Vec<String>,
    /// The last `options` line's words.
    pub options: Vec<String>,
}

impl ResolvConf {
    /// Reads resolv.conf text; unknown lines are ignored, a trailing dot of a search domain is dropped except for `.` alone.
    pub fn parse(text: &str) -> Self {
        let mut conf = Self::default();
        for line in text.lines() {
            let line = line.trim();
            if line.starts_with('#') || line.starts_with(';') {
                continue;
            }
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => conf.nameservers.extend(words.next().map(str::to_owned)),
                Some("search") => {
                    conf.searches = words
                        .map(|domain| match domain {
                            "." => ".".to_owned(),
                            other => other.trim_end_matches('.').to_owned(),
                        })
                        .collect();
                }
                Some("options") => conf.options = words.map(str::to_owned).collect(),
                _ => {}
            }
        }
        conf
    }

    /// What `Default` DNS gives when `resolvConf` is set to the empty string: the node itself.
    pub fn loopback(is_ipv6: bool) -> Self {
        Self {
            nameservers: vec![if is_ipv6 { "::1" } else { "127.0.0.1" }.to_owned()],
            searches: vec![".".to_owned()],
            options: Vec::new(),
        }
    }
}

/// Facts of this node and its configuration that shape every pod; made once at start, shared.
#[derive(Debug, Clone)]
pub struct NodeContext {
    /// The Node object's name.
    pub node_name: String,
    /// The node's internal addresses, primary first (`status.hostIP`, `status.hostIPs`).
    pub host_ips: HostIps,
    /// `--root-dir`.
    pub root_dir: PathBuf,
    /// `podLogsDir`.
    pub pod_logs_dir: PathBuf,
    /// `clusterDomain`; empty when none is set.
    pub cluster_domain: String,
    /// `clusterDNS`.
    pub cluster_dns: Vec<String>,
    /// `resolvConf`, read whenever a sandbox is made; `None` where it is set to the empty string.
    pub resolv_conf: Option<PathBuf>,
    /// The node's own hosts file, read whenever a container of a pod on the host network starts.
    pub hosts_path: PathBuf,
    /// What limits default to in the downward API, and what scores are relative to.
    pub allocatable: NodeAllocatable,
    /// The machine's memory in bytes: what `oom_score_adj` of burstable containers is relative to.
    pub memory_capacity: i64,
    /// How pod cgroups are named.
    pub cgroups: CgroupNaming,
    /// The host has the unified cgroup hierarchy only.
    pub cgroup_v2: bool,
    /// `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_cfs_period_us: i64,
    /// The sizes of huge pages the machine has, as cgroups name them (`2MB`).
    pub huge_page_sizes: Vec<String>,
    /// `seccompDefault`.
    pub seccomp_default: bool,
    /// Containers are stopped by the signals they ask for.
    pub stop_signals: bool,
    /// The kernel keeps processes and files apart by SELinux labels.
    pub selinux: bool,
    /// `singleProcessOOMKill`.
    pub single_process_oom_kill: bool,
    /// Gate `MemoryQoS`, where cgroups are of version 2.
    pub memory_qos: Option<MemoryQos>,
    /// How containers may swap.
    pub swap: Swap,
    /// Namespace the `kubernetes` service lives in.
    pub master_service_namespace: String,
    /// Existing `/sys/devices/system/cpu/cpuN/thermal_throttle` paths, which are masked from containers.
    pub thermal_paths: Vec<String>,
}
