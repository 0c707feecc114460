//! What the controllers that run here may do. Data only.

use super::rule::R::{Named, On};
use super::rule::{APPS, BATCH, CERTIFICATES, DISCOVERY, EVENTS, NETWORKING, R, RBAC, READ, RESOURCE};

/// One role per controller that runs here, bound to its service account in kube-system.
pub(super) const CONTROLLERS: &[(&str, &[R])] = &[
    (
        "certificate-controller",
        &[
            On("delete,get,list,watch", CERTIFICATES, "certificatesigningrequests"),
            On(
                "update",
                CERTIFICATES,
                "certificatesigningrequests/approval,certificatesigningrequests/status",
            ),
            Named(
                "approve",
                CERTIFICATES,
                "signers",
                "kubernetes.io/kube-apiserver-client-kubelet",
            ),
            Named(
                "sign",
                CERTIFICATES,
                "signers",
                "kubernetes.io/kube-apiserver-client,kubernetes.io/kube-apiserver-client-kubelet,\
                 kubernetes.io/kubelet-serving,kubernetes.io/legacy-unknown",
            ),
            On("create", "authorization.k8s.io", "subjectaccessreviews"),
            EVENTS,
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        &[On("escalate,get,list,patch,update,watch", RBAC, "clusterroles")],
    ),
    (
        "cronjob-controller",
        &[
            On("get,list,update,watch", BATCH, "cronjobs"),
            On("create,delete,get,list,patch,update,watch", BATCH, "jobs"),
            On("update", BATCH, "cronjobs/status"),
            On("update", BATCH, "cronjobs/finalizers"),
            On("delete,list,watch", "", "pods"),
            EVENTS,
        ],
    ),
    (
        "daemon-set-controller",
        &[
            On(READ, "extensions,apps", "daemonsets"),
            On("update", "extensions,apps", "daemonsets/status"),
            On("update", "extensions,apps", "daemonsets/finalizers"),
            On("list,watch", "", "nodes"),
            On("create,delete,list,patch,watch", "", "pods"),
            On("create", "", "pods/binding"),
            On("create,delete,get,list,patch,update,watch", APPS, "controllerrevisions"),
            EVENTS,
        ],
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
        "disruption-controller",
        &[
            On(READ, "extensions,apps", "deployments"),
            On(READ, "apps,extensions", "replicasets"),
            On(READ, "", "replicationcontrollers"),
            On(READ, "policy", "poddisruptionbudgets"),
            On(READ, APPS, "statefulsets"),
            On("update", "policy", "poddisruptionbudgets/status"),
            On("patch,update", "", "pods/status"),
            On("get", "*", "*/scale"),
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
        "endpointslicemirroring-controller",
        &[
            On(READ, "", "endpoints,services"),
            On("update", "", "services/finalizers,endpoints/finalizers"),
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
        "horizontal-pod-autoscaler",
        &[
            On(READ, "autoscaling", "horizontalpodautoscalers"),
            On("update", "autoscaling", "horizontalpodautoscalers/status"),
            On("get,update", "*", "*/scale"),
            On("list", "", "pods"),
            On("list", "metrics.k8s.io", "pods"),
            On("get,list", "custom.metrics.k8s.io", "*"),
            On("get,list", "external.metrics.k8s.io", "*"),
            EVENTS,
        ],
    ),
    (
        "job-controller",
        &[
            On("get,list,patch,update,watch", BATCH, "jobs"),
            On("update", BATCH, "jobs/status"),
            On("update", BATCH, "jobs/finalizers"),
            On("create,delete,list,patch,watch", "", "pods"),
            EVENTS,
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[
            Named(
                "get",
                "",
                "configmaps",
                "kube-apiserver-legacy-service-account-token-tracking",
            ),
            On("delete,patch", "", "secrets"),
        ],
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
        "replication-controller",
        &[
            On("get,list,update,watch", "", "replicationcontrollers"),
            On("update", "", "replicationcontrollers/status"),
            On("update", "", "replicationcontrollers/finalizers"),
            On("create,delete,list,patch,watch", "", "pods"),
            EVENTS,
        ],
    ),
    (
        "resource-claim-controller",
        &[
            On(READ, "", "pods"),
            On(READ, RESOURCE, "resourceclaimtemplates"),
            On("create,delete,get,list,patch,update,watch", RESOURCE, "resourceclaims"),
            On("patch,update", RESOURCE, "resourceclaims/status"),
            On("patch,update", "", "pods/status"),
            On("update", "", "pods/finalizers"),
            EVENTS,
        ],
    ),
    (
        "resourcequota-controller",
        &[
            On("list,watch", "*", "*"),
            On("update", "", "resourcequotas/status"),
            EVENTS,
        ],
    ),
    (
        "root-ca-cert-publisher",
        &[On("create,update", "", "configmaps"), EVENTS],
    ),
    (
        "statefulset-controller",
        &[
            On("list,watch", "", "pods"),
            On(READ, APPS, "statefulsets"),
            On("update", APPS, "statefulsets/status"),
            On("update", APPS, "statefulsets/finalizers"),
            On("create,delete,get,patch,update", "", "pods"),
            On("create,delete,get,list,patch,update,watch", APPS, "controllerrevisions"),
            On("create,get,list,watch", "", "persistentvolumeclaims"),
            On("delete,update", "", "persistentvolumeclaims"),
            On("update", "", "pods/finalizers"),
            EVENTS,
        ],
    ),
    (
        "service-account-controller",
        &[On("create", "", "serviceaccounts"), EVENTS],
    ),
    (
        "service-cidrs-controller",
        &[
            On("get,list,patch,update,watch", NETWORKING, "servicecidrs"),
            On(
                "patch,update",
                NETWORKING,
                "servicecidrs/finalizers,servicecidrs/status",
            ),
            On(READ, NETWORKING, "ipaddresses"),
            EVENTS,
        ],
    ),
    (
        "service-controller",
        &[
            On(READ, "", "services"),
            On("patch,update", "", "services/status"),
            On("list,watch", "", "nodes"),
            EVENTS,
        ],
    ),
    (
        "ttl-after-finished-controller",
        &[On("delete,get,list,watch", BATCH, "jobs"), EVENTS],
    ),
    ("ttl-controller", &[On("list,patch,update,watch", "", "nodes"), EVENTS]),
];
