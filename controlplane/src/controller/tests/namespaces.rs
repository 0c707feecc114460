use super::*;

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_its_account_and_certificate_and_keeps_them() {
    let world = World::start(0).await;
    world
        .create(
            "/api/v1/namespaces",
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}}),
        )
        .await;
    let account = "/api/v1/namespaces/a/serviceaccounts/default";
    let map = "/api/v1/namespaces/a/configmaps/kube-root-ca.crt";
    world.until(account, Value::is_object).await;
    world.until(map, |m| m["data"]["ca.crt"] == "PEM").await;
    world.call("DELETE", account, None).await.unwrap();
    world.until(account, Value::is_object).await;
    world.patch(map, json!({"data": {"ca.crt": "edited"}})).await;
    world.until(map, |m| m["data"]["ca.crt"] == "PEM").await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_its_content_pods_first() {
    let world = World::start(1).await;
    world
        .create(
            "/api/v1/namespaces",
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}}),
        )
        .await;
    world
        .create("/apis/apps/v1/namespaces/a/deployments", deployment("web", 2, "nginx"))
        .await;
    let pods = "/api/v1/namespaces/a/pods";
    world
        .until(pods, |p| p["items"].as_array().is_some_and(|i| i.len() == 2))
        .await;
    let held = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    world.create("/api/v1/namespaces/a/configmaps", held).await;
    world.call("DELETE", "/api/v1/namespaces/a", None).await.unwrap();
    let remaining = |n: &Value| {
        let conditions = n["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .into_iter()
            .find(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")
            .unwrap_or_default()
    };
    let namespace = world.until("/api/v1/namespaces/a", |n| !remaining(n).is_null()).await;
    assert_eq!(
        remaining(&namespace)["message"],
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    world
        .patch(
            "/api/v1/namespaces/a/configmaps/held",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    world.until("/api/v1/namespaces/a", Value::is_null).await;
    for path in [
        pods,
        "/apis/apps/v1/namespaces/a/deployments",
        "/apis/apps/v1/namespaces/a/replicasets",
    ] {
        assert_eq!(world.items(path).await, Vec::<Value>::new(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_namespace_is_told_another_root_ca_without_a_restart() {
    let world = World::start(0).await;
    for text in ["PEM", "another"] {
        world.root_ca_pem.send_replace(text.to_owned());
        for namespace in ["default", "kube-system"] {
            let map = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
            world.until(&map, |map| map["data"]["ca.crt"] == text).await;
        }
    }
}

fn condition(namespace: &Value, kind: &str) -> Value {
    let conditions = namespace["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == kind);
    found.cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn nothing_else_goes_before_the_last_pod() {
    let world = World::start(1).await;
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}});
    world.create("/api/v1/namespaces", namespace).await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "kept", "labels": {"stuck": "yes"}, "finalizers": ["example.com/hold"]},
        "spec": {"nodeName": "n0", "containers": [{"name": "c", "image": "nginx"}]}});
    world.create("/api/v1/namespaces/a/pods", pod).await;
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "needed"}});
    world.create("/api/v1/namespaces/a/configmaps", map).await;
    world.call("DELETE", "/api/v1/namespaces/a", None).await.unwrap();
    let remaining = |namespace: &Value| condition(namespace, "NamespaceContentRemaining")["status"] == "True";
    let going = world.until("/api/v1/namespaces/a", remaining).await;
    assert_eq!(
        condition(&going, "NamespaceContentRemaining")["message"],
        "Some resources are remaining: pods. has 1 resource instances"
    );
    tokio::time::sleep(Duration::from_secs(120)).await;
    let needed = world.get("/api/v1/namespaces/a/configmaps/needed").await.unwrap();
    assert_eq!(needed["metadata"]["deletionTimestamp"], Value::Null);
    let kept = "/api/v1/namespaces/a/pods/kept";
    let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    world.call("DELETE", kept, Some(now)).await.unwrap();
    world.patch(kept, json!({"metadata": {"finalizers": null}})).await;
    world.until("/api/v1/namespaces/a", Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_deleted_is_told_and_tried_again() {
    let controller = User::service_account("kube-system", "namespace-controller").name;
    let denied = Denied::new(Mutex::new(vec![(controller, "secrets")]));
    let world = World::start_denying(0, denied.clone()).await;
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}});
    world.create("/api/v1/namespaces", namespace).await;
    world.call("DELETE", "/api/v1/namespaces/a", None).await.unwrap();
    let failure = |namespace: &Value| condition(namespace, "NamespaceDeletionContentFailure");
    let failed = world
        .until("/api/v1/namespaces/a", |n| failure(n)["status"] == "True")
        .await;
    assert_eq!(failure(&failed)["reason"], "ContentDeletionFailed");
    let message = failure(&failed)["message"].to_string();
    assert!(
        message.contains("Failed to delete all resource types, 1 remaining: secrets is forbidden"),
        "{message}"
    );
    denied.lock().unwrap().clear();
    world.until("/api/v1/namespaces/a", Value::is_null).await;
}
