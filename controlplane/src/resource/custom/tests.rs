use super::*;

fn definition(versions: &Value) -> Value {
    json!({"metadata": {"name": "lions.zoo.example"}, "spec": {"group": "zoo.example", "scope": "Namespaced",
        "names": {"plural": "lions"}, "versions": versions},
        "status": {"acceptedNames": {"plural": "lions", "kind": "Lion", "listKind": "LionList", "singular": "lion"}}})
}

#[test]
fn every_served_version_is_a_kind_over_one_storage() {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let definition = definition(&json!([
        {"name": "v1", "served": true, "storage": false, "schema": schema},
        {"name": "v2", "served": true, "storage": true, "schema": schema},
        {"name": "v0", "served": false, "storage": false, "schema": schema},
    ]));
    let kinds = kinds(&definition);
    let names: Vec<&str> = kinds.iter().map(|kind| &*kind.version).collect();
    assert_eq!(names, ["v1", "v2"]);
    assert!(Arc::ptr_eq(kinds[0].storage(), &kinds[1]) && Arc::ptr_eq(kinds[1].storage(), &kinds[1]));
    assert!(kinds.iter().all(|kind| kind.storage_prefix == "zoo.example/lions"));
    assert_eq!(&*kinds[0].definition, "example.zoo.v1.Lion");
    let object = json!({"kind": "Lion", "apiVersion": "zoo.example/v2", "a": "x", "b": 1});
    assert_eq!(
        kinds[0].presented(object),
        json!({"kind": "Lion", "apiVersion": "zoo.example/v1", "a": "x"})
    );
}

#[test]
fn the_generation_counts_what_is_not_status() {
    let with = |status: bool| Custom {
        schema: Arc::default(),
        has_status: status,
        scale: None,
    };
    let old = json!({"metadata": {"name": "a"}, "spec": 1, "status": 1});
    let new = json!({"metadata": {"name": "b"}, "spec": 1, "status": 2});
    assert!(!with(true).bumps_generation(&new, &old) && with(false).bumps_generation(&new, &old));
}

#[test]
fn whoever_owns_fields_sees_lists_and_maps_as_the_schema_says() {
    use crate::schema::{ListType, Shape};
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}},
        "one": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "integer"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let kinds = kinds(&definition(&json!([version])));
    let (table, root) = kinds[0].schema();
    let root = table.get(root.expect("a type of its own"));
    let field = |name: &str| match &root.field(name).expect("a field").shape {
        Shape::Object(id) => table.get(*id),
        other => panic!("{name} is {other:?}"),
    };
    assert!(field("metadata").field("ownerReferences").is_some());
    let spec = field("spec");
    let ports = spec.field("ports").unwrap().merge.as_ref().expect("which merge");
    assert_eq!(
        (ports.list_type, &*ports.list_map_keys),
        (Some(ListType::Map), &["name".to_owned()][..])
    );
    assert!(
        spec.field("one")
            .unwrap()
            .merge
            .as_ref()
            .is_some_and(|merge| merge.atomic_map)
    );
    assert_eq!(spec.field("free").unwrap().shape, Shape::Any);
}

#[test]
fn what_takes_long_is_not_judged_in_the_time_of_a_worker() {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "p": {"type": "string", "pattern": "(.*a.{200}){2}c"},
        "l": {"type": "array", "maxItems": 700, "items": {"type": "integer"},
            "x-kubernetes-validations": [{"rule": "self.distinct().size() > 0"}, {"rule": "self.distinct().size() >= 1"}]},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let kind = kinds(&definition(&json!([version]))).remove(0);
    let object = |key: &str, value: Value| {
        json!({"kind": "Lion", "apiVersion": "zoo.example/v1", "metadata": {"name": "a", "namespace": "b",
            "uid": "u", "creationTimestamp": "2026-01-02T00:00:00Z"}, key: value})
    };
    let members = |count: usize| (0..count).map(|i| format!("{i:02000}")).collect::<Vec<_>>();
    for (key, few, many) in [
        ("p", json!("ab"), json!("a".repeat(60_000))),
        ("l", json!([1, 1]), json!((0..700).collect::<Vec<_>>())),
        ("s", json!(members(2)), json!(members(1400))),
    ] {
        let (few, many) = (object(key, few), object(key, many));
        let told = kind.validate_briefly(&few, None, "").expect("is done at once");
        assert_eq!(told.iter().map(ToString::to_string).collect::<Vec<_>>(), {
            let all = kind.validate(&few);
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        });
        assert!(kind.validate_briefly(&many, None, "").is_none(), "{key}");
        assert!(kind.validate_briefly(&many, Some(&few), "").is_none(), "{key}");
        assert!(
            !kind
                .validate(&many)
                .iter()
                .any(|error| error.to_string().contains("more work"))
        );
    }
}
