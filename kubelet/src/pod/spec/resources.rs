//! Linux resources of sandboxes and containers, and the OOM score (kubelet contract §7).

use super::NodeContext;
use crate::cgroup::limits::{self, memory::swap_share};
use crate::downward::{milli, value};
use crate::pinning::Unbounded;
use crate::pod_object;
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proto::api::qos::{QosClass, qos_class};
use proto::api::resources::{is_sidecar, pod_limits, pod_requests};
use proto::cri;
use std::collections::BTreeMap;

const SCORE_GUARANTEED: i64 = -997;
const SCORE_BEST_EFFORT: i64 = 1000;
const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";
/// The value of system-node-critical's priority.
const PRIORITY_NODE_CRITICAL: i32 = 2_000_001_000;

fn limit<'a>(container: &'a Container, pod: &'a PodSpec, name: &str) -> Option<&'a Quantity> {
    let of_pod = pod.resources.as_ref().and_then(|r| r.limits.as_ref());
    own_limit(container, name).or_else(|| of_pod.and_then(|l| l.get(name)))
}

fn own_limit<'a>(container: &'a Container, name: &str) -> Option<&'a Quantity> {
    container.resources.as_ref()?.limits.as_ref()?.get(name)
}

fn request<'a>(container: &'a Container, name: &str) -> Option<&'a Quantity> {
    container.resources.as_ref()?.requests.as_ref()?.get(name)
}

/// The kernel's OOM score adjustment for a container of this pod.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    let Some(spec) = &pod.spec else {
        return SCORE_BEST_EFFORT;
    };
    let critical = spec.priority_class_name.as_deref() == Some(SYSTEM_NODE_CRITICAL)
        || spec.priority.is_some_and(|p| p >= PRIORITY_NODE_CRITICAL);
    if critical {
        return SCORE_GUARANTEED;
    }
    match qos_class(spec) {
        QosClass::Guaranteed => return SCORE_GUARANTEED,
        QosClass::BestEffort => return SCORE_BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let own = burstable_score(spec, container, memory_capacity);
    let is_init_sidecar = spec
        .init_containers
        .iter()
        .flatten()
        .any(|c| c.name == container.name && is_sidecar(c));
    if !is_init_sidecar {
        return own;
    }
    spec.containers
        .iter()
        .map(|c| burstable_score(spec, c, memory_capacity))
        .min()
        .map_or(own, |smallest| own.min(smallest))
}

fn burstable_score(spec: &PodSpec, container: &Container, memory_capacity: i64) -> i64 {
    let mut requested = i128::from(request(container, "memory").map_or(0, value));
    let of_pod = spec
        .resources
        .as_ref()
        .and_then(|r| r.requests.as_ref())
        .and_then(|r| r.get("memory"));
    if let Some(of_pod) = of_pod {
        let containers = spec.containers.len() + spec.init_containers.iter().flatten().filter(is_sidecar).count();
        let sum: i128 = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten().filter(is_sidecar))
            .map(|c| i128::from(request(c, "memory").map_or(0, value)))
            .sum();
        let spare = (i128::from(value(of_pod)) - sum).max(0);
        requested += spare / i128::try_from(containers.max(1)).unwrap_or(1);
    }
    let score = 1000 - 1000 * requested / i128::from(memory_capacity.max(1));
    i64::try_from(score).unwrap_or(3).clamp(3, 999)
}

/// The limits of each size of huge pages the machine has: what the container may use, or nothing.
fn hugepages(container: &Container, ctx: &NodeContext) -> Vec<cri::HugepageLimit> {
    let own = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    let given: BTreeMap<String, u64> = own
        .into_iter()
        .flatten()
        .filter_map(|(name, quantity)| {
            let size = limits::hugepage_cgroup_name(name.strip_prefix("hugepages-")?)?;
            Some((size, u64::try_from(value(quantity)).unwrap_or(0)))
        })
        .collect_ordered();
    let sizes = ctx.huge_page_sizes.iter();
    sizes
        .map(|size| cri::HugepageLimit {
            page_size: size.clone(),
            limit: given.get(size).copied().unwrap_or(0),
        })
        .collect()
}

