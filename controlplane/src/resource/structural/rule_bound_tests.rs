//! What rules may cost, by estimate and by what they do.

use super::read::read;
use super::rule_tests::{obeyed, ruled};
use super::tests::{refused, schema};
use crate::resource::field_error::FieldErrors;
use serde_json::json;

#[test]
fn what_rules_may_cost_is_bounded_by_estimate() {
    let unbounded = json!({"type": "array", "items": {"type": "array", "items": {"type": "string"}}});
    let told = refused(ruled(unbounded, "self.all(x, self.all(y, x == y))"));
    let wanted = "s.properties[v].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than \
                  100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings \
                  are declared)";
    assert_eq!(told[0], wanted);
    assert!(
        told[1].contains("contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema")
    );
    assert!(told[2].starts_with(
        "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds"
    ));
    let bounded = json!({"type": "array", "maxItems": 10, "items": {"type": "array", "maxItems": 10, "items":
        {"type": "string", "maxLength": 10}}});
    assert_eq!(refused(ruled(bounded, "self.all(x, self.all(y, x == y))")), [""; 0]);
    // A rule that costs 3 and stands a hundred thousand times.
    let inner = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]});
    let counted =
        |most: u64| json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": most, "items": inner}}});
    assert_eq!(refused(counted(1_000_000)), [""; 0]);
    let told = refused(counted(10_000_000));
    assert!(
        told[0].contains("estimated rule cost exceeds budget by factor of "),
        "{told:?}"
    );
}

#[test]
fn a_version_has_so_many_rules_and_so_much_of_them() {
    let rules = |count: usize, rule: &str| {
        let rules: Vec<_> = vec![json!({"rule": rule}); count];
        refused(json!({"type": "object", "x-kubernetes-validations": rules}))
    };
    assert_eq!(rules(2_000, "true"), [""; 0]);
    let wanted = "this server takes at most 2000 rules of 524288 bytes in a version";
    assert!(rules(2_001, "true")[0].ends_with(wanted));
    let long = format!("'{}' != ''", "x".repeat(50_000));
    assert!(rules(11, &long)[0].ends_with(wanted));
}

#[test]
fn evaluating_is_bounded_in_cost_work_and_memory() {
    let items = json!({"type": "array", "maxItems": 1000, "items": {"type": "integer"}});
    let nested = schema(
        json!({"type": "object", "properties": {"v": items}, "x-kubernetes-validations": [
        {"rule": "!has(self.v) || self.v.all(x, x == 0)"}]}),
    );
    assert_eq!(obeyed(&nested, &json!({"v": vec![0; 1000]}), None), [""; 0]);
    // What a definition may not ask for by estimate may still come of one that was stored.
    let read = |rule: &str| {
        let field = json!({"type": "array", "items": {"type": "integer"}});
        read(&ruled(field, rule), "", &mut FieldErrors::default())
    };
    let many = json!({"v": vec![1; 300_000]});
    for rule in [
        "self.all(x, self.all(y, y == x))",
        "self.all(x, (self + self).size() > 0)",
        "self.map(x, self).map(y, y + y).size() > 0",
        "self.all(x, self == self)",
        "self.distinct().size() > 0 && self.all(x, sets.contains(self, self))",
        "self.all(x, 'aaaa'.matches('(a?){20}' + string(x)) || true)",
        "lists.range(100000).all(x, lists.range(100000).size() > 0)",
        "'%s'.format([self.map(x, self)]).size() > 0",
    ] {
        let told = obeyed(&read(rule), &many, None);
        assert_eq!(told.len(), 1, "{rule}");
        let is_bound = told[0].contains("operation cancelled: actual cost limit exceeded")
            || told[0].contains("out of cost budget");
        assert!(is_bound, "{rule}: {told:?}");
    }
}
