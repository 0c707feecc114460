//! A whole proxy over a scripted API server and the kernel, in a network namespace that ends with its thread.

use super::*;
use crate::http;
use crate::testing::api::{NODES, SERVICE_CIDRS, SERVICES, SLICES, Server};
use crate::testing::{get, in_namespace, nft};
use std::sync::Mutex;

/// Long enough for anything; what is waited for is a condition.
const GUARD: Duration = Duration::from_secs(20);

fn this_node(taints: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n1"},
        "spec": {"podCIDRs": ["10.1.0.0/24"], "taints": taints},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}})
}

/// A Service with two endpoints on a node.
fn web(node: &str) -> (Value, Value) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop", "uid": "web"},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31999, "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]}});
    let endpoint = |address| json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": node});
    let endpoints = [endpoint("10.1.0.5"), endpoint("10.1.0.6")];
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "s", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints});
    (service, slice)
}

fn local() -> Config {
    let mut config = config();
    config.healthz = Some("127.0.0.1:10256".parse().unwrap());
    config.metrics = Some("127.0.0.1:10249".parse().unwrap());
    config.local = LocalTraffic::NodeCidr;
    config.min_sync_period = Duration::ZERO;
    config
}

/// Asks until the answer is as expected; before, nobody may listen yet.
async fn until(port: u16, path: &str, expected: impl Fn(u16, &str) -> bool) {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut last = (0, "nobody listens".to_owned());
    let asks = async {
        loop {
            if tokio::net::TcpStream::connect(address).await.is_ok() {
                last = get(address, path).await;
                if expected(last.0, &last.1) {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(GUARD, asks).await;
    assert!(ended.is_ok(), "{address}{path} answers {last:?}");
}

#[test]
fn a_whole_proxy_serves_tells_and_ends() {
    in_namespace(async || {
        let server = Server::new();
        let (service, slice) = web("n1");
        server.put(SERVICES, service);
        server.put(SLICES, slice);
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let hears = told.clone();
        let tell: Tell = Arc::new(move |what| hears.lock().unwrap().push(what));
        let (stop, informers) = (CancellationToken::new(), server.informers());
        let (config, stopping) = (local(), stop.clone());
        let running = tokio::spawn(async move { run(&config, "n1", informers, tell, stopping).await });

        // Nothing is written, and no traffic wanted, before the node is known.
        until(10256, "/healthz", |code, body| {
            code == 503 && body.contains("\"nodeEligible\":false")
        })
        .await;
        server.put(NODES, this_node(json!([])));
        until(10256, "/healthz", |code, body| {
            code == 200 && body.contains("\"status\":{\"IPv4\":{")
        })
        .await;
        until(31999, "/", |code, body| {
            code == 200 && body.contains("\"localEndpoints\": 2")
        })
        .await;
        until(10249, "/metrics", |_, body| {
            let line = "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} ";
            body.lines()
                .any(|of| of.strip_prefix(line).is_some_and(|count| count != "0"))
        })
        .await;
        assert_eq!(told.lock().unwrap()[0], of_node("n1", false, "Starting", ""));

        server.put(SLICES, web("n2").1);
        until(31999, "/", |code, body| {
            code == 503 && body.contains("\"localEndpoints\": 0")
        })
        .await;
        until(10249, "/metrics", |_, body| {
            body.contains("no_local_endpoints_total{ip_family=\"IPv4\",traffic_policy=\"external\"} 1\n")
        })
        .await;
        server.put(
            NODES,
            this_node(json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])),
        );
        until(10256, "/healthz", |code, _| code == 503).await;
        until(10256, "/livez", |code, _| code == 200).await;

        stop.cancel();
        running.await.unwrap().expect("it was told to end");
    });
}

/// Waits until a chain of the proxy's lists these words.
async fn until_listed(chain: &str, words: &str) {
    let mut last = String::new();
    let asks = async {
        loop {
            last = nft(&["list", "chain", "ip", "skiff-proxy", chain]);
            if last.contains(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(GUARD, asks).await;
    assert!(ended.is_ok(), "{words}: {last}");
}

#[test]
fn unused_addresses_of_services_ranges_are_dropped() {
    in_namespace(async || {
        let server = Server::new();
        let cidr = |name: &str, range: &str| {
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
                "metadata": {"name": name, "uid": name}, "spec": {"cidrs": [range]}})
        };
        server.put(NODES, this_node(json!([])));
        server.put(SERVICE_CIDRS, cidr("kubernetes", "10.96.0.0/16"));
        let (stop, informers) = (CancellationToken::new(), server.informers());
        let stopping = stop.clone();
        let (says, mut said) = mpsc::unbounded_channel();
        let tell: Tell = Arc::new(move |told| drop(says.send(told)));
        let running = tokio::spawn(async move { run(&local(), "n1", informers, tell, stopping).await });
        until_listed("unknown", "ip daddr 10.96.0.0/16 drop").await;
        // One that has the node in it is told, and guarded never.
        server.put(SERVICE_CIDRS, cidr("all", "10.0.0.0/24"));
        let told = async {
            while let Some(told) = said.recv().await {
                if told.reason == "ServiceRangeNotGuarded" {
                    return told;
                }
            }
            unreachable!("the proxy runs");
        };
        let told = tokio::time::timeout(GUARD, told).await.expect("it is told");
        assert!(told.kind == "Node" && told.name == "n1" && told.is_warning, "{told:?}");
        server.put(SERVICE_CIDRS, cidr("more", "192.0.2.0/24"));
        until_listed("unknown", "ip daddr 192.0.2.0/24 drop").await;
        until_listed("unknown", "ip daddr 10.96.0.0/16 drop").await;
        assert!(!nft(&["list", "chain", "ip", "skiff-proxy", "unknown"]).contains("10.0.0.0/24"));
        stop.cancel();
        running.await.unwrap().expect("it was told to end");
    });
}

#[test]
fn a_server_that_must_not_fail_ends_the_proxy() {
    in_namespace(async || {
        let server = Server::new();
        let held = http::bind("127.0.0.1:10249".parse().unwrap()).await.unwrap();
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let hears = told.clone();
        let tell: Tell = Arc::new(move |what| hears.lock().unwrap().push(what));
        let config = Config {
            bind_hard_fail: true,
            ..local()
        };
        let ended = run(&config, "n1", server.informers(), tell, CancellationToken::new()).await;
        let why = ended.expect_err("it cannot listen").to_string();
        assert!(
            why.starts_with("starting metrics server failed: listen tcp 127.0.0.1:10249: "),
            "{why}"
        );
        assert_eq!(
            told.lock().unwrap()[..],
            [of_node("n1", true, "FailedToStartMetricServer", &why)]
        );
        drop(held);
    });
}

#[test]
fn a_server_that_may_fail_is_there_once_its_address_is_free() {
    in_namespace(async || {
        let server = Server::new();
        let held = http::bind("127.0.0.1:10249".parse().unwrap()).await.unwrap();
        let (stop, informers) = (CancellationToken::new(), server.informers());
        let stopping = stop.clone();
        let running = tokio::spawn(async move { run(&local(), "n1", informers, Arc::new(|_| {}), stopping).await });
        until(10256, "/livez", |code, _| code == 200).await;
        drop(held);
        until(10249, "/healthz", |code, body| code == 200 && body == "ok").await;
        stop.cancel();
        running.await.unwrap().expect("it was told to end");
    });
}
