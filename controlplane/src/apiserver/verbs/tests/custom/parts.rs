//! The scale subresource of custom resources, and the fields that select them.

use super::*;

fn prides() -> Value {
    let mut definition = definition();
    let version = &mut definition["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["properties"] = json!({
        "spec": {"type": "object", "properties": {
            "count": {"type": "integer", "maximum": 9},
            "colour": {"type": "string", "default": "sand"}, "wild": {"type": "boolean"}}},
        "status": {"type": "object", "properties": {"count": {"type": "integer"}, "selector": {"type": "string"}}},
    });
    version["subresources"]["scale"] = json!({"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count",
        "labelSelectorPath": ".status.selector"});
    version["selectableFields"] = json!([{"jsonPath": ".spec.colour"}, {"jsonPath": ".spec.wild"}]);
    version["additionalPrinterColumns"] = json!([]);
    definition
}

#[tokio::test(start_paused = true)]
async fn replicas_are_where_the_definition_says() {
    let server = server().await;
    define(&server, &prides()).await;
    let found = get(&server, "/apis/zoo.example/v1").await.body;
    let scale = &found["resources"][1];
    assert_eq!(
        [
            &scale["name"],
            &scale["group"],
            &scale["version"],
            &scale["kind"],
            &scale["verbs"]
        ],
        [
            &json!("lions/scale"),
            &json!("autoscaling"),
            &json!("v1"),
            &json!("Scale"),
            &json!(["get", "patch", "update"])
        ]
    );
    let document = get(&server, "/openapi/v3/apis/zoo.example/v1").await.body;
    let path = "/apis/zoo.example/v1/namespaces/{namespace}/lions/{name}/scale";
    assert!(document["paths"][path]["patch"].is_object());
    let published = &document["components"]["schemas"]["example.zoo.v1.Lion"]["x-kubernetes-selectable-fields"];
    assert_eq!(
        published,
        &json!([{"fieldPath": "spec.colour"}, {"fieldPath": "spec.wild"}])
    );

    post(&server, LIONS, &lion("leo", &json!({"count": 2}))).await;
    let leo = format!("{LIONS}/leo");
    let status = json!({"status": {"count": 1, "selector": "a=b"}});
    patch(&server, &format!("{leo}/status"), "merge", &status).await;
    let path = format!("{leo}/scale");
    let mut scale = get(&server, &path).await.body;
    assert_eq!(
        (&scale["kind"], &scale["spec"], &scale["status"]),
        (
            &json!("Scale"),
            &json!({"replicas": 2}),
            &json!({"replicas": 1, "selector": "a=b"})
        )
    );
    scale["spec"]["replicas"] = json!(5);
    let scaled = put(&server, &path, &scale).await;
    assert_eq!(
        (scaled.code, &scaled.body["spec"]["replicas"]),
        (200, &json!(5)),
        "{}",
        scaled.body
    );
    let stale = put(&server, &path, &scale).await;
    assert_eq!(stale.code, 409, "{}", stale.body);
    let whole = get(&server, &leo).await.body;
    assert_eq!(
        (&whole["spec"]["count"], &whole["metadata"]["generation"]),
        (&json!(5), &json!(2))
    );
    let owners = whole["metadata"]["managedFields"].as_array().unwrap();
    let through = owners
        .iter()
        .find(|one| one["subresource"] == "scale")
        .expect("an owner");
    assert_eq!(
        (&through["fieldsV1"], &through["apiVersion"]),
        (&json!({"f:spec": {"f:count": {}}}), &json!("zoo.example/v1"))
    );
    let refused = patch(&server, &path, "merge", &json!({"spec": {"replicas": 10}})).await;
    let wanted = "spec.count: Invalid value: 10: spec.count in body should be less than or equal to 9";
    assert_eq!((refused.code, causes(&refused)), (422, vec![wanted.to_owned()]));
    let applied = apply_scale(&server, &path, 7).await;
    assert_eq!(
        (applied.code, &applied.body["spec"]["replicas"]),
        (200, &json!(7)),
        "{}",
        applied.body
    );
    let whole = get(&server, &leo).await.body;
    let owners = whole["metadata"]["managedFields"].as_array().unwrap();
    let applier = owners
        .iter()
        .find(|one| one["manager"] == "m")
        .expect("the applier owns it");
    assert_eq!(applier["fieldsV1"], json!({"f:spec": {"f:count": {}}}));

    post(&server, LIONS, &lion("bare", &json!({}))).await;
    let bare = get(&server, &format!("{LIONS}/bare/scale")).await;
    let why = "Internal error occurred: the spec replicas field \".spec.count\" does not exist";
    assert_eq!((bare.code, &bare.body["message"]), (500, &json!(why)));
    let empty = patch(
        &server,
        &format!("{LIONS}/bare/scale"),
        "merge",
        &json!({"metadata": {"labels": {}}}),
    )
    .await;
    let why = "the spec replicas field \".spec.count\" cannot be empty";
    assert_eq!((empty.code, &empty.body["message"]), (400, &json!(why)));
    let set = patch(
        &server,
        &format!("{LIONS}/bare/scale"),
        "merge",
        &json!({"spec": {"replicas": 1}}),
    )
    .await;
    assert_eq!(
        (set.code, &set.body["spec"]["replicas"]),
        (200, &json!(1)),
        "{}",
        set.body
    );
}

