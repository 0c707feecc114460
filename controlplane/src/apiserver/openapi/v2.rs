//! OpenAPI v2, for clients older than v3: every group's v3 document said in the older words, in one document. Pure.

use serde_json::{Map, Value, json};

use crate::resource::Registry;

const FROM: &str = "#/components/schemas/";
const TO: &str = "#/definitions/";

/// The one document of all groups.
pub(super) fn document(registry: &Registry) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for (_, version) in registry.versions() {
        let mut document = super::v3_value(registry, version);
        if let Value::Object(schemas) = document["components"]["schemas"].take() {
            for (name, schema) in schemas {
                definitions.entry(name).or_insert_with(|| definition(schema));
            }
        }
        if let Value::Object(own) = document["paths"].take() {
            paths.extend(own.into_iter().map(|(path, item)| (path, path_item(item))));
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
        }},
        "security": [{"BearerToken": []}],
    })
}

/// A schema: no `oneOf`, and a reference may have siblings.
fn definition(mut schema: Value) -> Value {
    rewrite(&mut schema);
    schema
}

fn rewrite(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Array(all)) = map.remove("allOf")
                && let Some(Value::Object(first)) = all.into_iter().next()
            {
                map.extend(first);
            }
            if map.remove("oneOf").is_some() {
                map.insert("type".to_owned(), json!("string"));
            }
            if let Some(Value::String(target)) = map.get_mut("$ref")
                && let Some(name) = target.strip_prefix(FROM)
            {
                *target = format!("{TO}{name}");
            }
            map.values_mut().for_each(rewrite);
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite),
        _ => {}
    }
}

fn path_item(mut item: Value) -> Value {
    for (name, part) in item.as_object_mut().into_iter().flatten() {
        if name == "parameters" {
            part.as_array_mut().into_iter().flatten().for_each(parameter);
        } else {
            operation(part);
        }
    }
    item
}

/// A parameter's schema stands in the parameter itself.
fn parameter(parameter: &mut Value) {
    let schema = parameter.get_mut("schema").map(Value::take);
    if let (Some(map), Some(Value::Object(schema))) = (parameter.as_object_mut(), schema) {
        map.remove("schema");
        map.extend(schema);
    }
}

fn operation(operation: &mut Value) {
    let Some(map) = operation.as_object_mut() else { return };
    let mut parameters = match map.remove("parameters") {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    parameters.iter_mut().for_each(parameter);
    if let Some(mut body) = map.remove("requestBody") {
        let content = body["content"].take();
        let types: Vec<&String> = content
            .as_object()
            .into_iter()
            .flatten()
            .map(|(media, _)| media)
            .collect();
        map.insert("consumes".to_owned(), json!(types));
        let required = body["required"].take();
        let schema = definition(schema_of(content));
        parameters.push(json!({"name": "body", "in": "body", "required": required, "schema": schema}));
    }
    if !parameters.is_empty() {
        map.insert("parameters".to_owned(), Value::Array(parameters));
    }
    map.insert("produces".to_owned(), json!(["application/json", "application/yaml"]));
    map.insert("schemes".to_owned(), json!(["https"]));
    for (_, response) in map
        .get_mut("responses")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
    {
        if let Some(response) = response.as_object_mut()
            && let Some(content) = response.remove("content")
        {
            response.insert("schema".to_owned(), definition(schema_of(content)));
        }
    }
}

/// The schema of the first media type; all have the same.
fn schema_of(content: Value) -> Value {
    match content {
        Value::Object(map) => map
            .into_iter()
            .next()
            .map_or(Value::Null, |(_, mut media)| media["schema"].take()),
        _ => Value::Null,
    }
}
