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

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A config map owned by these, blocking them.
async fn owned(world: &World, namespace: &str, name: &str, owners: &[&Value]) -> Value {
    let references: Vec<Value> = owners.iter().map(|o| reference(o)).collect();
    let map =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "ownerReferences": references}});
    world
        .create(&format!("/api/v1/namespaces/{namespace}/configmaps"), map)
        .await
}

fn reference(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
}

async fn delete_map(world: &World, name: &str, policy: &str) {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    world
        .call("DELETE", &format!("{MAPS}/{name}"), Some(options))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_circle_goes_whichever_way_one_of_it_is_deleted() {
    let world = World::start(0).await;
    for policy in ["Background", "Foreground"] {
        let a = owned(&world, "default", "a", &[]).await;
        let b = owned(&world, "default", "b", &[&a]).await;
        let c = owned(&world, "default", "c", &[&b]).await;
        let back = json!({"metadata": {"ownerReferences": [reference(&c)]}});
        world.patch(&format!("{MAPS}/a"), back).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.get(&format!("{MAPS}/a")).await.unwrap()["metadata"]["name"], "a");
        delete_map(&world, "b", policy).await;
        for name in ["a", "b", "c"] {
            world.until(&format!("{MAPS}/{name}"), Value::is_null).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_another_namespace_is_none_and_that_is_told() {
    let world = World::start(0).await;
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "far"}});
    world.create("/api/v1/namespaces", namespace).await;
    let owner = owned(&world, "default", "owner", &[]).await;
    owned(&world, "default", "near", &[&owner]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    owned(&world, "far", "lost", &[&owner]).await;
    world
        .until("/api/v1/namespaces/far/configmaps/lost", Value::is_null)
        .await;
    let told = |events: &Value| {
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let reason = |e: &&Value| e["reason"] == "OwnerRefInvalidNamespace";
        events.iter().find(reason).cloned().unwrap_or_default()
    };
    let events = world
        .until("/api/v1/namespaces/far/events", |events| !told(events).is_null())
        .await;
    let (event, uid) = (told(&events), owner["metadata"]["uid"].as_str().unwrap());
    let message =
        format!("ownerRef [v1/ConfigMap, namespace: far, name: owner, uid: {uid}] does not exist in namespace \"far\"");
    assert_eq!(
        (&event["message"], &event["type"]),
        (&json!(message), &json!("Warning"))
    );
    assert_eq!(event["source"]["component"], "garbage-collector-controller");
    assert!(world.get(&format!("{MAPS}/near")).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn owners_in_no_namespace_own_what_is_in_one_and_not_the_other_way() {
    let world = World::start(0).await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, owners: Value| {
        json!({"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "value": 1,
            "metadata": {"name": name, "ownerReferences": owners}})
    };
    let owner = world.create(classes, class("owner", json!([]))).await;
    owned(&world, "default", "owned", &[&owner]).await;
    let map = owned(&world, "default", "map", &[]).await;
    world.create(classes, class("stays", json!([reference(&map)]))).await;
    for path in [format!("{classes}/owner"), format!("{MAPS}/map")] {
        world.call("DELETE", &path, None).await.unwrap();
    }
    world.until(&format!("{MAPS}/owned"), Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(world.get(&format!("{classes}/stays")).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_owner_made_anew_under_its_name_is_another_one() {
    let world = World::start(0).await;
    let first = owned(&world, "default", "owner", &[]).await;
    owned(&world, "default", "of-the-first", &[&first]).await;
    delete_map(&world, "owner", "Background").await;
    let second = owned(&world, "default", "owner", &[]).await;
    owned(&world, "default", "of-both", &[&first, &second]).await;
    owned(&world, "default", "of-the-second", &[&second]).await;
    world.until(&format!("{MAPS}/of-the-first"), Value::is_null).await;
    let alone = |map: &Value| map["metadata"]["ownerReferences"] == json!([reference(&second)]);
    world.until(&format!("{MAPS}/of-both"), alone).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(world.get(&format!("{MAPS}/of-the-second")).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn more_owners_than_one_turn_asks_about_are_all_judged() {
    let world = World::start(0).await;
    let never: Vec<Value> = (0..120)
        .map(|n| {
            let uid = format!("2f0c9a3e-0000-4000-8000-{n:012}");
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("never{n}"), "uid": uid}})
        })
        .collect();
    let there = owned(&world, "default", "there", &[]).await;
    let mut owners: Vec<&Value> = never.iter().collect();
    owned(&world, "default", "lost", &owners).await;
    owners.insert(60, &there);
    owned(&world, "default", "kept", &owners).await;
    world.until(&format!("{MAPS}/lost"), Value::is_null).await;
    let alone = |map: &Value| map["metadata"]["ownerReferences"] == json!([reference(&there)]);
    world.until(&format!("{MAPS}/kept"), alone).await;
}
