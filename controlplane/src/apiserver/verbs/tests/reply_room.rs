//! Room for the replies of writes, taken before they begin.

use super::*;
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::user::User;

const DATA_BYTES: usize = 100 << 10;
/// What one user may have of it.
const ROOM_BYTES: usize = 32 << 20;

fn large(name: &str) -> Value {
    config_map(name, json!({"k": "x".repeat(DATA_BYTES)}))
}

async fn unread(server: &ApiServer, method: &str, path: &str, body: &Value) -> Response<body::Body> {
    let request = Request::builder().method(method).uri(path).header(
        "content-type",
        if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        },
    );
    let body = body::full(body.to_string());
    raw(server, request.body(body).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_writes_reply_holds_its_room_until_it_is_sent() {
    let server = server().await;
    let one = format!("{MAPS}/m");
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    for (method, path, body, factor) in [
        ("POST", MAPS, large("m"), 1),
        ("PUT", one.as_str(), large("m"), 1),
        ("PATCH", one.as_str(), change.clone(), 1),
        ("PATCH", &format!("{one}?pretty=1"), change.clone(), 8),
        ("PATCH", &format!("{one}?dryRun=All"), change, 1),
        ("POST", MAPS, config_map("small", json!({"k": "v"})), 0),
    ] {
        let response = unread(&server, method, path, &body).await;
        assert!(response.status().is_success(), "{method} {path}");
        let held = server.flow().reply_bytes();
        assert!(
            held >= factor * DATA_BYTES && (held > 0) == (factor > 0),
            "{method} {path}: {held}"
        );
        response.into_body().collect().await.unwrap();
        assert_eq!(server.flow().reply_bytes(), 0, "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_for_its_reply_is_not_written() {
    let server = server().await;
    assert_eq!(post(&server, MAPS, &large("m")).await.code, 201);
    let admin = User::named("system:admin", &["system:masters"]);
    let info = RequestInfo::parse(&http::Method::GET, MAPS, &Query::default());
    let held = server.flow().reply(&admin, &info, ROOM_BYTES).await.unwrap();
    assert_eq!(post(&server, MAPS, &large("n")).await.code, 429);
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    let refused = patch(&server, &format!("{MAPS}/m"), "merge", &change).await;
    assert_eq!(
        (refused.code, &refused.headers["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    assert_eq!(post(&server, MAPS, &config_map("small", json!({}))).await.code, 201);
    drop(held);
    assert_eq!(get(&server, &format!("{MAPS}/n")).await.code, 404);
    let labels = get(&server, &format!("{MAPS}/m")).await.body["metadata"]["labels"].take();
    assert_eq!(labels, Value::Null);
    assert_eq!(post(&server, MAPS, &large("n")).await.code, 201);
}

/// A patch makes much of little: blanks that would take more than was granted are left out.
#[tokio::test(start_paused = true)]
async fn a_reply_that_outgrows_its_room_has_no_blanks() {
    let server = server().await;
    assert_eq!(
        post(&server, MAPS, &config_map("m", json!({"k0": "x".repeat(4_000)})))
            .await
            .code,
        201
    );
    let path = format!("{MAPS}/m?pretty=1");
    let headers = [("content-type", "application/json-patch+json")];
    for (copies, has_blanks) in [(5, true), (150, false)] {
        let copy = |i| json!({"op": "copy", "from": "/data/k0", "path": format!("/data/k{i}")});
        let operations: Vec<Value> = (1..copies).map(copy).collect();
        let request = Request::patch(&path).header(headers[0].0, headers[0].1);
        let body = body::full(json!(operations).to_string());
        let response = raw(&server, request.body(body).unwrap()).await;
        assert_eq!(response.status(), 200);
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(text.starts_with(b"{\n  "), has_blanks, "{copies}");
        let object: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(object["data"].as_object().unwrap().len(), copies);
    }
}
