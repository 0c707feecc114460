//! The situations of upstream's end-to-end suite for NetworkPolicy (its names in the rows), each with what it must mean for
//! every connection between nine pods, three in each of the namespaces x, y and z.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::table::{Packet, Table};
use super::{NODE, policy, put_pod, put_policy, read};
use crate::selector::Labels;
use crate::world::World;

const PLACES: [&str; 3] = ["x", "y", "z"];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A connection: from and to as `x/a`, protocol, port.
struct Try<'a> {
    from: &'a str,
    to: &'a str,
    protocol: u8,
    port: u16,
}

type Denied = fn(&Try<'_>) -> bool;

fn address(place: usize, name: usize) -> String {
    format!("192.168.{place}.{name}")
}

fn server(place: usize, name: usize, label: &str) -> Pod {
    let ports = json!([
        {"name": "serve-80-tcp", "containerPort": 80}, {"name": "serve-81-tcp", "containerPort": 81},
        {"name": "serve-80-udp", "protocol": "UDP", "containerPort": 80},
        {"name": "serve-81-udp", "protocol": "UDP", "containerPort": 81},
        {"name": "serve-80-sctp", "protocol": "SCTP", "containerPort": 80},
        {"name": "serve-81-sctp", "protocol": "SCTP", "containerPort": 81}]);
    let id = format!("{}{}", PLACES[place], NAMES[name]);
    read(json!({
        "metadata": {"namespace": PLACES[place], "name": NAMES[name], "uid": id, "labels": {"pod": label}},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": "Running", "podIPs": [{"ip": address(place, name)}]}
    }))
}

fn labels(place: &str) -> Labels {
    Labels::from([("ns".to_owned(), place.to_owned())])
}

fn nine() -> World {
    let mut world = World::new();
    for (place, namespace) in PLACES.iter().enumerate() {
        world.set_namespace(namespace, Some(labels(namespace)));
        for (name, label) in NAMES.iter().enumerate() {
            put_pod(&mut world, &server(place, name, label));
        }
    }
    world
}

fn check(case: &str, world: &mut World, denied: Denied) {
    let mut table = Table::default();
    table.apply(&world.whole());
    let all: Vec<(String, IpAddr)> = (0..9)
        .map(|at| {
            let (place, name) = (at / 3, at % 3);
            let addr = address(place, name).parse().unwrap();
            (format!("{}/{}", PLACES[place], NAMES[name]), addr)
        })
        .collect();
    for (from, initiator) in &all {
        for (to, responder) in &all {
            for (protocol, port) in [(6, 80), (6, 81), (17, 80), (17, 81), (132, 80), (132, 81)] {
                let packet = Packet {
                    initiator: *initiator,
                    responder: *responder,
                    protocol,
                    port,
                };
                let tried = Try {
                    from,
                    to,
                    protocol,
                    port,
                };
                let ought = from == to || !denied(&tried);
                assert_eq!(table.passes(packet), ought, "{case}: {from} -> {to} {protocol}/{port}");
            }
        }
    }
}

fn pods(name: &str) -> Value {
    json!({"matchLabels": {"pod": name}})
}

fn in_namespace(name: &str) -> Value {
    json!({"matchLabels": {"ns": name}})
}

/// A policy of namespace x.
type Row = (&'static str, Vec<Value>, Denied);

fn ingress(from: Value) -> Value {
    json!({"podSelector": pods("a"), "ingress": [{"from": from}]})
}

fn egress(to: Value) -> Value {
    json!({"podSelector": pods("a"), "policyTypes": ["Egress"], "egress": [{"to": to}]})
}

fn one_of(what: &str, among: &[&str]) -> bool {
    among.contains(&what)
}

fn is_in(place: &str, pod: &str) -> bool {
    pod.starts_with(place)
}

#[test]
fn peers_of_ingress() {
    let expression =
        |key: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]});
    let rows: Vec<Row> = vec![
        (
            "default-deny-ingress",
            vec![json!({"podSelector": {}, "policyTypes": ["Ingress"]})],
            |t| is_in("x", t.to),
        ),
        (
            "default-deny-all",
            vec![json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})],
            |t| is_in("x", t.to) || is_in("x", t.from),
        ),
        (
            "pods within the server namespace",
            vec![ingress(json!([{"podSelector": pods("b")}]))],
            |t| t.to == "x/a" && t.from != "x/b",
        ),
        (
            "ingress traffic for a target",
            vec![
                json!({"podSelector": {}, "policyTypes": ["Ingress"]}),
                json!({"podSelector": pods("a"), "ingress": [{"from": [{"namespaceSelector": {}}]}]}),
            ],
            |t| one_of(t.to, &["x/b", "x/c"]),
        ),
        (
            "pods in all namespaces",
            vec![ingress(json!([{"namespaceSelector": {}}]))],
            |_| false,
        ),
        (
            "only a different namespace",
            vec![ingress(json!([{"namespaceSelector": in_namespace("y")}]))],
            |t| t.to == "x/a" && !is_in("y", t.from),
        ),
        (
            "PodSelector with MatchExpressions",
            vec![ingress(json!([{"podSelector": expression("pod", json!(["b"]))}]))],
            |t| t.to == "x/a" && t.from != "x/b",
        ),
        (
            "NamespaceSelector with MatchExpressions",
            vec![ingress(
                json!([{"namespaceSelector": expression("ns", json!(["y", "z"]))}]),
            )],
            |t| t.to == "x/a" && is_in("x", t.from),
        ),
        (
            "PodSelector or NamespaceSelector",
            vec![ingress(
                json!([{"podSelector": pods("b")}, {"namespaceSelector": in_namespace("y")}]),
            )],
            |t| t.to == "x/a" && t.from != "x/b" && !is_in("y", t.from),
        ),
        (
            "PodSelector and NamespaceSelector",
            vec![ingress(
                json!([{"podSelector": pods("b"), "namespaceSelector": in_namespace("y")}]),
            )],
            |t| t.to == "x/a" && t.from != "y/b",
        ),
        (
            "multiple PodSelectors and NamespaceSelectors",
            vec![ingress(json!([{
            "podSelector": expression("pod", json!(["b", "c"])),
            "namespaceSelector": {"matchExpressions": [{"key": "ns", "operator": "NotIn", "values": ["x"]}]}}]))],
            |t| t.to == "x/a" && !one_of(t.from, &["y/b", "y/c", "z/b", "z/c"]),
        ),
        (
            "any PodSelectors",
            vec![ingress(json!([{"podSelector": pods("b")}, {"podSelector": pods("c")}]))],
            |t| t.to == "x/a" && !one_of(t.from, &["x/b", "x/c"]),
        ),
        (
            "one pod of a different namespace",
            vec![ingress(
                json!([{"podSelector": pods("a"), "namespaceSelector": in_namespace("y")}]),
            )],
            |t| t.to == "x/a" && t.from != "y/a",
        ),
        ("allow-all", vec![json!({"podSelector": {}, "ingress": [{}]})], |_| {
            false
        }),
        (
            "ingress allow-all takes precedence",
            vec![
                ingress(json!([{"podSelector": pods("b")}])),
                json!({"podSelector": {}, "ingress": [{}]}),
            ],
            |_| false,
        ),
        (
            "CIDR block",
            vec![ingress(json!([{"ipBlock": {"cidr": "192.168.1.0/24"}}]))],
            |t| t.to == "x/a" && !is_in("y", t.from),
        ),
    ];
    run(rows);
}

