//! Objects as rows: the columns of each built-in kind, and the function that computes the cells (control-plane contract §5). Pure.
//!
//! Ages are relative to the `now` passed in. What becomes of the cells is the printer's (`apiserver::printer`).

use jiff::Timestamp;
use serde_json::Value;

use super::field::at;

mod apps;
mod batch;
mod cluster;
mod core;
mod event;
mod format;
mod networking;
mod node;
mod pod;
mod storage;

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

/// The printer of a built-in kind.
pub(super) fn built_in(group: &str, name: &str) -> Printer {
    match group {
        "" => event::printer(name)
            .or_else(|| core::printer(name))
            .or_else(|| storage::printer(name)),
        "apps" => apps::printer(name),
        "batch" | "autoscaling" | "policy" => batch::printer(name),
        "networking.k8s.io" | "discovery.k8s.io" => networking::printer(name),
        "storage.k8s.io" => storage::printer(name),
        "events.k8s.io" => event::printer(name),
        _ => cluster::printer(name),
    }
    .unwrap_or(GENERIC)
}
