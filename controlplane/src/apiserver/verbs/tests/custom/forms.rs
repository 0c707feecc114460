//! Custom resources have no protobuf form: the next thing a client accepts, or nothing. Their metadata has one.

use super::*;
use crate::schema::{Media, parse};

async fn asked(server: &ApiServer, accept: &str) -> (u16, String, Vec<u8>) {
    let request = Request::builder().uri(LIONS).header("accept", accept);
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
