//! A whole control plane in one process, without a port, under a paused clock.

mod advertised;
mod encrypted;
mod over_etcd;
mod policy;
mod several;
mod upgraded;
mod upstream_data;

use super::*;
use crate::apiserver::user::User;
use crate::config::flags;
use crate::store::memory::Memory;
use client::TokioClock;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

async fn embedded(dir: &Path, store: &Arc<dyn Store>) -> Daemon {
    embedded_with(dir, store, &[]).await
}

async fn embedded_with(dir: &Path, store: &Arc<dyn Store>, more: &[&str]) -> Daemon {
    let data = format!("--data-dir={}", dir.display());
    let words = [data.as_str(), "--bind-address=127.0.0.1"]
        .into_iter()
        .chain(more.iter().copied());
    let host = Host {
        clock: Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap())),
        seed: 7,
        hostname: "host".to_owned(),
        address: "192.0.2.1".parse().unwrap(),
        proc: "/proc".into(),
    };
    let config = Config::resolve(&flags::parse(words.map(str::to_owned))).unwrap();
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

fn csr(name: &str, signer: &str, usage: &str, address: Option<&str>) -> serde_json::Value {
    use base64::Engine;
    let names = address.map(str::to_owned).into_iter().collect::<Vec<_>>();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "system:node:n1");
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    json!({"metadata": {"name": name}, "spec": {
        "request": base64::engine::general_purpose::STANDARD.encode(pem),
        "signerName": format!("kubernetes.io/{signer}"), "usages": ["digital signature", usage], "username": "somebody"}})
}

#[tokio::test(start_paused = true)]
async fn nodes_join_by_token_and_renew_by_themselves_but_serving_certificates_wait_for_a_human() {
    use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let daemon = embedded(dir.path(), &store).await;
    let client = |user: User| Api::<Csr>::all(daemon.server().client_as(user));
    let group = "system:bootstrappers:kubeadm:default-node-token";
    let bootstrapper = client(User::named("system:bootstrap:abcdef", &["system:bootstrappers", group]));
    let node = client(User::named("system:node:n1", &["system:nodes"]));
    let admin = client(User::named("root", &["system:masters"]));
    let make = async |api: &Api<Csr>, body: serde_json::Value| {
        let made = api
            .create(&PostParams::default(), &serde_json::from_value(body).unwrap())
            .await;
        made.unwrap().spec.username.unwrap()
    };
    let issued = async |name: &str| {
        let status = admin.get(name).await.unwrap().status.unwrap_or_default();
        status.certificate.is_some()
    };
    let kubelet = "kube-apiserver-client-kubelet";
    let who = make(&bootstrapper, csr("first", kubelet, "client auth", None)).await;
    assert_eq!(who, "system:bootstrap:abcdef");
    eventually("the first certificate", || issued("first")).await;
    assert_eq!(
        make(&node, csr("renewal", kubelet, "client auth", None)).await,
        "system:node:n1"
    );
    eventually("the renewed certificate", || issued("renewal")).await;

    make(
        &node,
        csr("serving", "kubelet-serving", "server auth", Some("192.0.2.9")),
    )
    .await;
    let stranger = client(User::named("stranger", &[]));
    assert!(stranger.get("serving").await.is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!issued("serving").await);
    let approve = async |api: &Api<Csr>| {
        let mut csr = admin.get("serving").await.unwrap();
        let condition = json!([{"type": "Approved", "status": "True", "reason": "Test", "message": ""}]);
        csr.status.get_or_insert_default().conditions = serde_json::from_value(condition).unwrap();
        api.replace_subresource("approval", "serving", &PostParams::default(), &csr)
            .await
    };
    assert!(approve(&node).await.is_err());
    approve(&admin).await.unwrap();
    eventually("the serving certificate", || issued("serving")).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cluster_info_is_signed_by_each_token_and_tokens_end() {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let daemon = embedded(dir.path(), &store).await;
    let secrets: Api<Secret> = Api::namespaced(root(&daemon), "kube-system");
    let data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
        "expiration": "2027-01-15T09:00:00Z"});
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": data});
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let anonymous = User {
        name: "system:anonymous".to_owned(),
        groups: vec!["system:unauthenticated".to_owned()],
        ..User::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(daemon.server().client_as(anonymous), "kube-public");
    let signed = async || {
        let data = maps.get("cluster-info").await.unwrap().data.unwrap();
        assert!(data["kubeconfig"].contains("https://127.0.0.1:6443"));
        data.contains_key("jws-kubeconfig-abcdef")
    };
    eventually("a signature", &signed).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    eventually("no signature", async || !signed().await).await;
    assert!(secrets.get_opt("bootstrap-token-abcdef").await.unwrap().is_none());
    daemon.stop().await;
}
