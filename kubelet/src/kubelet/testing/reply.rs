//! Replies of the scripted API server.

use super::Reply;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

pub(super) fn reply(code: u16, value: &Value) -> Response<Reply> {
    Response::builder().status(code).body(whole(value)).expect("a response")
}

fn whole(value: &Value) -> Reply {
    Full::new(Bytes::from(value.to_string()))
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(super) fn not_found() -> Response<Reply> {
    refused(404, "NotFound")
}

pub(super) fn refused(code: u16, reason: &str) -> Response<Reply> {
    reply(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": reason}),
    )
}
