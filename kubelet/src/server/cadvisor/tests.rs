use super::family::{DiskUse, write};
use super::*;
use crate::host::machine::Disk;
use crate::host::traffic::Traffic;
use crate::pod::spec::testing::pod;
use crate::pod::view::Life;
use crate::runtime::observed::{ObservedPod, ObservedSandbox};
use crate::stats::diskstats::DiskIo;
use crate::stats::numbers::{Cpu, Device, Limits, Memory, MemoryParts, Periods, Pressure, Stalls, Tasks};
use crate::stats::sampler::Group;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const LIST: &str = include_str!("../../../../tests/metrics.tsv");

/// Numbers of which all are told.
fn all() -> Numbers {
    let stalls = Some(Stalls::default());
    Numbers {
        cpu: Cpu {
            total_nanos: Some(2_500_000_000),
            user_nanos: Some(1),
            system_nanos: Some(1),
            periods: Some(Periods::default()),
        },
        memory: Memory {
            usage: Some(70),
            working_set: Some(60),
            swap: Some(1),
            kernel: Some(1),
            peak: Some(1),
            limit_hits: Some(1),
            oom_kills: Some(1),
            parts: Some(MemoryParts::default()),
            rss_told: None,
        },
        limits: Limits {
            shares: Some(1),
            quota_us: Some(1),
            period_us: Some(1),
            memory: None,
            swap: None,
            reservation: None,
            has: (true, true),
        },
        tasks: Tasks {
            processes: Some(1),
            threads: Some(1),
            threads_max: None,
            open_files: Some(1),
            sockets: Some(1),
            open_files_max: Some(-1),
        },
        pressure: Pressure {
            cpu: stalls,
            memory: stalls,
            io: stalls,
        },
        devices: vec![Device {
            major: 8,
            name: "/dev/sda".to_owned(),
            bytes: (11, 22),
            cost_us: Some([1_500_000, 2, 3, 4]),
            ..Device::default()
        }],
    }
}

fn interface(name: &str) -> Traffic {
    Traffic {
        name: name.to_owned(),
        received: Default::default(),
        sent: Default::default(),
    }
}

/// The rows of the list that are not absent, by name: type, labels and when.
fn listed() -> BTreeMap<&'static str, (&'static str, BTreeSet<&'static str>, &'static str)> {
    let rows = LIST.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [page, name, kind, _, labels, _, when] = <[&str; 7]>::try_from(fields).ok()?;
        let labels = labels.split(',').filter(|label| *label != "-").collect();
        let is_here = page == "/metrics/cadvisor" && ["always", "busy", "once"].contains(&when);
        is_here.then_some((name, (kind, labels, when)))
    });
    rows.collect()
}

/// The families of a page: type and labels.
fn families(text: &str) -> BTreeMap<&str, (&str, BTreeSet<&str>)> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            found.insert(name, (kind, BTreeSet::new()));
        } else if let Some((name, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let names = labels
                .split("=\"")
                .filter_map(|part| part.rsplit([',', '"', '{']).next());
            let (_, known) = found.get_mut(name).expect("declared");
            known.extend(names.filter(|name| name.chars().all(|c| c.is_ascii_alphabetic() || c == '_')));
        }
    }
    for (_, labels) in found.values_mut() {
        labels.remove("");
    }
    found
}

#[test]
fn families_are_those_of_the_list() {
    let disk = DiskUse {
        used: Some(1),
        disk: Disk {
            capacity: 1,
            inodes: 1,
            ..Disk::default()
        },
        io: Some(DiskIo::default()),
    };
    let subject = Subject {
        interfaces: vec![interface("eth0")],
        disks: vec![("/dev/sda1".to_owned(), disk)],
        ..group("/", &all(), Some(Timestamp::UNIX_EPOCH), Timestamp::UNIX_EPOCH)
    };
    let mut text = String::new();
    write(&mut text, &[subject], Timestamp::UNIX_EPOCH);
    let found = families(&text);
    let of_groups = listed()
        .into_iter()
        .filter(|(name, _)| name.starts_with("container_") && *name != "container_scrape_error");
    let expected: BTreeMap<_, _> = of_groups
        .map(|(name, (kind, labels, _))| (name, (kind, labels)))
        .collect();
    assert_eq!(found, expected);
}

