//! The engine over the built-in types: tables from upstream's rules, and what must hold for any objects.

mod apply;
mod lists;
mod properties;
mod scale;
mod update;

use serde_json::{Value, json};

use super::*;
use crate::resource::registry;
use crate::schema::schema;

pub(super) fn typing(group: &str, kind: &str) -> Typing<'static> {
    let kind = registry().by_gvk(group, "v1", kind).expect("built in");
    let schema = schema();
    Typing::of(schema, schema.type_of(&(kind.definition)()).expect("typed"))
}

fn scope(group: &str, kind: &str, subresource: &str) -> Scope {
    Scope::of(registry().by_gvk(group, "v1", kind).expect("built in"), subresource)
}

/// The time so many seconds after 2026-01-01T00:00:00Z.
fn at(seconds: i64) -> jiff::Timestamp {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    start + jiff::SignedDuration::from_secs(seconds)
}

fn writer(manager: &str, seconds: i64) -> Writer<'_> {
    Writer {
        manager,
        api_version: "v1",
        subresource: "",
        now: at(seconds),
    }
}

/// The fields of a manager's entry; null if it has none.
fn fields(object: &Value, manager: &str) -> Value {
    entry(object, manager)["fieldsV1"].clone()
}

fn entry(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let found = entries.into_iter().flatten().find(|entry| entry["manager"] == manager);
    found.cloned().unwrap_or_default()
}

fn managers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array();
    let names = entries.into_iter().flatten().map(|entry| entry["manager"].as_str());
    names.flatten().collect()
}

/// Applies to a ConfigMap or a Service, as its kind says.
fn apply(live: &Value, config: &Value, manager: &str, force: bool, seconds: i64) -> Result<Value, ApplyError> {
    let kind = config["kind"].as_str().expect("a kind");
    let (group, api_version) = match kind {
        "Deployment" => ("apps", "apps/v1"),
        _ => ("", "v1"),
    };
    Apply {
        typing: typing(group, kind),
        scope: scope(group, kind, ""),
        writer: Writer {
            api_version,
            ..writer(manager, seconds)
        },
        force,
    }
    .to(live, config)
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}
