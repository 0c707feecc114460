//! OpenAPI v3 as protobuf: the JSON document of a group's version said in the messages of gnostic's `openapi.v3`. Pure.
//!
//! As in v2 ([`super::message`]): what those messages have no place for is left out, values of any type are text.

use super::message::{Form, all_named, extensions, scalar, scalars};
use crate::schema::protobuf::Backwards;
use serde_json::Value;

/// Methods of a path by the number of their field.
const METHODS: [(u32, &str); 7] = [
    (10, "patch"),
    (9, "head"),
    (8, "options"),
    (7, "delete"),
    (6, "post"),
    (5, "put"),
    (4, "get"),
];
/// A schema's members behind those that have a function of their own, from the last field to the first.
const SCHEMA_LATE: [(u32, &str, Form); 2] = [(35, "format", Form::Text), (34, "description", Form::Text)];
/// Those before.
const SCHEMA_EARLY: [(u32, &str, Form); 19] = [
    (25, "type", Form::Text),
    (24, "enum", Form::Anys),
    (23, "required", Form::Texts),
    (22, "minProperties", Form::Int),
    (21, "maxProperties", Form::Int),
    (20, "uniqueItems", Form::Bool),
    (19, "minItems", Form::Int),
    (18, "maxItems", Form::Int),
    (17, "pattern", Form::Text),
    (16, "minLength", Form::Int),
    (15, "maxLength", Form::Int),
    (14, "exclusiveMinimum", Form::Bool),
    (13, "minimum", Form::Number),
    (12, "exclusiveMaximum", Form::Bool),
    (11, "maximum", Form::Number),
    (10, "multipleOf", Form::Number),
    (9, "title", Form::Text),
    (7, "example", Form::Any),
    (1, "nullable", Form::Bool),
];
const OPERATION: [(u32, &str, Form); 4] = [
    (5, "operationId", Form::Text),
    (3, "description", Form::Text),
    (2, "summary", Form::Text),
    (1, "tags", Form::Texts),
];
const PARAMETER: [(u32, &str, Form); 4] = [
    (4, "required", Form::Bool),
    (3, "description", Form::Text),
    (2, "in", Form::Text),
    (1, "name", Form::Text),
];
const SECURITY_SCHEME: [(u32, &str, Form); 4] = [
    (4, "in", Form::Text),
    (3, "name", Form::Text),
    (2, "description", Form::Text),
    (1, "type", Form::Text),
];
const INFO: [(u32, &str, Form); 3] = [
    (6, "version", Form::Text),
    (2, "description", Form::Text),
    (1, "title", Form::Text),
];

/// The document as its message.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Backwards::default();
    let components = &document["components"];
    out.nested(5, |out| {
        out.nested(7, |out| {
            all_named(out, 1, components["securitySchemes"].as_object(), |out, value| {
                out.nested(1, |out| scalars(out, value, &SECURITY_SCHEME));
            });
        });
        out.nested(1, |out| {
            all_named(out, 1, components["schemas"].as_object(), schema_or_reference)
        });
    });
    out.nested(4, |out| all_named(out, 1, document["paths"].as_object(), path_item));
    out.nested(2, |out| scalars(out, &document["info"], &INFO));
    scalar(&mut out, 1, &document["openapi"], Form::Text);
    out.finish()
}

fn schema_or_reference(out: &mut Backwards, value: &Value) {
    match &value["$ref"] {
        Value::String(to) => out.nested(2, |out| out.text(1, to)),
        _ => out.nested(1, |out| schema(out, value)),
    }
}

fn schema(out: &mut Backwards, value: &Value) {
    extensions(out, 36, value);
    scalars(out, value, &SCHEMA_LATE);
    if let Some(value) = value.get("default") {
        // What is neither number, truth value nor text has no place there.
        out.nested(33, |out| match value {
            Value::Number(number) => out.double(1, number.as_f64().unwrap_or_default()),
            Value::Bool(value) => out.int(2, i64::from(*value)),
            Value::String(text) => out.text(3, text),
            _ => {}
        });
    }
    match &value["additionalProperties"] {
        Value::Bool(allowed) => out.nested(32, |out| out.int(2, i64::from(*allowed))),
        Value::Object(_) => out.nested(32, |out| {
            out.nested(1, |out| schema_or_reference(out, &value["additionalProperties"]));
        }),
        _ => {}
    }
    if let Some(members) = value["properties"].as_object() {
        out.nested(31, |out| all_named(out, 1, Some(members), schema_or_reference));
    }
    if value["items"].is_object() {
        out.nested(30, |out| out.nested(1, |out| schema_or_reference(out, &value["items"])));
    }
    if value["not"].is_object() {
        out.nested(29, |out| schema(out, &value["not"]));
    }
    for (number, name) in [(28, "anyOf"), (27, "oneOf"), (26, "allOf")] {
        for one in value[name].as_array().into_iter().flatten().rev() {
            out.nested(number, |out| schema_or_reference(out, one));
        }
    }
    scalars(out, value, &SCHEMA_EARLY);
}

