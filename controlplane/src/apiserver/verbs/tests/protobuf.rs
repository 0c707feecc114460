//! Replies and watches in the protobuf form: what a reader of it finds is what a reader of JSON finds.

use super::*;
use crate::schema::{Media, parse};
use http::header::CONTENT_TYPE;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A request that is answered in protobuf, and the object in the answer.
async fn ask(server: &ApiServer, method: &str, path: &str, accept: &str, body: Option<&Value>) -> (u16, Value) {
    let (code, headers, bytes) = sent(server, method, path, &[("accept", accept)], body).await;
    assert_eq!(headers[CONTENT_TYPE], PROTOBUF, "{method} {path}");
    (code, parse(&bytes, Media::Protobuf).unwrap())
}

fn varint(bytes: &mut &[u8]) -> usize {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// The content of the field that begins here, which must be `tag`.
fn field<'a>(bytes: &mut &'a [u8], tag: u8) -> &'a [u8] {
    assert_eq!(bytes[0], tag);
    *bytes = &bytes[1..];
    let length = varint(bytes);
    let (content, rest) = bytes.split_at(length);
    *bytes = rest;
    content
}

/// The events in the frames of a stream.
fn events(mut bytes: &[u8]) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at(4);
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let (mut event, rest) = rest.split_at(length);
        bytes = rest;
        let what = String::from_utf8(field(&mut event, 0x0a).to_vec()).unwrap();
        let mut object = field(&mut event, 0x12);
        assert!(event.is_empty());
        let object = parse(field(&mut object, 0x0a), Media::Protobuf).unwrap();
        events.push((what, object));
    }
    events
}

async fn watched(server: &ApiServer, path: &str, accept: &str) -> Vec<(String, Value)> {
    let (code, headers, bytes) = sent(server, "GET", path, &[("accept", accept)], None).await;
    assert_eq!(
        (code, headers[CONTENT_TYPE].to_str().unwrap()),
        (200, "application/vnd.kubernetes.protobuf;stream=watch")
    );
    events(&bytes)
}

#[tokio::test(start_paused = true)]
async fn every_verb_answers_the_object_that_json_shows() {
    let server = server().await;
    let (code, created) = ask(&server, "POST", PODS, PROTOBUF, Some(&pod("web"))).await;
    assert_eq!(code, 201);
    let path = format!("{PODS}/web");
    assert_eq!(created, get(&server, &path).await.body);
    let (_, read) = ask(&server, "GET", &path, &format!("{PROTOBUF},application/json"), None).await;
    assert_eq!(read, created);
    let mut wanted = created.clone();
    wanted["metadata"]["labels"]["more"] = json!("x");
    let (code, updated) = ask(&server, "PUT", &path, PROTOBUF, Some(&wanted)).await;
    assert_eq!((code, updated), (200, get(&server, &path).await.body));
    let (_, list) = ask(&server, "GET", PODS, PROTOBUF, None).await;
    assert_eq!(list, get(&server, PODS).await.body);
    let dry = format!("{path}?dryRun=All");
    let (code, gone) = ask(&server, "DELETE", &dry, PROTOBUF, None).await;
    assert_eq!((code, &gone["kind"]), (200, &json!("Pod")));
    let (code, missing) = ask(&server, "GET", &format!("{PODS}/none"), PROTOBUF, None).await;
    assert_eq!((code, missing), (404, get(&server, &format!("{PODS}/none")).await.body));
    post(&server, MAPS, &config_map("m", json!({"a": "b"}))).await;
    let (code, done) = ask(&server, "DELETE", &format!("{MAPS}/m"), PROTOBUF, None).await;
    assert_eq!((code, &done["status"]), (200, &json!("Success")));
    assert_eq!(done["details"]["name"], "m");
}

