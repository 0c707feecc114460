//! What stands in the store, read as somebody would who has nothing but the keys (control-plane contract §10).

use super::*;
use crate::resource::Registry;
use crate::store::Expect;
use std::collections::BTreeSet;

/// Storage version, kind, plural and upstream's prefix, of every kind that is stored.
const PLACES: &[(&str, &str, &str, &str)] = &[
    ("v1", "ConfigMap", "configmaps", "configmaps"),
    ("v1", "Endpoints", "endpoints", "services/endpoints"),
    ("v1", "Event", "events", "events"),
    ("v1", "LimitRange", "limitranges", "limitranges"),
    ("v1", "Namespace", "namespaces", "namespaces"),
    ("v1", "Node", "nodes", "minions"),
    ("v1", "PersistentVolume", "persistentvolumes", "persistentvolumes"),
    (
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        "persistentvolumeclaims",
    ),
    ("v1", "Pod", "pods", "pods"),
    ("v1", "PodTemplate", "podtemplates", "podtemplates"),
    ("v1", "ReplicationController", "replicationcontrollers", "controllers"),
    ("v1", "ResourceQuota", "resourcequotas", "resourcequotas"),
    ("v1", "Secret", "secrets", "secrets"),
    ("v1", "Service", "services", "services/specs"),
    ("v1", "ServiceAccount", "serviceaccounts", "serviceaccounts"),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicies",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybindings",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "validatingadmissionpolicies",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybindings",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ),
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "apiextensions.k8s.io/customresourcedefinitions",
    ),
    (
        "apps/v1",
        "ControllerRevision",
        "controllerrevisions",
        "controllerrevisions",
    ),
    ("apps/v1", "DaemonSet", "daemonsets", "daemonsets"),
    ("apps/v1", "Deployment", "deployments", "deployments"),
    ("apps/v1", "ReplicaSet", "replicasets", "replicasets"),
    ("apps/v1", "StatefulSet", "statefulsets", "statefulsets"),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscalers",
    ),
    ("batch/v1", "CronJob", "cronjobs", "cronjobs"),
    ("batch/v1", "Job", "jobs", "jobs"),
    (
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "certificatesigningrequests",
    ),
    ("coordination.k8s.io/v1", "Lease", "leases", "leases"),
    (
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "endpointslices",
        "endpointslices",
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        "FlowSchema",
        "flowschemas",
        "flowschemas",
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        "prioritylevelconfigurations",
    ),
    ("networking.k8s.io/v1", "IPAddress", "ipaddresses", "ipaddresses"),
    ("networking.k8s.io/v1", "Ingress", "ingresses", "ingress"),
    (
        "networking.k8s.io/v1",
        "IngressClass",
        "ingressclasses",
        "ingressclasses",
    ),
    (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "networkpolicies",
        "networkpolicies",
    ),
    ("networking.k8s.io/v1", "ServiceCIDR", "servicecidrs", "servicecidrs"),
    ("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", "runtimeclasses"),
    (
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "poddisruptionbudgets",
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "clusterroles",
        "clusterroles",
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        "clusterrolebindings",
    ),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", "roles"),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "rolebindings",
        "rolebindings",
    ),
    ("resource.k8s.io/v1", "DeviceClass", "deviceclasses", "deviceclasses"),
    (
        "resource.k8s.io/v1",
        "ResourceClaim",
        "resourceclaims",
        "resourceclaims",
    ),
    (
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        "resourceclaimtemplates",
    ),
    (
        "resource.k8s.io/v1",
        "ResourceSlice",
        "resourceslices",
        "resourceslices",
    ),
    (
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "priorityclasses",
        "priorityclasses",
    ),
    ("storage.k8s.io/v1", "CSIDriver", "csidrivers", "csidrivers"),
    ("storage.k8s.io/v1", "CSINode", "csinodes", "csinodes"),
    (
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        "csistoragecapacities",
        "csistoragecapacities",
    ),
    ("storage.k8s.io/v1", "StorageClass", "storageclasses", "storageclasses"),
    (
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "volumeattachments",
        "volumeattachments",
    ),
    (
        "storage.k8s.io/v1",
        "VolumeAttributesClass",
        "volumeattributesclasses",
        "volumeattributesclasses",
    ),
];

