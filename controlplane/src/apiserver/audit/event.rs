//! One audit event as JSON (audit.k8s.io/v1 Event). Pure.

use super::policy::{Level, Rule, Stage};
use crate::apiserver::request::RequestInfo;
use crate::apiserver::service::PeerAddress;
use crate::apiserver::user::User;
use http::header::USER_AGENT;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Longest User-Agent that is written, in bytes.
const USER_AGENT_BYTES: usize = 1024;

/// What is the same in every event of a request.
pub(super) struct Subject {
    fields: Map<String, Value>,
}

/// How a request was answered.
#[derive(Default)]
pub(super) struct Answer {
    code: u16,
    /// The Status of an error.
    pub(super) status: Option<Value>,
    /// The reply's object.
    pub(super) object: Option<Value>,
}

impl Answer {
    pub(super) fn code(code: u16) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }
}

impl Subject {
    pub(super) fn new(
        user: &User,
        info: &RequestInfo,
        parts: &http::request::Parts,
        audit_id: &str,
        now: Timestamp,
    ) -> Self {
        let uri = parts.uri.path_and_query().map_or("/", |text| text.as_str());
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("auditID", json!(audit_id));
        set("requestURI", json!(uri));
        set("verb", json!(info.verb));
        set("user", sender(user));
        set("sourceIPs", json!([source(parts)]));
        if let Some(agent) = parts.headers.get(USER_AGENT) {
            let agent = agent.as_bytes();
            let agent = String::from_utf8_lossy(agent.get(..USER_AGENT_BYTES).unwrap_or(agent));
            set("userAgent", json!(agent));
        }
        if info.is_resource {
            set("objectRef", reference(info));
        }
        set("requestReceivedTimestamp", json!(micros(now)));
        Self { fields }
    }

    /// Names whom the sender acts as (audit.k8s.io/v1 `impersonatedUser`); `user` stays the sender.
    pub(super) fn acts_as(&mut self, other: &User) {
        self.fields.insert("impersonatedUser".to_owned(), sender(other));
    }
}

fn source(parts: &http::request::Parts) -> String {
    // Without a peer the sender lives in this process.
    parts
        .extensions
        .get::<PeerAddress>()
        .map_or_else(|| "127.0.0.1".to_owned(), |peer| peer.0.ip().to_string())
}

fn sender(user: &User) -> Value {
    let mut out = json!({"username": user.name, "groups": user.groups});
    if let Some(uid) = &user.uid {
        out["uid"] = json!(uid);
    }
    if !user.extra.is_empty() {
        out["extra"] = json!(user.extra);
    }
    out
}

fn reference(info: &RequestInfo) -> Value {
    let parts = [
        ("resource", &info.resource),
        ("namespace", &info.namespace),
        ("name", &info.name),
        ("apiGroup", &info.group),
        ("apiVersion", &info.version),
        ("subresource", &info.subresource),
    ];
    let present = parts.into_iter().filter(|(_, text)| !text.is_empty());
    present.map(|(name, text)| (name.to_owned(), json!(text))).collect()
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn without_managed_fields(mut object: Value) -> Value {
    let strip = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    strip(&mut object);
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(strip);
    }
    object
}

/// The event of one stage.
pub(super) fn render(
    subject: &Subject,
    rule: &Rule,
    stage: Stage,
    answer: Option<Answer>,
    request: Option<&Value>,
    annotations: &BTreeMap<&'static str, String>,
    now: Timestamp,
) -> Value {
    let mut event = subject.fields.clone();
    let mut set = |name: &str, value: Value| event.insert(name.to_owned(), value);
    let shown = |object: Value| match rule.omit_managed_fields {
        true => without_managed_fields(object),
        false => object,
    };
    set("kind", json!("Event"));
    set("apiVersion", json!("audit.k8s.io/v1"));
    set("level", json!(rule.level.name()));
    set("stage", json!(stage.name()));
    set("stageTimestamp", json!(micros(now)));
    if let Some(request) = request {
        set("requestObject", shown(request.clone()));
    }
    if let Some(answer) = answer {
        let mut status = json!({"metadata": {}, "code": answer.code});
        for field in ["status", "message", "reason", "details"] {
            if let Some(found) = answer.status.as_ref().and_then(|status| status.get(field)) {
                status[field] = found.clone();
            }
        }
        set("responseStatus", status);
        if let Some(object) = answer.object.filter(|_| rule.level >= Level::RequestResponse) {
            set("responseObject", shown(object));
        }
    }
    if !annotations.is_empty() {
        set("annotations", json!(annotations));
    }
    Value::Object(event)
}
