//! Goldens of what the plugins make of objects, and their refusals.

use super::*;
use crate::resource::Registry;
use crate::store::value::testing::as_stored;
use crate::store::window::Window;
use crate::store::{Expect, Store, memory::Memory};
use serde_json::json;

struct World {
    store: Arc<dyn Store>,
    _window: Window,
    reader: Reader,
    admission: Admission,
}

async fn world() -> World {
    world_with(AdmissionConfig::default()).await
}

async fn world_with(config: AdmissionConfig) -> World {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let window = Window::open(Arc::clone(&store)).await.unwrap();
    World {
        store,
        reader: Reader::new(&window),
        _window: window,
        admission: Admission::new(Arc::new(Authz::default()), "10.96.0.0/29".parse().unwrap(), config, 1),
    }
}

impl World {
    async fn put(&self, key: &str, value: Value) {
        let bytes = as_stored(key, &value);
        self.store.put(key, bytes, Expect::Absent).await.unwrap();
        self.reader.refresh().await.unwrap();
    }

    async fn namespace(&self, name: &str) {
        self.put(
            &format!("/registry/namespaces/{name}"),
            json!({"metadata": {"name": name}}),
        )
        .await;
    }

    async fn account(&self, extra: Value) {
        let mut account = json!({"metadata": {"name": "default"}});
        account
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        self.put("/registry/serviceaccounts/ns/default", account).await;
    }

    async fn admit(&self, operation: Operation, group: &str, resource: &str, object: Value) -> Result<Value, ApiError> {
        let kind = Registry::built_in().by_resource(group, "v1", resource).unwrap();
        let namespace = if kind.namespaced { "ns" } else { "" };
        let info = RequestInfo {
            is_resource: true,
            group: group.to_owned(),
            resource: resource.to_owned(),
            ..RequestInfo::default()
        };
        let name = object["metadata"]["name"].as_str().unwrap_or("x").to_owned();
        let user = User::named("alice", &[]);
        let attributes = Attributes {
            user: &user,
            info: &info,
            kind,
            operation,
            namespace,
            name: &name,
            dry_run: false,
        };
        let mut object = object;
        self.admission
            .mutate(&attributes, &mut object, None, &self.reader)
            .await?;
        self.admission
            .validate(&attributes, &object, None, &self.reader)
            .await?;
        Ok(object)
    }

    async fn create(&self, resource: &str, object: Value) -> Result<Value, ApiError> {
        self.admit(Operation::Create, "", resource, object).await
    }
}

fn pod() -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(start_paused = true)]
async fn a_plain_pod_gets_account_token_priority_and_tolerations() {
    let world = world().await;
    world.namespace("ns").await;
    world.account(json!({"imagePullSecrets": [{"name": "registry"}]})).await;
    let pod = world.create("pods", pod()).await.unwrap();
    let name = pod["spec"]["volumes"][0]["name"].as_str().unwrap().to_owned();
    assert!(
        name.starts_with("kube-api-access-") && name.len() == "kube-api-access-".len() + 5,
        "{name}"
    );
    let expected = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i", "volumeMounts": [
            {"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}],
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "default", "serviceAccount": "default",
        "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        "volumes": [{"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}],
    }});
    assert_eq!(pod, expected);
}

