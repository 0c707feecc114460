//! The arithmetic, by tables of the contract's.

use super::super::{CgroupDriver, CgroupNaming};
use super::*;

/// A pod with this spec; one container is added when the text gives none.
fn pod(spec: &str) -> Pod {
    let mut spec: serde_json::Value = serde_json::from_str(spec).expect("test spec is JSON");
    if spec.get("containers").is_none() {
        spec["containers"] = serde_json::json!([{"name": "main"}]);
    }
    let pod = serde_json::json!({"metadata": {"name": "web", "uid": "u-1"}, "spec": spec});
    serde_json::from_value(pod).expect("test pod decodes")
}

fn settings() -> CgroupSettings {
    CgroupSettings::with_defaults(CgroupNaming {
        driver: CgroupDriver::Cgroupfs,
        root: "/".into(),
        per_qos: true,
    })
}

#[test]
fn shares_quota_weight() {
    for (milli, shares, quota) in [
        (0, 2, None),
        (1, 2, Some(1000)),
        (10, 10, Some(1000)),
        (100, 102, Some(10_000)),
        (1000, 1024, Some(100_000)),
        (1_000_000, 262_144, Some(100_000_000)),
    ] {
        assert_eq!(cpu_shares(milli), shares, "{milli}");
        assert_eq!(cpu_quota(milli, 100_000), quota, "{milli}");
    }
    for (shares, weight) in [(2, 1), (1024, 39), (262_144, 10_000), (0, 1)] {
        assert_eq!(cpu_weight(shares), weight, "{shares}");
    }
}

#[test]
fn pods() {
    let full = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"500m","memory":"64Mi"},"requests":{"cpu":"500m","memory":"64Mi"}}}]}"#;
    let limits = pod_limits(&pod(full), &settings(), &Unbounded::default());
    assert_eq!(
        (limits.cpu_shares, limits.cpu_quota, limits.memory),
        (Some(512), Some((50_000, 100_000)), Some(64 << 20))
    );
    let partly = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"500m"}}},{"name":"d"}]}"#;
    let limits = pod_limits(&pod(partly), &settings(), &Unbounded::default());
    assert_eq!((limits.cpu_quota, limits.memory), (None, None));
    let limits = pod_limits(&pod("{}"), &settings(), &Unbounded::default());
    assert_eq!(
        (limits.cpu_shares, limits.cpu_quota, limits.memory, limits.pids),
        (Some(2), None, None, None)
    );
}

#[test]
fn settings_switch_quota_and_pids() {
    let full = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}}]}"#;
    let mut settings = settings();
    settings.cpu_cfs_quota = false;
    settings.pod_pids_limit = 100;
    let limits = pod_limits(&pod(full), &settings, &Unbounded::default());
    assert_eq!((limits.cpu_quota, limits.pids), (Some((-1, 100_000)), Some(100)));
}

