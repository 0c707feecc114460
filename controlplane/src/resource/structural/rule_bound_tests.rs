//! What rules may cost, by estimate and by what they do.

use super::judge::WORK_MAX;
use super::read::read;
use super::rule_tests::{obeyed, ruled};
use super::tests::{refused, schema};
use crate::resource::field_error::FieldErrors;
use serde_json::{Value, json};

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

#[test]
fn types_that_double_at_each_link_are_refused() {
    let integer = || json!({"type": "integer"});
    let chain = format!("optional.of(1){}", ".optMap(a, {a: a})".repeat(60));
    let nested = (0..60).fold("[1].map(z, z)".to_owned(), |inner, _| {
        format!("{inner}.map(a, [{{a: a}}])")
    });
    for rule in [
        format!("{chain} + 1"),
        format!("{chain}.optMap(a, a == a).orValue(true)"),
        format!("{nested} == 1"),
    ] {
        let told = refused(ruled(integer(), &rule));
        assert!(
            told[0].contains("this server takes no types of so many parts"),
            "{told:?}"
        );
    }
    let few = "optional.of(1).optMap(a, {a: a}).optMap(a, [a, a]).orValue([]).size() == 2";
    assert_eq!(refused(ruled(integer(), few)), [""; 0]);
}

/// Chains on every level of parentheses, each as long as it may be there.
fn stairs(link: &str, levels: usize) -> String {
    let open = "(".repeat(levels);
    (0..levels).fold(format!("{open}1"), |text, level| {
        format!("{text}{})", link.repeat((95 - (levels - level)).max(1)))
    })
}

#[test]
fn trees_of_any_shape_are_walked_on_the_stack_that_workers_have() {
    let walked = || {
        let integer = || json!({"type": "integer"});
        for link in ["+1", "*1", " == 1", ".a", "[1]", ".f(1)", " + 1 * 1 - 1"] {
            let told = refused(ruled(integer(), &stairs(link, 90)));
            assert!(told[0].contains("recursion limit exceeded"), "{link}: {told:?}");
        }
        // As high as may be is checked, evaluated and let go.
        let rules = [
            format!("1{} == 95", "+1".repeat(94)),
            format!(
                "(({}('a'{}))).size() == 240",
                "(".repeat(85),
                " + 'a'".repeat(239) + &")".repeat(85)
            ),
            format!("{}true{}", "(".repeat(94), ")".repeat(94)),
            format!("{}true", "!".repeat(94)),
            format!("{}true{}", "[".repeat(46), "][0]".repeat(46)),
        ];
        for rule in rules {
            let schema = schema(ruled(integer(), &rule));
            assert_eq!(obeyed(&schema, &json!({"v": 1}), None), [""; 0], "{rule}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(walked);
    thread.unwrap().join().unwrap();
}

/// A list of members that each have so many rules, and something beside it.
fn listed(rules: Value) -> super::Structural {
    let items = json!({"type": "integer", "x-kubernetes-validations": rules});
    schema(json!({"type": "object", "properties": {"c": {"type": "integer"}, "l": {"type": "array", "items": items}}}))
}

#[test]
fn rules_that_cost_nothing_are_work_all_the_same() {
    let told = |rule: &str, work: u64, new: &Value, old: Option<&Value>| {
        let mut errors = FieldErrors::default();
        let rules = vec![json!({"rule": rule}); 20];
        listed(json!(rules)).obey(new, old, &mut work.clone(), &mut errors);
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        (told, errors.more())
    };
    let old = json!({"c": 1, "l": vec![7; 1_000]});
    assert_eq!(told("true", 1_000_000, &old, None), (Vec::new(), 0));
    let (over, more) = told("true", 500_000, &old, None);
    assert_eq!((over.len(), more), (1, 0));
    assert!(over[0].ends_with("running out of cost budget, no further validation rules will be run"));
    let (broken, more) = told("false", 1_000_000, &old, None);
    assert_eq!((broken.len(), more), (100, 0), "what nobody reads is not asked for");
    // Compared once with what was there, not for each of the rules.
    let new = json!({"c": 2, "l": vec![7; 1_000]});
    assert_eq!(told("false", 1_000_000, &new, Some(&old)), (Vec::new(), 0));
}

#[test]
fn all_that_finding_reads_is_work() {
    let text = schema(ruled(
        json!({"type": "string", "maxLength": 10_000}),
        "self.findAll('a.*b|a').size() > 0",
    ));
    assert_eq!(obeyed(&text, &json!({"v": "a".repeat(50)}), None), [""; 0]);
    let told = obeyed(&text, &json!({"v": "a".repeat(4_000)}), None);
    assert!(
        told[0].contains("operation cancelled: actual cost limit exceeded"),
        "{told:?}"
    );
}

#[test]
fn rules_over_the_keys_of_a_map_are_taken() {
    let labels =
        || json!({"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63}});
    for rule in [
        "self.all(key, key.matches('^[a-z]+$'))",
        "self.all(key, key.startsWith('a') && !key.contains('/') && (key + 'x') != '')",
        "self.all(key, value, !format.dns1123Label().validate(key).hasValue() && value != key)",
    ] {
        let schema = schema(ruled(labels(), rule));
        assert_eq!(obeyed(&schema, &json!({"v": {"a": "b"}}), None), [""; 0], "{rule}");
        assert_eq!(obeyed(&schema, &json!({"v": {"A/": "A/"}}), None).len(), 1, "{rule}");
    }
}

#[test]
fn what_is_decoded_and_counted_is_work() {
    let fields = json!({"type": "object", "properties": {
        "data": {"type": "string", "format": "byte"}, "text": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}},
        "many": {"type": "array", "items": {"type": "string", "format": "byte"}}}});
    let long = "YWJj".repeat(250_000);
    let value = json!({"data": long, "text": long, "l": vec![1; 5_000], "many": [long]});
    for rule in [
        "self.l.all(x, size(self.data) > 0)",
        "self.l.all(x, has(self.data))",
        "self.l.all(x, size(self.text) > 0)",
        "self.l.all(x, self.many[0] != b'')",
        "self.l.all(x, b'' in self.many || true)",
    ] {
        let field = ruled(fields.clone(), rule);
        let schema = read(&field, "", &mut FieldErrors::default());
        let told = obeyed(&schema, &json!({"v": value}), None);
        assert!(
            told[0].contains("operation cancelled: actual cost limit exceeded"),
            "{rule}: {told:?}"
        );
    }
}

#[test]
fn a_list_has_so_many_keys() {
    let keyed = |count: usize| {
        let keys: Vec<String> = (0..count).map(|i| format!("k{i}")).collect();
        let properties: serde_json::Map<_, _> = keys
            .iter()
            .map(|key| (key.clone(), json!({"type": "string"})))
            .collect();
        let items = json!({"type": "object", "properties": properties, "required": keys});
        let list = json!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys});
        refused(json!({"type": "object", "properties": {"l": list}}))
    };
    assert_eq!(keyed(64), [""; 0]);
    let wanted = "s.properties[l].x-kubernetes-list-map-keys: Forbidden: this server takes at most 64 keys of a list";
    assert_eq!(keyed(65), [wanted]);
}

#[test]
fn parts_that_a_text_is_split_into_are_work() {
    let fields = json!({"type": "object", "properties": {
        "b": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}}}});
    let rule = "self.l.map(x, self.b.split('')).size() > 0 && self.b.split('').size() == self.b.size()";
    let schema = read(&ruled(fields, rule), "", &mut FieldErrors::default());
    let told = |members: usize, length: usize| {
        let value = json!({"b": "a".repeat(length), "l": vec![1; members]});
        obeyed(&schema, &json!({"v": value}), None)
    };
    assert_eq!(told(10, 1_000), [""; 0]);
    assert!(told(10, 300_000)[0].contains("operation cancelled: actual cost limit exceeded"));
}

