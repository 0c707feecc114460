//! Random clusters that change at random: after every change, the table and the specification agree on every connection.

use std::net::IpAddr;

use client::Key;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::direct::Cluster;
use super::table::{Packet, Table};
use super::{NODE, put_pod, put_policy, read};
use crate::facts::PodId;
use crate::world::World;
use crate::world::shares::{LIMITS, Limits};

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const PODS: u8 = 7;
const POLICIES: u8 = 4;

#[derive(Clone, Debug)]
enum Step {
    Pod(Box<Pod>),
    NoPod(u8),
    Policy(Box<NetworkPolicy>),
    NoPolicy(u8),
    Namespace(Box<Namespace>),
    NoNamespace(&'static str),
}

/// A pod is in one namespace for good, as its name is its identity here.
fn namespace_of(number: u8) -> &'static str {
    NAMESPACES[usize::from(number) % NAMESPACES.len()]
}

fn labels() -> impl Strategy<Value = Value> {
    let app = select(vec!["a", "b"]);
    let tier = proptest::option::of(select(vec!["1", "2"]));
    (app, tier).prop_map(|(app, tier)| match tier {
        Some(tier) => json!({"app": app, "tier": tier}),
        None => json!({"app": app}),
    })
}

fn selector() -> impl Strategy<Value = Value> {
    let operator = (select(vec!["In", "NotIn"]), subsequence(vec!["1", "2"], 1..=2))
        .prop_map(|(operator, values)| json!([{"key": "tier", "operator": operator, "values": values}]));
    let exists =
        select(vec!["Exists", "DoesNotExist"]).prop_map(|operator| json!([{"key": "tier", "operator": operator}]));
    prop_oneof![
        Just(json!({})),
        select(vec!["a", "b"]).prop_map(|app| json!({"matchLabels": {"app": app}})),
        operator.prop_map(|list| json!({"matchExpressions": list})),
        exists.prop_map(|list| json!({"matchExpressions": list})),
    ]
}

fn pod() -> impl Strategy<Value = Pod> {
    let ports = subsequence(
        vec![
            json!({"name": "web", "containerPort": 80}),
            json!({"name": "web", "containerPort": 81}),
            json!({"name": "dns", "protocol": "UDP", "containerPort": 80}),
        ],
        0..=2,
    );
    let families = select(vec![(true, true), (true, false), (false, true), (false, false)]);
    let phase = select(vec!["Running", "Running", "Running", "Pending", "Failed"]);
    let node = select(vec![NODE, NODE, "n2"]);
    (
        0..PODS,
        labels(),
        ports,
        families,
        phase,
        node,
        prop::bool::weighted(0.1),
    )
        .prop_map(|(number, labels, ports, (v4, v6), phase, node, on_host)| {
            let name = format!("p{number}");
            let mut ips = Vec::new();
            if v4 {
                ips.push(json!({"ip": format!("10.0.0.{number}")}));
            }
            if v6 {
                ips.push(json!({"ip": format!("fd00::{number}")}));
            }
            read(json!({
                "metadata": {"namespace": namespace_of(number), "name": name, "uid": name, "labels": labels},
                "spec": {"nodeName": node, "hostNetwork": on_host, "containers": [{"name": "c", "ports": ports}]},
                "status": {"phase": phase, "podIPs": ips}
            }))
        })
}

fn peer() -> impl Strategy<Value = Value> {
    let block = (
        select(vec!["10.0.0.0/29", "10.0.0.0/24", "0.0.0.0/0", "fd00::/125", "::/0"]),
        any::<bool>(),
    )
        .prop_map(|(cidr, with_hole)| {
            let hole = if cidr.contains(':') {
                "fd00::2/127"
            } else {
                "10.0.0.2/31"
            };
            let except = if with_hole { vec![hole] } else { Vec::new() };
            json!({"ipBlock": {"cidr": cidr, "except": except}})
        });
    prop_oneof![
        selector().prop_map(|pods| json!({"podSelector": pods})),
        selector().prop_map(|namespaces| json!({"namespaceSelector": namespaces})),
        (selector(), selector())
            .prop_map(|(pods, namespaces)| json!({"podSelector": pods, "namespaceSelector": namespaces})),
        block,
    ]
}

