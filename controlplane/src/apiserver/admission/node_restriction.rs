//! NodeRestriction: what a kubelet may write, now that the objects are seen (control-plane contract §7). Pure but for look-ups.
//!
//! The Node authorizer has judged the request's path; here a node is kept to its own Node, Lease, CSINode and ResourceSlices, to
//! the pods bound to it, and away from the labels, taints and owner references by which it could draw other workloads to itself.

mod audience;
mod pod;

use super::{Attributes, Operation};
use crate::apiserver::authz::{Authz, node_of};
use crate::apiserver::reader::Reader;
use crate::apiserver::status::ApiError;
use crate::pki::request::Request;
use crate::resource::certificate::request_pem;
use crate::resource::field::{at, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

const LEASE_NAMESPACE: &str = "kube-node-lease";
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// Kubernetes' own labels a kubelet may set.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// Label namespaces that are the kubelet's, sub-domains included.
const KUBELET_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// A request of a node under judgement.
struct Case<'a> {
    attributes: &'a Attributes<'a>,
    node: &'a str,
    object: &'a Value,
    old: Option<&'a Value>,
    reader: &'a Reader,
    authz: &'a Authz,
}

/// Refuses what a node may not write; other users pass.
pub(super) fn admit(
    attributes: &Attributes<'_>,
    object: &Value,
    old: Option<&Value>,
    reader: &Reader,
    authz: &Authz,
) -> Result<(), ApiError> {
    let Some(node) = node_of(attributes.user) else {
        return Ok(());
    };
    if node.is_empty() {
        let why = format!("could not determine node from user \"{}\"", attributes.user.name);
        return Err(attributes.forbid(&why));
    }
    if attributes.operation == Operation::Connect {
        return Ok(());
    }
    let case = Case {
        attributes,
        node,
        object,
        old,
        reader,
        authz,
    };
    match (&*attributes.kind.group, &*attributes.kind.plural) {
        ("", "pods") => pod::admit(&case),
        ("", "nodes") => case.own_node(),
        ("", "persistentvolumeclaims") => case.claim(),
        ("", "serviceaccounts") => case.token(),
        ("coordination.k8s.io", "leases") => case.lease(),
        ("storage.k8s.io", "csinodes") => case.csi_node(),
        ("resource.k8s.io", "resourceslices") => case.slice(),
        ("certificates.k8s.io", "certificatesigningrequests") => case.certificate(),
        _ => Ok(()),
    }
}

