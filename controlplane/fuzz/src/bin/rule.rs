//! Any text as a rule of a custom resource: a definition that is refused, or a rule that answers for every object within its
//! bounds (contract §9; cel.dev).

#![no_main]

use std::sync::LazyLock;

use controlplane::fuzzing;
use controlplane_fuzz::kind_of;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static OBJECTS: LazyLock<[Value; 2]> = LazyLock::new(|| {
    let object = |s: &str, n: i64, list: &[&str]| {
        json!({"apiVersion": "fuzz.example.com/v1", "kind": "Thing", "metadata": {"name": "thing", "namespace": "default"}, "spec": {
            "s": s, "n": n, "f": 0.5, "b": true, "at": "2026-01-02T03:04:05Z", "took": "1h5m", "bytes": "YWJj", "either": n,
            "list": list, "set": list, "map": {"a": 1, "b": n}, "named": [{"name": s, "n": n}], "ip": "10.0.0.1", "any": {"x": [1, "y"]}}})
    };
    [object("first", 3, &["a", "b"]), object("zweiter \u{fc}", -1, &["c"])]
});

fn definition(rule: &str) -> Value {
    let text = json!({"type": "string", "maxLength": 64});
    let member =
        json!({"type": "object", "required": ["name"], "properties": {"name": text, "n": {"type": "integer"}}});
    let properties = json!({
        "s": text, "n": {"type": "integer"}, "f": {"type": "number"}, "b": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"}, "took": {"type": "string", "format": "duration"},
        "bytes": {"type": "string", "format": "byte", "maxLength": 64}, "ip": text,
        "either": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "maxItems": 8, "items": text},
        "set": {"type": "array", "maxItems": 8, "items": text, "x-kubernetes-list-type": "set"},
        "map": {"type": "object", "maxProperties": 8, "additionalProperties": {"type": "integer"}},
        "named": {"type": "array", "maxItems": 8, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": member},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": properties});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.fuzz.example.com"},
        "spec": {"group": "fuzz.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

fuzz_target!(|rule: &str| {
    let mut definition = definition(rule);
    let kind = kind_of(&definition).expect("a definition");
    if !kind.validate(&definition).is_empty() {
        return;
    }
    let kinds = fuzzing::kinds(&mut definition);
    let kind = kinds.first().expect("a served version");
    let [first, second] = &*OBJECTS;
    // Rules alone can refuse these: the same object is judged alike every time.
    let told = kind.validate(first);
    assert_eq!(format!("{told:?}"), format!("{:?}", kind.validate(first)));
    let _ = kind.validate_update(second, first, "");
});
