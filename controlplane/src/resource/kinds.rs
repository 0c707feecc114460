//! The built-in kinds, served by default (control-plane contract §5). Data only; order is discovery order.

use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, autoscaling::v2 as autoscaling, batch::v1 as batch,
    certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery,
    events::v1 as events, flowcontrol::v1 as flowcontrol, networking::v1 as networking, node::v1 as node,
    policy::v1 as policy, rbac::v1 as rbac, resource::v1 as resource, scheduling::v1 as scheduling,
    storage::v1 as storage,
};

use super::build::{Part, Row};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use std::sync::Arc;

use super::admission_policy::{Policy, PolicyBinding};
use super::certificate::SigningRequest;
use super::config_data::{ConfigMap, Secret};
use super::controller_revision::ControllerRevision;
use super::conversion::{AutoscalerV1, EventsV1};
use super::csi::{CsiDriver, CsiNode, StorageCapacity};
use super::daemon_set::DaemonSet;
use super::definition::Definition;
use super::deployment::Deployment;
use super::device::{Claim as DeviceClaim, ClaimTemplate, DeviceClass};
use super::endpoint_slice::EndpointSlice;
use super::event::Event;
use super::flow::{FlowSchema, PriorityLevel};
use super::ingress::{Ingress, IngressClass};
use super::job::{CronJob, Job};
use super::lease::Lease;
use super::limit_range::LimitRange;
use super::namespace::Namespace;
use super::network_policy::NetworkPolicy;
use super::networking::Endpoints;
use super::node::Node;
use super::pod::Pod;
use super::policy::{Autoscaler, Budget};
use super::priority_class::PriorityClass;
use super::rbac::{Binding, Role};
use super::replica_set::{PodTemplate, ReplicaSet, ReplicationController};
use super::resource_quota::ResourceQuota;
use super::resource_slice::ResourceSlice;
use super::runtime_class::RuntimeClass;
use super::service::Service;
use super::service_cidr::{IpAddress, ServiceCidr};
use super::stateful_set::StatefulSet;
use super::storage::{Claim, Volume};
use super::storage_class::{Attachment, AttributesClass, StorageClass};
use super::webhook::Webhooks;

const CHANGE: &[&str] = &["get", "patch", "update"];
const CREATE: &[&str] = &["create"];
const STREAM: &[&str] = &["create", "get"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
const ALL: &[&str] = &["all"];
const API_EXTENSIONS: &[&str] = &["api-extensions"];

const fn part(
    name: &'static str,
    verbs: &'static [&'static str],
    group: &'static str,
    version: &'static str,
    kind: &'static str,
) -> Part {
    Part {
        name,
        verbs,
        group,
        version,
        kind,
    }
}

/// `status` of a kind.
const fn status(group: &'static str, version: &'static str, kind: &'static str) -> Part {
    part("status", CHANGE, group, version, kind)
}

const SCALE: Part = part("scale", CHANGE, "autoscaling", "v1", "Scale");

