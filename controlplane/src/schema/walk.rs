//! The one walk of a request's tree: types checked, unknown fields noted and pruned, empties dropped, scalars
//! canonical, the published schemas' own defaults (a port's protocol) filled in. Pure.
//!
//! Error texts have the form of upstream's JSON decoder, since people and tests match on them.

mod custom;

use serde_json::{Map, Value};

use super::outcome::{DecodeError, Decoded, Problem};
use super::read::{self, Media};
use super::{Field, Schema, Shape, TypeId, scalar};
use crate::resource::{BodyType, Kind};

/// Reads the body of a request for `kind`.
pub fn decode(kind: &Kind, bytes: &[u8], media: Media) -> Result<Decoded, DecodeError> {
    if let Some(structural) = &kind.structural {
        return custom::decode(kind, structural, bytes, media);
    }
    let names = (&*kind.definition, &*kind.api_version, &*kind.kind);
    decode_type(kind.types.get(), names, bytes, media)
}

/// Reads the body of a request to a subresource.
pub fn decode_body(body: &BodyType, bytes: &[u8], media: Media) -> Result<Decoded, DecodeError> {
    let names = (&*body.definition, &*body.api_version, &*body.kind);
    let (mut value, duplicates) = read_tree(&body.kind, bytes, media)?;
    if let Some(version) = value.get_mut("apiVersion").filter(|version| {
        let other = version.as_str().unwrap_or("");
        body.also.contains(&other)
    }) {
        *version = Value::from(&*body.api_version);
    }
    check_identity(&mut value, &body.api_version, &body.kind)?;
    walked(body.types.get(), names, value, duplicates)
}

/// Reads options, which may name any version (upstream registers them in all).
pub fn decode_options(body: &BodyType, bytes: &[u8], media: Media) -> Result<Decoded, DecodeError> {
    let names = (&*body.definition, &*body.api_version, &*body.kind);
    let (mut value, duplicates) = read_tree(&body.kind, bytes, media)?;
    if let Some(map) = value.as_object_mut() {
        map.remove("apiVersion");
    }
    check_identity(&mut value, &body.api_version, &body.kind)?;
    walked(body.types.get(), names, value, duplicates)
}

fn decode_type(schema: &Schema, names: (&str, &str, &str), bytes: &[u8], media: Media) -> Result<Decoded, DecodeError> {
    let (_, api_version, kind) = names;
    let (mut value, duplicates) = read_tree(kind, bytes, media)?;
    check_identity(&mut value, api_version, kind)?;
    walked(schema, names, value, duplicates)
}

fn walked(
    schema: &Schema,
    (definition, api_version, kind): (&str, &str, &str),
    mut value: Value,
    duplicates: Vec<String>,
) -> Result<Decoded, DecodeError> {
    let Some(map) = value.as_object_mut() else {
        return Err(DecodeError::NoSchema(definition.to_owned()));
    };
    let mut walk = Walk::new(schema);
    let id = schema
        .type_of(definition)
        .ok_or_else(|| DecodeError::NoSchema(definition.to_owned()))?;
    walk.object(id, map).map_err(|reason| DecodeError::WrongType {
        kind: kind.to_owned(),
        version: api_version.rsplit('/').next().unwrap_or(api_version).to_owned(),
        reason,
    })?;
    let mut problems = walk.problems;
    problems.extend(duplicates.into_iter().map(Problem::Duplicate));
    Ok(Decoded { value, problems })
}

/// An object that should be of this kind, and the paths of duplicate fields.
fn read_tree(kind: &str, bytes: &[u8], media: Media) -> Result<(Value, Vec<String>), DecodeError> {
    let unreadable = |reason: String| DecodeError::Unreadable {
        kind: kind.to_owned(),
        reason,
        summary: summary(bytes),
    };
    let read = read::read(bytes, media)
        .map_err(|reason| unreadable(format!("couldn't get version/kind; json parse error: {reason}")))?;
    let value = read.value;
    if !value.is_object() {
        return Err(unreadable(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            json_type(&value)
        )));
    }
    Ok((value, read.duplicates))
}

