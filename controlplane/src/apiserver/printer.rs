//! Objects as rows: the `meta.k8s.io/v1` Table that `kubectl get` prints (control-plane contract §1, §5). Pure.
//!
//! Columns and cells are the kind's ([`crate::resource::columns`]); ages are relative to the `now` passed in.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::Kind;
use crate::resource::columns::Column;
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
    let printer = &kind.printer;
    let rows: Vec<Value> = objects.iter().map(|object| row(kind, object, include, now)).collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "columnDefinitions": printer.columns.iter().map(definition).collect::<Vec<_>>(),
        "rows": rows,
    })
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": description(column.name),
        "priority": i32::from(column.wide),
    })
}

fn description(name: &str) -> String {
    match name {
        "Name" => "Name must be unique within a namespace. Is required when creating resources.".to_owned(),
        "Age" | "Created At" => "Time since the object was created, or the moment of its creation.".to_owned(),
        other => format!("{other} of the object."),
    }
}

fn row(kind: &Kind, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
    let cells = match &kind.conversion {
        None => (kind.printer.cells)(object, now),
        Some(_) => (kind.printer.cells)(&kind.stored(object.clone()), now),
    };
    debug_assert_eq!(cells.len(), kind.printer.columns.len(), "{kind:?}");
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
            whole["apiVersion"] = Value::from(&*kind.api_version);
            whole["kind"] = Value::from(&*kind.kind);
            whole
        }
    }
}

#[cfg(test)]
mod tests;