/// What an object's rule says, and the work it took.
fn worked(field: Value, rule: &str, value: &Value) -> (Vec<String>, u64) {
    let schema = read(&ruled(field, rule), "", &mut FieldErrors::default());
    let (mut errors, mut left) = (FieldErrors::default(), WORK_MAX);
    schema.obey(&json!({"v": value}), None, &mut left, &mut errors);
    (errors.iter().map(ToString::to_string).collect(), WORK_MAX - left)
}

#[test]
fn bytes_that_are_made_are_counted_before_they_are() {
    let numbers: Vec<String> = (0..300).map(|i| i.to_string()).collect();
    let many = format!("[{}]", numbers.join(","));
    let query = (0..50_000).map(|i| format!("a{i}")).collect::<Vec<_>>().join("&");
    for (rule, value) in [
        (
            format!("[lists.range(100000)].map(r, {many}.map(x, r + r)).size() == 1"),
            json!("x"),
        ),
        (format!("{many}.map(x, lists.range(100000)).size() == 300"), json!("x")),
        (
            format!("[url(self)].map(u, {many}.map(x, u.getQuery())).size() == 1"),
            json!(format!("/?{query}")),
        ),
        (
            format!("{many}.map(x, lists.range(100000).slice(0, 90000)).size() == 300"),
            json!("x"),
        ),
    ] {
        let (told, _) = worked(json!({"type": "string"}), &rule, &value);
        assert!(
            told[0].contains("operation cancelled: actual cost limit exceeded"),
            "{rule}: {told:?}"
        );
    }
    let (told, _) = worked(
        json!({"type": "string"}),
        "lists.range(1000).map(x, 'a' + 'b').size() == 1000",
        &json!("x"),
    );
    assert_eq!(told, [""; 0]);
}

#[test]
fn a_pattern_is_the_work_of_its_states() {
    let field = || json!({"type": "string"});
    let (told, _) = worked(field(), "!self.matches('(.*a.{200}){2}c')", &json!("a".repeat(200_000)));
    assert!(
        told[0].contains("operation cancelled: actual cost limit exceeded"),
        "{told:?}"
    );
    let (told, many) = worked(field(), "!self.matches('(.*a.{200}){2}c')", &json!("a".repeat(10_000)));
    assert_eq!(told, [""; 0]);
    let (_, few) = worked(field(), "!self.matches('c')", &json!("a".repeat(10_000)));
    assert!(many > 10 * few, "{many} and {few}");
}

#[test]
fn sizes_of_members_are_counted_as_work() {
    let fields = json!({"type": "object", "properties": {
        "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}}}});
    let value = json!({"s": "a".repeat(3_000), "l": vec![2; 3_000]});
    let (told, work) = worked(fields.clone(), "self.l.map(x, dyn(self.s)).indexOf(1) == -1", &value);
    assert_eq!(told, [""; 0]);
    assert!(work > 3_000 * 3_000 / 64, "{work}");
    // And no more of them than there is cost for.
    let value = json!({"s": "a".repeat(1_000_000), "l": vec![2; 10_000]});
    let (told, work) = worked(fields, "self.l.map(x, dyn(self.s)).indexOf(1) == -1", &value);
    assert!(told[0].contains("actual cost limit exceeded"), "{told:?}");
    assert!(work < WORK_MAX / 8, "{work}");
}

#[test]
fn nodes_that_cost_nothing_are_work() {
    let rule = vec!["false"; 2_000].join(" || ");
    let (told, work) = worked(json!({"type": "string"}), &format!("!({rule})"), &json!("x"));
    assert_eq!(told, [""; 0]);
    assert!(work > 2_000, "{work}");
}
