//! Pods: a node makes mirror pods that refer to nothing, and reports on, evicts and deletes the pods bound to it.

use super::Case;
use crate::apiserver::admission::Operation;
use crate::apiserver::status::ApiError;
use crate::resource::field::{at, list, text};
use crate::resource::pod::reference::{Referent, of_pod};
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Judges a write of a pod, or of a part of one.
pub(super) fn admit(case: &Case<'_>) -> Result<(), ApiError> {
    let node = case.node;
    match (case.attributes.info.subresource.as_str(), case.attributes.operation) {
        ("", Operation::Create) => create(case),
        ("", Operation::Delete) => {
            if case.old.is_some_and(|old| text(old, &["spec", "nodeName"]) == node) {
                return Ok(());
            }
            case.refuse(format!(
                "node \"{node}\" can only delete pods with spec.nodeName set to itself"
            ))
        }
        ("", operation) => {
            let operation = format!("{operation:?}").to_uppercase();
            case.refuse(format!(
                "unexpected operation \"{operation}\", node \"{node}\" can only create and delete mirror pods"
            ))
        }
        ("status", Operation::Update) => status(case),
        ("eviction", _) => evict(case),
        ("status", operation) => {
            let operation = format!("{operation:?}").to_uppercase();
            case.refuse(format!("unexpected operation \"{operation}\""))
        }
        (part, _) => case.refuse(format!(
            "unexpected pod subresource \"{part}\", only 'status' and 'eviction' are allowed"
        )),
    }
}

fn create(case: &Case<'_>) -> Result<(), ApiError> {
    let (node, pod) = (case.node, case.object);
    if at(pod, &["metadata", "annotations", MIRROR]).is_null() {
        return case.refuse(format!(
            "pod does not have \"{MIRROR}\" annotation, node \"{node}\" can only create mirror pods"
        ));
    }
    if text(pod, &["spec", "nodeName"]) != node {
        return case.refuse(format!(
            "node \"{node}\" can only create pods with spec.nodeName set to itself"
        ));
    }
    owner(case, pod)?;
    if let Some((referent, _)) = of_pod(pod).first() {
        let what = match referent {
            Referent::ServiceAccount => "a service account",
            Referent::Secret => "secrets",
            Referent::ConfigMap => "configmaps",
            Referent::Claim => "persistentvolumeclaims",
            Referent::ResourceClaim => "resourceclaims",
            Referent::TrustBundle => "clustertrustbundles",
        };
        return case.refuse(format!("node \"{node}\" can not create pods that reference {what}"));
    }
    // A claim made from a template has no name yet.
    if !list(pod, &["spec", "resourceClaims"]).is_empty() {
        return case.refuse(format!(
            "node \"{node}\" can not create pods that reference resourceclaims"
        ));
    }
    Ok(())
}

/// The one owner of a mirror pod is the node that makes it.
fn owner(case: &Case<'_>, pod: &Value) -> Result<(), ApiError> {
    let node = case.node;
    let owner = match list(pod, &["metadata", "ownerReferences"]) {
        [] => {
            return case.refuse(format!(
                "node \"{node}\" can only create pods with an owner reference set to itself"
            ));
        }
        [owner] => owner,
        _ => {
            return case.refuse(format!(
                "node \"{node}\" can only create pods with a single owner reference set to itself"
            ));
        }
    };
    if text(owner, &["apiVersion"]) != "v1" || text(owner, &["kind"]) != "Node" || text(owner, &["name"]) != node {
        return case.refuse(format!(
            "node \"{node}\" can only create pods with an owner reference set to itself"
        ));
    }
    if owner["controller"] != true {
        return case.refuse(format!(
            "node \"{node}\" can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return case.refuse(format!(
            "node \"{node}\" must not set blockOwnerDeletion on an owner reference"
        ));
    }
    let stored = case.reader.get("", "nodes", "", node);
    let stored = stored.ok_or_else(|| ApiError::not_found("", "nodes", node))?;
    let (claimed, own) = (text(owner, &["uid"]), text(&stored, &["metadata", "uid"]));
    if claimed != own {
        return case.refuse(format!("node {node} UID mismatch: expected {claimed} got {own}"));
    }
    Ok(())
}

fn status(case: &Case<'_>) -> Result<(), ApiError> {
    let (node, new) = (case.node, case.object);
    let old = case.old.unwrap_or(&Value::Null);
    if text(old, &["spec", "nodeName"]) != node {
        return case.refuse(format!(
            "node \"{node}\" can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    let labels = |pod: &Value| {
        at(pod, &["metadata", "labels"])
            .as_object()
            .cloned()
            .unwrap_or_default()
    };
    if labels(old) != labels(new) {
        return case.refuse(format!("node \"{node}\" cannot update labels through pod status"));
    }
    if list(old, &["status", "resourceClaimStatuses"]) != list(new, &["status", "resourceClaimStatuses"]) {
        return case.refuse(format!("node \"{node}\" cannot update resource claim statues"));
    }
    let extended = &["status", "extendedResourceClaimStatus"];
    if at(old, extended) != at(new, extended) {
        return case.refuse(format!("node \"{node}\" cannot update extended resource claim status"));
    }
    Ok(())
}

fn evict(case: &Case<'_>) -> Result<(), ApiError> {
    let (node, attributes) = (case.node, case.attributes);
    if attributes.operation != Operation::Create {
        return case.refuse(format!("unexpected operation {:?}", attributes.operation));
    }
    // The path names the pod; what the body says may be empty.
    let name = &attributes.info.name;
    let pod = case.reader.get("", "pods", attributes.namespace, name);
    let pod = pod.ok_or_else(|| ApiError::not_found("", "pods", name))?;
    if text(&pod, &["spec", "nodeName"]) == node {
        return Ok(());
    }
    case.refuse(format!(
        "node {node} can only evict pods with spec.nodeName set to itself"
    ))
}