#[tokio::test(start_paused = true)]
async fn automount_is_declined_by_account_and_the_pod_overrides_it() {
    let world = world().await;
    world.namespace("ns").await;
    world.account(json!({"automountServiceAccountToken": false})).await;
    assert!(
        world.create("pods", pod()).await.unwrap()["spec"]
            .get("volumes")
            .is_none()
    );
    let mut willing = pod();
    willing["spec"]["automountServiceAccountToken"] = json!(true);
    assert!(
        world.create("pods", willing).await.unwrap()["spec"]
            .get("volumes")
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn the_default_account_is_waited_for_and_others_are_not() {
    let world = world().await;
    world.namespace("ns").await;
    let (made, admitted) = tokio::join!(
        async {
            // As late as the most patient of upstream's would still see it.
            tokio::time::sleep(Duration::from_millis(1_790)).await;
            world.account(json!({})).await;
        },
        world.create("pods", pod())
    );
    let ((), pod_spec) = (made, admitted.unwrap());
    assert_eq!(pod_spec["spec"]["serviceAccountName"], "default");
    let mut other = pod();
    other["spec"]["serviceAccountName"] = json!("robot");
    let before = tokio::time::Instant::now();
    let error = world.create("pods", other).await.unwrap_err();
    assert_eq!(
        error.message,
        "pods \"p\" is forbidden: error looking up service account ns/robot: serviceaccount \"robot\" not found"
    );
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_default_account_is_not_waited_for_for_ever() {
    let world = world().await;
    world.namespace("ns").await;
    let before = tokio::time::Instant::now();
    let error = world.create("pods", pod()).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (
            403,
            "pods \"p\" is forbidden: error looking up service account ns/default: serviceaccount \"default\" not found"
        )
    );
    assert!((ACCOUNT_PATIENCE..ACCOUNT_PATIENCE + ACCOUNT_PAUSE).contains(&before.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn namespaces_must_be_there_and_stay() {
    let world = world().await;
    let error = world
        .create("configmaps", json!({"metadata": {"name": "c"}}))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (404, "namespaces \"ns\" not found")
    );
    world
        .put(
            "/registry/namespaces/ns",
            json!({"metadata": {"name": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        )
        .await;
    let error = world
        .create("configmaps", json!({"metadata": {"name": "c"}}))
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "configmaps \"c\" is forbidden: unable to create new content in namespace ns because it is being terminated"
    );
    assert_eq!(error.causes[0].kind, "NamespaceTerminating");
    let gone = json!({"metadata": {"name": "kube-system"}});
    let error = world
        .admit(Operation::Delete, "", "namespaces", gone)
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "namespaces \"kube-system\" is forbidden: this namespace may not be deleted"
    );
    let mine = json!({"metadata": {"name": "mine"}});
    assert!(world.admit(Operation::Delete, "", "namespaces", mine).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn priority_classes_become_numbers() {
    let world = world().await;
    world.namespace("ns").await;
    world.account(json!({})).await;
    let class = |name: &str, value: i64, default: bool| json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "Never"});
    world
        .put("/registry/priorityclasses/high", class("high", 7, false))
        .await;
    world
        .put("/registry/priorityclasses/usual", class("usual", 3, true))
        .await;
    let with = |spec: Value| {
        let mut pod = pod();
        pod["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        world.create("pods", pod)
    };
    let high = with(json!({"priorityClassName": "high"})).await.unwrap();
    assert_eq!(
        (&high["spec"]["priority"], &high["spec"]["preemptionPolicy"]),
        (&json!(7), &json!("Never"))
    );
    let usual = with(json!({})).await.unwrap();
    assert_eq!(
        (&usual["spec"]["priority"], &usual["spec"]["priorityClassName"]),
        (&json!(3), &json!("usual"))
    );
    let error = with(json!({"priorityClassName": "none"})).await.unwrap_err();
    assert_eq!(
        error.message,
        "pods \"p\" is forbidden: no PriorityClass with name none was found"
    );
    let error = with(json!({"priorityClassName": "high", "priority": 9}))
        .await
        .unwrap_err();
    assert!(
        error.message.contains("the integer value of priority (9)"),
        "{}",
        error.message
    );
    let second = world
        .admit(
            Operation::Create,
            "scheduling.k8s.io",
            "priorityclasses",
            class("second", 1, true),
        )
        .await;
    assert!(
        second
            .unwrap_err()
            .message
            .contains("PriorityClass usual is already marked as default")
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_is_known_to_the_pod_that_comes_right_after_it() {
    let world = world().await;
    world.namespace("ns").await;
    world.account(json!({})).await;
    let (key, class) = (
        "/registry/priorityclasses/new",
        json!({"metadata": {"name": "new"}, "value": 7}),
    );
    // Acknowledged, and the window has not heard of it.
    world
        .store
        .put(key, as_stored(key, &class), Expect::Absent)
        .await
        .unwrap();
    let mut pod = pod();
    pod["spec"]["priorityClassName"] = json!("new");
    assert_eq!(world.create("pods", pod).await.unwrap()["spec"]["priority"], 7);
}

#[tokio::test(start_paused = true)]
async fn new_nodes_are_tainted_and_own_tolerations_kept() {
    let world = world().await;
    let node = world.create("nodes", json!({"metadata": {"name": "n"}})).await.unwrap();
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    assert_eq!(world.create("nodes", node.clone()).await.unwrap(), node);
    let mut tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    toleration::add_defaults(&mut tolerant);
    assert_eq!(tolerant["spec"]["tolerations"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn mirror_pods_reach_for_no_secrets() {
    let world = world().await;
    world.namespace("ns").await;
    let mut mirror = pod();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    let admitted = world.create("pods", mirror.clone()).await.unwrap();
    assert!(admitted["spec"].get("volumes").is_none() && admitted["spec"].get("serviceAccountName").is_none());
    mirror["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": "s"}}]);
    assert_eq!(world.create("pods", mirror).await.unwrap_err().code, 403);
}

#[tokio::test(start_paused = true)]
async fn rights_not_held_cannot_be_granted() {
    let world = world().await;
    let role = json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    let error = world
        .admit(Operation::Create, RBAC, "clusterroles", role)
        .await
        .unwrap_err();
    assert!(
        error
            .message
            .contains("attempting to grant RBAC permissions not currently held"),
        "{}",
        error.message
    );
}

#[tokio::test(start_paused = true)]
async fn a_stored_service_keeps_its_address_and_blocks_it() {
    let world = world().await;
    world.namespace("ns").await;
    let stored = json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.5",
        "clusterIPs": ["10.96.0.5"], "ports": [{"port": 80}]}});
    world.put("/registry/services/specs/ns/s", stored.clone()).await;
    let mut other = json!({"metadata": {"name": "t"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}});
    assert_eq!(world.create("services", other.clone()).await.unwrap_err().code, 422);
    other["metadata"]["name"] = json!("s");
    other["spec"]["clusterIP"] = json!("");
    let kind = Registry::built_in().by_resource("", "v1", "services").unwrap();
    let (user, info) = (User::named("alice", &[]), RequestInfo::default());
    let attributes = Attributes {
        user: &user,
        info: &info,
        kind,
        operation: Operation::Update,
        namespace: "ns",
        name: "s",
        dry_run: false,
    };
    let mut update =
        json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": {"type": "ClusterIP", "ports": [{"port": 81}]}});
    world
        .admission
        .mutate(&attributes, &mut update, Some(&stored), &world.reader)
        .await
        .unwrap();
    assert_eq!(update["spec"]["clusterIP"], "10.96.0.5");
}

#[tokio::test(start_paused = true)]
async fn external_ips_are_allowed_unless_a_flag_denies_them() {
    let world = world().await;
    world.namespace("ns").await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]}});
    assert!(world.create("services", service).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn denied_new_external_ips_are_refused_and_old_ones_may_stay_or_go() {
    let world = world_with(AdmissionConfig {
        deny_service_external_ips: true,
        ..AdmissionConfig::default()
    })
    .await;
    world.namespace("ns").await;
    let service =
        |ips: Value| json!({"metadata": {"name": "s"}, "spec": {"externalIPs": ips, "ports": [{"port": 80}]}});
    let error = world
        .create("services", service(json!(["192.0.2.1"])))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (
            403,
            "services \"s\" is forbidden: Use of external IPs is denied by admission control"
        )
    );
    assert!(world.create("services", service(json!([]))).await.is_ok());
    let kind = Registry::built_in().by_resource("", "v1", "services").unwrap();
    let (user, info) = (User::named("alice", &[]), RequestInfo::default());
    let attributes = Attributes {
        user: &user,
        info: &info,
        kind,
        operation: Operation::Update,
        namespace: "ns",
        name: "s",
        dry_run: false,
    };
    let old = service(json!(["192.0.2.1", "192.0.2.2"]));
    for (ips, allowed) in [
        (json!(["192.0.2.2"]), true),
        (json!([]), true),
        (json!(["192.0.2.1", "192.0.2.2"]), true),
        (json!(["192.0.2.1", "192.0.2.3"]), false),
    ] {
        let judged = world
            .admission
            .validate(&attributes, &service(ips.clone()), Some(&old), &world.reader)
            .await;
        assert_eq!(judged.is_ok(), allowed, "{ips}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_class_brings_its_overhead_and_its_nodes() {
    let world = world().await;
    world.namespace("ns").await;
    world.account(json!({})).await;
    let of = |class: &str| {
        let mut pod = pod();
        pod["spec"]["runtimeClassName"] = json!(class);
        pod
    };
    let refused = |answer: Result<Value, ApiError>| answer.unwrap_err().message;
    assert_eq!(
        refused(world.create("pods", of("kata")).await),
        "pods \"p\" is forbidden: pod rejected: RuntimeClass \"kata\" not found"
    );
    let class = json!({"metadata": {"name": "kata"}, "handler": "kata",
        "overhead": {"podFixed": {"memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
    world.put("/registry/runtimeclasses/kata", class).await;
    world
        .put(
            "/registry/runtimeclasses/plain",
            json!({"metadata": {"name": "plain"}, "handler": "runc"}),
        )
        .await;
    let made = world.create("pods", of("kata")).await.unwrap();
    assert_eq!(made["spec"]["overhead"], json!({"memory": "64Mi"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"vm": "yes"}));
    assert_eq!(
        made["spec"]["tolerations"][2],
        json!({"key": "vm", "operator": "Exists"})
    );

    let mut same = of("kata");
    same["spec"]["overhead"] = json!({"memory": "65536Ki"});
    assert!(
        world.create("pods", same).await.is_ok(),
        "the same amount, written differently"
    );
    let mut other = of("kata");
    other["spec"]["overhead"] = json!({"memory": "1Mi"});
    assert!(
        refused(world.create("pods", other).await)
            .ends_with("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    );
    let mut selects = of("kata");
    selects["spec"]["nodeSelector"] = json!({"vm": "no"});
    assert!(
        refused(world.create("pods", selects).await)
            .ends_with("conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no")
    );
    for unfounded in [of("plain"), pod()] {
        let mut unfounded = unfounded;
        unfounded["spec"]["overhead"] = json!({"memory": "1Mi"});
        assert!(
            refused(world.create("pods", unfounded).await)
                .ends_with("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        );
    }
}
