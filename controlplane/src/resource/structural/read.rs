//! Reading `openAPIV3Schema`, and what is not structural about one. Messages are upstream's. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::expressions::{Compiling, check_form};
use super::judge::{Judge, Path, WORK_MAX};
use super::patterns::Patterns;
use super::refuse::{complete, refuse, refuse_lists, refuse_maps, refuse_meta};
use super::tree::{Room, is_meta};
use super::{Bounds, Form, Rules, Structural, Unique};
use crate::pattern::Pattern;
use crate::resource::field::{at, flag, list, text};
use crate::resource::field_error::{FieldError, FieldErrors};

/// Forms of an integer or a string that generators write beside `x-kubernetes-int-or-string`, as upstream knows them.
const INT_OR_STRING: [&str; 2] = ["integer", "string"];

/// What reading one schema owns: what is wrong with it, and what it may still take.
pub(super) struct Reading {
    pub(super) errors: FieldErrors,
    patterns: Patterns,
    /// For all defaults together.
    room: Room,
    /// Likewise.
    work_left: u64,
}

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Root,
    Property,
    Items,
    Values,
    /// Within `allOf` and its kind, where only rules may stand.
    Junctor,
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The schema of a version's objects; errors are told below `path`. By one that has any no object is taken.
pub(in crate::resource) fn read(schema: &Value, path: &str, errors: &mut FieldErrors) -> Structural {
    let mut reading = Reading {
        errors: FieldErrors::default(),
        patterns: Patterns::default(),
        room: Room::default(),
        work_left: WORK_MAX,
    };
    let mut read = schema_at(schema, path, Place::Root, &mut reading);
    let mut found = reading.errors;
    let form = text(schema, &["type"]);
    if read.form != Form::Object && !form.is_empty() {
        let why = "must be object at the root";
        found.push(FieldError::invalid(format!("{path}.type"), form, why));
    }
    if found.is_empty()
        && let Err(error) = read.try_fill_in(&mut Value::Object(Map::new()))
    {
        found.push(FieldError::forbidden(path, error.to_string()));
    }
    let mut compiling = Compiling::default();
    // What is wrong with a schema would be told again in other words.
    complete(&read, schema, (path, path), &mut found);
    if found.is_empty() && read.compile(path, &mut compiling) {
        found.append(compiling.errors);
    }
    read.unusable = found.first().map(|first| first.to_string().into());
    found.append(compiling.costs);
    errors.append(found);
    read
}

