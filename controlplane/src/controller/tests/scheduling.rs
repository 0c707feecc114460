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
    world.patch(&format!("{}/status", path("first")), over).await;
    world.until(&path("second"), |p| p["spec"]["nodeName"] == "n0").await;
    assert!(world.get(&path("first")).await.is_some(), "its object is still there");
}
