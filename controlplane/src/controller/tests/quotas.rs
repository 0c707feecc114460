//! ResourceQuotas and LimitRanges among controllers: what they allow comes to be, what goes makes room.

use super::*;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const PODS: &str = "/api/v1/namespaces/default/pods";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

async fn quota(world: &World, hard: Value) -> String {
    let quota = json!({"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    world.create(QUOTAS, quota).await;
    let path = format!("{QUOTAS}/q");
    world
        .until(&path, |quota| {
            quota["status"]["used"].is_object() && quota["status"]["hard"] == hard
        })
        .await;
    path
}

fn count(list: &Value) -> usize {
    list["items"].as_array().map_or(0, Vec::len)
}

#[tokio::test(start_paused = true)]
async fn a_deployment_gets_the_pods_that_its_namespace_may_have() {
    let world = World::start(2).await;
    let path = quota(&world, json!({"pods": "3", "count/replicasets.apps": "5"})).await;
    world.deploy("web", 5, "nginx").await;
    let why = "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3";
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    world
        .until(sets, |sets| {
            let conditions = sets["items"][0]["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|c| c["message"].as_str().is_some_and(|m| m.ends_with(why)))
            })
        })
        .await;
    assert_eq!(world.items(PODS).await.len(), 3);
    let used = json!({"pods": "3", "count/replicasets.apps": "1"});
    world.until(&path, |quota| quota["status"]["used"] == used).await;
    world.patch(&path, json!({"spec": {"hard": {"pods": "4"}}})).await;
    world.until(PODS, |pods| count(pods) == 4).await;
    world
        .call("DELETE", "/apis/apps/v1/namespaces/default/deployments/web", None)
        .await
        .unwrap();
    let none = json!({"pods": "0", "count/replicasets.apps": "0"});
    world.until(&path, |quota| quota["status"]["used"] == none).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_over_make_room() {
    let world = World::start(1).await;
    let path = quota(&world, json!({"pods": "1", "count/pods": "5"})).await;
    let pod = |name: &str| {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}})
    };
    world.create(PODS, pod("one")).await;
    assert!(world.call("POST", PODS, Some(pod("two"))).await.is_err());
    world
        .patch(&format!("{PODS}/one/status"), json!({"status": {"phase": "Succeeded"}}))
        .await;
    let used = json!({"pods": "0", "count/pods": "1"});
    world.until(&path, |quota| quota["status"]["used"] == used).await;
    world.create(PODS, pod("two")).await;
    world
        .until(&path, |quota| {
            quota["status"]["used"] == json!({"pods": "1", "count/pods": "2"})
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_counted_as_they_come_and_go() {
    let world = World::start(0).await;
    let path = quota(
        &world,
        json!({"count/lions.zoo.example": "1", "count/configmaps": "10"}),
    )
    .await;
    let before = world.get(&path).await.unwrap();
    assert_eq!(
        before["status"]["used"]["count/lions.zoo.example"], "0",
        "there is no such kind yet"
    );
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "lions.zoo.example"}, "spec": {"group": "zoo.example", "scope": "Namespaced",
            "names": {"plural": "lions", "kind": "Lion"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    world
        .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        .await;
    let lions = "/apis/zoo.example/v1/namespaces/default/lions";
    world.until(lions, Value::is_object).await;
    let lion = |name: &str| json!({"kind": "Lion", "apiVersion": "zoo.example/v1", "metadata": {"name": name}});
    world.create(lions, lion("leo")).await;
    let refused = world.call("POST", lions, Some(lion("nala"))).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("exceeded quota: q, requested: count/lions.zoo.example=1"),
        "{refused}"
    );
    world.call("DELETE", &format!("{lions}/leo"), None).await.unwrap();
    world
        .until(&path, |quota| quota["status"]["used"]["count/lions.zoo.example"] == "0")
        .await;
    world.create(lions, lion("nala")).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_range_fills_in_is_what_the_quota_counts() {
    let world = World::start(1).await;
    let range = json!({"kind": "LimitRange", "apiVersion": "v1", "metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "200m"}}]}});
    world.create(RANGES, range).await;
    let path = quota(&world, json!({"requests.cpu": "1", "limits.cpu": "1"})).await;
    let pod = |name: &str, limits: Value| {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}})
    };
    let made = world.create(PODS, pod("p", json!({}))).await;
    let resources = json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "500m"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let told = world.get(&path).await.unwrap();
    assert_eq!(
        told["status"]["used"],
        json!({"requests.cpu": "200m", "limits.cpu": "500m"})
    );
    let refused = world
        .call("POST", PODS, Some(pod("big", json!({"cpu": "2"}))))
        .await
        .unwrap_err();
    let why = "maximum cpu usage per Container is 1, but limit is 2";
    assert!(refused.to_string().contains(why), "{refused}");
}

/// Time passes though somebody may never pause.
async fn pass(seconds: usize) {
    for _ in 0..seconds {
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_quota_makes_no_controller_try_without_pause() {
    let world = World::start(2).await;
    quota(&world, json!({"pods": "0"})).await;
    let (selector, labels) = (json!({"matchLabels": {"app": "x"}}), json!({"labels": {"app": "x"}}));
    let container = json!([{"name": "c", "image": "i"}]);
    let lasting = json!({"metadata": labels, "spec": {"containers": container}});
    let ending = json!({"spec": {"containers": container, "restartPolicy": "Never"}});
    for (kind, version, plural, spec) in [
        (
            "ReplicaSet",
            "apps/v1",
            "replicasets",
            json!({"replicas": 2, "selector": selector, "template": lasting}),
        ),
        (
            "StatefulSet",
            "apps/v1",
            "statefulsets",
            json!({"replicas": 2, "serviceName": "s", "podManagementPolicy": "Parallel", "selector": selector, "template": lasting}),
        ),
        (
            "Job",
            "batch/v1",
            "jobs",
            json!({"parallelism": 2, "completions": 2, "template": ending}),
        ),
    ] {
        let path = format!("/apis/{version}/namespaces/default/{plural}");
        let object = json!({"kind": kind, "apiVersion": version, "metadata": {"name": "x"}, "spec": spec});
        world.create(&path, object).await;
    }
    pass(600).await;
    let events = world.items("/api/v1/namespaces/default/events").await;
    let tries = ["ReplicaSet", "StatefulSet", "Job"].map(|kind| {
        let failures = events
            .iter()
            .filter(|e| e["involvedObject"]["kind"] == kind && e["reason"] == "FailedCreate");
        let tries: u64 = failures.map(|event| event["count"].as_u64().unwrap_or(1)).sum();
        (kind, tries)
    });
    // Two pods, some twenty tries that wait twice as long each time.
    assert!(tries.iter().all(|(_, tries)| (2..=100).contains(tries)), "{tries:?}");
}

#[tokio::test(start_paused = true)]
async fn devices_that_are_asked_for_are_charged_by_class() {
    let world = World::start(0).await;
    let (devices, claims) = (
        "gpu.example.com.deviceclass.resource.k8s.io/devices",
        "count/resourceclaims.resource.k8s.io",
    );
    let path = quota(&world, json!({devices: "3", claims: "5"})).await;
    let all = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = |name: &str, count: i64| {
        let exactly = json!({"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": count});
        json!({"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
    };
    world.create(all, claim("one", 2)).await;
    let refused = world.call("POST", all, Some(claim("two", 2))).await.unwrap_err();
    let why = format!("exceeded quota: q, requested: {devices}=2, used: {devices}=2, limited: {devices}=3");
    assert!(refused.to_string().contains(&why), "{refused}");
    world.call("DELETE", &format!("{all}/one"), None).await.unwrap();
    let none = json!({devices: "0", claims: "0"});
    world.until(&path, |quota| quota["status"]["used"] == none).await;
    world.create(all, claim("two", 3)).await;
    let used = json!({devices: "3", claims: "1"});
    world.until(&path, |quota| quota["status"]["used"] == used).await;
}
