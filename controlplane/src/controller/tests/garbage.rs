use super::*;
use crate::controller::garbage::REDISCOVERY;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn count(list: &Value) -> usize {
    list["items"].as_array().map_or(usize::MAX, Vec::len)
}

async fn deployed() -> World {
    let world = World::start(1).await;
    world.deploy("web", 2, "nginx").await;
    world
        .until(PODS, |p| count(p) == 2 && p["items"][1]["status"]["phase"] == "Running")
        .await;
    world
}

async fn delete(world: &World, policy: &str) {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    world
        .call("DELETE", &format!("{DEPLOYMENTS}/web"), Some(options))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn background_deletion_takes_everything_along() {
    let world = deployed().await;
    delete(&world, "Background").await;
    world.until(PODS, |p| count(p) == 0).await;
    world.until(SETS, |s| count(s) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_ends_with_the_owner() {
    let world = deployed().await;
    delete(&world, "Foreground").await;
    let path = format!("{DEPLOYMENTS}/web");
    let waiting = world.get(&path).await.unwrap();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    world.until(&path, Value::is_null).await;
    assert_eq!(
        (
            count(&world.get(SETS).await.unwrap()),
            count(&world.get(PODS).await.unwrap())
        ),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn orphaning_leaves_the_dependents_running() {
    let world = deployed().await;
    delete(&world, "Orphan").await;
    world.until(&format!("{DEPLOYMENTS}/web"), Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let sets = world.items(SETS).await;
    assert_eq!((sets.len(), &sets[0]["metadata"]["ownerReferences"]), (1, &Value::Null));
    assert_eq!(world.items(PODS).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_made_for_an_owner_that_is_gone_goes() {
    let world = World::start(0).await;
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "late", "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "2f0c9a3e-0000-4000-8000-000000000000"}]}});
    world.create("/api/v1/namespaces/default/configmaps", map).await;
    world
        .until("/api/v1/namespaces/default/configmaps/late", Value::is_null)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_waits_until_all_that_may_depend_is_listed() {
    let collector = User::service_account("kube-system", "generic-garbage-collector").name;
    let denied = Denied::new(Mutex::new(vec![(collector, "secrets")]));
    let world = World::start_denying(0, denied.clone()).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "owner"}});
    let owner = world.create(maps, owner).await;
    let uid = &owner["metadata"]["uid"];
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "kept", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]}});
    world.create("/api/v1/namespaces/default/secrets", secret).await;
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"});
    let path = format!("{maps}/owner");
    world.call("DELETE", &path, Some(options)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let waiting = world.get(&path).await.expect("nobody knows yet what depends on it");
    assert_eq!(waiting["metadata"]["finalizers"], json!(["orphan"]));
    denied.lock().unwrap().clear();
    world.until(&path, Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let kept = world.get("/api/v1/namespaces/default/secrets/kept").await.unwrap();
    assert_eq!(kept["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn what_a_new_kind_owns_goes_with_it_at_once() {
    let world = World::start(0).await;
    let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "toys.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "toys", "kind": "Toy"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.create(definitions, definition).await;
    let established = |read: &Value| read["status"]["conditions"][1]["status"] == "True";
    world
        .until(&format!("{definitions}/toys.example.com"), established)
        .await;
    let toys = "/apis/example.com/v1/namespaces/default/toys";
    let toy = json!({"kind": "Toy", "apiVersion": "example.com/v1", "metadata": {"name": "owner"}});
    let owner = world.create(toys, toy).await;
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "owned", "ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Toy", "name": "owner", "uid": owner["metadata"]["uid"]}]}});
    world.create("/api/v1/namespaces/default/configmaps", map).await;
    let begun = tokio::time::Instant::now();
    world.call("DELETE", &format!("{toys}/owner"), None).await.unwrap();
    world
        .until("/api/v1/namespaces/default/configmaps/owned", Value::is_null)
        .await;
    assert!(begun.elapsed() < REDISCOVERY / 2, "{:?}", begun.elapsed());
}
