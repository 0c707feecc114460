//! The schemas of a document: the published ones, in OpenAPI's form, with Kubernetes' extensions. Pure.

use serde_json::{Map, Value, json};
use std::sync::Arc;

use crate::resource::Kind;
use crate::schema::{Field, ListType, Merge, Schema};

const FROM: &str = "#/$defs/";
const TO: &str = "#/components/schemas/";

/// Definition of a patch's body.
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
/// Definition of a Status.
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
/// Definition of the options of a delete.
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// A reference to a definition.
pub(super) fn reference(definition: &str) -> Value {
    json!({"$ref": format!("{TO}{definition}")})
}

/// All schemas a document of these kinds needs.
pub(super) fn schemas(raw: Map<String, Value>, kinds: &[Arc<Kind>], schema: &Schema) -> Map<String, Value> {
    let mut all: Map<String, Value> = raw
        .into_iter()
        .map(|(name, definition)| {
            let converted = definition_of(&name, definition, schema);
            (name, converted)
        })
        .collect();
    for kind in kinds {
        let name = &*kind.definition;
        if !kind.list_kind.is_empty() {
            all.insert(format!("{name}List"), list_of(kind, name));
        }
        if let Some(definition) = all.get_mut(name) {
            definition["x-kubernetes-group-version-kind"] = json!([gvk(&kind.group, &kind.version, &kind.kind)]);
        }
    }
    for (definition, kind) in [(STATUS, "Status"), (DELETE_OPTIONS, "DeleteOptions")] {
        if let Some(definition) = all.get_mut(definition) {
            definition["x-kubernetes-group-version-kind"] = json!([gvk("", "v1", kind)]);
        }
    }
    all.insert(
        PATCH.to_owned(),
        json!({
            "description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.",
            "type": "object",
        }),
    );
    all
}

/// Group, version and kind as extensions name them.
pub(super) fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn list_of(kind: &Kind, definition: &str) -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    json!({
        "description": format!("{} is a list of {} objects.", kind.list_kind, kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text("APIVersion defines the versioned schema of this representation of an object."),
            "kind": text("Kind is a string value representing the REST resource this object represents."),
            "metadata": {"allOf": [reference(LIST_META)], "description": "Standard list metadata."},
            "items": {"type": "array", "items": reference(definition), "description": "The objects."},
        },
        "x-kubernetes-group-version-kind": [gvk(&kind.group, &kind.version, &kind.list_kind)],
    })
}

fn definition_of(name: &str, mut definition: Value, schema: &Schema) -> Value {
    match name.rsplit('.').next() {
        Some("Quantity") => {
            definition = json!({
                "description": definition["description"], "oneOf": [{"type": "string"}, {"type": "number"}],
            });
        }
        // Any JSON, and schemas that may be something else as well: of these upstream publishes the description alone.
        Some(free) if free == "JSON" || free.starts_with("JSONSchemaPropsOr") => {
            definition = json!({"description": definition["description"]});
        }
        Some("IntOrString") => {
            definition = json!({
                "description": definition["description"], "format": "int-or-string",
                "oneOf": [{"type": "integer"}, {"type": "string"}],
            });
        }
        _ => {}
    }
    let kind = schema.type_of(name).map(|id| schema.get(id));
    if let Some(map) = definition.as_object_mut() {
        // The type system behind the published schemas requires metadata; the API does not.
        let required = map.get_mut("required").and_then(Value::as_array_mut);
        let is_empty = required.is_some_and(|required| {
            required.retain(|field| field != "metadata");
            required.is_empty()
        });
        if is_empty {
            map.remove("required");
        }
        if kind.is_some_and(|kind| kind.atomic) {
            map.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
    }
    let properties = definition.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        convert(property);
        if let Some(field) = kind.and_then(|kind| kind.field(name)) {
            extend(property, field);
        }
    }
    definition
}

/// References in OpenAPI's form: with a description they need `allOf`, since siblings of `$ref` are ignored.
fn convert(value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            convert(inner);
        }
    }
    let Some(Value::String(target)) = map.remove("$ref") else {
        return;
    };
    let target = reference(target.strip_prefix(FROM).unwrap_or(&target));
    if map.is_empty() {
        *value = target;
    } else {
        map.insert("allOf".to_owned(), json!([target]));
    }
}

fn extend(property: &mut Value, field: &Field) {
    if property.get("$ref").is_some() && (field.merge.is_some() || field.default.is_some()) {
        *property = json!({"allOf": [property.take()]});
    }
    if let Some(default) = &field.default {
        property["default"] = (**default).clone();
    }
    if let Some(merge) = &field.merge {
        extend_merge(property, merge);
    }
}

fn extend_merge(property: &mut Value, merge: &Merge) {
    if let Some(list_type) = merge.list_type {
        property["x-kubernetes-list-type"] = json!(match list_type {
            ListType::Atomic => "atomic",
            ListType::Map => "map",
            ListType::Set => "set",
        });
    }
    if !merge.list_map_keys.is_empty() {
        property["x-kubernetes-list-map-keys"] = json!(merge.list_map_keys);
    }
    if merge.atomic_map {
        property["x-kubernetes-map-type"] = json!("atomic");
    }
    let strategies: Vec<&str> = [
        (merge.patch_merge, "merge"),
        (merge.patch_replace, "replace"),
        (merge.retain_keys, "retainKeys"),
    ]
    .into_iter()
    .filter_map(|(applies, name)| applies.then_some(name))
    .collect();
    if !strategies.is_empty() {
        property["x-kubernetes-patch-strategy"] = json!(strategies.join(","));
    }
    if !merge.patch_merge_key.is_empty() {
        property["x-kubernetes-patch-merge-key"] = json!(merge.patch_merge_key);
    }
}
