//! Objects as rows: the columns of each kind, and the function that computes the cells (control-plane contract §5). Pure.
//!
//! Ages are relative to the `now` passed in. What becomes of the cells is the printer's (`apiserver::printer`).

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::field::at;
pub(crate) use defined::DefinedColumns;

mod apps;
mod batch;
mod cluster;
mod core;
mod defined;
mod event;
mod format;
mod networking;
mod node;
mod pod;
mod storage;
mod usage;

#[cfg(test)]
pub(crate) use format::human_duration;

/// One column; `wide` ones have priority 1 and show with `-o wide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Heading.
    pub(crate) name: &'static str,
    /// OpenAPI type, such as `string`.
    pub(crate) kind: &'static str,
    /// OpenAPI format; `name` marks the name.
    pub(crate) format: &'static str,
    /// Shown with `-o wide` only.
    pub(crate) wide: bool,
}

const fn column(name: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        wide: false,
    }
}

const fn integer(name: &'static str) -> Column {
    Column {
        kind: "integer",
        ..column(name)
    }
}

const fn wide(name: &'static str) -> Column {
    Column {
        wide: true,
        ..column(name)
    }
}

const NAME: Column = Column {
    format: "name",
    ..column("Name")
};
const AGE: Column = column("Age");

/// Columns of a kind and the cells of one object, in the same order and number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    /// The columns.
    pub(crate) columns: &'static [Column],
    /// The cells of an object at a moment.
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// How Tables of a kind are made.
pub(crate) enum KindPrinter {
    /// Of a built-in kind.
    BuiltIn(Printer),
    /// As a definition asks.
    Defined(Arc<DefinedColumns>),
}

impl KindPrinter {
    /// The columns as a Table says them.
    pub(crate) fn definitions(&self) -> Vec<Value> {
        match self {
            Self::BuiltIn(printer) => printer.columns.iter().map(definition).collect(),
            Self::Defined(columns) => std::iter::once(definition(&NAME))
                .chain(columns.definitions())
                .collect(),
        }
    }

    /// The cells of an object at a moment, as many as there are columns.
    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match self {
            Self::BuiltIn(printer) => (printer.cells)(object, now),
            Self::Defined(columns) => {
                let name = defined::name_cell(object);
                std::iter::once(name).chain(columns.cells(object, now)).collect()
            }
        }
    }
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

const GENERIC: Printer = Printer {
    columns: &[
        NAME,
        Column {
            kind: "date",
            ..column("Created At")
        },
    ],
    cells: |object, _| {
        vec![
            at(object, &["metadata", "name"]).clone(),
            at(object, &["metadata", "creationTimestamp"]).clone(),
        ]
    },
};

/// Scales, which stand for objects of other kinds.
pub(crate) static SCALE: KindPrinter = KindPrinter::BuiltIn(Printer {
    columns: &[column("Name"), integer("Desired"), integer("Available"), AGE],
    cells: |scale, now| {
        vec![
            format::name(scale),
            format::count(scale, &["spec", "replicas"]),
            format::count(scale, &["status", "replicas"]),
            format::age(scale, now),
        ]
    },
});

/// The printer of a built-in kind.
pub(super) fn built_in(group: &str, name: &str) -> KindPrinter {
    let printer = match group {
        "" => event::printer(name)
            .or_else(|| core::printer(name))
            .or_else(|| storage::printer(name)),
        "apps" => apps::printer(name),
        "batch" | "autoscaling" | "policy" => batch::printer(name),
        "networking.k8s.io" | "discovery.k8s.io" => networking::printer(name),
        "storage.k8s.io" => storage::printer(name),
        "events.k8s.io" => event::printer(name),
        "metrics.k8s.io" => usage::printer(name),
        _ => cluster::printer(name),
    };
    KindPrinter::BuiltIn(printer.unwrap_or(GENERIC))
}
