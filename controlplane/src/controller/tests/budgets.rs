//! PodDisruptionBudgets: evictions are allowed as they say.

use super::*;

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn budget(spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    json!({"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "b"}, "spec": spec})
}

fn allows(budget: &Value, number: u64) -> bool {
    budget["status"]["disruptionsAllowed"] == number
        && budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
}

async fn evict(world: &World, pod: &str) -> Result<Value, kube::Error> {
    let body =
        json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": pod, "namespace": "default"}});
    world.call("POST", &format!("{PODS}/{pod}/eviction"), Some(body)).await
}

fn is_refused(answer: &Result<Value, kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 429)
}

async fn pods(world: &World) -> Vec<String> {
    let pods = world.items(PODS).await;
    let staying = pods.iter().filter(|p| p["metadata"]["deletionTimestamp"].is_null());
    staying
        .map(|p| p["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn evictions_wait_for_the_pods_that_take_over() {
    let world = World::start(2).await;
    world.deploy("web", 3, "nginx").await;
    world.create(BUDGETS, budget(json!({"maxUnavailable": 1}))).await;
    let path = format!("{BUDGETS}/b");
    let said = world.until(&path, |b| allows(b, 1)).await;
    let status = &said["status"];
    assert_eq!(
        (
            &status["expectedPods"],
            &status["desiredHealthy"],
            &status["currentHealthy"]
        ),
        (&json!(3), &json!(2), &json!(3))
    );
    assert_eq!(status["conditions"][0]["reason"], "SufficientPods");
    // As `kubectl drain` does: again and again until each is gone.
    let first = pods(&world).await;
    let mut refused = 0;
    for pod in &first {
        loop {
            let answer = evict(&world, pod).await;
            if answer.is_ok() {
                break;
            }
            assert!(is_refused(&answer), "{answer:?}");
            refused += 1;
            assert!(refused < 10_000);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world
            .until(&path, |b| b["status"]["currentHealthy"].as_u64() >= Some(2))
            .await;
    }
    world
        .until(PODS, |p| {
            let names: Vec<_> = p["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| &p["metadata"]["name"])
                .collect();
            names.len() == 3 && !first.iter().any(|old| names.contains(&&json!(old)))
        })
        .await;
    let said = world.until(&path, |b| allows(b, 1)).await;
    assert_eq!(said["status"]["disruptedPods"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_room_refuses() {
    let world = World::start(1).await;
    world.deploy("web", 2, "nginx").await;
    world.create(BUDGETS, budget(json!({"minAvailable": "100%"}))).await;
    let path = format!("{BUDGETS}/b");
    let said = world
        .until(&path, |b| allows(b, 0) && b["status"]["currentHealthy"] == 2)
        .await;
    assert_eq!(said["status"]["conditions"][0]["reason"], "InsufficientPods");
    let pod = pods(&world).await.remove(0);
    assert!(is_refused(&evict(&world, &pod).await));
    world.patch(&path, json!({"spec": {"minAvailable": 1}})).await;
    world.until(&path, |b| allows(b, 1)).await;
    evict(&world, &pod).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn owners_without_a_scale_are_told() {
    let world = World::start(2).await;
    let daemon = json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    world
        .create("/apis/apps/v1/namespaces/default/daemonsets", daemon)
        .await;
    world
        .until(PODS, |p| p["items"].as_array().is_some_and(|all| all.len() == 2))
        .await;
    world.create(BUDGETS, budget(json!({"maxUnavailable": 1}))).await;
    let path = format!("{BUDGETS}/b");
    let said = world
        .until(&path, |b| b["status"]["conditions"][0]["reason"] == "SyncFailed")
        .await;
    assert_eq!(
        said["status"]["conditions"][0]["message"],
        "daemonsets.apps does not implement the scale subresource"
    );
    world
        .patch(&path, json!({"spec": {"maxUnavailable": null, "minAvailable": 1}}))
        .await;
    world.until(&path, |b| allows(b, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn of_the_pods_that_two_budgets_share_one_is_told() {
    let world = World::start(1).await;
    world.deploy("web", 3, "nginx").await;
    let path = format!("{BUDGETS}/b");
    let mut other = budget(json!({"minAvailable": 1}));
    other["metadata"]["name"] = json!("c");
    world.create(BUDGETS, budget(json!({"minAvailable": 1}))).await;
    world.until(&path, |b| allows(b, 2)).await;
    world.create(BUDGETS, other).await;
    world.until(&format!("{BUDGETS}/c"), |c| allows(c, 2)).await;
    // The first by name tells when it is looked at again.
    world.patch(&path, json!({"spec": {"minAvailable": 2}})).await;
    let events = "/api/v1/namespaces/default/events";
    let of_overlap = |events: &Value| -> Vec<Value> {
        let all = events["items"].as_array().unwrap().iter();
        all.filter(|e| e["reason"] == "MultiplePodDisruptionBudgets")
            .map(|e| e["involvedObject"]["name"].clone())
            .collect()
    };
    world.until(events, |events| !of_overlap(events).is_empty()).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(of_overlap(&world.get(events).await.unwrap()).len(), 1);
}

/// A deployment of four, and a pod that says it is its own without a replica set: whose scale has to be asked for.
async fn pod_of_a_deployment(world: &World) {
    world.deploy("scaled", 4, "nginx").await;
    let deployment = "/apis/apps/v1/namespaces/default/deployments/scaled";
    let uid = world.get(deployment).await.unwrap()["metadata"]["uid"].clone();
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled", "uid": uid, "controller": true});
    let pod = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "p", "labels": {"app": "web"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world
        .until("/api/v1/namespaces/default/serviceaccounts/default", Value::is_object)
        .await;
    world.create(PODS, pod).await;
    world.create(BUDGETS, budget(json!({"maxUnavailable": 1}))).await;
}

fn expects(budget: &Value, pods: u64, healthy: u64) -> bool {
    budget["status"]["expectedPods"] == pods && budget["status"]["desiredHealthy"] == healthy
}

#[tokio::test(start_paused = true)]
async fn owners_with_a_scale_are_asked() {
    let world = World::start(1).await;
    pod_of_a_deployment(&world).await;
    world.until(&format!("{BUDGETS}/b"), |b| expects(b, 4, 3)).await;
}

/// Nobody may make another pod, so that none comes or goes by a change of scale.
async fn no_more_pods(world: &World) {
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}});
    world.create(quotas, quota).await;
    world
        .until(&format!("{quotas}/q"), |quota| quota["status"]["used"].is_object())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_scale_that_changes_no_pod_is_counted_all_the_same() {
    let world = World::start(1).await;
    world.deploy("web", 2, "nginx").await;
    let template = json!({"metadata": {"labels": {"app": "web", "set": "s"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = |selector: Value| json!({"replicas": 1, "selector": selector, "serviceName": "s", "template": template});
    let matching = json!({"matchLabels": {"set": "s"}});
    let owners = [
        ("/apis/apps/v1/namespaces/default/deployments", "web", Value::Null),
        (
            "/apis/apps/v1/namespaces/default/replicasets",
            "rs",
            json!({"kind": "ReplicaSet", "apiVersion": "apps/v1", "spec": set(matching.clone())}),
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            "sts",
            json!({"kind": "StatefulSet", "apiVersion": "apps/v1", "spec": set(matching)}),
        ),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "rc",
            json!({"kind": "ReplicationController", "apiVersion": "v1", "spec": set(json!({"set": "s"}))}),
        ),
    ];
    for (collection, name, owner) in &owners {
        if let Some(mut owner) = owner.is_object().then(|| owner.clone()) {
            owner["metadata"] = json!({"name": name});
            if owner["kind"] != "StatefulSet" {
                owner["spec"].as_object_mut().unwrap().remove("serviceName");
            }
            world.create(collection, owner).await;
        }
    }
    world.create(BUDGETS, budget(json!({"maxUnavailable": 1}))).await;
    let path = format!("{BUDGETS}/b");
    world
        .until(&path, |b| expects(b, 5, 4) && b["status"]["currentHealthy"] == 5)
        .await;
    no_more_pods(&world).await;
    let mut expected = 5;
    for (collection, name, _) in &owners {
        world
            .patch(&format!("{collection}/{name}"), json!({"spec": {"replicas": 4}}))
            .await;
        expected += if *name == "web" { 2 } else { 3 };
        world.until(&path, |b| expects(b, expected, expected - 1)).await;
        assert_eq!(pods(&world).await.len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn owners_of_other_kinds_are_asked_again_after_a_while() {
    let world = World::start(1).await;
    let herds = define_herds(&world).await;
    let herd =
        json!({"kind": "Herd", "apiVersion": "zoo.example/v1", "metadata": {"name": "h"}, "spec": {"replicas": 3}});
    let uid = world.create(herds, herd).await["metadata"]["uid"].clone();
    world
        .until("/api/v1/namespaces/default/serviceaccounts/default", Value::is_object)
        .await;
    let owner = json!({"apiVersion": "zoo.example/v1", "kind": "Herd", "name": "h", "uid": uid, "controller": true});
    let pod = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "p", "labels": {"app": "web"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.create(PODS, pod).await;
    world.create(BUDGETS, budget(json!({"maxUnavailable": 1}))).await;
    let path = format!("{BUDGETS}/b");
    world
        .until(&path, |b| expects(b, 3, 2) && b["status"]["currentHealthy"] == 1)
        .await;
    world
        .patch(&format!("{herds}/h"), json!({"spec": {"replicas": 7}}))
        .await;
    world.until(&path, |b| expects(b, 7, 6)).await;
}

#[tokio::test(start_paused = true)]
async fn owners_that_could_not_be_asked_are_asked_again() {
    let controller = "system:serviceaccount:kube-system:disruption-controller".to_owned();
    let denied = Denied::new(Mutex::new(vec![(controller, "deployments")]));
    let world = World::start_denying(1, denied.clone()).await;
    pod_of_a_deployment(&world).await;
    let path = format!("{BUDGETS}/b");
    world
        .until(&path, |b| b["status"]["conditions"][0]["reason"] == "SyncFailed")
        .await;
    // What wakes the budget otherwise is over by then.
    tokio::time::sleep(Duration::from_secs(60)).await;
    denied.lock().unwrap().clear();
    world.until(&path, |b| expects(b, 4, 3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_disruption_that_does_not_come_is_taken_back() {
    let world = World::start(1).await;
    world.deploy("web", 1, "nginx").await;
    world
        .until(PODS, |p| p["items"][0]["status"]["phase"] == "Running")
        .await;
    let path = format!("{PODS}/{}", pods(&world).await.remove(0));
    let mut status = world.get(&path).await.unwrap()["status"].clone();
    let said = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    status["conditions"].as_array_mut().unwrap().push(said);
    world.patch(&format!("{path}/status"), json!({"status": status})).await;
    let found = world
        .until(&path, |p| {
            let all = p["status"]["conditions"].as_array().unwrap();
            all.iter()
                .any(|c| c["type"] == "DisruptionTarget" && c["status"] == "False")
        })
        .await;
    let all = found["status"]["conditions"].as_array().unwrap();
    let said = all.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert!(said["reason"].is_null() && said["message"].is_null(), "{said}");
}
