//! Server-side apply on custom resources: lists merge, and fields are known, as the definition's schema says.

use super::*;

fn with_ports() -> Value {
    let mut definition = definition();
    let ports = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "port": {"type": "integer"}}}});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ports"] = ports;
    definition
}

async fn apply(server: &ApiServer, path: &str, manager: &str, config: &Value) -> Reply {
    let path = format!("{path}?fieldManager={manager}");
    let headers = [("content-type", "application/apply-patch+yaml")];
    send(server, "PATCH", &path, &headers, Some(config)).await
}

#[tokio::test(start_paused = true)]
async fn lists_merge_as_the_schema_says() {
    let server = server().await;
    define(&server, &with_ports()).await;
    let leo = format!("{LIONS}/leo");
    let first = json!({"name": "leo", "ports": [{"name": "a", "port": 1}], "tags": ["x"]});
    let made = apply(&server, &leo, "one", &lion("leo", &first)).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let own = &made.body["metadata"]["managedFields"][0];
    assert_eq!(
        (&own["apiVersion"], &own["fieldsV1"]["f:spec"]["f:ports"]),
        (
            &json!("zoo.example/v1"),
            &json!({"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:port": {}}})
        )
    );
    let second = lion("leo", &json!({"ports": [{"name": "b", "port": 2}], "tags": ["y"]}));
    let both = apply(&server, &leo, "two", &second).await.body;
    assert_eq!(
        both["spec"]["ports"],
        json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]),
        "{both}"
    );
    assert_eq!(both["spec"]["tags"], json!(["x", "y"]));
    let taking = lion("leo", &json!({"ports": [{"name": "a", "port": 9}]}));
    let refused = apply(&server, &leo, "two", &taking).await;
    assert_eq!(refused.code, 409, "{}", refused.body);
    assert_eq!(
        refused.body["details"]["causes"][0]["field"],
        ".spec.ports[name=\"a\"].port"
    );
    let left = apply(&server, &leo, "one", &lion("leo", &json!({"name": "leo"})))
        .await
        .body;
    assert_eq!(left["spec"]["ports"], json!([{"name": "b", "port": 2}]), "{left}");
    assert_eq!(left["spec"]["tags"], json!(["y"]));
    let again = apply(&server, &leo, "one", &lion("leo", &json!({"name": "leo"})))
        .await
        .body;
    assert_eq!(again, left, "no write");
}

#[tokio::test(start_paused = true)]
async fn the_status_is_applied_apart_and_unknown_fields_are_refused() {
    let server = server().await;
    define(&server, &definition()).await;
    let leo = format!("{LIONS}/leo");
    let made = apply(&server, &leo, "one", &lion("leo", &json!({"name": "leo"}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let status = json!({"kind": "Lion", "apiVersion": "zoo.example/v1", "metadata": {"name": "leo"},
        "spec": {"age": 9}, "status": {"roars": 7}});
    let told = apply(&server, &format!("{leo}/status"), "two", &status).await.body;
    assert_eq!(
        (&told["spec"]["age"], &told["status"]["roars"]),
        (&json!(3), &json!(7)),
        "{told}"
    );
    let entries = told["metadata"]["managedFields"].as_array().unwrap();
    let of_status = entries.iter().find(|entry| entry["subresource"] == "status").unwrap();
    assert_eq!(of_status["fieldsV1"], json!({"f:status": {"f:roars": {}}}));
    let unknown = apply(&server, &leo, "one", &lion("leo", &json!({"name": "leo", "wings": 2}))).await;
    assert_eq!(unknown.code, 500, "{}", unknown.body);
    let message = unknown.body["message"].as_str().unwrap();
    assert!(
        message.ends_with(".spec.wings: field not declared in schema"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_and_its_objects_stay_their_managers_whatever_becomes_of_them() {
    let server = server().await;
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    let made = apply(&server, &path, "one", &definition()).await.body;
    let owners = made["metadata"]["managedFields"].clone();
    assert_eq!(owners[0]["manager"], "one", "{made}");
    let established = until(&server, &path, |reply| has(reply, "Established", "True")).await;
    assert_eq!(established.body["metadata"]["managedFields"], owners);
    let changed = apply(&server, &path, "one", &with_ports()).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    let owners = changed.body["metadata"]["managedFields"].clone();

    let mut held = lion("held", &json!({"name": "leo"}));
    held["metadata"]["finalizers"] = json!(["zoo.example/keeper"]);
    let held = post(&server, LIONS, &held).await.body;
    assert_eq!(delete(&server, &path).await.code, 200);
    let ending = until(&server, &format!("{LIONS}/held"), |reply| {
        !reply.body["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    assert_eq!(
        ending.body["metadata"]["managedFields"],
        held["metadata"]["managedFields"]
    );
    let terminating = get(&server, &path).await;
    assert!(has(&terminating, "Terminating", "True"), "{}", terminating.body);
    assert_eq!(terminating.body["metadata"]["managedFields"], owners);
}
