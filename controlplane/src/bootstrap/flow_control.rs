//! Looks after the objects of flow control: the mandatory ones are always there and as they should be, the suggested ones as long as
//! nobody has taken them over, and every FlowSchema says whether its priority level exists (control-plane contract §8).
//!
//! What is to be written is decided purely ([`objects`], [`conditions`]). Never decides what the objects do to requests: the API
//! server follows them itself.

use super::{apiserver, detailed};
use crate::apiserver::ApiServer;
use crate::bootstrap::BootstrapError;
use crate::resource::field::{at, list, text};
use crate::resource::flow_defaults::{
    AUTOUPDATE, EXEMPT, GROUP, LEVELS, SCHEMAS, flow_schemas, is_mandatory, priority_levels,
};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Upstream's owner of the condition.
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Upstream's owner of the objects.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
/// Changes of others are answered this much later at the earliest, so that whoever changes things all the time is no busy loop.
const PAUSE: Duration = Duration::from_secs(1);
/// Everything is looked at again this often at least, as upstream.
const LOOK: Duration = Duration::from_secs(60);

/// A write that is to be made.
#[derive(Debug, PartialEq)]
struct Change {
    method: Method,
    plural: &'static str,
    name: String,
    subresource: &'static str,
    owner: &'static str,
    /// The whole object, what a condition is to be, or what a deletion demands.
    body: Value,
}

/// Writes what is missing or wrong. Idempotent.
///
/// # Errors
/// The first write that failed; the others have been tried.
pub(super) async fn ensure(server: &ApiServer, client: &kube::Client) -> Result<(), BootstrapError> {
    let reader = server.reader();
    let mut failed = None;
    for (plural, wanted) in [(LEVELS, priority_levels()), (SCHEMAS, flow_schemas())] {
        for change in objects(plural, &reader.list(GROUP, plural, ""), wanted) {
            failed = failed.or(change.send(client).await.err());
        }
    }
    reader.refresh().await.map_err(BootstrapError::Store)?;
    let (schemas, levels) = (reader.list(GROUP, SCHEMAS, ""), reader.list(GROUP, LEVELS, ""));
    for change in conditions(&schemas, &levels, server.now()) {
        failed = failed.or(change.send(client).await.err());
    }
    failed.map_or(Ok(()), Err)
}