fn schema_at(schema: &Value, path: &str, place: Place, reading: &mut Reading) -> Structural {
    let below = |key: &str| format!("{path}.{key}");
    if !schema.is_object() {
        reading
            .errors
            .push(FieldError::invalid_value(path, schema, "must be a schema"));
        return Structural::default();
    }
    refuse(schema, path, place, reading);
    if place != Place::Junctor {
        refuse_lists(schema, path, reading);
        refuse_maps(schema, path, place, reading);
    }
    let int_or_string = flag(schema, &["x-kubernetes-int-or-string"]);
    let preserves = flag(schema, &["x-kubernetes-preserve-unknown-fields"]);
    let form = form(schema, path, place, reading);
    let mut out = Structural {
        form: if int_or_string { Form::IntOrString } else { form },
        nullable: flag(schema, &["nullable"]),
        preserves,
        embedded: flag(schema, &["x-kubernetes-embedded-resource"]),
        atomic: text(schema, &["x-kubernetes-map-type"]) == "atomic",
        default: schema
            .get("default")
            .filter(|value| !value.is_null())
            .map(|value| Box::new(value.clone())),
        rules: rules(schema, path, reading).map(Box::new),
        ..Structural::default()
    };
    let properties = at(schema, &["properties"]).as_object().into_iter().flatten();
    let mut read_properties = Vec::with_capacity(properties.size_hint().0);
    for (name, property) in properties {
        let path = below(&format!("properties[{name}]"));
        let place_there = match place {
            Place::Junctor => Place::Junctor,
            _ => Place::Property,
        };
        let read = schema_at(property, &path, place_there, reading);
        let has_meta = place == Place::Root || flag(schema, &["x-kubernetes-embedded-resource"]);
        if has_meta && place != Place::Junctor && is_meta(name) {
            refuse_meta(property, name, &path, place == Place::Root, reading);
        }
        read_properties.push((Box::from(name.as_str()), read));
    }
    out.properties = read_properties.into_iter().collect();
    let defaulted = out.properties.iter().filter(|(_, property)| property.default.is_some());
    out.defaulted = defaulted.map(|(name, _)| name.into()).collect();
    let inner = if place == Place::Junctor {
        Place::Junctor
    } else {
        Place::Values
    };
    match at(schema, &["additionalProperties"]) {
        Value::Null => {}
        Value::Bool(any) => out.any_values = *any,
        values => {
            out.values = Some(Box::new(schema_at(
                values,
                &below("additionalProperties"),
                inner,
                reading,
            )))
        }
    }
    let inner = if place == Place::Junctor {
        Place::Junctor
    } else {
        Place::Items
    };
    match at(schema, &["items"]) {
        Value::Null => {}
        Value::Array(_) => {
            reading.errors.push(FieldError::forbidden(
                below("items"),
                "items must be a schema object and not an array",
            ));
        }
        items => out.items = Some(Box::new(schema_at(items, &below("items"), inner, reading))),
    }
    if out.form == Form::Array && out.items.is_none() && place != Place::Junctor && !preserves {
        reading
            .errors
            .push(FieldError::required(below("items"), "must be specified"));
    }
    out.note_embedded();
    check_default(&out, path, reading);
    if place != Place::Junctor {
        check_form(schema, &out, path, &mut reading.errors);
        out.uncompiled = list(schema, &["x-kubernetes-validations"]).into();
    }
    out
}

fn form(schema: &Value, path: &str, place: Place, reading: &mut Reading) -> Form {
    let is_free =
        flag(schema, &["x-kubernetes-int-or-string"]) || flag(schema, &["x-kubernetes-preserve-unknown-fields"]);
    let path = format!("{path}.type");
    match text(schema, &["type"]) {
        "" => {
            let why = match place {
                Place::Junctor => return Form::Any,
                Place::Root => "must not be empty at the root",
                _ if is_free => return Form::Any,
                Place::Property => "must not be empty for specified object fields",
                Place::Items => "must not be empty for specified array items",
                Place::Values => "must not be empty for specified object fields",
            };
            reading.errors.push(FieldError::required(path, why));
            Form::Any
        }
        "object" => Form::Object,
        "array" => Form::Array,
        "string" => Form::String,
        "integer" => Form::Integer,
        "number" => Form::Number,
        "boolean" => Form::Boolean,
        "null" => {
            let why = "type cannot be set to null, use nullable as an alternative";
            reading.errors.push(FieldError::forbidden(path, why));
            Form::Any
        }
        other => {
            reading.errors.push(FieldError::not_supported(path, other, &TYPES));
            Form::Any
        }
    }
}

fn check_default(schema: &Structural, path: &str, reading: &mut Reading) {
    let Some(default) = &schema.default else { return };
    let mut found = FieldErrors::default();
    schema.validate(
        default,
        &Path::ROOT,
        &mut Judge::telling(&mut found, &mut reading.work_left),
    );
    let mut pruned = default.clone();
    let mut unknown = Vec::new();
    schema.prune(&mut pruned, &Path::ROOT, &mut unknown);
    let path = format!("{path}.default");
    if let Err(error) = schema.fill(&mut pruned, &mut reading.room) {
        reading
            .errors
            .push(FieldError::forbidden(path.clone(), error.to_string()));
    }
    if reading.work_left == 0 {
        let why = "the defaults of this schema take more work to validate than this server does";
        reading.errors.push(FieldError::forbidden(path, why));
        return;
    }
    if !unknown.is_empty() {
        reading.errors.push(FieldError::invalid_value(
            path.clone(),
            default,
            "must not have unknown fields",
        ));
    }
    for error in found.iter() {
        reading
            .errors
            .push(FieldError::invalid_value(path.clone(), default, error.body()));
    }
}

