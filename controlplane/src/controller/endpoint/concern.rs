//! Which Services a pod's change concerns. Pure.
//!
//! Source: upstream's endpoint utilities (`podEndpointsChanged`): a Service is woken where what a pod offers it has changed, or whether it
//! selects the pod. Beyond upstream's, a pod that offers nothing before and after (no address yet, or done) concerns nobody.
//! Never decides what endpoints are: a Service that is woken looks at all its pods.

use super::{addresses, selector, trigger};
use crate::controller::pod;
use crate::held::Pod;
use client::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use proto::api::selector::Selector;
use std::net::IpAddr;
use std::sync::Arc;

/// All of a pod that stands in endpoints, or decides how it does. (Ports are no part: containers of one pod do not change theirs.)
#[derive(PartialEq)]
struct Offer<'p> {
    uid: Option<&'p str>,
    addresses: Vec<IpAddr>,
    is_ready: bool,
    /// When it became so: two turns that are seen as one have their moment, too.
    turned: Option<Timestamp>,
    is_terminating: bool,
    node: &'p str,
    hostname: Option<&'p str>,
    subdomain: Option<&'p str>,
}

/// What a pod offers to those that select it; nothing while it has no address, and once it is done.
fn offer(pod: &Pod) -> Option<Offer<'_>> {
    let addresses = addresses(pod);
    if pod::is_terminal(pod) || addresses.is_empty() {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    Some(Offer {
        uid: pod.metadata.uid.as_deref(),
        addresses,
        is_ready: pod::is_ready(pod),
        turned: trigger::turned(pod),
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
        node: pod::node_name(pod),
        hostname: spec.hostname.as_deref(),
        subdomain: spec.subdomain.as_deref(),
    })
}

fn selects(service: &Service, pod: &Pod) -> bool {
    selector(service).is_some_and(|selector: Selector| selector.matches_optional(pod.metadata.labels.as_ref()))
}

/// Services of the pod's namespace that select it.
pub fn selecting(services: &[Arc<Service>], pod: &Pod) -> Vec<Key> {
    let selecting = services.iter().filter(|service| selects(service, pod));
    selecting.map(|service| Key::of(&**service)).collect()
}

