use super::*;
use crate::scheduler::cluster::Cluster;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::sync::Arc;

fn info(extra: Value) -> Arc<PodInfo> {
    let mut value = json!({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [{"name": "c"}]}});
    json_patch::merge(&mut value, &extra);
    let pod: Pod = serde_json::from_value(value).unwrap();
    Arc::new(PodInfo::new(Arc::new(pod)))
}

fn cluster(allocatable: Value, extra: Value) -> Cluster {
    let mut value = json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}});
    json_patch::merge(&mut value, &extra);
    let mut cluster = Cluster::default();
    cluster.set_node(&serde_json::from_value(value).unwrap());
    cluster
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}})
}

#[test]
fn fit_lists_every_lack() {
    let cluster = cluster(
        json!({"cpu": "1", "memory": "1Gi", "pods": "0", "nvidia.com/gpu": "1"}),
        json!({}),
    );
    let want = json!({"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "2"});
    let pod = info(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": want}}]}}));
    let rejection = filter(&pod, cluster.node("n").unwrap()).unwrap_err();
    let want = [
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
        "Insufficient nvidia.com/gpu",
    ];
    assert_eq!(rejection.reasons, want);
    assert!(!rejection.resolvable);
}

#[test]
fn scores_follow_the_formulas() {
    let mut cluster = cluster(json!({"cpu": "4", "memory": "8Gi", "pods": "110"}), json!({}));
    let pod = info(requests("1", "4Gi"));
    let node = cluster.node("n").unwrap();
    // (75 + 50) / 2, and 50 + (50 + 87 - 100) / 2.
    assert_eq!(node_resources_fit::score(&pod, node), 62);
    assert_eq!(node_resources_balanced_allocation::score(&pod, node), 68);
    let bare = info(json!({}));
    assert!(!node_resources_balanced_allocation::scores(&bare));
    // 100m of 4 and 200Mi of 8Gi: 97 + 97.
    assert_eq!(node_resources_fit::score(&bare, node), 97);
    let other = Arc::new(PodInfo {
        uid: "other".into(),
        ..PodInfo::clone(&info(requests("4", "1Gi")))
    });
    cluster.place(other, "n");
    assert_eq!(node_resources_fit::score(&pod, cluster.node("n").unwrap()), 18);
}

#[test]
fn host_ports_conflict_per_address_and_protocol() {
    let port = |port: i32, protocol: &str, address: &str| {
        json!({"spec": {"containers": [{"name": "c", "ports": [
            {"containerPort": 80, "hostPort": port, "protocol": protocol, "hostIP": address}]}]}})
    };
    let mut cluster = cluster(json!({"cpu": "4", "memory": "8Gi", "pods": "110"}), json!({}));
    let holder = Arc::new(PodInfo {
        uid: "holder".into(),
        ..PodInfo::clone(&info(port(80, "TCP", "10.0.0.1")))
    });
    cluster.place(holder, "n");
    let table = [
        (port(80, "TCP", "10.0.0.1"), false),
        (port(80, "TCP", ""), false),
        (port(80, "TCP", "10.0.0.2"), true),
        (port(80, "UDP", "10.0.0.1"), true),
        (port(81, "TCP", "10.0.0.1"), true),
    ];
    for (extra, want) in table {
        assert_eq!(
            filter(&info(extra.clone()), cluster.node("n").unwrap()).is_ok(),
            want,
            "{extra}"
        );
    }
    cluster.remove_pod("holder");
    assert!(filter(&info(port(80, "TCP", "")), cluster.node("n").unwrap()).is_ok());
}

#[test]
fn cordoned_nodes_take_tolerating_pods() {
    let cluster = cluster(
        json!({"cpu": "4", "memory": "8Gi", "pods": "110"}),
        json!({"spec": {"unschedulable": true}}),
    );
    let node = cluster.node("n").unwrap();
    assert_eq!(
        filter(&info(json!({})), node).unwrap_err().reasons,
        ["node(s) were unschedulable"]
    );
    let tolerating =
        json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}});
    assert!(filter(&info(tolerating), node).is_ok());
}

#[test]
fn images_draw_pods_by_size_and_spread() {
    let image = json!({"status": {"images": [{"names": ["nginx:latest"], "sizeBytes": 1_048_576_000}]}});
    let cluster = cluster(json!({"cpu": "4", "memory": "8Gi", "pods": "110"}), image);
    let pod = info(json!({"spec": {"containers": [{"name": "c", "image": "nginx"}]}}));
    let node = cluster.node("n").unwrap();
    let spread = image_locality::spread(&pod, &cluster, 1);
    assert_eq!(image_locality::score(&pod, node, &spread), 100);
    let spread = image_locality::spread(&pod, &cluster, 2);
    assert_eq!(image_locality::score(&pod, node, &spread), 48);
    assert!(image_locality::spread(&info(json!({})), &cluster, 1).is_empty());
}

#[test]
fn normalisation() {
    let run = |mut scores: Vec<i64>, reverse| {
        normalize(&mut scores, reverse);
        scores
    };
    assert_eq!(run(vec![0, 1, 3], false), [0, 33, 100]);
    assert_eq!(run(vec![0, 1, 3], true), [100, 67, 0]);
    assert_eq!(run(vec![0, 0], true), [100, 100]);
    assert_eq!(run(vec![0, 0], false), [0, 0]);
}