fn rules(schema: &Value, path: &str, reading: &mut Reading) -> Option<Rules> {
    let below = |key: &str| format!("{path}.{key}");
    // Where an integer or a string is asked for, saying so again is no rule.
    let is_again = |any_of: &Value| flag(schema, &["x-kubernetes-int-or-string"]) && is_int_or_string(any_of);
    let all = |key: &str, reading: &mut Reading| -> Box<[Structural]> {
        if key == "anyOf" && is_again(at(schema, &[key])) {
            return Box::default();
        }
        let members = list(schema, &[key]).iter().enumerate();
        let read = |(i, member): (usize, &Value)| {
            let mut member = Cow::Borrowed(member);
            if (key, i) == ("allOf", 0)
                && is_again(at(&member, &["anyOf"]))
                && let Some(own) = member.to_mut().as_object_mut()
            {
                own.remove("anyOf");
            }
            schema_at(&member, &below(&format!("{key}[{i}]")), Place::Junctor, reading)
        };
        members.map(read).collect()
    };
    let names = |key: &str| -> Box<[Box<str>]> {
        list(schema, &[key])
            .iter()
            .filter_map(Value::as_str)
            .map(Box::from)
            .collect()
    };
    let bounds = |least: &str, most: &str| Bounds(at(schema, &[least]).as_u64(), at(schema, &[most]).as_u64());
    let bound = |key: &str, excluded: &str| Some((at(schema, &[key]).as_f64()?, flag(schema, &[excluded])));
    let unique = match text(schema, &["x-kubernetes-list-type"]) {
        "set" => Some(Unique::Set),
        "map" => Some(Unique::Keys(names("x-kubernetes-list-map-keys"))),
        _ => None,
    };
    let has = |key: &str| {
        schema
            .as_object()
            .is_some_and(|map: &Map<String, Value>| map.contains_key(key))
    };
    let any_rule = [
        "required",
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "format",
        "x-kubernetes-list-type",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
    ];
    any_rule.into_iter().any(has).then(|| Rules {
        required: names("required"),
        allowed: at(schema, &["enum"]).as_array().map(|all| all.clone().into()),
        pattern: pattern(schema, path, reading),
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: at(schema, &["multipleOf"]).as_f64(),
        length: bounds("minLength", "maxLength"),
        items: bounds("minItems", "maxItems"),
        properties: bounds("minProperties", "maxProperties"),
        format: Some(text(schema, &["format"]))
            .filter(|format| !format.is_empty())
            .map(Box::from),
        unique,
        all_of: all("allOf", reading),
        any_of: all("anyOf", reading),
        one_of: all("oneOf", reading),
        not: schema
            .get("not")
            .filter(|not| !not.is_null())
            .map(|not| Box::new(schema_at(not, &below("not"), Place::Junctor, reading))),
    })
}

fn pattern(schema: &Value, path: &str, reading: &mut Reading) -> Option<Arc<Pattern>> {
    let pattern = text(schema, &["pattern"]);
    if pattern.is_empty() {
        return None;
    }
    let refused = match reading.patterns.compile(pattern) {
        Ok(compiled) => return Some(compiled),
        Err(refused) => refused,
    };
    let path = format!("{path}.pattern");
    reading
        .errors
        .push(FieldError::invalid(path, pattern, refused.to_string()));
    None
}

/// Whether this is the `anyOf` that may stand, with its types, where `x-kubernetes-int-or-string` is.
fn is_int_or_string(any_of: &Value) -> bool {
    let members = any_of.as_array();
    members.is_some_and(|members| {
        members.len() == 2
            && members.iter().zip(INT_OR_STRING).all(|(member, form)| {
                member.as_object().is_some_and(|own| own.len() == 1) && text(member, &["type"]) == form
            })
    })
}
