//! What a node of known facts says, and which changes count.

use super::*;
use crate::config::{Flags, KubeletConfiguration, resolve};

pub(crate) fn config() -> Config {
    resolve(&KubeletConfiguration::default(), &Flags::default(), true).expect("defaults")
}

pub(crate) fn facts() -> Facts {
    Facts {
        name: "node-a".into(),
        host_name: "host-a".into(),
        ips: vec!["192.0.2.10".parse().expect("address")],
        machine: Machine {
            cpus: 4,
            memory: 8 << 30,
            kernel: "6.1.0".into(),
            os_image: "Debian".into(),
            ..Machine::default()
        },
        disk: Disk {
            capacity: 100 << 30,
            ..Disk::default()
        },
        hugepages: BTreeMap::from([("2Mi".to_owned(), 0)]),
        port: 10250,
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn healthy() -> Health {
    Health {
        runtime: String::new(),
        network: String::new(),
        pleg: String::new(),
        shutdown: String::new(),
    }
}

fn status(health: &Health, old: Option<&NodeStatus>, second: i64) -> NodeStatus {
    let runtime = RuntimeFacts {
        version: RuntimeVersion {
            name: "containerd".into(),
            version: "v1.6.0".into(),
        },
        ..RuntimeFacts::default()
    };
    node_status(
        &config(),
        &facts(),
        &runtime,
        (health, &Conditions::new()),
        &Capacity::default(),
        old,
        at(second),
    )
}

#[test]
fn what_runs_short_is_told_in_upstreams_words() {
    let all = Conditions::from([Condition::Memory, Condition::Disk, Condition::Pid]);
    let told = |pressure: &Conditions| -> Vec<String> {
        let runtime = RuntimeFacts::default();
        let status = node_status(
            &config(),
            &facts(),
            &runtime,
            (&healthy(), pressure),
            &Capacity::default(),
            None,
            at(0),
        );
        let shown = |c: &NodeCondition| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{} {} {} {}", c.type_, c.status, text(&c.reason), text(&c.message))
        };
        status.conditions.iter().flatten().take(3).map(shown).collect()
    };
    assert_eq!(
        told(&all),
        [
            "MemoryPressure True KubeletHasInsufficientMemory kubelet has insufficient memory available",
            "DiskPressure True KubeletHasDiskPressure kubelet has disk pressure",
            "PIDPressure True KubeletHasInsufficientPID kubelet has insufficient PID available",
        ]
    );
    assert_eq!(
        told(&Conditions::new()),
        [
            "MemoryPressure False KubeletHasSufficientMemory kubelet has sufficient memory available",
            "DiskPressure False KubeletHasNoDiskPressure kubelet has no disk pressure",
            "PIDPressure False KubeletHasSufficientPID kubelet has sufficient PID available",
        ]
    );
}

#[test]
fn allocatable_follows_reservations_and_hard_thresholds() {
    let of = |hard: &str, reserved: &str| {
        let list = |text: &str| -> BTreeMap<String, String> {
            let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
            pairs
                .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
                .collect()
        };
        let written = KubeletConfiguration {
            eviction_hard: Some(list(hard)),
            kube_reserved: Some(list(reserved)),
            ..KubeletConfiguration::default()
        };
        let config = resolve(&written, &Flags::default(), true).expect("sound");
        let left = allocatable(&config, &facts());
        (left.cpu_milli, left.memory >> 20, left.ephemeral_storage >> 30)
    };
    assert_eq!(of("", ""), (4000, 8192, 100));
    assert_eq!(of("memory.available=1Gi,nodefs.available=20Gi", ""), (4000, 7168, 80));
    assert_eq!(
        of("memory.available=50%,imagefs.available=20Gi", "cpu=500m,memory=1Gi"),
        (3500, 3072, 100)
    );
    assert_eq!(
        of("memory.available=100Gi", ""),
        (4000, 0, 100),
        "more than there is leaves nothing"
    );
}

#[test]
fn quantities_and_info() {
    let got = status(&healthy(), None, 0);
    let text = |list: &Option<BTreeMap<String, ApiQuantity>>, name: &str| {
        list.as_ref().and_then(|l| l.get(name)).map(|q| q.0.clone())
    };
    assert_eq!(text(&got.capacity, "cpu").as_deref(), Some("4"));
    assert_eq!(text(&got.capacity, "memory").as_deref(), Some("8Gi"));
    assert_eq!(text(&got.capacity, "pods").as_deref(), Some("110"));
    assert_eq!(text(&got.allocatable, "memory").as_deref(), Some("8092Mi"));
    assert_eq!(
        text(&got.allocatable, "ephemeral-storage").as_deref(),
        Some("96636764k")
    );
    let mut without = config();
    without.local_storage = false;
    let untold = capacities(&without, &facts());
    assert!(!untold.0.contains_key("ephemeral-storage") && !untold.1.contains_key("ephemeral-storage"));
    assert_eq!(text(&got.capacity, "hugepages-2Mi").as_deref(), Some("0"));
    let info = got.node_info.expect("info");
    assert_eq!(info.container_runtime_version, "containerd://1.6.0");
    assert_eq!(
        got.daemon_endpoints.and_then(|d| d.kubelet_endpoint).map(|e| e.port),
        Some(10250)
    );
    let addresses: Vec<_> = got
        .addresses
        .into_iter()
        .flatten()
        .map(|a| (a.type_, a.address))
        .collect();
    assert_eq!(
        addresses,
        [
            ("InternalIP".into(), "192.0.2.10".into()),
            ("Hostname".into(), "host-a".to_owned())
        ]
    );
}

#[test]
fn ready_says_what_is_wrong() {
    let find = |health: &Health| {
        let got = status(health, None, 0);
        let ready = got
            .conditions
            .into_iter()
            .flatten()
            .find(|c| c.type_ == "Ready")
            .expect("Ready");
        (
            ready.status,
            ready.reason.unwrap_or_default(),
            ready.message.unwrap_or_default(),
        )
    };
    assert_eq!(
        find(&healthy()),
        (
            "True".into(),
            "KubeletReady".into(),
            "kubelet is posting ready status".into()
        )
    );
    let mut health = healthy();
    health.runtime = "container runtime is down".into();
    assert_eq!(
        find(&health),
        (
            "False".into(),
            "KubeletNotReady".into(),
            "container runtime is down".into()
        )
    );
    health.network = "n".into();
    assert_eq!(find(&health).2, "[container runtime is down, n]");
}

#[test]
fn transition_times_move_on_flips_only() {
    let ready_times = |status: &NodeStatus| {
        let ready = status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == "Ready")
            .expect("Ready");
        let second = |t: &Option<Time>| t.as_ref().map_or(-1, |t| t.0.as_second());
        (second(&ready.last_transition_time), second(&ready.last_heartbeat_time))
    };
    let first = status(&healthy(), None, 10);
    let second = status(&healthy(), Some(&first), 20);
    assert_eq!(ready_times(&second), (10, 20));
    assert!(same_but_heartbeat(&first, &second));
    let third = status(
        &Health {
            runtime: "x".into(),
            ..healthy()
        },
        Some(&second),
        30,
    );
    assert_eq!(ready_times(&third), (30, 30));
    assert!(!same_but_heartbeat(&second, &third));
}

