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

/// Keys that were put into a controller's queue so far.
fn wakes(world: &World, controller: &str) -> u64 {
    let line = format!("workqueue_adds_total{{name=\"{controller}\"}} ");
    let counted = world.counted();
    let mut numbers = counted.lines().filter_map(|had| had.strip_prefix(&line));
    numbers.next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_changes_no_endpoint_and_no_budget_wakes_neither() {
    let world = World::start(1).await;
    world.deploy("web", 1, "nginx").await;
    let selector = json!({"app": "web"});
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"},
        "spec": {"selector": selector, "ports": [{"port": 80}]}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let budget = json!({"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": selector}, "maxUnavailable": 1}});
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    world.create(budgets, budget).await;
    let slices =
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=web";
    let count = |list: &Value| list["items"][0]["endpoints"].as_array().map_or(0, Vec::len);
    world.until(slices, |list| count(list) == 1).await;
    let healthy = |number: i64| move |budget: &Value| budget["status"]["currentHealthy"] == number;
    let budget = format!("{budgets}/web");
    world.until(&budget, healthy(1)).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = world.items(pods).await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown: Informer<Pod> = Informer::spawn(Api::namespaced(world.client.clone(), "default"), Options::default());
    shown.synced().await;
    let controllers = [
        "endpoint-controller",
        "endpointslice-controller",
        "disruption-controller",
    ];
    let before = controllers.map(|name| wakes(&world, name));
    for n in 0..20 {
        let news = json!({"metadata": {"annotations": {"n": n.to_string()}}});
        let written = world.patch(&format!("{pods}/{pod}"), news).await;
        let revision = written["metadata"]["resourceVersion"].as_str().unwrap();
        shown.wait_for_revision(revision.parse().unwrap()).await;
    }
    for (name, before) in controllers.into_iter().zip(before) {
        // What they wrote themselves may come back to them meanwhile.
        assert!(wakes(&world, name) - before < 5, "{name}");
    }
    let gone = json!({"spec": {"replicas": 0}});
    world
        .patch("/apis/apps/v1/namespaces/default/deployments/web", gone)
        .await;
    world.until(slices, |list| count(list) == 0).await;
    world.until(&budget, healthy(0)).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_undoes_what_a_controller_writes_keeps_it_busy_ever_less() {
    let world = World::start(0).await;
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let all = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slices = format!("{all}?labelSelector=kubernetes.io/service-name=web");
    let is_plain = |list: &Value| {
        let labels = &list["items"][0]["metadata"]["labels"];
        labels.is_object() && labels["mine"].is_null()
    };
    let mut took = Vec::new();
    for _ in 0..20 {
        let began = tokio::time::Instant::now();
        let list = world.until(&slices, is_plain).await;
        took.push(began.elapsed());
        let name = list["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
        let labelled = json!({"metadata": {"labels": {"mine": "1"}}});
        world.patch(&format!("{all}/{name}"), labelled).await;
    }
    let together = |some: &[Duration]| some.iter().sum::<Duration>();
    assert!(together(&took[..8]) < Duration::from_secs(1), "{took:?}");
    assert!(together(&took) > Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn slices_that_nobody_may_write_are_told() {
    let of = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    let denied = vec![
        (of("endpointslice-controller"), "endpointslices"),
        (of("endpoint-controller"), "endpoints"),
        (of("endpointslicemirroring-controller"), "endpointslices"),
    ];
    let world = World::start_denying(0, Denied::new(Mutex::new(denied))).await;
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let told = |reason: &'static str, text: &'static str| {
        move |events: &Value| {
            let mut all = events["items"].as_array().unwrap().iter();
            all.any(|e| e["reason"] == reason && e["message"].as_str().is_some_and(|m| m.starts_with(text)))
        }
    };
    let events = "/api/v1/namespaces/default/events";
    let slices = "Error updating Endpoint Slices for Service default/web: failed to create EndpointSlice for Service default/web: ";
    world.until(events, told("FailedToUpdateEndpointSlices", slices)).await;
    let endpoints = "Failed to create endpoint for service default/web: ";
    world.until(events, told("FailedToCreateEndpoint", endpoints)).await;
    let service =
        json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "db"}, "spec": {"ports": [{"port": 80}]}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let own = json!({"kind": "Endpoints", "apiVersion": "v1", "metadata": {"name": "db"},
        "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]});
    world.create("/api/v1/namespaces/default/endpoints", own).await;
    let mirrored = "failed to create EndpointSlice for Endpoints default/db: ";
    world
        .until(events, told("FailedToUpdateEndpointSlices", mirrored))
        .await;
}
