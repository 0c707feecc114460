use crate::cgroup::{OwnCgroups, ReservedCgroup, Whose};
use crate::config::gates::Memory;
use crate::config::{CgroupConfig, Flags, KubeletConfiguration, MemorySwap, resolve};
use serde_json::{Value, json};

fn read(fields: Value, memory: Memory) -> Result<CgroupConfig, Vec<String>> {
    let mut written = KubeletConfiguration::of(&fields);
    written.memory = memory;
    resolve(&written, &Flags::default(), true).map(|config| config.cgroups)
}

fn plain(fields: Value) -> Result<CgroupConfig, Vec<String>> {
    read(fields, Memory::default())
}

#[test]
fn reserved_cgroups_are_held_to_their_own_amounts() {
    let config = plain(json!({
        "enforceNodeAllocatable": ["pods", "system-reserved", "kube-reserved-compressible"],
        "systemReserved": {"memory": "1Gi", "pid": "1000"}, "systemReservedCgroup": "/system.slice",
        "kubeReserved": {"cpu": "500m", "memory": "1Gi"}, "kubeReservedCgroup": "/runtime.slice",
    }));
    let config = config.expect("sound");
    let system = ReservedCgroup {
        whose: Whose::System,
        compressible: false,
        cgroup: "/system.slice".into(),
        cpu_milli: None,
        memory: Some(1 << 30),
        pids: Some(1000),
    };
    let kube = ReservedCgroup {
        whose: Whose::Kube,
        compressible: true,
        cgroup: "/runtime.slice".into(),
        cpu_milli: Some(500),
        memory: Some(1 << 30),
        pids: None,
    };
    assert_eq!(config.reserved_cgroups, [system, kube]);
    assert!(config.enforce_pods);
    assert_eq!((config.reserved.cpu_milli, config.reserved.memory >> 20), (500, 2048));
    let defaults = plain(json!({"systemReservedCgroup": "/system.slice"})).expect("sound");
    assert!(defaults.enforce_pods && defaults.reserved_cgroups.is_empty());
    let none = plain(json!({"enforceNodeAllocatable": ["none"]})).expect("sound");
    assert!(!none.enforce_pods);
}

#[test]
fn the_nodes_own_processes_have_cgroups_by_their_paths() {
    let config = plain(json!({"cgroupRoot": "/", "systemCgroups": "system//all/", "kubeletCgroups": "/"}));
    let own = config.expect("sound").own;
    assert_eq!(
        (own.system.as_deref(), own.kubelet.as_deref()),
        (Some("/system/all"), Some("/"))
    );
    let beside = plain(json!({"cgroupRoot": "/a", "systemCgroups": "/kubepods", "kubeletCgroups": "/a/kubepods2"}));
    assert!(beside.is_ok(), "its name alone says nothing");
    let none = plain(json!({"systemCgroups": "", "kubeletCgroups": ""})).expect("sound");
    assert_eq!(none.own, OwnCgroups::default());
}

