use super::hint::Policy;
use super::topology::testing::{SMALL, TWO};
use super::*;
use crate::metrics::Metrics;
use serde_json::json;
use std::path::Path;

fn rules() -> Rules {
    Rules {
        cpu: Some(CpuRules {
            options: Default::default(),
            reserved_milli: 1000,
        }),
        ..Rules::default()
    }
}

fn opened(directory: &Path, rules: &Rules) -> Result<Pinning, String> {
    Pinning::open(directory, rules, KEPT, || Ok(SMALL.topology())).map_err(|why| why.to_string())
}

fn guaranteed(uid: &str, cpu: &str) -> Pod {
    let list = json!({"cpu": cpu, "memory": "1Gi"});
    let container = json!({"name": "c", "resources": {"requests": list, "limits": list}});
    let pod = json!({"metadata": {"uid": uid}, "spec": {"containers": [container]}});
    serde_json::from_value(pod).expect("a pod")
}

fn file(directory: &Path) -> String {
    std::fs::read_to_string(directory.join(files::CPUS)).unwrap_or_default()
}

fn cpus_of(pinning: &Pinning, uid: &str) -> String {
    let mut resources = LinuxContainerResources::default();
    pinning.fit(&PodUid::from(uid), "c", &mut resources).expect("CPUs");
    resources.cpuset_cpus
}

#[tokio::test]
async fn what_is_given_is_on_disk_and_the_next_kubelet_has_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let metrics = Metrics::new("n").pinning;
    let pinning = opened(dir.path(), &rules()).expect("opens");
    let pod = guaranteed("a", "2");
    let share = pinning.place(&pod, &mut [], &metrics).expect("room");
    assert_eq!(cpus_of(&pinning, "a"), "0-7", "not before it is committed");
    pinning.commit(&PodUid::from("a"), share, &metrics);
    assert!(!file(dir.path()).contains("\"a\""));
    pinning.kept().await.expect("written");
    assert!(file(dir.path()).contains(r#""defaultCpuSet":"0,2-4,6-7","entries":{"a":{"c":"1,5"}}"#));
    let next = opened(dir.path(), &rules()).expect("opens");
    assert_eq!(
        (cpus_of(&next, "a"), cpus_of(&next, "b")),
        ("1,5".to_owned(), "0,2-4,6-7".to_owned())
    );
    let again = next.place(&pod, &mut [], &metrics).expect("the same");
    next.commit(&PodUid::from("a"), again, &metrics);
    next.retain(|uid| uid != "a", &metrics);
    next.kept().await.expect("written");
    assert_eq!(file(dir.path()), {
        let fresh = tempfile::tempdir().expect("temp dir");
        opened(fresh.path(), &rules()).expect("opens");
        file(fresh.path())
    });
}

#[test]
fn a_kubelet_refuses_what_another_policy_or_machine_left_and_harms_nothing() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join(files::CPUS);
    opened(dir.path(), &Rules::default()).expect("a new node");
    let none = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
    assert_eq!(file(dir.path()), none);
    let drain = format!(
        ", please drain this node and delete the CPU manager checkpoint file {path:?} before restarting Kubelet"
    );
    let start = "start cpu manager error: could not restore state from checkpoint: ";
    let why = opened(dir.path(), &rules()).err().expect("another policy");
    assert_eq!(
        why,
        format!("{start}configured policy \"static\" differs from state checkpoint policy \"none\"{drain}")
    );
    for (text, reason) in [
        ("{", "EOF while parsing"),
        ("{\"checksum\":7}", "checkpoint is corrupted"),
    ] {
        std::fs::write(&path, text).expect("write");
        let why = opened(dir.path(), &rules()).err().expect("damaged");
        assert!(
            why.starts_with(&format!("{start}{reason}")) && why.ends_with(&drain),
            "{why}"
        );
        assert_eq!(file(dir.path()), text, "it stays for whoever looks");
    }
    std::fs::remove_file(&path).expect("removed");
    opened(dir.path(), &rules()).expect("begun anew");
    let other = Pinning::open(dir.path(), &rules(), KEPT, || Ok(TWO.topology()));
    let why = other.err().expect("another machine").to_string();
    assert_eq!(
        why,
        format!(
            "start cpu manager error: current set of available CPUs \"0-11\" doesn't match with CPUs in state \"0-7\": invalid state, please drain node and remove policy state file {path:?}"
        )
    );
    let far = Rules {
        reserved: CpuSet::parse("0,9").expect("a list"),
        ..rules()
    };
    let why = opened(dir.path(), &far).err().expect("no such CPU");
    assert_eq!(why, "reserved-cpus: 0,9 is not a subset of online-cpus: 0-7");
    assert!(opened(dir.path(), &Rules::default()).is_err(), "static was here");
}

