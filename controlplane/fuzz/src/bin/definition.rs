//! Any schema and any objects: a definition that is refused, or one by which every object is pruned, filled in and judged
//! (contract §9). Pruning twice is pruning once.
//!
//! The input is one line of JSON for the schema, one for the new object and one for the old.

#![no_main]

use controlplane::fuzzing;
use controlplane::schema::{Media, decode, normalize, parse};
use controlplane_fuzz::kind_of;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fn definition(schema: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.fuzz.example.com"},
        "spec": {"group": "fuzz.example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}}}]}})
}

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let Some(Ok(schema)) = lines.next().map(|line| parse(line, Media::Json)) else {
        return;
    };
    let body = definition(&schema).to_string();
    let kind = kind_of(&definition(&schema)).expect("a definition");
    let Ok(read) = decode(kind, body.as_bytes(), Media::Json) else {
        return;
    };
    let mut definition = read.value;
    kind.strategy.default(&mut definition);
    if !kind.validate(&definition).is_empty() {
        return;
    }
    let kinds = fuzzing::kinds(&mut definition);
    let kind = kinds.first().expect("a served version");
    let mut objects = lines.filter_map(|line| {
        let mut object = decode(kind, line, Media::Json).ok()?.value;
        kind.strategy.default(&mut object);
        let mut again = object.clone();
        let problems = normalize(kind, &mut again).expect("what was read is of its kind");
        assert!(problems.is_empty() && again == object, "{problems:?} {object} {again}");
        Some(object)
    });
    let Some(new) = objects.next() else {
        return;
    };
    let _ = kind.validate(&new);
    if let Some(old) = objects.next() {
        let _ = kind.validate_update(&new, &old, "");
        let _ = kind.validate_update(&new, &old, "status");
    }
});
