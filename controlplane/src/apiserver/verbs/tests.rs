//! Verbs over a memory store: an HTTP request in, an HTTP reply out.

mod addresses;
mod apply;
mod custom;
mod evictions;
mod large_errors;
mod lists;
mod metadata;
mod misfits;
mod owners;
mod patches;
mod protobuf;
mod reply_room;
mod resume;
mod routes;
mod several;
mod silence;
mod stored_bytes;
mod versions;
mod watches;
mod write_locks;
mod writes;

use crate::apiserver::gate::Open;
use crate::apiserver::{ApiServer, Parts, body};
use crate::store::memory::Memory;
use bytes::Bytes;
use client::TokioClock;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;

/// A server over an empty memory store, at 2026-01-01T00:00:00Z.
async fn server() -> ApiServer {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    ApiServer::new(Parts {
        store: Arc::new(Memory::new()),
        clock: Arc::new(TokioClock::starting_at(start)),
        seed: 7,
        gate: Arc::new(Open),
    })
    .await
    .unwrap()
}

struct Reply {
    code: u16,
    headers: http::HeaderMap,
    body: Value,
}

async fn raw(server: &ApiServer, request: Request<body::Body>) -> Response<body::Body> {
    server.handle(None, request).await
}

/// Sends one request; `headers` are `name: value`. The reply's code, headers and bytes.
async fn sent(
    server: &ApiServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> (u16, http::HeaderMap, Bytes) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let bytes = body.map_or_else(Vec::new, |body| serde_json::to_vec(body).unwrap());
    let response = raw(server, request.body(body::full(bytes)).unwrap()).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, bytes)
}

/// As [`sent`], with the JSON of the reply.
async fn send(server: &ApiServer, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Reply {
    let (code, headers, bytes) = sent(server, method, path, headers, body).await;
    Reply {
        code,
        headers,
        body: serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))),
    }
}

async fn get(server: &ApiServer, path: &str) -> Reply {
    send(server, "GET", path, &[], None).await
}

async fn post(server: &ApiServer, path: &str, body: &Value) -> Reply {
    send(server, "POST", path, &[], Some(body)).await
}

async fn put(server: &ApiServer, path: &str, body: &Value) -> Reply {
    send(server, "PUT", path, &[], Some(body)).await
}

async fn delete(server: &ApiServer, path: &str) -> Reply {
    send(server, "DELETE", path, &[], None).await
}

async fn patch(server: &ApiServer, path: &str, form: &str, body: &Value) -> Reply {
    let content_type = format!("application/{form}-patch+json");
    send(server, "PATCH", path, &[("content-type", &content_type)], Some(body)).await
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data})
}

fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
}

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const PODS: &str = "/api/v1/namespaces/a/pods";
