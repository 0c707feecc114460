use super::*;

#[tokio::test(start_paused = true)]
async fn a_service_shows_its_pods_and_takes_its_slices_along() {
    let world = World::start(1).await;
    world.deploy("web", 2, "nginx").await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    world.create(services, service).await;
    let slices =
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=web";
    let ready = |list: &Value| {
        let endpoints = list["items"][0]["endpoints"].as_array().cloned().unwrap_or_default();
        endpoints.iter().filter(|e| e["conditions"]["ready"] == true).count()
    };
    world.until(slices, |s| ready(s) == 2).await;
    let endpoints = "/api/v1/namespaces/default/endpoints/web";
    world
        .until(endpoints, |e| {
            e["subsets"][0]["addresses"].as_array().is_some_and(|a| a.len() == 2)
        })
        .await;
    world
        .patch(
            "/apis/apps/v1/namespaces/default/deployments/web",
            json!({"spec": {"replicas": 0}}),
        )
        .await;
    world.until(slices, |s| ready(s) == 0).await;
    world.call("DELETE", &format!("{services}/web"), None).await.unwrap();
    world
        .until(slices, |s| s["items"].as_array().is_some_and(Vec::is_empty))
        .await;
    world.until(endpoints, Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_takes_its_endpoints_out_of_slices_before_its_pods_are_collected() {
    let world = World::start(1).await;
    world.deploy("web", 1, "nginx").await;
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let slices =
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=web";
    let count = |list: &Value| list["items"][0]["endpoints"].as_array().map(Vec::len);
    world.until(slices, |list| count(list) == Some(1)).await;
    world.call("DELETE", "/api/v1/nodes/n0", None).await.unwrap();
    world.until(slices, |list| matches!(count(list), None | Some(0))).await;
    let pods = world.items("/api/v1/namespaces/default/pods").await;
    let is_running = |pod: &Value| pod["spec"]["nodeName"] == "n0" && pod["metadata"]["deletionTimestamp"].is_null();
    assert!(pods.iter().any(is_running), "it is the node's end that did it");
}
