use super::watches::Watch;
use super::*;

const CORE: &str = "/api/v1/namespaces/a/events";
const NEWER: &str = "/apis/events.k8s.io/v1/namespaces/a/events";
const V1: &str = "/apis/autoscaling/v1/namespaces/a/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/a/horizontalpodautoscalers";

fn newer_event(name: &str) -> Value {
    json!({"kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": name}, "note": "it runs",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "a"}, "reason": "Started", "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c", "reportingInstance": "i",
        "action": "Start"})
}

#[tokio::test]
async fn an_event_is_one_object_in_both_versions() {
    let server = server().await;
    let made = post(&server, NEWER, &newer_event("e")).await;
    assert_eq!(
        (made.code, &made.body["note"]),
        (201, &json!("it runs")),
        "{}",
        made.body
    );
    assert_eq!(made.body["apiVersion"], "events.k8s.io/v1");
    let core = get(&server, &format!("{CORE}/e")).await.body;
    assert_eq!(
        (&core["message"], &core["involvedObject"]["name"]),
        (&json!("it runs"), &json!("p"))
    );
    assert_eq!(
        (&core["apiVersion"], &core["reportingComponent"]),
        (&json!("v1"), &json!("example.com/c"))
    );
    assert!(core.get("note").is_none() && core.get("regarding").is_none());
    let old = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "old"}, "message": "m", "reason": "R",
        "involvedObject": {"kind": "Node", "name": "n", "namespace": "a"}, "count": 3, "type": "Warning"});
    assert_eq!(post(&server, CORE, &old).await.code, 201);
    let list = get(&server, NEWER).await.body;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("EventList"), &json!("events.k8s.io/v1"))
    );
    assert_eq!(list["items"][1]["deprecatedCount"], 3);
    assert_eq!(list["items"][1]["regarding"]["kind"], "Node");
    for (path, names) in [
        (format!("{NEWER}?fieldSelector=regarding.kind=Node"), vec!["old"]),
        (
            format!("{NEWER}?fieldSelector=reportingController=example.com/c"),
            vec!["e"],
        ),
        (format!("{CORE}?fieldSelector=involvedObject.kind=Pod"), vec!["e"]),
    ] {
        let items = get(&server, &path).await.body["items"].take();
        let found: Vec<&str> = items
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["metadata"]["name"].as_str())
            .collect();
        assert_eq!(found, names, "{path}");
    }
    let refused = get(&server, &format!("{NEWER}?fieldSelector=involvedObject.kind=Pod")).await;
    assert_eq!(
        (refused.code, &refused.body["message"]),
        (400, &json!("field label not supported: involvedObject.kind"))
    );
}

#[tokio::test]
async fn each_version_is_patched_watched_and_refused_in_its_own_words() {
    let server = server().await;
    post(&server, NEWER, &newer_event("e")).await;
    let mut newer = Watch::json(&server, &format!("{NEWER}?watch=1")).await;
    let mut core = Watch::json(&server, &format!("{CORE}?watch=1")).await;
    let changed = patch(&server, &format!("{CORE}/e"), "merge", &json!({"message": "it ran"})).await;
    assert_eq!((changed.code, &changed.body["message"]), (200, &json!("it ran")));
    for _ in 0..2 {
        let (event, other) = (newer.next().await.unwrap(), core.next().await.unwrap());
        assert_eq!(event["object"]["note"], other["object"]["message"]);
        assert_eq!(event["object"]["apiVersion"], "events.k8s.io/v1");
    }
    let refused = patch(&server, &format!("{NEWER}/e"), "merge", &json!({"note": "no"})).await;
    assert_eq!(refused.code, 422);
    let expected = "Event.events.k8s.io \"e\" is invalid: note: Invalid value: \"no\": field is immutable";
    assert_eq!(refused.body["message"], expected);
    let mut bare = newer_event("f");
    bare.as_object_mut().unwrap().remove("eventTime");
    bare["deprecatedCount"] = json!(1);
    let refused = post(&server, NEWER, &bare).await;
    let fields: Vec<&str> = refused.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["field"].as_str())
        .collect();
    assert_eq!(fields, ["eventTime", "count"]);
    let mut unnamed = newer_event("g");
    unnamed["reportingController"] = json!("");
    unnamed["action"] = json!("x".repeat(129));
    let refused = post(&server, NEWER, &unnamed).await.body["details"]["causes"].take();
    let texts: Vec<&str> = refused
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["message"].as_str())
        .collect();
    assert_eq!(texts[0], "Required value");
    assert_eq!(
        *texts.last().unwrap(),
        "Invalid value: \"\": can have at most 128 characters"
    );
    let missing = get(&server, &format!("{NEWER}/none")).await;
    assert_eq!(missing.body["message"], "events.events.k8s.io \"none\" not found");
    let table = send(
        &server,
        "GET",
        &format!("{NEWER}/e"),
        &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")],
        None,
    )
    .await;
    assert_eq!(table.body["rows"][0]["cells"][3], "pod/p");
}

