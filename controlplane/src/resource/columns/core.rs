//! Rows of the core group's kinds that have no file of their own. Pure.

use serde_json::Value;

use super::apps::REPLICA_SET;
use super::format::{age, containers, count, labels, name, or};
use super::networking::{ENDPOINTS, SERVICE};
use super::node::NODE;
use super::pod::POD;
use super::{AGE, NAME, Printer, column, integer};
use crate::resource::field::{at, entries, list, text};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "Pod" => POD,
        "Node" => NODE,
        "Service" => SERVICE,
        "Endpoints" => ENDPOINTS,
        "ReplicationController" => REPLICA_SET,
        "Namespace" => NAMESPACE,
        "Secret" => SECRET,
        "ConfigMap" => CONFIG_MAP,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "ResourceQuota" => RESOURCE_QUOTA,
        "PodTemplate" => POD_TEMPLATE,
        "ComponentStatus" => COMPONENT_STATUS,
        _ => return None,
    })
}

const NAMESPACE: Printer = Printer {
    columns: &[NAME, column("Status"), AGE],
    cells: |object, now| {
        vec![
            name(object),
            Value::from(text(object, &["status", "phase"])),
            age(object, now),
        ]
    },
};

const SECRET: Printer = Printer {
    columns: &[NAME, column("Type"), integer("Data"), AGE],
    cells: |object, now| {
        vec![
            name(object),
            Value::from(text(object, &["type"])),
            Value::from(entries(object, &["data"]).count()),
            age(object, now),
        ]
    },
};

const CONFIG_MAP: Printer = Printer {
    columns: &[NAME, integer("Data"), AGE],
    cells: |object, now| {
        let keys = entries(object, &["data"]).count() + entries(object, &["binaryData"]).count();
        vec![name(object), Value::from(keys), age(object, now)]
    },
};

const SERVICE_ACCOUNT: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |object, now| vec![name(object), age(object, now)],
};

const RESOURCE_QUOTA: Printer = Printer {
    columns: &[NAME, column("Request"), column("Limit"), AGE],
    cells: |object, now| {
        let used = |limits: bool| {
            let parts: Vec<String> = entries(object, &["status", "hard"])
                .filter(|(key, _)| key.starts_with("limits.") == limits)
                .map(|(key, hard)| {
                    let used = text(object, &["status", "used", key]);
                    let used = if used.is_empty() { "0" } else { used };
                    format!("{key}: {used}/{}", hard.as_str().unwrap_or(""))
                })
                .collect();
            Value::from(parts.join(", "))
        };
        vec![name(object), used(false), used(true), age(object, now)]
    },
};

const POD_TEMPLATE: Printer = Printer {
    columns: &[NAME, column("Containers"), column("Images"), column("Pod Labels")],
    cells: |object, _| {
        let [names, images] = containers(at(object, &["template", "spec"]));
        vec![
            name(object),
            names,
            images,
            labels(at(object, &["template", "metadata", "labels"])),
        ]
    },
};

const COMPONENT_STATUS: Printer = Printer {
    columns: &[NAME, column("Status"), column("Message"), column("Error")],
    cells: |object, _| {
        let condition = list(object, &["conditions"])
            .iter()
            .find(|condition| text(condition, &["type"]) == "Healthy")
            .unwrap_or(&Value::Null);
        let status = match text(condition, &["status"]) {
            "True" => "Healthy",
            "False" => "Unhealthy",
            _ => "Unknown",
        };
        vec![
            name(object),
            or(status, "Unknown"),
            Value::from(text(condition, &["message"])),
            Value::from(text(condition, &["error"])),
        ]
    },
};

/// A count column shared with other groups.
pub(super) fn webhooks(object: &Value) -> Value {
    count_of(object, "webhooks")
}

fn count_of(object: &Value, key: &str) -> Value {
    match at(object, &[key]) {
        Value::Array(items) => Value::from(items.len()),
        _ => count(object, &[key]),
    }
}
