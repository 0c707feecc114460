//! ClusterRoles with rules of their own. Data only.

use super::rule::R::{Named, On, Url};
use super::rule::{APPS, CERTIFICATES, COORDINATION, DISCOVERY, EVENTS, NETWORKING, R, READ, RESOURCE, STORAGE};

/// ClusterRoles with rules of their own.
pub(super) const CLUSTER_ROLES: &[(&str, &[R])] = &[
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
    ("kubeadm:get-nodes", &[On("get", "", "nodes")]),
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

pub(super) const NODE: &[R] = &[
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
