//! Pods the scheduler must not place.

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    pod["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    pod
}

fn scheduled(pod: &Value) -> Value {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions
        .into_iter()
        .find(|c| c["type"] == "PodScheduled")
        .unwrap_or_default()
}

/// Once nothing keeps pods from the first `count` nodes.
async fn schedulable(world: &World, count: usize) {
    for i in 0..count {
        let path = format!("/api/v1/nodes/n{i}");
        world.until(&path, |n| n["spec"]["taints"].is_null()).await;
    }
}

fn apart(app: &str) -> Value {
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}]}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_demand_that_cannot_be_evaluated_stays_pending_and_says_so() {
    let world = World::start(2).await;
    let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    world.create(PODS, pod("p", claim)).await;
    let path = format!("{PODS}/p");
    let refused = world.until(&path, |p| scheduled(p)["status"] == "False").await;
    let message =
        "0/2 nodes are available: this scheduler cannot evaluate yet: volumes that need claims (spec.volumes).";
    let condition = scheduled(&refused);
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&json!("Unschedulable"), &json!(message))
    );
    let is_told = |events: &Value| {
        let mut events = events["items"].as_array().unwrap().iter();
        events.any(|event| event["reason"] == "FailedScheduling" && event["message"] == message)
    };
    world.until("/api/v1/namespaces/default/events", is_told).await;
    world.add_node("n2").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let still = world.get(&path).await.unwrap();
    assert_eq!(
        (&still["spec"]["nodeName"], &still["status"]["phase"]),
        (&Value::Null, &json!("Pending"))
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_repel_each_other_take_a_node_each_and_the_next_waits_for_one() {
    let world = World::start(2).await;
    // Whoever comes while one node alone does may have to wait for the other, and another be faster.
    schedulable(&world, 2).await;
    for i in 0..3 {
        let mut replica = pod(&format!("p{i}"), json!({"affinity": apart("web")}));
        replica["metadata"]["labels"]["app"] = json!("web");
        world.create(PODS, replica).await;
    }
    let path = |i| format!("{PODS}/p{i}");
    for i in 0..2 {
        world.until(&path(i), |p| p["status"]["phase"] == "Running").await;
    }
    let refused = world.until(&path(2), |p| scheduled(p)["status"] == "False").await;
    let message = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. preemption: 0/2 nodes are available: 2 No \
                   preemption victims found for incoming pod.";
    assert_eq!(scheduled(&refused)["message"], message);
    world.add_node("n2").await;
    let third = world.until(&path(2), |p| p["status"]["phase"] == "Running").await;
    assert_eq!(third["spec"]["nodeName"], "n2");
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_spreads_lies_evenly() {
    let world = World::start(3).await;
    schedulable(&world, 3).await;
    let mut spread = deployment("web", 9, "nginx");
    spread["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]);
    world
        .create("/apis/apps/v1/namespaces/default/deployments", spread)
        .await;
    let status = "/apis/apps/v1/namespaces/default/deployments/web";
    world.until(status, |d| d["status"]["readyReplicas"] == 9).await;
    let pods = world.items(PODS).await;
    for i in 0..3 {
        let there = pods.iter().filter(|p| p["spec"]["nodeName"] == format!("n{i}")).count();
        assert_eq!(there, 3, "n{i}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_put_where_anothers_demand_is_about_it_and_runs_once_that_one_is_gone() {
    let world = World::start(1).await;
    // Somebody else's hand put it there.
    let mut first = pod("first", json!({"affinity": apart("web")}));
    first["spec"]["nodeName"] = json!("n0");
    world.create(PODS, first).await;
    world
        .until(&format!("{PODS}/first"), |p| p["status"]["phase"] == "Running")
        .await;
    world.create(PODS, pod("web", json!({}))).await;
    world.create(PODS, pod("db", json!({}))).await;
    let refused = world
        .until(&format!("{PODS}/web"), |p| scheduled(p)["status"] == "False")
        .await;
    let message = "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. preemption: 0/1 nodes are \
                   available: 1 No preemption victims found for incoming pod.";
    assert_eq!(scheduled(&refused)["message"], message);
    world
        .until(&format!("{PODS}/db"), |p| p["status"]["phase"] == "Running")
        .await;
    world.call("DELETE", &format!("{PODS}/first"), None).await.unwrap();
    world
        .until(&format!("{PODS}/web"), |p| p["status"]["phase"] == "Running")
        .await;
}

/// The widest demand there is closes one node, and only to the namespaces it selects.
#[tokio::test(start_paused = true)]
async fn a_pods_demand_about_everybody_closes_its_own_node_only() {
    let world = World::start(2).await;
    let everybody = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}]}});
    for (name, node) in [("first", "n0"), ("nowhere", "nowhere")] {
        let mut repelling = pod(name, json!({"affinity": everybody}));
        repelling["spec"]["nodeName"] = json!(node);
        world.create(PODS, repelling).await;
    }
    world
        .until(&format!("{PODS}/first"), |p| p["status"]["phase"] == "Running")
        .await;
    for name in ["a", "b", "c"] {
        world.create(PODS, pod(name, json!({}))).await;
        let running = world
            .until(&format!("{PODS}/{name}"), |p| p["status"]["phase"] == "Running")
            .await;
        assert_eq!(running["spec"]["nodeName"], "n1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_demand_about_selected_namespaces_follows_their_labels() {
    let world = World::start(1).await;
    let team = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "x"}}}]}});
    let mut repelling = pod("first", json!({"affinity": team}));
    repelling["spec"]["nodeName"] = json!("n0");
    world.create(PODS, repelling).await;
    world
        .until(&format!("{PODS}/first"), |p| p["status"]["phase"] == "Running")
        .await;
    world.create(PODS, pod("free", json!({}))).await;
    world
        .until(&format!("{PODS}/free"), |p| p["status"]["phase"] == "Running")
        .await;
    let label = |team: Value| json!({"metadata": {"labels": {"team": team}}});
    world.patch("/api/v1/namespaces/default", label(json!("x"))).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.create(PODS, pod("web", json!({}))).await;
    world
        .until(&format!("{PODS}/web"), |p| scheduled(p)["status"] == "False")
        .await;
    world.patch("/api/v1/namespaces/default", label(Value::Null)).await;
    world
        .until(&format!("{PODS}/web"), |p| p["status"]["phase"] == "Running")
        .await;
}

#[tokio::test(start_paused = true)]
async fn gates_hold_a_pod_back_until_the_last_is_gone() {
    let world = World::start(1).await;
    let path = format!("{PODS}/p");
    let gates = json!({"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}]});
    let made = world.create(PODS, pod("p", gates)).await;
    assert_eq!(scheduled(&made)["reason"], "SchedulingGated");
    for left in [json!([{"name": "example.com/b"}]), json!([])] {
        tokio::time::sleep(Duration::from_secs(600)).await;
        let held = world.get(&path).await.unwrap();
        assert_eq!(
            (&held["spec"]["nodeName"], &scheduled(&held)["reason"]),
            (&Value::Null, &json!("SchedulingGated"))
        );
        world.patch(&path, json!({"spec": {"schedulingGates": left}})).await;
    }
    world.until(&path, |p| p["status"]["phase"] == "Running").await;
}
