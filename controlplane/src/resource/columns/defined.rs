//! Columns that a definition asks for (control-plane contract §9, `additionalPrinterColumns`). Pure.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::format::since;
use crate::resource::field::{at, int, text};
use crate::resource::json_path::JsonPath;

/// One column.
struct Defined {
    /// Name, type, format, description and priority, as Tables say them.
    definition: Value,
    is_date: bool,
    kind: Box<str>,
    path: JsonPath,
}

/// The columns of a custom resource: its name, then those its definition asks for, or its age.
pub(crate) struct DefinedColumns(Box<[Defined]>);

impl DefinedColumns {
    /// Reads `additionalPrinterColumns`; a column without a path is left out. All definitions without any share what they have then.
    pub(crate) fn read(columns: &[Value]) -> Arc<Self> {
        static AGE: LazyLock<Arc<DefinedColumns>> = LazyLock::new(|| {
            let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
                "description": "Time since the object was created, or the moment of its creation."});
            Arc::new(DefinedColumns::of(&[age]))
        });
        match columns {
            [] => Arc::clone(&AGE),
            columns => Arc::new(Self::of(columns)),
        }
    }

    fn of(columns: &[Value]) -> Self {
        let read = |column: &Value| {
            Some(Defined {
                definition: json!({
                    "name": text(column, &["name"]), "type": text(column, &["type"]), "format": text(column, &["format"]),
                    "description": text(column, &["description"]),
                    "priority": int(column, &["priority"]).unwrap_or(0),
                }),
                is_date: text(column, &["type"]) == "date",
                kind: text(column, &["type"]).into(),
                path: JsonPath::parse(text(column, &["jsonPath"])).ok()?,
            })
        };
        Self(columns.iter().filter_map(read).collect())
    }

    /// The columns as a Table says them.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = Value> {
        self.0.iter().map(|column| column.definition.clone())
    }

    /// The cells of an object, without its name.
    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> impl Iterator<Item = Value> {
        self.0.iter().map(move |column| column.cell(object, now))
    }
}

impl Defined {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.find(object).into_iter().next();
        match found {
            None | Some(Value::Null) => Value::Null,
            Some(value) if self.is_date => Value::from(since(value, now)),
            Some(value) if &*self.kind == "string" => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Value::from(text)
            }
            Some(value) => value.clone(),
        }
    }
}

/// The cell of the name, which always comes first.
pub(super) fn name_cell(object: &Value) -> Value {
    at(object, &["metadata", "name"]).clone()
}