#[tokio::test(start_paused = true)]
async fn replicas_are_a_number_of_replicas_wherever_they_are_written() {
    let server = server().await;
    let mut definition = prides();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["count"] = json!({"type": "integer"});
    define(&server, &definition).await;
    for (count, why) in [
        (-5_i64, "should be a non-negative integer"),
        (1 << 31, "should be less than or equal to 2147483647"),
    ] {
        let refused = post(&server, LIONS, &lion("leo", &json!({"count": count}))).await;
        let wanted = format!(".spec.count: Invalid value: {count}: {why}");
        assert_eq!((refused.code, causes(&refused)), (422, vec![wanted]));
    }
    assert_eq!(post(&server, LIONS, &lion("leo", &json!({"count": 2}))).await.code, 201);
    let leo = format!("{LIONS}/leo");
    let mut scale = get(&server, &format!("{leo}/scale")).await.body;
    scale["spec"]["replicas"] = json!(-1);
    assert_eq!(put(&server, &format!("{leo}/scale"), &scale).await.code, 422);
    let status = patch(
        &server,
        &format!("{leo}/status"),
        "merge",
        &json!({"status": {"count": -1}}),
    )
    .await;
    let wanted = ".status.count: Invalid value: -1: should be a non-negative integer";
    assert_eq!((status.code, causes(&status)), (422, vec![wanted.to_owned()]));
}

async fn apply_scale(server: &ApiServer, path: &str, replicas: i64) -> Reply {
    let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "leo", "namespace": "a"},
        "spec": {"replicas": replicas}});
    let path = format!("{path}?fieldManager=m&force=true");
    let media = [("content-type", "application/apply-patch+yaml")];
    send(server, "PATCH", &path, &media, Some(&scale)).await
}

