use super::*;

fn greedy(name: &str) -> Value {
    let container = json!({"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {"requests": {"cpu": "3"}}});
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"stuck": ""}},
        "spec": {"restartPolicy": "Never", "containers": [container]}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_finished_holds_nothing_of_its_node_though_its_object_stays() {
    let world = World::start(1).await;
    world.until("/api/v1/nodes/n0", |n| n["spec"]["taints"].is_null()).await;
    let pods = "/api/v1/namespaces/default/pods";
    let path = |name: &str| format!("{pods}/{name}");
    world.create(pods, greedy("first")).await;
    world.until(&path("first"), |p| p["spec"]["nodeName"] == "n0").await;
    world.create(pods, greedy("second")).await;
    let refused = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
    world.until(&path("second"), refused).await;
    let over = json!({"status": {"phase": "Succeeded"}});
    let begun = tokio::time::Instant::now();
    world.patch(&format!("{}/status", path("first")), over).await;
    world.until(&path("second"), |p| p["spec"]["nodeName"] == "n0").await;
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "it was woken, and did not wait for its five minutes"
    );
    assert!(world.get(&path("first")).await.is_some(), "its object is still there");
    let counted = world.counted();
    let of_point = "scheduler_framework_extension_point_duration_seconds_count";
    for line in [
        "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"UnschedulablePodAdd\"} 2".to_owned(),
        // It has only just been refused.
        "scheduler_queue_incoming_pods_total{queue=\"backoff\",event=\"AssignedPodDelete\"} 1".to_owned(),
        format!(
            "{of_point}{{extension_point=\"PostFilter\",status=\"Unschedulable\",profile=\"default-scheduler\"}} 1"
        ),
    ] {
        assert!(counted.lines().any(|had| had == line), "{line} is not in\n{counted}");
    }
    // One node does not ask for scores.
    for point in ["PreEnqueue", "Reserve", "Permit", "PreBind", "Bind", "PostBind"] {
        let line =
            format!("{of_point}{{extension_point=\"{point}\",status=\"Success\",profile=\"default-scheduler\"}} 2");
        assert!(counted.lines().any(|had| had == line), "{line} is not in\n{counted}");
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pod that goes and stays, by its finalizer: nobody looks for a node for it, which is told.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_before_it_has_a_node_is_told_that_it_gets_none() {
    let world = World::start(1).await;
    let pod = |name: &str, spec: Value| {
        let mut pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "finalizers": ["example.com/kept"]},
            "spec": {"containers": [{"name": "c", "image": "x"}]}});
        json_patch::merge(&mut pod["spec"], &spec);
        pod
    };
    world
        .create(PODS, pod("waits", json!({"nodeSelector": {"no": "such"}})))
        .await;
    world
        .create(
            PODS,
            pod("gated", json!({"schedulingGates": [{"name": "example.com/gate"}]})),
        )
        .await;
    let refused = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
    world.until(&format!("{PODS}/waits"), refused).await;
    for name in ["gated", "waits"] {
        world.call("DELETE", &format!("{PODS}/{name}"), None).await.unwrap();
    }
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let of = |events: &Value, text: &str| {
        let all = events["items"].as_array().unwrap().iter();
        let told = all.filter(|e| e["reason"] == "FailedScheduling" && e["type"] == "Warning" && e["note"] == text);
        told.count()
    };
    let waits = "skip schedule deleting pod: default/waits";
    let told = world.until(events, |events| of(events, waits) == 1).await;
    assert_eq!(of(&told, "skip schedule deleting pod: default/gated"), 0);
    world
        .patch(&format!("{PODS}/waits"), json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let told = world.get(events).await.unwrap();
    let all = told["items"].as_array().unwrap().iter();
    let skips: Vec<&Value> = all.filter(|event| event["note"] == waits).collect();
    assert!(skips.len() == 1 && skips[0]["series"].is_null(), "once: {skips:?}");
}

fn of_class(name: &str, class: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}});
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {"priorityClassName": class, "containers": [container]}})
}

