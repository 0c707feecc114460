//! Random definitions of custom resources, with all a schema may say of how values are put together. Pure.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use crate::resource::{Kind, Registry, custom};

const DEPTH_MAX: usize = 4;

/// The kind of a random definition, which is one the server takes.
pub(super) fn kind(seed: u64) -> Arc<Kind> {
    let definition = definition(seed);
    let of_definitions = Registry::built_in().by_gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let errors = of_definitions.expect("built in").validate(&definition);
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(told, Vec::<String>::new(), "{definition}");
    custom::kinds(&definition).remove(0)
}

/// The definition, as if it were established.
fn definition(seed: u64) -> Value {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut schema = object(&mut rng, 0);
    schema["properties"]["spec"] = object(&mut rng, 1);
    if rng.random_bool(0.2) {
        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    let mut version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    if rng.random_bool(0.5) {
        version["subresources"] = json!({"status": {}});
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "conversion": {"strategy": "None"},
            "versions": [version]},
        "status": {"acceptedNames": names, "storedVersions": ["v1"]}})
}

fn schema(rng: &mut StdRng, depth: usize) -> Value {
    if depth >= DEPTH_MAX {
        return scalar(rng);
    }
    match rng.random_range(0..9) {
        0 | 1 => object(rng, depth),
        2 => json!({"type": "object", "additionalProperties": schema(rng, depth + 1)}),
        3 => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        4 => json!({"type": "array", "items": schema(rng, depth + 1)}),
        5 => json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        6 => keyed(rng, depth),
        _ => scalar(rng),
    }
}

fn scalar(rng: &mut StdRng) -> Value {
    match rng.random_range(0..8) {
        0 => json!({"type": "integer"}),
        1 => json!({"type": "integer", "default": 3}),
        2 => json!({"type": "boolean", "default": true}),
        3 => json!({"type": "number"}),
        4 => json!({"x-kubernetes-int-or-string": true}),
        5 => json!({"type": "string", "default": "d"}),
        6 => json!({"type": "string", "nullable": true}),
        _ => json!({"type": "string"}),
    }
}

fn object(rng: &mut StdRng, depth: usize) -> Value {
    let names = ["a", "b", "c", "d"];
    let properties: Map<String, Value> = names
        .iter()
        .filter_map(|name| match rng.random_bool(0.7) {
            true => Some(((*name).to_owned(), schema(rng, depth + 1))),
            false => None,
        })
        .collect();
    let mut made = json!({"type": "object", "properties": properties});
    if depth > 0 {
        match rng.random_range(0..8) {
            0 => made["x-kubernetes-map-type"] = json!("atomic"),
            1 => made["x-kubernetes-preserve-unknown-fields"] = json!(true),
            2 => made["default"] = json!({}),
            _ => {}
        }
    }
    made
}

/// A list of objects that are known by one field or two, one of which may have a default.
fn keyed(rng: &mut StdRng, depth: usize) -> Value {
    let mut items = object(rng, depth + 1);
    for extra in ["default", "x-kubernetes-map-type"] {
        items.as_object_mut().expect("an object").remove(extra);
    }
    items["properties"]["key"] = json!({"type": "string"});
    items["required"] = json!(["key"]);
    let mut keys = vec!["key"];
    if rng.random_bool(0.4) {
        items["properties"]["port"] = json!({"type": "integer", "default": 80});
        keys.push("port");
    }
    json!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys})
}
