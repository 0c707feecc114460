//! What a schema and an object make together is bounded, whoever wrote them.

use super::tests::{refused, schema, wrong};
use super::*;
use crate::resource::field_error::FieldErrors;
use crate::tree::{self, SIZE_MAX_BYTES};
use serde_json::json;

/// A list of ten, of objects with a list of ten, and so on.
fn nested(levels: usize) -> Value {
    let ten: Vec<Value> = vec![json!({}); 10];
    let inner = match levels {
        1 => json!({"type": "object"}),
        _ => json!({"type": "object", "properties": {"a": nested(levels - 1)}}),
    };
    json!({"type": "array", "default": ten, "items": inner})
}

#[test]
fn a_definition_whose_defaults_grow_without_end_is_refused() {
    let of = |levels| json!({"type": "object", "properties": {"a": nested(levels)}});
    assert_eq!(refused(of(4)), [""; 0]);
    let told = refused(of(9));
    let wanted = "default: Forbidden: defaults add more than 262144 values or 3145728 bytes to the object";
    assert!(told.iter().any(|told| told.ends_with(wanted)), "{told:?}");
}

#[test]
fn an_object_gets_no_more_defaults_than_an_object_may_have() {
    let long = "x".repeat(SIZE_MAX_BYTES / 4);
    let schema = schema(
        json!({"type": "object", "properties": {"all": {"type": "object", "additionalProperties":
        {"type": "object", "properties": {"long": {"type": "string", "default": long}}}}}}),
    );
    let of = |count: usize| {
        let all: serde_json::Map<String, Value> = (0..count).map(|i| (i.to_string(), json!({}))).collect();
        json!({"all": all})
    };
    assert!(schema.try_fill_in(&mut of(3)).is_ok());
    let mut many = of(1000);
    assert!(schema.try_fill_in(&mut many).is_err());
    assert!(tree::size(&many, usize::MAX) < 2 * SIZE_MAX_BYTES);
}

#[test]
fn patterns_of_a_version_are_bounded_in_number_and_size_and_the_same_one_counts_once() {
    let of = |count: usize, pattern: &dyn Fn(usize) -> String| {
        let property = |i| (format!("p{i}"), json!({"type": "string", "pattern": pattern(i)}));
        let properties: serde_json::Map<String, Value> = (0..count).map(property).collect();
        json!({"type": "object", "properties": properties})
    };
    assert_eq!(refused(of(5000, &|_| "(a{50}){20}".to_owned())), [""; 0]);
    assert_eq!(refused(of(1000, &|i| format!("^a{i}$"))), [""; 0]);
    let told = refused(of(1001, &|i| format!("^a{i}$")));
    assert_eq!(told.len(), 1);
    assert!(
        told[0].ends_with("this server takes at most 1000 different patterns in a version"),
        "{told:?}"
    );
    let large = of(100, &|i| format!("{i}(a{{50}}){{20}}"));
    let told = refused(large.clone());
    let wanted = "this server takes at most 4194304 bytes of compiled patterns in a version";
    assert!(told[0].ends_with(wanted), "{told:?}");
    // As one that was stored before there was a bound is read: nothing is taken by half of its rules.
    let read = read(&large, "", &mut FieldErrors::default());
    let told = wrong(&read, &json!({}));
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("<nil>: Forbidden: the schema of its definition cannot be used: .properties[p"),
        "{told:?}"
    );
}

const TOO_MUCH: &str = "<nil>: Forbidden: the object and the schema of its definition take more work to validate than this \
                        server does for one object";

#[test]
fn work_of_patterns_junctors_and_enums_is_bounded() {
    let patterned = schema(json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(a?){300}b"}}}));
    assert_eq!(wrong(&patterned, &json!({"a": "ab"})), [""; 0]);
    assert_eq!(wrong(&patterned, &json!({"a": "a".repeat(SIZE_MAX_BYTES)})), [TOO_MUCH]);

    let allowed: Vec<usize> = (0..10_000).collect();
    let listed = schema(json!({"type": "object", "properties": {"a": {"type": "array", "items":
        {"type": "integer", "anyOf": [{"enum": allowed}, {"minimum": -5}]}}}}));
    assert_eq!(wrong(&listed, &json!({"a": [-1, 3]})), [""; 0]);
    assert_eq!(wrong(&listed, &json!({"a": vec![-1; 100_000]})), [TOO_MUCH]);

    let never: Vec<Value> = vec![json!({"required": ["x"]}); 10_000];
    let junctors = schema(json!({"type": "object", "properties": {"a": {"type": "array", "items":
        {"type": "object", "not": {"anyOf": never}}}}}));
    assert_eq!(wrong(&junctors, &json!({"a": [{}]})), [""; 0]);
    assert_eq!(wrong(&junctors, &json!({"a": vec![json!({}); 100_000]})), [TOO_MUCH]);
}

/// With a text of the path for each member this copies a terabyte, and ends when nobody waits for it.
#[test]
fn a_long_key_above_many_members_is_no_work() {
    let schema = schema(
        json!({"type": "object", "properties": {"a": {"type": "object", "additionalProperties":
        {"type": "array", "items": {"type": "integer"}}}}}),
    );
    let mut members = vec![json!(1); SIZE_MAX_BYTES / 4];
    members.push(json!("x"));
    let mut object = json!({"a": {"k".repeat(SIZE_MAX_BYTES / 2): members}});
    schema.prune_object(&mut object, &mut Vec::new());
    let told = wrong(&schema, &object);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("a.kkk") && told[0].len() < 8 << 10);
}

/// The largest object of an everyday schema is far from the bound.
#[test]
fn the_largest_object_of_an_everyday_schema_is_judged() {
    let name = json!({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63});
    let schema = schema(
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object",
        "required": ["name"], "properties": {"name": name, "port": {"type": "integer", "minimum": 1}}}}}}),
    );
    let members = vec![json!({"name": "an-ordinary-name", "port": 80}); SIZE_MAX_BYTES / 40];
    assert_eq!(wrong(&schema, &json!({"a": members})), [""; 0]);
}
