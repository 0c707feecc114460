//! Linux resources of sandboxes and containers, and the OOM score (kubelet contract §7).

use super::NodeContext;
use crate::cgroup::limits;
use crate::downward::{milli, value};
use crate::pinning::asking::{exclusive_cpus, has_exclusive_cpus};
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
    let own = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    let of_pod = pod.resources.as_ref().and_then(|r| r.limits.as_ref());
    own.and_then(|l| l.get(name))
        .or_else(|| of_pod.and_then(|l| l.get(name)))
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
        let containers =
            spec.containers.len() + spec.init_containers.iter().flatten().filter(|c| is_sidecar(c)).count();
        let sum: i128 = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten().filter(|c| is_sidecar(c)))
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
        .collect();
    let sizes = ctx.huge_page_sizes.iter();
    sizes
        .map(|size| cri::HugepageLimit {
            page_size: size.clone(),
            limit: given.get(size).copied().unwrap_or(0),
        })
        .collect()
}

/// A container's Linux resources.
pub fn container_resources(pod: &Pod, container: &Container, ctx: &NodeContext) -> cri::LinuxContainerResources {
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
        out.cpu_quota = match ctx.exclusive_cpus && exclusive_cpus(&spec, container) > 0 {
            true => -1,
            false => limits::cpu_quota(cpu_limit.unwrap_or(0), ctx.cpu_cfs_period_us).unwrap_or(0),
        };
    }
    out.hugepage_limits = hugepages(container, ctx);
    if ctx.cgroup_v2 {
        if !ctx.single_process_oom_kill {
            out.unified.insert("memory.oom.group".into(), "1".into());
        }
        out.unified.insert("memory.swap.max".into(), "0".into());
    }
    out
}

