//! Custom resources among controllers and roles.

use super::*;

const LIONS: &str = "/apis/zoo.example/v1/namespaces/a/lions";

/// A namespace `a`, and lions.
async fn zoo() -> World {
    let world = World::start(0).await;
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}});
    world.create("/api/v1/namespaces", namespace).await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "lions.zoo.example"}, "spec": {"group": "zoo.example", "scope": "Namespaced",
            "names": {"plural": "lions", "kind": "Lion", "shortNames": ["li"], "categories": ["all"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    world
        .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        .await;
    world.until(LIONS, Value::is_object).await;
    world
}

fn lion(name: &str) -> Value {
    json!({"kind": "Lion", "apiVersion": "zoo.example/v1", "metadata": {"name": name}})
}

fn owned_by(mut object: Value, owner: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]);
    object
}

#[tokio::test(start_paused = true)]
async fn a_namespace_takes_its_custom_resources_along() {
    let world = zoo().await;
    let mut held = lion("held");
    held["metadata"]["finalizers"] = json!(["zoo.example/keeper"]);
    world.create(LIONS, held).await;
    world.create(LIONS, lion("leo")).await;
    world.call("DELETE", "/api/v1/namespaces/a", None).await.unwrap();
    let held = format!("{LIONS}/held");
    world
        .until(&held, |lion| !lion["metadata"]["deletionTimestamp"].is_null())
        .await;
    world.until(&format!("{LIONS}/leo"), Value::is_null).await;
    assert!(
        world.get("/api/v1/namespaces/a").await.is_some(),
        "it waits for the keeper"
    );
    world.patch(&held, json!({"metadata": {"finalizers": null}})).await;
    world.until("/api/v1/namespaces/a", Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn owners_and_what_they_own_may_be_custom() {
    let world = zoo().await;
    let maps = "/api/v1/namespaces/a/configmaps";
    let map = |name: &str| json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}});
    let leo = world.create(LIONS, lion("leo")).await;
    world.create(maps, owned_by(map("mane"), &leo)).await;
    let cub = world.create(LIONS, owned_by(lion("cub"), &leo)).await;
    let cave = world.create(maps, owned_by(map("cave"), &cub)).await;
    let bat = world.create(LIONS, owned_by(lion("bat"), &cave)).await;
    assert_eq!(bat["kind"], "Lion");
    // The collector has found the new kind by then.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    world
        .call("DELETE", &format!("{LIONS}/leo"), Some(options))
        .await
        .unwrap();
    for gone in [
        format!("{maps}/mane"),
        format!("{LIONS}/cub"),
        format!("{maps}/cave"),
        format!("{LIONS}/bat"),
    ] {
        world.until(&gone, Value::is_null).await;
    }
    let root = world.create(maps, map("root")).await;
    world.create(LIONS, owned_by(lion("dependent"), &root)).await;
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"});
    world
        .call("DELETE", &format!("{maps}/root"), Some(options))
        .await
        .unwrap();
    world.until(&format!("{maps}/root"), Value::is_null).await;
    assert!(world.get(&format!("{LIONS}/dependent")).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn roles_name_custom_resources() {
    let world = zoo().await;
    let keeper = world.server.client_as(User::named("keeper", &["system:authenticated"]));
    let made = call(&keeper, "POST", LIONS, Some(lion("leo"))).await;
    assert!(matches!(made, Err(kube::Error::Api(status)) if status.code == 403));
    let rules = json!([{"apiGroups": ["zoo.example"], "resources": ["lions"], "verbs": ["create", "get"]}]);
    let role = json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "keeper"}, "rules": rules});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/a";
    world.create(&format!("{roles}/roles"), role).await;
    let binding = json!({"kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "keeper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "keeper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "keeper"}]});
    world.create(&format!("{roles}/rolebindings"), binding).await;
    call(&keeper, "POST", LIONS, Some(lion("leo"))).await.unwrap();
    let leo = format!("{LIONS}/leo");
    assert_eq!(call(&keeper, "GET", &leo, None).await.unwrap()["kind"], "Lion");
    for (method, path) in [
        ("DELETE", &*leo),
        ("GET", LIONS),
        ("GET", "/apis/zoo.example/v1/namespaces/b/lions/leo"),
    ] {
        let refused = call(&keeper, method, path, None).await;
        assert!(
            matches!(refused, Err(kube::Error::Api(status)) if status.code == 403),
            "{method} {path}"
        );
    }
    world.refused.lock().unwrap().clear();
}

#[tokio::test(start_paused = true)]
async fn what_custom_resources_own_goes_with_their_definition() {
    let world = zoo().await;
    let leo = world.create(LIONS, lion("leo")).await;
    let maps = "/api/v1/namespaces/a/configmaps";
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "mane"}});
    world.create(maps, owned_by(map, &leo)).await;
    // The collector follows the lions by then.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/lions.zoo.example";
    world.call("DELETE", definition, None).await.unwrap();
    world.until(definition, Value::is_null).await;
    world.until(&format!("{maps}/mane"), Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn resources_of_another_than_their_groups_preferred_version_are_found_too() {
    let world = zoo().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "bears.zoo.example"}, "spec": {"group": "zoo.example", "scope": "Namespaced",
            "names": {"plural": "bears", "kind": "Bear"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.create(definitions, definition).await;
    let bears = "/apis/zoo.example/v1beta1/namespaces/a/bears";
    world.until(bears, Value::is_object).await;
    let bear = json!({"kind": "Bear", "apiVersion": "zoo.example/v1beta1", "metadata": {"name": "bruno"}});
    world.create(bears, bear).await;
    world.call("DELETE", "/api/v1/namespaces/a", None).await.unwrap();
    world.until("/api/v1/namespaces/a", Value::is_null).await;
    assert_eq!(world.items(bears).await, Vec::<Value>::new());
}