fn older_autoscaler() -> Value {
    json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 5,
            "targetCPUUtilizationPercentage": 60}})
}

#[tokio::test]
async fn an_autoscaler_keeps_in_annotations_what_v1_has_no_field_for() {
    let server = server().await;
    let made = post(&server, V1, &older_autoscaler()).await;
    assert_eq!(
        (made.code, &made.body["spec"]["targetCPUUtilizationPercentage"]),
        (201, &json!(60)),
        "{}",
        made.body
    );
    assert_eq!(made.body["spec"]["minReplicas"], 1);
    let newer = get(&server, &format!("{V2}/h")).await.body;
    assert_eq!(
        newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        60
    );
    let more = json!({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 7}}, "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
        {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "4"}}}]}});
    assert_eq!(patch(&server, &format!("{V2}/h"), "merge", &more).await.code, 200);
    let before = get(&server, &format!("{V2}/h")).await.body;
    // A client of v1 changes what it knows, and the rest stays.
    let older = patch(
        &server,
        &format!("{V1}/h"),
        "strategic-merge",
        &json!({"spec": {"maxReplicas": 9}}),
    )
    .await;
    assert_eq!(
        (older.code, &older.body["spec"]["maxReplicas"]),
        (200, &json!(9)),
        "{}",
        older.body
    );
    let mut after = get(&server, &format!("{V2}/h")).await.body;
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    after["spec"]["maxReplicas"] = json!(5);
    assert_eq!(after, before);
    assert!(
        after["metadata"].get("annotations").is_none(),
        "annotations are for those who ask for v1"
    );
    let dry = send(&server, "PUT", &format!("{V1}/h?dryRun=All"), &[], Some(&older.body)).await;
    assert_eq!(
        (dry.code, &dry.body["apiVersion"]),
        (200, &json!("autoscaling/v1")),
        "{}",
        dry.body
    );
    let table = send(
        &server,
        "GET",
        V1,
        &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")],
        None,
    )
    .await;
    let newer = send(
        &server,
        "GET",
        V2,
        &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")],
        None,
    )
    .await;
    assert_eq!(table.body["rows"][0]["cells"], newer.body["rows"][0]["cells"]);
    let gone = delete(&server, &format!("{V1}/h")).await;
    assert_eq!(
        (gone.code, &gone.body["kind"]),
        (200, &json!("Status")),
        "{}",
        gone.body
    );
}

#[tokio::test]
async fn the_preferred_version_comes_first() {
    let server = server().await;
    let group = get(&server, "/apis/autoscaling").await.body;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    assert_eq!(group["versions"][1]["version"], "v1");
    let of = |body: Value| body["resources"][0]["storageVersionHash"].clone();
    let (v1, v2) = (
        get(&server, "/apis/autoscaling/v1").await.body,
        get(&server, "/apis/autoscaling/v2").await.body,
    );
    assert_eq!(of(v1), of(v2), "both are stored alike");
}
