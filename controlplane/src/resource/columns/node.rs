//! The Node row. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{age, name, or};
use super::{AGE, NAME, Printer, column, wide};
use crate::resource::field::{entries, flag, list, text};

pub(super) const NODE: Printer = Printer {
    columns: &[
        NAME,
        column("Status"),
        column("Roles"),
        AGE,
        column("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    cells,
};

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = |key: &str| text(node, &["status", "nodeInfo", key]);
    vec![
        name(node),
        Value::from(status(node)),
        Value::from(roles(node)),
        age(node, now),
        Value::from(info("kubeletVersion")),
        or(address(node, "InternalIP"), "<none>"),
        or(address(node, "ExternalIP"), "<none>"),
        or(info("osImage"), "<unknown>"),
        or(info("kernelVersion"), "<unknown>"),
        or(info("containerRuntimeVersion"), "<unknown>"),
    ]
}

fn status(node: &Value) -> String {
    let ready = list(node, &["status", "conditions"])
        .iter()
        .find(|condition| text(condition, &["type"]) == "Ready");
    let mut status = match ready.map(|condition| text(condition, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if flag(node, &["spec", "unschedulable"]) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = entries(node, &["metadata", "labels"])
        .filter_map(|(key, value)| {
            let value = value.as_str().unwrap_or("");
            match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) if !role.is_empty() => Some(role),
                _ if key == "kubernetes.io/role" && !value.is_empty() => Some(value),
                _ => None,
            }
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    }
}

fn address<'v>(node: &'v Value, kind: &str) -> &'v str {
    list(node, &["status", "addresses"])
        .iter()
        .find(|address| text(address, &["type"]) == kind)
        .map_or("", |address| text(address, &["address"]))
}