fn port() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"port": 80}),
        json!({"protocol": "TCP"}),
        json!({"protocol": "UDP", "port": 80}),
        json!({"protocol": "SCTP", "port": 80}),
        json!({"port": 79, "endPort": 80}),
        json!({"port": 81, "endPort": 65535}),
        json!({"port": "web"}),
        json!({"port": "web", "protocol": "UDP"}),
        json!({"port": "dns", "protocol": "UDP"}),
        json!({"port": "nobodys"}),
    ])
}

fn rules(peers: &'static str) -> impl Strategy<Value = Vec<Value>> {
    let list = |strategy: BoxedStrategy<Value>| prop::collection::vec(strategy, 0..3);
    let rule = (list(peer().boxed()), list(port().boxed()))
        .prop_map(move |(them, ports)| json!({peers: them, "ports": ports}));
    prop::collection::vec(rule, 0..3)
}

fn policy() -> impl Strategy<Value = NetworkPolicy> {
    let types = proptest::option::of(subsequence(vec!["Ingress", "Egress"], 1..=2));
    (0..POLICIES, selector(), rules("from"), rules("to"), types).prop_map(|(number, pods, ingress, egress, types)| {
        let mut spec = json!({"podSelector": pods, "ingress": ingress, "egress": egress});
        if let Some(types) = types {
            spec["policyTypes"] = json!(types);
        }
        read(json!({"metadata": {"namespace": namespace_of(number), "name": format!("q{number}")}, "spec": spec}))
    })
}

fn step() -> impl Strategy<Value = Step> {
    let namespace = (select(NAMESPACES.to_vec()), labels())
        .prop_map(|(name, labels)| read::<Namespace>(json!({"metadata": {"name": name, "labels": labels}})));
    prop_oneof![
        6 => pod().prop_map(|pod| Step::Pod(Box::new(pod))),
        1 => (0..PODS).prop_map(Step::NoPod),
        6 => policy().prop_map(|policy| Step::Policy(Box::new(policy))),
        1 => (0..POLICIES).prop_map(Step::NoPolicy),
        2 => namespace.prop_map(|namespace| Step::Namespace(Box::new(namespace))),
        1 => select(NAMESPACES.to_vec()).prop_map(Step::NoNamespace),
    ]
}

