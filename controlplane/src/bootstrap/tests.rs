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
        service_ranges: vec!["10.96.0.0/16".to_owned()],
        cluster_dns: "10.96.0.10".parse().ok(),
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

#[tokio::test(start_paused = true)]
async fn the_service_kubernetes_comes_back_within_ten_seconds_with_what_leads_to_it() {
    let server = server().await;
    run(&server, &at("192.0.2.1")).await.unwrap();
    let shutdown = CancellationToken::new();
    let client_ca = watch::channel("pem".to_owned()).1;
    let keeping = tokio::spawn(keep_service(
        server.clone(),
        at("192.0.2.1"),
        client_ca,
        shutdown.clone(),
    ));
    let client = server.client_as(User::named("root", &["system:masters"]));
    let paths = [
        "/api/v1/namespaces/default/services/kubernetes",
        "/api/v1/namespaces/default/endpoints/kubernetes",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
    ];
    for path in paths {
        let request = http::Request::delete(path).body(Vec::new()).unwrap();
        client.request::<Value>(request).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(9)).await;
    for path in paths {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let back = client.request::<Value>(request).await.unwrap();
        assert_eq!(back["metadata"]["name"], "kubernetes");
    }
    shutdown.cancel();
    keeping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_ca_of_clients_is_published_without_a_restart() {
    let server = server().await;
    run(&server, &at("192.0.2.1")).await.unwrap();
    let shutdown = CancellationToken::new();
    let (newest, client_ca) = watch::channel("pem".to_owned());
    let keeping = tokio::spawn(keep_service(
        server.clone(),
        at("192.0.2.1"),
        client_ca,
        shutdown.clone(),
    ));
    let published = || {
        let reader = server.reader();
        let map = |namespace: &str, name: &str| reader.get("", "configmaps", namespace, name).unwrap();
        let authentication = map("kube-system", "extension-apiserver-authentication");
        let info = map("kube-public", "cluster-info");
        (
            authentication["data"]["client-ca-file"].as_str().unwrap().to_owned(),
            info["data"]["kubeconfig"].as_str().unwrap().to_owned(),
        )
    };
    let before = published();
    assert_eq!(before.0, "pem");
    newest.send_replace("new".to_owned());
    tokio::time::sleep(Duration::from_secs(9)).await;
    let after = published();
    assert_eq!(after.0, "new");
    assert_ne!(after.1, before.1);
    shutdown.cancel();
    keeping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_service_at_its_address_keeps_nobody_from_starting() {
    let parts = Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap())),
        seed: 1,
        gate: Arc::new(crate::apiserver::gate::secured::Secured::new()),
    };
    let server = ApiServer::new(parts).await.unwrap();
    let client = server.client_as(User::named("root", &["system:masters"]));
    let call = async |method: &str, path: &str, body: Value| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes());
        client.request::<Value>(request.unwrap()).await
    };
    run(&server, &at("192.0.2.1")).await.unwrap();
    let services = "/api/v1/namespaces/default/services";
    let kubernetes = format!("{services}/kubernetes");
    call("DELETE", &kubernetes, json!({})).await.unwrap();
    let mut thief = json!({"metadata": {"name": "thief", "namespace": "default"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 1}]}});
    assert!(call("POST", services, thief.clone()).await.is_err(), "it is kept");
    // As a store of before may have it.
    thief["apiVersion"] = json!("v1");
    thief["kind"] = json!("Service");
    thief["metadata"]["uid"] = json!("u");
    let key = "/registry/services/specs/default/thief";
    let bytes = crate::store::value::testing::as_stored(key, &thief);
    let absent = crate::store::Expect::Absent;
    server.store().put(key, bytes, absent).await.unwrap();
    server.reader().refresh().await.unwrap();
    run(&server, &at("192.0.2.1")).await.unwrap();
    assert!(call("GET", &kubernetes, json!({})).await.is_err());
    call("DELETE", &format!("{services}/thief"), json!({})).await.unwrap();
    server.reader().refresh().await.unwrap();
    run(&server, &at("192.0.2.1")).await.unwrap();
    assert_eq!(
        call("GET", &kubernetes, json!({})).await.unwrap()["spec"]["clusterIP"],
        "10.96.0.1"
    );
}

/// A FlowSchema that its condition would make too large can never have one: the server starts and says so.
#[tokio::test(start_paused = true)]
async fn what_flow_control_cannot_write_keeps_no_server_from_starting() {
    let server = server().await;
    let key = "/registry/flowschemas/large";
    let mut large = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "large", "uid": "u", "annotations": {"a": ""}},
        "spec": {"priorityLevelConfiguration": {"name": "nowhere"}, "matchingPrecedence": 9}});
    let room = crate::tree::SIZE_MAX_BYTES - large.to_string().len() - 100;
    large["metadata"]["annotations"]["a"] = json!("x".repeat(room));
    let bytes = crate::store::value::testing::as_stored(key, &large);
    server
        .store()
        .put(key, bytes, crate::store::Expect::Absent)
        .await
        .unwrap();
    server.reader().refresh().await.unwrap();
    run(&server, &at("192.0.2.1")).await.unwrap();
    let client = server.client_as(apiserver());
    assert!(
        flow_control::ensure(&server, &client).await.is_err(),
        "it cannot be written"
    );
    server.reader().refresh().await.unwrap();
    assert!(server.reader().get("", "services", "default", "kubernetes").is_some());
}

