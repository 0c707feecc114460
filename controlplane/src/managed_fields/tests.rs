//! The engine over the built-in types: tables from upstream's rules, and what must hold for any objects.

mod apply;
mod lists;
mod properties;
mod scale;
mod update;

use serde_json::{Value, json};

use super::testing::{entry, managers};
use super::*;
use crate::resource::{Kind, Registry};

fn kind(group: &str, kind: &str) -> &'static Kind {
    Registry::built_in().by_gvk(group, "v1", kind).expect("built in")
}

pub(super) fn typing(group: &str, name: &str) -> Typing<'static> {
    Typing::of_kind(kind(group, name)).expect("typed")
}

fn scope(group: &str, name: &str, subresource: &str) -> Scope {
    Scope::of(kind(group, name), subresource)
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

/// As [`super::track`], with managedFields in the objects.
fn track(typing: Typing<'_>, scope: Scope, live: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let live = live.map(split);
    let live = live.as_ref().map(|(object, owners)| Live {
        object,
        owners: owners.as_deref(),
    });
    let owners = super::track(typing, scope, live, new, writer);
    put(new, owners.as_deref());
}

/// The object without its managedFields, and these.
fn split(object: &Value) -> (Value, Option<String>) {
    let mut object = object.clone();
    let owners = take(&mut object).map(|list| list.to_string());
    (object, owners)
}

/// Applies to an object of a built-in kind, as its configuration says; managedFields are in the objects.
fn apply(live: &Value, config: &Value, manager: &str, force: bool, seconds: i64) -> Result<Value, ApplyError> {
    let kind = config["kind"].as_str().expect("a kind");
    let (group, api_version) = match kind {
        "Deployment" => ("apps", "apps/v1"),
        _ => ("", "v1"),
    };
    let apply = Apply {
        typing: typing(group, kind),
        scope: scope(group, kind, ""),
        writer: Writer {
            api_version,
            ..writer(manager, seconds)
        },
        force,
    };
    let (object, owners) = split(live);
    let live = Live {
        object: &object,
        owners: owners.as_deref(),
    };
    let Applied { mut object, owners } = apply.to(live, config)?;
    put(&mut object, owners.as_deref());
    Ok(object)
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}