async fn classes(world: &World) {
    for (name, value, policy) in [("low", 1, None), ("high", 10, None), ("patient", 10, Some("Never"))] {
        let mut class = json!({"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": name}, "value": value});
        if let Some(policy) = policy {
            class["preemptionPolicy"] = json!(policy);
        }
        world.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_more_important_pod_takes_the_place_of_others() {
    let world = World::start(1).await;
    classes(&world).await;
    for name in ["first", "second"] {
        world.create(PODS, of_class(name, "low", "2")).await;
        world
            .until(&format!("{PODS}/{name}"), |p| p["status"]["phase"] == "Running")
            .await;
    }
    world.create(PODS, of_class("patient", "patient", "2")).await;
    let refused = |p: &Value| p["status"]["conditions"][0]["reason"] == "Unschedulable";
    let patient = world.until(&format!("{PODS}/patient"), refused).await;
    assert_eq!(
        patient["status"]["conditions"][0]["message"],
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    );
    let important = world.create(PODS, of_class("important", "high", "2")).await;
    let running = world
        .until(&format!("{PODS}/important"), |p| p["status"]["phase"] == "Running")
        .await;
    assert_eq!(running["spec"]["nodeName"], "n0");
    assert!(running["status"]["nominatedNodeName"].is_null(), "it has its node");
    let left: Vec<Value> = world
        .items(PODS)
        .await
        .iter()
        .map(|p| p["metadata"]["name"].clone())
        .collect();
    assert_eq!(left.len(), 3, "one victim is enough: {left:?}");
    let told = format!(
        "Preempted by pod {} on node n0",
        important["metadata"]["uid"].as_str().unwrap()
    );
    let is_told = |events: &Value| {
        let mut events = events["items"].as_array().unwrap().iter();
        events.any(|event| event["reason"] == "Preempted" && event["type"] == "Normal" && event["message"] == told)
    };
    world.until("/api/v1/namespaces/default/events", is_told).await;
}

/// A victim that takes its time is told why, and its successor waits for this node and evicts nobody else.
#[tokio::test(start_paused = true)]
async fn a_victim_is_told_why_and_its_successor_waits_for_it() {
    let world = World::start(2).await;
    classes(&world).await;
    for name in ["first", "second"] {
        let mut slow = of_class(name, "low", "4");
        slow["metadata"]["labels"] = json!({"stuck": ""});
        world.create(PODS, slow).await;
        world
            .until(&format!("{PODS}/{name}"), |p| p["spec"]["nodeName"].is_string())
            .await;
    }
    world.create(PODS, of_class("important", "high", "4")).await;
    let important = world
        .until(&format!("{PODS}/important"), |p| {
            p["status"]["nominatedNodeName"].is_string()
        })
        .await;
    let node = important["status"]["nominatedNodeName"].clone();
    let dying = |pods: &Value| {
        let pods = pods["items"].as_array().unwrap();
        pods.iter()
            .filter(|p| p["metadata"]["deletionTimestamp"].is_string())
            .count()
    };
    let pods = world.until(PODS, |pods| dying(pods) == 1).await;
    let mut all = pods["items"].as_array().unwrap().iter();
    let victim = all.find(|p| p["metadata"]["deletionTimestamp"].is_string()).unwrap();
    assert_eq!(victim["spec"]["nodeName"], node);
    let conditions = victim["status"]["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (&condition["status"], &condition["reason"], &condition["message"]),
        (
            &json!("True"),
            &json!("PreemptionByScheduler"),
            &json!("default-scheduler: preempting to accommodate a higher priority pod")
        )
    );
    // Something happens that gives it another cycle.
    let node_path = format!("/api/v1/nodes/{}", node.as_str().unwrap());
    world
        .patch(&node_path, json!({"metadata": {"labels": {"touched": "yes"}}}))
        .await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(dying(&world.get(PODS).await.unwrap()), 1);
    let name = victim["metadata"]["name"].as_str().unwrap();
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    world
        .call("DELETE", &format!("{PODS}/{name}"), Some(options))
        .await
        .unwrap();
    let running = world
        .until(&format!("{PODS}/important"), |p| p["status"]["phase"] == "Running")
        .await;
    assert_eq!(running["spec"]["nodeName"], node);
}
