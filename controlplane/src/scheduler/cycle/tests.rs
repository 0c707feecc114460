use super::*;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

fn node(name: &str, extra: Value) -> Node {
    let mut value = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    });
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, cpu: &str, memory: &str, extra: Value) -> Arc<PodInfo> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
    });
    json_patch::merge(&mut value, &extra);
    let pod: Pod = serde_json::from_value(value).unwrap();
    Arc::new(PodInfo::new(Arc::new(pod)))
}

fn cluster(nodes: &[Node]) -> Cluster {
    let mut cluster = Cluster::default();
    for node in nodes {
        cluster.set_node(node);
    }
    cluster
}

fn message(nodes: &[Node], pod: &PodInfo) -> String {
    Search::new(1).schedule(&mut cluster(nodes), pod).unwrap_err().message()
}

#[test]
fn messages_are_upstreams() {
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let tainted = [node("a", taint.clone()), node("b", taint), node("c", json!({}))];
    let table: [(&[Node], Arc<PodInfo>, &str); 6] = [
        (
            &[],
            pod("p", "1", "1Gi", json!({})),
            "no nodes available to schedule pods",
        ),
        (
            &tainted,
            pod("p", "16", "1Gi", json!({})),
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: 0/3 nodes are \
             available: 3 Preemption is not helpful for scheduling.",
        ),
        (
            &[node("a", json!({}))],
            pod("p", "16", "100Gi", json!({})),
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. preemption: 0/1 nodes are available: 1 \
             Preemption is not helpful for scheduling.",
        ),
        (
            &[node("a", json!({"status": {"allocatable": {"pods": "0"}}}))],
            pod("p", "1", "1Gi", json!({})),
            "0/1 nodes are available: 1 Too many pods. preemption: 0/1 nodes are available: 1 No preemption victims found for \
             incoming pod.",
        ),
        (
            &[node("a", json!({"spec": {"unschedulable": true}}))],
            pod("p", "1", "1Gi", json!({"spec": {"preemptionPolicy": "Never"}})),
            "0/1 nodes are available: 1 node(s) were unschedulable. preemption: not eligible due to preemptionPolicy=Never.",
        ),
        (
            &[node("a", json!({}))],
            pod("p", "1", "1Gi", json!({"spec": {"nodeSelector": {"disk": "ssd"}}})),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are available: \
             1 Preemption is not helpful for scheduling.",
        ),
    ];
    for (nodes, pod, want) in table {
        assert_eq!(message(nodes, &pod), want);
    }
}

#[test]
fn decided_pods_count_at_once() {
    let mut cluster = cluster(&[node("a", json!({}))]);
    let mut search = Search::new(1);
    for i in 0..4 {
        let pod = pod(&format!("p{i}"), "1", "1Gi", json!({}));
        let node = search.schedule(&mut cluster, &pod).unwrap();
        cluster.place(pod, &node);
    }
    let fifth = pod("p5", "1", "1Gi", json!({}));
    let error = search.schedule(&mut cluster, &fifth).unwrap_err();
    assert!(error.message().contains("1 Insufficient cpu."), "{}", error.message());
    assert_eq!(error.resolvable, ["a"]);
    cluster.remove_pod("p0");
    assert_eq!(search.schedule(&mut cluster, &fifth).as_deref(), Ok("a"));
}

#[test]
fn pods_spread_over_equal_nodes() {
    let nodes: Vec<Node> = (0..10).map(|i| node(&format!("n{i}"), json!({}))).collect();
    let mut cluster = cluster(&nodes);
    let mut search = Search::new(7);
    for i in 0..30 {
        let pod = pod(&format!("p{i}"), "100m", "200Mi", json!({}));
        let node = search.schedule(&mut cluster, &pod).unwrap();
        cluster.place(pod, &node);
    }
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap();
        assert_eq!(cluster.node(name).unwrap().pods.len(), 3, "{name}");
    }
}

#[test]
fn ties_are_broken_by_the_seed() {
    let nodes: Vec<Node> = (0..10).map(|i| node(&format!("n{i}"), json!({}))).collect();
    let choose = |seed| {
        Search::new(seed)
            .schedule(&mut cluster(&nodes), &pod("p", "1", "1Gi", json!({})))
            .unwrap()
    };
    assert_eq!(choose(1), choose(1));
    let chosen: BTreeSet<String> = (0..50).map(choose).collect();
    assert!(chosen.len() > 5, "{chosen:?}");
}

#[test]
fn preferences_win_over_balance() {
    let preferred = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}}]}}}});
    let soft = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    for seed in 0..20 {
        let mut plain = cluster(&[node("a", json!({})), node("b", json!({}))]);
        let choice = Search::new(seed).schedule(&mut plain, &pod("p", "1", "1Gi", preferred.clone()));
        assert_eq!(choice.as_deref(), Ok("b"));
        let mut tainted = cluster(&[node("a", soft.clone()), node("b", json!({}))]);
        let choice = Search::new(seed).schedule(&mut tainted, &pod("p", "1", "1Gi", json!({})));
        assert_eq!(choice.as_deref(), Ok("b"));
    }
}

#[test]
fn large_clusters_are_searched_in_part_and_in_turn() {
    assert_eq!(
        [enough(0), enough(99), enough(100), enough(1000), enough(5000)],
        [0, 99, 100, 420, 500]
    );
    let nodes: Vec<Node> = (0..300).map(|i| node(&format!("n{i:03}"), json!({}))).collect();
    let mut cluster = cluster(&nodes);
    let mut search = Search::new(1);
    let mut used = BTreeSet::new();
    for i in 0..600 {
        let pod = pod(&format!("p{i}"), "1", "1Gi", json!({}));
        let node = search.schedule(&mut cluster, &pod).unwrap();
        used.insert(node.clone());
        cluster.place(pod, &node);
    }
    assert_eq!(used.len(), 300);
}

#[test]
fn zones_take_turns() {
    let zoned = |name: &str, zone: &str| {
        node(
            name,
            json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}),
        )
    };
    let mut cluster = cluster(&[zoned("a1", "a"), zoned("a2", "a"), zoned("a3", "a"), zoned("b1", "b")]);
    cluster.refresh();
    let names: Vec<_> = cluster
        .order()
        .iter()
        .map(|slot| cluster.at(*slot).name.clone())
        .collect();
    assert_eq!(names, ["a1", "b1", "a2", "a3"]);
}

#[test]
fn nodes_come_and_go_under_their_pods() {
    let mut cluster = cluster(&[]);
    cluster.place(pod("early", "1", "1Gi", json!({})), "a");
    cluster.refresh();
    assert!(cluster.order().is_empty(), "known only from a pod");
    cluster.set_node(&node("a", json!({})));
    assert_eq!(cluster.node("a").unwrap().requested.cpu, 1000);
    cluster.remove_node("a");
    cluster.refresh();
    assert!(cluster.order().is_empty());
    assert_eq!(cluster.remove_pod("early").as_deref(), Some("a"));
    assert!(cluster.node("a").is_none());
    cluster.set_node(&node("b", json!({})));
    assert_eq!(cluster.node("b").unwrap().requested.cpu, 0);
}