#[test]
fn reasons_are_upstreams_and_what_is_given_is_counted() {
    let dir = tempfile::tempdir().expect("temp dir");
    let all = Metrics::new("n");
    let metrics = &all.pinning;
    let mut rules = rules();
    rules.cpu.as_mut().expect("static").options.full_pcpus_only = true;
    let pinning = opened(dir.path(), &rules).expect("opens");
    let refused = |cpu: &str| {
        let why = pinning
            .place(&guaranteed("x", cpu), &mut [], metrics)
            .expect_err("refused");
        (why.reason, why.message)
    };
    let (reason, message) = refused("3");
    assert_eq!(reason, "SMTAlignmentError");
    assert_eq!(
        message,
        "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    );
    let share = pinning.place(&guaranteed("a", "4"), &mut [], metrics).expect("room");
    pinning.commit(&PodUid::from("a"), share, metrics);
    let text = all.text(&crate::pod::view::PodView::default());
    for line in [
        "kubelet_cpu_manager_pinning_requests_total 2",
        "kubelet_cpu_manager_pinning_errors_total 1",
        "kubelet_cpu_manager_shared_pool_size_millicores 3000",
        "kubelet_cpu_manager_exclusive_cpu_allocation_count 4",
        "kubelet_cpu_manager_allocation_per_numa{numa_node=\"0\"} 4",
        "kubelet_container_aligned_compute_resources_count{scope=\"container\",boundary=\"physical_cpu\"} 1",
        "kubelet_container_aligned_compute_resources_failure_count{scope=\"container\",boundary=\"physical_cpu\"} 1",
        "kubelet_topology_manager_admission_duration_ms_count 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let plain = tempfile::tempdir().expect("temp dir");
    let pinning = opened(plain.path(), &self::rules()).expect("opens");
    let why = pinning
        .place(&guaranteed("x", "8"), &mut [], metrics)
        .expect_err("refused");
    assert_eq!(why.reason, "UnexpectedAdmissionError");
    assert_eq!(
        why.message,
        "Allocate failed due to not enough cpus available to satisfy request: requested=8, available=7, which is unexpected"
    );
}

#[test]
fn one_numa_node_or_none() {
    let dir = tempfile::tempdir().expect("temp dir");
    let all = Metrics::new("n");
    let metrics = &all.pinning;
    for by_pod in [false, true] {
        let rules = Rules {
            topology: TopologyRules {
                policy: Policy::SingleNumaNode,
                by_pod,
                ..TopologyRules::default()
            },
            ..rules()
        };
        let directory = dir.path().join(by_pod.to_string());
        let pinning = Pinning::open(&directory, &rules, KEPT, || Ok(TWO.topology())).expect("opens");
        // The first node has the reserved CPU: six are on the second alone.
        let share = pinning.place(&guaranteed("a", "6"), &mut [], metrics).expect("room");
        pinning.commit(&PodUid::from("a"), share, metrics);
        assert_eq!(cpus_of(&pinning, "a"), "3-5,9-11");
        let why = pinning
            .place(&guaranteed("b", "6"), &mut [], metrics)
            .expect_err("no node has six");
        assert_eq!(why.reason, "TopologyAffinityError");
        assert_eq!(why.message, "Resources cannot be allocated with Topology locality");
        let share = pinning
            .place(&guaranteed("b", "500m"), &mut [], metrics)
            .expect("it shares");
        assert!(share.cpus.is_empty());
    }
    let text = all.text(&crate::pod::view::PodView::default());
    for line in [
        "kubelet_container_aligned_compute_resources_count{scope=\"pod\",boundary=\"numa_node\"} 2",
        "kubelet_container_aligned_compute_resources_failure_count{scope=\"container\",boundary=\"numa_node\"} 1",
        "kubelet_topology_manager_admission_requests_total 6",
        "kubelet_topology_manager_admission_errors_total 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let many = topology::testing::Shape { sockets: 9, ..TWO };
    let rules = Rules {
        topology: TopologyRules {
            policy: Policy::Restricted,
            ..TopologyRules::default()
        },
        ..rules()
    };
    let refused = Pinning::open(&dir.path().join("many"), &rules, KEPT, || Ok(many.topology()));
    let why = refused.err().expect("too many").to_string();
    assert_eq!(why, "unsupported on machines with more than 8 NUMA Nodes");
}
