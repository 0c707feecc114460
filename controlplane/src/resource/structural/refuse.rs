//! What a schema may not say, and where. Messages are upstream's. Pure.

use serde_json::Value;

use super::Structural;
use super::read::{Place, Reading};
use crate::resource::field::{at, flag, list, text};
use crate::resource::field_error::{FieldError, FieldErrors};

/// What upstream knows and refuses.
const NOT_SUPPORTED: [&str; 7] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
    "$schema",
];
/// What says more than a rule, and may not stand in a junctor.
const NO_RULES: [&str; 9] = [
    "type",
    "title",
    "description",
    "default",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-validations",
];

/// What may not stand here at all.
pub(super) fn refuse(schema: &Value, path: &str, place: Place, reading: &mut Reading) {
    let below = |key: &str| format!("{path}.{key}");
    let has = |key: &str| {
        let value = at(schema, &[key]);
        !matches!(value, Value::Null | Value::Bool(false)) && value.as_object().is_none_or(|map| !map.is_empty())
    };
    for key in NOT_SUPPORTED {
        if has(key) {
            reading
                .errors
                .push(FieldError::forbidden(below(key), format!("{key} is not supported")));
        }
    }
    if flag(schema, &["uniqueItems"]) {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        reading.errors.push(FieldError::forbidden(below("uniqueItems"), why));
    }
    if *at(schema, &["additionalProperties"]) == Value::Bool(false) {
        let why = "additionalProperties cannot be set to false";
        reading
            .errors
            .push(FieldError::forbidden(below("additionalProperties"), why));
    }
    if has("additionalProperties") && has("properties") {
        let why = "additionalProperties and properties are mutual exclusive";
        reading
            .errors
            .push(FieldError::forbidden(below("additionalProperties"), why));
    }
    if place == Place::Junctor {
        for key in NO_RULES.into_iter().filter(|key| has(key)) {
            reading
                .errors
                .push(FieldError::forbidden(below(key), "must be empty to be structural"));
        }
        if has("additionalProperties") {
            let why = "must be undefined to be structural";
            reading
                .errors
                .push(FieldError::forbidden(below("additionalProperties"), why));
        }
    }
    if place == Place::Root && flag(schema, &["nullable"]) {
        reading.errors.push(FieldError::forbidden(
            below("nullable"),
            "nullable cannot be true at the root",
        ));
    }
}

/// What may not be said of lists: how their members are told apart must be clear from the members' schema.
pub(super) fn refuse_lists(schema: &Value, path: &str, reading: &mut Reading) {
    let below = |key: &str| format!("{path}.{key}");
    let mut told = |error: FieldError| reading.errors.push(error);
    let list_type = text(schema, &["x-kubernetes-list-type"]);
    let keys = list(schema, &["x-kubernetes-list-map-keys"]);
    let items = at(schema, &["items"]);
    if !list_type.is_empty() && text(schema, &["type"]) != "array" {
        let why = "must be array if x-kubernetes-list-type is specified";
        told(match text(schema, &["type"]) {
            "" => FieldError::required(below("type"), why),
            other => FieldError::invalid(below("type"), other, why),
        });
    }
    let why = "must be map if x-kubernetes-list-map-keys is non-empty";
    match list_type {
        "" if !keys.is_empty() => told(FieldError::required(below("x-kubernetes-list-type"), why)),
        "atomic" | "set" if !keys.is_empty() => {
            told(FieldError::invalid(below("x-kubernetes-list-type"), list_type, why));
        }
        "" | "atomic" | "set" => {}
        "map" => {}
        other => {
            let supported = ["atomic", "set", "map"];
            told(FieldError::not_supported(
                below("x-kubernetes-list-type"),
                other,
                &supported,
            ));
        }
    }
    if matches!(list_type, "set" | "map") && flag(items, &["nullable"]) {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        told(FieldError::forbidden(below("items.nullable"), why));
    }
    match list_type {
        "set" => {
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let own = text(items, &["x-kubernetes-list-type"]);
            if text(items, &["type"]) == "array" && !matches!(own, "" | "atomic") {
                told(FieldError::invalid(below("items.x-kubernetes-list-type"), own, why));
            }
            let own = text(items, &["x-kubernetes-map-type"]);
            if text(items, &["type"]) == "object" && own != "atomic" {
                told(FieldError::invalid(
                    below("items.x-kubernetes-map-type"),
                    at(items, &["x-kubernetes-list-type"]).clone(),
                    why,
                ));
            }
        }
        "map" => refuse_keys(keys, items, path, reading),
        _ => {}
    }
}

