//! Containers have CPUs to themselves, over a whole kubelet.

use super::*;
use crate::pinning::topology::testing::SMALL;
use crate::pinning::{CpuRules, Rules};
use proto::cri::LinuxContainerResources;
use serde_json::json;

/// A node of four cores with two CPUs each, one of them reserved.
fn node() -> Bench {
    let mut bench = Bench::new();
    let rules = Rules {
        cpu: Some(CpuRules {
            options: Default::default(),
            reserved_milli: 1000,
        }),
        ..Rules::default()
    };
    bench.pinning = Some((rules, SMALL.topology()));
    bench
}

/// A pod of one container of the pod's name.
fn sized(name: &str, cpu: &str) -> Pod {
    let mut pod = serde_json::to_value(simple(name)).expect("a pod");
    let list = json!({"cpu": cpu, "memory": "64Mi"});
    pod["metadata"]["generation"] = json!(1);
    pod["spec"]["containers"][0]["name"] = json!(name);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": list, "limits": list});
    serde_json::from_value(pod).expect("a pod")
}

fn resources(bench: &Bench, container: &str) -> LinuxContainerResources {
    let config = bench.runtime.container_config(container).unwrap_or_default();
    config.linux.unwrap_or_default().resources.unwrap_or_default()
}

fn runs_on(bench: &Bench, container: &str) -> String {
    resources(bench, container).cpuset_cpus
}