fn take(cluster: &mut Cluster, world: &mut World, step: &Step) {
    match step {
        Step::Pod(pod) => {
            cluster.pods.retain(|other| other.name_any() != pod.name_any());
            cluster.pods.push(pod.as_ref().clone());
            put_pod(world, pod);
        }
        Step::NoPod(number) => {
            let name = format!("p{number}");
            cluster.pods.retain(|pod| pod.name_any() != name);
            let key = Key::new(namespace_of(*number), name.clone());
            world.set_pod(PodId { key, uid: name }, None);
        }
        Step::Policy(policy) => {
            cluster.policies.retain(|other| other.name_any() != policy.name_any());
            cluster.policies.push(policy.as_ref().clone());
            put_policy(world, policy);
        }
        Step::NoPolicy(number) => {
            let name = format!("q{number}");
            cluster.policies.retain(|policy| policy.name_any() != name);
            world.set_policy(Key::new(namespace_of(*number), name), None);
        }
        Step::Namespace(namespace) => {
            cluster
                .namespaces
                .retain(|other| other.name_any() != namespace.name_any());
            cluster.namespaces.push(namespace.as_ref().clone());
            world.set_namespace(&namespace.name_any(), namespace.metadata.labels.clone());
        }
        Step::NoNamespace(name) => {
            cluster.namespaces.retain(|other| other.name_any() != *name);
            world.set_namespace(name, None);
        }
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    (0usize..12, 0usize..40, 0usize..40, 0usize..12).prop_map(|(members, questions, ranges, rules)| Limits {
        members,
        questions,
        ranges,
        rules,
    })
}

/// Every connection there could be: of the pods, and of a stranger of each family.
fn packets() -> impl Iterator<Item = Packet> {
    let of = |v4: bool| -> Vec<IpAddr> {
        let pods = (0..PODS).map(move |number| {
            let text = if v4 {
                format!("10.0.0.{number}")
            } else {
                format!("fd00::{number}")
            };
            text.parse().unwrap()
        });
        let stranger = if v4 { "10.0.0.200" } else { "fd00::200" };
        pods.chain([stranger.parse().unwrap()]).collect()
    };
    [of(true), of(false)].into_iter().flat_map(|addresses| {
        let pairs: Vec<(IpAddr, IpAddr)> = addresses
            .iter()
            .flat_map(|a| addresses.iter().map(move |b| (*a, *b)))
            .collect();
        pairs.into_iter().flat_map(|(initiator, responder)| {
            [(6, 80), (6, 81), (17, 80), (132, 80), (1, 0)].map(|(protocol, port)| Packet {
                initiator,
                responder,
                protocol,
                port,
            })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn the_table_is_the_specification(steps in prop::collection::vec(step(), 1..40), at_once in 1usize..5) {
        let (mut cluster, mut world, mut table) = (Cluster::default(), World::new(), Table::default());
        for turn in steps.chunks(at_once) {
            turn.iter().for_each(|step| take(&mut cluster, &mut world, step));
            table.apply(&world.take_change());
            for packet in packets() {
                let (is, ought) = (table.passes(packet), cluster.allows(packet, NODE));
                prop_assert_eq!(is, ought, "{:?} after {:?}", packet, turn);
            }
        }
        let mut anew = Table::default();
        anew.apply(&world.whole());
        prop_assert_eq!(anew.by_meaning(), table.by_meaning());
        prop_assert!(world.take_change().is_empty());
    }

    #[test]
    fn who_asks_for_no_more_than_an_equal_part_has_all_of_it(steps in prop::collection::vec(step(), 1..40)) {
        let tell = |limits: Limits, is_told: &dyn Fn(&NetworkPolicy) -> bool| {
            let (mut world, mut table) = (World::new(), Table::default());
            world.limit(limits);
            for step in &steps {
                if !matches!(step, Step::Policy(policy) if !is_told(policy)) {
                    take(&mut Cluster::default(), &mut world, step);
                }
            }
            table.apply(&world.take_change());
            (world, table)
        };
        for own in NAMESPACES {
            let (world, alone) = tell(LIMITS, &|policy| policy.namespace().as_deref() == Some(own));
            let asked_for = world.sets.asked_for();
            let equal = |asked_for: usize| NAMESPACES.len() * asked_for;
            let limits = Limits {
                members: equal(asked_for.members),
                questions: equal(asked_for.questions),
                ranges: equal(asked_for.ranges),
                rules: LIMITS.rules,
            };
            let (_, among_others) = tell(limits, &|_| true);
            let among_others = among_others.by_meaning();
            for (place, rules) in alone.by_meaning() {
                prop_assert_eq!(among_others.get(&place), Some(&rules), "{}: {:?} of {:?}", own, place, limits);
            }
        }
    }

    #[test]
    fn with_little_room_it_is_less_and_with_more_it_is_the_specification_again(
        steps in prop::collection::vec(step(), 1..40), at_once in 1usize..5, limits in limits()
    ) {
        let (mut cluster, mut world, mut table) = (Cluster::default(), World::new(), Table::default());
        world.limit(limits);
        for turn in steps.chunks(at_once) {
            turn.iter().for_each(|step| take(&mut cluster, &mut world, step));
            table.apply(&world.take_change());
            for packet in packets().filter(|packet| table.passes(*packet)) {
                prop_assert!(cluster.allows(packet, NODE), "{:?} after {:?}", packet, turn);
            }
        }
        world.limit(LIMITS);
        table.apply(&world.take_change());
        for packet in packets() {
            let (is, ought) = (table.passes(packet), cluster.allows(packet, NODE));
            prop_assert_eq!(is, ought, "{:?}", packet);
        }
    }
}