#[test]
fn what_does_not_go_together_is_named() {
    let reserved = json!({"cpu": "1"});
    for (fields, mistake) in [
        (
            json!({"systemCgroups": "/s"}),
            "systemCgroups: (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified",
        ),
        (
            json!({"systemCgroups": "//", "cgroupRoot": "/"}),
            "systemCgroups: system container cannot be root (\"/\")",
        ),
        (
            json!({"kubeletCgroups": "/kubepods/own"}),
            "kubeletCgroups: \"/kubepods/own\" must not be in \"/kubepods\", the cgroup of all pods",
        ),
        (
            json!({"systemCgroups": "/a/kubepods", "cgroupRoot": "/a"}),
            "systemCgroups: \"/a/kubepods\" must not be in \"/a/kubepods\", the cgroup of all pods",
        ),
        (
            json!({"kubeletCgroups": "/a/../b"}),
            "kubeletCgroups: must not contain '.' or '..'",
        ),
        (
            json!({"enforceNodeAllocatable": ["system-reserved"], "systemReserved": reserved}),
            "systemReservedCgroup: must be given when enforceNodeAllocatable contains \"system-reserved\"",
        ),
        (
            json!({"enforceNodeAllocatable": ["kube-reserved"], "kubeReservedCgroup": "/k"}),
            "kubeReserved: must be given when enforceNodeAllocatable contains \"kube-reserved\"",
        ),
        (
            json!({"enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"], "kubeReservedCgroup": "/k",
                "kubeReserved": reserved}),
            "enforceNodeAllocatable: \"kube-reserved\" and \"kube-reserved-compressible\" cannot be given together",
        ),
        (
            json!({"enforceNodeAllocatable": ["system-reserved"], "systemReserved": reserved, "systemReservedCgroup": "/"}),
            "systemReservedCgroup: must not be the root of all cgroups",
        ),
        (
            json!({"enforceNodeAllocatable": ["system-reserved"], "systemReserved": reserved, "systemReservedCgroup": "/a/../b"}),
            "systemReservedCgroup: must not contain '..'",
        ),
        (
            json!({"enforceNodeAllocatable": ["none", "pods"]}),
            "enforceNodeAllocatable: \"none\" must stand alone",
        ),
        (
            json!({"enforceNodeAllocatable": ["pots"]}),
            "enforceNodeAllocatable: \"pots\" is not one of none, pods, system-reserved, system-reserved-compressible, \
             kube-reserved, kube-reserved-compressible",
        ),
        (
            json!({"enforceNodeAllocatable": ["pods"], "cgroupsPerQOS": false}),
            "enforceNodeAllocatable: is not supported unless cgroupsPerQOS is true",
        ),
        (
            json!({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/k"}),
            "reservedSystemCPUs: cannot be given together with kubeReservedCgroup",
        ),
        (
            json!({"memoryReservationPolicy": "TieredReservation"}),
            "memoryReservationPolicy: \"TieredReservation\" needs feature gate MemoryQoS",
        ),
        (
            json!({"memoryReservationPolicy": "Some"}),
            "memoryReservationPolicy: \"Some\" is not one of None, TieredReservation",
        ),
        (
            json!({"memoryThrottlingFactor": 0.0}),
            "memoryThrottlingFactor: 0 must be greater than 0 and at most 1",
        ),
        (
            json!({"memoryThrottlingFactor": 1.5}),
            "memoryThrottlingFactor: 1.5 must be greater than 0 and at most 1",
        ),
        (
            json!({"memorySwap": {"swapBehavior": "UnlimitedSwap"}}),
            "memorySwap.swapBehavior: \"UnlimitedSwap\" must be one of \"\", \"LimitedSwap\" or \"NoSwap\"",
        ),
        (
            json!({"qosReserved": {"memory": "50%"}}),
            "qosReserved: needs feature gate QOSReserved",
        ),
    ] {
        assert_eq!(plain(fields.clone()).expect_err("a mistake"), [mistake], "{fields}");
    }
    let gate = Memory {
        qos_reserved: true,
        ..Memory::default()
    };
    for (fields, mistake) in [
        (
            json!({"qosReserved": {"memory": "101%"}}),
            "qosReserved: memory: \"101%\" is not a whole percentage between 0% and 100%",
        ),
        (
            json!({"qosReserved": {"memory": "1Gi"}}),
            "qosReserved: memory: \"1Gi\" is not a whole percentage between 0% and 100%",
        ),
        (
            json!({"qosReserved": {"cpu": "50%"}}),
            "qosReserved: \"cpu\" is not supported: only memory is",
        ),
    ] {
        assert_eq!(
            read(fields.clone(), gate).expect_err("a mistake"),
            [mistake],
            "{fields}"
        );
    }
}

#[test]
fn memory_is_kept_and_swapped_as_written() {
    let of = |config: CgroupConfig| {
        let memory = (config.memory_throttling, config.reserves_memory);
        (memory, config.limited_swap, config.qos_reserved_percent)
    };
    assert_eq!(of(plain(json!({})).expect("sound")), ((None, false), false, None));
    let gates = Memory {
        qos: true,
        qos_reserved: true,
    };
    assert_eq!(
        of(read(json!({}), gates).expect("sound")),
        ((Some(0.9), false), false, None)
    );
    let all = json!({"memoryReservationPolicy": "TieredReservation", "memoryThrottlingFactor": 1.0,
        "memorySwap": {"swapBehavior": "LimitedSwap"}, "qosReserved": {"memory": "25%"}});
    assert_eq!(
        of(read(all, gates).expect("sound")),
        ((Some(1.0), true), true, Some(25))
    );
    let none = MemorySwap {
        swap_behavior: Some("NoSwap".into()),
    };
    assert_eq!(
        serde_json::from_value::<MemorySwap>(json!({"swapBehavior": "NoSwap"})).expect("sound"),
        none
    );
}
