//! What containers and sandboxes are told of resources.

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
