//! One object of many kinds, as upstream stores them: found under upstream's key, read whole, changed, and written with nothing lost.
//!
//! What a newer upstream has added to a kind, a field of a number that the tables do not have, is left out when it is read, as by an
//! older API server of upstream's (its messages keep no unknown fields), and goes with the next write.

use super::*;

/// An object: its key below `/registry/`, its path below the server's root, its bytes, and what a reader finds at least.
struct Sample {
    key: &'static str,
    path: &'static str,
    stored: Bytes,
    found: Value,
}

const UID: &str = "55555555-5555-5555-5555-555555555555";

/// ObjectMeta of an object without a namespace.
fn global(name: &str) -> Vec<u8> {
    [text(1, name), text(3, ""), text(5, UID)].concat()
}

/// An entry of a map of Quantity{1 string}.
fn quantity(name: &str, value: &str) -> Vec<u8> {
    [text(1, name), field(2, &text(1, value))].concat()
}

/// MicroTime{1 seconds, 2 nanos} of 2025-06-15T00:00:00.000002Z.
fn micro_time() -> Vec<u8> {
    [&[0x08, 0x80, 0x9a, 0xb8, 0xc2, 0x06][..], &number(2, 2000)].concat()
}

/// LabelSelector{1 matchLabels{1, 2}}.
fn selector(app: &str) -> Vec<u8> {
    field(1, &[text(1, "app"), text(2, app)].concat())
}

/// PodTemplateSpec{1 metadata{11 labels{1, 2}}, 2 spec{2 containers{1, 2, 13, 14, 20}, 3 restartPolicy,
/// 4 terminationGracePeriodSeconds, 6 dnsPolicy, 14 securityContext, 19 schedulerName}}.
fn template(app: &str, restart: &str) -> Vec<u8> {
    let labels = field(11, &[text(1, "app"), text(2, app)].concat());
    let container = [
        text(1, "c"),
        text(2, "example.test/c:1"),
        text(13, "/dev/termination-log"),
        text(14, "Always"),
        text(20, "File"),
    ]
    .concat();
    let spec = [
        field(2, &container),
        text(3, restart),
        number(4, 30),
        text(6, "ClusterFirst"),
        field(14, b""),
        text(19, "default-scheduler"),
    ]
    .concat();
    [field(1, &labels), field(2, &spec)].concat()
}

fn found_template(app: &str, restart: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"restartPolicy": restart, "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "image": "example.test/c:1", "imagePullPolicy": "Always",
            "terminationMessagePolicy": "File", "terminationMessagePath": "/dev/termination-log"}]}})
}

fn of_namespaces() -> [Sample; 4] {
    // Secret{1 metadata, 2 data, 3 type}, and a field of a version to come.
    let data = [text(1, "key"), field(2, &[0, 255])].concat();
    let secret = [
        field(1, &metadata("s", UID)),
        field(2, &data),
        text(3, "Opaque"),
        text(15, "new"),
    ]
    .concat();
    // Lease{1 metadata, 2 spec{1 holderIdentity, 2 leaseDurationSeconds, 4 renewTime, 5 leaseTransitions}}.
    let spec = [text(1, "me"), number(2, 40), field(4, &micro_time()), number(5, 3)].concat();
    let lease = [field(1, &metadata("l", UID)), field(2, &spec)].concat();
    // Event{1 metadata, 2 involvedObject{1 kind, 2 namespace, 3 name}, 3 reason, 4 message, 5 source{1 component}, 8 count, 9 type}.
    let about = [text(1, "Pod"), text(2, "default"), text(3, "web")].concat();
    let event = [
        field(1, &metadata("e", UID)),
        field(2, &about),
        text(3, "Pulled"),
        text(4, "said"),
        field(5, &text(1, "kubelet")),
        number(8, 300),
        text(9, "Normal"),
    ]
    .concat();
    // PersistentVolumeClaim{1 metadata, 2 spec{1 accessModes, 2 resources{2 requests}, 3 volumeName, 5 storageClassName, 6 volumeMode}}.
    let spec = [
        text(1, "ReadWriteOnce"),
        field(2, &field(2, &quantity("storage", "1Gi"))),
        text(3, "pv"),
        text(5, "slow"),
        text(6, "Filesystem"),
    ]
    .concat();
    let claim = [field(1, &metadata("c", UID)), field(2, &spec)].concat();
    [
        Sample {
            key: "secrets/default/s",
            path: "api/v1/namespaces/default/secrets/s",
            stored: stored("v1", "Secret", &secret),
            found: json!({"data": {"key": "AP8="}, "type": "Opaque"}),
        },
        Sample {
            key: "leases/default/l",
            path: "apis/coordination.k8s.io/v1/namespaces/default/leases/l",
            stored: stored("coordination.k8s.io/v1", "Lease", &lease),
            found: json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 40, "leaseTransitions": 3,
                "renewTime": "2025-06-15T00:00:00.000002Z"}}),
        },
        Sample {
            key: "events/default/e",
            path: "api/v1/namespaces/default/events/e",
            stored: stored("v1", "Event", &event),
            found: json!({"involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"}, "reason": "Pulled",
                "message": "said", "source": {"component": "kubelet"}, "count": 300, "type": "Normal"}),
        },
        Sample {
            key: "persistentvolumeclaims/default/c",
            path: "api/v1/namespaces/default/persistentvolumeclaims/c",
            stored: stored("v1", "PersistentVolumeClaim", &claim),
            found: json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": "pv", "storageClassName": "slow", "volumeMode": "Filesystem"}}),
        },
    ]
}

