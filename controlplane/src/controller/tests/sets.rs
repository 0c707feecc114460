//! StatefulSets, DaemonSets and ReplicationControllers.

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DAEMONS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn stateful(replicas: usize) -> Value {
    json!({"kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": {"name": "s"}, "spec": {"replicas": replicas,
        "serviceName": "svc", "selector": {"matchLabels": {"app": "s"}}, "template": template("one")}})
}

fn names(pods: &Value) -> Vec<&str> {
    let pods = pods["items"].as_array().into_iter().flatten();
    pods.map(|p| p["metadata"]["name"].as_str().unwrap()).collect()
}

fn images(pods: &Value) -> Vec<&str> {
    let pods = pods["items"].as_array().into_iter().flatten();
    pods.map(|p| p["spec"]["containers"][0]["image"].as_str().unwrap())
        .collect()
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn is_settled(set: &Value, replicas: u64, updated: u64) -> bool {
    let status = &set["status"];
    let counts = ["replicas", "readyReplicas", "availableReplicas"];
    counts.iter().all(|key| status[*key].as_u64().unwrap_or(0) == replicas)
        && status["updatedReplicas"].as_u64().unwrap_or(0) == updated
        && status["observedGeneration"] == set["metadata"]["generation"]
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_starts_scales_and_is_updated_by_parts() {
    let world = World::start(2).await;
    world.create(SETS, stateful(3)).await;
    let path = format!("{SETS}/s");
    world.until(&path, |s| is_settled(s, 3, 3)).await;
    let pods = world.items(PODS).await;
    let created = |p: &Value| p["metadata"]["resourceVersion"].clone();
    assert_eq!(
        names(&json!({"items": pods})),
        ["s-0", "s-1", "s-2"],
        "{}",
        created(&pods[0])
    );
    assert_eq!(pods[1]["spec"]["hostname"], "s-1");
    let message = "create Pod s-2 in StatefulSet s successful";
    world
        .until(EVENTS, |e| {
            e["items"]
                .as_array()
                .is_some_and(|all| all.iter().any(|e| e["message"] == message))
        })
        .await;
    // A part of them, then the rest.
    let partition = |n: usize| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": n}}}});
    world.patch(&path, partition(2)).await;
    world.patch(&path, image("two")).await;
    let set = world.until(&path, |s| is_settled(s, 3, 1)).await;
    assert_ne!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    assert_eq!(
        images(&json!({"items": world.items(PODS).await})),
        ["one", "one", "two"]
    );
    world.patch(&path, partition(0)).await;
    let set = world
        .until(&path, |s| {
            is_settled(s, 3, 3) && s["status"]["currentRevision"] == s["status"]["updateRevision"]
        })
        .await;
    assert_eq!(
        images(&json!({"items": world.items(PODS).await})),
        ["two", "two", "two"]
    );
    // Back: the first revision is the newest then.
    world.patch(&path, image("one")).await;
    world
        .until(&path, |s| {
            is_settled(s, 3, 3) && s["status"]["updateRevision"] != set["status"]["updateRevision"]
        })
        .await;
    let revisions = world.items(REVISIONS).await;
    let mut numbers: Vec<_> = revisions.iter().map(|r| r["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
    // By its scale, as kubectl does.
    let scale = world
        .patch(&format!("{path}/scale"), json!({"spec": {"replicas": 1}}))
        .await;
    assert_eq!(
        (&scale["kind"], &scale["status"]["selector"]),
        (&json!("Scale"), &json!("app=s"))
    );
    world.until(&path, |s| is_settled(s, 1, 1)).await;
    world.until(PODS, |p| names(p) == ["s-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn pods_with_claims_wait_for_what_nothing_here_binds() {
    let world = World::start(1).await;
    let mut set = stateful(2);
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}]);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    world.create(SETS, set).await;
    let claim = "/api/v1/namespaces/default/persistentvolumeclaims/data-s-0";
    let owned = world
        .until(claim, |c| c["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet")
        .await;
    assert_eq!(owned["metadata"]["labels"]["app"], "s");
    let why = |p: &Value| {
        let conditions = p["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|c| c["type"] == "PodScheduled" && c["status"] == "False" && c["message"].is_string())
    };
    let pod = world.until(&format!("{PODS}/s-0"), why).await;
    assert_eq!(
        pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"],
        "data-s-0"
    );
    world.call("DELETE", &format!("{SETS}/s"), None).await.unwrap();
    world.until(claim, Value::is_null).await;
    world.until(PODS, |p| names(p).is_empty()).await;
}

fn daemon() -> Value {
    json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "s"}}, "template": template("one")}})
}