#[test]
fn images_are_the_largest_ones() {
    let image = |id: &str, size| ImageInfo {
        id: id.into(),
        size,
        repo_tags: vec![format!("{id}:latest")],
        ..ImageInfo::default()
    };
    let mut config = config();
    config.node.max_images = 2;
    let runtime = RuntimeFacts {
        images: vec![image("a", 1), image("b", 3), image("c", 2)],
        ..RuntimeFacts::default()
    };
    let names: Vec<_> = images(&config, &runtime)
        .into_iter()
        .flat_map(|i| i.names.unwrap_or_default())
        .collect();
    assert_eq!(names, ["b:latest", "c:latest"]);
    // Of two of a size, as upstream, the one with the greater id; of one image, five names, digests first.
    config.node.max_images = -1;
    let many = ImageInfo {
        repo_digests: (0..3).map(|n| format!("d@{n}")).collect(),
        repo_tags: (0..9).map(|n| format!("d:{n}")).collect(),
        ..image("d", 3)
    };
    let runtime = RuntimeFacts {
        images: vec![image("b", 3), many, image("a", 3)],
        ..RuntimeFacts::default()
    };
    let names: Vec<_> = images(&config, &runtime)
        .into_iter()
        .flat_map(|i| i.names.unwrap_or_default())
        .collect();
    assert_eq!(names, ["d@0", "d@1", "d@2", "d:0", "d:1", "b:latest", "a:latest"]);
}

#[test]
fn handlers_are_told_by_name_with_what_they_can() {
    let handler = |name: &str, user_namespaces: Option<bool>| cri::RuntimeHandler {
        name: name.to_owned(),
        features: user_namespaces.map(|user_namespaces| cri::RuntimeHandlerFeatures {
            user_namespaces,
            ..cri::RuntimeHandlerFeatures::default()
        }),
    };
    let runtime = RuntimeFacts {
        handlers: vec![
            handler("runc", Some(true)),
            handler("", Some(true)),
            handler("kata", None),
        ],
        features: Some(cri::RuntimeFeatures {
            supplemental_groups_policy: true,
            ..cri::RuntimeFeatures::default()
        }),
        ..RuntimeFacts::default()
    };
    let got = node_status(
        &config(),
        &facts(),
        &runtime,
        (&healthy(), &Conditions::new()),
        &Capacity::default(),
        None,
        at(0),
    );
    let told: Vec<_> = got
        .runtime_handlers
        .into_iter()
        .flatten()
        .map(|handler| (handler.name, handler.features.and_then(|of| of.user_namespaces)))
        .collect();
    let of = |name: &str, can| (Some(name.to_owned()), Some(can));
    assert_eq!(told, [of("", true), of("kata", false), of("runc", true)]);
    assert_eq!(got.features.and_then(|of| of.supplemental_groups_policy), Some(true));
}

