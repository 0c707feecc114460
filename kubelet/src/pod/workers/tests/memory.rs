//! Containers have NUMA nodes' memory to themselves, over a whole kubelet.

use super::pinning::{is_infeasible, resize};
use super::*;
use crate::pinning::Rules;
use crate::pinning::hint::Policy;
use crate::pinning::memory::reserve::Reservation;
use crate::pinning::topology::testing::TWO;
use crate::pinning::{CpuRules, TopologyRules};
use proto::api::quantity::Quantity;
use proto::cri::LinuxContainerResources;
use serde_json::json;

/// Two NUMA nodes of 15 GiB besides huge pages, the first of which keeps three, and six CPUs each.
fn node(policy: Policy) -> Bench {
    let mut bench = Bench::new();
    let rules = Rules {
        memory: Some(vec![Reservation {
            node: 0,
            limits: [("memory".to_owned(), Quantity::parse("3Gi").expect("a quantity"))].into(),
        }]),
        topology: TopologyRules {
            policy,
            ..TopologyRules::default()
        },
        ..Rules::default()
    };
    bench.pinning = Some((rules, TWO.topology()));
    bench
}

/// A pod of one container of the pod's name.
fn sized(name: &str, cpu: &str, memory: &str) -> Pod {
    let mut pod = serde_json::to_value(simple(name)).expect("a pod");
    let list = json!({"cpu": cpu, "memory": memory});
    pod["metadata"]["generation"] = json!(1);
    pod["spec"]["containers"][0]["name"] = json!(name);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": list, "limits": list});
    serde_json::from_value(pod).expect("a pod")
}

fn resources(bench: &Bench, container: &str) -> LinuxContainerResources {
    let config = bench.runtime.container_config(container).unwrap_or_default();
    config.linux.unwrap_or_default().resources.unwrap_or_default()
}

/// The NUMA nodes and the CPUs a container was created with.
fn runs_on(bench: &Bench, container: &str) -> (String, String) {
    let own = resources(bench, container);
    (own.cpuset_mems, own.cpuset_cpus)
}

fn mems(bench: &Bench, container: &str) -> String {
    runs_on(bench, container).0
}

fn file(bench: &Bench) -> String {
    let path = bench.manifests().with_file_name("kubelet").join("memory_manager_state");
    std::fs::read_to_string(path).unwrap_or_default()
}

fn failed(bench: &Bench, pod: &str) -> Option<(String, String)> {
    let status = bench.api.status(pod)?;
    let is_failed = status.phase.as_deref() == Some("Failed");
    is_failed.then(|| (status.reason.unwrap_or_default(), status.message.unwrap_or_default()))
}

