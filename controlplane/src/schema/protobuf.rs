//! The protobuf form of objects: read into the same tree JSON gives, and written from it. Driven by `data/protobuf-fields.tsv`,
//! `data/protobuf-json-names.tsv` and `data/protobuf-zero-is-absent.tsv`, for all built-in kinds alike. Pure.
//!
//! Upstream's components and kubectl's typed commands send it, and ask for it, by default.

mod field_table;
mod special;
mod wire;
mod write;

use crate::tree::{DEPTH_MAX, TreeError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use field_table::{Field, Form, Label, message_of, messages};
use serde_json::{Map, Value};
use special::{special, union};
use wire::{Item, Wire, utf8, varint};
pub(crate) use write::{Backwards, GROWTH_MAX, ItemHead, Message, envelope, event_head, list_parts, of_object};

/// How an object in this form begins (control-plane contract §1).
const MAGIC: &[u8] = b"k8s\0";
/// Reads an enveloped object into the tree its JSON form has, kind and apiVersion included.
pub(super) fn read(bytes: &[u8]) -> Result<Value, String> {
    enveloped(bytes, 0)
}

/// As [`read`], of an object `depth` messages and envelopes inside another one.
fn enveloped(bytes: &[u8], depth: usize) -> Result<Value, String> {
    let body = bytes
        .strip_prefix(MAGIC)
        .ok_or("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &body[..0]);
    for field in Wire(body) {
        match field? {
            (1, Item::Bytes(meta)) => {
                for field in Wire(meta) {
                    match field? {
                        (1, Item::Bytes(text)) => api_version = utf8(text)?,
                        (2, Item::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Item::Bytes(bytes)) => raw = bytes,
            (3, Item::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(format!(
                    "unknown content encoding {:?}",
                    String::from_utf8_lossy(encoding)
                ));
            }
            _ => {}
        }
    }
    let message = message_of(&api_version, &kind)
        .ok_or_else(|| format!("no kind \"{kind}\" is registered for version \"{api_version}\""))?;
    let mut value = read_message(message, raw, depth)?;
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), Value::String(api_version));
        map.insert("kind".to_owned(), Value::String(kind));
    }
    Ok(value)
}

fn read_message(name: &str, bytes: &[u8], depth: usize) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err(TreeError::TooDeep.to_string());
    }
    if let Some(value) = special(name, bytes, depth)? {
        return Ok(value);
    }
    let fields = messages().get(name).ok_or_else(|| format!("unknown message {name}"))?;
    let mut map = Map::new();
    for item in Wire(bytes) {
        let (number, item) = item?;
        let Some(field) = fields.get(&number) else { continue };
        read_field(field, item, &mut map, depth)?;
    }
    Ok(union(name, &mut map).unwrap_or(Value::Object(map)))
}

fn read_field(field: &Field, item: Item<'_>, map: &mut Map<String, Value>, depth: usize) -> Result<(), String> {
    match field.label {
        Label::One => {
            let value = read_value(field.form, item, depth)?;
            match value {
                Value::Object(inner) if field.is_inlined => map.extend(inner),
                value if is_absent(field, &value) => {}
                value => {
                    map.insert(field.name.to_owned(), value);
                }
            }
        }
        Label::Many => {
            let list = map.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            let Some(list) = list.as_array_mut() else { return Ok(()) };
            match (field.form, item) {
                (Form::Int, Item::Bytes(packed)) => {
                    let mut rest = packed;
                    while !rest.is_empty() {
                        list.push(Value::from(varint(&mut rest)?.cast_signed()));
                    }
                }
                (form, item) => list.push(read_value(form, item, depth)?),
            }
        }
        Label::Keyed => {
            let Item::Bytes(entry) = item else {
                return Err(format!("{} is not a map", field.name));
            };
            let (mut key, mut value) = (String::new(), None);
            for part in Wire(entry) {
                match part? {
                    (1, Item::Bytes(text)) => key = utf8(text)?,
                    (2, item) => value = Some(read_value(field.form, item, depth)?),
                    _ => {}
                }
            }
            let value = match value {
                Some(value) => value,
                None => read_value(field.form, Item::Bytes(&[]), depth)?,
            };
            let entries = map.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            if let Some(entries) = entries.as_object_mut() {
                entries.insert(key, value);
            }
        }
    }
    Ok(())
}

fn read_value(form: Form, item: Item<'_>, depth: usize) -> Result<Value, String> {
    Ok(match (form, item) {
        (Form::Text, Item::Bytes(text)) => Value::String(utf8(text)?),
        (Form::Bytes, Item::Bytes(bytes)) => Value::String(STANDARD.encode(bytes)),
        (Form::Bool, Item::Number(number)) => Value::Bool(number != 0),
        (Form::Int, Item::Number(number)) => Value::from(number.cast_signed()),
        (Form::Double, Item::Fixed(bits)) => {
            let number = super::scalar::float(f64::from_bits(bits));
            Value::Number(number.ok_or("not a finite number")?)
        }
        (Form::Message(name), Item::Bytes(bytes)) => read_message(name, bytes, depth + 1)?,
        _ => return Err("a field has the wrong wire type".to_owned()),
    })
}

/// Whether JSON would leave the field out.
fn is_absent(field: &Field, value: &Value) -> bool {
    let is_zero = match value {
        Value::Null => return true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Array(_) => false,
    };
    is_zero && field.zero_is_absent
}

#[cfg(test)]
mod tests;
