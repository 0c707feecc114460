use super::*;
use crate::controller::write::Verb;
use serde_json::{Value, json};

fn service(name: &str, more: Value) -> Service {
    let mut value = json!({"metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80, "protocol": "TCP"}]}});
    json_patch::merge(&mut value, &more);
    serde_json::from_value(value).unwrap()
}

fn node(name: &str, more: Value) -> Arc<Node> {
    let last = name.len();
    let mut value = json!({"metadata": {"name": name}, "status": {
        "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{last}")}, {"type": "InternalIP", "address": format!("fd00::{last}")},
            {"type": "Hostname", "address": name}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    json_patch::merge(&mut value, &more);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn ips(service: &Service, nodes: &[Arc<Node>], slices: &[Arc<EndpointSlice>]) -> Vec<String> {
    let all = wanted(service, nodes, slices).into_iter();
    all.map(|ip| ip.to_string()).collect()
}

/// The Service as a write leaves it.
fn written(plan: &Plan) -> Service {
    match plan.writes.as_slice() {
        [
            Write {
                verb: Verb::ReplaceSub("status", body),
                ..
            },
        ] => serde_json::from_value(body.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_that_take_traffic_lend_their_addresses() {
    let nodes = [
        node("nn", json!({})),
        node(
            "n",
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "203.0.113.1"}]}}),
        ),
        node("nnn", json!({"metadata": {"labels": {EXCLUDED: ""}}})),
        node(
            "nnnn",
            json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
        ),
    ];
    assert_eq!(ips(&service("s", json!({})), &nodes, &[]), ["203.0.113.1", "192.0.2.2"]);
    let both = service("s", json!({"spec": {"ipFamilies": ["IPv6", "IPv4"]}}));
    assert_eq!(ips(&both, &nodes, &[]), ["203.0.113.1", "fd00::2", "192.0.2.2"]);
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": "nn", "conditions": {"ready": true}},
        {"addresses": ["10.1.0.2"], "nodeName": "n", "conditions": {"ready": false}}]});
    let slice = Arc::new(serde_json::from_value(slice).unwrap());
    let local = service("s", json!({"spec": {"externalTrafficPolicy": "Local"}}));
    assert_eq!(ips(&local, &nodes, &[slice]), ["192.0.2.2"]);
    let many: Vec<Arc<Node>> = (1..60).map(|i| node(&"n".repeat(i), json!({}))).collect();
    assert_eq!(ips(&service("s", json!({})), &many, &[]).len(), MOST);
}

/// The plan of a Service at these nodes, beside others.
fn planned(service: &Service, others: &[&Service], nodes: &[Arc<Node>]) -> Plan {
    let wants = |service: &Service| wanted(service, nodes, &[]);
    let all = others.iter().copied().chain([service]);
    let mut holdings = claims::Holdings::default();
    for service in all {
        let claim = claim(service, &wants(service), NodePorts::default());
        holdings.set(&Key::of(service), Some(claim));
    }
    let kept_from = holdings.clashes(&Key::of(service));
    plan(service, &wants(service), &kept_from, NodePorts::default())
}

#[test]
fn ports_of_nodes_are_nobodys() {
    let nodes = [node("n", json!({}))];
    for kept in [22, 6443, 10250, 30_000, 32_767] {
        let service = service("s", json!({"spec": {"ports": [{"port": kept}]}}));
        let refused = planned(&service, &[], &nodes);
        let text =
            format!("Error syncing load balancer: failed to ensure load balancer: port {kept}/TCP is kept for nodes");
        assert_eq!(
            (refused.events[0].reason, &refused.events[0].message),
            ("SyncLoadBalancerFailed", &text)
        );
        assert_eq!(shown(&written(&refused)), []);
        assert_eq!(
            claim(&service, &[[192, 0, 2, 1].into()], NodePorts::default())
                .wants
                .len(),
            0,
            "it holds nobody back"
        );
    }
}

#[test]
fn a_port_in_use_is_told_and_the_other_addresses_are_had() {
    let nodes = [node("n", json!({})), node("nn", json!({}))];
    let first = written(&planned(&service("first", json!({})), &[], &nodes[..1]));
    let older = service(
        "older",
        json!({"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": {"ports": [{"port": 80}, {"port": 443}]}}),
    );
    let refused = planned(&older, &[&first], &nodes[..1]);
    assert_eq!(
        refused.events[0].message,
        "Error syncing load balancer: failed to ensure load balancer: port 80/TCP of 192.0.2.1 is in use by Service n/first"
    );
    assert_eq!(
        shown(&written(&refused)),
        [],
        "nothing that waiting for an address would take for one"
    );
    assert_eq!(
        planned(&first, &[&older], &nodes[..1]),
        Plan::default(),
        "who has it keeps it"
    );
    let partly = planned(&older, &[&first], &nodes);
    assert_eq!(partly.events.len(), 1);
    assert_eq!(
        serde_json::to_value(shown(&written(&partly))).unwrap(),
        json!([{"ip": "192.0.2.2", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]},
            {"ports": [{"port": 80, "protocol": "TCP", "error": IN_USE}, {"port": 443, "protocol": "TCP"}]}])
    );
}

/// A status that shows no ports, as it was written before, shows them all.
#[test]
fn what_is_held_is_what_the_status_shows() {
    let status = |ingress: Value| json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
    let of = |ingress: Value| {
        claim(&service("s", status(ingress)), &[], NodePorts::default())
            .has
            .into_values()
            .next()
    };
    let web = BTreeSet::from([(80, "TCP".to_owned())]);
    assert_eq!(of(json!({"ip": "192.0.2.1"})), Some(web));
    let other = json!({"ip": "192.0.2.1", "ports": [{"port": 443, "protocol": "UDP"}]});
    assert_eq!(of(other), Some(BTreeSet::from([(443, "UDP".to_owned())])));
    assert_eq!(
        of(json!({"ports": [{"port": 80, "protocol": "TCP", "error": "x"}]})),
        None
    );
    assert_eq!(of(json!({"hostname": "x.example"})), None);
}

#[test]
fn finalizer_and_status_come_and_go_together() {
    let nodes = [node("n", json!({}))];
    let new = service("s", json!({"metadata": {"finalizers": ["a/b"]}}));
    let held = written(&planned(&new, &[], &nodes));
    assert_eq!(held.finalizers(), ["a/b", FINALIZER]);
    assert_eq!(shown(&held)[0].ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(planned(&held, &[], &nodes), Plan::default());
    for change in [
        json!({"metadata": {"deletionTimestamp": "2026-02-01T00:00:00Z"}}),
        json!({"spec": {"type": "ClusterIP"}}),
    ] {
        let mut value = serde_json::to_value(&held).unwrap();
        json_patch::merge(&mut value, &change);
        let gone = written(&planned(&serde_json::from_value(value).unwrap(), &[], &nodes));
        assert_eq!(gone.finalizers(), ["a/b"]);
        assert_eq!(shown(&gone), []);
    }
    assert!(!concerns_us(&service(
        "s",
        json!({"spec": {"loadBalancerClass": "x.example/y"}})
    )));
    assert!(!concerns_us(&service("s", json!({"spec": {"type": "NodePort"}}))));
}