#[test]
fn egress_and_both_ways() {
    let rows: Vec<Row> = vec![
        (
            "deny egress by PodSelector",
            vec![json!({"podSelector": pods("a"), "policyTypes": ["Egress"]})],
            |t| t.from == "x/a",
        ),
        (
            "deny egress of a namespace",
            vec![json!({"podSelector": {}, "policyTypes": ["Egress"]})],
            |t| is_in("x", t.from),
        ),
        (
            "to a server in a different namespace",
            vec![egress(
                json!([{"podSelector": pods("a"), "namespaceSelector": in_namespace("y")}]),
            )],
            |t| t.from == "x/a" && t.to != "y/a",
        ),
        (
            "egress allow-all takes precedence",
            vec![
                egress(json!([{"podSelector": pods("b")}])),
                json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}),
            ],
            |_| false,
        ),
        (
            "CIDR block",
            vec![egress(json!([{"ipBlock": {"cidr": "192.168.2.0/24"}}]))],
            |t| t.from == "x/a" && !is_in("z", t.to),
        ),
        (
            "CIDR block with except",
            vec![egress(
                json!([{"ipBlock": {"cidr": "192.168.0.0/16", "except": ["192.168.2.1/32"]}}]),
            )],
            |t| t.from == "x/a" && t.to == "z/b",
        ),
        (
            "an excepted address another policy allows",
            vec![
                egress(json!([{"ipBlock": {"cidr": "192.168.0.0/16", "except": ["192.168.2.1/32"]}}])),
                egress(json!([{"ipBlock": {"cidr": "192.168.2.1/32"}}])),
            ],
            |_| false,
        ),
        (
            "Ingress and Egress together",
            vec![json!({
            "podSelector": pods("a"), "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"namespaceSelector": in_namespace("y")}]}],
            "egress": [{"to": [{"namespaceSelector": in_namespace("z")}]}]})],
            |t| (t.to == "x/a" && !is_in("y", t.from)) || (t.from == "x/a" && !is_in("z", t.to)),
        ),
        (
            "denied on the client's side though the server allows",
            vec![
                json!({"podSelector": pods("a"), "policyTypes": ["Egress"], "egress": [{"to": [{"podSelector": pods("b")}]}]}),
                json!({"podSelector": pods("c"), "ingress": [{"from": [{"podSelector": pods("a")}]}]}),
            ],
            |t| (t.from == "x/a" && t.to != "x/b") || (t.to == "x/c" && t.from != "x/a"),
        ),
        (
            "ingress and egress are controlled independently",
            vec![
                json!({"podSelector": pods("a"), "policyTypes": ["Ingress"]}),
                json!({"podSelector": pods("a"), "policyTypes": ["Egress"], "egress": [{}]}),
            ],
            |t| t.to == "x/a",
        ),
    ];
    run(rows);
}