#[tokio::test(start_paused = true)]
async fn memory_is_given_kept_over_a_restart_and_given_back() {
    let bench = node(Policy::None);
    let kubelet = bench.start();
    bench.api.create(&sized("first", "500m", "10Gi"));
    bench.until("ready", |b| is_ready(b, "first")).await;
    bench.api.create(&sized("second", "500m", "10Gi"));
    bench.until("ready", |b| is_ready(b, "second")).await;
    assert_eq!(
        (mems(&bench, "first"), mems(&bench, "second")),
        ("0".into(), "1".into())
    );
    assert_eq!(runs_on(&bench, "first").1, "", "nobody says which CPUs");
    let kept = r#""entries":{"first":{"first":[{"numaAffinity":[0],"type":"memory","size":10737418240}]},"second""#;
    assert!(file(&bench).contains(kept), "{}", file(&bench));
    // Whoever is no Guaranteed pod goes anywhere.
    bench.api.create(&simple("others"));
    bench.until("ready", |b| is_ready(b, "others")).await;
    assert!(kubelet.tells("kubelet_memory_manager_pinning_requests_total 2"));
    assert!(kubelet.tells("kubelet_memory_manager_pinning_errors_total 0"));

    // Another kubelet: what runs keeps what it has, and what comes gets what is left.
    kubelet.kill().await;
    let kubelet = bench.start();
    bench.api.create(&sized("small", "500m", "5Gi"));
    bench.until("ready", |b| is_ready(b, "small")).await;
    assert_eq!(mems(&bench, "small"), "1");
    bench.api.create(&sized("large", "500m", "8Gi"));
    bench.until("refused", |b| failed(b, "large").is_some()).await;
    let (reason, message) = failed(&bench, "large").expect("refused");
    assert_eq!(reason, "UnexpectedAdmissionError");
    let why = "Pod was rejected: Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected";
    assert_eq!(message, why);
    assert!(kubelet.tells("kubelet_memory_manager_pinning_errors_total 1"));
    assert!(!file(&bench).contains("large"));

    bench.api.delete("first", 1, at(0));
    bench.until("gone", |b| !b.api.has("first")).await;
    bench.api.create(&sized("again", "500m", "12Gi"));
    bench.until("ready", |b| is_ready(b, "again")).await;
    assert_eq!(mems(&bench, "again"), "0");
    assert!(!file(&bench).contains("\"first\""));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn cpus_and_memory_are_of_one_node_or_the_pod_is_refused() {
    let mut bench = node(Policy::SingleNumaNode);
    let (rules, _) = bench.pinning.as_mut().expect("pinned");
    rules.cpu = Some(CpuRules {
        options: Default::default(),
        reserved_milli: 1000,
    });
    let kubelet = bench.start();
    // Memory for it is on the second node alone.
    bench.api.create(&sized("mine", "4", "14Gi"));
    bench.until("ready", |b| is_ready(b, "mine")).await;
    assert_eq!(runs_on(&bench, "mine"), ("1".to_owned(), "3-4,9-10".to_owned()));
    bench.api.create(&sized("next", "2", "12Gi"));
    bench.until("ready", |b| is_ready(b, "next")).await;
    assert_eq!(mems(&bench, "next"), "0");
    // Three CPUs are left on the first node alone, memory on the second.
    bench.api.create(&sized("torn", "3", "1Gi"));
    bench.until("refused", |b| failed(b, "torn").is_some()).await;
    let (reason, message) = failed(&bench, "torn").expect("refused");
    assert_eq!(reason, "TopologyAffinityError");
    assert_eq!(
        message,
        "Pod was rejected: Resources cannot be allocated with Topology locality"
    );
    assert!(!file(&bench).contains("torn"));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn memory_of_guaranteed_pods_is_not_resized_and_cpu_is() {
    let bench = node(Policy::None);
    let kubelet = bench.start();
    bench.api.create(&sized("mine", "500m", "10Gi"));
    bench.until("ready", |b| is_ready(b, "mine")).await;
    let before = file(&bench);
    resize(&bench, 2, "500m", "11Gi");
    let why = "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"";
    bench.until("refused", |b| is_infeasible(b, why)).await;
    let counted =
        "kubelet_pod_infeasible_resizes_total{reason_detail=\"guaranteed_pod_memory_manager_static_policy\"} 1";
    assert!(kubelet.tells(counted));
    assert_eq!(resources(&bench, "mine").memory_limit_in_bytes, 10 << 30);
    assert_eq!(file(&bench), before);
    resize(&bench, 3, "750m", "10Gi");
    bench
        .until("resized", |b| resources(b, "mine").cpu_quota == 75_000)
        .await;
    assert_eq!((mems(&bench, "mine"), file(&bench)), ("0".to_owned(), before));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_between_the_file_and_the_start_gives_nothing_twice() {
    let bench = node(Policy::None);
    let first = bench.start();
    bench.until("opened", |b| !file(b).is_empty()).await;
    // The file is written before the container is created, which hangs.
    bench.runtime.next("CreateContainer", Mishap::Hang);
    bench.api.create(&sized("mine", "500m", "10Gi"));
    bench.until("kept", |b| file(b).contains("\"mine\"")).await;
    assert_eq!(bench.running("mine"), 0);
    first.kill().await;
    bench.api.create(&sized("other", "500m", "10Gi"));
    let second = bench.start();
    bench
        .until("ready", |b| is_ready(b, "mine") && is_ready(b, "other"))
        .await;
    assert_eq!((mems(&bench, "mine"), mems(&bench, "other")), ("0".into(), "1".into()));
    second.kill().await;

    // A file that could not be written holds back just those it tells of.
    let path = bench
        .manifests()
        .with_file_name("kubelet")
        .join("memory_manager_state.tmp");
    let third = bench.start();
    bench.until("there", |b| is_ready(b, "mine")).await;
    std::fs::create_dir(&path).expect("made");
    bench.api.create(&sized("late", "500m", "2Gi"));
    bench
        .until("told", |b| has_event(b, "Failed", "memory_manager_state"))
        .await;
    bench.api.create(&simple("others"));
    bench.until("ready", |b| is_ready(b, "others")).await;
    assert_eq!(bench.running("late"), 0);
    std::fs::remove_dir(&path).expect("removed");
    bench.until("ready", |b| is_ready(b, "late")).await;
    assert_eq!(mems(&bench, "late"), "0");
    third.kill().await;
}