fn of_clusters() -> [Sample; 3] {
    // Node{1 metadata, 2 spec{1 podCIDR, 7 podCIDRs}, 3 status{1 capacity, 4 conditions{1 type, 2 status, 5 reason}}}.
    let condition = [text(1, "Ready"), text(2, "True"), text(5, "KubeletReady")].concat();
    let node = [
        field(1, &global("n9")),
        field(2, &[text(1, "10.9.0.0/24"), text(7, "10.9.0.0/24")].concat()),
        field(3, &[field(1, &quantity("cpu", "2")), field(4, &condition)].concat()),
    ]
    .concat();
    // ClusterRole{1 metadata, 2 rules{1 verbs, 2 apiGroups, 3 resources}}.
    let rule = [text(1, "get"), text(1, "list"), text(2, ""), text(3, "pods")].concat();
    let role = [field(1, &global("reader")), field(2, &rule)].concat();
    // PersistentVolume{1 metadata, 2 spec{1 capacity, 2 source{3 hostPath{1 path, 2 type}}, 3 accessModes, 5 reclaimPolicy,
    // 6 storageClassName, 8 volumeMode}}.
    let spec = [
        field(1, &quantity("storage", "1Gi")),
        field(2, &field(3, &[text(1, "/srv"), text(2, "")].concat())),
        text(3, "ReadWriteOnce"),
        text(5, "Retain"),
        text(6, "slow"),
        text(8, "Filesystem"),
    ]
    .concat();
    let volume = [field(1, &global("pv")), field(2, &spec)].concat();
    [
        Sample {
            key: "minions/n9",
            path: "api/v1/nodes/n9",
            stored: stored("v1", "Node", &node),
            found: json!({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}, "status": {"capacity": {"cpu": "2"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}),
        },
        Sample {
            key: "clusterroles/reader",
            path: "apis/rbac.authorization.k8s.io/v1/clusterroles/reader",
            stored: stored("rbac.authorization.k8s.io/v1", "ClusterRole", &role),
            found: json!({"rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]}),
        },
        Sample {
            key: "persistentvolumes/pv",
            path: "api/v1/persistentvolumes/pv",
            stored: stored("v1", "PersistentVolume", &volume),
            found: json!({"spec": {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/srv"}, "storageClassName": "slow",
                "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}}),
        },
    ]
}

fn of_workloads() -> [Sample; 3] {
    let object = |name: &str, spec: &[Vec<u8>]| [field(1, &metadata(name, UID)), field(2, &spec.concat())].concat();
    // DeploymentSpec{1 replicas, 2 selector, 3 template, 4 strategy{1 type}, 6 revisionHistoryLimit, 9 progressDeadlineSeconds}.
    let deployment = [
        number(1, 3),
        field(2, &selector("d")),
        field(3, &template("d", "Always")),
        field(4, &text(1, "Recreate")),
        number(6, 10),
        number(9, 600),
    ];
    // StatefulSetSpec{1 replicas, 2 selector, 3 template, 5 serviceName, 6 podManagementPolicy, 7 updateStrategy{1 type}, 8 limit}.
    let set = [
        number(1, 2),
        field(2, &selector("t")),
        field(3, &template("t", "Always")),
        text(5, "svc"),
        text(6, "Parallel"),
        field(7, &text(1, "OnDelete")),
        number(8, 10),
    ];
    // JobSpec{1 parallelism, 2 completions, 4 selector, 6 template, 7 backoffLimit, 9 completionMode, 10 suspend, 14 replacement}.
    let job = [
        number(1, 1),
        number(2, 5),
        field(4, &selector("j")),
        field(6, &template("j", "Never")),
        number(7, 6),
        text(9, "NonIndexed"),
        number(10, 1),
        text(14, "TerminatingOrFailed"),
    ];
    [
        Sample {
            key: "deployments/default/d",
            path: "apis/apps/v1/namespaces/default/deployments/d",
            stored: stored("apps/v1", "Deployment", &object("d", &deployment)),
            found: json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"app": "d"}}, "strategy": {"type": "Recreate"},
                "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "template": found_template("d", "Always")}}),
        },
        Sample {
            key: "statefulsets/default/t",
            path: "apis/apps/v1/namespaces/default/statefulsets/t",
            stored: stored("apps/v1", "StatefulSet", &object("t", &set)),
            found: json!({"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "t"}}, "serviceName": "svc",
                "podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}, "template": found_template("t", "Always")}}),
        },
        Sample {
            key: "jobs/default/j",
            path: "apis/batch/v1/namespaces/default/jobs/j",
            stored: stored("batch/v1", "Job", &object("j", &job)),
            found: json!({"spec": {"parallelism": 1, "completions": 5, "selector": {"matchLabels": {"app": "j"}}, "backoffLimit": 6,
                "completionMode": "NonIndexed", "suspend": true, "podReplacementPolicy": "TerminatingOrFailed",
                "template": found_template("j", "Never")}}),
        },
    ]
}

/// A definition and an object of it, which upstream stores as JSON.
fn custom() -> [Sample; 2] {
    let names = json!({"plural": "lions", "singular": "lion", "kind": "Lion", "listKind": "LionList"});
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2025-06-15T00:00:00Z"});
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let spec = json!({"group": "zoo.example", "scope": "Namespaced", "names": names, "conversion": {"strategy": "None"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]});
    let status = json!({"acceptedNames": names, "storedVersions": ["v1"], "conditions": [condition("NamesAccepted"), condition("Established")]});
    let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "lions.zoo.example", "uid": UID, "creationTimestamp": "2025-06-15T00:00:00Z", "generation": 1},
        "spec": spec, "status": status});
    let lion = json!({"apiVersion": "zoo.example/v1", "kind": "Lion", "metadata": {"name": "leo", "namespace": "default", "uid": UID,
        "creationTimestamp": "2025-06-15T00:00:00Z", "generation": 1}, "spec": {"roars": 3, "of": {"any": [1, "two", null]}}});
    [
        Sample {
            key: "apiextensions.k8s.io/customresourcedefinitions/lions.zoo.example",
            path: "apis/apiextensions.k8s.io/v1/customresourcedefinitions/lions.zoo.example",
            stored: Bytes::from(definition.to_string()),
            found: json!({"spec": spec, "status": {"storedVersions": ["v1"]}}),
        },
        Sample {
            key: "zoo.example/lions/default/leo",
            path: "apis/zoo.example/v1/namespaces/default/lions/leo",
            stored: Bytes::from(lion.to_string()),
            found: json!({"spec": lion["spec"]}),
        },
    ]
}

/// Whether all of `part` is in `whole`.
fn has(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(name, part)| whole.get(name).is_some_and(|whole| has(whole, part))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| has(whole, part))
        }
        _ => whole == part,
    }
}