#[tokio::test(start_paused = true)]
async fn each_version_selects_by_its_own_fields() {
    let server = server().await;
    let mut definition = prides();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["selectableFields"] = json!([{"jsonPath": ".spec.wild"}]);
    definition["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.colour"}]);
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    define(&server, &definition).await;
    post(&server, LIONS, &lion("red", &json!({"colour": "red", "wild": true}))).await;
    let second = LIONS.replace("/v1/", "/v2/");
    for _ in 0..2 {
        for path in [
            format!("{LIONS}?fieldSelector=spec.colour%3Dred"),
            format!("{second}?fieldSelector=spec.wild%3Dtrue"),
        ] {
            let found = get(&server, &path).await.body;
            assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{path}");
        }
    }
    let other = get(&server, &format!("{second}?fieldSelector=spec.wild%21%3Dtrue"))
        .await
        .body;
    assert_eq!(other["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn fields_select_in_lists_watches_and_deletions() {
    let server = server().await;
    define(&server, &prides()).await;
    for (name, spec) in [
        ("red", json!({"colour": "red", "wild": true})),
        ("sand", json!({})),
        ("tame", json!({"colour": "red", "wild": false})),
    ] {
        post(&server, LIONS, &lion(name, &spec)).await;
    }
    let names = |reply: Reply| -> Vec<String> {
        let items = reply.body["items"].as_array().cloned().unwrap_or_default();
        items
            .iter()
            .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    for (selector, wanted) in [
        ("spec.colour%3Dred", vec!["red", "tame"]),
        ("spec.colour%3Dsand", vec!["sand"]),
        ("spec.wild%3Dtrue", vec!["red"]),
        ("spec.wild%3D", vec!["sand"]),
        ("spec.colour%21%3Dred", vec!["sand"]),
        ("spec.colour%3Dred,spec.wild%3Dfalse", vec!["tame"]),
        ("spec.colour%3Dred,metadata.name%3Dred", vec!["red"]),
    ] {
        assert_eq!(
            names(get(&server, &format!("{LIONS}?fieldSelector={selector}")).await),
            wanted,
            "{selector}"
        );
    }
    let unknown = get(&server, &format!("{LIONS}?fieldSelector=spec.count%3D1")).await;
    assert_eq!(
        (unknown.code, &unknown.body["message"]),
        (400, &json!("field label not supported: spec.count"))
    );
    let mut watch = Watch::json(&server, &format!("{LIONS}?watch=1&fieldSelector=spec.wild%3Dtrue")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "red");
    patch(
        &server,
        &format!("{LIONS}/tame"),
        "merge",
        &json!({"spec": {"wild": true}}),
    )
    .await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    patch(
        &server,
        &format!("{LIONS}/red"),
        "merge",
        &json!({"spec": {"wild": false}}),
    )
    .await;
    assert_eq!(watch.next().await.unwrap()["type"], "DELETED");
    delete(&server, &format!("{LIONS}?fieldSelector=spec.colour%3Dred")).await;
    assert_eq!(names(get(&server, LIONS).await), ["sand"]);
}

#[tokio::test(start_paused = true)]
async fn paths_that_lead_nowhere_are_refused() {
    let server = server().await;
    let version = "spec.versions[0]";
    for (pointer, value, wanted) in [
        (
            "subresources/scale/specReplicasPath",
            json!(""),
            "subresources.scale.specReplicasPath: Required value",
        ),
        (
            "subresources/scale/specReplicasPath",
            json!(".status.count"),
            "subresources.scale.specReplicasPath: Invalid value: \".status.count\": should be a json path under .spec",
        ),
        (
            "subresources/scale/statusReplicasPath",
            json!("status"),
            "subresources.scale.statusReplicasPath: Invalid value: \"status\": must be a simple json path starting with .",
        ),
        (
            "subresources/scale/labelSelectorPath",
            json!(".metadata.labels"),
            "subresources.scale.labelSelectorPath: Invalid value: \".metadata.labels\": should be a json path under either .spec or .status",
        ),
        (
            "selectableFields/0/jsonPath",
            json!(""),
            "selectableFields[0].jsonPath: Required value",
        ),
        (
            "selectableFields/0/jsonPath",
            json!(".spec.none"),
            "selectableFields[0].jsonPath: Invalid value: \".spec.none\": is an invalid path: does not refer to a valid field",
        ),
        (
            "selectableFields/0/jsonPath",
            json!(".spec"),
            "selectableFields[0].jsonPath: Invalid value: \".spec\": must point to a field of type string, boolean or integer. \
             Enum string fields and strings with formats are allowed.",
        ),
        (
            "selectableFields/1/jsonPath",
            json!(".spec.colour"),
            "selectableFields[1].jsonPath: Duplicate value: \".spec.colour\"",
        ),
    ] {
        let mut definition = prides();
        *definition.pointer_mut(&format!("/spec/versions/0/{pointer}")).unwrap() = value;
        let refused = post(&server, DEFINITIONS, &definition).await;
        let told = causes(&refused);
        assert!(
            told.iter().any(|one| one.trim() == format!("{version}.{wanted}")),
            "{pointer}: {told:?}"
        );
    }
    let (mut many, mut fields) = (prides(), Vec::new());
    for i in 0..9 {
        let name = format!("f{i}");
        let version = &mut many["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][&name] = json!({"type": "string"});
        fields.push(json!({"jsonPath": format!(".spec.{name}")}));
    }
    many["spec"]["versions"][0]["selectableFields"] = json!(fields);
    let told = causes(&post(&server, DEFINITIONS, &many).await);
    assert_eq!(
        told,
        ["spec.versions[0].selectableFields: Too many: 9: must have at most 8 items"]
    );
}
