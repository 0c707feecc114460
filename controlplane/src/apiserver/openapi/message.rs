//! OpenAPI v2 as protobuf, which kubectl reads to learn whether a server checks fields: the JSON document said in the messages of
//! gnostic's `openapi.v2`. Pure.
//!
//! What those messages have no place for is left out; values of any type stand in them as text of YAML, which JSON is.

use crate::schema::protobuf::Backwards;
use serde_json::{Map, Value};

/// Methods of a path by the number of their field.
const METHODS: [(u32, &str); 7] = [
    (8, "patch"),
    (7, "head"),
    (6, "options"),
    (5, "delete"),
    (4, "post"),
    (3, "put"),
    (2, "get"),
];

/// How a member of an object is written.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Text,
    Texts,
    Bool,
    Int,
    Number,
    Any,
    Anys,
    Schema,
}

/// A schema's members, from the last field to the first; what is no scalar has a function of its own.
const SCHEMA_SCALARS: [(u32, &str, Form); 20] = [
    (30, "example", Form::Any),
    (20, "enum", Form::Anys),
    (19, "required", Form::Texts),
    (18, "minProperties", Form::Int),
    (17, "maxProperties", Form::Int),
    (16, "uniqueItems", Form::Bool),
    (15, "minItems", Form::Int),
    (14, "maxItems", Form::Int),
    (13, "pattern", Form::Text),
    (12, "minLength", Form::Int),
    (11, "maxLength", Form::Int),
    (10, "exclusiveMinimum", Form::Bool),
    (9, "minimum", Form::Number),
    (8, "exclusiveMaximum", Form::Bool),
    (7, "maximum", Form::Number),
    (6, "multipleOf", Form::Number),
    (5, "default", Form::Any),
    (4, "description", Form::Text),
    (3, "title", Form::Text),
    (2, "format", Form::Text),
];
const OPERATION: [(u32, &str, Form); 4] = [
    (5, "operationId", Form::Text),
    (3, "description", Form::Text),
    (2, "summary", Form::Text),
    (1, "tags", Form::Texts),
];
const BODY: [(u32, &str, Form); 5] = [
    (5, "schema", Form::Schema),
    (4, "required", Form::Bool),
    (3, "in", Form::Text),
    (2, "name", Form::Text),
    (1, "description", Form::Text),
];
const QUERY: [(u32, &str, Form); 7] = [
    (20, "uniqueItems", Form::Bool),
    (7, "format", Form::Text),
    (6, "type", Form::Text),
    (4, "name", Form::Text),
    (3, "description", Form::Text),
    (2, "in", Form::Text),
    (1, "required", Form::Bool),
];
const PATH: [(u32, &str, Form); 7] = [
    (19, "uniqueItems", Form::Bool),
    (6, "format", Form::Text),
    (5, "type", Form::Text),
    (4, "name", Form::Text),
    (3, "description", Form::Text),
    (2, "in", Form::Text),
    (1, "required", Form::Bool),
];
const API_KEY: [(u32, &str, Form); 4] = [
    (4, "description", Form::Text),
    (3, "in", Form::Text),
    (2, "name", Form::Text),
    (1, "type", Form::Text),
];
const INFO: [(u32, &str, Form); 3] = [
    (3, "description", Form::Text),
    (2, "version", Form::Text),
    (1, "title", Form::Text),
];

/// The document as its message.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Backwards::default();
    let members = |name: &str| document[name].as_object();
    let named = |out: &mut Backwards, number: u32, name: &str, write: fn(&mut Backwards, &Value)| {
        out.nested(number, |out| all_named(out, 1, members(name), write));
    };
    named(&mut out, 13, "securityDefinitions", |out, value| {
        out.nested(2, |out| scalars(out, value, &API_KEY));
    });
    for one in document["security"].as_array().into_iter().flatten().rev() {
        out.nested(12, |out| {
            all_named(out, 1, one.as_object(), |out, scopes| texts(out, 1, scopes));
        });
    }
    named(&mut out, 9, "definitions", schema);
    out.nested(8, |out| all_named(out, 2, members("paths"), path_item));
    out.nested(2, |out| scalars(out, &document["info"], &INFO));
    scalar(&mut out, 1, &document["swagger"], Form::Text);
    out.finish()
}

