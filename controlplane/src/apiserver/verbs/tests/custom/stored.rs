//! Objects that were stored under another schema than the present one.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_an_object_is_stands_in_it() {
    let server = server().await;
    define(&server, &definition()).await;
    let mut nothing = lion("leo", &json!({"name": "leo"}));
    nothing.as_object_mut().unwrap().remove("apiVersion");
    let reply = post(&server, LIONS, &nothing).await;
    let text = "the API version in the data () does not match the expected API version (zoo.example/v1)";
    assert_eq!((reply.code, &reply.body["message"]), (400, &json!(text)));
    nothing.as_object_mut().unwrap().remove("kind");
    let reply = post(&server, LIONS, &nothing).await;
    assert_eq!(reply.code, 400);
    let text = reply.body["message"].as_str().unwrap();
    assert!(text.contains("Object 'Kind' is missing in '{"), "{text}");
    let unsupported = [("content-type", "application/strategic-merge-patch+json")];
    let path = format!("{LIONS}/leo");
    let reply = send(&server, "PATCH", &path, &unsupported, Some(&json!({}))).await;
    let text = reply.body["message"].as_str().unwrap();
    assert_eq!(reply.code, 415);
    assert!(
        text.ends_with("application/merge-patch+json, application/apply-patch+yaml"),
        "{text}"
    );
    let part = get(&server, &format!("{path}/nothing")).await;
    assert_eq!(
        (part.code, &part.body["message"]),
        (404, &json!("lions.zoo.example \"leo\" not found"))
    );
}

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/lions.zoo.example";

/// Gives the kind a field with a default, and takes one away.
async fn change_schema(server: &ApiServer) {
    let at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let change = json!([
        {"op": "add", "path": format!("{at}/tail"), "value": {"type": "string", "default": "tufted"}},
        {"op": "remove", "path": format!("{at}/mane")},
    ]);
    let changed = patch(server, DEFINITION, "json", &change).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
}

#[tokio::test(start_paused = true)]
async fn what_was_stored_before_shows_as_the_present_schema_has_it() {
    let server = server().await;
    define(&server, &definition()).await;
    let made = post(&server, LIONS, &lion("leo", &json!({"name": "leo", "mane": "long"}))).await;
    let mut watch = Watch::json(&server, &format!("{LIONS}?watch=1")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["spec"]["mane"], "long");
    change_schema(&server).await;
    assert!(
        watch.next().await.is_none(),
        "a watch of the former schema ends: it would show its fields"
    );
    let leo = format!("{LIONS}/leo");
    let spec = json!({"name": "leo", "age": 3, "tail": "tufted"});
    let shown = until(&server, &leo, |reply| reply.body["spec"]["tail"] == "tufted").await;
    assert_eq!(shown.body["spec"], spec);
    let revision = &made.body["metadata"]["resourceVersion"];
    assert_eq!(
        &shown.body["metadata"]["resourceVersion"], revision,
        "nothing was written"
    );
    assert_eq!(get(&server, LIONS).await.body["items"][0]["spec"], spec);
    let mut watch = Watch::json(&server, &format!("{LIONS}?watch=1")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["spec"], spec);
    // As whoever migrates storage does: the same object is written once in its new form, and not again.
    let written = put(&server, &leo, &shown.body).await;
    assert_eq!((written.code, &written.body["spec"]), (200, &spec), "{}", written.body);
    let (_, stored) = server.store().range("/registry/zoo.example/lions/a/leo").await.unwrap();
    let text = String::from_utf8(stored[0].value.to_vec()).unwrap();
    assert!(text.contains("tufted") && !text.contains("\"mane\":"), "{text}");
    let again = put(&server, &leo, &written.body).await;
    assert_eq!(
        again.body["metadata"]["resourceVersion"],
        written.body["metadata"]["resourceVersion"]
    );
    assert_eq!(watch.next().await.unwrap()["object"]["spec"], spec);
}

