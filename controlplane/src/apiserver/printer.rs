//! Objects as rows: the `meta.k8s.io/v1` Table that `kubectl get` prints (control-plane contract §1, §5). Pure.
//!
//! Columns and cells are the kind's ([`crate::resource::columns`]); ages are relative to the `now` passed in.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::Kind;
use crate::resource::columns::{KindPrinter, SCALE};
use crate::resource::field::{at, text};

/// What stands in each row's `object`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// The value of the query parameter `includeObject`; `None` for anything it does not know.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// The Table of `objects`, each a whole reply object (with `metadata.resourceVersion`; `apiVersion` and `kind` are filled in
/// where missing). `list_meta` becomes the Table's metadata.
pub fn render(kind: &Kind, objects: &[Arc<Value>], include: IncludeObject, now: Timestamp, list_meta: Value) -> Value {
    // The subresource's objects are no objects of the kind.
    let printer = match objects.first().is_some_and(|object| is_scale(object)) {
        true => &SCALE,
        false => &kind.printer,
    };
    let rows = objects.iter().map(|object| row(kind, printer, object, include, now));
    let rows: Vec<Value> = rows.collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "columnDefinitions": printer.definitions(),
        "rows": rows,
    })
}

fn is_scale(object: &Value) -> bool {
    text(object, &["kind"]) == "Scale" && text(object, &["apiVersion"]) == "autoscaling/v1"
}

fn row(kind: &Kind, printer: &KindPrinter, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
    let cells = match &kind.conversion {
        Some(_) if kind.structural.is_none() => printer.cells(&kind.stored(object.clone()), now),
        _ => printer.cells(object, now),
    };
    let mut row = json!({"cells": cells, "object": included(kind, object, include)});
    if kind.kind == "Pod" && kind.group.is_empty() {
        let message = match text(object, &["status", "phase"]) {
            "Succeeded" => Some("The pod has completed successfully."),
            "Failed" => Some("The pod failed."),
            _ => None,
        };
        if let Some(message) = message {
            row["conditions"] = json!([{
                "type": "Completed", "status": "True",
                "reason": text(object, &["status", "phase"]), "message": message,
            }]);
        }
    }
    row
}

fn included(kind: &Kind, object: &Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": at(object, &["metadata"]),
        }),
        IncludeObject::Object => {
            let mut whole = object.clone();
            if is_scale(object) {
                return whole;
            }
            whole["apiVersion"] = Value::from(&*kind.api_version);
            whole["kind"] = Value::from(&*kind.kind);
            whole
        }
    }
}

#[cfg(test)]
mod tests;