/// The object says that it is of this version and kind, or nothing.
fn check_identity(value: &mut Value, api_version: &str, kind: &str) -> Result<(), DecodeError> {
    let Some(map) = value.as_object_mut() else {
        return Ok(());
    };
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let (found_version, found_kind) = (text("apiVersion"), text("kind"));
    if !found_kind.is_empty() && found_kind != kind {
        return Err(DecodeError::WrongKind {
            kind: kind.to_owned(),
            found: found_kind,
            version: match found_version.as_str() {
                "" => api_version,
                found => found,
            }
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        });
    }
    if !found_version.is_empty() && found_version != api_version {
        return Err(DecodeError::WrongVersion {
            expected: api_version.to_owned(),
            found: found_version,
        });
    }
    map.insert("apiVersion".to_owned(), Value::from(api_version));
    map.insert("kind".to_owned(), Value::from(kind));
    Ok(())
}

fn summary(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(30)];
    let dots = if bytes.len() > 30 { " ..." } else { "" };
    match head {
        [] => "<empty>".to_owned(),
        [b'{', ..] => format!("{}{dots}", String::from_utf8_lossy(head)),
        _ => format!("{}{dots}", hex::encode(head)),
    }
}

/// Makes a tree that is there already (a patch's result) canonical, noting unknown fields. Wrong types are errors.
pub fn normalize(kind: &Kind, value: &mut Value) -> Result<Vec<Problem>, DecodeError> {
    if let Some(structural) = &kind.structural {
        return custom::normalize(kind, structural, value);
    }
    let wrong = |reason| DecodeError::WrongType {
        kind: kind.kind.to_string(),
        version: kind.version.to_string(),
        reason,
    };
    let (schema, id) = kind.schema();
    let mut walk = Walk::new(schema);
    let id = id.ok_or_else(|| DecodeError::NoSchema(kind.definition.to_string()))?;
    let Some(map) = value.as_object_mut() else {
        let reason = format!(
            "json: cannot unmarshal {} into Go value of type {}.{}",
            json_type(value),
            kind.version,
            kind.kind
        );
        return Err(wrong(reason));
    };
    walk.object(id, map).map_err(wrong)?;
    Ok(walk.problems)
}

/// As [`normalize`], giving only the paths of unknown fields; a tree with wrong types is left as far as the walk came.
pub fn prune(kind: &Kind, value: &mut Value) -> Vec<String> {
    normalize(kind, value)
        .unwrap_or_default()
        .into_iter()
        .map(|problem| match problem {
            Problem::Unknown(path) | Problem::Duplicate(path) => path,
        })
        .collect()
}

/// Optional strings (type's field, or field of any type) whose empty value says something else than their absence.
const KEEP_EMPTY: &[(&str, &str)] = &[
    ("", "storageClassName"),
    ("", "volumeAttributesClassName"),
    ("", "holderIdentity"),
    ("", "preferredHolder"),
    ("", "strategy"),
    ("", "appProtocol"),
    ("", "loadBalancerClass"),
    ("", "ingressClassName"),
    ("", "runtimeClassName"),
    ("", "localhostProfile"),
    ("DeleteOptions", "propagationPolicy"),
    ("Preconditions", "uid"),
    ("Preconditions", "resourceVersion"),
    ("GRPCAction", "service"),
    ("HostPathVolumeSource", "type"),
    ("EndpointPort", "name"),
    ("TypedLocalObjectReference", "apiGroup"),
    ("TypedObjectReference", "apiGroup"),
];

/// Most unknown fields noted (upstream's decoder stops there), and the longest path shown of one.
pub(crate) const PROBLEMS_MAX: usize = 100;
const PATH_MAX_BYTES: usize = 1024;

enum Segment<'s> {
    Field(&'s str),
    Index(usize),
    Key(String),
}

