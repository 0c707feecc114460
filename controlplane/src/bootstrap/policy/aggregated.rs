//! What admin, edit and view are made of. Data only.

use super::rule::R::On;
use super::rule::{APPS, BATCH, COORDINATION, DISCOVERY, NETWORKING, R, RBAC, READ, READ_WRITE, RESOURCE, WRITE};

/// Parts of admin, edit and view: aggregated by label.
pub(super) const AGGREGATED: &[(&str, &[R])] = &[
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
            On("get,patch,update", "", "pods/resize"),
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

/// Reads what nodes and pods use; a part of all three.
pub(super) const METRICS_READER: &[R] = &[On(READ, "metrics.k8s.io", "nodes,pods")];