fn snapshot() -> PodSnapshot {
    let at = Timestamp::UNIX_EPOCH;
    let mut pod = pod(r#"{"containers":[{"name":"main"}]}"#);
    pod.metadata.name = Some("web".to_owned());
    pod.metadata.namespace = Some("shop".to_owned());
    let sandbox = ObservedSandbox {
        id: "s1".into(),
        pod: "u-1".into(),
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        attempt: 0,
        ready: true,
        created_at: at,
        ips: Vec::new(),
        host_network: false,
        handler: String::new(),
    };
    let log = std::path::Path::new("/none");
    let observed = ObservedPod {
        uid: "u-1".into(),
        sandboxes: vec![sandbox],
        containers: vec![crate::server::tests::container(
            "main",
            crate::runtime::observed::ContainerState::Running,
            log,
            0,
        )],
    };
    PodSnapshot {
        pod: Arc::new(pod),
        status: Arc::default(),
        observed: Arc::new(observed),
        active: true,
        ended: false,
        life: Life::default(),
    }
}

#[test]
fn pods_sandboxes_and_containers_are_told_as_dashboards_know_them() {
    let of = |id: &str| Group {
        id: id.to_owned(),
        numbers: all(),
        rate: None,
        started: Timestamp::from_second(9).ok(),
    };
    let pod = PodLook {
        snapshot: Arc::new(snapshot()),
        own: Some(of("/kubepods/podu-1")),
        containers: vec![(0, of("/kubepods/podu-1/main-0"))],
        sandbox: Some(of("/kubepods/podu-1/s1")),
        interfaces: vec![interface("eth\"0")],
    };
    let look = Look {
        at: Timestamp::UNIX_EPOCH,
        depth: Depth::Everything,
        node: Default::default(),
        node_rate: None,
        interfaces: Vec::new(),
        // Where a kubelet and its runtime share a cgroup, or are in none of their own.
        system: [
            ("pods", "/kubepods"),
            ("kubelet", "/shared"),
            ("runtime", "/shared"),
            ("misc", "/"),
        ]
        .map(|(name, id)| (name, of(id)))
        .into(),
        classes: vec![of("/kubepods/burstable")],
        pods: vec![pod],
        failed: false,
    };
    let usage = ContainerUsage {
        pod: Some("u-1".into()),
        name: "main".to_owned(),
        layer: Some((4096, 2)),
        ..ContainerUsage::default()
    };
    let disk = |device: &str| {
        let mut disk = RuntimeDisk {
            device: device.to_owned(),
            ..RuntimeDisk::default()
        };
        disk.disk.capacity = 1 << 30;
        disk.disk.free = 1 << 29;
        disk.io = Some(DiskIo {
            took_ms: (1500, 250),
            ..DiskIo::default()
        });
        disk
    };
    let disks = Disks {
        node: disk("/dev/sda"),
        images: Some(disk("/dev/sdb")),
        layers: Some(disk("/dev/sda")),
    };
    let mut text = String::new();
    write(&mut text, &subjects(&look, &Some(vec![usage]), &disks), look.at);
    let of_pod = r#"namespace="shop",pod="web""#;
    for line in [
        r#"container_memory_usage_bytes{container="",id="/kubepods",image="",name="",namespace="",pod=""} 70 0"#.to_owned(),
        r#"container_memory_usage_bytes{container="",id="/kubepods/burstable",image="",name="",namespace="",pod=""} 70 0"#.to_owned(),
        format!(r#"container_memory_usage_bytes{{container="",id="/kubepods/podu-1",image="",name="",{of_pod}}} 70 0"#),
        format!(r#"container_memory_usage_bytes{{container="",id="/kubepods/podu-1/s1",image="",name="s1",{of_pod}}} 70 0"#),
        format!(
            r#"container_cpu_usage_seconds_total{{container="main",cpu="total",id="/kubepods/podu-1/main-0",image="busybox",name="main-0",{of_pod}}} 2.5 0"#
        ),
        format!(
            r#"container_network_receive_bytes_total{{container="",interface="eth\"0",id="/kubepods/podu-1/s1",image="",name="s1",{of_pod}}} 0 0"#
        ),
        format!(
            r#"container_fs_usage_bytes{{container="main",device="/dev/sda",id="/kubepods/podu-1/main-0",image="busybox",name="main-0",{of_pod}}} 4096 0"#
        ),
        format!(
            r#"container_blkio_device_usage_total{{container="main",device="/dev/sda",major="8",minor="0",operation="Write",id="/kubepods/podu-1/main-0",image="busybox",name="main-0",{of_pod}}} 22 0"#
        ),
        r#"container_start_time_seconds{container="",id="/kubepods",image="",name="",namespace="",pod=""} 9"#.to_owned(),
        r#"container_fs_usage_bytes{container="",device="/dev/sda",id="/",image="",name="",namespace="",pod=""} 536870912 0"#.to_owned(),
        r#"container_fs_write_seconds_total{container="",device="/dev/sda",id="/",image="",name="",namespace="",pod=""} 0.25 0"#.to_owned(),
        format!(
            r#"container_fs_io_cost_usage_seconds_total{{container="main",device="/dev/sda",id="/kubepods/podu-1/main-0",image="busybox",name="main-0",{of_pod}}} 1.5 0"#
        ),
        format!(r#"container_spec_cpu_shares{{container="main",id="/kubepods/podu-1/main-0",image="busybox",name="main-0",{of_pod}}} 1"#),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let mut series = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.rsplit_once("} ").map_or(line, |(name, _)| name);
        assert!(series.insert(name), "twice: {name}");
    }
    // The network is told once: of the sandbox.
    let of_network = text
        .lines()
        .filter(|line| line.starts_with("container_network_receive_bytes_total"));
    assert_eq!(of_network.count(), 1);
}