/// A container's Linux resources; `unbounded` are those of its pod's that have CPUs alone.
pub fn container_resources(
    pod: &Pod,
    container: &Container,
    ctx: &NodeContext,
    unbounded: &Unbounded,
) -> cri::LinuxContainerResources {
    let spec = pod.spec.clone().unwrap_or_default();
    let cpu_limit = limit(container, &spec, "cpu").map(milli);
    let cpu_shares = match request(container, "cpu").map(milli) {
        Some(request) => limits::cpu_shares(request),
        None => limits::cpu_shares(cpu_limit.unwrap_or(0)),
    };
    let mut out = cri::LinuxContainerResources {
        cpu_shares,
        memory_limit_in_bytes: limit(container, &spec, "memory").map_or(0, value),
        oom_score_adj: oom_score_adj(pod, container, ctx.memory_capacity),
        ..Default::default()
    };
    if ctx.cpu_cfs_quota {
        out.cpu_period = ctx.cpu_cfs_period_us;
        out.cpu_quota = match unbounded.has(&container.name) {
            true => -1,
            false => limits::cpu_quota(cpu_limit.unwrap_or(0), ctx.cpu_cfs_period_us).unwrap_or(0),
        };
    }
    out.hugepage_limits = hugepages(container, ctx);
    if ctx.cgroup_v2 && !ctx.single_process_oom_kill {
        out.unified.insert("memory.oom.group".into(), "1".into());
    }
    limit_swap(&mut out, pod, container, ctx);
    reserve_memory(&mut out, &spec, container, ctx);
    out
}

/// Sets how much a container may swap, where the kernel limits that.
fn limit_swap(out: &mut cri::LinuxContainerResources, pod: &Pod, container: &Container, ctx: &NodeContext) {
    match (ctx.swap.controlled, ctx.cgroup_v2) {
        (false, _) => {}
        (true, true) => {
            let share = swap_limit(pod, container, ctx);
            out.unified.insert("memory.swap.max".into(), share.to_string());
        }
        // Of version 1 this is memory and swap together: no swap beyond the limit, and none to set where there is no limit.
        (true, false) => out.memory_swap_limit_in_bytes = out.memory_limit_in_bytes,
    }
}

/// The swap a container may use, bytes (KEP-2400): a part for those of Burstable pods whose request is not their limit, none for others.
fn swap_limit(pod: &Pod, container: &Container, ctx: &NodeContext) -> i64 {
    let (request, own) = (
        request(container, "memory").map_or(0, value),
        own_limit(container, "memory"),
    );
    let of_pod = || {
        pod.spec
            .as_ref()
            .is_some_and(|spec| qos_class(spec) == QosClass::Burstable)
    };
    let may = ctx.swap.limited && request != own.map_or(0, value) && of_pod() && !pod_object::is_critical(pod);
    match may {
        true => swap_share(request, ctx.memory_capacity, ctx.swap.capacity),
        false => 0,
    }
}

/// Sets what is kept of memory for a container, and from where on it is reclaimed (KEP-2570).
fn reserve_memory(out: &mut cri::LinuxContainerResources, spec: &PodSpec, container: &Container, ctx: &NodeContext) {
    let Some(qos) = &ctx.memory_qos else { return };
    let request = request(container, "memory").map_or(0, value);
    if qos.reserves {
        let kept = qos.reservation(qos_class(spec), request);
        let files = [("memory.min", kept.min), ("memory.low", kept.low)];
        let files = files.into_iter().filter(|(_, kept)| *kept > 0);
        out.unified
            .extend(files.map(|(file, kept)| (file.to_owned(), kept.to_string())));
    }
    if let Some(high) = qos.high(request, limit(container, spec, "memory").map(value)) {
        out.unified.insert("memory.high".into(), high.to_string());
    }
}

/// The sandbox's hint of what its containers use together, by which runtimes size virtual machines, and the pod's overhead.
pub fn sandbox_resources(
    spec: &PodSpec,
    ctx: &NodeContext,
    unbounded: &Unbounded,
) -> (cri::LinuxContainerResources, cri::LinuxContainerResources) {
    let build = |request: i64, cpu_limit: i64, memory: i64| cri::LinuxContainerResources {
        cpu_shares: limits::cpu_shares(request),
        cpu_period: if ctx.cpu_cfs_quota { ctx.cpu_cfs_period_us } else { 0 },
        cpu_quota: if ctx.cpu_cfs_quota {
            limits::cpu_quota(cpu_limit, ctx.cpu_cfs_period_us).unwrap_or(0)
        } else {
            0
        },
        memory_limit_in_bytes: memory,
        ..Default::default()
    };
    // Sidecars, the largest step of initialisation and the pod's own resources count; overhead is told apart.
    let bare = PodSpec {
        overhead: None,
        ..spec.clone()
    };
    let (requests, limits) = (pod_requests(&bare), pod_limits(&bare));
    let cpu_limit = limits.get("cpu").map_or(0, |amount| amount.milli_value());
    let cpu_request = requests.get("cpu").map_or(cpu_limit, |amount| amount.milli_value());
    let mut resources = build(
        cpu_request,
        cpu_limit,
        limits.get("memory").map_or(0, |amount| amount.value()),
    );
    if ctx.cpu_cfs_quota && unbounded.any() {
        resources.cpu_quota = -1;
    }
    let overhead = match &spec.overhead {
        Some(list) if !list.is_empty() => {
            let cpu = list.get("cpu").map_or(0, milli);
            build(cpu, cpu, list.get("memory").map_or(0, value))
        }
        _ => cri::LinuxContainerResources::default(),
    };
    (resources, overhead)
}

#[cfg(test)]
mod tests;
