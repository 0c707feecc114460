//! The default roles and bindings (control-plane contract §6), as data. Pure.
//!
//! Lists are written with commas; an empty item is the core API group, so `",events.k8s.io"` means core and events.k8s.io.

mod aggregated;
mod cluster;
mod controllers;
mod rule;

use aggregated::{AGGREGATED, METRICS_READER};
use cluster::{CLUSTER_ROLES, NODE};
use controllers::CONTROLLERS;
use rule::R::{Named, On};
use rule::{EVENTS, R, READ};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// ClusterRoleBindings: name, role, subjects as `Group:x`, `User:x` or `kube-system/serviceaccount`.
const BINDINGS: &[(&str, &str, &[&str])] = &[
    ("cluster-admin", "cluster-admin", &["Group:system:masters"]),
    ("system:discovery", "system:discovery", &["Group:system:authenticated"]),
    (
        "system:basic-user",
        "system:basic-user",
        &["Group:system:authenticated"],
    ),
    (
        "system:public-info-viewer",
        "system:public-info-viewer",
        &["Group:system:authenticated", "Group:system:unauthenticated"],
    ),
    ("system:monitoring", "system:monitoring", &["Group:system:monitoring"]),
    (
        "system:service-account-issuer-discovery",
        "system:service-account-issuer-discovery",
        &["Group:system:serviceaccounts"],
    ),
    (
        "system:kube-controller-manager",
        "system:kube-controller-manager",
        &["User:system:kube-controller-manager"],
    ),
    (
        "system:kube-scheduler",
        "system:kube-scheduler",
        &["User:system:kube-scheduler"],
    ),
    (
        "system:volume-scheduler",
        "system:volume-scheduler",
        &["User:system:kube-scheduler"],
    ),
    (
        "system:node-proxier",
        "system:node-proxier",
        &["User:system:kube-proxy"],
    ),
    // Without subjects: the Node authorizer speaks for kubelets.
    ("system:node", "system:node", &[]),
    (
        "system:kubelet-api-admin",
        "system:kubelet-api-admin",
        &["User:kube-apiserver-kubelet-client"],
    ),
];

/// Bindings that let nodes join by bootstrap tokens and renew their certificates, named as kubeadm names them.
const JOINING: &[(&str, &str, &[&str])] = &[
    (
        "kubeadm:kubelet-bootstrap",
        "system:node-bootstrapper",
        &["Group:system:bootstrappers:kubeadm:default-node-token"],
    ),
    (
        "kubeadm:node-autoapprove-bootstrap",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &["Group:system:bootstrappers:kubeadm:default-node-token"],
    ),
    (
        "kubeadm:node-autoapprove-certificate-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &["Group:system:nodes"],
    ),
    (
        "kubeadm:get-nodes",
        "kubeadm:get-nodes",
        &["Group:system:bootstrappers:kubeadm:default-node-token"],
    ),
];

/// Roles inside namespaces: namespace, name, rules, subject of the binding of the same name.
const ROLES: &[(&str, &str, &[R], &str)] = &[
    (
        "kube-system",
        "extension-apiserver-authentication-reader",
        &[Named(READ, "", "configmaps", "extension-apiserver-authentication")],
        "",
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        &[
            On("watch", "", "configmaps"),
            Named("get,update", "", "configmaps", "kube-controller-manager"),
        ],
        "User:system:kube-controller-manager",
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        &[
            On("watch", "", "configmaps"),
            Named("get,update", "", "configmaps", "kube-scheduler"),
        ],
        "User:system:kube-scheduler",
    ),
    (
        "kube-system",
        "system:controller:bootstrap-signer",
        &[On(READ, "", "secrets")],
        "kube-system/bootstrap-signer",
    ),
    (
        "kube-system",
        "system:controller:token-cleaner",
        &[On("delete,get,list,watch", "", "secrets"), EVENTS],
        "kube-system/token-cleaner",
    ),
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        &[
            On(READ, "", "configmaps"),
            Named("update", "", "configmaps", "cluster-info"),
            EVENTS,
        ],
        "kube-system/bootstrap-signer",
    ),
    (
        "kube-public",
        "kubeadm:bootstrap-signer-clusterinfo",
        &[Named("get", "", "configmaps", "cluster-info")],
        "User:system:anonymous",
    ),
];

fn rules(rules: &[R]) -> Vec<Value> {
    rules.iter().map(R::value).collect()
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn object(kind: &str, metadata: Value, rest: Value) -> Value {
    let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata});
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    object
}

