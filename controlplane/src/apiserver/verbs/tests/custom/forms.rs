//! Custom resources have no protobuf form: the next thing a client accepts, or nothing. Their metadata has one.

use super::*;
use crate::schema::{Media, parse};

async fn asked(server: &ApiServer, accept: &str) -> (u16, String, Vec<u8>) {
    asked_at(server, LIONS, accept).await
}

async fn asked_at(server: &ApiServer, path: &str, accept: &str) -> (u16, String, Vec<u8>) {
    let request = Request::builder().uri(path).header("accept", accept);
    let response = raw(server, request.body(body::empty()).unwrap()).await;
    let (parts, body) = response.into_parts();
    let content_type = parts.headers["content-type"].to_str().unwrap().to_owned();
    let bytes = body.collect().await.unwrap().to_bytes().to_vec();
    (parts.status.as_u16(), content_type, bytes)
}

#[tokio::test(start_paused = true)]
async fn the_next_clause_is_taken_or_there_is_none() {
    let server = server().await;
    define(&server, &definition()).await;
    post(&server, LIONS, &lion("leo", &json!({"name": "leo"}))).await;
    let protobuf = "application/vnd.kubernetes.protobuf";
    let (code, content_type, bytes) = asked(&server, &format!("{protobuf},application/json")).await;
    assert_eq!((code, content_type.as_str()), (200, "application/json"));
    let whole: Value = serde_json::from_slice(&bytes).unwrap();
    let (code, content_type, bytes) = asked(&server, protobuf).await;
    assert_eq!((code, content_type.as_str()), (406, protobuf));
    assert_eq!(parse(&bytes, Media::Protobuf).unwrap()["reason"], "NotAcceptable");
    let metadata = format!("{protobuf};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let (code, content_type, bytes) = asked(&server, &metadata).await;
    assert_eq!((code, content_type.as_str()), (200, protobuf));
    let list = parse(&bytes, Media::Protobuf).unwrap();
    assert_eq!(list["items"], json!([{"metadata": whole["items"][0]["metadata"]}]));
}

/// One whose group begins as a built-in one's, and one whose kind and list are named as messages that travel under any group.
#[tokio::test(start_paused = true)]
async fn names_of_built_in_kinds_make_no_protobuf() {
    let server = server().await;
    let protobuf = "application/vnd.kubernetes.protobuf";
    for (group, kind, list_kind) in [
        ("batch.zoo.example", "CronJob", "CronJobList"),
        ("zoo.example", "Status", "StatusThings"),
    ] {
        let mut defined = definition();
        defined["metadata"]["name"] = json!(format!("lions.{group}"));
        defined["spec"]["group"] = json!(group);
        defined["spec"]["names"] = json!({"plural": "lions", "kind": kind, "listKind": list_kind});
        define(&server, &defined).await;
        let path = format!("/apis/{group}/v1/namespaces/a/lions");
        let mut object = lion("leo", &json!({"name": "leo"}));
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(format!("{group}/v1"));
        assert_eq!(post(&server, &path, &object).await.code, 201);
        for path in [path.clone(), format!("{path}/leo")] {
            let (code, content_type, bytes) = asked_at(&server, &path, &format!("{protobuf}, */*")).await;
            assert_eq!((code, content_type.as_str()), (200, "application/json"));
            let shown: Value = serde_json::from_slice(&bytes).unwrap();
            let shown = shown.get("items").map_or(&shown, |items| &items[0]);
            assert_eq!(shown["spec"]["age"], 3);
            assert_eq!(asked_at(&server, &path, protobuf).await.0, 406);
        }
        let body = crate::schema::protobuf::of_object(&json!({"kind": "Pod", "apiVersion": "v1"})).unwrap();
        let request = Request::builder().method("POST").uri(&path);
        let request = request.header("content-type", protobuf).body(body::full(body));
        assert_eq!(raw(&server, request.unwrap()).await.status(), 400);
    }
}
