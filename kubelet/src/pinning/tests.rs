use super::hint::{NumaMask, Policy};
use super::topology::NodeMemory;
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

#[test]
fn who_has_cpus_has_no_quota_unless_the_gate_keeps_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let metrics = Metrics::new("n").pinning;
    let held = |rules: &Rules, directory: &str, cpu: &str| {
        let pinning = opened(&dir.path().join(directory), rules).expect("opens");
        let pod = guaranteed("u", cpu);
        let share = pinning.place(&pod, &mut [], &metrics).expect("placed");
        pinning.commit(&"u".into(), share, &metrics);
        pinning.unbounded(&"u".into())
    };
    let own = held(&rules(), "own", "2");
    assert!(own.has("c") && own.any() && !own.has("d"));
    assert_eq!(held(&rules(), "shared", "1500m"), Unbounded::default());
    let keeps = Rules {
        no_quota: false,
        ..rules()
    };
    assert!(!held(&keeps, "gate", "2").any());
    assert!(!Pinning::default().unbounded(&"u".into()).any());
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
    let twice = |pod: &str| {
        (
            pod.to_owned(),
            [("c".to_owned(), CpuSet::parse("1,5").expect("a list"))].into(),
        )
    };
    let held = cpu::Assignments {
        shared: CpuSet::parse("0,2-4,6-7").expect("a list"),
        exclusive: [twice("a"), twice("b")].into(),
    };
    let begun = std::fs::read(&path).expect("begun");
    std::fs::write(&path, cpu::state::write("static", &held)).expect("write");
    assert_eq!(
        opened(dir.path(), &rules()).err().expect("one CPU twice"),
        format!(
            "start cpu manager error: entries: pod: b, container: c cpuset: \"1,5\" overlaps with pod: a, container: c cpuset: \"1,5\": invalid state, please drain node and remove policy state file {path:?}"
        )
    );
    std::fs::write(&path, begun).expect("write");
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
        // The machine has one cache of level 3.
        "kubelet_container_aligned_compute_resources_count{scope=\"container\",boundary=\"uncore_cache\"} 1",
        "kubelet_topology_manager_admission_duration_ms_count 2",
        "kubelet_topology_manager_admission_requests_total 2",
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
fn what_may_be_counted_is_told_before_it_happens_and_pods_are_counted_where_nothing_is_given() {
    let dir = tempfile::tempdir().expect("temp dir");
    let all = Metrics::new("n");
    let text = || all.text(&crate::pod::view::PodView::default());
    let lines = |what: &str| text().lines().filter(|line| line.contains(what)).count();
    let nothing = opened(&dir.path().join("none"), &Rules::default()).expect("opens");
    nothing.count(&all.pinning);
    nothing
        .place(&guaranteed("a", "2"), &mut [], &all.pinning)
        .expect("nothing is given");
    assert_eq!(lines("_aligned_compute_resources_"), 0, "{}", text());
    assert_eq!(lines("kubelet_topology_manager_admission_requests_total 1"), 1);
    let given = opened(&dir.path().join("cpus"), &rules()).expect("opens");
    given.count(&all.pinning);
    assert_eq!(lines("boundary=\"physical_cpu\"} 0"), 2, "{}", text());
    assert_eq!(lines("boundary=\"uncore_cache\"} 0"), 1);
    assert_eq!(lines("numa_node\"} 0"), 0);
    let rules = Rules {
        topology: TopologyRules {
            policy: Policy::BestEffort,
            ..TopologyRules::default()
        },
        ..Rules::default()
    };
    let aligned = opened(&dir.path().join("near"), &rules).expect("opens");
    aligned.count(&all.pinning);
    assert_eq!(lines("boundary=\"numa_node\"} 0"), 4, "{}", text());
}