fn runs_on(set: &Value, nodes: u64) -> bool {
    let status = &set["status"];
    [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberAvailable",
        "updatedNumberScheduled",
    ]
    .iter()
    .all(|key| status[*key].as_u64().unwrap_or(0) == nodes)
        && status["observedGeneration"] == set["metadata"]["generation"]
}

fn on_nodes(pods: &[Value]) -> Vec<String> {
    let mut nodes: Vec<_> = pods
        .iter()
        .map(|p| p["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())
        .collect();
    nodes.sort();
    nodes
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_follows_the_nodes_and_its_template() {
    let world = World::start(2).await;
    world.create(DAEMONS, daemon()).await;
    let path = format!("{DAEMONS}/d");
    world.until(&path, |d| runs_on(d, 2)).await;
    assert_eq!(on_nodes(&world.items(PODS).await), ["n0", "n1"]);
    // A new node, and one that is cordoned: both belong.
    world.add_node("n2").await;
    world
        .patch("/api/v1/nodes/n0", json!({"spec": {"unschedulable": true}}))
        .await;
    world.until(&path, |d| runs_on(d, 3)).await;
    // Out with the old, one at a time; then back, as kubectl rollout undo does.
    world.patch(&path, image("two")).await;
    world.until(&path, |d| runs_on(d, 3)).await;
    assert_eq!(images(&json!({"items": world.items(PODS).await})), ["two"; 3]);
    let revisions = world.items(REVISIONS).await;
    let first = revisions.iter().find(|r| r["revision"] == 1).unwrap();
    assert_eq!(first["data"]["spec"]["template"]["$patch"], "replace");
    let back = first["data"].to_string().into_bytes();
    let request = Request::patch(&path).header("content-type", "application/strategic-merge-patch+json");
    world
        .client
        .request::<Value>(request.body(back).unwrap())
        .await
        .unwrap();
    world
        .until(&path, |d| runs_on(d, 3) && d["metadata"]["generation"] == 3)
        .await;
    assert_eq!(images(&json!({"items": world.items(PODS).await})), ["one"; 3]);
    let mut numbers: Vec<_> = world
        .items(REVISIONS)
        .await
        .iter()
        .map(|r| r["revision"].as_i64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3], "the first is the third now");
    // A pod that fails is made anew, and said so.
    let failed = world.items(PODS).await.remove(0)["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    world
        .patch(
            &format!("{PODS}/{failed}/status"),
            json!({"status": {"phase": "Failed"}}),
        )
        .await;
    world
        .until(EVENTS, |e| {
            e["items"]
                .as_array()
                .is_some_and(|all| all.iter().any(|e| e["reason"] == "FailedDaemonPod"))
        })
        .await;
    world.until(&format!("{PODS}/{failed}"), Value::is_null).await;
    world.until(&path, |d| runs_on(d, 3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_keeps_its_number() {
    let world = World::start(1).await;
    let path = "/api/v1/namespaces/default/replicationcontrollers";
    let body = json!({"kind": "ReplicationController", "apiVersion": "v1", "metadata": {"name": "r"},
        "spec": {"replicas": 2, "selector": {"app": "s"}, "template": template("one")}});
    world.create(path, body).await;
    let path = format!("{path}/r");
    let has = |n: u64| {
        move |r: &Value| r["status"]["replicas"] == n && r["status"]["readyReplicas"].as_u64().unwrap_or(0) == n
    };
    world.until(&path, has(2)).await;
    let gone = world.items(PODS).await.remove(0)["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    world.call("DELETE", &format!("{PODS}/{gone}"), None).await.unwrap();
    world
        .until(PODS, |p| names(p).len() == 2 && !names(p).contains(&gone.as_str()))
        .await;
    world
        .patch(&format!("{path}/scale"), json!({"spec": {"replicas": 1}}))
        .await;
    world.until(&path, has(1)).await;
    let owner = &world.items(PODS).await[0]["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "ReplicationController");
}