/// Keys that tell a list's members apart; upstream has no such bound.
const KEYS_MAX: usize = 64;

/// What the keys of a list's members may not be.
fn refuse_keys(keys: &[Value], items: &Value, path: &str, reading: &mut Reading) {
    let below = |key: &str| format!("{path}.{key}");
    let mut told = |error: FieldError| reading.errors.push(error);
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        told(FieldError::required(below("x-kubernetes-list-map-keys"), why));
    }
    if keys.len() > KEYS_MAX {
        let why = format!("this server takes at most {KEYS_MAX} keys of a list");
        told(FieldError::forbidden(below("x-kubernetes-list-map-keys"), why));
        return;
    }
    if items.is_null() {
        let why = "must have a schema if x-kubernetes-list-type is map";
        told(FieldError::required(below("items"), why));
        return;
    }
    if text(items, &["type"]) != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        told(FieldError::invalid(below("items.type"), text(items, &["type"]), why));
        return;
    }
    let required = list(items, &["required"]);
    for (i, key) in keys.iter().enumerate() {
        if keys.iter().position(|other| other == key) != Some(i) {
            let why = "must not contain duplicate entries";
            told(FieldError::invalid(
                below("x-kubernetes-list-map-keys"),
                keys.to_vec(),
                why,
            ));
        }
        let name = key.as_str().unwrap_or_default();
        let property = at(items, &["properties", name]);
        let there = |what: &str| below(&format!("items.properties[{name}].{what}"));
        if property.is_null() {
            let why = "entries must all be names of item properties";
            told(FieldError::invalid(
                below("x-kubernetes-list-map-keys"),
                keys.to_vec(),
                why,
            ));
            continue;
        }
        if matches!(text(property, &["type"]), "array" | "object") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            told(FieldError::invalid(there("type"), text(items, &["type"]), why));
        }
        if !required.contains(key) && at(property, &["default"]).is_null() {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            told(FieldError::required(there("default"), why));
        }
        if flag(property, &["nullable"]) {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            told(FieldError::forbidden(there("nullable"), why));
        }
    }
}

/// What may not be said of objects: of those that are one value, those in others, and those at the root.
pub(super) fn refuse_maps(schema: &Value, path: &str, place: Place, reading: &mut Reading) {
    let below = |key: &str| format!("{path}.{key}");
    let mut told = |error: FieldError| reading.errors.push(error);
    let (form, map_type) = (text(schema, &["type"]), text(schema, &["x-kubernetes-map-type"]));
    let has_values = !at(schema, &["additionalProperties"]).is_null();
    let must_be_object = |why: &str| match form {
        "" => FieldError::required(below("type"), why),
        other => FieldError::invalid(below("type"), other, why),
    };
    if !map_type.is_empty() && form != "object" {
        told(must_be_object("must be object if x-kubernetes-map-type is specified"));
    }
    if !matches!(map_type, "" | "atomic" | "granular") {
        let supported = ["atomic", "granular"];
        told(FieldError::not_supported(
            below("x-kubernetes-map-type"),
            map_type,
            &supported,
        ));
    }
    if place == Place::Root && has_values {
        told(FieldError::forbidden(
            below("additionalProperties"),
            "must not be used at the root",
        ));
    }
    let preserves = at(schema, &["x-kubernetes-preserve-unknown-fields"]);
    if *preserves == Value::Bool(false) {
        let path = below("x-kubernetes-preserve-unknown-fields");
        told(FieldError::invalid(path, false, "must be true or undefined"));
    }
    let is_embedded = flag(schema, &["x-kubernetes-embedded-resource"]);
    if flag(schema, &["x-kubernetes-int-or-string"]) {
        let why = "must be false if x-kubernetes-int-or-string is true";
        for (key, is_said) in [
            ("x-kubernetes-preserve-unknown-fields", *preserves == Value::Bool(true)),
            ("x-kubernetes-embedded-resource", is_embedded),
        ] {
            if is_said {
                told(FieldError::invalid(below(key), true, why));
            }
        }
    }
    if !is_embedded {
        return;
    }
    if form != "object" {
        told(must_be_object(
            "must be object if x-kubernetes-embedded-resource is true",
        ));
    }
    if has_values {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        told(FieldError::forbidden(below("additionalProperties"), why));
    }
    let has_properties = at(schema, &["properties"])
        .as_object()
        .is_some_and(|all| !all.is_empty());
    if *preserves != Value::Bool(true) && !has_properties {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        told(FieldError::required(below("properties"), why));
    }
}