#[tokio::test(start_paused = true)]
async fn a_watch_outlives_changes_of_other_definitions() {
    let server = server().await;
    define(&server, &definition()).await;
    let mut watch = Watch::json(&server, &format!("{LIONS}?watch=1")).await;
    let mut other = definition();
    other["metadata"]["name"] = json!("cats.zoo.example");
    other["spec"]["names"] = json!({"plural": "cats", "kind": "Cat"});
    define(&server, &other).await;
    post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
}

/// A custom resource says the version that was the storage version when it was written, which is what the definition's status keeps.
#[tokio::test(start_paused = true)]
async fn a_custom_resource_says_the_version_it_was_stored_in() {
    let server = server().await;
    let mut definition = definition();
    let mut newer = definition["spec"]["versions"][0].clone();
    newer["name"] = json!("v2");
    newer["storage"] = json!(false);
    definition["spec"]["versions"].as_array_mut().unwrap().push(newer);
    define(&server, &definition).await;
    post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await;
    let key = "/registry/zoo.example/lions/a/leo";
    let text = || super::super::stored_bytes::text(&server, key);
    assert!(
        text()
            .await
            .starts_with(r#"{"kind":"Lion","apiVersion":"zoo.example/v1","metadata":{"#)
    );
    let change = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    ]);
    assert_eq!(patch(&server, DEFINITION, "json", &change).await.code, 200);
    let is_both = |reply: &Reply| reply.body["status"]["storedVersions"] == json!(["v1", "v2"]);
    until(&server, DEFINITION, is_both).await;
    // Read in both, as it was; the next write brings it to the version of today, though nothing else changes.
    let newer = LIONS.replace("/v1/", "/v2/");
    for (path, version) in [(LIONS, "v1"), (&newer, "v2")] {
        let read = get(&server, &format!("{path}/leo")).await.body;
        assert_eq!(
            (&read["apiVersion"], &read["spec"]["name"]),
            (&json!(format!("zoo.example/{version}")), &json!("leo"))
        );
    }
    assert!(text().await.contains(r#""apiVersion":"zoo.example/v1","metadata""#));
    let read = get(&server, &format!("{newer}/leo")).await.body;
    let written = put(&server, &format!("{newer}/leo"), &read).await;
    assert_eq!(written.code, 200, "{}", written.body);
    assert!(
        text().await.contains(r#""apiVersion":"zoo.example/v2","metadata""#),
        "{}",
        text().await
    );
}

/// Who changes nothing that the generation counts through the version he knows has not raised it, however the object is stored.
#[tokio::test(start_paused = true)]
async fn a_generation_is_one_of_the_version_that_was_asked() {
    let server = server().await;
    let mut two = definition();
    let first = &mut two["spec"]["versions"][0];
    let mut second = first.clone();
    first["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tail"] =
        json!({"type": "string", "default": "tufted"});
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    two["spec"]["versions"].as_array_mut().unwrap().push(second);
    define(&server, &two).await;
    let made = post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await;
    assert_eq!((made.code, &made.body["spec"]["tail"]), (201, &json!("tufted")));
    let hash = |reply: &Reply| reply.body["resources"][0]["storageVersionHash"].clone();
    let before = hash(&get(&server, "/apis/zoo.example/v1").await);
    let moved = json!([{"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]);
    assert_eq!(patch(&server, DEFINITION, "json", &moved).await.code, 200);
    until(&server, "/apis/zoo.example/v1", |reply| hash(reply) != before).await;
    let leo = format!("{LIONS}/leo");
    for (change, generation) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), 1),
        (json!({"spec": {"age": 4}}), 2),
        (json!({"metadata": {"labels": {"a": "c"}}}), 2),
    ] {
        let changed = patch(&server, &leo, "merge", &change).await;
        assert_eq!(
            (changed.code, &changed.body["metadata"]["generation"]),
            (200, &json!(generation)),
            "{change}"
        );
    }
}