/// The text a key holds.
pub(super) async fn text(server: &ApiServer, key: &str) -> String {
    let (_, records) = server.store().range(key).await.unwrap();
    let record = records.into_iter().find(|record| &*record.key == key);
    String::from_utf8(record.unwrap_or_else(|| panic!("nothing at {key}")).value.to_vec()).unwrap()
}

/// Each kind is put where upstream has it, as something that waits for its end; what its deletion writes is the server's.
#[tokio::test(start_paused = true)]
async fn every_kind_is_written_to_upstreams_key_and_says_what_it_is() {
    let server = server().await;
    let stored = Registry::built_in().kinds().filter(|kind| kind.is_stored());
    let mut others: BTreeSet<_> = stored
        .filter(|kind| kind.conversion.is_none())
        .map(|kind| (kind.api_version.to_string(), kind.kind.to_string()))
        .collect();
    for (api_version, kind, plural, prefix) in PLACES {
        assert!(
            others.remove(&((*api_version).to_owned(), (*kind).to_owned())),
            "{kind}"
        );
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = Registry::built_in().by_resource(group, version, plural).unwrap();
        let root = if group.is_empty() { "/api" } else { "/apis" };
        let (key, path) = match found.namespaced {
            true => (
                format!("/registry/{prefix}/a/probe"),
                format!("{root}/{api_version}/namespaces/a/{plural}/probe"),
            ),
            false => (
                format!("/registry/{prefix}/probe"),
                format!("{root}/{api_version}/{plural}/probe"),
            ),
        };
        let mut object = json!({"kind": kind, "apiVersion": api_version, "spec": {}, "metadata": {"name": "probe", "uid": "u",
            "finalizers": ["example.com/hold"]}});
        if found.namespaced {
            object["metadata"]["namespace"] = json!("a");
        }
        let before = server
            .store()
            .put(&key, object.to_string().into(), Expect::Absent)
            .await
            .unwrap();
        let read = get(&server, &path).await;
        assert_eq!(
            (read.code, &read.body["kind"], &read.body["apiVersion"]),
            (200, &json!(kind), &json!(api_version))
        );
        let revision: u64 = read.body["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        // Definitions have their status written.
        assert!(revision == before || *kind == "CustomResourceDefinition");
        let ended = delete(&server, &path).await;
        assert!(matches!(ended.code, 200 | 202), "{path}: {}", ended.body);
        let text = text(&server, &key).await;
        let head = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"#);
        assert!(text.starts_with(&head) && text.contains("deletionTimestamp"), "{text}");
        assert!(
            !text.contains("resourceVersion") && !text.contains("selfLink"),
            "{text}"
        );
    }
    assert!(others.is_empty(), "no place is known for {others:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_in_another_version_is_stored_in_one() {
    let server = server().await;
    let scaler = json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}});
    let scalers = |version: &str| format!("/apis/autoscaling/{version}/namespaces/a/horizontalpodautoscalers");
    assert_eq!(post(&server, &scalers("v1"), &scaler).await.code, 201);
    let text = text(&server, "/registry/horizontalpodautoscalers/a/h").await;
    assert!(
        text.starts_with(r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","#),
        "{text}"
    );
    for version in ["v1", "v2"] {
        let read = get(&server, &format!("{}/h", scalers(version))).await.body;
        assert_eq!(read["apiVersion"], format!("autoscaling/{version}"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_belong_under_its_key_is_an_error_that_names_it() {
    let server = server().await;
    assert_eq!(
        post(&server, MAPS, &config_map("good", json!({"k": "v"}))).await.code,
        201
    );
    let key = "/registry/configmaps/a/bad";
    let secret = r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"bad","namespace":"a"}}"#;
    server.store().put(key, secret.into(), Expect::Absent).await.unwrap();
    let message = "Internal error occurred: /registry/configmaps/a/bad holds v1 Secret, where v1 ConfigMap belongs";
    let one = format!("{MAPS}/bad");
    for path in [one.as_str(), MAPS, "/api/v1/configmaps"] {
        let reply = get(&server, path).await;
        assert_eq!((reply.code, &reply.body["message"]), (500, &json!(message)), "{path}");
    }
    assert_eq!(delete(&server, &one).await.code, 500);
    assert_eq!(patch(&server, &one, "merge", &json!({"data": {}})).await.code, 500);
    assert_eq!(get(&server, &format!("{MAPS}/good")).await.code, 200);
    assert_eq!(get(&server, "/api/v1/namespaces/b/configmaps").await.code, 200);
    assert!(server.reader().get("", "configmaps", "a", "bad").is_none());
    assert_eq!(text(&server, key).await, secret, "it stays what it is");
}

/// Stores it as an old API server left it: nothing of what later ones fill in.
async fn left(server: &ApiServer, key: &str, object: &Value) {
    let put = server.store().put(key, object.to_string().into(), Expect::Absent);
    put.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_stored_before_there_was_a_default_is_not_changed_by_it() {
    let server = server().await;
    let uid = "44444444-4444-4444-4444-444444444444";
    let labels = json!({"controller-uid": uid, "job-name": "old"});
    let owners = json!([{"manager": "old", "operation": "Update", "apiVersion": "batch/v1", "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:parallelism": {}}}}]);
    let job = json!({"kind": "Job", "apiVersion": "batch/v1",
        "metadata": {"name": "old", "namespace": "a", "uid": uid, "generation": 1, "creationTimestamp": "2020-01-01T00:00:00Z",
            "managedFields": owners},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "selector": {"matchLabels": {"controller-uid": uid}},
            "template": {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "busybox"}]}}}});
    left(&server, "/registry/jobs/a/old", &job).await;
    let path = "/apis/batch/v1/namespaces/a/jobs/old";
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let reply = patch(&server, path, "merge", &label).await;
    assert_eq!(reply.code, 200, "{}", reply.body);
    assert_eq!(reply.body["metadata"]["generation"], 1);
    let read = get(&server, path).await.body;
    assert_eq!(
        read["spec"]["template"]["spec"]["containers"][0]["terminationMessagePolicy"],
        "File"
    );
    let owned = read["metadata"]["managedFields"].as_array().unwrap();
    let owned: Vec<&Value> = owned.iter().map(|entry| &entry["fieldsV1"]).collect();
    let expected = [
        json!({"f:spec": {"f:parallelism": {}}}),
        json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}),
    ];
    assert_eq!(
        owned,
        expected.iter().collect::<Vec<_>>(),
        "whoever sets a label owns no defaults"
    );
    // What is another one is still refused.
    let other = json!({"spec": {"template": {"spec": {"schedulerName": "another"}}}});
    assert_eq!(patch(&server, path, "merge", &other).await.code, 422);
    // Also of kinds without a spec.
    let class = json!({"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "provisioner": "example.com/p",
        "metadata": {"name": "old", "uid": uid, "creationTimestamp": "2020-01-01T00:00:00Z"}});
    left(&server, "/registry/storageclasses/old", &class).await;
    let path = "/apis/storage.k8s.io/v1/storageclasses/old";
    let reply = patch(&server, path, "merge", &label).await;
    assert_eq!(
        (reply.code, &reply.body["reclaimPolicy"]),
        (200, &json!("Delete")),
        "{}",
        reply.body
    );
    assert_eq!(
        patch(&server, path, "merge", &json!({"reclaimPolicy": "Retain"}))
            .await
            .code,
        422
    );
}
