//! Building the table: k8s-openapi's schemas in, compact types out. Pure.

use std::collections::{BTreeMap, HashMap};

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::{AddSchema, Field, ListType, Merge, Schema, Shape, Type, TypeId};

const MERGE_KEYS: &str = include_str!("../../data/merge-keys.tsv");
const DEFAULTS: &str = include_str!("../../data/schema-defaults.tsv");

const PREFIX: &str = "#/$defs/";

/// Raw definitions by name of the types given.
pub(crate) fn definitions(types: impl IntoIterator<Item = AddSchema>) -> Map<String, Value> {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    for add in types {
        add(&mut generator);
    }
    generator.take_definitions(false)
}

pub(super) fn build(types: impl IntoIterator<Item = AddSchema>) -> Schema {
    let definitions = definitions(types);
    let mut by_definition = HashMap::new();
    let mut next = 0;
    for (name, definition) in &definitions {
        if definition.get("properties").is_some() || is_empty_struct(name, definition) {
            by_definition.insert(Box::from(name.as_str()), TypeId(next));
            next += 1;
        }
    }
    let merges = merges();
    let defaults = defaults();
    let mut types = Vec::with_capacity(by_definition.len());
    for (name, definition) in definitions {
        if by_definition.contains_key(name.as_str()) {
            types.push(build_type(&name, &definition, &by_definition, &merges, &defaults));
        }
    }
    Schema { types, by_definition }
}

/// An object without properties is a struct without fields, except for the types that hold free JSON.
fn is_empty_struct(name: &str, definition: &Value) -> bool {
    definition.get("type").and_then(Value::as_str) == Some("object")
        && definition.get("additionalProperties").is_none()
        && !matches!(name.rsplit('.').next(), Some("RawExtension" | "FieldsV1" | "JSON"))
}

type Rows<'t, T> = BTreeMap<(&'t str, &'t str), T>;

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split('\t').collect())
}

fn merges() -> Rows<'static, Merge> {
    let mut all = BTreeMap::new();
    for row in rows(MERGE_KEYS) {
        let cell = |i: usize| row.get(i).copied().unwrap_or("");
        let strategy: Vec<&str> = cell(4).split(',').collect();
        let keys = cell(3).split(',').filter(|key| !key.is_empty());
        all.insert(
            (cell(0), cell(1)),
            Merge {
                list_type: match cell(2) {
                    "map" => Some(ListType::Map),
                    "set" => Some(ListType::Set),
                    "atomic" => Some(ListType::Atomic),
                    _ => None,
                },
                list_map_keys: keys.map(str::to_owned).collect(),
                patch_merge: strategy.contains(&"merge"),
                patch_replace: strategy.contains(&"replace"),
                retain_keys: strategy.contains(&"retainKeys"),
                patch_merge_key: cell(5).to_owned(),
                atomic_map: cell(6) == "atomic",
            },
        );
    }
    all
}

fn defaults() -> Rows<'static, Value> {
    rows(DEFAULTS)
        .filter_map(|row| match row.as_slice() {
            [definition, field, text] => Some(((*definition, *field), serde_json::from_str(text).ok()?)),
            _ => None,
        })
        .collect()
}

fn build_type(
    name: &str,
    definition: &Value,
    ids: &HashMap<Box<str>, TypeId>,
    merges: &Rows<'static, Merge>,
    defaults: &Rows<'static, Value>,
) -> Type {
    let required = definition.get("required").and_then(Value::as_array);
    let properties = definition.get("properties").and_then(Value::as_object);
    let mut fields: Vec<Field> = properties
        .into_iter()
        .flatten()
        .map(|(field, schema)| Field {
            name: field.as_str().into(),
            shape: shape(schema, ids),
            required: required.is_some_and(|names| names.iter().any(|name| name == field)),
            merge: merges
                .get(&(name, field.as_str()))
                .filter(|merge| **merge != Merge::default())
                .cloned()
                .map(Box::new),
            default: defaults.get(&(name, field.as_str())).cloned().map(Box::new),
        })
        .collect();
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    Type {
        definition: name.into(),
        fields: fields.into(),
        atomic: merges.get(&(name, "")).is_some_and(|merge| merge.atomic_map),
    }
}

fn shape(schema: &Value, ids: &HashMap<Box<str>, TypeId>) -> Shape {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.strip_prefix(PREFIX).unwrap_or(reference);
        if let Some(id) = ids.get(name) {
            return Shape::Object(*id);
        }
        return match name.rsplit('.').next() {
            Some("Time") => Shape::Time,
            Some("MicroTime") => Shape::MicroTime,
            Some("Quantity") => Shape::Quantity,
            Some("IntOrString") => Shape::IntOrString,
            _ => Shape::Any,
        };
    }
    let format = schema.get("format").and_then(Value::as_str);
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => match format {
            Some("byte") => Shape::Bytes,
            _ => Shape::String,
        },
        Some("integer") if format == Some("int32") => Shape::Int32,
        Some("integer") => Shape::Int64,
        Some("number") => Shape::Number,
        Some("boolean") => Shape::Boolean,
        Some("array") => {
            let items = schema.get("items").map_or(Shape::Any, |items| shape(items, ids));
            Shape::List(Box::new(items))
        }
        Some("object") => match schema.get("additionalProperties") {
            Some(values) => Shape::Map(Box::new(shape(values, ids))),
            None => Shape::Any,
        },
        _ => Shape::Any,
    }
}