impl Case<'_> {
    fn refuse<T>(&self, why: impl AsRef<str>) -> Result<T, ApiError> {
        Err(self.attributes.forbid(why.as_ref()))
    }

    fn own_node(&self) -> Result<(), ApiError> {
        let (node, name) = (self.node, self.attributes.name);
        if name != node {
            return self.refuse(format!("node \"{node}\" is not allowed to modify node \"{name}\""));
        }
        match (self.attributes.operation, self.old) {
            (Operation::Create, _) => self.new_node(),
            (Operation::Update, Some(old)) => self.changed_node(old),
            _ => Ok(()),
        }
    }

    fn new_node(&self) -> Result<(), ApiError> {
        let node = self.node;
        if at(self.object, &["spec", "configSource"]).is_object() {
            return self.refuse(format!(
                "node \"{node}\" is not allowed to create pods with a non-nil configSource"
            ));
        }
        // An owner that is not there would have the garbage collector delete the node, to be made anew with other labels.
        if !list(self.object, &["metadata", "ownerReferences"]).is_empty() {
            return self.refuse(format!("node \"{node}\" is not allowed to set ownerReferences"));
        }
        let labels = forbidden_labels(self.object, &Value::Null);
        if !labels.is_empty() {
            return self.refuse(format!(
                "node \"{node}\" is not allowed to set the following labels: {}",
                labels.join(", ")
            ));
        }
        Ok(())
    }

    fn changed_node(&self, old: &Value) -> Result<(), ApiError> {
        let node = self.node;
        let same = |path: &[&str]| list(self.object, path) == list(old, path);
        let source = at(self.object, &["spec", "configSource"]);
        if source.is_object() && source != at(old, &["spec", "configSource"]) {
            return self.refuse(format!(
                "node \"{node}\" is not allowed to update configSource to a new non-nil configSource"
            ));
        }
        if !same(&["spec", "taints"]) {
            return self.refuse(format!("node \"{node}\" is not allowed to modify taints"));
        }
        if !same(&["metadata", "ownerReferences"]) {
            return self.refuse(format!("node \"{node}\" is not allowed to modify ownerReferences"));
        }
        let labels = forbidden_labels(self.object, old);
        if !labels.is_empty() {
            return self.refuse(format!("is not allowed to modify labels: {}", labels.join(", ")));
        }
        Ok(())
    }

    fn claim(&self) -> Result<(), ApiError> {
        let (Operation::Update, "status", Some(old)) = (
            self.attributes.operation,
            self.attributes.info.subresource.as_str(),
            self.old,
        ) else {
            return self.refuse("may only update PVC status");
        };
        if without_progress(self.object) == without_progress(old) {
            return Ok(());
        }
        let node = self.node;
        self.refuse(format!(
            "node \"{node}\" is not allowed to update fields other than status.capacity and status.conditions"
        ))
    }

    fn token(&self) -> Result<(), ApiError> {
        if self.attributes.operation != Operation::Create || self.attributes.info.subresource != "token" {
            return Ok(());
        }
        let bound = at(self.object, &["spec", "boundObjectRef"]);
        let (name, uid) = (text(bound, &["name"]), text(bound, &["uid"]));
        if text(bound, &["apiVersion"]) != "v1" || text(bound, &["kind"]) != "Pod" || name.is_empty() {
            return self.refuse("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.reader.get("", "pods", self.attributes.namespace, name);
        let pod = pod.ok_or_else(|| ApiError::not_found("", "pods", name))?;
        if text(&pod, &["metadata", "uid"]) != uid {
            return self.refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            ));
        }
        if text(&pod, &["spec", "nodeName"]) != self.node {
            return self.refuse("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(&pod)
    }

    fn lease(&self) -> Result<(), ApiError> {
        if self.attributes.namespace != LEASE_NAMESPACE {
            return self.refuse(format!(
                "can only access leases in the \"{LEASE_NAMESPACE}\" system namespace"
            ));
        }
        if self.attributes.name != self.node {
            return self.refuse("can only access node lease with the same name as the requesting node");
        }
        Ok(())
    }

    fn csi_node(&self) -> Result<(), ApiError> {
        if self.attributes.name != self.node {
            return self.refuse("can only access CSINode with the same name as the requesting node");
        }
        Ok(())
    }

    fn slice(&self) -> Result<(), ApiError> {
        let own = |object: &Value| text(object, &["spec", "nodeName"]) == self.node;
        let fine = match (self.attributes.operation, self.old) {
            (Operation::Create, _) => own(self.object),
            (_, Some(old)) => own(old),
            _ => true,
        };
        if !fine {
            return self
                .refuse("can only create, update or delete ResourceSlices with spec.nodeName set to the node itself");
        }
        Ok(())
    }

    /// A kubelet asks for certificates in its own name only.
    fn certificate(&self) -> Result<(), ApiError> {
        let signer = text(self.object, &["spec", "signerName"]);
        let kubelets = matches!(
            signer,
            "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet"
        );
        if self.attributes.operation != Operation::Create || !kubelets {
            return Ok(());
        }
        // What cannot be read is refused by validation, with its reason.
        let Some(request) = request_pem(self.object).and_then(|pem| Request::from_pem(&pem).ok()) else {
            return Ok(());
        };
        let name = &self.attributes.user.name;
        if request.common_name != *name {
            return self.refuse(format!("can only create a node CSR with CN={name}"));
        }
        Ok(())
    }
}

/// The claim without what its node reports.
fn without_progress(claim: &Value) -> Value {
    let mut claim = claim.clone();
    for key in ["kind", "apiVersion"] {
        crate::resource::field::remove(&mut claim, key);
    }
    for (part, keys) in [
        ("metadata", &["resourceVersion", "managedFields"][..]),
        (
            "status",
            &[
                "capacity",
                "conditions",
                "allocatedResources",
                "allocatedResourceStatuses",
            ][..],
        ),
    ] {
        if let Some(part) = claim.get_mut(part).and_then(Value::as_object_mut) {
            part.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
    claim
}

/// Labels that are different in the two objects and not a node's to decide, in order.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let labels = |object: &Value| -> BTreeSet<(String, String)> {
        let map = at(object, &["metadata", "labels"]).as_object();
        let pairs = map.into_iter().flatten();
        pairs
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect()
    };
    let (new, old) = (labels(new), labels(old));
    let changed: BTreeSet<&str> = new.symmetric_difference(&old).map(|(key, _)| key.as_str()).collect();
    changed
        .into_iter()
        .filter(|key| is_forbidden(key))
        .map(str::to_owned)
        .collect()
}

fn is_forbidden(label: &str) -> bool {
    let Some((namespace, _)) = label.split_once('/') else {
        return false;
    };
    let within = |domain: &str| namespace == domain || namespace.ends_with(&format!(".{domain}"));
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    let kubelets = KUBELET_LABELS.contains(&label) || KUBELET_NAMESPACES.into_iter().any(within);
    within(RESTRICTED) || (kubernetes && !kubelets)
}

#[cfg(test)]
mod tests;
