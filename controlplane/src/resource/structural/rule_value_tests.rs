//! What rules give, and what they see of values.

use super::rule_tests::{obeyed, ruled};
use super::tests::{refused, schema};
use serde_json::{Value, json};

#[test]
fn what_may_not_change_may_not_change_where_rules_do_not_see_it() {
    let preserved = || json!({"x-kubernetes-preserve-unknown-fields": true});
    let field = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "a": {"type": "integer"}, "free": preserved(), "n": {"type": "integer", "nullable": true}, "a b": {"type": "integer"},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    let fixed = schema(ruled(field, "self == oldSelf"));
    let old = json!({"a": 1, "free": {"x": [1]}, "n": null, "a b": 1, "other": {"y": 1},
        "template": {"apiVersion": "v1", "kind": "K", "spec": {"z": 1}}});
    let told = |new: &Value| obeyed(&fixed, &json!({"v": new}), Some(&json!({"v": old}))).len();
    assert_eq!(told(&old), 0);
    for (pointer, value) in [
        ("/a", json!(2)),
        ("/free/x/0", json!(2)),
        ("/n", json!(0)),
        ("/a b", json!(2)),
        ("/other/y", json!(2)),
        ("/template/spec/z", json!(2)),
        ("/template/kind", json!("L")),
    ] {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        assert_eq!(told(&new), 1, "{pointer}");
    }
    let mut more = old.clone();
    more["new"] = json!(null);
    assert_eq!(told(&more), 1, "one more field");
    more.as_object_mut().unwrap().remove("other");
    assert_eq!(told(&more), 1, "one for another");
}

#[test]
fn a_rule_that_gives_no_bool_is_not_obeyed() {
    let any = || json!({"x-kubernetes-int-or-string": true, "maxLength": 20});
    let port = || json!({"type": "object", "properties": {"port": any()}});
    for (field, rule) in [
        (any(), "self == 'a' ? self : true"),
        (any(), "self == 'a' ? true : self"),
        (port(), "self.?port.orValue(true)"),
    ] {
        let told = refused(ruled(field, rule));
        assert!(
            told[0].ends_with("cel expression must evaluate to a bool"),
            "{rule}: {told:?}"
        );
    }
    // What types cannot tell is told when it comes of an object.
    let rule = "(self == 1 ? [true] : [self])[0]";
    let hidden = schema(ruled(any(), rule));
    assert_eq!(obeyed(&hidden, &json!({"v": 1}), None), [""; 0]);
    for other in [json!("text"), json!(2)] {
        let told = obeyed(&hidden, &json!({"v": other}), None);
        assert!(told.len() == 1 && told[0].contains("'no such overload'"), "{told:?}");
    }
}
