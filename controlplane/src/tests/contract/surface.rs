//! §5: every resource with its scope, names, categories, verbs and subresources; §1: the order of groups.

use std::collections::BTreeSet;

use crate::resource::{Registry, STANDARD_VERBS};

/// What a `VERBS` column means.
fn verbs(text: &str) -> Vec<&str> {
    match text {
        "*" => STANDARD_VERBS.to_vec(),
        "no-collection" => STANDARD_VERBS
            .iter()
            .copied()
            .filter(|verb| *verb != "deletecollection")
            .collect(),
        some => some.split('+').collect(),
    }
}

/// Group and version, plural, kind, scope, short names, categories, verbs, subresources with the kinds of their bodies.
const SURFACE: &str = "
v1 bindings Binding N - - create -
v1 componentstatuses ComponentStatus C cs - get+list -
v1 configmaps ConfigMap N cm - * -
v1 endpoints Endpoints N ep - * -
v1 events Event N ev - * -
v1 limitranges LimitRange N limits - * -
v1 namespaces Namespace C ns - no-collection finalize,status
v1 nodes Node C no - * proxy:NodeProxyOptions,status
v1 persistentvolumeclaims PersistentVolumeClaim N pvc - * status
v1 persistentvolumes PersistentVolume C pv - * status
v1 pods Pod N po all * attach:PodAttachOptions,binding:Binding,ephemeralcontainers,eviction:policy/v1/Eviction,exec:PodExecOptions,log,portforward:PodPortForwardOptions,proxy:PodProxyOptions,resize,status
v1 podtemplates PodTemplate N - - * -
v1 replicationcontrollers ReplicationController N rc all * scale:autoscaling/v1/Scale,status
v1 resourcequotas ResourceQuota N quota - * status
v1 secrets Secret N - - * -
v1 serviceaccounts ServiceAccount N sa - * token:authentication.k8s.io/v1/TokenRequest
v1 services Service N svc all * proxy:ServiceProxyOptions,status
apps/v1 controllerrevisions ControllerRevision N - - * -
apps/v1 daemonsets DaemonSet N ds all * status
apps/v1 deployments Deployment N deploy all * scale:autoscaling/v1/Scale,status
apps/v1 replicasets ReplicaSet N rs all * scale:autoscaling/v1/Scale,status
apps/v1 statefulsets StatefulSet N sts all * scale:autoscaling/v1/Scale,status
events.k8s.io/v1 events Event N ev - * -
authentication.k8s.io/v1 selfsubjectreviews SelfSubjectReview C - - create -
authentication.k8s.io/v1 tokenreviews TokenReview C - - create -
authorization.k8s.io/v1 localsubjectaccessreviews LocalSubjectAccessReview N - - create -
authorization.k8s.io/v1 selfsubjectaccessreviews SelfSubjectAccessReview C - - create -
authorization.k8s.io/v1 selfsubjectrulesreviews SelfSubjectRulesReview C - - create -
authorization.k8s.io/v1 subjectaccessreviews SubjectAccessReview C - - create -
autoscaling/v1 horizontalpodautoscalers HorizontalPodAutoscaler N hpa all * status
autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler N hpa all * status
batch/v1 cronjobs CronJob N cj all * status
batch/v1 jobs Job N - all * status
certificates.k8s.io/v1 certificatesigningrequests CertificateSigningRequest C csr - * approval,status
networking.k8s.io/v1 ingressclasses IngressClass C - - * -
networking.k8s.io/v1 ingresses Ingress N ing - * status
networking.k8s.io/v1 ipaddresses IPAddress C ip - * -
networking.k8s.io/v1 networkpolicies NetworkPolicy N netpol - * -
networking.k8s.io/v1 servicecidrs ServiceCIDR C - - * status
policy/v1 poddisruptionbudgets PodDisruptionBudget N pdb - * status
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding C - - * -
rbac.authorization.k8s.io/v1 clusterroles ClusterRole C - - * -
rbac.authorization.k8s.io/v1 rolebindings RoleBinding N - - * -
rbac.authorization.k8s.io/v1 roles Role N - - * -
storage.k8s.io/v1 csidrivers CSIDriver C - - * -
storage.k8s.io/v1 csinodes CSINode C - - * -
storage.k8s.io/v1 csistoragecapacities CSIStorageCapacity N - - * -
storage.k8s.io/v1 storageclasses StorageClass C sc - * -
storage.k8s.io/v1 volumeattachments VolumeAttachment C - - * status
storage.k8s.io/v1 volumeattributesclasses VolumeAttributesClass C vac - * -
admissionregistration.k8s.io/v1 mutatingadmissionpolicies MutatingAdmissionPolicy C - api-extensions * -
admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding C - api-extensions * -
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration C - api-extensions * -
admissionregistration.k8s.io/v1 validatingadmissionpolicies ValidatingAdmissionPolicy C - api-extensions * status
admissionregistration.k8s.io/v1 validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding C - api-extensions * -
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration C - api-extensions * -
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition C crd,crds api-extensions * status
scheduling.k8s.io/v1 priorityclasses PriorityClass C pc - * -
coordination.k8s.io/v1 leases Lease N - - * -
node.k8s.io/v1 runtimeclasses RuntimeClass C - - * -
discovery.k8s.io/v1 endpointslices EndpointSlice N - - * -
resource.k8s.io/v1 deviceclasses DeviceClass C - - * -
resource.k8s.io/v1 resourceclaims ResourceClaim N - - * status
resource.k8s.io/v1 resourceclaimtemplates ResourceClaimTemplate N - - * -
resource.k8s.io/v1 resourceslices ResourceSlice C - - * -
flowcontrol.apiserver.k8s.io/v1 flowschemas FlowSchema C - - * status
flowcontrol.apiserver.k8s.io/v1 prioritylevelconfigurations PriorityLevelConfiguration C - - * status
";