/// Does so whenever one of the objects changes, until shutdown.
pub async fn keep(server: ApiServer, shutdown: CancellationToken) {
    let reader = server.reader();
    let windows = [LEVELS, SCHEMAS].map(|plural| reader.window_of(GROUP, plural));
    let [Some(levels), Some(schemas)] = windows else { return };
    let (mut levels_changed, mut schemas_changed) = (levels.changes(), schemas.changes());
    let client = server.client_as(apiserver());
    let (mut told, mut pause) = (String::new(), PAUSE);
    loop {
        // Seen first, looked at second: what changes in between is looked at again.
        levels_changed.borrow_and_update();
        schemas_changed.borrow_and_update();
        let error = ensure(&server, &client).await.err();
        let text = error.as_ref().map(detailed).unwrap_or_default();
        if !text.is_empty() && text != told {
            tracing::warn!(
                error = text,
                "flow control's objects are not as they should be, retrying"
            );
        }
        told = text;
        // What fails is tried ever more seldom.
        pause = if told.is_empty() { PAUSE } else { (pause * 2).min(LOOK) };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if !told.is_empty() {
            continue;
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = levels_changed.changed() => {}
            _ = schemas_changed.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// What must be written so that one kind's objects are as they should be: created, put right, or, where we suggest them no
/// longer, deleted.
fn objects(plural: &'static str, stored: &[Arc<Value>], wanted: Vec<Value>) -> Vec<Change> {
    let name_of = |object: &Value| text(object, &["metadata", "name"]).to_owned();
    let change = |method: Method, name: String, body: Value| Change {
        method,
        plural,
        name,
        subresource: "",
        owner: PRODUCER,
        body,
    };
    let mut changes = Vec::new();
    let names: BTreeSet<String> = wanted.iter().map(name_of).collect();
    for wanted in wanted {
        let name = name_of(&wanted);
        match stored.iter().find(|object| text(object, &["metadata", "name"]) == name) {
            None => changes.push(change(Method::POST, name, wanted)),
            Some(object) => changes.extend(repaired(object, &wanted).map(|body| change(Method::PUT, name, body))),
        }
    }
    for object in stored {
        let name = name_of(object);
        if annotation(object) == Some("true") && !names.contains(&name) {
            let (uid, revision) = (
                at(object, &["metadata", "uid"]),
                at(object, &["metadata", "resourceVersion"]),
            );
            let body = json!({"apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": {"uid": uid, "resourceVersion": revision}});
            changes.push(change(Method::DELETE, name, body));
        }
    }
    changes
}

fn annotation(object: &Value) -> Option<&str> {
    at(object, &["metadata", "annotations", AUTOUPDATE]).as_str()
}

/// The object as it should be, if it is not. Without the annotation it is kept as long as nobody has changed its spec.
fn repaired(stored: &Value, wanted: &Value) -> Option<Value> {
    let name = text(stored, &["metadata", "name"]);
    let is_ours = is_mandatory(name)
        || match annotation(stored) {
            Some("true" | "t" | "T" | "1" | "TRUE" | "True") => true,
            Some("false" | "f" | "F" | "0" | "FALSE" | "False") => false,
            _ => at(stored, &["metadata", "generation"]).as_i64() == Some(1),
        };
    let mut repaired = stored.clone();
    for field in ["apiVersion", "kind"] {
        repaired[field] = wanted[field].clone();
    }
    let before = repaired.clone();
    if is_mandatory(name) || !matches!(annotation(stored), Some(text) if text.parse::<bool>() == Ok(is_ours)) {
        let annotations = &mut repaired["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[AUTOUPDATE] = json!(is_ours.to_string());
    }
    if is_ours {
        repaired["spec"] = wanted["spec"].clone();
        let tuned = at(stored, &["spec", "exempt"]);
        if name == EXEMPT && tuned.is_object() {
            // Its administrators' to say, as upstream has it.
            repaired["spec"]["exempt"] = tuned.clone();
        }
    }
    (repaired != before).then_some(repaired)
}

/// The conditions that do not say what is.
fn conditions(schemas: &[Arc<Value>], levels: &[Arc<Value>], now: Timestamp) -> Vec<Change> {
    let levels: BTreeSet<&str> = levels.iter().map(|level| text(level, &["metadata", "name"])).collect();
    let wrong = schemas.iter().filter_map(|schema| {
        let level = text(schema, &["spec", "priorityLevelConfiguration", "name"]);
        let (status, reason, end) = match levels.contains(level) {
            true => ("False", "Found", "and it exists"),
            false => ("True", "NotFound", "but there is no such object"),
        };
        let message =
            format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\" {end}");
        let present = list(schema, &["status", "conditions"])
            .iter()
            .find(|condition| text(condition, &["type"]) == "Dangling");
        let says = |key: &str| present.map_or("", |present| text(present, &[key]));
        if (says("status"), says("reason"), says("message")) == (status, reason, message.as_str()) {
            return None;
        }
        let since = match says("status") == status {
            true => json!(says("lastTransitionTime")),
            false => json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        };
        let condition = json!({"type": "Dangling", "status": status, "lastTransitionTime": since,
            "reason": reason, "message": message});
        Some(Change {
            method: Method::PATCH,
            plural: SCHEMAS,
            name: text(schema, &["metadata", "name"]).to_owned(),
            subresource: "/status",
            owner: CONSUMER,
            body: json!({"status": {"conditions": [condition]}}),
        })
    });
    wrong.collect()
}

impl Change {
    async fn send(self, client: &kube::Client) -> Result<(), BootstrapError> {
        let mut path = format!("/apis/{GROUP}/v1/{}", self.plural);
        if self.method != Method::POST {
            path.push_str(&format!("/{}{}", self.name, self.subresource));
        }
        path.push_str(&format!("?fieldManager={}", self.owner));
        let media = match self.method {
            Method::PATCH => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder()
            .method(self.method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, media)
            .body(self.body.to_string().into_bytes())
            .expect("the path is made of names that need no escaping");
        match client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            // Somebody was faster: what there is now is looked at next.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(BootstrapError::Write {
                kind: self.plural.to_owned(),
                name: self.name,
                source: Box::new(error),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