#[test]
fn caches_are_told_apart() {
    let dir = tempfile::tempdir().expect("temp dir");
    let all = Metrics::new("n");
    let shape = topology::testing::CACHES;
    let mut rules = rules();
    rules.cpu.as_mut().expect("static").options.prefer_caches = true;
    let pinning = Pinning::open(dir.path(), &rules, KEPT, || Ok(shape.topology())).expect("opens");
    for (uid, cpu, counted) in [("a", "4", 1), ("b", "6", 1), ("c", "1", 2), ("c", "1", 2)] {
        let share = pinning
            .place(&guaranteed(uid, cpu), &mut [], &all.pinning)
            .expect("room");
        pinning.commit(&PodUid::from(uid), share, &all.pinning);
        let text = all.text(&crate::pod::view::PodView::default());
        let line = format!("boundary=\"uncore_cache\"}} {counted}");
        assert!(text.lines().any(|found| found.ends_with(&line)), "{uid}: {text}");
    }
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
        "kubelet_container_aligned_compute_resources_count{scope=\"container\",boundary=\"numa_node\"} 2",
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

/// The static memory policy that keeps this of nodes.
fn memory_rules(kept: &[(u32, &str)]) -> Rules {
    let of = |(node, text): &(u32, &str)| memory::reserve::Reservation {
        node: *node,
        limits: [("memory".to_owned(), text.parse().expect("a quantity"))].into(),
    };
    Rules {
        memory: Some(kept.iter().map(of).collect()),
        ..Rules::default()
    }
}

#[test]
fn a_kubelet_refuses_memory_that_another_policy_or_machine_left() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join(files::MEMORY);
    let text = || std::fs::read_to_string(&path).unwrap_or_default();
    let on = |rules: &Rules, shape: topology::testing::Shape| {
        Pinning::open(dir.path(), rules, KEPT, || Ok(shape.topology())).map_err(|why| why.to_string())
    };
    let kept = memory_rules(&[(0, "3Gi")]);
    on(&Rules::default(), TWO).expect("a new node");
    assert_eq!(
        text(),
        r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#
    );
    let drain = format!(
        ", please drain this node and delete the memory manager checkpoint file {path:?} before restarting Kubelet"
    );
    let start = "start memory manager error: could not restore state from checkpoint: ";
    assert_eq!(
        on(&kept, TWO).err(),
        Some(format!(
            "{start}[memorymanager] configured policy \"Static\" differs from state checkpoint policy \"None\"{drain}"
        ))
    );
    std::fs::write(&path, r#"{"policyName":"Static","checksum":7}"#).expect("write");
    assert_eq!(
        on(&kept, TWO).err(),
        Some(format!("{start}checkpoint is corrupted{drain}"))
    );
    std::fs::remove_file(&path).expect("removed");
    on(&kept, TWO).expect("begun anew");
    let begun = text();
    let node = r#""1":{"numberOfAssignments":0,"memoryMap":{"hugepages-1Gi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"hugepages-2Mi":{"total":1073741824,"systemReserved":0,"allocatable":1073741824,"reserved":0,"free":1073741824},"memory":{"total":17179869184,"systemReserved":0,"allocatable":16106127360,"reserved":0,"free":16106127360}},"cells":[1]}"#;
    assert!(begun.contains(node), "{begun}");
    on(&kept, TWO).expect("the same");
    let misfit = format!(
        "start memory manager error: [memorymanager] the expected machine state is different from the real one: invalid state, please drain node and remove policy state file {path:?}"
    );
    assert_eq!(on(&kept, SMALL).err(), Some(misfit.clone()));
    assert_eq!(on(&memory_rules(&[(0, "2Gi"), (1, "1Gi")]), TWO).err(), Some(misfit));
    let init = "Failed to initialize memory manager: ";
    let sum = "the total amount \"2Gi\" of type \"memory\" is not equal to the value \"3Gi\" determined by Node Allocatable feature";
    assert_eq!(
        on(&memory_rules(&[(0, "2Gi")]), TWO).err(),
        Some(format!("{init}{sum}"))
    );
    assert_eq!(text(), begun, "a refusal harms nothing");
    let many = topology::testing::Shape { sockets: 11, ..TWO };
    let why = on(&kept, many).err().expect("too many");
    assert_eq!(why, "unsupported on machines with more than 10 NUMA Nodes");
    let far = || {
        let mut far = TWO.topology();
        far.memory.insert(64, NodeMemory::default());
        Ok(far)
    };
    let why = Pinning::open(dir.path(), &kept, KEPT, far)
        .err()
        .expect("too far")
        .to_string();
    assert_eq!(why, "unsupported on machines with a NUMA node 64: numbers up to 63 are");
}

#[tokio::test]
async fn who_has_what_can_be_read_and_one_kind_alone_is_kept_too() {
    let dir = tempfile::tempdir().expect("temp dir");
    let metrics = Metrics::new("n").pinning;
    let mut both = memory_rules(&[(0, "3Gi")]);
    both.cpu = rules().cpu;
    let pinning = Pinning::open(dir.path(), &both, KEPT, || Ok(TWO.topology())).expect("opens");
    let uid = PodUid::from("a");
    // It has memory to itself, and shares its CPUs.
    let share = pinning
        .place(&guaranteed("a", "500m"), &mut [], &metrics)
        .expect("room");
    pinning.commit(&uid, share, &metrics);
    assert!(pinning.has_own(&uid, "c") && !pinning.has_own(&uid, "d") && pinning.is_held(|by| by == "a"));
    assert_eq!(pinning.cpus_of(&uid, "c").len(), 0);
    let block = memory::Block {
        numas: NumaMask::of([0]),
        resource: "memory".to_owned(),
        bytes: 1 << 30,
    };
    assert_eq!(pinning.memory_of(&uid, "c"), [block]);
    assert_eq!(pinning.allocatable_cpus().to_string(), "1-11");
    let total: u64 = pinning.allocatable_memory().iter().map(|block| block.bytes >> 30).sum();
    assert_eq!(total, 12 + 1 + 15 + 1);
    pinning.kept().await.expect("written");
    let next = Pinning::open(dir.path(), &both, KEPT, || Ok(TWO.topology())).expect("opens");
    assert_eq!(next.memory_of(&uid, "c"), pinning.memory_of(&uid, "c"));
    next.retain(|_| false, &metrics);
    assert!(!next.has_own(&uid, "c") && !next.is_held(|_| true));
    let fixed = |pinning: &Pinning| (pinning.fixed().cpu, pinning.fixed().memory);
    assert_eq!(fixed(&next), (true, true));
    assert_eq!(fixed(&Pinning::default()), (false, false));
    assert!(Pinning::default().allocatable_memory().is_empty());
}
