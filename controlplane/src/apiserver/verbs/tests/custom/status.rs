//! The status of custom resources and of their definitions, and what else may be sent to that endpoint.

use super::*;

/// A lion whose definition has a status and a scale; what was made.
async fn kept_lion(server: &ApiServer) -> Value {
    let mut definition = definition();
    definition["spec"]["versions"][0]["subresources"]["scale"] =
        json!({"specReplicasPath": ".spec.age", "statusReplicasPath": ".status.roars"});
    define(server, &definition).await;
    let mut leo = lion("leo", &json!({"name": "leo"}));
    leo["metadata"]["finalizers"] = json!(["zoo.example/keeper"]);
    leo["metadata"]["labels"] = json!({"mane": "long"});
    let made = post(server, LIONS, &leo).await;
    assert_eq!(made.code, 201, "{}", made.body);
    made.body
}

#[tokio::test(start_paused = true)]
async fn a_status_takes_nothing_else_along() {
    let server = server().await;
    let made = kept_lion(&server).await;
    let (leo, status) = (format!("{LIONS}/leo"), format!("{LIONS}/leo/status"));
    let of_others = json!({"finalizers": null, "labels": {"mane": "short"}, "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]});
    let sent = json!({"metadata": of_others, "spec": {"age": 9}, "status": {"roars": 1}});
    let told = patch(&server, &status, "merge", &sent).await;
    assert_eq!(
        (told.code, &told.body["status"]["roars"]),
        (200, &json!(1)),
        "{}",
        told.body
    );
    let same = |told: &Value| {
        for key in ["finalizers", "labels", "annotations", "ownerReferences", "generation"] {
            assert_eq!(told["metadata"].get(key), made["metadata"].get(key), "{key}");
        }
        assert_eq!(told["spec"], made["spec"]);
    };
    same(&told.body);
    let entries = told.body["metadata"]["managedFields"].as_array().unwrap();
    let of_status = entries.iter().find(|entry| entry["subresource"] == "status").unwrap();
    assert_eq!(
        of_status["fieldsV1"],
        json!({"f:status": {"f:roars": {}}}),
        "nobody owns what he cannot change"
    );
    let mut whole = told.body.clone();
    whole["metadata"]["finalizers"] = json!([]);
    whole["metadata"]["labels"] = json!({"mane": "short"});
    whole["status"]["roars"] = json!(2);
    let told = put(&server, &status, &whole).await;
    assert_eq!(
        (told.code, &told.body["status"]["roars"]),
        (200, &json!(2)),
        "{}",
        told.body
    );
    same(&told.body);

    delete(&server, &leo).await;
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(patch(&server, &status, "merge", &free).await.code, 200);
    assert_eq!(get(&server, &leo).await.code, 200, "its keeper has not let go of it");
    patch(&server, &leo, "merge", &free).await;
    assert_eq!(get(&server, &leo).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_put_over_a_revision_that_is_known() {
    let server = server().await;
    let mut made = kept_lion(&server).await;
    let path = format!("{DEFINITIONS}/lions.zoo.example");
    let mut definition = get(&server, &path).await.body;
    for (path, object) in [(format!("{LIONS}/leo"), &mut made), (path, &mut definition)] {
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let reply = put(&server, &format!("{path}/status"), object).await;
        let wanted = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        assert_eq!((reply.code, causes(&reply)), (422, vec![wanted.to_owned()]), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn parts_are_not_made() {
    let server = server().await;
    let made = kept_lion(&server).await;
    for part in ["status", "scale"] {
        let refused = post(&server, &format!("{LIONS}/leo/{part}"), &made).await;
        let wanted = format!("create is not supported on resources of kind \"lions/{part}.zoo.example\"");
        assert_eq!((refused.code, &refused.body["message"]), (405, &json!(wanted)));
    }
}
