//! Options of deletions and evictions: what is wrong with them, and what they pin.

use super::*;

const BUDGETS: &str = "/apis/policy/v1/namespaces/a/poddisruptionbudgets";

#[tokio::test(start_paused = true)]
async fn options_that_cannot_be_read_delete_nothing() {
    let server = server().await;
    let path = format!("{MAPS}/m");
    post(&server, MAPS, &config_map("m", json!({}))).await;
    let go = |kind: &str| format!("json: cannot unmarshal {kind}");
    let foo =
        "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\"";
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    for (body, code, text) in [
        (json!({"dryRun": ["Foo"]}), 422, foo.to_owned()),
        (
            json!({"dryRun": "All"}),
            400,
            go("string into Go struct field DeleteOptions.dryRun of type []string"),
        ),
        (
            json!({"preconditions": {"resourceVersion": 5}}),
            400,
            go("number into Go struct field Preconditions.preconditions.resourceVersion of type string"),
        ),
        (json!({"preconditions": 5}), 400, go("number")),
        (json!({"preconditions": {"uid": ""}}), 409, "Operation".to_owned()),
        (json!({"gracePeriodSeconds": "x"}), 400, go("string")),
        (json!({"propagationPolicy": ["Orphan"]}), 400, go("array")),
        (json!({"propagationPolicy": ""}), 422, "DeleteOptions".to_owned()),
        (both, 422, "DeleteOptions".to_owned()),
        (json!([]), 400, "couldn't get version/kind".to_owned()),
        (json!({"kind": "Pod", "apiVersion": "v1"}), 400, "Pod".to_owned()),
    ] {
        for path in [path.as_str(), MAPS] {
            if path == MAPS && code == 409 {
                continue;
            }
            let reply = send(&server, "DELETE", path, &[], Some(&body)).await;
            assert_eq!(reply.code, code, "{body}: {}", reply.body);
            let message = reply.body["message"].as_str().unwrap();
            assert!(message.starts_with(&text), "{body}: {message}");
        }
    }
    for query in ["propagationPolicy=", "dryRun=", "dryRun=Foo"] {
        assert_eq!(delete(&server, &format!("{path}?{query}")).await.code, 422, "{query}");
    }
    assert_eq!(get(&server, &path).await.code, 200);
    let odd = json!({"kind": "DeleteOptions", "apiVersion": "other/v9", "dryrun": ["All"], "dryRun": ["All"]});
    let dry = send(&server, "DELETE", &path, &[], Some(&odd)).await;
    assert_eq!(
        (dry.code, dry.headers["warning"].to_str().unwrap()),
        (200, "299 - \"unknown field \\\"dryrun\\\"\"")
    );
    let query = format!("{path}?dryRun=All");
    assert_eq!(send(&server, "DELETE", &query, &[], Some(&json!({}))).await.code, 200);
    assert_eq!(get(&server, &path).await.code, 200, "neither was more than tried");
    assert_eq!(send(&server, "DELETE", &path, &[], Some(&json!({}))).await.code, 200);
    assert_eq!(get(&server, &path).await.code, 404);
}