/// The sandbox's hint of what its containers use together, by which runtimes size virtual machines, and the pod's overhead.
pub fn sandbox_resources(
    spec: &PodSpec,
    ctx: &NodeContext,
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
    if ctx.cpu_cfs_quota && ctx.exclusive_cpus && has_exclusive_cpus(spec) {
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
mod tests {
    use super::super::testing::{context, pod};
    use super::*;

    fn first(spec: &str) -> (Pod, Container) {
        let pod = pod(spec);
        let container = pod.spec.as_ref().expect("spec").containers[0].clone();
        (pod, container)
    }

    #[test]
    fn scores() {
        let gib8 = 8i64 << 30;
        for (spec, expected) in [
            ("{}", 1000),
            (
                r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}}]}"#,
                -997,
            ),
            (
                r#"{"containers":[{"name":"c","resources":{"requests":{"memory":"2Gi"}}}]}"#,
                750,
            ),
            (
                r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}"#,
                999,
            ),
            (
                r#"{"containers":[{"name":"c","resources":{"requests":{"memory":"64Gi"}}}]}"#,
                3,
            ),
            (r#"{"priorityClassName":"system-node-critical"}"#, -997),
        ] {
            let (pod, c) = first(spec);
            assert_eq!(oom_score_adj(&pod, &c, gib8), expected, "{spec}");
        }
    }

    #[test]
    fn container_values() {
        let (pod, c) = first(
            r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"500m","memory":"64Mi"},"requests":{"cpu":"250m"}}}]}"#,
        );
        let r = container_resources(&pod, &c, &context());
        assert_eq!(
            (r.cpu_shares, r.cpu_period, r.cpu_quota, r.memory_limit_in_bytes),
            (256, 100_000, 50_000, 64 << 20)
        );
        assert!(r.unified.is_empty());
        let (pod, c) = first("{}");
        let r = container_resources(&pod, &c, &context());
        assert_eq!(
            (r.cpu_shares, r.cpu_quota, r.memory_limit_in_bytes, r.oom_score_adj),
            (2, 0, 0, 1000)
        );
    }

    #[test]
    fn who_has_cpus_alone_has_no_quota_of_them() {
        let mut ctx = context();
        let told = |ctx: &NodeContext, cpu: &str| {
            let amounts = format!(r#"{{"cpu":"{cpu}","memory":"1Gi"}}"#);
            let (pod, c) = first(&format!(
                r#"{{"containers":[{{"name":"c","resources":{{"limits":{amounts},"requests":{amounts}}}}}]}}"#
            ));
            let own = container_resources(&pod, &c, ctx);
            let (of_sandbox, _) = sandbox_resources(pod.spec.as_ref().expect("spec"), ctx);
            (own.cpu_quota, own.cpu_period, of_sandbox.cpu_quota)
        };
        assert_eq!(told(&ctx, "2"), (200_000, 100_000, 200_000));
        ctx.exclusive_cpus = true;
        assert_eq!(told(&ctx, "2"), (-1, 100_000, -1));
        assert_eq!(told(&ctx, "1500m"), (150_000, 100_000, 150_000));
        ctx.cpu_cfs_quota = false;
        assert_eq!(told(&ctx, "2"), (0, 0, 0));
    }

    #[test]
    fn a_limit_alone_gives_the_shares_and_v2_forbids_swap() {
        let (pod, c) = first(r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}"#);
        let mut ctx = context();
        ctx.cgroup_v2 = true;
        ctx.single_process_oom_kill = false;
        let r = container_resources(&pod, &c, &ctx);
        assert_eq!(r.cpu_shares, 1024);
        assert_eq!(r.unified.get("memory.swap.max").map(String::as_str), Some("0"));
        assert_eq!(r.unified.get("memory.oom.group").map(String::as_str), Some("1"));
    }

    #[test]
    fn huge_pages_are_limited_by_size() {
        let mut ctx = context();
        ctx.huge_page_sizes = vec!["2MB".into(), "1GB".into()];
        let told = |spec: &str| {
            let (pod, c) = first(spec);
            let limits = container_resources(&pod, &c, &ctx).hugepage_limits;
            let told = |limit: &cri::HugepageLimit| format!("{} {}", limit.page_size, limit.limit);
            limits.iter().map(told).collect::<Vec<_>>()
        };
        assert_eq!(told("{}"), ["2MB 0", "1GB 0"]);
        let some = r#"{"containers":[{"name":"c","resources":{"limits":{"hugepages-2Mi":"4Mi"}}}]}"#;
        assert_eq!(told(some), ["2MB 4194304", "1GB 0"]);
    }

    #[test]
    fn a_sandbox_is_told_all_that_runs_in_it_at_once() {
        let told = |spec: &str| {
            let pod = pod(spec);
            let (r, overhead) = sandbox_resources(pod.spec.as_ref().expect("spec"), &context());
            let own = (r.cpu_shares, r.cpu_quota, r.memory_limit_in_bytes >> 20);
            (own, overhead.memory_limit_in_bytes >> 20)
        };
        let container = |policy: &str, cpu: &str, memory: &str| {
            format!(
                r#"{{"name":"c",{policy}"resources":{{"requests":{{"cpu":"{cpu}"}},"limits":{{"cpu":"{cpu}","memory":"{memory}"}}}}}}"#
            )
        };
        let main = container("", "250m", "64Mi");
        assert_eq!(told(&format!(r#"{{"containers":[{main}]}}"#)), ((256, 25_000, 64), 0));
        let sidecar = container(r#""restartPolicy":"Always","#, "250m", "32Mi");
        let with = format!(r#"{{"containers":[{main}],"initContainers":[{sidecar}],"overhead":{{"memory":"8Mi"}}}}"#);
        assert_eq!(told(&with), ((512, 50_000, 96), 8));
        let init = container("", "1", "16Mi");
        let with = format!(r#"{{"containers":[{main}],"initContainers":[{init}]}}"#);
        assert_eq!(told(&with), ((1024, 100_000, 64), 0));
        let pod_level = format!(r#"{{"containers":[{main}],"resources":{{"limits":{{"memory":"1Gi"}}}}}}"#);
        assert_eq!(told(&pod_level), ((256, 25_000, 1024), 0));
    }
}