#[test]
fn what_a_node_can_is_declared_in_order() {
    let of = |policy: &str| {
        let written = KubeletConfiguration {
            cpu_manager_policy: Some(policy.to_owned()),
            kube_reserved: Some([("cpu".to_owned(), "1".to_owned())].into()),
            ..KubeletConfiguration::default()
        };
        declared(&resolve(&written, &Flags::default(), true).expect("sound"))
    };
    let all = of("none");
    assert!(all.is_sorted() && all.len() == 5, "{all:?}");
    let fixed: Vec<_> = all
        .into_iter()
        .filter(|name| name != "GuaranteedQoSPodCPUResize")
        .collect();
    assert_eq!(of("static"), fixed);
}

#[test]
fn where_the_node_is_an_external_cloud_provider_says() {
    let told = |external: bool, given: &[&str], old: &[&str]| {
        let mut config = config();
        config.node.external_cloud = external;
        config.node.ips = given.iter().map(|ip| ip.parse().expect("address")).collect();
        let old = NodeStatus {
            addresses: Some(
                old.iter()
                    .map(|ip| NodeAddress {
                        type_: "InternalIP".to_owned(),
                        address: (*ip).to_owned(),
                    })
                    .collect(),
            ),
            ..NodeStatus::default()
        };
        let all = addresses(&config, &facts(), Some(&old))?;
        Some(all.into_iter().map(|a| a.address).collect::<Vec<_>>())
    };
    let all = |list: &[&str]| Some(list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(told(false, &[], &["10.0.0.1"]), all(&["192.0.2.10", "host-a"]));
    assert_eq!(told(true, &[], &[]), all(&["host-a"]), "nobody knows yet");
    assert_eq!(told(true, &["192.0.2.10"], &[]), all(&["192.0.2.10", "host-a"]));
    assert_eq!(told(true, &["192.0.2.10"], &["10.0.0.1"]), None, "the provider's stay");
}

#[test]
fn huge_pages_that_are_gone_are_taken_out() {
    let new = status(&healthy(), None, 0);
    let mut old = new.clone();
    for list in [&mut old.capacity, &mut old.allocatable] {
        let list = list.get_or_insert_default();
        list.insert("hugepages-1Gi".to_owned(), bytes(0));
        list.insert("example.com/thing".to_owned(), plain(3));
    }
    let mut patch = serde_json::json!({"status": {"conditions": []}});
    drop_stale(&mut patch, &old, &new);
    let gone = serde_json::json!({"hugepages-1Gi": null});
    assert_eq!(
        (&patch["status"]["capacity"], &patch["status"]["allocatable"]),
        (&gone, &gone)
    );
    let mut patch = serde_json::json!({"status": {}});
    drop_stale(&mut patch, &new, &new);
    assert_eq!(patch, serde_json::json!({"status": {}}));
}

#[test]
fn devices_of_plugins_are_told_and_others_resources_stay() {
    let old: NodeStatus = serde_json::from_value(serde_json::json!({
        "capacity": {"cpu": "64", "example.com/dongle": "3", "example.com/gpu": "9"},
        "allocatable": {"example.com/dongle": "1"},
    }))
    .expect("a status");
    let count = |list: &[(&str, usize)]| list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let devices = Capacity {
        capacity: count(&[("example.com/gpu", 2), ("example.com/gone", 0)]),
        allocatable: count(&[("example.com/gpu", 1), ("example.com/gone", 0)]),
    };
    let (health, runtime) = (healthy(), RuntimeFacts::default());
    let of_node = (&health, &Conditions::new());
    let status = node_status(&config(), &facts(), &runtime, of_node, &devices, Some(&old), at(0));
    let told = |list: &Option<BTreeMap<String, ApiQuantity>>| -> Vec<(String, String)> {
        let all = list.iter().flatten().filter(|(name, _)| name.contains('/'));
        all.map(|(name, amount)| (name.clone(), amount.0.clone())).collect()
    };
    let text = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        let of = list
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()));
        of.collect()
    };
    let (gone, dongle) = (("example.com/gone", "0"), ("example.com/dongle", "3"));
    assert_eq!(told(&status.capacity), text(&[gone, ("example.com/gpu", "2")]));
    assert_eq!(
        told(&status.allocatable),
        text(&[dongle, gone, ("example.com/gpu", "1")])
    );
    assert_ne!(
        status.capacity.expect("capacity")["cpu"].0,
        "64",
        "the machine's own are ours to tell"
    );
}