/// The Service of the DNS is there like `kubernetes`, comes back, and is nobody else's to lose.
#[tokio::test(start_paused = true)]
async fn the_dns_service_is_kept_unless_somebody_has_its_name_or_address() {
    let server = server().await;
    run(&server, &at("192.0.2.1")).await.unwrap();
    let client = server.client_as(User::named("root", &["system:masters"]));
    let call = async |method: &str, path: &str, body: Value| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes());
        let reply = client.request::<Value>(request.unwrap()).await;
        server.reader().refresh().await.unwrap();
        reply
    };
    let services = "/api/v1/namespaces/kube-system/services";
    let dns = format!("{services}/kube-dns");
    let made = call("GET", &dns, json!({})).await.unwrap();
    assert_eq!(made["spec"]["clusterIP"], "10.96.0.10");
    assert_eq!(made["metadata"]["labels"]["k8s-app"], "kube-dns");
    assert!(made["spec"]["selector"].is_null());
    call("DELETE", &dns, json!({})).await.unwrap();
    run(&server, &at("192.0.2.1")).await.unwrap();
    assert!(call("GET", &dns, json!({})).await.is_ok());
    // An administrator's own, of the same name or only at its address.
    let mut own =
        json!({"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.96.0.44", "ports": [{"port": 53}]}});
    for name in ["kube-dns", "coredns"] {
        call("DELETE", &dns, json!({})).await.unwrap();
        own["metadata"]["name"] = json!(name);
        call("POST", services, own.clone()).await.unwrap();
        run(&server, &at("192.0.2.1")).await.unwrap();
        let there = call("GET", &format!("{services}/{name}"), json!({})).await.unwrap();
        assert_eq!(there["spec"]["clusterIP"], own["spec"]["clusterIP"]);
        own["spec"]["clusterIP"] = json!("10.96.0.10");
    }
    assert!(call("GET", &dns, json!({})).await.is_err());
    let off = Facts {
        cluster_dns: None,
        ..at("192.0.2.1")
    };
    call("DELETE", &format!("{services}/coredns"), json!({})).await.unwrap();
    run(&server, &off).await.unwrap();
    assert!(call("GET", &dns, json!({})).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_range_of_services_is_ready_and_widened_when_the_cluster_is() {
    let server = server().await;
    run(&server, &at("192.0.2.1")).await.unwrap();
    let range = || {
        server
            .reader()
            .get("networking.k8s.io", "servicecidrs", "", "kubernetes")
            .unwrap()
    };
    server.reader().refresh().await.unwrap();
    assert_eq!(range()["spec"]["cidrs"], json!(["10.96.0.0/16"]));
    let condition = &range()["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Ready"), &json!("True"))
    );
    let two = Facts {
        service_ranges: vec!["10.96.0.0/16".to_owned(), "fd00::/112".to_owned()],
        ..at("192.0.2.1")
    };
    run(&server, &two).await.unwrap();
    server.reader().refresh().await.unwrap();
    assert_eq!(range()["spec"]["cidrs"], json!(["10.96.0.0/16", "fd00::/112"]));
}

/// What an older store lacks is made, and what leads nowhere goes, without a request.
#[tokio::test(start_paused = true)]
async fn addresses_are_repaired_after_the_start_and_later() {
    let server = server().await;
    run(&server, &at("192.0.2.1")).await.unwrap();
    let client = server.client_as(User::named("root", &["system:masters"]));
    let call = async |method: &str, path: &str, body: Value| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes());
        client.request::<Value>(request.unwrap()).await
    };
    const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
    call("DELETE", &format!("{ADDRESSES}/10.96.0.1"), json!({}))
        .await
        .unwrap();
    let mut leaked = crate::resource::service::address_object("10.96.7.7".parse().unwrap(), "default", "gone");
    leaked["apiVersion"] = json!("networking.k8s.io/v1");
    leaked["kind"] = json!("IPAddress");
    call("POST", ADDRESSES, leaked).await.unwrap();
    let shutdown = CancellationToken::new();
    let ranges = "10.96.0.0/16".parse().unwrap();
    let keeping = tokio::spawn(addresses::keep(server.clone(), ranges, shutdown.clone()));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(100);
    loop {
        let has = async |ip: &str| call("GET", &format!("{ADDRESSES}/{ip}"), json!({})).await.is_ok();
        if has("10.96.0.1").await && has("10.96.0.10").await && !has("10.96.7.7").await {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "not repaired");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    shutdown.cancel();
    keeping.await.unwrap();
}