#[test]
fn every_resource_is_as_the_contract_lists_it_and_there_are_no_others() {
    let mut expected = BTreeSet::new();
    for row in SURFACE.lines().filter(|row| !row.is_empty()) {
        let [api_version, plural, name, scope, short, categories, wanted, parts] =
            row.split(' ').collect::<Vec<_>>()[..]
        else {
            panic!("{row}");
        };
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let registry = Registry::built_in();
        let kind = registry
            .by_resource(group, version, plural)
            .unwrap_or_else(|| panic!("{row}"));
        expected.insert((api_version.to_owned(), plural.to_owned()));
        let listed = |names: &[crate::resource::Name]| match names {
            [] => "-".to_owned(),
            names => names.join(","),
        };
        assert_eq!(
            (
                &*kind.kind,
                kind.namespaced,
                listed(&kind.short_names),
                listed(&kind.categories)
            ),
            (name, scope == "N", short.to_owned(), categories.to_owned()),
            "{row}"
        );
        assert_eq!(kind.verbs, verbs(wanted), "{row}");
        let own = format!("{api_version}/{name}");
        let found: Vec<String> = kind
            .subresources
            .iter()
            .map(|part| {
                let body = format!(
                    "{}/{}",
                    crate::resource::api_version(&part.group, &part.version),
                    part.kind
                );
                match body.strip_prefix("v1/") {
                    _ if body == own => part.name.to_owned(),
                    Some(core) => format!("{}:{core}", part.name),
                    None => format!("{}:{body}", part.name),
                }
            })
            .collect();
        assert_eq!(
            if found.is_empty() {
                "-".to_owned()
            } else {
                found.join(",")
            },
            parts,
            "{row}"
        );
        for part in &kind.subresources {
            let wanted: &[&str] = match part.name {
                "attach" | "exec" | "portforward" => &["create", "get"],
                "binding" | "eviction" | "token" => &["create"],
                "finalize" => &["update"],
                "log" => &["get"],
                "proxy" => &["create", "delete", "get", "patch", "update"],
                _ => &["get", "patch", "update"],
            };
            assert_eq!(part.verbs, wanted, "{row}: {}", part.name);
        }
    }
    let served: BTreeSet<(String, String)> = Registry::built_in()
        .kinds()
        .map(|kind| (kind.api_version.to_string(), kind.plural.to_string()))
        .collect();
    assert_eq!(served, expected);
}

/// §1: by descending priority, then by name.
#[test]
fn groups_and_versions_are_in_the_order_of_their_priorities() {
    let groups: Vec<&str> = Registry::built_in().groups().iter().map(|group| &*group.name).collect();
    assert_eq!(
        groups,
        [
            "",
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "autoscaling",
            "batch",
            "certificates.k8s.io",
            "networking.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "storage.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "scheduling.k8s.io",
            "coordination.k8s.io",
            "node.k8s.io",
            "discovery.k8s.io",
            "resource.k8s.io",
            "flowcontrol.apiserver.k8s.io",
        ]
    );
    let autoscaling = Registry::built_in().group("autoscaling").expect("built in");
    let versions: Vec<&str> = autoscaling.versions.iter().map(|version| &*version.name).collect();
    assert_eq!(versions, ["v2", "v1"]);
}
