//! Reading `openAPIV3Schema`, and what is not structural about one. Messages are upstream's. Pure.

use regex_lite::RegexBuilder;
use serde_json::{Map, Value};

use super::{Bounds, Form, Rules, Structural, Unique};
use crate::resource::field::{at, flag, list, text};
use crate::resource::field_error::{FieldError, FieldErrors};

/// Bytes a compiled pattern may take.
const PATTERN_BYTES: usize = 64 << 10;
/// Bytes of a pattern's text.
const PATTERN_TEXT_BYTES: usize = 4 << 10;

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Property,
    Items,
    Values,
    /// Within `allOf` and its kind, where only rules may stand.
    Junctor,
}

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
const NO_RULES: [&str; 8] = [
    "type",
    "title",
    "description",
    "default",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
];
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The schema of a version's objects; errors are told below `path`.
pub(in crate::resource) fn read(schema: &Value, path: &str, errors: &mut FieldErrors) -> Structural {
    let read = schema_at(schema, path, Place::Root, errors);
    if read.form != Form::Object && !text(schema, &["type"]).is_empty() {
        let found = text(schema, &["type"]);
        errors.push(FieldError::invalid(
            format!("{path}.type"),
            found,
            "must be object at the root",
        ));
    }
    read
}

fn schema_at(schema: &Value, path: &str, place: Place, errors: &mut FieldErrors) -> Structural {
    let below = |key: &str| format!("{path}.{key}");
    if !schema.is_object() {
        errors.push(FieldError::invalid_value(path, schema, "must be a schema"));
        return Structural::default();
    }
    refuse(schema, path, place, errors);
    let int_or_string = flag(schema, &["x-kubernetes-int-or-string"]);
    let preserves = flag(schema, &["x-kubernetes-preserve-unknown-fields"]);
    let form = form(schema, path, place, errors);
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
        rules: rules(schema, path, errors).map(Box::new),
        ..Structural::default()
    };
    for (name, property) in at(schema, &["properties"]).as_object().into_iter().flatten() {
        let read = match (place, name.as_str()) {
            // Metadata is the API's own; a schema may only narrow its names.
            (Place::Root, "metadata") => schema_at(
                property,
                &below("properties[metadata]"),
                Place::Junctor,
                &mut FieldErrors::default(),
            ),
            (Place::Junctor, _) => schema_at(property, &below(&format!("properties[{name}]")), Place::Junctor, errors),
            _ => schema_at(
                property,
                &below(&format!("properties[{name}]")),
                Place::Property,
                errors,
            ),
        };
        out.properties.insert(name.as_str().into(), read);
    }
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
                errors,
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
            errors.push(FieldError::forbidden(
                below("items"),
                "items must be a schema object and not an array",
            ));
        }
        items => out.items = Some(Box::new(schema_at(items, &below("items"), inner, errors))),
    }
    if out.form == Form::Array && out.items.is_none() && place != Place::Junctor && !preserves {
        errors.push(FieldError::required(below("items"), "must be specified"));
    }
    check_default(&out, path, errors);
    out
}

fn form(schema: &Value, path: &str, place: Place, errors: &mut FieldErrors) -> Form {
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
            errors.push(FieldError::required(path, why));
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
            errors.push(FieldError::forbidden(path, why));
            Form::Any
        }
        other => {
            errors.push(FieldError::not_supported(path, other, &TYPES));
            Form::Any
        }
    }
}

