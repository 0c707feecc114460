//! A configuration as a tree of values: read from text, checked against the table, completed with defaults. Pure.

use super::table::{self, Defaulted, Effect, FIELDS, Field, Shape};
use crate::duration;
use serde_json::{Map, Value};

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";

/// Fields by name, as written or as completed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tree(pub(crate) Map<String, Value>);

/// What a text says.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) tree: Tree,
    /// Fields nobody knows, by path.
    pub(super) unknown: Vec<String>,
}

impl Tree {
    /// The value at a dotted path; null where nothing is.
    pub(crate) fn value(&self, path: &str) -> &Value {
        let mut parts = path.split('.');
        let mut value = parts.next().and_then(|part| self.0.get(part));
        for part in parts {
            value = value.and_then(|value| value.get(part));
        }
        value.unwrap_or(&Value::Null)
    }

    /// Sets the value at a dotted path.
    pub(crate) fn set(&mut self, path: &str, value: Value) {
        let mut map = &mut self.0;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                map.insert(part.to_owned(), value);
                return;
            }
            let inner = map.entry(part).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            match inner {
                Value::Object(next) => map = next,
                _ => return,
            }
        }
    }

    /// A text; empty where nothing is.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.value(path).as_str().unwrap_or_default()
    }

    /// A whole number; zero where nothing is.
    pub(crate) fn int(&self, path: &str) -> i64 {
        self.value(path).as_i64().unwrap_or_default()
    }

    /// A truth; false where nothing is.
    pub(crate) fn bool(&self, path: &str) -> bool {
        self.value(path).as_bool().unwrap_or_default()
    }

    /// Nanoseconds; zero where nothing is.
    pub(crate) fn nanos(&self, path: &str) -> i64 {
        duration::parse(self.text(path)).unwrap_or_default()
    }

    /// Texts; none where nothing is.
    pub(crate) fn list(&self, path: &str) -> Vec<&str> {
        let items = self.value(path).as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().filter_map(Value::as_str).collect()
    }

    /// Values in the place of what is not written.
    pub(super) fn fill(&mut self, defaults: &[(&'static str, Value)]) {
        for (path, value) in defaults {
            if table::find(path).is_some_and(|field| is_unset(field, self.value(path))) {
                self.set(path, value.clone());
            }
        }
    }

    /// Upstream's defaults in the place of what is not written, for the addresses of servers by the family of `bindAddress`.
    pub(super) fn complete(&mut self) {
        for field in FIELDS {
            if is_unset(field, self.value(field.path)) {
                self.set(field.path, default(field));
            } else if field.shape == Shape::Time {
                let text = duration::text(self.nanos(field.path));
                self.set(field.path, text.into());
            }
        }
    }

    /// What asks for more than its default and gets nothing, by path.
    pub(super) fn inert(&self) -> Vec<String> {
        let mode = self.text("mode");
        let asks = |field: &&Field| {
            let value = self.value(field.path);
            field.effect == Effect::Inert
                && table::is_read_in(field.path, mode)
                && !is_unset(field, value)
                && *value != default(field)
        };
        FIELDS.iter().filter(asks).map(|field| field.path.to_owned()).collect()
    }
}

fn default(field: &Field) -> Value {
    serde_json::from_str(field.default).unwrap_or_default()
}

/// Whether upstream's default takes the value's place.
fn is_unset(field: &Field, value: &Value) -> bool {
    let is_zero = match value {
        Value::Null => return true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || field.shape == Shape::Time && duration::parse(text) == Ok(0),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    };
    field.defaulted == Defaulted::Zero && is_zero
}

/// Reads a file's text.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn decode(text: &str) -> Result<Decoded, Vec<String>> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| vec![format!("invalid YAML: {error}")])?;
    let Value::Object(tree) = value else {
        return Err(vec!["the file does not hold an object".to_owned()]);
    };
    let mut mistakes = Vec::new();
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match tree.get(field).and_then(Value::as_str) {
            Some(value) if value == expected => {}
            Some(value) => mistakes.push(format!("{field}: {value:?} is not {expected:?}")),
            None => mistakes.push(format!("{field}: must be {expected:?}")),
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let mut decoded = Decoded::default();
    take(&mut decoded, &mut mistakes, "", tree);
    if mistakes.is_empty() {
        Ok(decoded)
    } else {
        Err(mistakes)
    }
}

/// Takes what a section holds over into the tree.
fn take(decoded: &mut Decoded, mistakes: &mut Vec<String>, section: &str, fields: Map<String, Value>) {
    for (name, value) in fields {
        let path = match section {
            "" if name == "apiVersion" || name == "kind" => continue,
            "" => name,
            _ => format!("{section}.{name}"),
        };
        match (table::find(&path), value) {
            (Some(field), value) => match mistake(field.shape, &value) {
                Some(why) => mistakes.push(format!("{path}: {value} is {why}")),
                None => decoded.tree.set(&path, value),
            },
            (None, Value::Object(inner)) if table::is_section(&path) => take(decoded, mistakes, &path, inner),
            (None, Value::Null) if table::is_section(&path) => {}
            (None, value) if table::is_section(&path) => mistakes.push(format!("{path}: {value} is not an object")),
            (None, _) => decoded.unknown.push(path),
        }
    }
}

/// Why a value is not of its shape.
pub(super) fn mistake(shape: Shape, value: &Value) -> Option<&'static str> {
    if value.is_null() {
        return None;
    }
    let (fits, why) = match shape {
        Shape::Bool => (value.is_boolean(), "neither true nor false"),
        Shape::Int => (
            value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            "not a whole number of 32 bits",
        ),
        Shape::Float => (value.is_number(), "not a number"),
        Shape::Text => (value.is_string(), "not a text"),
        Shape::Time => (
            value.as_str().is_some_and(|text| duration::parse(text).is_ok()),
            "not a duration such as 1m30s",
        ),
        Shape::List => (
            value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            "not a list of texts",
        ),
        Shape::Gates => (
            value.as_object().is_some_and(|map| map.values().all(Value::is_boolean)),
            "not truth by name",
        ),
        Shape::Any => (true, ""),
    };
    (!fits).then_some(why)
}
