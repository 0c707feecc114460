use super::*;
use crate::config::{Flags, KubeletConfiguration, resolve};
use crate::host::machine::{Disk, Machine};
use crate::node::over_reserved;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn config(fields: Value) -> Config {
    let written = KubeletConfiguration::of(&fields);
    resolve(&written, &Flags::default(), true).expect("sound")
}

/// A machine of 4 CPUs and 8 GiB.
fn facts() -> Facts {
    Facts {
        name: "n".into(),
        host_name: "n".into(),
        ips: Vec::new(),
        machine: Machine {
            cpus: 4,
            memory: 8 << 30,
            ..Machine::default()
        },
        disk: Disk {
            capacity: 100 << 30,
            ..Disk::default()
        },
        hugepages: BTreeMap::from([("2Mi".to_owned(), 64 << 20)]),
        port: 10250,
    }
}

#[test]
fn pods_are_limited_by_reservations_where_that_is_enforced_and_by_the_machine_otherwise() {
    let of = |enforce: &str, reserved: Value| {
        let fields =
            json!({"enforceNodeAllocatable": [enforce], "systemReserved": reserved, "kubeReserved": {"memory": "1Gi"}});
        let limits = node_limits(&config(fields), &facts(), Some(30_000));
        assert_eq!(limits.hugepages, BTreeMap::from([("2MB".to_owned(), 64 << 20)]));
        assert_eq!(limits.enforced, enforce == "pods");
        (
            limits.cpu_milli,
            limits.memory >> 30,
            limits.pids,
            limits.allocatable_memory >> 30,
        )
    };
    let reserved = || json!({"cpu": "500m", "memory": "1Gi", "pid": "1000"});
    // What hard eviction keeps (100Mi of memory) is not taken off.
    assert_eq!(of("pods", reserved()), (3500, 6, Some(29_000), 6));
    assert_eq!(of("none", reserved()), (4000, 8, Some(30_000), 6));
    assert_eq!(of("pods", json!({})), (4000, 7, Some(30_000), 7));
}

#[test]
fn more_than_there_is_cannot_be_reserved() {
    let of = |fields: Value| over_reserved(&config(fields), &facts());
    assert!(of(json!({"systemReserved": {"cpu": "4", "memory": "7Gi"}})).is_empty());
    let together = "Expected capacity >= reservation (systemReserved, kubeReserved and evictionHard together).";
    assert_eq!(
        of(
            json!({"systemReserved": {"cpu": "4", "memory": "8Gi"}, "kubeReserved": {"cpu": "100m", "ephemeral-storage": "95Gi"}, "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10Gi"}})
        ),
        [
            format!("Resource \"cpu\" has a reservation of 4100m but capacity of 4. {together}"),
            format!("Resource \"memory\" has a reservation of 8292Mi but capacity of 8Gi. {together}"),
            format!("Resource \"ephemeral-storage\" has a reservation of 105Gi but capacity of 100Gi. {together}"),
        ]
    );
}

#[test]
fn memory_qos_needs_the_gate_and_version_2() {
    let mut with = config(json!({"systemReserved": {"memory": "1Gi"}}));
    assert_eq!(memory_qos(&with, &facts(), true), None);
    with.cgroups.memory_throttling = Some(0.5);
    with.cgroups.limited_swap = true;
    assert_eq!(memory_qos(&with, &facts(), false), None);
    let qos = memory_qos(&with, &facts(), true).expect("on");
    assert_eq!((qos.factor, qos.reserves, qos.allocatable >> 30), (0.5, false, 7));
    assert!(qos.page >= 4096);
    assert!(swap(&with, &facts(), true).limited && !swap(&with, &facts(), false).limited);
}

#[test]
fn swap_is_limited_by_the_kernel_if_a_cgroup_has_the_file() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (mount, proc) = (dir.path().join("cgroup"), dir.path().join("proc"));
    let put = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    };
    put(&proc.join("self/cgroup"), "0::/system.slice/kubelet.service\n");
    put(&mount.join("cgroup.controllers"), "");
    assert!(!limits_swap(&mount, &proc));
    put(&mount.join("system.slice/kubelet.service/memory.swap.max"), "");
    assert!(limits_swap(&mount, &proc));
    put(&proc.join("self/cgroup"), "0::/\n");
    assert!(!limits_swap(&mount, &proc));
    put(&mount.join("init.scope/memory.swap.max"), "");
    assert!(limits_swap(&mount, &proc));
    let v1 = dir.path().join("v1");
    put(&v1.join("memory/memory.memsw.limit_in_bytes"), "");
    assert!(limits_swap(&v1, &proc));
}

#[test]
fn old_kernels_are_known_by_their_release() {
    for (release, old) in [
        ("5.8.0-63-generic", true),
        ("4.19.0", true),
        ("5.9", false),
        ("5.15.0-91", false),
        ("6.1.0", false),
        ("", false),
    ] {
        assert_eq!(is_older(release, RECLAIMS_SOUNDLY), old, "{release}");
    }
}
