//! What pods are given of this machine by cgroups: made of the configuration and of what the machine is.

use super::{BootError, CGROUP_MOUNT, host};
use crate::cgroup::limits::hugepage_cgroup_name;
use crate::cgroup::limits::memory::Swap;
use crate::cgroup::{self, CgroupDriver, CgroupNaming, CgroupSettings, Cgroups, Gatherer, MemoryQos, NodeLimits};
use crate::config::Config;
use crate::host::load;
use crate::host::machine::Roots;
use crate::node::Facts;
use client::ordered::CollectOrdered;
use std::fs;
use std::path::Path;

/// The first kernel on which a container that is made to reclaim memory cannot be caught in that for good.
const RECLAIMS_SOUNDLY: (u32, u32) = (5, 9);

/// The tree of pods' cgroups, and how they are named.
pub(super) fn open(config: &Config, facts: &Facts, driver: CgroupDriver) -> Result<(Cgroups, CgroupNaming), BootError> {
    let cgroups = &config.cgroups;
    let naming = CgroupNaming {
        driver,
        root: cgroups.root.clone(),
        per_qos: cgroups.per_qos,
    };
    if !cgroups.per_qos && cgroups.root != "/" {
        tracing::warn!(
            cgroup_root = cgroups.root,
            "cgroupRoot has no effect with cgroupsPerQOS: false"
        );
    }
    let settings = CgroupSettings {
        naming: naming.clone(),
        cpu_cfs_quota: cgroups.cpu_cfs_quota,
        cpu_cfs_period_us: cgroups.cpu_cfs_period_us,
        pod_pids_limit: cgroups.pod_pids_limit,
        huge_page_sizes: host::huge_page_sizes(facts),
        node_limits: Some(node_limits(config, facts, load::tasks_max(&Roots::default()))),
        reserved: cgroups.reserved_cgroups.clone(),
        memory_qos: memory_qos(config, facts, host::is_cgroup_v2(CGROUP_MOUNT)),
        qos_reserved_percent: cgroups.qos_reserved_percent,
    };
    let cgroups = Cgroups::open(CGROUP_MOUNT, cgroup::systemd::SOCKET, settings).map_err(BootError::Cgroups)?;
    Ok((cgroups, naming))
}

/// Who brings the node's own processes to the cgroups that are named for them.
pub(super) fn gatherer(config: &Config) -> Result<Option<Gatherer>, BootError> {
    let opened = Gatherer::open(
        Path::new(CGROUP_MOUNT),
        Roots::default().proc,
        config.cgroups.own.clone(),
    );
    opened.map_err(BootError::Cgroups)
}

/// What all pods together may use. Pure.
fn node_limits(config: &Config, facts: &Facts, tasks_max: Option<i64>) -> NodeLimits {
    let enforced = config.cgroups.enforce_pods;
    let reserved = &config.cgroups.reserved;
    let less = |capacity: i64, reserved: i64| capacity.saturating_sub(if enforced { reserved } else { 0 }).max(0);
    let pages = facts.hugepages.iter();
    NodeLimits {
        enforced,
        memory: less(facts.machine.memory, reserved.memory),
        cpu_milli: less(facts.machine.cpus * 1000, reserved.cpu_milli),
        pids: tasks_max.map(|most| less(most, reserved.pids)),
        hugepages: pages
            .filter_map(|(size, bytes)| Some((hugepage_cgroup_name(size)?, *bytes)))
            .collect_ordered(),
        allocatable_memory: (facts.machine.memory - reserved.memory).max(0),
    }
}

/// What the gate `MemoryQoS` brings; nothing where cgroups are of version 1.
pub(super) fn memory_qos(config: &Config, facts: &Facts, is_v2: bool) -> Option<MemoryQos> {
    let factor = config.cgroups.memory_throttling.filter(|_| is_v2)?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    Some(MemoryQos {
        factor,
        reserves: config.cgroups.reserves_memory,
        allocatable: (facts.machine.memory - config.cgroups.reserved.memory).max(0),
        page: page.unwrap_or(4096),
    })
}

/// How containers may swap.
pub(super) fn swap(config: &Config, facts: &Facts, is_v2: bool) -> Swap {
    Swap {
        controlled: limits_swap(Path::new(CGROUP_MOUNT), &Roots::default().proc),
        limited: config.cgroups.limited_swap && is_v2,
        capacity: facts.machine.swap,
    }
}

/// Whether the kernel limits swap by cgroup. The root of version 2 never has the file: this process' own cgroup is looked at, and, for
/// it may lack the controller, those directly below the root.
fn limits_swap(mount: &Path, proc: &Path) -> bool {
    if mount.join("memory/memory.memsw.limit_in_bytes").exists() {
        return true;
    }
    let has = |dir: &Path| dir.join("memory.swap.max").exists();
    let own = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let below = || fs::read_dir(mount).into_iter().flatten().flatten();
    own.is_some_and(|path| has(&mount.join(path))) || below().any(|entry| has(&entry.path()))
}

/// Tells of what was asked for and comes to nothing here, or to little.
pub(super) fn tell(config: &Config, facts: &Facts, is_v2: bool) {
    let cgroups = &config.cgroups;
    if cgroups.memory_throttling.is_some() {
        match is_v2 {
            false => tracing::warn!("feature gate MemoryQoS has no effect with cgroups of version 1"),
            true if is_older(&facts.machine.kernel, RECLAIMS_SOUNDLY) => tracing::warn!(
                kernel = facts.machine.kernel,
                "MemoryQoS on a kernel older than 5.9: containers above memory.high may hang"
            ),
            true => {}
        }
    }
    if cgroups.limited_swap && !is_v2 {
        tracing::warn!(
            "memorySwap.swapBehavior: LimitedSwap has no effect with cgroups of version 1: containers have no swap"
        );
    }
}

/// Whether a kernel's release is older than a version; one that cannot be read is not.
fn is_older(release: &str, than: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < than,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