/// A pod that runs, ready or not.
async fn running(server: &ApiServer, name: &str, ready: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["nodeName"] = json!("n");
    let made = post(server, PODS, &pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    patch(server, &format!("{PODS}/{name}/status"), "merge", &status)
        .await
        .body
}

async fn guard(server: &ApiServer, status: Value) {
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    let made = post(server, BUDGETS, &budget).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let set = patch(
        server,
        &format!("{BUDGETS}/b/status"),
        "merge",
        &json!({"status": status}),
    )
    .await;
    assert_eq!(set.code, 200, "{}", set.body);
}

async fn evict(server: &ApiServer, name: &str, options: Value) -> Reply {
    let eviction = json!({"metadata": {"name": name}, "deleteOptions": options});
    post(server, &format!("{PODS}/{name}/eviction"), &eviction).await
}

fn is_marked(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    conditions.iter().any(|known| known["type"] == "DisruptionTarget")
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_leaves_no_mark_and_spends_nothing() {
    let server = server().await;
    let pod = running(&server, "p", "True").await;
    guard(&server, json!({"observedGeneration": 1, "disruptionsAllowed": 1})).await;
    let wrong = evict(&server, "p", json!({"preconditions": {"uid": "wrong"}})).await;
    assert_eq!(wrong.code, 409, "{}", wrong.body);
    let text = wrong.body["message"].as_str().unwrap();
    assert!(
        text.starts_with(
            "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (wrong) does not match"
        ),
        "{text}"
    );
    let old = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(evict(&server, "p", old).await.code, 409);
    let dry = evict(&server, "p", json!({"dryRun": ["Foo"]})).await;
    assert_eq!(dry.code, 201, "nothing is done: {}", dry.body);
    let path = format!("{PODS}/p/eviction?dryRun=All");
    let other = json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["Foo"]}});
    let differs = post(&server, &path, &other).await;
    assert_eq!(
        (differs.code, &differs.body["message"]),
        (
            500,
            &json!("Non-matching dry-run options in request and content: [All] and [Foo]")
        )
    );
    let unreadable = evict(&server, "p", json!({"dryRun": "All"})).await;
    assert_eq!(unreadable.code, 400, "{}", unreadable.body);
    let nameless = post(&server, &format!("{PODS}/p/eviction"), &json!({})).await;
    assert_eq!(nameless.code, 400, "{}", nameless.body);
    let read = get(&server, &format!("{PODS}/p")).await.body;
    assert_eq!(read, pod);
    let budget = get(&server, &format!("{BUDGETS}/b")).await.body;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1, "{budget}");
}

#[tokio::test(start_paused = true)]
async fn the_evictions_own_mark_is_no_change_of_the_pod() {
    let server = server().await;
    let pod = running(&server, "p", "True").await;
    guard(&server, json!({"observedGeneration": 1, "disruptionsAllowed": 1})).await;
    let revision = &pod["metadata"]["resourceVersion"];
    let done = evict(&server, "p", json!({"preconditions": {"resourceVersion": revision}})).await;
    assert_eq!(done.code, 201, "{}", done.body);
    let read = get(&server, &format!("{PODS}/p")).await.body;
    assert!(
        read["metadata"]["deletionTimestamp"].is_string() && is_marked(&read),
        "{read}"
    );
    let budget = get(&server, &format!("{BUDGETS}/b")).await.body;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0, "{budget}");
    assert_eq!(
        budget["status"]["conditions"][0]["reason"], "InsufficientPods",
        "{budget}"
    );
}

#[tokio::test(start_paused = true)]
async fn broken_pods_of_a_healthy_application_go_and_cost_nothing() {
    let server = server().await;
    running(&server, "broken", "False").await;
    running(&server, "well", "True").await;
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1});
    guard(&server, status.clone()).await;
    assert_eq!(evict(&server, "well", json!({})).await.code, 429);
    let old = json!({"kind": "Eviction", "apiVersion": "policy/v1beta1", "metadata": {"name": "broken"}});
    let done = post(&server, &format!("{PODS}/broken/eviction"), &old).await;
    assert_eq!(done.code, 201, "{}", done.body);
    let read = get(&server, &format!("{PODS}/broken")).await.body;
    assert!(
        read["metadata"]["deletionTimestamp"].is_string() && is_marked(&read),
        "{read}"
    );
    let budget = get(&server, &format!("{BUDGETS}/b")).await.body;
    assert_eq!(budget["status"]["disruptedPods"], Value::Null, "{budget}");
    let mut newer = old;
    newer["apiVersion"] = json!("policy/v2");
    assert_eq!(post(&server, &format!("{PODS}/well/eviction"), &newer).await.code, 400);
}
