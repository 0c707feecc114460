use super::*;
use crate::host::machine::Disk;
use crate::host::traffic::{Carried, Traffic};
use crate::host::usage::TreeUsage;
use crate::pod::spec::testing::pod as pod_of;
use crate::pod::view::Life;
use crate::runtime::observed::{ContainerState, ObservedPod};
use crate::stats::files::VolumeUse;
use crate::stats::node::Node;
use crate::stats::numbers::{MemoryParts, Stall, Stalls};
use crate::stats::sampler::{Group, RuntimeDisk};
use serde_json::{Value, json};
use std::path::Path;

const TIME: &str = "1970-01-01T00:00:00Z";

fn document(name: &str, look: &Look, told: &Option<Vec<ContainerUsage>>, rest: Option<&Rest>) -> Value {
    serde_json::from_str(&super::document(name, look, told, rest)).expect("JSON")
}

fn group(id: &str, scale: u64) -> Group {
    let mut numbers = Numbers::default();
    numbers.cpu.total_nanos = Some(100 * scale);
    numbers.memory.usage = Some(70 * scale);
    numbers.memory.working_set = Some(60 * scale);
    numbers.memory.swap = Some(5 * scale);
    numbers.memory.parts = Some(MemoryParts {
        rss: 30 * scale,
        faults: (7, 1),
        ..MemoryParts::default()
    });
    numbers.limits.memory = Some(100 * scale);
    numbers.limits.swap = Some(9 * scale);
    numbers.tasks.processes = Some(2);
    numbers.pressure.io = Some(Stalls {
        some: Stall {
            averages: [1.5, 0.0, 0.0],
            total_us: 3,
        },
        full: Stall::default(),
    });
    Group {
        id: id.to_owned(),
        numbers,
        rate: Some(10 * scale),
        started: Timestamp::from_second(-5).ok(),
    }
}

fn tree(bytes: u64) -> TreeUsage {
    TreeUsage {
        bytes,
        inodes: 1,
        ..TreeUsage::default()
    }
}