/// Pairs of a name and a message, as each member of an object.
pub(super) fn all_named(
    out: &mut Backwards,
    number: u32,
    members: Option<&Map<String, Value>>,
    write: impl Fn(&mut Backwards, &Value),
) {
    for (name, value) in members.into_iter().flatten().rev() {
        pair(out, number, name, |out| write(out, value));
    }
}

fn pair(out: &mut Backwards, number: u32, name: &str, write: impl FnOnce(&mut Backwards)) {
    out.nested(number, |out| {
        out.nested(2, write);
        out.text(1, name);
    });
}

pub(super) fn scalars(out: &mut Backwards, value: &Value, members: &[(u32, &str, Form)]) {
    for (number, name, form) in members {
        if let Some(member) = value.get(name) {
            scalar(out, *number, member, *form);
        }
    }
}

pub(super) fn scalar(out: &mut Backwards, number: u32, value: &Value, form: Form) {
    match (form, value) {
        (Form::Text, Value::String(text)) => out.text(number, text),
        (Form::Texts, value) => texts(out, number, value),
        (Form::Bool, Value::Bool(true)) => out.int(number, 1),
        (Form::Int, Value::Number(value)) => out.int(number, value.as_i64().unwrap_or_default()),
        (Form::Number, Value::Number(value)) => out.double(number, value.as_f64().unwrap_or_default()),
        (Form::Any, value) => out.nested(number, |out| any(out, value)),
        (Form::Anys, Value::Array(all)) => {
            for value in all.iter().rev() {
                out.nested(number, |out| any(out, value));
            }
        }
        (Form::Schema, value) => out.nested(number, |out| schema(out, value)),
        _ => {}
    }
}

fn texts(out: &mut Backwards, number: u32, value: &Value) {
    let all = value.as_array().into_iter().flatten().rev();
    for text in all.filter_map(Value::as_str) {
        out.text(number, text);
    }
}

fn any(out: &mut Backwards, value: &Value) {
    out.text(2, &value.to_string());
}

/// The members whose names begin with `x-`.
pub(super) fn extensions(out: &mut Backwards, number: u32, value: &Value) {
    let members = value.as_object().into_iter().flatten().rev();
    for (name, value) in members.filter(|(name, _)| name.starts_with("x-")) {
        pair(out, number, name, |out| any(out, value));
    }
}

fn schema(out: &mut Backwards, value: &Value) {
    extensions(out, 31, value);
    let (late, early) = SCHEMA_SCALARS.split_at(1);
    scalars(out, value, late);
    if let Some(members) = value["properties"].as_object() {
        out.nested(25, |out| all_named(out, 1, Some(members), schema));
    }
    for one in value["allOf"].as_array().into_iter().flatten().rev() {
        out.nested(24, |out| schema(out, one));
    }
    if value["items"].is_object() {
        out.nested(23, |out| scalar(out, 1, &value["items"], Form::Schema));
    }
    match &value["type"] {
        Value::String(one) => out.nested(22, |out| out.text(1, one)),
        Value::Array(_) => out.nested(22, |out| texts(out, 1, &value["type"])),
        _ => {}
    }
    match &value["additionalProperties"] {
        Value::Bool(allowed) => out.nested(21, |out| out.int(2, i64::from(*allowed))),
        Value::Object(_) => out.nested(21, |out| scalar(out, 1, &value["additionalProperties"], Form::Schema)),
        _ => {}
    }
    scalars(out, value, early);
    scalar(out, 1, &value["$ref"], Form::Text);
}

fn path_item(out: &mut Backwards, value: &Value) {
    extensions(out, 10, value);
    parameters(out, 9, &value["parameters"]);
    for (number, method) in METHODS {
        if let Some(found) = value.get(method) {
            out.nested(number, |out| operation(out, found));
        }
    }
}

