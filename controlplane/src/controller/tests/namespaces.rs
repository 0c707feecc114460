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
