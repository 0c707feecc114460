//! What of Services their own objects do not hold: mirrored endpoints, ranges of addresses, addresses of nodes.

use super::*;
use crate::controller::selection::Selection;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {"ports": [{"name": "sql", "port": 5432}]}});
    json_patch::merge(&mut service, &json!({"spec": spec}));
    service
}

#[tokio::test(start_paused = true)]
async fn endpoints_made_by_hand_have_slices_as_long_as_they_are_there() {
    let world = World::start(0).await;
    world.create(SERVICES, service("db", json!({}))).await;
    let endpoints = "/api/v1/namespaces/default/endpoints";
    let body = json!({"kind": "Endpoints", "apiVersion": "v1", "metadata": {"name": "db"},
        "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"name": "sql", "port": 5432}]}]});
    world.create(endpoints, body).await;
    let slices =
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=db";
    let addresses = |list: &Value| list["items"][0]["endpoints"][0]["addresses"].clone();
    world
        .until(slices, |list| addresses(list) == json!(["192.0.2.1"]))
        .await;
    let moved = json!({"subsets": [{"addresses": [{"ip": "192.0.2.2"}], "ports": [{"name": "sql", "port": 5432}]}]});
    world.patch(&format!("{endpoints}/db"), moved).await;
    world
        .until(slices, |list| addresses(list) == json!(["192.0.2.2"]))
        .await;
    let skip = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    world.patch(&format!("{endpoints}/db"), skip).await;
    world.until(slices, |list| list["items"] == json!([])).await;
}

#[tokio::test(start_paused = true)]
async fn a_range_stays_until_its_last_address_is_free() {
    let world = World::start(0).await;
    let range = json!({"kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "more"},
        "spec": {"cidrs": ["10.98.0.0/24"]}});
    world.create(CIDRS, range).await;
    let path = format!("{CIDRS}/more");
    let condition = |cidr: &Value| cidr["status"]["conditions"][0].clone();
    let ready = world.until(&path, |cidr| condition(cidr)["status"] == "True").await;
    assert_eq!(
        ready["metadata"]["finalizers"],
        json!(["networking.k8s.io/service-cidr-finalizer"])
    );
    world
        .create(SERVICES, service("db", json!({"clusterIP": "10.98.0.7"})))
        .await;
    world.call("DELETE", &path, None).await.unwrap();
    let blocked = world.until(&path, |cidr| condition(cidr)["status"] == "False").await;
    assert_eq!(condition(&blocked)["reason"], "Terminating");
    let late = world
        .call(
            "POST",
            SERVICES,
            Some(service("late", json!({"clusterIP": "10.98.0.8"}))),
        )
        .await;
    assert!(late.is_err(), "nothing more is given of it");
    world.call("DELETE", &format!("{SERVICES}/db"), None).await.unwrap();
    world.until(&path, Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_shows_addresses_of_nodes_where_that_is_on() {
    let world = World::start(1).await;
    let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}});
    world.patch("/api/v1/nodes/n0/status", address).await;
    world
        .create(SERVICES, service("web", json!({"type": "LoadBalancer"})))
        .await;
    let server = world.server.clone();
    let client_for = Arc::new(move |name: &str| server.client_as(User::service_account("kube-system", name)));
    spawn_all(ControllerContext {
        informers: read(&*client_for, 9, Kept::Asked),
        client_for,
        clock: world.clock.clone(),
        seed: 9,
        cluster_cidr: None,
        root_ca_pem: tokio::sync::watch::channel("PEM".to_owned()).1,
        authority: None,
        sign: None,
        selection: Selection::parse(&["service-lb-controller".to_owned()]).unwrap(),
        rates: Default::default(),
        options: Default::default(),
        metrics: Arc::default(),
        shutdown: world.shutdown.clone(),
    })
    .detach_all();
    let path = format!("{SERVICES}/web");
    let shown = |service: &Value| service["status"]["loadBalancer"]["ingress"].clone();
    let balanced = json!([{"ip": "192.0.2.7", "ipMode": "VIP", "ports": [{"port": 5432, "protocol": "TCP"}]}]);
    let service = world.until(&path, |service| shown(service) == balanced).await;
    assert_eq!(
        service["metadata"]["finalizers"],
        json!(["service.kubernetes.io/load-balancer-cleanup"])
    );
    let other = format!("{SERVICES}/other");
    world
        .create(SERVICES, self::service("other", json!({"type": "LoadBalancer"})))
        .await;
    let finalizers = |service: &Value| service["metadata"]["finalizers"].clone();
    let told = world.until(&other, |service| finalizers(service).is_array()).await;
    assert_eq!(shown(&told), Value::Null, "the port is another's");
    world.patch(&path, json!({"spec": {"type": "ClusterIP"}})).await;
    let plain = world.until(&path, |service| shown(service).is_null()).await;
    assert_eq!(plain["metadata"]["finalizers"], Value::Null);
    world.until(&other, |service| shown(service) == balanced).await;
}