fn look() -> Look {
    let observed = ObservedPod {
        uid: "u-1".into(),
        sandboxes: Vec::new(),
        containers: vec![
            crate::server::tests::container("main", ContainerState::Running, Path::new("/none"), 1),
            crate::server::tests::container("main", ContainerState::Exited, Path::new("/none"), 0),
        ],
    };
    let snapshot = PodSnapshot {
        pod: Arc::new(pod_of(r#"{"containers":[{"name":"main"}]}"#)),
        status: Arc::default(),
        observed: Arc::new(observed),
        active: true,
        ended: false,
        life: Life::default(),
    };
    let carried = |bytes| Carried {
        bytes,
        errors: 1,
        ..Carried::default()
    };
    let interface = |name: &str, bytes| Traffic {
        name: name.to_owned(),
        received: carried(bytes),
        sent: carried(2),
    };
    Look {
        at: Timestamp::UNIX_EPOCH,
        depth: Depth::Summary,
        node: Node {
            numbers: group("/", 100).numbers,
            available: Some(500),
            swap_total: 1000,
            booted: Some(0),
            tasks: Some((32_768, 123)),
        },
        node_rate: Some(7),
        interfaces: vec![interface("cni0", 5), interface("eth0", 7)],
        system: vec![("pods", group("/kubepods", 10))],
        classes: Vec::new(),
        pods: vec![PodLook {
            snapshot: Arc::new(snapshot),
            own: Some(group("/kubepods/podu-1", 2)),
            containers: vec![(0, group("/kubepods/podu-1/main-1", 1))],
            sandbox: None,
            interfaces: vec![interface("eth0", 9)],
        }],
        failed: false,
    }
}

fn rest() -> Rest {
    let disk = Disk {
        capacity: 1000,
        // A twentieth is root's.
        free: 450,
        available: 400,
        inodes: 50,
        inodes_free: 20,
    };
    let of = |used| RuntimeDisk {
        at_nanos: 0,
        disk,
        device: String::new(),
        used,
        ..RuntimeDisk::default()
    };
    let usage = ContainerUsage {
        pod: Some("u-1".into()),
        name: "main".to_owned(),
        layer: Some((64, 3)),
        ..ContainerUsage::default()
    };
    let volume = |usage, is_local| VolumeUse { usage, disk, is_local };
    let endless = TreeUsage {
        incomplete: true,
        ..tree(9)
    };
    let files = PodFiles {
        at: Timestamp::UNIX_EPOCH,
        volumes: vec![
            ("scratch".to_owned(), volume(tree(16), true)),
            ("token".to_owned(), volume(endless, false)),
        ],
        logs: vec![("main".to_owned(), tree(8))],
        own: tree(4),
    };
    Rest {
        disks: Arc::new(Disks {
            node: of((None, None)),
            images: Some(of((Some(300), Some(10)))),
            layers: None,
        }),
        told: Arc::new(Some(vec![usage])),
        files: [("u-1".into(), Arc::new(files))].into(),
    }
}

#[test]
fn everything_of_a_pod_is_told() {
    let rest = rest();
    let told = document("node-a", &look(), &rest.told, Some(&rest));
    let pod = &told["pods"][0];
    let disk = |bytes: u64, inodes: u64| {
        json!({"time": TIME, "availableBytes": 400, "capacityBytes": 1000, "usedBytes": bytes, "inodesFree": 20, "inodes": 50,
            "inodesUsed": inodes})
    };
    let io = json!({"time": TIME, "psi": {"full": {"total": 0, "avg10": 0.0, "avg60": 0.0, "avg300": 0.0},
        "some": {"total": 3, "avg10": 1.5, "avg60": 0.0, "avg300": 0.0}}});
    let mut volume = disk(16, 1);
    volume["name"] = json!("scratch");
    let uncounted = json!({"time": TIME, "availableBytes": 400, "capacityBytes": 1000, "inodesFree": 20, "inodes": 50, "name": "token"});
    let expected = json!({
        "podRef": {"name": pod["podRef"]["name"], "namespace": pod["podRef"]["namespace"], "uid": "u-1"},
        "startTime": TIME,
        "cpu": {"time": TIME, "usageNanoCores": 20, "usageCoreNanoSeconds": 200},
        "memory": {"time": TIME, "availableBytes": 80, "usageBytes": 140, "workingSetBytes": 120, "rssBytes": 60, "pageFaults": 7,
            "majorPageFaults": 1},
        "swap": {"time": TIME, "swapUsageBytes": 10, "swapAvailableBytes": 8},
        "io": io,
        "network": {"time": TIME, "name": "eth0", "rxBytes": 9, "rxErrors": 1, "txBytes": 2, "txErrors": 1,
            "interfaces": [{"name": "eth0", "rxBytes": 9, "rxErrors": 1, "txBytes": 2, "txErrors": 1}]},
        "process_stats": {"process_count": 2},
        "volume": [volume, uncounted],
        "ephemeral-storage": disk(64 + 16 + 8 + 4, 3 + 3),
        "containers": [{
            "name": "main",
            "startTime": TIME,
            "cpu": {"time": TIME, "usageNanoCores": 10, "usageCoreNanoSeconds": 100},
            "memory": {"time": TIME, "availableBytes": 40, "usageBytes": 70, "workingSetBytes": 60, "rssBytes": 30, "pageFaults": 7,
                "majorPageFaults": 1},
            "swap": {"time": TIME, "swapUsageBytes": 5, "swapAvailableBytes": 4},
            "io": io,
            "rootfs": disk(64, 3),
            "logs": disk(8, 1),
        }],
    });
    assert_eq!(*pod, expected);
}

#[test]
fn everything_of_the_node_is_told() {
    let rest = rest();
    let told = document("node-a", &look(), &rest.told, Some(&rest));
    let node = &told["node"];
    // What is left is eviction's, not a limit's.
    assert_eq!(node["memory"]["availableBytes"], 500);
    assert_eq!(
        node["cpu"],
        json!({"time": TIME, "usageNanoCores": 7, "usageCoreNanoSeconds": 10_000})
    );
    assert_eq!(
        node["swap"],
        json!({"time": TIME, "swapUsageBytes": 500, "swapAvailableBytes": 500})
    );
    assert_eq!(node["rlimit"], json!({"time": TIME, "maxpid": 32_768, "curproc": 123}));
    assert_eq!(
        (
            &node["network"]["name"],
            &node["network"]["rxBytes"],
            node["network"]["interfaces"].as_array().map(Vec::len)
        ),
        (&json!("eth0"), &json!(7), Some(2))
    );
    assert_eq!(node["fs"]["usedBytes"], 550, "what is kept for root is not used");
    assert_eq!(node["fs"]["inodesUsed"], 30);
    for disk in ["imageFs", "containerFs"] {
        let used = (
            &node["runtime"][disk]["usedBytes"],
            &node["runtime"][disk]["capacityBytes"],
        );
        assert_eq!(used, (&json!(300), &json!(1000)), "{disk}");
    }
    let pods = &node["systemContainers"][0];
    assert_eq!(
        (&pods["name"], &pods["startTime"], &pods["memory"]["workingSetBytes"]),
        (&json!("pods"), &json!("1969-12-31T23:59:55Z"), &json!(600))
    );
    assert_eq!(pods["io"]["psi"]["some"]["total"], 3);
}

/// Upstream's own test of nodes takes nothing else for a network whose main interface is unknown.
#[test]
fn a_network_without_the_interface_that_is_its_main_one_has_no_numbers_of_its_own() {
    let (mut look, rest) = (look(), rest());
    look.interfaces.retain(|interface| interface.name != "eth0");
    let told = document("node-a", &look, &rest.told, Some(&rest));
    let one = json!({"name": "cni0", "rxBytes": 5, "rxErrors": 1, "txBytes": 2, "txErrors": 1});
    assert_eq!(
        told["node"]["network"],
        json!({"time": TIME, "name": "", "interfaces": [one]})
    );
    look.interfaces.clear();
    let told = document("node-a", &look, &rest.told, Some(&rest));
    assert_eq!(told["node"].get("network"), None);
}

#[test]
fn with_cpu_and_memory_alone_nothing_else_is_told() {
    let mut look = look();
    look.depth = Depth::Load;
    let told = document("node-a", &look, &Some(Vec::new()), None);
    let names = |value: &Value| {
        value
            .as_object()
            .map(|map| map.keys().cloned().collect::<Vec<_>>())
            .unwrap_or_default()
    };
    let mut node = names(&told["node"]);
    node.sort();
    assert_eq!(
        node,
        ["cpu", "memory", "nodeName", "startTime", "swap", "systemContainers"]
    );
    let mut container = names(&told["pods"][0]["containers"][0]);
    container.sort();
    assert_eq!(container, ["cpu", "memory", "name", "startTime", "swap"]);
}

#[test]
fn a_pod_without_a_cgroup_is_the_sum_of_what_the_runtime_tells() {
    let mut look = look();
    (look.pods[0].own, look.pods[0].containers) = (None, Vec::new());
    let usage = ContainerUsage {
        pod: Some("u-1".into()),
        name: "main".to_owned(),
        at_nanos: 5_000_000_000,
        cpu_nanos: Some(4),
        cpu_rate: Some(3),
        working_set: Some(2),
        ..ContainerUsage::default()
    };
    let told = document("node-a", &look, &Some(vec![usage]), None);
    let pod = &told["pods"][0];
    assert_eq!(
        pod["cpu"],
        json!({"time": TIME, "usageNanoCores": 3, "usageCoreNanoSeconds": 4})
    );
    assert_eq!(pod["memory"], json!({"time": TIME, "workingSetBytes": 2}));
    assert_eq!(pod["containers"][0]["cpu"]["time"], "1970-01-01T00:00:05Z");
}