#[tokio::test(start_paused = true)]
async fn objects_of_many_kinds_are_read_whole_and_written_with_nothing_lost() {
    let memory = Arc::new(Memory::new());
    let namespace = stored("v1", "Namespace", &field(1, &text(1, "default")));
    put(&memory, "/registry/namespaces/default", namespace).await;
    let mut samples: Vec<Sample> = of_namespaces().into();
    samples.extend(of_clusters());
    samples.extend(of_workloads());
    samples.extend(custom());
    for sample in &samples {
        put(&memory, &format!("/registry/{}", sample.key), sample.stored.clone()).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Readable::over(Arc::clone(&memory), read_protobuf));
    let daemon = embedded_with(dir.path(), &store, &["--components=apiserver"]).await;
    for Sample { key, path, found, .. } in &samples {
        let path = format!("/{path}");
        let (code, read) = send(&daemon, "GET", &path, &Value::Null).await;
        assert!(code == 200 && has(&read, found), "{key}: {code} {read}");
        assert_eq!(read["metadata"]["uid"], UID, "{key}");
        let change =
            json!({"metadata": {"labels": {"changed": "yes"}, "resourceVersion": read["metadata"]["resourceVersion"]}});
        let (code, changed) = send(&daemon, "PATCH", &path, &change).await;
        assert!(code == 200 && has(&changed, found), "{key}: {code} {changed}");
        let record = memory.get(&format!("/registry/{key}")).await.unwrap().unwrap();
        let written: Value =
            serde_json::from_slice(&record.value).expect("JSON says itself what it is, and upstream reads it");
        assert!(has(&written, found), "{key}: {written}");
        assert_eq!(
            (&written["kind"], &written["apiVersion"], &written["metadata"]["uid"]),
            (&read["kind"], &read["apiVersion"], &json!(UID)),
            "{key}"
        );
        assert_eq!(written["metadata"]["labels"]["changed"], "yes", "{key}");
        assert!(!written.to_string().contains("\"new\""), "{key}");
    }
    daemon.stop().await;
}
