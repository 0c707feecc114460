//! Rows of metrics.k8s.io, as metrics-server prints them. Pure.

use proto::api::quantity::Quantity;
use serde_json::Value;

use super::format::name;
use super::{Column, NAME, Printer, column};
use crate::resource::field::{at, list, text};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(Printer {
        columns: COLUMNS,
        cells: match kind {
            "NodeMetrics" => |node, _| cells(node, of_node),
            "PodMetrics" => |pod, _| cells(pod, of_pod),
            _ => return None,
        },
    })
}

const fn quantity(name: &'static str) -> Column {
    Column {
        format: "quantity",
        ..column(name)
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    quantity("cpu"),
    quantity("memory"),
    Column {
        format: "duration",
        ..column("Window")
    },
];

fn cells(object: &Value, total: fn(&Value, &str) -> Value) -> Vec<Value> {
    let window = at(object, &["window"]).clone();
    vec![name(object), total(object, "cpu"), total(object, "memory"), window]
}

fn of_node(node: &Value, resource: &str) -> Value {
    at(node, &["usage", resource]).clone()
}

/// The sum over its containers.
fn of_pod(pod: &Value, resource: &str) -> Value {
    let containers = list(pod, &["containers"]).iter();
    let amounts = containers.filter_map(|container| Quantity::parse(text(container, &["usage", resource])).ok());
    let sum = amounts.reduce(Quantity::plus);
    Value::from(sum.unwrap_or(Quantity::ZERO).to_string())
}
