//! Addresses and node ports of Services as the API shows them: IPAddresses come and go with their Services, and nothing is given twice.

use super::*;
use crate::apiserver::gate::secured::Secured;
use futures::future::join_all;
use std::collections::BTreeSet;

const SERVICES: &str = "/api/v1/namespaces/a/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// A server with real admission over `ranges`, with namespace `a`.
async fn over(ranges: &str) -> ApiServer {
    let server = ApiServer::new(Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: 7,
        gate: Arc::new(Secured::giving(ranges)),
    })
    .await
    .unwrap();
    let made = post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    server
}

fn service(name: &str, more: Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    json_patch::merge(&mut service, &json!({"spec": more}));
    service
}

/// The IPAddresses there are, with the names of their parents.
async fn noted(server: &ApiServer) -> Vec<(String, String)> {
    let all = get(server, ADDRESSES).await.body;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = all["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            (
                text(&item["metadata"]["name"]),
                text(&item["spec"]["parentRef"]["name"]),
            )
        })
        .collect()
}

fn pair(ip: &str, name: &str) -> (String, String) {
    (ip.to_owned(), name.to_owned())
}

#[tokio::test(start_paused = true)]
async fn an_address_object_comes_with_its_service_and_goes_with_it() {
    let server = over("10.96.0.0/24").await;
    let asked = service("s", json!({"clusterIP": "10.96.0.9"}));
    let dry = format!("{SERVICES}?dryRun=All");
    assert_eq!(post(&server, &dry, &asked).await.code, 201);
    assert_eq!(noted(&server).await, []);
    assert_eq!(post(&server, SERVICES, &asked).await.code, 201);
    let address = get(&server, &format!("{ADDRESSES}/10.96.0.9")).await.body;
    let parent = json!({"group": "", "resource": "services", "namespace": "a", "name": "s"});
    let mut shown = address["spec"]["parentRef"].clone();
    shown["group"] = json!("");
    assert_eq!(shown, parent);
    assert_eq!(
        address["metadata"]["labels"],
        json!({"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io", "ipaddress.kubernetes.io/ip-family": "IPv4"})
    );
    assert!(address["metadata"]["uid"].is_string());
    // A Service that is refused, or there already, takes nothing.
    assert_eq!(
        post(&server, SERVICES, &service("s", json!({"clusterIP": "10.96.0.10"})))
            .await
            .code,
        422
    );
    assert_eq!(
        post(&server, SERVICES, &service("s", json!({"clusterIP": "10.96.0.11"})))
            .await
            .code,
        409
    );
    let invalid = service("t", json!({"clusterIP": "10.96.0.12", "sessionAffinity": "Odd"}));
    assert_eq!(post(&server, SERVICES, &invalid).await.code, 422);
    assert_eq!(noted(&server).await, [pair("10.96.0.9", "s")]);
    let taken = post(&server, SERVICES, &service("t", json!({"clusterIP": "10.96.0.9"}))).await;
    assert_eq!(taken.code, 422);
    assert!(
        taken.body["message"]
            .as_str()
            .unwrap()
            .contains("provided IP is already allocated")
    );
    let path = format!("{SERVICES}/s");
    assert_eq!(delete(&server, &path).await.code, 200);
    assert_eq!(noted(&server).await, []);
    // Free at once.
    assert_eq!(
        post(&server, SERVICES, &service("t", json!({"clusterIP": "10.96.0.9"})))
            .await
            .code,
        201
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_its_type_gives_back_and_takes() {
    let server = over("10.96.0.0/24,fd00::/112").await;
    let made = post(
        &server,
        SERVICES,
        &service("s", json!({"ipFamilyPolicy": "PreferDualStack"})),
    )
    .await
    .body;
    let addresses = |service: &Value| -> BTreeSet<String> {
        let all = service["spec"]["clusterIPs"].as_array().cloned().unwrap_or_default();
        all.iter().map(|ip| ip.as_str().unwrap().to_owned()).collect()
    };
    let of_notes = |notes: Vec<(String, String)>| -> BTreeSet<String> { notes.into_iter().map(|(ip, _)| ip).collect() };
    assert_eq!(addresses(&made).len(), 2);
    assert_eq!(of_notes(noted(&server).await), addresses(&made));
    let path = format!("{SERVICES}/s");
    for (change, count) in [
        (json!({"type": "NodePort"}), 2),
        (json!({"ipFamilyPolicy": "SingleStack"}), 1),
        (json!({"type": "ExternalName", "externalName": "a.example"}), 0),
        (
            json!({"type": "LoadBalancer", "externalName": null, "externalTrafficPolicy": "Local"}),
            1,
        ),
        (json!({"ipFamilyPolicy": "RequireDualStack"}), 2),
    ] {
        let changed = patch(&server, &path, "merge", &json!({"spec": change.clone()})).await;
        assert_eq!(changed.code, 200, "{}", changed.body);
        assert_eq!(addresses(&changed.body).len(), count, "{change}");
        assert_eq!(of_notes(noted(&server).await), addresses(&changed.body), "{change}");
        let spec = &changed.body["spec"];
        let reachable = matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"));
        assert_eq!(spec["ports"][0]["nodePort"].is_u64(), reachable, "{change}");
        assert_eq!(
            spec["healthCheckNodePort"].is_u64(),
            spec["externalTrafficPolicy"] == "Local",
            "{change}"
        );
    }
    // Held back by a finalizer it keeps what it has, and lets go with the last of them.
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    assert_eq!(patch(&server, &path, "merge", &held).await.code, 200);
    assert_eq!(delete(&server, &path).await.code, 200);
    assert_eq!(noted(&server).await.len(), 2);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(patch(&server, &path, "merge", &free).await.code, 200);
    assert_eq!(noted(&server).await, []);
}

/// Many at once, in a range that has room for few: each address and each port has one owner, none is lost.
#[tokio::test(start_paused = true)]
async fn concurrent_services_share_nothing() {
    let server = over("10.96.0.0/27").await;
    let services: Vec<Value> = (0..48)
        .map(|i| service(&format!("s{i:02}"), json!({"type": "NodePort"})))
        .collect();
    let replies = join_all(services.iter().map(|service| post(&server, SERVICES, service))).await;
    let made: Vec<&Value> = replies
        .iter()
        .filter(|reply| reply.code == 201)
        .map(|reply| &reply.body)
        .collect();
    // Thirty, less those that are kept for the API server and the DNS.
    assert_eq!(made.len(), 28);
    for refused in replies.iter().filter(|reply| reply.code != 201) {
        assert_eq!(refused.code, 500);
        let why = "Internal error occurred: failed to allocate a serviceIP: range is full";
        assert_eq!(refused.body["message"], why);
    }
    let distinct = |field: &dyn Fn(&Value) -> Value| -> BTreeSet<String> {
        made.iter().map(|service| field(service).to_string()).collect()
    };
    assert_eq!(distinct(&|service| service["spec"]["clusterIP"].clone()).len(), 28);
    assert_eq!(
        distinct(&|service| service["spec"]["ports"][0]["nodePort"].clone()).len(),
        28
    );
    assert_eq!(noted(&server).await.len(), 28);
    let deleting = (0..48).map(|i| {
        let server = server.clone();
        async move { delete(&server, &format!("{SERVICES}/s{i:02}")).await.code }
    });
    let gone = join_all(deleting).await.into_iter().filter(|code| *code == 200).count();
    assert_eq!((gone, noted(&server).await), (28, vec![]));
}

#[tokio::test(start_paused = true)]
async fn another_range_is_used_when_the_first_is_full_and_none_that_goes_or_is_not_ready() {
    let server = over("10.96.0.0/29").await;
    let next = async |name: &str| post(&server, SERVICES, &service(name, json!({}))).await;
    // Six addresses, of which one is kept.
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(next(name).await.code, 201, "{name}");
    }
    assert_eq!(next("f").await.code, 500);
    let range = |name: &str, cidr: &str| json!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}});
    assert_eq!(post(&server, CIDRS, &range("more", "10.97.0.0/29")).await.code, 201);
    let made = next("f").await;
    assert!(
        made.body["spec"]["clusterIP"].as_str().unwrap().starts_with("10.97.0."),
        "{}",
        made.body
    );
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Terminating",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let status = format!("{CIDRS}/more/status");
    assert_eq!(patch(&server, &status, "merge", &not_ready).await.code, 200);
    assert_eq!(next("g").await.code, 500);
    let asked = service("g", json!({"clusterIP": "10.97.0.6"}));
    assert_eq!(
        post(&server, SERVICES, &asked).await.code,
        422,
        "nor by who asks for one"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_the_addresses_of_the_clusters_own_services_or_what_is_noted_for_another() {
    let server = over("10.96.0.0/24").await;
    for ip in ["10.96.0.1", "10.96.0.10"] {
        assert_eq!(
            post(&server, SERVICES, &service("s", json!({"clusterIP": ip})))
                .await
                .code,
            422,
            "{ip}"
        );
    }
    let foreign = json!({"metadata": {"name": "10.96.0.20"},
        "spec": {"parentRef": {"group": "gateway.example", "resource": "gateways", "namespace": "a", "name": "g"}}});
    assert_eq!(post(&server, ADDRESSES, &foreign).await.code, 201);
    let asked = service("s", json!({"clusterIP": "10.96.0.20"}));
    assert_eq!(post(&server, SERVICES, &asked).await.code, 422);
    for i in 0..240 {
        let made = post(&server, SERVICES, &service(&format!("s{i}"), json!({}))).await;
        assert_ne!(made.body["spec"]["clusterIP"], "10.96.0.20");
    }
    assert_eq!(delete(&server, &format!("{ADDRESSES}/10.96.0.20")).await.code, 200);
    assert_eq!(post(&server, SERVICES, &asked).await.code, 201);
}
