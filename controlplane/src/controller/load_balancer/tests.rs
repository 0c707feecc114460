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
    let all = ingress(service, nodes, slices).into_iter();
    all.map(|ingress| ingress.ip.unwrap()).collect()
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

#[test]
fn a_port_is_one_services_and_those_of_nodes_are_nobodys() {
    let port = |number: i32, protocol: &str| json!({"spec": {"ports": [{"port": number, "protocol": protocol}]}});
    let older = Arc::new(service(
        "older",
        json!({"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"}}),
    ));
    let why = |more: Value| refusal(&service("s", more), std::slice::from_ref(&older));
    assert_eq!(
        why(json!({})).unwrap(),
        "port 80/TCP of the nodes' addresses is in use by Service n/older"
    );
    assert_eq!(why(port(80, "UDP")), None);
    assert_eq!(
        refusal(&older, &[Arc::new(service("s", json!({})))]),
        None,
        "who came first keeps it"
    );
    for kept in [22, 6443, 10250, 30_000, 32_767] {
        assert_eq!(
            why(port(kept, "TCP")).unwrap(),
            format!("port {kept}/TCP is kept for nodes")
        );
    }
}

#[test]
fn finalizer_and_status_come_and_go_together() {
    let nodes = [node("n", json!({}))];
    let new = service("s", json!({"metadata": {"finalizers": ["a/b"]}}));
    let first = plan(&new, &[], &nodes, &[]);
    let held = written(&first);
    assert_eq!(held.finalizers(), ["a/b", FINALIZER]);
    assert_eq!(shown(&held)[0].ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(plan(&held, &[], &nodes, &[]), Plan::default());
    let clash = Arc::new(service(
        "older",
        json!({"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"}}),
    ));
    let refused = plan(&held, std::slice::from_ref(&clash), &nodes, &[]);
    assert_eq!(refused.events[0].reason, "SyncLoadBalancerFailed");
    assert_eq!(shown(&written(&refused)), []);
    for change in [
        json!({"metadata": {"deletionTimestamp": "2026-02-01T00:00:00Z"}}),
        json!({"spec": {"type": "ClusterIP"}}),
    ] {
        let mut value = serde_json::to_value(&held).unwrap();
        json_patch::merge(&mut value, &change);
        let gone = written(&plan(&serde_json::from_value(value).unwrap(), &[], &nodes, &[]));
        assert_eq!(gone.finalizers(), ["a/b"]);
        assert_eq!(shown(&gone), []);
    }
    assert!(!concerns_us(&service(
        "s",
        json!({"spec": {"loadBalancerClass": "x.example/y"}})
    )));
    assert!(!concerns_us(&service("s", json!({"spec": {"type": "NodePort"}}))));
}