fn path_item(out: &mut Backwards, value: &Value) {
    extensions(out, 14, value);
    parameters(out, 13, &value["parameters"]);
    for (number, method) in METHODS {
        if let Some(found) = value.get(method) {
            out.nested(number, |out| operation(out, found));
        }
    }
}

fn operation(out: &mut Backwards, value: &Value) {
    extensions(out, 13, value);
    scalar(out, 10, &value["deprecated"], Form::Bool);
    out.nested(8, |out| {
        all_named(out, 2, value["responses"].as_object(), |out, response| {
            out.nested(1, |out| {
                content(out, 3, response);
                scalar(out, 1, &response["description"], Form::Text);
            });
        });
    });
    let body = &value["requestBody"];
    if body.is_object() {
        out.nested(7, |out| {
            out.nested(1, |out| {
                scalar(out, 3, &body["required"], Form::Bool);
                content(out, 2, body);
                scalar(out, 1, &body["description"], Form::Text);
            });
        });
    }
    parameters(out, 6, &value["parameters"]);
    scalars(out, value, &OPERATION);
}

/// What is sent, by media type.
fn content(out: &mut Backwards, number: u32, value: &Value) {
    let Some(content) = value["content"].as_object() else {
        return;
    };
    out.nested(number, |out| {
        all_named(out, 1, Some(content), |out, media| {
            if media["schema"].is_object() {
                out.nested(1, |out| schema_or_reference(out, &media["schema"]));
            }
        });
    });
}

fn parameters(out: &mut Backwards, number: u32, all: &Value) {
    for one in all.as_array().into_iter().flatten().rev() {
        out.nested(number, |out| {
            out.nested(1, |out| {
                if one["schema"].is_object() {
                    out.nested(10, |out| schema_or_reference(out, &one["schema"]));
                }
                scalars(out, one, &PARAMETER);
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::openapi::testing::{field, named};
    use serde_json::json;

    #[test]
    fn a_document_by_hand() {
        let shown = json!({
            "openapi": "3.0.0",
            "info": {"title": "K", "version": "v1"},
            "paths": {"/a": {
                "parameters": [{"in": "path", "name": "n", "required": true, "schema": {"type": "string"}}],
                "put": {"operationId": "write", "x-action": "put", "tags": ["t"],
                    "requestBody": {"required": true, "content": {"*/*": {"schema": {"$ref": "#/d"}}}},
                    "responses": {"200": {"description": "OK", "content": {"a/b": {"schema": {"type": "object"}}}}}},
            }},
            "components": {
                "schemas": {"d": {"type": "object", "required": ["p"], "default": {}, "properties": {
                    "p": {"type": "array", "items": {"format": "int32"}, "default": "x"},
                    "q": {"additionalProperties": {"$ref": "#/e"}, "allOf": [{"$ref": "#/f"}], "enum": [1]}}}},
                "securitySchemes": {"B": {"type": "apiKey", "name": "n", "in": "header"}},
            },
        });
        let plain = |content: &[u8]| field(1, content);
        let reference = |to: &str| field(2, &field(1, to.as_bytes()));
        let text = |kind: &str| field(25, kind.as_bytes());
        let parameter = [
            field(1, b"n"),
            field(2, b"path"),
            vec![4 << 3, 1],
            field(10, &plain(&text("string"))),
        ];
        let body = [
            field(2, &named(1, "*/*", &field(1, &reference("#/d")))),
            vec![3 << 3, 1],
        ];
        let response = [
            field(1, b"OK"),
            field(3, &named(1, "a/b", &field(1, &plain(&text("object"))))),
        ];
        let operation = [
            field(1, b"t"),
            field(5, b"write"),
            field(7, &field(1, &body.concat())),
            field(8, &named(2, "200", &field(1, &response.concat()))),
            named(13, "x-action", &field(2, b"\"put\"")),
        ];
        let item = [field(5, &operation.concat()), field(13, &field(1, &parameter.concat()))];
        let items = [
            text("array"),
            field(30, &field(1, &plain(&field(35, b"int32")))),
            field(33, &field(3, b"x")),
        ];
        let mixed = [
            field(24, &field(2, b"1")),
            field(26, &reference("#/f")),
            field(32, &field(1, &reference("#/e"))),
        ];
        let properties = [
            named(1, "p", &plain(&items.concat())),
            named(1, "q", &plain(&mixed.concat())),
        ];
        let definition = [
            field(23, b"p"),
            text("object"),
            field(31, &properties.concat()),
            field(33, b""),
        ];
        let scheme = [field(1, b"apiKey"), field(3, b"n"), field(4, b"header")];
        let components = [
            field(1, &named(1, "d", &plain(&definition.concat()))),
            field(7, &named(1, "B", &field(1, &scheme.concat()))),
        ];
        let expected = [
            field(1, b"3.0.0"),
            field(2, &[field(1, b"K"), field(6, b"v1")].concat()),
            field(4, &named(1, "/a", &item.concat())),
            field(5, &components.concat()),
        ];
        assert_eq!(document(&shown), expected.concat());
    }
}