fn operation(out: &mut Backwards, value: &Value) {
    extensions(out, 13, value);
    scalar(out, 11, &value["deprecated"], Form::Bool);
    texts(out, 10, &value["schemes"]);
    out.nested(9, |out| {
        all_named(out, 1, value["responses"].as_object(), |out, response| {
            out.nested(1, |out| {
                if response["schema"].is_object() {
                    out.nested(2, |out| scalar(out, 1, &response["schema"], Form::Schema));
                }
                scalar(out, 1, &response["description"], Form::Text);
            });
        });
    });
    parameters(out, 8, &value["parameters"]);
    texts(out, 7, &value["consumes"]);
    texts(out, 6, &value["produces"]);
    scalars(out, value, &OPERATION);
}

fn parameters(out: &mut Backwards, number: u32, all: &Value) {
    for one in all.as_array().into_iter().flatten().rev() {
        let place = one["in"].as_str().unwrap_or_default();
        let write = |out: &mut Backwards| match place {
            "body" => out.nested(1, |out| scalars(out, one, &BODY)),
            "query" => out.nested(2, |out| out.nested(3, |out| scalars(out, one, &QUERY))),
            "path" => out.nested(2, |out| out.nested(4, |out| scalars(out, one, &PATH))),
            _ => {}
        };
        out.nested(number, |out| out.nested(1, write));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{field, named};
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_by_hand() {
        let shown = json!({
            "swagger": "2.0",
            "info": {"title": "K", "version": "v1"},
            "paths": {"/a": {
                "parameters": [{"in": "path", "name": "n", "required": true, "type": "string"}],
                "get": {"operationId": "read", "x-action": "get", "parameters": [
                    {"in": "query", "name": "dryRun", "type": "string"}, {"in": "body", "name": "b", "schema": {"$ref": "#/d"}}],
                    "responses": {"200": {"description": "OK", "schema": {"type": "object"}}}},
            }},
            "definitions": {"d": {"type": "object", "required": ["p"], "default": {}, "properties":
                {"p": {"type": "array", "items": {"format": "int32"}}, "q": {"additionalProperties": {"type": "string"}}}}},
        });
        let any = |text: &str| field(2, text.as_bytes());
        let path = field(
            4,
            &[vec![8, 1], field(2, b"path"), field(4, b"n"), field(5, b"string")].concat(),
        );
        let query = field(
            3,
            &[field(2, b"query"), field(4, b"dryRun"), field(6, b"string")].concat(),
        );
        let body = field(
            1,
            &[field(2, b"b"), field(3, b"body"), field(5, &field(1, b"#/d"))].concat(),
        );
        let object = field(22, &field(1, b"object"));
        let response = field(1, &[field(1, b"OK"), field(2, &field(1, &object))].concat());
        let operation = [
            field(5, b"read"),
            field(8, &field(1, &field(2, &query))),
            field(8, &field(1, &body)),
            field(9, &named(1, "200", &response)),
            named(13, "x-action", &any("\"get\"")),
        ];
        let item = [field(2, &operation.concat()), field(9, &field(1, &field(2, &path)))].concat();
        let items = [
            field(22, &field(1, b"array")),
            field(23, &field(1, &field(2, b"int32"))),
        ]
        .concat();
        let values = field(21, &field(1, &field(22, &field(1, b"string"))));
        let properties = [named(1, "p", &items), named(1, "q", &values)].concat();
        let definition = [
            field(5, &any("{}")),
            field(19, b"p"),
            object.clone(),
            field(25, &properties),
        ]
        .concat();
        let expected = [
            field(1, b"2.0"),
            field(2, &[field(1, b"K"), field(2, b"v1")].concat()),
            field(8, &named(2, "/a", &item)),
            field(9, &named(1, "d", &definition)),
            field(13, b""),
        ];
        assert_eq!(document(&shown), expected.concat());
    }
}