pub(super) static KINDS: &[Row] = &[
    // core, 18000
    Row::review::<core::Binding>("binding", true),
    Row::cluster::<core::ComponentStatus>("componentstatus")
        .short(&["cs"])
        .verbs(&["get", "list"])
        .stored_at(""),
    Row::namespaced::<core::ConfigMap>("configmap")
        .short(&["cm"])
        .strategy(&ConfigMap),
    Row::namespaced::<core::Endpoints>("endpoints")
        .short(&["ep"])
        .stored_at("services/endpoints")
        .create_on_update()
        .strategy(&Endpoints),
    Row::namespaced::<core::Event>("event")
        .short(&["ev"])
        .create_on_update()
        .strategy(&Event),
    Row::namespaced::<core::LimitRange>("limitrange")
        .short(&["limits"])
        .create_on_update()
        .strategy(&LimitRange),
    Row::cluster::<core::Namespace>("namespace")
        .short(&["ns"])
        .verbs(&["create", "delete", "get", "list", "patch", "update", "watch"])
        .sub(&[
            part("finalize", &["update"], "", "v1", "Namespace"),
            status("", "v1", "Namespace"),
        ])
        .returned_on_delete()
        .strategy(&Namespace),
    Row::cluster::<core::Node>("node")
        .short(&["no"])
        .sub(&[
            part("proxy", PROXY, "", "v1", "NodeProxyOptions"),
            status("", "v1", "Node"),
        ])
        .stored_at("minions")
        .strategy(&Node),
    Row::namespaced::<core::PersistentVolumeClaim>("persistentvolumeclaim")
        .short(&["pvc"])
        .sub(&[status("", "v1", "PersistentVolumeClaim")])
        .returned_on_delete()
        .strategy(&Claim),
    Row::cluster::<core::PersistentVolume>("persistentvolume")
        .short(&["pv"])
        .sub(&[status("", "v1", "PersistentVolume")])
        .returned_on_delete()
        .strategy(&Volume),
    Row::namespaced::<core::Pod>("pod")
        .short(&["po"])
        .category(ALL)
        .sub(&[
            part("attach", STREAM, "", "v1", "PodAttachOptions"),
            part("binding", CREATE, "", "v1", "Binding"),
            part("ephemeralcontainers", CHANGE, "", "v1", "Pod"),
            part("eviction", CREATE, "policy", "v1", "Eviction"),
            part("exec", STREAM, "", "v1", "PodExecOptions"),
            part("log", &["get"], "", "v1", "Pod"),
            part("portforward", STREAM, "", "v1", "PodPortForwardOptions"),
            part("proxy", PROXY, "", "v1", "PodProxyOptions"),
            part("resize", CHANGE, "", "v1", "Pod"),
            status("", "v1", "Pod"),
        ])
        .returned_on_delete()
        .strategy(&Pod),
    Row::namespaced::<core::PodTemplate>("podtemplate")
        .returned_on_delete()
        .strategy(&PodTemplate),
    Row::namespaced::<core::ReplicationController>("replicationcontroller")
        .short(&["rc"])
        .category(ALL)
        .sub(&[SCALE, status("", "v1", "ReplicationController")])
        .stored_at("controllers")
        .orphaning()
        .strategy(&ReplicationController),
    Row::namespaced::<core::ResourceQuota>("resourcequota")
        .short(&["quota"])
        .sub(&[status("", "v1", "ResourceQuota")])
        .returned_on_delete()
        .strategy(&ResourceQuota),
    Row::namespaced::<core::Secret>("secret").strategy(&Secret),
    Row::namespaced::<core::ServiceAccount>("serviceaccount")
        .short(&["sa"])
        .sub(&[part("token", CREATE, "authentication.k8s.io", "v1", "TokenRequest")])
        .returned_on_delete(),
    Row::namespaced::<core::Service>("service")
        .short(&["svc"])
        .category(ALL)
        .sub(&[
            part("proxy", PROXY, "", "v1", "ServiceProxyOptions"),
            status("", "v1", "Service"),
        ])
        .stored_at("services/specs")
        .create_on_update()
        .returned_on_delete()
        .strategy(&Service),
    // apps, 17800
    Row::namespaced::<apps::ControllerRevision>("controllerrevision").strategy(&ControllerRevision),
    Row::namespaced::<apps::DaemonSet>("daemonset")
        .short(&["ds"])
        .category(ALL)
        .sub(&[status("apps", "v1", "DaemonSet")])
        .strategy(&DaemonSet),
    Row::namespaced::<apps::Deployment>("deployment")
        .short(&["deploy"])
        .category(ALL)
        .sub(&[SCALE, status("apps", "v1", "Deployment")])
        .strategy(&Deployment),
    Row::namespaced::<apps::ReplicaSet>("replicaset")
        .short(&["rs"])
        .category(ALL)
        .sub(&[SCALE, status("apps", "v1", "ReplicaSet")])
        .strategy(&ReplicaSet),
    Row::namespaced::<apps::StatefulSet>("statefulset")
        .short(&["sts"])
        .category(ALL)
        .sub(&[SCALE, status("apps", "v1", "StatefulSet")])
        .strategy(&StatefulSet),
    // events.k8s.io, 17750
    Row::namespaced::<events::Event>("event")
        .short(&["ev"])
        .create_on_update()
        .stored_as(["", "v1", "Event"], || Arc::new(EventsV1))
        .strategy(&Event),
    // authentication.k8s.io, 17700
    Row::review::<authentication::SelfSubjectReview>("selfsubjectreview", false),
    Row::review::<authentication::TokenReview>("tokenreview", false),
    // authorization.k8s.io, 17600
    Row::review::<authorization::LocalSubjectAccessReview>("localsubjectaccessreview", true),
    Row::review::<authorization::SelfSubjectAccessReview>("selfsubjectaccessreview", false),
    Row::review::<authorization::SelfSubjectRulesReview>("selfsubjectrulesreview", false),
    Row::review::<authorization::SubjectAccessReview>("subjectaccessreview", false),
    // autoscaling, 17500
    Row::namespaced::<autoscaling::HorizontalPodAutoscaler>("horizontalpodautoscaler")
        .short(&["hpa"])
        .category(ALL)
        .sub(&[status("autoscaling", "v2", "HorizontalPodAutoscaler")])
        .strategy(&Autoscaler),
    Row::namespaced::<k8s_openapi::api::autoscaling::v1::HorizontalPodAutoscaler>("horizontalpodautoscaler")
        .short(&["hpa"])
        .category(ALL)
        .sub(&[status("autoscaling", "v1", "HorizontalPodAutoscaler")])
        .stored_as(["autoscaling", "v2", "HorizontalPodAutoscaler"], || {
            Arc::new(AutoscalerV1)
        })
        .strategy(&Autoscaler),
    // batch, 17400
    Row::namespaced::<batch::CronJob>("cronjob")
        .short(&["cj"])
        .category(ALL)
        .sub(&[status("batch", "v1", "CronJob")])
        .strategy(&CronJob),
    Row::namespaced::<batch::Job>("job")
        .category(ALL)
        .sub(&[status("batch", "v1", "Job")])
        .orphaning()
        .strategy(&Job),
    // certificates.k8s.io, 17300
    Row::cluster::<certificates::CertificateSigningRequest>("certificatesigningrequest")
        .short(&["csr"])
        .sub(&[
            part(
                "approval",
                CHANGE,
                "certificates.k8s.io",
                "v1",
                "CertificateSigningRequest",
            ),
            status("certificates.k8s.io", "v1", "CertificateSigningRequest"),
        ])
        .strategy(&SigningRequest),
    // networking.k8s.io, 17200
    Row::cluster::<networking::IngressClass>("ingressclass").strategy(&IngressClass),
    Row::namespaced::<networking::Ingress>("ingress")
        .short(&["ing"])
        .sub(&[status("networking.k8s.io", "v1", "Ingress")])
        .stored_at("ingress")
        .strategy(&Ingress),
    Row::cluster::<networking::IPAddress>("ipaddress")
        .short(&["ip"])
        .strategy(&IpAddress),
    Row::namespaced::<networking::NetworkPolicy>("networkpolicy")
        .short(&["netpol"])
        .strategy(&NetworkPolicy),
    Row::cluster::<networking::ServiceCIDR>("servicecidr")
        .sub(&[status("networking.k8s.io", "v1", "ServiceCIDR")])
        .strategy(&ServiceCidr),
    // policy, 17100
    Row::namespaced::<policy::PodDisruptionBudget>("poddisruptionbudget")
        .short(&["pdb"])
        .sub(&[status("policy", "v1", "PodDisruptionBudget")])
        .conditional()
        .strategy(&Budget),
    // rbac.authorization.k8s.io, 17000
    Row::cluster::<rbac::ClusterRoleBinding>("clusterrolebinding")
        .create_on_update()
        .strategy(&Binding { cluster: true }),
    Row::cluster::<rbac::ClusterRole>("clusterrole")
        .create_on_update()
        .strategy(&Role { cluster: true }),
    Row::namespaced::<rbac::RoleBinding>("rolebinding")
        .create_on_update()
        .strategy(&Binding { cluster: false }),
    Row::namespaced::<rbac::Role>("role")
        .create_on_update()
        .strategy(&Role { cluster: false }),
    // storage.k8s.io, 16800
    Row::cluster::<storage::CSIDriver>("csidriver")
        .conditional()
        .returned_on_delete()
        .strategy(&CsiDriver),
    Row::cluster::<storage::CSINode>("csinode")
        .conditional()
        .returned_on_delete()
        .strategy(&CsiNode),
    Row::namespaced::<storage::CSIStorageCapacity>("csistoragecapacity")
        .conditional()
        .strategy(&StorageCapacity),
    Row::cluster::<storage::StorageClass>("storageclass")
        .short(&["sc"])
        .returned_on_delete()
        .strategy(&StorageClass),
    Row::cluster::<storage::VolumeAttachment>("volumeattachment")
        .sub(&[status("storage.k8s.io", "v1", "VolumeAttachment")])
        .conditional()
        .returned_on_delete()
        .strategy(&Attachment),
    Row::cluster::<storage::VolumeAttributesClass>("volumeattributesclass")
        .short(&["vac"])
        .returned_on_delete()
        .strategy(&AttributesClass),
    // admissionregistration.k8s.io, 16700
    Row::cluster::<admissionregistration::MutatingAdmissionPolicy>("mutatingadmissionpolicy")
        .category(API_EXTENSIONS)
        .conditional()
        .strategy(&Policy { mutating: true }),
    Row::cluster::<admissionregistration::MutatingAdmissionPolicyBinding>("mutatingadmissionpolicybinding")
        .category(API_EXTENSIONS)
        .conditional()
        .strategy(&PolicyBinding { mutating: true }),
    Row::cluster::<admissionregistration::MutatingWebhookConfiguration>("mutatingwebhookconfiguration")
        .category(API_EXTENSIONS)
        .conditional()
        .strategy(&Webhooks { mutating: true }),
    Row::cluster::<admissionregistration::ValidatingAdmissionPolicy>("validatingadmissionpolicy")
        .category(API_EXTENSIONS)
        .sub(&[status(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingAdmissionPolicy",
        )])
        .conditional()
        .strategy(&Policy { mutating: false }),
    Row::cluster::<admissionregistration::ValidatingAdmissionPolicyBinding>("validatingadmissionpolicybinding")
        .category(API_EXTENSIONS)
        .conditional()
        .strategy(&PolicyBinding { mutating: false }),
    Row::cluster::<admissionregistration::ValidatingWebhookConfiguration>("validatingwebhookconfiguration")
        .category(API_EXTENSIONS)
        .conditional()
        .strategy(&Webhooks { mutating: false }),
    // apiextensions.k8s.io, 16700
    Row::cluster::<CustomResourceDefinition>("customresourcedefinition")
        .short(&["crd", "crds"])
        .category(API_EXTENSIONS)
        .sub(&[status("apiextensions.k8s.io", "v1", "CustomResourceDefinition")])
        .stored_at("apiextensions.k8s.io/customresourcedefinitions")
        .conditional()
        .strategy(&Definition),
    // scheduling.k8s.io, 16600
    Row::cluster::<scheduling::PriorityClass>("priorityclass")
        .short(&["pc"])
        .strategy(&PriorityClass),
    // coordination.k8s.io, 16500
    Row::namespaced::<coordination::Lease>("lease")
        .create_on_update()
        .conditional()
        .strategy(&Lease),
    // node.k8s.io, 16300
    Row::cluster::<node::RuntimeClass>("runtimeclass")
        .create_on_update()
        .conditional()
        .strategy(&RuntimeClass),
    // discovery.k8s.io, 16200
    Row::namespaced::<discovery::EndpointSlice>("endpointslice").strategy(&EndpointSlice),
    // resource.k8s.io, 16200
    Row::cluster::<resource::DeviceClass>("deviceclass")
        .returned_on_delete()
        .strategy(&DeviceClass),
    Row::namespaced::<resource::ResourceClaim>("resourceclaim")
        .sub(&[status("resource.k8s.io", "v1", "ResourceClaim")])
        .returned_on_delete()
        .strategy(&DeviceClaim),
    Row::namespaced::<resource::ResourceClaimTemplate>("resourceclaimtemplate")
        .returned_on_delete()
        .strategy(&ClaimTemplate),
    Row::cluster::<resource::ResourceSlice>("resourceslice")
        .returned_on_delete()
        .strategy(&ResourceSlice),
    // flowcontrol.apiserver.k8s.io, 16100
    Row::cluster::<flowcontrol::FlowSchema>("flowschema")
        .sub(&[status("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema")])
        .strategy(&FlowSchema),
    Row::cluster::<flowcontrol::PriorityLevelConfiguration>("prioritylevelconfiguration")
        .sub(&[status(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "PriorityLevelConfiguration",
        )])
        .strategy(&PriorityLevel),
];