/// What the junctors of a root speak of must be in the schema beside them, too.
pub(super) fn complete(read: &Structural, schema: &Value, (path, junctor): (&str, &str), errors: &mut FieldErrors) {
    for key in ["not", "allOf", "anyOf", "oneOf"] {
        let members: Vec<(String, &Value)> = match at(schema, &[key]) {
            Value::Array(members) => {
                let named = |(i, member)| (format!("{junctor}.{key}[{i}]"), member);
                members.iter().enumerate().map(named).collect()
            }
            Value::Null => Vec::new(),
            member => vec![(format!("{junctor}.{key}"), member)],
        };
        for (junctor, member) in members {
            complete_member(read, member, (path, &junctor), errors);
        }
    }
}

fn complete_member(read: &Structural, member: &Value, (path, junctor): (&str, &str), errors: &mut FieldErrors) {
    complete(read, member, (path, junctor), errors);
    let below = |at: &str, step: &str| format!("{at}.{step}");
    let mut there = |own: Option<&Structural>, member: &Value, step: &str| {
        let (path, junctor) = (below(path, step), below(junctor, step));
        match own {
            Some(own) => complete_member(own, member, (&path, &junctor), errors),
            None => errors.push(FieldError::required(
                path,
                format!("because it is defined in {junctor}"),
            )),
        }
    };
    if !at(member, &["items"]).is_null() {
        there(read.items.as_deref(), at(member, &["items"]), "items");
    }
    for (name, property) in at(member, &["properties"]).as_object().into_iter().flatten() {
        there(
            read.properties.get(name.as_str()),
            property,
            &format!("properties[{name}]"),
        );
    }
}

/// What a schema may not say of what every object has. Metadata is the API's own; only its names may be narrowed.
pub(super) fn refuse_meta(schema: &Value, name: &str, path: &str, is_root: bool, reading: &mut Reading) {
    let (form, wanted) = (
        text(schema, &["type"]),
        if name == "metadata" { "object" } else { "string" },
    );
    if !form.is_empty() && form != wanted {
        let why = format!("must be {wanted}");
        reading
            .errors
            .push(FieldError::invalid(format!("{path}.type"), form, why));
    }
    if !is_root {
        return;
    }
    let mut with_default = vec![(schema, format!("{path}.default"))];
    if name == "metadata" {
        let names = at(schema, &["properties"]).as_object();
        let is_known = |key: &str| matches!(key, "type" | "properties" | "title" | "description");
        let own = schema.as_object().into_iter().flatten();
        let has_more = own.into_iter().any(|(key, value)| {
            let is_said = !matches!(value, Value::Null | Value::Bool(false));
            is_said && key != "default" && !is_known(key)
        });
        let is_name = |key: &str| matches!(key, "name" | "generateName");
        if has_more || names.is_some_and(|names| !names.keys().all(|key| is_name(key))) {
            let why =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            reading.errors.push(FieldError::forbidden(path, why));
        }
        for (key, schema) in names.into_iter().flatten().filter(|(key, _)| is_name(key)) {
            with_default.push((schema, format!("{path}.properties[{key}].default")));
        }
    }
    for (schema, path) in with_default {
        if !at(schema, &["default"]).is_null() {
            reading.errors.push(FieldError::forbidden(path, "must not be set"));
        }
    }
}
