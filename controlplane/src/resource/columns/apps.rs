//! Rows of the workload kinds. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{age, containers, count, labels, name, selector};
use super::{AGE, NAME, Printer, column, integer, wide};
use crate::resource::field::{at, int, list, text};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "Deployment" => DEPLOYMENT,
        "ReplicaSet" => REPLICA_SET,
        "DaemonSet" => DAEMON_SET,
        "StatefulSet" => STATEFUL_SET,
        "ControllerRevision" => CONTROLLER_REVISION,
        _ => return None,
    })
}

const DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        column("Ready"),
        integer("Up-to-date"),
        integer("Available"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |object, now| {
        let mut cells = vec![
            name(object),
            ready(object),
            count(object, &["status", "updatedReplicas"]),
            count(object, &["status", "availableReplicas"]),
            age(object, now),
        ];
        cells.extend(template(object));
        cells
    },
};

/// ReplicaSet and ReplicationController.
pub(super) const REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        integer("Desired"),
        integer("Current"),
        integer("Ready"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |object, now| {
        let mut cells = vec![
            name(object),
            count(object, &["spec", "replicas"]),
            count(object, &["status", "replicas"]),
            count(object, &["status", "readyReplicas"]),
            age(object, now),
        ];
        cells.extend(template(object));
        cells
    },
};

const DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        integer("Desired"),
        integer("Current"),
        integer("Ready"),
        integer("Up-to-date"),
        integer("Available"),
        column("Node Selector"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |object, now| {
        let status = |key: &str| count(object, &["status", key]);
        let mut cells = vec![
            name(object),
            status("desiredNumberScheduled"),
            status("currentNumberScheduled"),
            status("numberReady"),
            status("updatedNumberScheduled"),
            status("numberAvailable"),
            labels(at(object, &["spec", "template", "spec", "nodeSelector"])),
            age(object, now),
        ];
        cells.extend(template(object));
        cells
    },
};

const STATEFUL_SET: Printer = Printer {
    columns: &[NAME, column("Ready"), AGE, wide("Containers"), wide("Images")],
    cells: |object, now| {
        let [names, images] = containers(at(object, &["spec", "template", "spec"]));
        vec![name(object), ready(object), age(object, now), names, images]
    },
};

const CONTROLLER_REVISION: Printer = Printer {
    columns: &[NAME, column("Controller"), integer("Revision"), AGE],
    cells: controller_revision,
};

fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let controller = list(object, &["metadata", "ownerReferences"])
        .iter()
        .find(|owner| at(owner, &["controller"]) == &Value::Bool(true))
        .map_or("<none>".to_owned(), |owner| {
            let group = text(owner, &["apiVersion"]).split_once('/').map_or("", |parts| parts.0);
            let kind = text(owner, &["kind"]).to_lowercase();
            let dot = if group.is_empty() { "" } else { "." };
            format!("{kind}{dot}{group}/{}", text(owner, &["name"]))
        });
    vec![
        name(object),
        Value::from(controller),
        count(object, &["revision"]),
        age(object, now),
    ]
}

fn ready(object: &Value) -> Value {
    let ready = int(object, &["status", "readyReplicas"]).unwrap_or(0);
    let desired = int(object, &["spec", "replicas"]).unwrap_or(0);
    Value::from(format!("{ready}/{desired}"))
}

/// Containers, images and selector. A ReplicationController's selector is a plain map.
pub(super) fn template(object: &Value) -> Vec<Value> {
    let [names, images] = containers(at(object, &["spec", "template", "spec"]));
    let raw = at(object, &["spec", "selector"]);
    let is_label_selector = raw.get("matchLabels").is_some() || raw.get("matchExpressions").is_some();
    let selector = if is_label_selector { selector(raw) } else { labels(raw) };
    vec![names, images, selector]
}