#[test]
fn who_has_cpus_alone_has_no_quota_and_who_only_asked_has_one() {
    let quota = |unbounded: &[&str], cpu: &str| {
        let amounts = format!(r#"{{"cpu":"{cpu}","memory":"1Gi"}}"#);
        let spec =
            format!(r#"{{"containers":[{{"name":"c","resources":{{"limits":{amounts},"requests":{amounts}}}}}]}}"#);
        let unbounded = unbounded.iter().copied().collect();
        pod_limits(&pod(&spec), &settings(), &unbounded).cpu_quota
    };
    assert_eq!(quota(&[], "2"), Some((200_000, 100_000)));
    assert_eq!(quota(&["c"], "2"), Some((-1, 100_000)));
    assert_eq!(quota(&[], "1500m"), Some((150_000, 100_000)));
}

/// A pod of one container with these requests and limits of memory, and of CPU.
fn sized(request: &str, limit: &str, cpu: (&str, &str)) -> Pod {
    let list = |memory: &str, cpu: &str| {
        let named = [("memory", memory), ("cpu", cpu)]
            .into_iter()
            .filter(|(_, amount)| !amount.is_empty());
        serde_json::json!(named.collect::<BTreeMap<_, _>>())
    };
    let resources = serde_json::json!({"requests": list(request, cpu.0), "limits": list(limit, cpu.1)});
    pod(&serde_json::json!({"containers": [{"name": "c", "resources": resources}]}).to_string())
}

const MEMORY_QOS: memory::MemoryQos = memory::MemoryQos {
    factor: 0.9,
    reserves: true,
    allocatable: 1 << 30,
    page: 4096,
};

#[test]
fn memory_is_kept_for_pods_by_class() {
    let of = |memory_qos, pod: &Pod| {
        let settings = CgroupSettings {
            memory_qos,
            ..settings()
        };
        let values = pod_limits(pod, &settings, &Unbounded::default());
        (values.memory_min, values.memory_low)
    };
    let guaranteed = sized("1Mi", "1Mi", ("1", "1"));
    let burstable = sized("1Mi", "2Mi", ("", ""));
    for (pod, kept) in [
        (&guaranteed, (Some(1 << 20), Some(0))),
        (&burstable, (Some(0), Some(1 << 20))),
        (&pod("{}"), (Some(0), Some(0))),
    ] {
        assert_eq!(of(Some(MEMORY_QOS), pod), kept);
        let none = memory::MemoryQos {
            reserves: false,
            ..MEMORY_QOS
        };
        assert_eq!(of(Some(none), pod), (Some(0), Some(0)));
        assert_eq!(of(None, pod), (None, None));
    }
}

#[test]
fn huge_pages_that_are_not_limited_are_forbidden_to_pods_and_not_to_classes() {
    let settings = CgroupSettings {
        huge_page_sizes: vec!["2MB".into(), "1GB".into()],
        ..settings()
    };
    let spec = r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"},"limits":{"hugepages-2Mi":"4Mi"}}}]}"#;
    let limits = pod_limits(&pod(spec), &settings, &Unbounded::default());
    assert_eq!(
        limits.hugepages,
        BTreeMap::from([("2MB".into(), 4 << 20), ("1GB".into(), 0)])
    );
    let class = qos(&settings);
    assert_eq!(
        class.hugepages,
        BTreeMap::from([("2MB".into(), 1 << 62), ("1GB".into(), 1 << 62)])
    );
    assert_eq!(class.cpu_shares, Some(2));
}

#[test]
fn a_reservation_limits_what_it_names() {
    let all = ReservedCgroup {
        whose: super::super::Whose::System,
        compressible: false,
        cgroup: "/system".into(),
        cpu_milli: Some(500),
        memory: Some(1 << 30),
        pids: Some(1000),
    };
    let cpu = Values {
        cpu_shares: Some(512),
        ..Values::default()
    };
    let whole = Values {
        memory: Some(1 << 30),
        pids: Some(1000),
        ..cpu.clone()
    };
    assert_eq!(reserved(&all, false), whole);
    let kept = Values {
        memory_min: Some(1 << 30),
        ..whole
    };
    assert_eq!(reserved(&all, true), kept);
    let compressible = ReservedCgroup {
        compressible: true,
        ..all.clone()
    };
    assert_eq!(reserved(&compressible, true), cpu);
    let cpu_alone = ReservedCgroup {
        memory: None,
        pids: None,
        ..all
    };
    assert_eq!(reserved(&cpu_alone, true), cpu);
}

#[test]
fn classes_are_given_what_their_pods_request() {
    let pods = [
        sized("100Mi", "100Mi", ("1", "1")),
        sized("10Mi", "", ("250m", "")),
        sized("20Mi", "40Mi", ("500m", "")),
        pod("{}"),
    ];
    let sums = sums::Sums::of(&pods);
    let mi = 1 << 20;
    let expected = sums::Sums {
        burstable_cpu_milli: 750,
        burstable_memory: 30 * mi,
        guaranteed_memory: 100 * mi,
    };
    assert_eq!(sums, expected);
    let of = |settings: &CgroupSettings| {
        let values = sums.values(settings);
        values.map(|(_, v)| (v.cpu_shares, v.memory, v.memory_min, v.memory_low))
    };
    assert_eq!(
        of(&settings()),
        [
            (None, None, None, None),
            (Some(768), None, None, None),
            (Some(2), None, None, None)
        ]
    );
    let keeps = CgroupSettings {
        memory_qos: Some(MEMORY_QOS),
        ..settings()
    };
    assert_eq!(
        of(&keeps),
        [
            (None, None, Some(130 * mi), Some(0)),
            (Some(768), None, Some(0), Some(30 * mi)),
            (Some(2), None, None, None)
        ]
    );
    let reserves = CgroupSettings {
        qos_reserved_percent: Some(50),
        node_limits: Some(NodeLimits {
            allocatable_memory: 1000 * mi,
            ..NodeLimits::default()
        }),
        ..settings()
    };
    assert_eq!(
        of(&reserves).map(|(_, memory, ..)| memory),
        [None, Some(950 * mi), Some(935 * mi)]
    );
}

proptest::proptest! {
    /// What is above keeps at least what those below keep, and the shares are those of the sum.
    #[test]
    fn nothing_below_is_kept_more_of_than_above(requests in proptest::collection::vec((0i64..4000, 0i64..1 << 32, 0u8..3), 0..20)) {
        let pods: Vec<Pod> = requests.iter().map(|(milli, bytes, kind)| {
            let (cpu, memory) = (format!("{milli}m"), bytes.to_string());
            match kind {
                0 => sized(&memory, &memory, (&cpu, &cpu)),
                1 => sized(&memory, "", (&cpu, "")),
                _ => pod("{}"),
            }
        }).collect();
        let settings = CgroupSettings { memory_qos: Some(MEMORY_QOS), ..settings() };
        let kept = |pod: &Pod| {
            let values = pod_limits(pod, &settings, &Unbounded::default());
            (values.memory_min.unwrap_or(0), values.memory_low.unwrap_or(0))
        };
        let [(_, all), (_, burstable), _] = sums::Sums::of(&pods).values(&settings);
        let low: i64 = pods.iter().map(|pod| kept(pod).1).sum();
        let min: i64 = pods.iter().map(|pod| kept(pod).0).sum();
        proptest::prop_assert_eq!(burstable.memory_low, Some(low));
        proptest::prop_assert_eq!(all.memory_min, Some(min + low));
        let milli: i64 = pods.iter().filter_map(|pod| pod.spec.as_ref())
            .filter(|spec| qos_class(*spec) == QosClass::Burstable).map(cpu_request_milli).sum();
        proptest::prop_assert_eq!(burstable.cpu_shares, Some(cpu_shares(milli)));
    }
}

#[test]
fn page_sizes() {
    for (size, name) in [
        ("2Mi", Some("2MB")),
        ("1Gi", Some("1GB")),
        ("64Ki", Some("64KB")),
        ("x", None),
    ] {
        assert_eq!(hugepage_cgroup_name(size).as_deref(), name, "{size}");
    }
}
