use super::*;
use crate::cgroup::{CgroupSettings, pod_limits};
use crate::pod::spec::testing::{context, pod};

/// A pod of one container with these requests and limits of CPU and memory, and a policy for its memory.
fn one(cpu: &str, memory: &str, policy: &str) -> Pod {
    let list = format!(r#"{{"cpu":"{cpu}","memory":"{memory}"}}"#);
    pod(&format!(
        r#"{{"containers":[{{"name":"c","resources":{{"requests":{list},"limits":{list}}},
            "resizePolicy":[{{"resourceName":"memory","restartPolicy":"{policy}"}}]}}]}}"#
    ))
}

fn plain(cpu: &str, memory: &str) -> Pod {
    one(cpu, memory, "NotRequired")
}

fn applied(pod: &Pod) -> Applied {
    let resources = PodResources::of(pod);
    Applied {
        containers: resources.containers.clone(),
        cgroup: Some(resources),
    }
}

fn values(pod: &Pod) -> Values {
    pod_limits(
        pod,
        &CgroupSettings::with_defaults(context().cgroups),
        &Unbounded::default(),
    )
}

/// The steps from one pod to another, in words.
fn words(from: &Pod, to: &Pod) -> Vec<String> {
    let running = [("id".into(), &pod_object::regulars(to)[0])];
    let steps = steps(
        to,
        &applied(from),
        &running,
        (&values(from), &values(to)),
        (&context(), &Unbounded::default()),
    );
    steps
        .iter()
        .map(|step| match step {
            Step::Pod(values) => {
                let mut words = vec!["pod".to_owned()];
                words.extend(values.memory.map(|memory| format!("memory {}", memory >> 20)));
                words.extend(values.cpu_quota.map(|(quota, _)| format!("quota {quota}")));
                words.extend(values.cpu_shares.map(|shares| format!("shares {shares}")));
                words.join(" ")
            }
            Step::Container(id, r) => {
                let memory = r.memory_limit_in_bytes >> 20;
                format!("{id} memory {memory} quota {} shares {}", r.cpu_quota, r.cpu_shares)
            }
        })
        .collect()
}

#[test]
fn the_pod_grows_first_and_shrinks_last_memory_before_cpu() {
    let (small, large) = (plain("1", "64Mi"), plain("2", "128Mi"));
    assert_eq!(
        words(&small, &large),
        [
            "pod memory 128",
            "id memory 128 quota 100000 shares 1024",
            "pod quota 200000 shares 2048",
            "id memory 128 quota 200000 shares 2048",
        ]
    );
    assert_eq!(
        words(&large, &small),
        [
            "id memory 64 quota 200000 shares 2048",
            "pod memory 64",
            "id memory 64 quota 100000 shares 1024",
            "pod quota 100000 shares 1024",
        ]
    );
    let mixed = plain("2", "32Mi");
    assert_eq!(
        words(&small, &mixed),
        [
            "id memory 32 quota 100000 shares 1024",
            "pod memory 32",
            "pod quota 200000 shares 2048",
            "id memory 32 quota 200000 shares 2048",
        ]
    );
}

#[test]
fn what_does_not_change_is_not_written_to_the_pod() {
    let (before, after) = (plain("1", "64Mi"), plain("2", "64Mi"));
    let words = words(&before, &after);
    assert!(words.iter().all(|word| !word.starts_with("pod memory")), "{words:?}");
}

#[test]
fn a_restart_is_needed_for_what_its_policy_says() {
    let before = applied(&one("1", "64Mi", "RestartContainer"));
    let needs = |pod: &Pod| before.needs_restart(&pod_object::regulars(pod)[0]);
    assert!(!needs(&one("2", "64Mi", "RestartContainer")), "CPU has no such policy");
    assert!(needs(&one("1", "128Mi", "RestartContainer")));
    assert!(!needs(&one("1", "128Mi", "NotRequired")));
    assert!(
        !needs(&one("1", "0.0625Gi", "RestartContainer")),
        "as much in other words"
    );
}

#[test]
fn limits_below_what_is_used_are_refused_in_upstreams_words() {
    let lowered = |container: Option<&str>, used| Lowered {
        container: container.map(str::to_owned),
        limit: 100,
        used,
    };
    assert_eq!(in_use(&[lowered(None, Some(100)), lowered(Some("c"), None)]), None);
    assert_eq!(
        in_use(&[lowered(Some("c"), Some(101))]).as_deref(),
        Some("attempting to set container \"c\" memory limit (100) below current usage (101)")
    );
    assert_eq!(
        in_use(&[lowered(None, Some(200)), lowered(Some("c"), Some(101))]).as_deref(),
        Some(
            "[attempting to set pod memory limit (100) below current usage (200), attempting to set container \"c\" \
             memory limit (100) below current usage (101)]"
        )
    );
}

#[test]
fn only_lowered_limits_are_compared_with_what_is_used() {
    let found = |from: &Pod, to: &Pod| {
        let running = [("id".into(), &pod_object::regulars(to)[0])];
        let lowered = lowered(&applied(from), &running, (&values(from), &values(to)));
        lowered
            .into_iter()
            .map(|l| (l.container, l.limit >> 20))
            .collect::<Vec<_>>()
    };
    let (small, large) = (plain("1", "64Mi"), plain("1", "128Mi"));
    assert_eq!(found(&small, &large), []);
    assert_eq!(found(&large, &small), [(None, 64), (Some("c".to_owned()), 64)]);
}
