//! The arithmetic of cgroup limits (kubelet contract §7). Pure.

pub mod memory;
pub mod sums;

use super::settings::{CgroupSettings, NodeLimits, ReservedCgroup};
use super::values::Values;
use crate::downward::{milli, value};
use crate::pinning::Unbounded;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use proto::api::qos::{QosClass, qos_class};
use proto::api::resources;
use std::collections::BTreeMap;

const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;
const QUOTA_MIN_US: i64 = 1000;
/// No limit, of a quota and of memory.
pub(super) const UNLIMITED: i64 = -1;
/// What QoS cgroups get for every huge page size: no limit of their own.
const HUGEPAGES_UNLIMITED: i64 = 1 << 62;

/// Limits of one pod's cgroup.
pub type PodLimits = Values;

/// CPU shares for this many millicores.
pub fn cpu_shares(milli: i64) -> i64 {
    if milli <= 0 {
        return SHARES_MIN;
    }
    (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

/// CFS quota in microseconds for a limit in millicores; `None` without a limit.
pub fn cpu_quota(milli: i64, period_us: i64) -> Option<i64> {
    (milli > 0).then(|| (milli.saturating_mul(period_us) / 1000).max(QUOTA_MIN_US))
}

/// cgroup v2 weight for v1 shares.
pub fn cpu_weight(shares: i64) -> i64 {
    if shares >= SHARES_MAX {
        return 10_000;
    }
    1 + (shares.max(SHARES_MIN) - 2) * 9999 / 262_142
}

/// `2Mi` (the API's page size) as the kernel's cgroup files spell it, `2MB`; `None` if it is no size.
pub fn hugepage_cgroup_name(size: &str) -> Option<String> {
    let bytes = proto::api::quantity::Quantity::parse(size).ok()?.value();
    let units = [(1i64 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    units
        .iter()
        .find(|(unit, _)| bytes >= *unit)
        .map(|(unit, name)| format!("{}{name}", bytes / unit))
}

/// What a pod requests of the CPU, overhead included, in millicores.
pub fn cpu_request_milli(spec: &PodSpec) -> i64 {
    resources::pod_requests(spec).get("cpu").map_or(0, |q| q.milli_value())
}

/// The limits of a pod's cgroup; `unbounded` are those of its containers that have CPUs alone.
pub fn pod_limits(pod: &Pod, settings: &CgroupSettings, unbounded: &Unbounded) -> PodLimits {
    let spec = pod.spec.clone().unwrap_or_default();
    let class = qos_class(&spec);
    let limits = resources::pod_limits(&spec);
    let enforced = |name: &str| class != QosClass::BestEffort && resources::every_container_limits(&spec, name);
    let mut out = Values {
        cpu_shares: Some(match class {
            QosClass::BestEffort => SHARES_MIN,
            _ => cpu_shares(cpu_request_milli(&spec)),
        }),
        pids: (settings.pod_pids_limit > 0).then_some(settings.pod_pids_limit),
        hugepages: page_limits(&limits, settings),
        ..Values::default()
    };
    if enforced("cpu") {
        let lifted = !settings.cpu_cfs_quota || unbounded.any();
        let period = settings.cpu_cfs_period_us;
        let quota = limits.get("cpu").and_then(|q| cpu_quota(q.milli_value(), period));
        // Written where it is lifted, too: an earlier kubelet may have set one.
        out.cpu_quota = quota.map(|quota| (if lifted { UNLIMITED } else { quota }, period));
    }
    if enforced("memory") {
        out.memory = limits.get("memory").map(|q| q.value()).filter(|bytes| *bytes > 0);
    }
    if let Some(qos) = &settings.memory_qos {
        let request = resources::pod_requests(&spec).get("memory").map_or(0, |q| q.value());
        let kept = qos.reservation(class, request);
        (out.memory_min, out.memory_low) = (Some(kept.min), Some(kept.low));
    }
    out
}

/// What is given of each size of huge pages the machine has: nothing of those that are not limited.
fn page_limits(limits: &resources::ResourceList, settings: &CgroupSettings) -> BTreeMap<String, i64> {
    let none = settings.huge_page_sizes.iter().map(|size| (size.clone(), 0));
    let given = limits.iter().filter_map(|(name, amount)| {
        let size = hugepage_cgroup_name(name.strip_prefix("hugepages-")?)?;
        Some((size, amount.value()))
    });
    none.chain(given).collect_ordered()
}

/// What the cgroup of a QoS class is made with: its pods alone limit huge pages.
pub fn qos(settings: &CgroupSettings) -> Values {
    let sizes = settings.huge_page_sizes.iter();
    Values {
        cpu_shares: Some(SHARES_MIN),
        hugepages: sizes.map(|size| (size.clone(), HUGEPAGES_UNLIMITED)).collect_ordered(),
        ..Values::default()
    }
}

/// The limits of the cgroup of all pods.
pub fn node(limits: &NodeLimits) -> Values {
    Values {
        cpu_shares: Some(cpu_shares(limits.cpu_milli)),
        memory: Some(limits.memory),
        pids: limits.pids,
        hugepages: limits.hugepages.clone(),
        ..Values::default()
    }
}

/// The limits of a cgroup that is held to what was set aside for it: what was not named is not limited. With `memory_qos` its memory
/// is kept for it, too.
pub fn reserved(reserved: &ReservedCgroup, memory_qos: bool) -> Values {
    let shares = reserved.cpu_milli.map(cpu_shares);
    match reserved.compressible {
        true => Values {
            cpu_shares: shares,
            ..Values::default()
        },
        false => Values {
            cpu_shares: shares,
            memory: reserved.memory,
            memory_min: reserved.memory.filter(|_| memory_qos),
            pids: reserved.pids,
            ..Values::default()
        },
    }
}

/// A resource list's CPU in millicores and memory in bytes.
pub fn cpu_and_memory(
    list: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> (i64, i64) {
    let get = |name: &str| list.and_then(|l| l.get(name));
    (get("cpu").map_or(0, milli), get("memory").map_or(0, value))
}

#[cfg(test)]
mod tests;