fn file(bench: &Bench) -> String {
    let path = bench.manifests().with_file_name("kubelet").join("cpu_manager_state");
    std::fs::read_to_string(path).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn cpus_are_given_kept_over_a_restart_and_given_back() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("others", "500m"));
    bench.until("ready", |b| is_ready(b, "others")).await;
    assert_eq!(
        (runs_on(&bench, "others"), resources(&bench, "others").cpu_quota),
        ("0-7".to_owned(), 50_000)
    );
    bench.api.create(&sized("mine", "2"));
    bench.until("ready", |b| is_ready(b, "mine")).await;
    let own = resources(&bench, "mine");
    assert_eq!(
        (own.cpuset_cpus.as_str(), own.cpu_quota, own.cpu_period),
        ("1,5", -1, 100_000)
    );
    let kept = r#""defaultCpuSet":"0,2-4,6-7","entries":{"mine":{"mine":"1,5"}}"#;
    assert!(file(&bench).contains(kept), "{}", file(&bench));
    bench.until("left alone", |b| runs_on(b, "others") == "0,2-4,6-7").await;
    let told = "kubelet_cpu_manager_exclusive_cpu_allocation_count 2";
    assert!(kubelet.tells(told));

    // Another kubelet: what runs keeps what it has, and what comes gets what is left.
    kubelet.kill().await;
    let kubelet = bench.start();
    bench.api.create(&sized("next", "2"));
    bench.until("ready", |b| is_ready(b, "next")).await;
    assert_eq!(runs_on(&bench, "next"), "2,6");
    assert_eq!(runs_on(&bench, "mine"), "1,5");
    assert!(file(&bench).contains(r#""entries":{"mine":{"mine":"1,5"},"next":{"next":"2,6"}}"#));

    bench.api.delete("mine", 1, at(0));
    bench.until("gone", |b| !b.api.has("mine")).await;
    bench
        .until("shared again", |b| runs_on(b, "others") == "0-1,3-5,7")
        .await;
    assert!(file(&bench).contains(r#""defaultCpuSet":"0-1,3-5,7","entries":{"next":{"next":"2,6"}}"#));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_more_than_is_left_is_refused_for_good() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("large", "6"));
    bench.until("ready", |b| is_ready(b, "large")).await;
    bench.api.create(&sized("more", "2"));
    let is_failed = |b: &Bench| {
        b.api
            .status("more")
            .is_some_and(|s| s.phase.as_deref() == Some("Failed"))
    };
    bench.until("refused", is_failed).await;
    let status = bench.api.status("more").expect("a status");
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let why = "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=2, available=1, which is unexpected";
    assert_eq!(status.message.as_deref(), Some(why));
    assert!(!file(&bench).contains("more"));

    // The ended one gives its CPUs back though its object stays.
    bench.runtime.script_image("img:latest", Behaviour::obedient());
    bench.api.delete("large", 1, at(0));
    bench.until("gone", |b| !b.api.has("large")).await;
    bench.api.create(&sized("again", "7"));
    bench.until("ready", |b| is_ready(b, "again")).await;
    assert_eq!(runs_on(&bench, "again"), "1-7");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_before_what_it_has_is_on_disk() {
    let bench = node();
    let kubelet = bench.start();
    let path = bench
        .manifests()
        .with_file_name("kubelet")
        .join("cpu_manager_state.tmp");
    // What is written beside the file cannot be: there is a directory.
    bench.until("opened", |b| !file(b).is_empty()).await;
    let beside = path.with_file_name("cpu_manager_state.tmp");
    std::fs::create_dir(&beside).expect("made");
    bench.api.create(&sized("mine", "2"));
    let told = |b: &Bench| has_event(b, "Failed", "cpu_manager_state");
    bench.until("told", told).await;
    assert!(bench.runtime.containers().is_empty());
    // Who has nothing alone needs nothing on disk.
    bench.api.create(&sized("others", "500m"));
    bench.until("ready", |b| is_ready(b, "others")).await;
    assert_eq!(bench.running("mine"), 0);
    std::fs::remove_dir(&beside).expect("removed");
    bench.until("ready", |b| is_ready(b, "mine")).await;
    assert_eq!(runs_on(&bench, "mine"), "1,5");
    kubelet.kill().await;
}

/// Asks for other resources of `mine`.
pub(super) fn resize(bench: &Bench, generation: i64, cpu: &str, memory: &str) {
    bench.api.edit("mine", |pod| {
        let list = json!({"cpu": cpu, "memory": memory});
        pod["metadata"]["generation"] = json!(generation);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": list, "limits": list});
    });
}

/// Whether `mine` was told why it cannot be resized.
pub(super) fn is_infeasible(bench: &Bench, why: &str) -> bool {
    let status = bench.api.status("mine").unwrap_or_default();
    let conditions = status.conditions.into_iter().flatten();
    let mut pending = conditions.filter(|c| c.type_ == "PodResizePending");
    pending.any(|c| c.reason.as_deref() == Some("Infeasible") && c.message.as_deref() == Some(why))
}

#[tokio::test(start_paused = true)]
async fn exclusive_cpus_are_not_resized_and_memory_is() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("mine", "2"));
    bench.until("ready", |b| is_ready(b, "mine")).await;
    resize(&bench, 2, "3", "64Mi");
    let why = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
    bench.until("refused", |b| is_infeasible(b, why)).await;
    let counted = "kubelet_pod_infeasible_resizes_total{reason_detail=\"guaranteed_pod_cpu_manager_static_policy\"} 1";
    assert!(kubelet.tells(counted));
    resize(&bench, 3, "2", "128Mi");
    bench
        .until("resized", |b| resources(b, "mine").memory_limit_in_bytes == 128 << 20)
        .await;
    assert_eq!(resources(&bench, "mine").cpu_quota, -1);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn who_asked_for_cpus_alone_and_got_none_keeps_its_quota() {
    let mut bench = node();
    // Eight CPUs were there for all; one of them is reserved once the policy is on.
    let (rules, machine) = bench.pinning.take().expect("pinning");
    let first = bench.start();
    bench.api.create(&sized("large", "8"));
    bench.until("ready", |b| is_ready(b, "large")).await;
    first.kill().await;
    bench.pinning = Some((rules, machine));
    let second = bench.start();
    bench
        .until("taken over", |_| second.parts.pods.by_uid(&"large".into()).is_some())
        .await;
    bench.api.edit("large", |pod| {
        let list = json!({"cpu": "8", "memory": "128Mi"});
        pod["metadata"]["generation"] = json!(2);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": list, "limits": list});
    });
    bench
        .until("resized", |b| resources(b, "large").memory_limit_in_bytes == 128 << 20)
        .await;
    assert_eq!(resources(&bench, "large").cpu_quota, 800_000);
    assert!(!second.parts.pinning.has_own(&"large".into(), "large"));
    second.kill().await;
}

fn phase(bench: &Bench, pod: &str) -> String {
    let status = bench.api.status(pod);
    status.and_then(|status| status.phase).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn what_is_held_by_a_pod_that_went_while_no_kubelet_looked_is_given_to_its_successor() {
    for is_terminal in [false, true] {
        let mut bench = node();
        let first = bench.start();
        bench.api.create(&sized("gone", "6"));
        bench.until("ready", |b| is_ready(b, "gone")).await;
        first.kill().await;
        bench.runtime = crate::runtime::fake::FakeRuntime::new(bench.clock.clone(), 2);
        bench.runtime.add_image("img:latest");
        match is_terminal {
            true => bench.api.edit("gone", |pod| {
                pod["status"] = json!({"phase": "Failed", "reason": "Evicted"})
            }),
            false => bench.api.remove("gone"),
        }
        bench.api.create(&sized("next", "6"));
        let second = bench.start();
        bench
            .until("judged", |b| is_ready(b, "next") || phase(b, "next") == "Failed")
            .await;
        assert_eq!(phase(&bench, "next"), "Running", "{is_terminal}");
        assert!(!file(&bench).contains("gone"));
        second.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_given_the_cpus_of_an_orphan_that_runs() {
    let bench = node();
    let first = bench.start();
    bench.api.create(&sized("orphan", "6"));
    bench.until("ready", |b| is_ready(b, "orphan")).await;
    first.kill().await;
    bench.api.remove("orphan");
    bench.runtime.next("ContainerStatus", Mishap::Hang);
    bench.api.create(&sized("next", "6"));
    bench.api.create(&sized("small", "1"));
    let second = bench.start();
    // What is left is given at once; what is not, is waited for.
    bench.until("ready", |b| is_ready(b, "small")).await;
    assert_eq!((bench.running("orphan"), bench.running("next")), (1, 0));
    assert_ne!(phase(&bench, "next"), "Failed");
    assert!(file(&bench).contains(r#""orphan":{"orphan":"#), "{}", file(&bench));
    bench.api.delete("small", 1, at(0));
    bench.until("ready", |b| is_ready(b, "next")).await;
    assert_eq!(bench.running("orphan"), 0);
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn who_would_get_nothing_without_the_deleted_either_is_refused_at_once() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("goes", "2"));
    bench.until("ready", |b| is_ready(b, "goes")).await;
    bench
        .runtime
        .set_latency("StopContainer", Duration::from_secs(1_000_000));
    bench.api.remove("goes");
    let refused = |b: &Bench, name: &str| phase(b, name) == "Failed";
    // More than the node has for anybody, and what the deleted one leaves.
    bench.api.create(&sized("large", "8"));
    bench.api.create(&sized("fits", "6"));
    let began = bench.clock.now();
    bench.until("refused", |b| refused(b, "large")).await;
    let waited = bench.clock.now().duration_since(began).as_secs();
    assert!(waited < 10, "{waited} s");
    assert_eq!(phase(&bench, "fits"), "");
    bench.until("refused, as that hangs", |b| refused(b, "fits")).await;
    let waited = bench.clock.now().duration_since(began).as_secs();
    assert!((30..=60).contains(&waited), "{waited} s");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_deleted_pods_waits_no_longer_because_others_are_deleted() {
    let bench = node();
    let kubelet = bench.start();
    for name in ["first", "second"] {
        bench.api.create(&sized(name, "3"));
    }
    bench
        .until("ready", |b| is_ready(b, "first") && is_ready(b, "second"))
        .await;
    bench
        .runtime
        .set_latency("StopContainer", Duration::from_secs(1_000_000));
    bench.api.remove("first");
    bench.api.create(&sized("next", "4"));
    let began = bench.clock.now();
    let text = "waiting up to 45s for pods that end: first_ns";
    bench.until("told", |b| has_event(b, "WaitingForRoom", text)).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    bench.api.remove("second");
    bench.until("refused", |b| phase(b, "next") == "Failed").await;
    let waited = bench.clock.now().duration_since(began).as_secs();
    assert!((41..=60).contains(&waited), "{waited} s");
    // However often it was judged meanwhile.
    assert!(kubelet.tells("kubelet_topology_manager_admission_requests_total 3"));
    assert!(kubelet.tells("kubelet_cpu_manager_pinning_requests_total 3"));
    assert!(kubelet.tells("kubelet_cpu_manager_pinning_errors_total 1"));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_shares_cpus_where_all_are_given() {
    let mut bench = node();
    let (rules, _) = bench.pinning.as_mut().expect("pinned");
    rules.cpu.as_mut().expect("static").options.strict_reservation = true;
    let first = bench.start();
    bench.api.create(&sized("mine", "7"));
    bench.until("ready", |b| is_ready(b, "mine")).await;
    assert_eq!(runs_on(&bench, "mine"), "1-7");
    bench.api.create(&sized("others", "500m"));
    let why = "there is no CPU to run on";
    bench.until("told", |b| has_event(b, "Failed", why)).await;
    first.kill().await;
    // The next kubelet begins with that.
    let second = bench.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((bench.running("mine"), bench.running("others")), (1, 0));
    bench.api.delete("mine", 1, at(0));
    bench.until("ready", |b| is_ready(b, "others")).await;
    assert_eq!(runs_on(&bench, "others"), "1-7");
    second.kill().await;
}