fn subject(text: &str) -> Value {
    match text.split_once(':') {
        Some((kind @ ("Group" | "User"), name)) => {
            json!({"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": name})
        }
        _ => {
            let (namespace, name) = text.split_once('/').unwrap_or(("kube-system", text));
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
    }
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

/// The label by which admin, edit and view collect their parts.
fn aggregate_to(role: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{role}")
}

/// The role that reads what nodes and pods use.
const READER: &str = "system:aggregated-metrics-reader";

/// Every default ClusterRole.
pub fn cluster_roles() -> Vec<Value> {
    let mut all: Vec<Value> = CLUSTER_ROLES
        .iter()
        .map(|(name, own)| object("ClusterRole", metadata(name, None), json!({"rules": rules(own)})))
        .collect();
    for (name, own) in CONTROLLERS {
        let name = format!("system:controller:{name}");
        all.push(object(
            "ClusterRole",
            metadata(&name, None),
            json!({"rules": rules(own)}),
        ));
    }
    // Who may view may see what is used: metrics-server's role of that name.
    let mut reader = metadata(READER, None);
    for (role, _) in AGGREGATED {
        reader["labels"][aggregate_to(role)] = json!("true");
    }
    all.push(object("ClusterRole", reader, json!({"rules": rules(METRICS_READER)})));
    // admin holds what edit holds, edit what view holds. The sums are stored as the controller of sums would write them: parts by name.
    let mut sum: Vec<Value> = Vec::new();
    let mut below = String::new();
    for (index, (name, own)) in AGGREGATED.iter().enumerate().rev() {
        let part_name = format!("system:aggregate-to-{name}");
        let own = rules(own);
        let mut parts = BTreeMap::from([(part_name.as_str(), own.clone()), (READER, rules(METRICS_READER))]);
        if !below.is_empty() {
            parts.insert(&below, std::mem::take(&mut sum));
        }
        for rule in parts.into_values().flatten() {
            if !sum.contains(&rule) {
                sum.push(rule);
            }
        }
        let mut part = metadata(&part_name, None);
        part["labels"][aggregate_to(name)] = json!("true");
        all.push(object("ClusterRole", part, json!({"rules": own})));
        below = (*name).to_owned();
        let mut whole = metadata(name, None);
        if let Some((above, _)) = index.checked_sub(1).and_then(|above| AGGREGATED.get(above)) {
            whole["labels"][aggregate_to(above)] = json!("true");
        }
        let selector = json!([{"matchLabels": {aggregate_to(name): "true"}}]);
        let rest = json!({"aggregationRule": {"clusterRoleSelectors": selector}, "rules": sum});
        all.push(object("ClusterRole", whole, rest));
    }
    all
}

/// The role `system:node`: what the Node authorizer lets every node do.
pub fn node_role() -> Value {
    json!({"rules": rules(NODE)})
}

/// Every default ClusterRoleBinding.
pub fn cluster_role_bindings() -> Vec<Value> {
    let bind = |name: &str, role: &str, subjects: Vec<Value>| {
        let rest = json!({"roleRef": reference("ClusterRole", role), "subjects": subjects});
        object("ClusterRoleBinding", metadata(name, None), rest)
    };
    let mut all: Vec<Value> = BINDINGS
        .iter()
        .chain(JOINING)
        .map(|(name, role, subjects)| bind(name, role, subjects.iter().map(|text| subject(text)).collect()))
        .collect();
    for (name, _) in CONTROLLERS {
        let role = format!("system:controller:{name}");
        all.push(bind(&role, &role, vec![subject(&format!("kube-system/{name}"))]));
    }
    all
}

/// Every default Role and RoleBinding.
pub fn namespaced() -> Vec<Value> {
    let mut all = Vec::new();
    for (namespace, name, own, to) in ROLES {
        all.push(object(
            "Role",
            metadata(name, Some(namespace)),
            json!({"rules": rules(own)}),
        ));
        if !to.is_empty() {
            let rest = json!({"roleRef": reference("Role", name), "subjects": [subject(to)]});
            all.push(object("RoleBinding", metadata(name, Some(namespace)), rest));
        }
    }
    all
}

/// What a stored default role or binding lacks of its default: the object to write, or `None` if nothing is missing or it
/// opted out (annotation `autoupdate: "false"`). Nothing is ever taken away.
pub fn missing(stored: &Value, default: &Value) -> Option<Value> {
    let autoupdate = &stored["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"];
    if autoupdate == "false" {
        return None;
    }
    let mut merged = stored.clone();
    let mut changed = false;
    for field in ["rules", "subjects"] {
        let Some(wanted) = default[field].as_array() else {
            continue;
        };
        // A sum of parts is kept by its parts.
        if field == "rules" && !default["aggregationRule"].is_null() {
            continue;
        }
        let mut have = stored[field].as_array().cloned().unwrap_or_default();
        for item in wanted {
            if !have.contains(item) {
                have.push(item.clone());
                changed = true;
            }
        }
        merged[field] = Value::Array(have);
    }
    if default["aggregationRule"] != stored["aggregationRule"] && !default["aggregationRule"].is_null() {
        merged["aggregationRule"] = default["aggregationRule"].clone();
        changed = true;
    }
    changed.then(|| {
        for field in ["apiVersion", "kind"] {
            merged[field] = default[field].clone();
        }
        merged
    })
}

#[cfg(test)]
mod tests;
