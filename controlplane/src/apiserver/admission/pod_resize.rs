//! PodResizeValidator: a pod is not resized to more than its node has, nor on nodes that do not resize. Pure.

use super::Attributes;
use crate::apiserver::status::ApiError;
use crate::resource::field::{at, int, text};
use k8s_openapi::api::core::v1::PodSpec;
use proto::api::quantity::Quantity;
use proto::api::resources::pod_requests;
use serde_json::Value;

/// Whether the request resizes a pod that is on a node.
pub(super) fn applies(attributes: &Attributes<'_>, pod: &Value, old: Option<&Value>) -> bool {
    let generation = |pod| int(pod, &["metadata", "generation"]);
    attributes.kind.group.is_empty()
        && attributes.kind.plural == "pods"
        && attributes.info.subresource == "resize"
        && !text(pod, &["spec", "nodeName"]).is_empty()
        && old.is_some_and(|old| generation(old) != generation(pod))
}

/// Refuses more than the node's allocatable CPU and memory, and nodes of other systems than Linux.
pub(super) fn check(attributes: &Attributes<'_>, pod: &Value, node: Option<&Value>) -> Result<(), ApiError> {
    let name = text(pod, &["spec", "nodeName"]);
    let Some(node) = node else {
        return Err(attributes.forbid(&format!("node \"{name}\" not found")));
    };
    let spec: PodSpec = serde_json::from_value(at(pod, &["spec"]).clone())
        .map_err(|error| ApiError::bad_request(format!("failed to convert pod: {error}")))?;
    let requests = pod_requests(&spec);
    let amounts = |name: &str, count: fn(&Quantity) -> i64| {
        let allocatable = Quantity::parse(text(node, &["status", "allocatable", name])).unwrap_or(Quantity::ZERO);
        (requests.get(name).map_or(0, count), count(&allocatable))
    };
    let too_much: Vec<String> = [
        ("cpu", amounts("cpu", |amount| amount.milli_value())),
        ("memory", amounts("memory", |amount| amount.value())),
    ]
    .into_iter()
    .filter(|(_, (requested, allocatable))| requested > allocatable)
    .map(|(name, (requested, allocatable))| format!("{name}, requested: {requested}, allocatable: {allocatable}"))
    .collect();
    if !too_much.is_empty() {
        let why = format!("Node didn't have enough allocatable resources: {}", too_much.join("; "));
        return Err(attributes.forbid(&why));
    }
    let system = text(node, &["metadata", "labels", "kubernetes.io/os"]);
    if system != "linux" {
        let why = format!("pod resize is only supported on linux nodes, node \"{name}\" is \"{system}\"");
        return Err(attributes.forbid(&why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::admission::Operation;
    use crate::apiserver::request::RequestInfo;
    use crate::apiserver::user::User;
    use crate::resource::Registry;
    use serde_json::json;

    fn with_attributes<T>(run: impl FnOnce(&Attributes<'_>) -> T) -> T {
        let (user, info) = (
            User::named("alice", &[]),
            RequestInfo {
                resource: "pods".to_owned(),
                subresource: "resize".to_owned(),
                ..RequestInfo::default()
            },
        );
        run(&Attributes {
            user: &user,
            info: &info,
            kind: Registry::built_in().by_resource("", "v1", "pods").expect("pods"),
            operation: Operation::Update,
            namespace: "ns",
            name: "p",
            dry_run: false,
        })
    }

    fn pod(cpu: &str, memory: &str) -> Value {
        json!({"metadata": {"generation": 2}, "spec": {"nodeName": "n", "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}})
    }

    fn node(system: &str) -> Value {
        json!({"metadata": {"labels": {"kubernetes.io/os": system}},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}})
    }

    fn told(pod: &Value, node: Option<&Value>) -> String {
        with_attributes(|attributes| {
            check(attributes, pod, node)
                .err()
                .map_or_else(String::new, |e| e.to_string())
        })
    }

    #[test]
    fn a_pod_is_resized_to_what_its_node_has_at_most() {
        assert_eq!(told(&pod("2", "1Gi"), Some(&node("linux"))), "");
        let text = told(&pod("2001m", "2Gi"), Some(&node("linux")));
        let why = "Node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000; memory, \
                   requested: 2147483648, allocatable: 1073741824";
        assert!(text.ends_with(why), "{text}");
        let text = told(&pod("1", "1Gi"), Some(&node("windows")));
        let why = "pod resize is only supported on linux nodes, node \"n\" is \"windows\"";
        assert!(text.ends_with(why), "{text}");
        let text = told(&pod("1", "1Gi"), None);
        assert!(text.ends_with("node \"n\" not found"), "{text}");
    }

    #[test]
    fn only_changes_of_pods_on_nodes_are_judged() {
        let new = pod("4", "1Gi");
        let mut old = new.clone();
        let judged = |new: &Value, old: &Value| with_attributes(|attributes| applies(attributes, new, Some(old)));
        assert!(!judged(&new, &old), "nothing changes");
        old["metadata"]["generation"] = json!(1);
        assert!(judged(&new, &old));
        let mut unbound = new.clone();
        unbound["spec"]["nodeName"] = Value::Null;
        assert!(!judged(&unbound, &old));
    }
}
