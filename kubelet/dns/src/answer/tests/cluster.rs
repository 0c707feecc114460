//! The cluster of the tables.

use super::*;
use k8s_openapi::api::discovery::v1::EndpointSlice;

fn typed<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Puts a service.
pub(super) fn put(index: &mut Index, namespace: &str, name: &str, spec: Value) {
    let service = typed(json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}));
    index.set_service(namespace, name, Some(&service));
}

/// A slice of a service.
pub(crate) fn slice(
    namespace: &str,
    service: &str,
    name: &str,
    family: &str,
    ports: Value,
    endpoints: Value,
) -> EndpointSlice {
    typed(json!({"addressType": family, "ports": ports, "endpoints": endpoints,
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}}}))
}

/// The cluster, with pods' names of this kind.
pub(crate) fn with_pods(pods: PodNames) -> Index {
    let mut index = Index::new(Shape {
        zone: Name::parse("cluster.local").unwrap(),
        pods,
        ttl: 5,
        addresses: ["10.96.0.10", "fd00:96::10"].map(|text| text.parse().unwrap()).to_vec(),
        ranges: ["10.96.0.0/16", "10.244.0.0/16", "fd00:96::/112", "fd00:244::/64"]
            .map(|text| Cidr::parse(text).unwrap())
            .to_vec(),
    });
    for namespace in ["default", "other", "kube-system"] {
        index.set_namespace(namespace, true);
    }
    put(
        &mut index,
        "kube-system",
        "kube-dns",
        json!({"clusterIPs": ["10.96.0.10", "fd00:96::10"], "clusterIP": "10.96.0.10"}),
    );
    services(&mut index);
    endpoints(&mut index);
    let pod = typed(
        json!({"metadata": {"name": "p", "namespace": "default"}, "status": {"phase": "Running", "podIP": "10.244.0.5"}}),
    );
    index.set_pod(None, Some(&pod));
    let ended = typed(
        json!({"metadata": {"name": "e", "namespace": "other"}, "status": {"phase": "Failed", "podIP": "10.244.0.5"}}),
    );
    index.set_pod(None, Some(&ended));
    index.synced = true;
    index
}

/// The cluster, with pods' names for every address.
pub(crate) fn index() -> Index {
    with_pods(PodNames::Insecure)
}

fn services(index: &mut Index) {
    let headless = json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]});
    for (name, spec) in [
        (
            "web",
            json!({"clusterIP": "10.96.0.20", "ports": [{"name": "http", "port": 80}]}),
        ),
        (
            "dual",
            json!({"clusterIP": "10.96.0.21", "clusterIPs": ["10.96.0.21", "fd00:96::21"],
                "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns", "port": 5353, "protocol": "TCP"}]}),
        ),
        ("unnamed", json!({"clusterIP": "10.96.0.22", "ports": [{"port": 80}]})),
        ("pending", json!({"ports": [{"port": 80}]})),
        ("db", headless.clone()),
        ("starting", headless.clone()),
        ("empty", headless.clone()),
        ("far", headless),
        (
            "published",
            json!({"clusterIP": "None", "publishNotReadyAddresses": true}),
        ),
    ] {
        put(index, "default", name, spec);
    }
    for (name, target) in [
        ("out", "www.Example.com"),
        ("alias", "web.default.svc.cluster.local"),
        ("twice", "alias.default.svc.cluster.local."),
        ("lost", "nothing.default.svc.cluster.local"),
        ("ring-a", "ring-b.default.svc.cluster.local"),
        ("ring-b", "ring-a.default.svc.cluster.local"),
        ("self", "self.default.svc.cluster.local"),
    ] {
        put(
            index,
            "default",
            name,
            json!({"type": "ExternalName", "externalName": target}),
        );
    }
}

fn endpoints(index: &mut Index) {
    let sql = || json!([{"name": "sql", "port": 5432}]);
    let waiting = |address: &str| json!([{"addresses": [address], "conditions": {"ready": false}}]);
    let db = json!([{"addresses": ["10.244.0.10"], "hostname": "db-0", "conditions": {"ready": true}},
        {"addresses": ["10.244.0.11"]}, {"addresses": ["10.244.0.12"], "conditions": {"ready": false, "serving": true}}]);
    let v6 = json!([{"addresses": ["fd00:244::10"], "hostname": "db-0"}]);
    let far = json!([{"addresses": ["192.0.2.77"], "hostname": "outside"}]);
    for slice in [
        slice("default", "db", "db-1", "IPv4", sql(), db.clone()),
        // The same endpoints once more, as while they move from slice to slice.
        slice("default", "db", "db-2", "IPv4", sql(), db),
        slice("default", "db", "db-3", "IPv6", sql(), v6),
        slice(
            "default",
            "db",
            "db-4",
            "FQDN",
            sql(),
            json!([{"addresses": ["example.com"]}]),
        ),
        slice("default", "starting", "s", "IPv4", sql(), waiting("10.244.0.30")),
        slice("default", "published", "p", "IPv4", sql(), waiting("10.244.0.40")),
        slice(
            "default",
            "web",
            "w",
            "IPv4",
            sql(),
            json!([{"addresses": ["10.244.0.5"]}]),
        ),
        slice("default", "far", "f", "IPv4", sql(), far),
    ] {
        index.set_slice(None, Some(&slice));
    }
}

use netlink::cidr::Cidr;
