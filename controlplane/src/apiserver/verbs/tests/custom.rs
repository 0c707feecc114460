mod apply;
mod ends;
mod forms;
mod many;
mod numbers;
mod parts;
mod rules;
mod status;
mod stored;

use super::watches::Watch;
use super::*;
use std::time::Duration;

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const LIONS: &str = "/apis/zoo.example/v1/namespaces/a/lions";

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 9, "pattern": "^[a-z]+$"},
            "age": {"type": "integer", "minimum": 0, "maximum": 40, "default": 3},
            "mane": {"type": "string", "enum": ["long", "short"]},
            "port": {"x-kubernetes-int-or-string": true},
            "born": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
        "status": {"type": "object", "properties": {"roars": {"type": "integer"}}},
    }})
}

pub(super) fn definition() -> Value {
    json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "lions.zoo.example"},
        "spec": {"group": "zoo.example", "scope": "Namespaced",
            "names": {"plural": "lions", "kind": "Lion", "shortNames": ["li"], "categories": ["all"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema()},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Age of it", "type": "integer", "jsonPath": ".spec.age"}]}]}})
}

pub(super) fn lion(name: &str, spec: &Value) -> Value {
    json!({"kind": "Lion", "apiVersion": "zoo.example/v1", "metadata": {"name": name}, "spec": spec})
}

async fn until(server: &ApiServer, path: &str, done: impl Fn(&Reply) -> bool) -> Reply {
    for _ in 0..200 {
        let reply = get(server, path).await;
        if done(&reply) {
            return reply;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!(
        "{path} does not become what it should: {}",
        get(server, path).await.body
    );
}

fn has(reply: &Reply, condition: &str, status: &str) -> bool {
    let conditions = reply.body["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one["type"] == condition && one["status"] == status)
    })
}

pub(super) async fn define(server: &ApiServer, definition: &Value) {
    let made = post(server, DEFINITIONS, definition).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap());
    until(server, &path, |reply| has(reply, "Established", "True")).await;
}

fn causes(reply: &Reply) -> Vec<String> {
    let causes = reply.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value| {
        format!(
            "{}: {}",
            one["field"].as_str().unwrap_or(""),
            one["message"].as_str().unwrap_or("")
        )
    };
    causes.iter().map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_established_is_served_by_every_verb() {
    let server = server().await;
    assert_eq!(get(&server, LIONS).await.code, 404);
    define(&server, &definition()).await;
    let found = get(&server, "/apis/zoo.example/v1").await.body;
    assert_eq!(found["resources"][0]["shortNames"], json!(["li"]));
    assert_eq!(found["resources"][1]["name"], "lions/status");
    let mut watch = Watch::json(&server, &format!("{LIONS}?watch=1")).await;
    let made = post(
        &server,
        LIONS,
        &lion("leo", &json!({"name": "leo", "x": 1, "free": {"y": 2}, "port": "http"})),
    )
    .await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(
        made.body["spec"],
        json!({"name": "leo", "age": 3, "free": {"y": 2}, "port": "http"}),
        "pruned, with defaults"
    );
    assert_eq!(made.headers["warning"], "299 - \"unknown field \\\"spec.x\\\"\"");
    assert_eq!(made.body["metadata"]["generation"], 1);
    assert!(
        server
            .store()
            .range("/registry/zoo.example/lions/a/leo")
            .await
            .unwrap()
            .1
            .len()
            == 1,
        "where upstream keeps it"
    );
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["kind"]),
        (&json!("ADDED"), &json!("Lion"))
    );
    let leo = format!("{LIONS}/leo");
    let patched = patch(
        &server,
        &leo,
        "merge",
        &json!({"spec": {"age": 4}, "status": {"roars": 9}}),
    )
    .await;
    assert_eq!(
        (patched.code, &patched.body["metadata"]["generation"]),
        (200, &json!(2)),
        "{}",
        patched.body
    );
    assert!(patched.body.get("status").is_none(), "status has a part of its own");
    let patched = patch(
        &server,
        &format!("{leo}/status"),
        "merge",
        &json!({"status": {"roars": 9}, "spec": {"age": 7}}),
    )
    .await;
    assert_eq!(
        (&patched.body["status"]["roars"], &patched.body["spec"]["age"]),
        (&json!(9), &json!(4))
    );
    assert_eq!(patched.body["metadata"]["generation"], 2);
    let strategic = patch(&server, &leo, "strategic-merge", &json!({"spec": {"age": 4}})).await;
    assert_eq!(strategic.code, 415, "{}", strategic.body);
    let mut whole = patched.body.clone();
    whole["spec"]["age"] = json!(5);
    assert_eq!(put(&server, &leo, &whole).await.body["spec"]["age"], 5);
    let list = get(&server, LIONS).await.body;
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (&json!("LionList"), &json!("Lion"))
    );
    let accept = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let table = send(&server, "GET", LIONS, &accept, None).await.body;
    assert_eq!(table["rows"][0]["cells"], json!(["leo", 5]));
    assert_eq!(table["columnDefinitions"][1]["name"], "Age of it");
    assert_eq!(delete(&server, &leo).await.code, 200);
    assert_eq!(get(&server, &leo).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn what_a_schema_refuses_is_told_in_upstreams_words() {
    let server = server().await;
    define(&server, &definition()).await;
    for (spec, wanted) in [
        (json!({}), vec!["spec.name: Required value"]),
        (
            json!({"name": 7}),
            vec!["spec.name: Invalid value: \"integer\": spec.name in body must be of type string: \"integer\""],
        ),
        (
            json!({"name": "x"}),
            vec!["spec.name: Invalid value: \"x\": spec.name in body should be at least 2 chars long"],
        ),
        (
            json!({"name": "A1"}),
            vec!["spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'"],
        ),
        (
            json!({"name": "abcdefghij"}),
            vec!["spec.name: Too long: may not be more than 9 bytes"],
        ),
        (
            json!({"name": "leo", "age": 41}),
            vec!["spec.age: Invalid value: 41: spec.age in body should be less than or equal to 40"],
        ),
        (
            json!({"name": "leo", "mane": "none"}),
            vec!["spec.mane: Unsupported value: \"none\": supported values: \"long\", \"short\""],
        ),
        (
            json!({"name": "leo", "born": "today"}),
            vec!["spec.born: Invalid value: \"today\": spec.born in body must be of type date-time: \"today\""],
        ),
        (
            json!({"name": "leo", "tags": ["a", "a", "b"]}),
            vec![
                "spec.tags: Too many: 3: must have at most 2 items",
                "spec.tags[1]: Duplicate value: \"a\"",
            ],
        ),
        (
            json!({"name": "leo", "labels": {"a": 1}}),
            vec![
                "spec.labels.a: Invalid value: \"integer\": spec.labels.a in body must be of type string: \"integer\"",
            ],
        ),
    ] {
        let refused = post(&server, LIONS, &lion("leo", &spec)).await;
        assert_eq!(refused.code, 422, "{spec}");
        let told: Vec<String> = causes(&refused).iter().map(|text| text.trim().to_owned()).collect();
        assert_eq!(told, wanted, "{spec}");
    }
    let strict = post(
        &server,
        &format!("{LIONS}?fieldValidation=Strict"),
        &lion("leo", &json!({"name": "leo", "x": 1})),
    )
    .await;
    let expected =
        "Lion in version \"v1\" cannot be handled as a Lion: strict decoding error: unknown field \"spec.x\"";
    assert_eq!((strict.code, &strict.body["message"]), (400, &json!(expected)));
}

#[tokio::test(start_paused = true)]
async fn a_definition_ends_after_its_objects() {
    let server = server().await;
    define(&server, &definition()).await;
    let mut held = lion("held", &json!({"name": "leo"}));
    held["metadata"]["finalizers"] = json!(["zoo.example/keeper"]);
    post(&server, LIONS, &held).await;
    post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await;
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    assert_eq!(delete(&server, &path).await.code, 200);
    until(&server, &format!("{LIONS}/leo"), |reply| reply.code == 404).await;
    until(&server, &format!("{LIONS}/held"), |reply| {
        !reply.body["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    let ending = get(&server, &path).await;
    assert!(has(&ending, "Terminating", "True"), "{}", ending.body);
    let refused = post(&server, LIONS, &lion("late", &json!({"name": "late"}))).await;
    let expected = "create not allowed while custom resource definition is terminating";
    assert_eq!((refused.code, &refused.body["message"]), (403, &json!(expected)));
    let told = get(&server, "/apis/zoo.example/v1").await.body["resources"][0]["verbs"].clone();
    assert_eq!(told, json!(["delete", "deletecollection", "get", "list", "watch"]));
    let freed = patch(
        &server,
        &format!("{LIONS}/held"),
        "merge",
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    assert_eq!(freed.code, 200, "{}", freed.body);
    until(&server, &path, |reply| reply.code == 404).await;
    until(&server, LIONS, |reply| reply.code == 404).await;
    assert_eq!(get(&server, "/apis/zoo.example").await.code, 404);
    define(&server, &definition()).await;
    assert_eq!(get(&server, LIONS).await.body["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn versions_are_served_until_they_are_not() {
    let server = server().await;
    let mut two = definition();
    let mut newer = two["spec"]["versions"][0].clone();
    newer["name"] = json!("v2");
    newer["storage"] = json!(false);
    newer["deprecated"] = json!(true);
    newer["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["mane"] = Value::Null;
    newer["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        .as_object_mut()
        .unwrap()
        .remove("mane");
    two["spec"]["versions"].as_array_mut().unwrap().push(newer);
    define(&server, &two).await;
    let group = get(&server, "/apis/zoo.example").await.body;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    post(&server, LIONS, &lion("leo", &json!({"name": "leo", "mane": "long"}))).await;
    let newer = get(&server, "/apis/zoo.example/v2/namespaces/a/lions/leo").await;
    assert_eq!(
        (&newer.body["apiVersion"], newer.body["spec"].get("mane")),
        (&json!("zoo.example/v2"), None)
    );
    assert_eq!(newer.headers["warning"], "299 - \"zoo.example/v2 Lion is deprecated\"");
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    let without = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    assert_eq!(patch(&server, &path, "json", &without).await.code, 200);
    until(&server, "/apis/zoo.example/v2/namespaces/a/lions", |reply| {
        reply.code == 404
    })
    .await;
    assert_eq!(get(&server, &format!("{LIONS}/leo")).await.body["spec"]["mane"], "long");
}

#[tokio::test(start_paused = true)]
async fn definitions_are_there_after_a_restart_before_the_server_is() {
    let store: Arc<Memory> = Arc::new(Memory::new());
    let start = || async {
        ApiServer::new(Parts {
            store: Arc::clone(&store) as Arc<dyn crate::store::Store>,
            clock: Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())),
            seed: 7,
            gate: Arc::new(Open),
        })
        .await
        .unwrap()
    };
    let server = start().await;
    define(&server, &definition()).await;
    post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await;
    drop(server);
    let server = start().await;
    assert_eq!(get(&server, &format!("{LIONS}/leo")).await.code, 200);
    let document = get(&server, "/openapi/v3/apis/zoo.example/v1").await.body;
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["example.zoo.v1.Lion"]["properties"]["spec"]["properties"]["age"]["default"],
        3
    );
    assert!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].is_object());
    assert!(document["paths"]["/apis/zoo.example/v1/namespaces/{namespace}/lions/{name}"]["patch"].is_object());
}

#[tokio::test(start_paused = true)]
async fn names_of_others_are_not_accepted() {
    let server = server().await;
    define(&server, &definition()).await;
    let mut other = definition();
    other["metadata"]["name"] = json!("cats.zoo.example");
    other["spec"]["names"] = json!({"plural": "cats", "kind": "Cat", "shortNames": ["lions"]});
    assert_eq!(post(&server, DEFINITIONS, &other).await.code, 201);
    let path = format!("{DEFINITIONS}/cats.zoo.example");
    let refused = until(&server, &path, |reply| has(reply, "NamesAccepted", "False")).await;
    assert!(has(&refused, "Established", "False"));
    let conditions = refused.body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions[0]["reason"], "ShortNamesConflict");
    assert_eq!(conditions[0]["message"], "\"lions\" is already in use");
    assert_eq!(get(&server, "/apis/zoo.example/v1/namespaces/a/cats").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_wrong_or_asks_for_what_is_not_built_is_refused() {
    let server = server().await;
    for (pointer, value, wanted) in [
        (
            "/metadata/name",
            json!("tigers.zoo.example"),
            "metadata.name: Invalid value: \"tigers.zoo.example\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            "/spec/versions/0/storage",
            json!(false),
            "spec.versions: Invalid value: [\"v1\"]: must have exactly one version marked as storage version",
        ),
        (
            "/spec/scope",
            json!("World"),
            "spec.scope: Unsupported value: \"World\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/name/type",
            Value::Null,
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[name].type: Required value: must not be empty for \
             specified object fields",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/age/default",
            json!("old"),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[age].default: Invalid value: \"old\": Invalid value: \
             \"string\":  in body must be of type integer: \"string\"",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/name/pattern",
            json!("("),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[name].pattern",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns/0/jsonPath",
            json!("spec"),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath: Invalid value: \"spec\"",
        ),
    ] {
        let mut definition = definition();
        *definition.pointer_mut(pointer).unwrap_or(&mut json!(0)) = value.clone();
        if definition.pointer(pointer).is_none() {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            definition.pointer_mut(parent).unwrap()[key] = value;
        }
        let refused = post(&server, DEFINITIONS, &definition).await;
        assert_eq!(refused.code, 422, "{pointer}: {}", refused.body);
        assert!(
            causes(&refused).iter().any(|cause| cause.starts_with(wanted)),
            "{:?}",
            causes(&refused)
        );
    }
    let mut webhook = definition();
    webhook["spec"]["conversion"] = json!({"strategy": "Webhook"});
    for (definition, field) in [(webhook, "spec.conversion.strategy: Forbidden")] {
        let refused = post(&server, DEFINITIONS, &definition).await;
        assert!(
            causes(&refused).iter().any(|cause| cause.starts_with(field)),
            "{:?}",
            causes(&refused)
        );
    }
}