/// What may not stand here at all.
fn refuse(schema: &Value, path: &str, place: Place, errors: &mut FieldErrors) {
    let below = |key: &str| format!("{path}.{key}");
    let has = |key: &str| {
        let value = at(schema, &[key]);
        !matches!(value, Value::Null | Value::Bool(false)) && value.as_object().is_none_or(|map| !map.is_empty())
    };
    for key in NOT_SUPPORTED {
        if has(key) {
            errors.push(FieldError::forbidden(below(key), format!("{key} is not supported")));
        }
    }
    if flag(schema, &["uniqueItems"]) {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(below("uniqueItems"), why));
    }
    if *at(schema, &["additionalProperties"]) == Value::Bool(false) {
        let why = "additionalProperties cannot be set to false";
        errors.push(FieldError::forbidden(below("additionalProperties"), why));
    }
    if has("additionalProperties") && has("properties") {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(below("additionalProperties"), why));
    }
    if !list(schema, &["x-kubernetes-validations"]).is_empty() {
        let why =
            "this server evaluates no expressions yet, so rules of x-kubernetes-validations would not be enforced";
        errors.push(FieldError::forbidden(below("x-kubernetes-validations"), why));
    }
    if place == Place::Junctor {
        for key in NO_RULES.into_iter().filter(|key| has(key)) {
            errors.push(FieldError::forbidden(below(key), "must be empty to be structural"));
        }
        if has("additionalProperties") {
            let why = "must be undefined to be structural";
            errors.push(FieldError::forbidden(below("additionalProperties"), why));
        }
    }
    if place == Place::Root && flag(schema, &["nullable"]) {
        errors.push(FieldError::forbidden(
            below("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    if flag(schema, &["x-kubernetes-embedded-resource"]) && text(schema, &["type"]) != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(FieldError::invalid(below("type"), text(schema, &["type"]), why));
    }
}

fn check_default(schema: &Structural, path: &str, errors: &mut FieldErrors) {
    let Some(default) = &schema.default else { return };
    let mut found = FieldErrors::default();
    schema.validate(default, "", &mut found);
    let mut pruned = default.clone();
    let mut unknown = Vec::new();
    schema.prune(&mut pruned, "", &mut unknown);
    let path = format!("{path}.default");
    if !unknown.is_empty() {
        errors.push(FieldError::invalid_value(
            path.clone(),
            default,
            "must not have unknown fields",
        ));
    }
    for error in found.iter() {
        errors.push(FieldError::invalid_value(path.clone(), default, error.body()));
    }
}

fn rules(schema: &Value, path: &str, errors: &mut FieldErrors) -> Option<Rules> {
    let below = |key: &str| format!("{path}.{key}");
    let all = |key: &str, errors: &mut FieldErrors| -> Box<[Structural]> {
        let members = list(schema, &[key]).iter().enumerate();
        members
            .map(|(i, member)| schema_at(member, &below(&format!("{key}[{i}]")), Place::Junctor, errors))
            .collect()
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
        "" | "atomic" => None,
        other => {
            let path = below("x-kubernetes-list-type");
            errors.push(FieldError::not_supported(path, other, &["atomic", "map", "set"]));
            None
        }
    };
    if let Some(Unique::Keys(keys)) = &unique
        && keys.is_empty()
    {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(below("x-kubernetes-list-map-keys"), why));
    }
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
        pattern: pattern(schema, path, errors),
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
        all_of: all("allOf", errors),
        any_of: all("anyOf", errors),
        one_of: all("oneOf", errors),
        not: schema
            .get("not")
            .filter(|not| !not.is_null())
            .map(|not| Box::new(schema_at(not, &below("not"), Place::Junctor, errors))),
    })
}

fn pattern(schema: &Value, path: &str, errors: &mut FieldErrors) -> Option<regex_lite::Regex> {
    let pattern = text(schema, &["pattern"]);
    if pattern.is_empty() {
        return None;
    }
    let path = format!("{path}.pattern");
    if pattern.len() > PATTERN_TEXT_BYTES {
        errors.push(FieldError::invalid(
            path,
            pattern,
            format!("must have at most {PATTERN_TEXT_BYTES} bytes"),
        ));
        return None;
    }
    let compiled = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build();
    compiled
        .map_err(|error| {
            let why = format!("must be a valid regular expression, but isn't: {error}");
            errors.push(FieldError::invalid(path, pattern, why));
        })
        .ok()
}