#[test]
fn ports_and_protocols() {
    let on = |ports: Value| json!({"podSelector": pods("a"), "ingress": [{"ports": ports}]});
    let rows: Vec<Row> = vec![
        ("by Ports", vec![on(json!([{"port": 81}]))], |t| {
            t.to == "x/a" && (t.protocol, t.port) != (6, 81)
        }),
        (
            "stacked policies with overlapping podSelectors",
            vec![on(json!([{"port": 81}])), on(json!([{"port": 80}]))],
            |t| t.to == "x/a" && t.protocol != 6,
        ),
        ("one named port", vec![on(json!([{"port": "serve-81-tcp"}]))], |t| {
            t.to == "x/a" && (t.protocol, t.port) != (6, 81)
        }),
        (
            "a namespace on one named port",
            vec![json!({"podSelector": pods("a"), "ingress": [{
            "from": [{"namespaceSelector": in_namespace("y")}], "ports": [{"port": "serve-80-tcp"}]}]})],
            |t| t.to == "x/a" && !(is_in("y", t.from) && (t.protocol, t.port) == (6, 80)),
        ),
        (
            "egress on one named port",
            vec![json!({"podSelector": pods("a"), "policyTypes": ["Egress"],
            "egress": [{"ports": [{"port": "serve-80-udp", "protocol": "UDP"}]}]})],
            |t| t.from == "x/a" && (t.protocol, t.port) != (17, 80),
        ),
        ("any port of a protocol", vec![on(json!([{"protocol": "UDP"}]))], |t| {
            t.to == "x/a" && t.protocol != 17
        }),
        (
            "not TCP where only UDP is named",
            vec![on(json!([{"protocol": "UDP", "port": 81}]))],
            |t| t.to == "x/a" && (t.protocol, t.port) != (17, 81),
        ),
        (
            "SCTP is not mistaken for TCP",
            vec![on(json!([{"protocol": "SCTP", "port": 80}]))],
            |t| t.to == "x/a" && (t.protocol, t.port) != (132, 80),
        ),
        (
            "TCP is not mistaken for SCTP",
            vec![on(json!([{"protocol": "TCP", "port": 80}]))],
            |t| t.to == "x/a" && (t.protocol, t.port) != (6, 80),
        ),
        ("endPort", vec![on(json!([{"port": 80, "endPort": 81}]))], |t| {
            t.to == "x/a" && t.protocol != 6
        }),
        (
            "endPort of UDP, beyond",
            vec![on(json!([{"protocol": "UDP", "port": 81, "endPort": 90}]))],
            |t| t.to == "x/a" && (t.protocol, t.port) != (17, 81),
        ),
        ("a name no port has", vec![on(json!([{"port": "nobodys"}]))], |t| {
            t.to == "x/a"
        }),
    ];
    run(rows);
}

fn run(rows: Vec<Row>) {
    for (case, specs, denied) in rows {
        let mut world = nine();
        for (number, spec) in specs.into_iter().enumerate() {
            put_policy(&mut world, &policy("x", &format!("p{number}"), spec));
        }
        check(case, &mut world, denied);
    }
}

#[test]
fn what_is_updated_counts() {
    let mut world = nine();
    put_policy(
        &mut world,
        &policy("x", "p", ingress(json!([{"namespaceSelector": in_namespace("w")}]))),
    );
    check("no namespace is selected", &mut world, |t| t.to == "x/a");
    world.set_namespace("y", Some(labels("w")));
    check("updated namespace", &mut world, |t| {
        t.to == "x/a" && !is_in("y", t.from)
    });
    put_policy(
        &mut world,
        &policy("x", "p", ingress(json!([{"podSelector": pods("d")}]))),
    );
    check("updated policy", &mut world, |t| t.to == "x/a");
    put_pod(&mut world, &server(0, 1, "d"));
    check("updated pod", &mut world, |t| t.to == "x/a" && t.from != "x/b");
    put_pod(&mut world, &server(0, 2, "a"));
    check("a pod that is selected now", &mut world, |t| {
        one_of(t.to, &["x/a", "x/c"]) && t.from != "x/b"
    });
    world.set_policy(client::Key::new("x", "p"), None);
    check("deleted policy", &mut world, |_| false);
}
