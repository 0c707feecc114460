use super::*;
use crate::resource::field_error::FieldErrors;
use proptest::prelude::*;
use serde_json::json;

fn schema(text: Value) -> Structural {
    let mut errors = FieldErrors::default();
    let schema = read(&text, "s", &mut errors);
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(told, Vec::<String>::new());
    schema
}

fn refused(text: Value) -> Vec<String> {
    let mut errors = FieldErrors::default();
    read(&text, "s", &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn wrong(schema: &Structural, value: &Value) -> Vec<String> {
    let mut errors = FieldErrors::default();
    schema.validate_object(value, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_not_structural_is_named() {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    for (text, wanted) in [
        (json!({}), "s.type: Required value: must not be empty at the root"),
        (
            json!({"type": "string"}),
            "s.type: Invalid value: \"string\": must be object at the root",
        ),
        (
            object(json!({"a": {"type": "array"}})),
            "s.properties[a].items: Required value: must be specified",
        ),
        (
            object(json!({"a": {"type": "array", "items": {}}})),
            "s.properties[a].items.type: Required value: must not be empty for specified array items",
        ),
        (
            object(json!({"a": {"type": "float"}})),
            "s.properties[a].type: Unsupported value: \"float\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
             \"object\", \"string\"",
        ),
        (
            object(json!({"a": {"type": "object", "additionalProperties": false}})),
            "s.properties[a].additionalProperties: Forbidden: additionalProperties cannot be set to false",
        ),
        (
            object(json!({"a": {"type": "string", "$ref": "x"}})),
            "s.properties[a].$ref: Forbidden: $ref is not supported",
        ),
        (
            json!({"type": "object", "allOf": [{"type": "object"}]}),
            "s.allOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            object(json!({"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}})),
            "s.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
    ] {
        assert_eq!(refused(text.clone()), [wanted], "{text}");
    }
}

#[test]
fn nulls_and_defaults_follow_nullable() {
    let schema = schema(json!({"type": "object", "properties": {
        "plain": {"type": "string"},
        "kept": {"type": "string", "nullable": true},
        "filled": {"type": "string", "default": "d"},
        "inner": {"type": "object", "default": {}, "properties": {"deep": {"type": "integer", "default": 1}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer", "default": 2}}}},
    }}));
    let mut value = json!({"plain": null, "kept": null, "filled": null, "list": [{}]});
    schema.fill_in(&mut value);
    let expected = json!({"kept": null, "filled": "d", "inner": {"deep": 1}, "list": [{"x": 2}]});
    assert_eq!(value, expected);
    assert_eq!(wrong(&schema, &value), [""; 0]);
}

#[test]
fn junctors_count_who_agrees() {
    let schema = schema(
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        "not": {"properties": {"a": {"enum": [7]}}, "required": ["a"]}}),
    );
    assert_eq!(wrong(&schema, &json!({"a": 1})), [""; 0]);
    let none = "<nil>: Invalid value: \"\": \"\" must validate one and only one schema (oneOf). Found none valid";
    assert_eq!(wrong(&schema, &json!({})), [none]);
    assert_eq!(wrong(&schema, &json!({"a": 1, "b": 1})).len(), 1);
    assert_eq!(
        wrong(&schema, &json!({"a": 7})),
        ["<nil>: Invalid value: \"\": \"\" must not validate the schema (not)"]
    );
}

#[test]
fn embedded_objects_keep_what_every_object_has() {
    let schema = schema(json!({"type": "object", "properties": {"inner": {"type": "object",
        "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}));
    let mut value =
        json!({"kind": "K", "x": 1, "inner": {"kind": "I", "metadata": {"name": "n"}, "spec": {"y": 1}, "z": 1}});
    let mut unknown = Vec::new();
    schema.prune_object(&mut value, &mut unknown);
    assert_eq!(
        value,
        json!({"kind": "K", "inner": {"kind": "I", "metadata": {"name": "n"}, "spec": {}}})
    );
    assert_eq!(unknown, ["inner.spec.y", "inner.z", "x"]);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..50).prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Pruning and defaulting change nothing the second time, and judging whatever comes in never panics.
    #[test]
    fn pruning_and_defaulting_are_idempotent(a in any_value(), b in any_value()) {
        let schema = schema(json!({"type": "object", "properties": {
            "a": {"type": "object", "nullable": true, "properties": {"b": {"type": "integer", "default": 1},
                "c": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string", "default": "x"}}}}}},
            "b": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "boolean", "default": true}}}},
        }}));
        let mut once = json!({"a": a, "b": b, "c": 1});
        schema.prune_object(&mut once, &mut Vec::new());
        schema.fill_in(&mut once);
        let mut twice = once.clone();
        let mut unknown = Vec::new();
        schema.prune_object(&mut twice, &mut unknown);
        schema.fill_in(&mut twice);
        prop_assert_eq!(&once, &twice);
        prop_assert!(unknown.is_empty());
        wrong(&schema, &once);
    }
}
