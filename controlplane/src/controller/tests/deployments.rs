use super::*;
use tokio::time::Instant;

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

fn is_available(deployment: &Value, replicas: u64) -> bool {
    let status = &deployment["status"];
    status["availableReplicas"] == replicas
        && status["updatedReplicas"] == replicas
        && status["replicas"] == replicas
        && status["observedGeneration"] == deployment["metadata"]["generation"]
}

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_available_pods() {
    let world = World::start(2).await;
    world.until("/api/v1/nodes/n1", |n| n["spec"]["taints"].is_null()).await;
    let start = Instant::now();
    world.deploy("web", 3, "nginx").await;
    let deployment = world.until(DEPLOYMENT, |d| is_available(d, 3)).await;
    // Nothing on the way waits for time to pass: on a paused clock only this test's own polling does.
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let pods = world.items(PODS).await;
    assert_eq!(pods.len(), 3);
    let nodes: std::collections::BTreeSet<_> = pods.iter().map(|p| p["spec"]["nodeName"].to_string()).collect();
    assert_eq!(nodes.len(), 2, "spread over both nodes");
    let conditions = deployment["status"]["conditions"].as_array().unwrap();
    let progressing = conditions.iter().find(|c| c["type"] == "Progressing").unwrap();
    assert_eq!(progressing["reason"], "NewReplicaSetAvailable");
    assert_eq!(
        deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "1"
    );
    let events = "/api/v1/namespaces/default/events";
    let has = |list: &Value, reason: &str, n: usize| {
        list["items"]
            .as_array()
            .is_some_and(|i| i.iter().filter(|e| e["reason"] == reason).count() == n)
    };
    world
        .until(events, |e| {
            has(e, "Scheduled", 3) && has(e, "SuccessfulCreate", 3) && has(e, "ScalingReplicaSet", 1)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn scaling_and_rolling() {
    let world = World::start(1).await;
    world.deploy("web", 3, "nginx").await;
    world.until(DEPLOYMENT, |d| is_available(d, 3)).await;
    for replicas in [5, 2] {
        world.patch(DEPLOYMENT, json!({"spec": {"replicas": replicas}})).await;
        world.until(DEPLOYMENT, |d| is_available(d, replicas)).await;
    }
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
    world.patch(DEPLOYMENT, image).await;
    let deployment = world
        .until(DEPLOYMENT, |d| {
            is_available(d, 2) && d["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
        })
        .await;
    assert_eq!(deployment["status"]["collisionCount"], Value::Null);
    let sets = world.items(SETS).await;
    let mut sizes: Vec<_> = sets.iter().map(|s| s["spec"]["replicas"].as_u64().unwrap()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 2]);
    world.until(PODS, |p| p["items"].as_array().unwrap().len() == 2).await;
    let pods = world.items(PODS).await;
    assert!(pods.iter().all(|p| p["spec"]["containers"][0]["image"] == "nginx:2"));
}

#[tokio::test(start_paused = true)]
async fn recreate_has_no_overlap() {
    let world = World::start(1).await;
    let mut body = deployment("web", 2, "nginx");
    body["spec"]["strategy"] = json!({"type": "Recreate"});
    world.create("/apis/apps/v1/namespaces/default/deployments", body).await;
    world.until(DEPLOYMENT, |d| is_available(d, 2)).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
    world.patch(DEPLOYMENT, image).await;
    let mut done = false;
    while !done {
        let pods = world.items(PODS).await;
        let images: std::collections::BTreeSet<_> = pods
            .iter()
            .map(|p| p["spec"]["containers"][0]["image"].to_string())
            .collect();
        assert!(images.len() <= 1, "{images:?}");
        done = images.contains("\"nginx:2\"") && pods.len() == 2;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_image_stops_the_rollout_and_undo_repairs_it() {
    let world = World::start(1).await;
    world.deploy("web", 4, "nginx").await;
    world.until(DEPLOYMENT, |d| is_available(d, 4)).await;
    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    world.patch(DEPLOYMENT, image("broken")).await;
    let reason = |d: &Value| {
        let conditions = d["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .find(|c| c["type"] == "Progressing")
            .map(|c| c["reason"].clone())
            .unwrap_or_default()
    };
    let stuck = world
        .until(DEPLOYMENT, |d| reason(d) == "ProgressDeadlineExceeded")
        .await;
    assert_eq!(stuck["status"]["availableReplicas"], 3);
    world.patch(DEPLOYMENT, image("nginx")).await;
    let repaired = world
        .until(DEPLOYMENT, |d| {
            is_available(d, 4) && reason(d) == "NewReplicaSetAvailable"
        })
        .await;
    assert_eq!(
        repaired["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "3"
    );
    assert_eq!(world.items(SETS).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_room_and_say_why() {
    let world = World::start(0).await;
    world.deploy("web", 1, "nginx").await;
    let message = |list: &Value| {
        let conditions = list["items"][0]["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let scheduled = conditions
            .into_iter()
            .find(|c| c["type"] == "PodScheduled")
            .unwrap_or_default();
        scheduled["message"].as_str().unwrap_or_default().to_owned()
    };
    world
        .until(PODS, |p| message(p) == "no nodes available to schedule pods")
        .await;
    world.add_node("late").await;
    world.until(DEPLOYMENT, |d| is_available(d, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_pods_are_adopted_and_relabelled_ones_released() {
    let world = World::start(1).await;
    world.deploy("web", 2, "nginx").await;
    world.until(DEPLOYMENT, |d| is_available(d, 2)).await;
    let pod = world.items(PODS).await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    world
        .patch(
            &format!("{PODS}/{pod}"),
            json!({"metadata": {"labels": {"app": "other"}}}),
        )
        .await;
    world
        .until(&format!("{PODS}/{pod}"), |p| p["metadata"]["ownerReferences"].is_null())
        .await;
    world.until(PODS, |p| p["items"].as_array().unwrap().len() == 3).await;
    world
        .patch(
            &format!("{PODS}/{pod}"),
            json!({"metadata": {"labels": {"app": "web"}}}),
        )
        .await;
    // Three match now, two are wanted.
    world
        .until(PODS, |p| {
            let all = p["items"].as_array().unwrap();
            all.len() == 2
                && all
                    .iter()
                    .all(|p| p["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet")
        })
        .await;
}
