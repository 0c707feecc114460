use super::super::resolve;
use super::*;
use crate::config::Flags;
use crate::config::file::MemoryReservation;

fn read(written: KubeletConfiguration) -> Result<Rules, String> {
    let config = resolve(&written, &Flags::default(), true);
    config
        .map(|config| config.pinning)
        .map_err(|mistakes| mistakes.join("; "))
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn map(pairs: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
    let pairs = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Some(pairs.collect())
}

#[test]
fn nothing_is_given_alone_unless_it_is_asked_for() {
    let rules = read(KubeletConfiguration::default()).expect("sound");
    assert_eq!(rules, Rules::default());
    assert!(!rules.lifts_quota());
}

#[test]
fn the_static_policy_keeps_what_is_reserved() {
    let of = |reserved: Option<&str>, named: Option<&str>| KubeletConfiguration {
        cpu_manager_policy: text("static"),
        cpu_manager_policy_options: map(&[("full-pcpus-only", "true")]),
        cpu_manager_reconcile_period: text("5s"),
        kube_reserved: reserved.and_then(|cpu| map(&[("cpu", cpu)])),
        reserved_system_cpus: named.map(str::to_owned),
        topology_manager_policy: text("restricted"),
        topology_manager_scope: text("pod"),
        topology_manager_policy_options: map(&[(CLOSEST, "true"), (NODES_MAX, "10")]),
        ..KubeletConfiguration::default()
    };
    let rules = read(of(Some("1500m"), None)).expect("sound");
    let cpu = rules.cpu.as_ref().expect("static");
    assert!(cpu.options.full_pcpus_only && rules.lifts_quota());
    assert_eq!((cpu.reserved_milli, rules.reconcile_every.as_secs()), (1500, 5));
    let expected = TopologyRules {
        policy: Policy::Restricted,
        by_pod: true,
        closest: true,
        nodes_max: Some(10),
    };
    assert_eq!(rules.topology, expected);
    // Those that are named count, whatever else is reserved.
    let config = resolve(&of(Some("3"), Some("0,4")), &Flags::default(), true).expect("sound");
    assert_eq!(config.cgroups.reserved.cpu_milli, 2000);
    assert_eq!(config.pinning.cpu.expect("static").reserved_milli, 2000);
    assert_eq!(config.pinning.reserved.to_string(), "0,4");
    let why = read(of(None, None)).expect_err("nothing is reserved");
    assert!(why.starts_with("cpuManagerPolicy: the static policy requires"), "{why}");
}

#[test]
fn what_cannot_be_is_told_by_its_field() {
    let base = KubeletConfiguration {
        kube_reserved: map(&[("cpu", "1")]),
        ..KubeletConfiguration::default()
    };
    for (written, why) in [
        (
            KubeletConfiguration {
                cpu_manager_policy_options: map(&[("full-pcpus-only", "true")]),
                ..base.clone()
            },
            "cpuManagerPolicyOptions: None policy: received unsupported options=\"full-pcpus-only\"",
        ),
        (
            KubeletConfiguration {
                cpu_manager_policy: text("static"),
                cpu_manager_policy_options: map(&[("align-by-socket", "true")]),
                ..base.clone()
            },
            "cpuManagerPolicyOptions: CPU Manager Policy Alpha-level Options not enabled",
        ),
        (
            KubeletConfiguration {
                reserved_system_cpus: text("0-"),
                ..base.clone()
            },
            "reservedSystemCPUs: unable to parse reserved-cpus list: strconv.Atoi",
        ),
        (
            KubeletConfiguration {
                topology_manager_policy: text("strict"),
                ..base.clone()
            },
            "topologyManagerPolicy: invalid policy \"strict\"",
        ),
        (
            KubeletConfiguration {
                topology_manager_scope: text("node"),
                ..base.clone()
            },
            "topologyManagerScope: invalid scope \"node\"",
        ),
        (
            KubeletConfiguration {
                topology_manager_policy_options: map(&[(NODES_MAX, "4")]),
                ..base.clone()
            },
            "topologyManagerPolicyOptions: the minimum value of \"max-allowable-numa-nodes\" should not be less than 8",
        ),
        (
            KubeletConfiguration {
                topology_manager_policy_options: map(&[(NODES_MAX, "11")]),
                ..base.clone()
            },
            "topologyManagerPolicyOptions: \"max-allowable-numa-nodes\" is 11: containers are aligned on no more than 10 NUMA nodes",
        ),
        (
            KubeletConfiguration {
                topology_manager_policy_options: map(&[("nearest", "true")]),
                ..base.clone()
            },
            "topologyManagerPolicyOptions: unknown Topology Manager Policy option: \"nearest\"",
        ),
    ] {
        let found = read(written).expect_err(why);
        assert!(found.starts_with(why), "{found}");
    }
}

#[test]
fn what_is_kept_of_numa_nodes_is_read_where_the_static_policy_rules() {
    let of = |policy: &str, items: &[(i32, &[(&str, &str)])]| {
        let item = |(node, limits): &(i32, &[(&str, &str)])| MemoryReservation {
            numa_node: *node,
            limits: map(limits).unwrap_or_default(),
        };
        KubeletConfiguration {
            memory_manager_policy: text(policy),
            reserved_memory: Some(items.iter().map(item).collect()),
            ..KubeletConfiguration::default()
        }
    };
    let items: &[(i32, &[(&str, &str)])] = &[
        (1, &[("memory", "1Gi"), ("hugepages-2Mi", "4Mi")]),
        (0, &[("memory", "100Mi")]),
    ];
    let kept = read(of("Static", items)).expect("sound").memory.expect("static");
    let told: Vec<(u32, Vec<String>)> = kept
        .iter()
        .map(|of| {
            (
                of.node,
                of.limits
                    .iter()
                    .map(|(name, amount)| format!("{name}={amount}"))
                    .collect(),
            )
        })
        .collect();
    let second = vec!["hugepages-2Mi=4Mi".to_owned(), "memory=1Gi".to_owned()];
    assert_eq!(told, [(0, vec!["memory=100Mi".to_owned()]), (1, second)]);
    assert_eq!(read(of("None", items)), Ok(Rules::default()));
    assert_eq!(warnings(&of("", items)).len(), 1);
    assert!(warnings(&of("Static", items)).is_empty() && warnings(&of("None", &[])).is_empty());
    assert_eq!(read(of("Static", &[])).expect("sound").memory, Some(Vec::new()));
    let wrong = |policy: &str, items: &[(i32, &[(&str, &str)])], why: &str| {
        let told = read(of(policy, items)).expect_err(why);
        assert!(told.contains(why), "{told}");
    };
    wrong(
        "static",
        &[],
        "memoryManagerPolicy: invalid policy \"static\": must be one of None, Static",
    );
    wrong("", &[(-1, &[])], "reservedMemory: numaNode -1 must not be negative");
    wrong(
        "Static",
        &[(0, &[("cpu", "1")])],
        "reservedMemory: invalid configuration: the limit type \"cpu\" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted",
    );
    wrong(
        "Static",
        &[(0, &[("memory", "0")])],
        "reserved memory may not be zero for NUMA node 0 and resource \"memory\"",
    );
    wrong(
        "Static",
        &[(2, &[("memory", "1Gi")]), (2, &[("memory", "1Gi")])],
        "the reserved memory has a duplicate value for NUMA node 2 and resource \"memory\"",
    );
    wrong(
        "Static",
        &[(0, &[("memory", "much")])],
        "reservedMemory: memory of NUMA node 0: \"much\" is not a quantity",
    );
}