/// State of one walk: where it is and what it found.
struct Walk<'s> {
    schema: &'s Schema,
    path: Vec<Segment<'s>>,
    owner: &'s str,
    problems: Vec<Problem>,
}

impl<'s> Walk<'s> {
    fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            path: Vec::new(),
            owner: "",
            problems: Vec::new(),
        }
    }

    fn object(&mut self, id: TypeId, map: &mut Map<String, Value>) -> Result<(), String> {
        let schema: &'s Schema = self.schema;
        let kind = schema.get(id);
        let go_name = kind.go_name();
        let mut dropped = Vec::new();
        for (key, value) in map.iter_mut() {
            let Some(field) = kind.field(key) else {
                self.note_unknown(key);
                dropped.push(key.clone());
                continue;
            };
            let owner = std::mem::replace(&mut self.owner, go_name);
            self.path.push(Segment::Field(&field.name));
            if !value.is_null() {
                self.value(&field.shape, value)?;
            }
            self.path.pop();
            self.owner = owner;
            if is_dropped(go_name, field, value, self.path.len()) {
                dropped.push(key.clone());
            }
        }
        for key in dropped {
            map.remove(&key);
        }
        for field in &kind.fields {
            if let Some(default) = &field.default
                && !map.contains_key(&*field.name)
            {
                map.insert(field.name.to_string(), (**default).clone());
            }
        }
        Ok(())
    }

    fn note_unknown(&mut self, key: &str) {
        if self.problems.len() < PROBLEMS_MAX {
            let mut path = self.strict_path(key);
            path.truncate(path.floor_char_boundary(PATH_MAX_BYTES));
            self.problems.push(Problem::Unknown(path));
        }
    }

    fn value(&mut self, shape: &'s Shape, value: &mut Value) -> Result<(), String> {
        match (shape, &mut *value) {
            (Shape::Any, _) | (Shape::String, Value::String(_)) | (Shape::Boolean, Value::Bool(_)) => Ok(()),
            (Shape::Number, Value::Number(number)) => {
                if let Some(canonical) = number
                    .is_f64()
                    .then(|| number.as_f64())
                    .flatten()
                    .and_then(scalar::float)
                {
                    *number = canonical;
                }
                Ok(())
            }
            (Shape::Object(id), Value::Object(map)) => self.object(*id, map),
            (Shape::List(shape), Value::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.path.push(Segment::Index(i));
                    self.member(shape, item)?;
                    self.path.pop();
                }
                Ok(())
            }
            (Shape::Map(shape), Value::Object(map)) => {
                for (key, item) in map.iter_mut() {
                    self.path.push(Segment::Key(key.clone()));
                    self.member(shape, item)?;
                    self.path.pop();
                }
                Ok(())
            }
            (Shape::Int32, Value::Number(n)) if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
            (Shape::Int64, Value::Number(n)) if n.as_i64().is_some() => Ok(()),
            (Shape::IntOrString, Value::String(_)) => Ok(()),
            (Shape::IntOrString, Value::Number(n)) if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
            (Shape::Time, Value::String(text)) => self.rewrite(value_text(text, scalar::time), value),
            (Shape::MicroTime, Value::String(text)) => self.rewrite(value_text(text, scalar::micro_time), value),
            (Shape::Bytes, Value::String(text)) => self.rewrite(scalar::bytes(text), value),
            (Shape::Quantity, Value::String(_) | Value::Number(_)) => self.rewrite(scalar::quantity(value), value),
            _ => Err(self.mismatch(shape, value)),
        }
    }

    /// A member of a list or map: null is the type's zero value there.
    fn member(&mut self, shape: &'s Shape, value: &mut Value) -> Result<(), String> {
        if value.is_null() {
            *value = match shape {
                Shape::String | Shape::Bytes => Value::from(""),
                Shape::Object(_) | Shape::Map(_) => Value::Object(Map::new()),
                Shape::List(_) => Value::Array(Vec::new()),
                Shape::Int32 | Shape::Int64 | Shape::Number | Shape::IntOrString => Value::from(0),
                Shape::Boolean => Value::from(false),
                Shape::Quantity => Value::from("0"),
                Shape::Time | Shape::MicroTime | Shape::Any => return Ok(()),
            };
            return Ok(());
        }
        self.value(shape, value)
    }

    fn rewrite(&self, canonical: Result<String, String>, value: &mut Value) -> Result<(), String> {
        *value = Value::String(canonical.map_err(|problem| format!("{}: {problem}", self.strict_path("")))?);
        Ok(())
    }

    /// The path with indices, and `key` after it unless empty.
    fn strict_path(&self, key: &str) -> String {
        let mut text = String::new();
        let fields = self.path.iter().map(|segment| match segment {
            Segment::Field(name) => (true, (*name).to_owned()),
            Segment::Key(name) => (true, name.clone()),
            Segment::Index(i) => (false, format!("[{i}]")),
        });
        for (dotted, part) in fields.chain((!key.is_empty()).then(|| (true, key.to_owned()))) {
            if dotted && !text.is_empty() {
                text.push('.');
            }
            text.push_str(&part);
        }
        text
    }

    fn mismatch(&self, shape: &Shape, value: &Value) -> String {
        let fields: Vec<&str> = self
            .path
            .iter()
            .filter_map(|segment| match segment {
                Segment::Field(name) => Some(*name),
                _ => None,
            })
            .collect();
        let found = match value {
            Value::Number(number) if matches!(shape, Shape::Int32 | Shape::Int64) => format!("number {number}"),
            other => json_type(other).to_owned(),
        };
        format!(
            "json: cannot unmarshal {found} into Go struct field {}.{} of type {}",
            self.owner,
            fields.join("."),
            self.go_type(shape)
        )
    }

    fn go_type(&self, shape: &Shape) -> String {
        match shape {
            Shape::String => "string".to_owned(),
            Shape::Bytes => "[]uint8".to_owned(),
            Shape::Time => "v1.Time".to_owned(),
            Shape::MicroTime => "v1.MicroTime".to_owned(),
            Shape::Quantity => "resource.Quantity".to_owned(),
            Shape::IntOrString => "intstr.IntOrString".to_owned(),
            Shape::Int32 => "int32".to_owned(),
            Shape::Int64 => "int64".to_owned(),
            Shape::Number => "float64".to_owned(),
            Shape::Boolean => "bool".to_owned(),
            Shape::Any => "interface {}".to_owned(),
            Shape::Object(id) => {
                let definition = &self.schema.get(*id).definition;
                let mut parts = definition.rsplit('.');
                let (name, version) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
                format!("{version}.{name}")
            }
            Shape::List(items) => format!("[]{}", self.go_type(items)),
            Shape::Map(values) => format!("map[string]{}", self.go_type(values)),
        }
    }
}

fn value_text(text: &str, canonical: fn(&str) -> Result<String, String>) -> Result<String, String> {
    if text.is_empty() {
        Ok(String::new())
    } else {
        canonical(text)
    }
}

/// Whether Go's `omitempty` (or null) would leave the field out.
fn is_dropped(owner: &str, field: &Field, value: &Value, depth: usize) -> bool {
    match (value, &field.shape) {
        (Value::Null, _) => true,
        (Value::String(text), Shape::Time | Shape::MicroTime) => text.is_empty(),
        (_, Shape::Any) => false,
        _ if field.required => false,
        // An empty list in the object's own metadata says that nobody owns anything.
        (Value::Array(items), _) => items.is_empty() && !(&*field.name == "managedFields" && depth == 1),
        (Value::Object(map), Shape::Map(_)) => map.is_empty(),
        (Value::String(text), _) if text.is_empty() => !KEEP_EMPTY
            .iter()
            .any(|(kind, name)| (kind.is_empty() || *kind == owner) && *name == &*field.name),
        _ => false,
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
