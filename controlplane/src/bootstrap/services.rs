//! What every cluster has of Services beside `kubernetes`: the ServiceCIDR of the configured ranges, and the Service of its DNS.
//!
//! Owns their content and when they are written. The name server itself runs in every kubelet, on the Service's own address: so the
//! Service selects no pods. One that is there already is somebody's, and is never changed.

use super::{BootstrapError, Facts};
use crate::apiserver::ApiServer;
use crate::resource::field::{list, text};
use serde_json::{Value, json};
use std::net::IpAddr;

const NETWORKING: &str = "networking.k8s.io";
/// The ServiceCIDR of the configured ranges.
const RANGES: &str = "kubernetes";

/// The Service `kube-system/kube-dns` at an address: names, labels and ports are those of upstream's manifests.
pub(super) fn cluster_dns(address: IpAddr) -> Value {
    let family = crate::resource::service::family(address);
    let port = |name: &str, protocol: &str, number: u16| json!({"name": name, "port": number, "protocol": protocol, "targetPort": number});
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kube-dns", "namespace": "kube-system",
            "annotations": {"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
            "ipFamilies": [family], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [port("dns", "UDP", 53), port("dns-tcp", "TCP", 53), port("metrics", "TCP", 9153)],
        },
    })
}

/// The Service of the cluster's DNS, if it is to be made: nobody has its name or its address.
pub(super) fn missing_dns(server: &ApiServer, facts: &Facts) -> Option<Value> {
    let address = facts.cluster_dns?;
    let wanted = cluster_dns(address);
    let reader = server.reader();
    if reader.get("", "services", "kube-system", "kube-dns").is_some() {
        return None;
    }
    let shown = address.to_string();
    let services = reader.list("", "services", "");
    let has = |service: &Value| {
        list(service, &["spec", "clusterIPs"])
            .iter()
            .any(|ip| *ip == shown.as_str())
    };
    (!services.iter().any(|service| has(service))).then_some(wanted)
}

/// What is to be done about the ServiceCIDR of the configured ranges.
#[derive(Debug, PartialEq)]
enum Step {
    Create(Value),
    /// It has one family, and the cluster two.
    Replace(Value),
    /// Nobody has said that it is ready.
    SetReady,
    /// It is as it should be, or goes, or is somebody's who wants it otherwise.
    Nothing,
}

fn step(stored: Option<&Value>, ranges: &[String]) -> Step {
    let Some(stored) = stored else {
        return Step::Create(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": RANGES}, "spec": {"cidrs": ranges},
        }));
    };
    let now: Vec<&str> = list(stored, &["spec", "cidrs"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if !stored["metadata"]["deletionTimestamp"].is_null() {
        return Step::Nothing;
    }
    if let ([first], [primary, _]) = (now.as_slice(), ranges)
        && first == primary
    {
        let mut both = stored.clone();
        both["spec"]["cidrs"] = json!(ranges);
        both["apiVersion"] = json!("networking.k8s.io/v1");
        both["kind"] = json!("ServiceCIDR");
        return Step::Replace(both);
    }
    let conditions = list(stored, &["status", "conditions"]);
    let is_judged = conditions.iter().any(|condition| text(condition, &["type"]) == "Ready");
    match now == ranges && !is_judged {
        true => Step::SetReady,
        false => Step::Nothing,
    }
}

/// Makes the ServiceCIDR of the configured ranges and says that it is ready; an upgraded cluster gets its second range.
///
/// # Errors
/// What the API server answered.
pub(super) async fn ensure_ranges(
    server: &ApiServer,
    client: &kube::Client,
    facts: &Facts,
) -> Result<(), BootstrapError> {
    // Twice: what is made is not ready yet.
    for _ in 0..2 {
        if facts.service_ranges.is_empty() {
            return Ok(());
        }
        let stored = server.reader().get(NETWORKING, "servicecidrs", "", RANGES);
        let path = "/apis/networking.k8s.io/v1/servicecidrs";
        let (request, body) = match step(stored.as_deref(), &facts.service_ranges) {
            Step::Nothing => return Ok(()),
            Step::Create(object) => (http::Request::post(path), object),
            Step::Replace(object) => (http::Request::put(format!("{path}/{RANGES}")), object),
            Step::SetReady => {
                let ready = json!({"status": {"conditions": [{
                    "type": "Ready", "status": "True", "reason": "",
                    "message": "Kubernetes default Service CIDR is ready",
                    "lastTransitionTime": server.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                }]}});
                (http::Request::patch(format!("{path}/{RANGES}/status")), ready)
            }
        };
        let is_patch = request.method_ref() == Some(&http::Method::PATCH);
        let media = if is_patch {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = request
            .header(http::header::CONTENT_TYPE, media)
            .body(body.to_string().into_bytes())
            .expect("the path is made of names that need no escaping");
        match client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                return Err(BootstrapError::Write {
                    kind: "ServiceCIDR".to_owned(),
                    name: RANGES.to_owned(),
                    source: Box::new(error),
                });
            }
            Ok(_) => {}
        }
        server.reader().refresh().await.map_err(BootstrapError::Store)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(cidrs: &[&str], more: Value) -> Value {
        let mut object = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
        json_patch::merge(&mut object, &more);
        object
    }

    #[test]
    fn the_range_is_made_widened_and_judged_once() {
        let one = ["10.96.0.0/16".to_owned()];
        let two = ["10.96.0.0/16".to_owned(), "fd00::/112".to_owned()];
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        assert!(matches!(step(None, &one), Step::Create(object) if object["spec"]["cidrs"] == json!(one)));
        let plain = range(&["10.96.0.0/16"], json!({}));
        assert_eq!(step(Some(&plain), &one), Step::SetReady);
        assert!(matches!(step(Some(&plain), &two), Step::Replace(object) if object["spec"]["cidrs"] == json!(two)));
        for (cidrs, more) in [
            (["10.96.0.0/16"], ready),
            (["10.97.0.0/16"], json!({})),
            (
                ["10.96.0.0/16"],
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
        ] {
            assert_eq!(
                step(Some(&range(&cidrs, more.clone())), &one),
                Step::Nothing,
                "{cidrs:?} {more}"
            );
        }
    }
}
