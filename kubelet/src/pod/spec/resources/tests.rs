//! What containers and sandboxes are told of resources.

use super::super::testing::{context, pod};
use super::*;
use crate::cgroup::limits::memory::{MemoryQos, Swap};

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
    let r = container_resources(&pod, &c, &context(), &Unbounded::default());
    assert_eq!(
        (r.cpu_shares, r.cpu_period, r.cpu_quota, r.memory_limit_in_bytes),
        (256, 100_000, 50_000, 64 << 20)
    );
    assert!(r.unified.is_empty());
    let (pod, c) = first("{}");
    let r = container_resources(&pod, &c, &context(), &Unbounded::default());
    assert_eq!(
        (r.cpu_shares, r.cpu_quota, r.memory_limit_in_bytes, r.oom_score_adj),
        (2, 0, 0, 1000)
    );
}

#[test]
fn who_has_cpus_alone_has_no_quota_of_them() {
    let mut ctx = context();
    let told = |ctx: &NodeContext, unbounded: &[&str], cpu: &str| {
        let unbounded = unbounded.iter().copied().collect();
        let amounts = format!(r#"{{"cpu":"{cpu}","memory":"1Gi"}}"#);
        let (pod, c) = first(&format!(
            r#"{{"containers":[{{"name":"c","resources":{{"limits":{amounts},"requests":{amounts}}}}}]}}"#
        ));
        let own = container_resources(&pod, &c, ctx, &unbounded);
        let (of_sandbox, _) = sandbox_resources(pod.spec.as_ref().expect("spec"), ctx, &unbounded);
        (own.cpu_quota, own.cpu_period, of_sandbox.cpu_quota)
    };
    assert_eq!(told(&ctx, &[], "2"), (200_000, 100_000, 200_000));
    assert_eq!(told(&ctx, &["c"], "2"), (-1, 100_000, -1));
    // Another container of the pod has some: the pod's quota is off, not this one's.
    assert_eq!(told(&ctx, &["d"], "2"), (200_000, 100_000, -1));
    ctx.cpu_cfs_quota = false;
    assert_eq!(told(&ctx, &["c"], "2"), (0, 0, 0));
}

#[test]
fn a_limit_alone_gives_the_shares_and_v2_ends_all_processes() {
    let (pod, c) = first(r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}"#);
    let mut ctx = context();
    ctx.cgroup_v2 = true;
    ctx.single_process_oom_kill = false;
    let r = container_resources(&pod, &c, &ctx, &Unbounded::default());
    assert_eq!(r.cpu_shares, 1024);
    assert_eq!(r.unified.get("memory.swap.max"), None, "the kernel does not limit it");
    assert_eq!(r.unified.get("memory.oom.group").map(String::as_str), Some("1"));
}

#[test]
fn huge_pages_are_limited_by_size() {
    let mut ctx = context();
    ctx.huge_page_sizes = vec!["2MB".into(), "1GB".into()];
    let told = |spec: &str| {
        let (pod, c) = first(spec);
        let limits = container_resources(&pod, &c, &ctx, &Unbounded::default()).hugepage_limits;
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
        let (r, overhead) = sandbox_resources(pod.spec.as_ref().expect("spec"), &context(), &Unbounded::default());
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

/// A container with these requests and limits of memory, and more of its pod.
fn memory(request: &str, limit: &str, more: &str) -> (Pod, Container) {
    let list = |amount: &str| match amount {
        "" => "{}".to_owned(),
        amount => format!(r#"{{"memory":"{amount}"}}"#),
    };
    let resources = format!(r#"{{"requests":{},"limits":{}}}"#, list(request), list(limit));
    first(&format!(
        r#"{{{more}"containers":[{{"name":"c","resources":{resources}}}]}}"#
    ))
}

#[test]
fn swap_is_limited_where_the_kernel_can() {
    let swap = |controlled, limited| Swap {
        controlled,
        limited,
        capacity: 4 << 30,
    };
    let told = |v2: bool, swap: Swap, (pod, c): (Pod, Container)| {
        let ctx = NodeContext {
            cgroup_v2: v2,
            swap,
            ..context()
        };
        let r = container_resources(&pod, &c, &ctx, &Unbounded::default());
        (
            r.unified.get("memory.swap.max").cloned(),
            r.memory_swap_limit_in_bytes >> 20,
        )
    };
    let burstable = || memory("1Gi", "2Gi", "");
    let share = |bytes: i64| (Some(bytes.to_string()), 0);
    // An eighth of the node's memory is requested, of 4 GiB of swap.
    assert_eq!(told(true, swap(true, true), burstable()), share(512 << 20));
    for (pod, why) in [
        (memory("1Gi", "1Gi", ""), "the request is the limit"),
        (memory("", "", ""), "best effort"),
        (memory("1Gi", "2Gi", r#""priority":2000000000,"#), "critical"),
    ] {
        assert_eq!(told(true, swap(true, true), pod), share(0), "{why}");
    }
    assert_eq!(told(true, swap(true, false), burstable()), share(0));
    assert_eq!(told(true, swap(false, true), burstable()), (None, 0));
    // Of version 1: memory and swap together.
    assert_eq!(told(false, swap(true, true), burstable()), (None, 2048));
    assert_eq!(told(false, swap(false, false), burstable()), (None, 0));
}

#[test]
fn memory_is_kept_and_reclaimed_by_requests() {
    let told = |reserves, (pod, c): (Pod, Container)| {
        let ctx = NodeContext {
            cgroup_v2: true,
            memory_qos: Some(MemoryQos {
                factor: 0.5,
                reserves,
                allocatable: 4 << 30,
                page: 4096,
            }),
            ..context()
        };
        let r = container_resources(&pod, &c, &ctx, &Unbounded::default());
        let of = |file: &str| {
            r.unified
                .get(file)
                .map(|bytes| bytes.parse::<i64>().expect("bytes") >> 20)
        };
        (of("memory.min"), of("memory.low"), of("memory.high"))
    };
    let guaranteed = || {
        let amounts = r#"{"cpu":"1","memory":"1Gi"}"#;
        first(&format!(
            r#"{{"containers":[{{"name":"c","resources":{{"requests":{amounts},"limits":{amounts}}}}}]}}"#
        ))
    };
    assert_eq!(told(true, guaranteed()), (Some(1024), None, None));
    assert_eq!(told(false, guaranteed()), (None, None, None));
    assert_eq!(told(true, memory("1Gi", "2Gi", "")), (None, Some(1024), Some(1536)));
    assert_eq!(told(false, memory("1Gi", "2Gi", "")), (None, None, Some(1536)));
    assert_eq!(told(true, memory("1Gi", "", "")), (None, Some(1024), Some(2560)));
    assert_eq!(told(true, memory("", "", "")), (None, None, Some(2048)));
    let of_pod = r#""resources":{"limits":{"memory":"2Gi"}},"#;
    assert_eq!(told(true, memory("1Gi", "", of_pod)), (None, Some(1024), Some(1536)));
}
