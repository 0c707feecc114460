//! The first objects beside RBAC, and how they are repaired. Pure.

use super::Facts;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The four namespaces.
pub(super) fn namespaces() -> Vec<Value> {
    ["default", "kube-system", "kube-public", "kube-node-lease"]
        .iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .collect()
}

/// The two built-in priority classes.
pub(super) fn priority_classes() -> Vec<Value> {
    let class = |name: &str, value: i64, description: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        })
    };
    vec![
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ]
}

/// The Service `default/kubernetes` with its Endpoints and EndpointSlice, which list the API servers that live.
pub(super) fn kubernetes_service(facts: &Facts, live: &BTreeSet<IpAddr>) -> Vec<Value> {
    let (cluster_ip, advertise, port) = (facts.cluster_ip, facts.advertise, facts.port);
    let family = if cluster_ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let address_type = if advertise.is_ipv4() { "IPv4" } else { "IPv6" };
    let metadata = |labels: Value| json!({"name": "kubernetes", "namespace": "default", "labels": labels});
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(json!({"component": "apiserver", "provider": "kubernetes"})),
        "spec": {
            "type": "ClusterIP", "clusterIP": cluster_ip, "clusterIPs": [cluster_ip],
            "ipFamilies": [family], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        },
    })];
    // An endpoint on loopback is refused by validation, and would lead pods to themselves.
    if !advertise.is_loopback() {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": metadata(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
            "subsets": [{"addresses": live.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(), "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
        }));
        objects.push(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": metadata(json!({"kubernetes.io/service-name": "kubernetes"})),
            "addressType": address_type,
            "endpoints": live.iter().map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect::<Vec<_>>(),
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }));
    }
    objects
}

/// The ConfigMap by which API servers beside this one learn whose client certificates to accept (contract §6).
pub(super) fn authentication(facts: &Facts) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": facts.client_ca_pem},
    })
}

/// The ConfigMap a joining node reads before it trusts anybody: where the API server is, and its CA. A controller signs it.
pub(super) fn cluster_info(facts: &Facts) -> Value {
    use base64::Engine;
    let server = format!("https://{}", std::net::SocketAddr::new(facts.advertise, facts.port));
    let ca = base64::engine::general_purpose::STANDARD.encode(&facts.client_ca_pem);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "", "preferences": {},
        "clusters": [{"name": "", "cluster": {"certificate-authority-data": ca, "server": server}}],
        "contexts": [], "users": [],
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": config.to_string()},
    })
}

/// What to write over a stored object whose address or port is not today's; `None` if it still fits.
pub(super) fn repair(stored: &Value, wanted: &Value) -> Option<Value> {
    let mut repaired = stored.clone();
    let mut changed = false;
    for (kind, pointers) in [
        ("Service", &["/spec/ports"][..]),
        ("Endpoints", &["/subsets"][..]),
        ("EndpointSlice", &["/endpoints", "/ports"][..]),
        ("ConfigMap", &["/data"][..]),
    ] {
        if wanted["kind"] != kind {
            continue;
        }
        for pointer in pointers {
            let (Some(now), Some(then)) = (wanted.pointer(pointer), stored.pointer(pointer)) else {
                continue;
            };
            if !contains(then, now)
                && let Some(place) = repaired.pointer_mut(pointer)
            {
                *place = now.clone();
                changed = true;
            }
        }
    }
    changed.then(|| {
        for field in ["apiVersion", "kind"] {
            repaired[field] = wanted[field].clone();
        }
        repaired
    })
}

/// Whether `whole` says everything `part` says (defaults may have been added).
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|own| contains(own, value))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(own, value)| contains(own, value))
        }
        (whole, part) => whole == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(advertise: &str) -> Vec<Value> {
        let facts = Facts {
            cluster_ip: "10.96.0.1".parse().unwrap(),
            service_ranges: vec!["10.96.0.0/16".to_owned()],
            cluster_dns: "10.96.0.10".parse().ok(),
            advertise: advertise.parse().unwrap(),
            port: 6443,
            client_ca_pem: String::new(),
        };
        kubernetes_service(&facts, &BTreeSet::from([facts.advertise]))
    }

    #[test]
    fn a_moved_server_moves_its_endpoints_and_defaults_are_no_difference() {
        for (before, after) in at("192.0.2.1").iter().zip(&at("192.0.2.2")) {
            let mut stored = before.clone();
            stored["metadata"]["uid"] = json!("u");
            if let Some(port) = stored.pointer_mut("/endpoints/0") {
                port["nodeName"] = json!(null);
            }
            assert_eq!(repair(&stored, before), None);
            let repaired = repair(&stored, after);
            assert_eq!(repaired.is_some(), before["kind"] != "Service");
            assert!(repaired.is_none_or(|object| object.to_string().contains("192.0.2.2")));
        }
    }

    #[test]
    fn loopback_is_no_endpoint() {
        assert_eq!(at("127.0.0.1").len(), 1);
    }
}
