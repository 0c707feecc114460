use super::judge::WORK_MAX;
use super::*;
use crate::resource::field_error::FieldErrors;
use proptest::prelude::*;
use serde_json::json;

pub(super) fn schema(text: Value) -> Structural {
    let mut errors = FieldErrors::default();
    let schema = read(&text, "s", &mut errors);
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(told, Vec::<String>::new());
    schema
}

pub(super) fn refused(text: Value) -> Vec<String> {
    let mut errors = FieldErrors::default();
    read(&text, "s", &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

pub(super) fn wrong(schema: &Structural, value: &Value) -> Vec<String> {
    let mut errors = FieldErrors::default();
    schema.validate_object(value, &mut WORK_MAX.clone(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_not_structural_is_named() {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let keyed = |keys: Value, properties: Value| {
        object(
            json!({"a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
            "items": {"type": "object", "properties": properties}}}),
        )
    };
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
        (
            object(json!({"a": {"type": "string", "x-kubernetes-list-type": "set"}})),
            "s.properties[a].type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
        ),
        (
            object(json!({"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}})),
            "s.properties[a].x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
        ),
        (
            object(json!({"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["k"]}})),
            "s.properties[a].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        (
            object(json!({"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}})),
            "s.properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
             x-kubernetes-list-type=set",
        ),
        (
            object(
                json!({"a": {"type": "array", "items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}}),
            ),
            "s.properties[a].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            keyed(json!(["none"]), json!({})),
            "s.properties[a].x-kubernetes-list-map-keys: Invalid value: [\"none\"]: entries must all be \
          names of item properties",
        ),
        (
            keyed(json!(["k"]), json!({"k": {"type": "string"}})),
            "s.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must \
             have a default or be a required property",
        ),
        (
            keyed(json!(["k"]), json!({"k": {"type": "object", "default": {}}})),
            "s.properties[a].items.properties[k].type: Invalid value: \"object\": must be a scalar type if parent array's \
             x-kubernetes-list-type is map",
        ),
        (
            keyed(
                json!(["k"]),
                json!({"k": {"type": "string", "default": "", "nullable": true}}),
            ),
            "s.properties[a].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be \
             nullable",
        ),
        (
            object(json!({"a": {"type": "string", "x-kubernetes-map-type": "atomic"}})),
            "s.properties[a].type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
        ),
        (
            object(json!({"a": {"type": "object", "x-kubernetes-map-type": "deep"}})),
            "s.properties[a].x-kubernetes-map-type: Unsupported value: \"deep\": supported values: \"atomic\", \"granular\"",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "s.additionalProperties: Forbidden: must not be used at the root",
        ),
        (
            object(json!({"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": false}})),
            "s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
        (
            object(json!({"a": {"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}})),
            "s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is \
             true",
        ),
        (
            object(json!({"a": {"type": "object", "x-kubernetes-embedded-resource": true}})),
            "s.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "object", "anyOf": [{"properties": {"b": {"minimum": 1}}}]}),
            "s.properties[b]: Required value: because it is defined in s.anyOf[0].properties[b]",
        ),
    ] {
        assert_eq!(refused(text.clone()), [wanted], "{text}");
    }
}

#[test]
fn an_integer_or_a_string_is_asked_for_as_generators_write_it() {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let quantity = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE])?$";
    let schema = schema(
        json!({"type": "object", "description": "Foo is the Schema for the foos API", "properties": {
            "apiVersion": {"type": "string", "description": "APIVersion defines the versioned schema"},
            "kind": {"type": "string", "description": "Kind is a string value"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "required": ["port"], "properties": {
                "port": {"anyOf": either, "x-kubernetes-int-or-string": true},
                "limits": {"type": "object", "additionalProperties":
                    {"anyOf": either, "pattern": quantity, "x-kubernetes-int-or-string": true}},
                "all": {"allOf": [{"anyOf": either}, {"minimum": 3}], "x-kubernetes-int-or-string": true},
            }},
        }}),
    );
    let taken = json!({"spec": {"port": "http", "limits": {"cpu": "100m", "memory": 5}, "all": 3}});
    assert_eq!(wrong(&schema, &taken), [""; 0]);
    for bad in [
        json!({"spec": {"port": true}}),
        json!({"spec": {"port": 1, "limits": {"cpu": "much"}}}),
        json!({"spec": {"port": 1, "all": 2}}),
    ] {
        assert_eq!(wrong(&schema, &bad).len(), 1, "{bad}");
    }
    let types = [
        "s.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
        "s.properties[a].anyOf[1].type: Forbidden: must be empty to be structural",
    ];
    let without = json!({"type": "object", "properties": {"a": {"type": "string", "anyOf": either}}});
    assert_eq!(refused(without), types);
    let reversed = json!([{"type": "string"}, {"type": "integer"}]);
    let other = json!({"x-kubernetes-int-or-string": true, "anyOf": reversed});
    assert_eq!(refused(json!({"type": "object", "properties": {"a": other}})), types);
}

#[test]
fn of_what_every_object_has_only_its_names_are_narrowed() {
    let root = |properties: Value| json!({"type": "object", "properties": properties});
    let more = "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is \
                implicitly specified";
    for (properties, wanted) in [
        (
            json!({"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}),
            more,
        ),
        (json!({"metadata": {"type": "object", "minProperties": 1}}), more),
        (
            json!({"metadata": {"type": "string"}}),
            "s.properties[metadata].type: Invalid value: \"string\": must be object",
        ),
        (
            json!({"metadata": {"type": "object", "default": {}}}),
            "s.properties[metadata].default: Forbidden: must not be set",
        ),
        (
            json!({"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}}),
            "s.properties[metadata].properties[name].default: Forbidden: must not be set",
        ),
        (
            json!({"kind": {"type": "integer"}}),
            "s.properties[kind].type: Invalid value: \"integer\": must be string",
        ),
        (
            json!({"apiVersion": {"type": "string", "default": "v2"}}),
            "s.properties[apiVersion].default: Forbidden: must not be set",
        ),
    ] {
        assert_eq!(refused(root(properties.clone())), [wanted], "{properties}");
    }
    let name = json!({"type": "string", "maxLength": 2});
    let schema = schema(root(
        json!({"metadata": {"type": "object", "properties": {"name": name}}}),
    ));
    assert_eq!(
        wrong(&schema, &json!({"metadata": {"name": "ab", "labels": {"a": "b"}}})),
        [""; 0]
    );
    assert_eq!(
        wrong(&schema, &json!({"metadata": {"name": "abc"}})),
        ["metadata.name: Too long: may not be more than 2 bytes"]
    );
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
    let told = wrong(&schema, &value);
    assert_eq!(told, ["inner.apiVersion: Required value"]);
    value["inner"]["apiVersion"] = json!("a/b/c");
    value["inner"]["kind"] = json!("No Kind");
    value["inner"]["metadata"] = json!({"name": "a/b", "labels": {"a": "no label!"}});
    let told = wrong(&schema, &value);
    let places: Vec<&str> = told.iter().map(|told| told.split(':').next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "inner.apiVersion",
            "inner.kind",
            "inner.metadata.name",
            "inner.metadata.labels"
        ]
    );
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
        let sent = once.clone();
        schema.prune_object(&mut once, &mut Vec::new());
        schema.fill_in(&mut once);
        prop_assert_eq!(schema.is_settled(sent.to_string().as_bytes()), sent == once);
        let mut twice = once.clone();
        let mut unknown = Vec::new();
        schema.prune_object(&mut twice, &mut unknown);
        schema.fill_in(&mut twice);
        prop_assert_eq!(&once, &twice);
        prop_assert!(unknown.is_empty());
        prop_assert!(schema.is_settled(once.to_string().as_bytes()), "{}", once);
        wrong(&schema, &once);
    }
}
