//! The first start and the next, over a memory store.

use super::*;
use crate::apiserver::Parts;
use crate::apiserver::gate::Open;
use crate::store::memory::Memory;
use client::TokioClock;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

async fn server() -> ApiServer {
    let parts = Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap())),
        seed: 1,
        gate: Arc::new(Open),
    };
    ApiServer::new(parts).await.unwrap()
}

fn at(advertise: &str) -> Facts {
    Facts {
        cluster_ip: "10.96.0.1".parse().unwrap(),
        advertise: advertise.parse().unwrap(),
        port: 6443,
        client_ca_pem: "pem".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_start_writes_nothing() {
    let server = server().await;
    run(&server, &at("192.0.2.1")).await.unwrap();
    let reader = server.reader();
    reader.refresh().await.unwrap();
    for (group, resource, namespace, name) in [
        ("", "namespaces", "", "kube-node-lease"),
        ("", "services", "default", "kubernetes"),
        ("", "configmaps", "kube-system", "extension-apiserver-authentication"),
        ("", "endpoints", "default", "kubernetes"),
        ("discovery.k8s.io", "endpointslices", "default", "kubernetes"),
        ("rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"),
        (
            "rbac.authorization.k8s.io",
            "roles",
            "kube-system",
            "extension-apiserver-authentication-reader",
        ),
        ("scheduling.k8s.io", "priorityclasses", "", "system-node-critical"),
    ] {
        assert!(
            reader.get(group, resource, namespace, name).is_some(),
            "{resource} {namespace}/{name}"
        );
    }
    let before = server.store().current_revision().await.unwrap();
    run(&server, &at("192.0.2.1")).await.unwrap();
    assert_eq!(server.store().current_revision().await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_moved_server_and_a_lost_rule_are_repaired() {
    let server = server().await;
    run(&server, &at("192.0.2.1")).await.unwrap();
    let client = server.client_as(User::named("root", &["system:masters"]));
    let uri = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user";
    let patch = json!({"rules": []}).to_string().into_bytes();
    let request = http::Request::patch(uri).header("content-type", "application/merge-patch+json");
    client.request::<Value>(request.body(patch).unwrap()).await.unwrap();
    run(&server, &at("192.0.2.9")).await.unwrap();
    let reader = server.reader();
    reader.refresh().await.unwrap();
    let role = reader
        .get("rbac.authorization.k8s.io", "clusterroles", "", "system:basic-user")
        .unwrap();
    assert_eq!(role["rules"].as_array().unwrap().len(), 2);
    let endpoints = reader.get("", "endpoints", "default", "kubernetes").unwrap();
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], "192.0.2.9");
}
