//! A whole control plane in one process, without a port, under a paused clock.

use super::*;
use crate::config::flags;
use client::TokioClock;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

async fn embedded(dir: &Path, store: &Arc<dyn Store>) -> Daemon {
    let words = [
        format!("--data-dir={}", dir.display()),
        "--bind-address=127.0.0.1".to_owned(),
    ];
    let host = Host {
        clock: Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap())),
        seed: 7,
        hostname: "host".to_owned(),
        address: "192.0.2.1".parse().unwrap(),
        proc: "/proc".into(),
    };
    let config = Config::resolve(&flags::parse(words)).unwrap();
    Daemon::embed(&config, host, Arc::clone(store)).await.unwrap()
}

fn root(daemon: &Daemon) -> kube::Client {
    daemon.server().client_as(User::named("root", &["system:masters"]))
}

/// Waits (in paused time) until `holds`.
async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A kubelet's part of a node: registered and ready, by its own identity.
async fn ready_node(daemon: &Daemon) {
    let kubelet = daemon
        .server()
        .client_as(User::named("system:node:n1", &["system:nodes"]));
    let nodes: Api<Node> = Api::all(kubelet);
    let node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({"status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastHeartbeatTime": "2027-01-15T08:00:00Z", "lastTransitionTime": "2027-01-15T08:00:00Z"}]}});
    nodes
        .patch_status("n1", &PatchParams::default(), &Patch::Strategic(status))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deployment_ends_in_pods_bound_to_a_node_and_a_restart_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let daemon = embedded(dir.path(), &store).await;
    ready_node(&daemon).await;
    let deployments: Api<Deployment> = Api::default_namespaced(root(&daemon));
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    let web = serde_json::from_value(web).unwrap();
    deployments.create(&PostParams::default(), &web).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(root(&daemon));
    let uids = async |pods: &Api<Pod>| -> Vec<String> {
        let listed = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
        let bound = listed.items.into_iter().filter(|pod| {
            let spec = pod.spec.as_ref();
            spec.is_some_and(|spec| spec.node_name.as_deref() == Some("n1"))
        });
        let mut uids: Vec<String> = bound.filter_map(|pod| pod.metadata.uid).collect();
        uids.sort();
        uids
    };
    eventually("three bound pods", || async { uids(&pods).await.len() == 3 }).await;
    let before = uids(&pods).await;
    daemon.stop().await;

    let daemon = embedded(dir.path(), &store).await;
    let pods: Api<Pod> = Api::default_namespaced(root(&daemon));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(uids(&pods).await, before);
    daemon.stop().await;
}