/// Services of the pod's namespace that a change of it concerns: those that select it, before or after, where it offers something else
/// now; where it offers the same, those that select it only before, or only after.
pub fn of(services: &[Arc<Service>], old: Option<&Pod>, new: Option<&Pod>) -> Vec<Key> {
    let (offered, offers) = (old.and_then(offer), new.and_then(offer));
    let labels = |pod: Option<&Pod>| pod.and_then(|pod| pod.metadata.labels.clone());
    let is_other = offered != offers;
    if !is_other && (offers.is_none() || labels(old) == labels(new)) {
        return Vec::new();
    }
    let concerned = services.iter().filter(|service| {
        let [before, after] = [old, new].map(|pod| pod.is_some_and(|pod| selects(service, pod)));
        if is_other { before || after } else { before != after }
    });
    concerned.map(|service| Key::of(&**service)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(name: &str, spec: Value) -> Arc<Service> {
        let service = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        Arc::new(serde_json::from_value(service).unwrap())
    }

    fn services() -> Vec<Arc<Service>> {
        vec![
            service("other", json!({"selector": {"app": "other"}})),
            service("outside", json!({"selector": {"app": "web"}, "type": "ExternalName"})),
            service("plain", json!({})),
            service("stable", json!({"selector": {"app": "web", "track": "stable"}})),
            service("web", json!({"selector": {"app": "web"}})),
        ]
    }

    /// A pod that is selected by `web` alone and offers itself, but for these.
    fn pod(change: &Value) -> Value {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "a"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [ready]},
        });
        json_patch::merge(&mut pod, change);
        pod
    }

    fn concerned(old: Option<&Value>, new: Option<&Value>) -> Vec<String> {
        let [old, new] = [old, new].map(|change| change.map(|change| serde_json::from_value(pod(change)).unwrap()));
        let keys = of(&services(), old.as_ref(), new.as_ref());
        keys.into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn a_change_concerns_those_whose_endpoints_it_may_change() {
        let ready = |status: &str, at: &str| {
            let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": at});
            json!({"status": {"conditions": [condition]}})
        };
        let (since, later) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z");
        let statuses = json!([{"name": "c", "image": "a", "imageID": "a", "ready": true, "restartCount": 3}]);
        let table: [(&str, Value, &[&str]); 17] = [
            ("nothing", json!({"metadata": {"resourceVersion": "2"}}), &[]),
            ("annotations", json!({"metadata": {"annotations": {"a": "b"}}}), &[]),
            ("finalizers", json!({"metadata": {"finalizers": ["a/b"]}}), &[]),
            ("a restart", json!({"status": {"containerStatuses": statuses}}), &[]),
            (
                "an image",
                json!({"spec": {"containers": [{"name": "c", "image": "b"}]}}),
                &[],
            ),
            (
                "a phase that is not the last",
                json!({"status": {"phase": "Pending"}}),
                &[],
            ),
            (
                "a label nobody asks for",
                json!({"metadata": {"labels": {"a": "b"}}}),
                &[],
            ),
            ("its end", json!({"status": {"phase": "Failed"}}), &["web"]),
            (
                "its deletion",
                json!({"metadata": {"deletionTimestamp": since}}),
                &["web"],
            ),
            ("readiness", ready("False", later), &["web"]),
            ("readiness, there and back", ready("True", later), &["web"]),
            (
                "an address",
                json!({"status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}}),
                &["web"],
            ),
            (
                "a second address",
                json!({"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}),
                &["web"],
            ),
            (
                "no address",
                json!({"status": {"podIP": null, "podIPs": null}}),
                &["web"],
            ),
            ("another pod of that name", json!({"metadata": {"uid": "v"}}), &["web"]),
            (
                "its host name",
                json!({"spec": {"hostname": "h", "subdomain": "web"}}),
                &["web"],
            ),
            ("its node", json!({"spec": {"nodeName": "m"}}), &["web"]),
        ];
        for (name, change, expected) in table {
            assert_eq!(concerned(Some(&json!({})), Some(&change)), expected, "{name}");
        }
    }

    #[test]
    fn a_pod_that_offers_nothing_concerns_nobody() {
        let unready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let none: [&str; 0] = [];
        for status in [json!({"conditions": unready}), json!({"phase": "Pending"})] {
            let before = json!({"status": {"podIP": null, "podIPs": null}});
            let mut after = before.clone();
            json_patch::merge(&mut after, &json!({"status": status}));
            assert_eq!(concerned(Some(&before), Some(&after)), none, "{after}");
            assert_eq!(concerned(None, Some(&after)), none, "a new one: {after}");
        }
    }

    #[test]
    fn whom_labels_name_is_looked_at_before_and_after() {
        let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
        let (same, moved) = (json!({}), labelled(json!({"app": "other"})));
        let promoted = labelled(json!({"app": "web", "track": "stable"}));
        let mut unready = promoted.clone();
        unready["status"]["conditions"] = json!([]);
        for (name, old, new, expected) in [
            ("a pod that comes", None, Some(&same), &["web"][..]),
            ("a pod that goes", Some(&promoted), None, &["stable", "web"]),
            ("labels of another", Some(&same), Some(&moved), &["other", "web"]),
            // Who has it as it was goes on as it was.
            ("one more that selects it", Some(&same), Some(&promoted), &["stable"]),
            ("one less", Some(&promoted), Some(&same), &["stable"]),
            (
                "one more, and not ready",
                Some(&same),
                Some(&unready),
                &["stable", "web"],
            ),
        ] {
            assert_eq!(concerned(old, new), expected, "{name}");
        }
    }
}
