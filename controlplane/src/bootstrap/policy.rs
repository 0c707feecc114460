//! The default roles and bindings (control-plane contract §6), as data. Pure.
//!
//! Lists are written with commas; an empty item is the core API group, so `",events.k8s.io"` means core and events.k8s.io.

use serde_json::{Value, json};

/// One rule, written short.
#[derive(Clone, Copy, Debug)]
enum R {
    /// verbs, API groups, resources.
    On(&'static str, &'static str, &'static str),
    /// As `On`, limited to names.
    Named(&'static str, &'static str, &'static str, &'static str),
    /// verbs, paths.
    Url(&'static str, &'static str),
}

use R::{Named, On, Url};

const READ: &str = "get,list,watch";
const WRITE: &str = "create,delete,deletecollection,patch,update";
const READ_WRITE: &str = "create,delete,deletecollection,get,list,patch,update,watch";
const EVENTS: R = On("create,patch,update", ",events.k8s.io", "events");

const APPS: &str = "apps";
const BATCH: &str = "batch";
const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// ClusterRoles with rules of their own.
const CLUSTER_ROLES: &[(&str, &[R])] = &[
    ("cluster-admin", &[On("*", "*", "*"), Url("*", "*")]),
    (
        "system:discovery",
        &[Url(
            "get",
            "/api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/",
        )],
    ),
    (
        "system:public-info-viewer",
        &[Url("get", "/healthz,/livez,/readyz,/version,/version/")],
    ),
    (
        "system:monitoring",
        &[Url(
            "get",
            "/healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/slis,/readyz,/readyz/*",
        )],
    ),
    (
        "system:basic-user",
        &[
            On(
                "create",
                "authorization.k8s.io",
                "selfsubjectaccessreviews,selfsubjectrulesreviews",
            ),
            On("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    ),
    (
        "system:service-account-issuer-discovery",
        &[Url(
            "get",
            "/.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/",
        )],
    ),
    (
        "system:auth-delegator",
        &[
            On("create", "authentication.k8s.io", "tokenreviews"),
            On("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    (
        "system:kubelet-api-admin",
        &[
            On(READ, "", "nodes"),
            On("proxy", "", "nodes"),
            On(
                "*",
                "",
                "nodes/configz,nodes/healthz,nodes/log,nodes/metrics,nodes/pods,nodes/proxy,nodes/stats",
            ),
        ],
    ),
    ("system:node", NODE),
    (
        "system:node-bootstrapper",
        &[On("create,get,list,watch", CERTIFICATES, "certificatesigningrequests")],
    ),
    (
        "system:node-problem-detector",
        &[On("get", "", "nodes"), On("patch", "", "nodes/status"), EVENTS],
    ),
    (
        "system:node-proxier",
        &[
            On("list,watch", "", "services,endpoints"),
            On(READ, "", "nodes"),
            EVENTS,
            On("list,watch", DISCOVERY, "endpointslices"),
            On("list,watch", NETWORKING, "servicecidrs"),
        ],
    ),
    ("system:kube-dns", &[On("list,watch", "", "endpoints,services")]),
    ("system:kube-aggregator", &[On(READ, "", "endpoints,services")]),
    (
        "system:heapster",
        &[
            On(READ, "", "events,namespaces,nodes,pods"),
            On(READ, "extensions", "deployments"),
        ],
    ),
    (
        "system:persistent-volume-provisioner",
        &[
            On("create,delete,get,list,watch", "", "persistentvolumes"),
            On("get,list,update,watch", "", "persistentvolumeclaims"),
            On(READ, STORAGE, "storageclasses"),
            On("watch", "", "events"),
            EVENTS,
        ],
    ),
    (
        "system:volume-scheduler",
        &[
            On(
                "get,list,patch,update,watch",
                "",
                "persistentvolumes,persistentvolumeclaims",
            ),
            On(READ, STORAGE, "storageclasses"),
        ],
    ),
    ("system:kube-scheduler", SCHEDULER),
    ("system:kube-controller-manager", CONTROLLER_MANAGER),
    (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[On("create", CERTIFICATES, "certificatesigningrequests/nodeclient")],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[On("create", CERTIFICATES, "certificatesigningrequests/selfnodeclient")],
    ),
    (
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        &[Named(
            "approve",
            CERTIFICATES,
            "signers",
            "kubernetes.io/kube-apiserver-client",
        )],
    ),
    (
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        &[Named(
            "approve",
            CERTIFICATES,
            "signers",
            "kubernetes.io/kube-apiserver-client-kubelet",
        )],
    ),
    (
        "system:certificates.k8s.io:kubelet-serving-approver",
        &[Named(
            "approve",
            CERTIFICATES,
            "signers",
            "kubernetes.io/kubelet-serving",
        )],
    ),
    (
        "system:certificates.k8s.io:legacy-unknown-approver",
        &[Named(
            "approve",
            CERTIFICATES,
            "signers",
            "kubernetes.io/legacy-unknown",
        )],
    ),
];

const NODE: &[R] = &[
    On("create", "authentication.k8s.io", "tokenreviews"),
    On(
        "create",
        "authorization.k8s.io",
        "localsubjectaccessreviews,subjectaccessreviews",
    ),
    On(READ, "", "services"),
    On("create,get,list,watch", "", "nodes"),
    On("patch,update", "", "nodes/status"),
    On("patch,update", "", "nodes"),
    EVENTS,
    On(READ, "", "pods"),
    On("create,delete", "", "pods"),
    On("patch,update", "", "pods/status"),
    On("create", "", "pods/eviction"),
    On(READ, "", "configmaps,secrets"),
    On("get", "", "persistentvolumeclaims,persistentvolumes"),
    On("get", "", "endpoints"),
    On("create,get,list,watch", CERTIFICATES, "certificatesigningrequests"),
    On("create,delete,get,patch,update", COORDINATION, "leases"),
    On("get", STORAGE, "volumeattachments"),
    On("create", "", "serviceaccounts/token"),
    On("get,patch,update", "", "persistentvolumeclaims/status"),
    On(READ, STORAGE, "csidrivers"),
    On("create,delete,get,patch,update", STORAGE, "csinodes"),
    On(READ, "node.k8s.io", "runtimeclasses"),
    On("get", RESOURCE, "resourceclaims"),
    On(
        "create,delete,deletecollection,get,list,patch,update,watch",
        RESOURCE,
        "resourceslices",
    ),
];

const SCHEDULER: &[R] = &[
    EVENTS,
    On("create", COORDINATION, "leases"),
    Named("get,list,update,watch", COORDINATION, "leases", "kube-scheduler"),
    On(READ, "", "nodes,namespaces"),
    On("delete,get,list,watch", "", "pods"),
    On("create", "", "bindings,pods/binding"),
    On("patch,update", "", "pods/status"),
    On(READ, "", "replicationcontrollers,services"),
    On(READ, APPS, "replicasets,statefulsets"),
    On(READ, "policy", "poddisruptionbudgets"),
    On(READ, "", "persistentvolumeclaims,persistentvolumes"),
    On("create", "authentication.k8s.io", "tokenreviews"),
    On("create", "authorization.k8s.io", "subjectaccessreviews"),
    On(
        READ,
        STORAGE,
        "csidrivers,csinodes,csistoragecapacities,storageclasses,volumeattachments",
    ),
    On(READ, RESOURCE, "deviceclasses,resourceslices"),
    On("get,list,patch,update,watch", RESOURCE, "resourceclaims"),
    On("patch,update", RESOURCE, "resourceclaims/status"),
];

const CONTROLLER_MANAGER: &[R] = &[
    EVENTS,
    On("create", COORDINATION, "leases"),
    Named(
        "get,list,update,watch",
        COORDINATION,
        "leases",
        "kube-controller-manager",
    ),
    On("create", "", "secrets,serviceaccounts"),
    On("delete", "", "secrets"),
    On("get", "", "configmaps,namespaces,secrets,serviceaccounts"),
    On("update", "", "secrets,serviceaccounts"),
    On("create", "authentication.k8s.io", "tokenreviews"),
    On("create", "authorization.k8s.io", "subjectaccessreviews"),
    On("list,watch", "*", "*"),
    On("create", "", "serviceaccounts/token"),
];

/// Parts of admin, edit and view: aggregated by label.
const AGGREGATED: &[(&str, &[R])] = &[
    (
        "admin",
        &[
            On("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            On(READ_WRITE, RBAC, "rolebindings,roles"),
        ],
    ),
    (
        "edit",
        &[
            On(
                READ,
                "",
                "pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy",
            ),
            On("impersonate", "", "serviceaccounts"),
            On(WRITE, "", "pods,pods/attach,pods/exec,pods/portforward,pods/proxy"),
            On("create", "", "pods/eviction"),
            On(
                WRITE,
                "",
                "configmaps,events,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,secrets,\
                 serviceaccounts,services,services/proxy",
            ),
            On("create", "", "serviceaccounts/token"),
            On(
                WRITE,
                APPS,
                "daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,\
                 statefulsets,statefulsets/scale",
            ),
            On(WRITE, "autoscaling", "horizontalpodautoscalers"),
            On(WRITE, BATCH, "cronjobs,jobs"),
            On(WRITE, "policy", "poddisruptionbudgets"),
            On(WRITE, NETWORKING, "ingresses,networkpolicies"),
            On(READ_WRITE, COORDINATION, "leases"),
            On(WRITE, RESOURCE, "resourceclaims,resourceclaimtemplates"),
        ],
    ),
    (
        "view",
        &[
            On(
                READ,
                "",
                "configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,replicationcontrollers,\
                 replicationcontrollers/scale,serviceaccounts,services,services/status",
            ),
            On(
                READ,
                "",
                "bindings,events,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,\
                 resourcequotas,resourcequotas/status",
            ),
            On(READ, "", "namespaces"),
            On(READ, DISCOVERY, "endpointslices"),
            On(
                READ,
                APPS,
                "controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,\
                 replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,statefulsets/status",
            ),
            On(
                READ,
                "autoscaling",
                "horizontalpodautoscalers,horizontalpodautoscalers/status",
            ),
            On(READ, BATCH, "cronjobs,cronjobs/status,jobs,jobs/status"),
            On(READ, "policy", "poddisruptionbudgets,poddisruptionbudgets/status"),
            On(READ, NETWORKING, "ingresses,ingresses/status,networkpolicies"),
            On(
                READ,
                RESOURCE,
                "resourceclaims,resourceclaims/status,resourceclaimtemplates",
            ),
        ],
    ),
];

/// One role per controller that runs here, bound to its service account in kube-system.
const CONTROLLERS: &[(&str, &[R])] = &[
    (
        "clusterrole-aggregation-controller",
        &[On("escalate,get,list,patch,update,watch", RBAC, "clusterroles")],
    ),
    (
        "deployment-controller",
        &[
            On("get,list,update,watch", APPS, "deployments"),
            On("update", APPS, "deployments/status,deployments/finalizers"),
            On("create,delete,get,list,patch,update,watch", APPS, "replicasets"),
            On("get,list,update,watch", "", "pods"),
            EVENTS,
        ],
    ),
    (
        "replicaset-controller",
        &[
            On("get,list,update,watch", APPS, "replicasets"),
            On("update", APPS, "replicasets/status,replicasets/finalizers"),
            On("create,delete,list,patch,watch", "", "pods"),
            EVENTS,
        ],
    ),
    (
        "endpoint-controller",
        &[
            On(READ, "", "pods,services"),
            On("create,delete,get,list,update", "", "endpoints"),
            On("create", "", "endpoints/restricted"),
            EVENTS,
        ],
    ),
    (
        "endpointslice-controller",
        &[
            On(READ, "", "nodes,pods,services"),
            On("update", "", "services/finalizers"),
            On("create,delete,get,list,update", DISCOVERY, "endpointslices"),
            On("create", DISCOVERY, "endpointslices/restricted"),
            EVENTS,
        ],
    ),
    (
        "generic-garbage-collector",
        &[On("delete,get,list,patch,update,watch", "*", "*"), EVENTS],
    ),
    (
        "namespace-controller",
        &[
            On("delete,get,list,watch", "", "namespaces"),
            On("update", "", "namespaces/finalize,namespaces/status"),
            On("delete,deletecollection,get,list", "*", "*"),
        ],
    ),
    (
        "node-controller",
        &[
            On("delete,get,list,patch,update", "", "nodes"),
            On("patch,update", "", "nodes/status"),
            On("patch,update", "", "pods/status"),
            On("delete,list", "", "pods"),
            On("get", "", "pods"),
            EVENTS,
        ],
    ),
    (
        "pod-garbage-collector",
        &[
            On("delete,list,watch", "", "pods"),
            On("get,list", "", "nodes"),
            On("patch", "", "pods/status"),
        ],
    ),
    (
        "root-ca-cert-publisher",
        &[On("create,update", "", "configmaps"), EVENTS],
    ),
    (
        "service-account-controller",
        &[On("create", "", "serviceaccounts"), EVENTS],
    ),
];

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
    // Upstream leaves this one without subjects, because its node authorizer speaks for kubelets; ours is not there yet.
    ("system:node", "system:node", &["Group:system:nodes"]),
    (
        "system:kubelet-api-admin",
        "system:kubelet-api-admin",
        &["User:kube-apiserver-kubelet-client"],
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
];

fn list(text: &str) -> Vec<&str> {
    text.split(',').collect()
}

impl R {
    fn value(&self) -> Value {
        match self {
            On(verbs, groups, resources) => {
                json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)})
            }
            Named(verbs, groups, resources, names) => json!({"verbs": list(verbs), "apiGroups": list(groups),
                "resources": list(resources), "resourceNames": list(names)}),
            Url(verbs, urls) => json!({"verbs": list(verbs), "nonResourceURLs": list(urls)}),
        }
    }
}

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
    // admin holds what edit holds, edit what view holds; the sums are stored too, so that they can be read.
    let mut sum: Vec<Value> = Vec::new();
    for (index, (name, own)) in AGGREGATED.iter().enumerate().rev() {
        let mut part = metadata(&format!("system:aggregate-to-{name}"), None);
        part["labels"][aggregate_to(name)] = json!("true");
        all.push(object("ClusterRole", part, json!({"rules": rules(own)})));
        sum.splice(0..0, rules(own));
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

/// Every default ClusterRoleBinding.
pub fn cluster_role_bindings() -> Vec<Value> {
    let bind = |name: &str, role: &str, subjects: Vec<Value>| {
        let rest = json!({"roleRef": reference("ClusterRole", role), "subjects": subjects});
        object("ClusterRoleBinding", metadata(name, None), rest)
    };
    let mut all: Vec<Value> = BINDINGS
        .iter()
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
mod tests {
    use super::*;

    fn find(all: &[Value], name: &str) -> Value {
        all.iter()
            .find(|object| object["metadata"]["name"] == name)
            .unwrap()
            .clone()
    }

    #[test]
    fn every_binding_names_a_role_that_is_there() {
        let roles = cluster_roles();
        for binding in cluster_role_bindings() {
            let role = &binding["roleRef"]["name"];
            assert!(roles.iter().any(|object| object["metadata"]["name"] == *role), "{role}");
        }
    }

    #[test]
    fn names_are_unique() {
        for all in [cluster_roles(), cluster_role_bindings()] {
            let mut names: Vec<String> = all
                .iter()
                .map(|object| object["metadata"]["name"].to_string())
                .collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn admin_edit_and_view_add_up() {
        let roles = cluster_roles();
        let (admin, edit, view) = (find(&roles, "admin"), find(&roles, "edit"), find(&roles, "view"));
        assert_eq!(
            edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"],
            "true"
        );
        assert_eq!(
            view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"],
            "true"
        );
        let count = |role: &Value| role["rules"].as_array().unwrap().len();
        assert!(count(&admin) > count(&edit) && count(&edit) > count(&view));
        assert!(!view["rules"].to_string().contains("secrets"));
        assert!(edit["rules"].to_string().contains("pods/exec"));
    }

    #[test]
    fn what_is_missing_is_added_and_nothing_taken_away() {
        let default = find(&cluster_role_bindings(), "system:node");
        assert_eq!(missing(&default, &default), None);
        let mut stored = default.clone();
        stored["subjects"] = json!([{"kind": "User", "name": "mine"}]);
        let merged = missing(&stored, &default).unwrap();
        assert_eq!(merged["subjects"].as_array().unwrap().len(), 2);
        stored["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = json!("false");
        assert_eq!(missing(&stored, &default), None);
    }

    #[test]
    fn core_events_are_in_both_groups() {
        let role = find(&cluster_roles(), "system:node-problem-detector");
        assert_eq!(role["rules"][2]["apiGroups"], json!(["", "events.k8s.io"]));
    }
}