#[tokio::test(start_paused = true)]
async fn scales_and_old_versions_have_the_form_too() {
    let server = server().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/a/deployments";
    post(&server, deployments, &deployment).await;
    let path = format!("{deployments}/d/scale");
    let (_, scale) = ask(&server, "GET", &path, PROTOBUF, None).await;
    assert_eq!(
        (scale.clone(), &scale["spec"]["replicas"]),
        (get(&server, &path).await.body, &json!(2))
    );
    let target = json!({"kind": "Deployment", "apiVersion": "apps/v1", "name": "d"});
    let scaler = json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 40, "scaleTargetRef": target}});
    post(
        &server,
        "/apis/autoscaling/v1/namespaces/a/horizontalpodautoscalers",
        &scaler,
    )
    .await;
    for version in ["v1", "v2", "v1"] {
        let path = format!("/apis/autoscaling/{version}/namespaces/a/horizontalpodautoscalers");
        let (_, list) = ask(&server, "GET", &path, PROTOBUF, None).await;
        assert_eq!(list, get(&server, &path).await.body);
        let one = format!("{path}/h");
        assert_eq!(
            ask(&server, "GET", &one, PROTOBUF, None).await.1,
            get(&server, &one).await.body
        );
    }
}

#[tokio::test(start_paused = true)]
async fn watches_send_frames_with_the_state_its_end_and_changes() {
    let server = server().await;
    post(&server, MAPS, &config_map("m", json!({"a": "b"}))).await;
    let state = get(&server, &format!("{MAPS}/m")).await.body;
    let revision = state["metadata"]["resourceVersion"].as_str().unwrap();
    let options =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let found = watched(&server, &format!("{MAPS}?{options}"), PROTOBUF).await;
    assert_eq!(found[0], ("ADDED".to_owned(), state.clone()));
    assert_eq!(found[1].0, "BOOKMARK");
    let expected = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata":
        {"resourceVersion": revision, "annotations": {"k8s.io/initial-events-end": "true"}}});
    assert_eq!(found[1].1, expected);
    put(
        &server,
        &format!("{MAPS}/m"),
        &config_map("m", json!({"a": "x".repeat(20_000)})),
    )
    .await;
    delete(&server, &format!("{MAPS}/m")).await;
    let path = format!("{MAPS}?watch=1&resourceVersion={revision}&timeoutSeconds=1");
    let found = watched(&server, &path, PROTOBUF).await;
    let json = send(&server, "GET", &path, &[], None).await.body;
    let json: Vec<Value> = json
        .as_str()
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let shown: Vec<Value> = found
        .into_iter()
        .map(|(what, object)| json!({"type": what, "object": object}))
        .collect();
    assert_eq!(shown, json);
    assert_eq!(shown.len(), 2);
    let found = watched(&server, &path, METADATA).await;
    assert_eq!(found[1].0, "DELETED");
    assert_eq!(found[1].1["kind"], "PartialObjectMetadata");
    assert_eq!(found[1].1["metadata"], json[1]["object"]["metadata"]);
}

#[tokio::test(start_paused = true)]
async fn too_old_a_revision_is_an_error_event_in_a_frame() {
    let server = server().await;
    for number in 0..3 {
        tokio::time::advance(std::time::Duration::from_secs(200)).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        post(&server, MAPS, &config_map(&format!("m{number}"), json!({}))).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(1000)).await;
    let found = watched(&server, &format!("{MAPS}?watch=1&resourceVersion=1"), PROTOBUF).await;
    assert_eq!(found.len(), 1);
    let (what, status) = &found[0];
    assert_eq!(
        (what.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_pieces_with_its_length_before_it() {
    let server = server().await;
    for number in 0..12 {
        let data = json!({"k": number.to_string().repeat(30_000)});
        post(&server, MAPS, &config_map(&format!("m{number}"), data)).await;
    }
    let whole = get(&server, MAPS).await.body;
    assert_eq!(ask(&server, "GET", MAPS, PROTOBUF, None).await.1, whole);
    let headers = [("accept", PROTOBUF), ("accept-encoding", "gzip")];
    let (_, headers, bytes) = sent(&server, "GET", MAPS, &headers, None).await;
    assert_eq!(headers["content-encoding"], "gzip");
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut plain).unwrap();
    assert_eq!(parse(&plain, Media::Protobuf).unwrap(), whole);
    let (_, page) = ask(&server, "GET", &format!("{MAPS}?limit=5"), METADATA_LIST, None).await;
    assert_eq!(
        (&page["kind"], page["items"].as_array().unwrap().len()),
        (&json!("PartialObjectMetadataList"), 5)
    );
    assert_eq!(page["items"][3], json!({"metadata": whole["items"][3]["metadata"]}));
    assert_eq!(page["metadata"]["remainingItemCount"], 7);
    assert!(page["metadata"]["continue"].is_string());
}
