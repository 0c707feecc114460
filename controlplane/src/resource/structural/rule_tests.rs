//! Rules of expressions: schema, rule and object, and what is said of them.

use super::judge::WORK_MAX;
use super::tests::{refused, schema, wrong};
use super::*;
use crate::resource::field_error::FieldErrors;
use serde_json::json;

/// A schema whose one field has a rule.
pub(super) fn ruled(field: Value, rule: &str) -> Value {
    let mut field = field;
    field["x-kubernetes-validations"] = json!([{"rule": rule}]);
    json!({"type": "object", "properties": {"v": field}})
}

pub(super) fn obeyed(schema: &Structural, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut errors = FieldErrors::default();
    schema.obey(new, old, &mut WORK_MAX.clone(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[track_caller]
pub(super) fn holds(field: Value, rule: &str, value: Value) {
    let schema = schema(ruled(field, rule));
    assert_eq!(obeyed(&schema, &json!({"v": value}), None), [""; 0], "{rule}");
}

fn text() -> Value {
    json!({"type": "string", "maxLength": 100})
}

fn integer() -> Value {
    json!({"type": "integer"})
}

#[test]
fn operators_and_functions_do_what_they_say() {
    for rule in [
        "self == 5 && self != 6 && self > 4 && self <= 5 && -self == -5",
        "self + 1 == 6 && self - 7 == -2 && self * 3 == 15 && self / 2 == 2 && self % 2 == 1",
        "self in [1, 5] && !(self in [2]) && self < 5.5 && double(self) == 5.0 && self >= 5u",
        "self == 5 ? true : self / 0 == 1",
        "self == 5 || self / 0 == 1",
        "self / 0 == 1 || self == 5",
        "!(self == 6 && self / 0 == 1)",
        "type(self) == int && type('x') == string && type([]) == list",
        "string(self) == '5' && int('7') == 7 && uint('8') == 8u && bool('true') && double('1.5') == 1.5",
        "[1, 2, 3].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2, 2].exists_one(x, x == 1)",
        "[1, 2, 3].map(x, x * 2) == [2, 4, 6] && [1, 2, 3].filter(x, x > 1) == [2, 3]",
        "[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
        "[3, 4].all(i, v, i < v) && [3, 4].exists(i, v, i == 1 && v == 4)",
        "[3, 4].transformList(i, v, i + v) == [3, 5] && {'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "{'a': 1, 'b': 2}.all(k, k in ['a', 'b']) && {'a': 1}['a'] == 1 && {'a': 1}.a == 1 && 'a' in {'a': 1}",
        "size([1, 2]) == 2 && [1].size() == 1 && size('äb') == 2 && size({'a': 1}) == 1",
        "[1, 2].isSorted() && [1, 2].sum() == 3 && [1, 3, 2].max() == 3 && [2, 1].min() == 1 && [1, 2].indexOf(2) == 1",
        "[1, 2, 1].lastIndexOf(1) == 2 && [1] + [2] == [1, 2] && [1, 2, 3].slice(1, 3) == [2, 3] && [2, 1].sort() == [1, 2]",
        "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1]) && sets.intersects([1], [1, 2])",
        "[1, 1, 2].distinct() == [1, 2] && [1, 2].reverse() == [2, 1] && lists.range(3) == [0, 1, 2]",
        "optional.of(1).hasValue() && optional.of(1).value() == 1 && optional.none().orValue(2) == 2",
        "{'a': 1}[?'b'].orValue(3) == 3 && {'a': 1}.?a.hasValue() && [1][?4].orValue(9) == 9",
        "optional.of(2).optMap(x, x + 1).value() == 3 && [?optional.none(), 1] == [1] && {?'a': optional.none()} == {}",
        "duration('1h30m') == duration('90m') && duration('1h').getMinutes() == 60 && duration('1s') < duration('2s')",
        "timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026 && timestamp('2026-01-02T03:04:05Z').getMonth() == 0",
        "timestamp('2026-01-02T03:04:05Z') - duration('5s') == timestamp('2026-01-02T03:04:00Z')",
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('1k') == quantity('1000') && isQuantity('5m') && !isQuantity('x')",
        "quantity('50k').add(20).compareTo(quantity('50020')) == 0 && quantity('2').asInteger() == 2 && quantity('-1').sign() == -1",
        "ip('10.0.0.1').family() == 4 && isIP('::1') && !isIP('10.0.0.256') && ip('127.0.0.1').isLoopback()",
        "ip.isCanonical('::1') && !ip.isCanonical('0:0:0:0:0:0:0:1') && !isIP('::ffff:1.2.3.4')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && isCIDR('::/0')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.0/8').prefixLength() == 8 && string(cidr('10.0.0.0/8').ip()) == '10.0.0.0'",
        "url('https://a.example:80/b?c=d&c=e').getHost() == 'a.example:80' && url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://a.example:80/b?c=d&c=e').getQuery()['c'] == ['d', 'e'] && url('/p').getEscapedPath() == '/p' && !isURL('a b')",
        "semver('1.2.3').major() == 1 && semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('v1.0', true) && !isSemver('v1.0')",
        "!format.dns1123Label().validate('a-b').hasValue() && format.named('uuid').value().validate('x').hasValue()",
        "b'ab' + b'c' == b'abc' && string(b'ab') == 'ab' && bytes('a') == b'a' && 0x10 == 16 && 1e3 == 1000.0",
        "dyn(self) == 5 && has({'a': 1}.a) && !has({'a': 1}.b)",
        "[[1], [2]].all(x, x.all(y, y > 0)) // the end",
    ] {
        holds(integer(), rule, json!(5));
    }
}

#[test]
fn texts_are_cut_found_and_written() {
    for rule in [
        "self.startsWith('hel') && self.endsWith('rld') && self.contains('o w') && self.matches('^h.*d$')",
        "self.find('o.w') == 'o w' && self.findAll('o') == ['o', 'o'] && self.findAll('o', 1) == ['o']",
        "self.charAt(1) == 'e' && self.indexOf('o') == 4 && self.indexOf('o', 5) == 7 && self.lastIndexOf('o') == 7",
        "self.upperAscii() == 'HELLO WORLD' && 'AB'.lowerAscii() == 'ab' && ' a '.trim() == 'a'",
        "self.substring(6) == 'world' && self.substring(0, 5) == 'hello' && self.replace('o', '0') == 'hell0 w0rld'",
        "self.replace('o', '0', 1) == 'hell0 world' && self.split(' ') == ['hello', 'world'] && 'abc'.split('') == ['a', 'b', 'c']",
        "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab' && strings.quote('a\"b') == '\"a\\\\\"b\"'",
        "'%s has %d and %.2f, %x'.format([dyn('a'), 3, 1.5, 255]) == 'a has 3 and 1.50, ff' && '%s'.format([[1, 'x']]) == '[1, \"x\"]'",
        "self + '!' == 'hello world!' && self < 'i' && size(self) == 11 && r'\\d' == '\\\\d' && '\\u00e4' == 'ä'",
        "'''a'b''' == 'a\\'b'",
    ] {
        holds(text(), rule, json!("hello world"));
    }
}

#[test]
fn values_have_the_types_their_schema_says() {
    let any = json!({"x-kubernetes-int-or-string": true, "maxLength": 20});
    holds(any.clone(), "type(self) == int ? self == 5 : self == '5'", json!(5));
    holds(any, "type(self) == string && self == '5'", json!("5"));
    holds(
        json!({"type": "number"}),
        "self == 5.0 && type(self) == double",
        json!(5),
    );
    holds(
        json!({"type": "string", "format": "byte"}),
        "self == b'abc'",
        json!("YWJj"),
    );
    holds(
        json!({"type": "string", "format": "duration"}),
        "self > duration('59s')",
        json!("1m"),
    );
    let date = json!({"type": "string", "format": "date"});
    holds(date, "self.getDate() == 2", json!("2026-01-02"));
    let time = json!({"type": "string", "format": "date-time"});
    holds(
        time,
        "self < timestamp('2027-01-01T00:00:00Z')",
        json!("2026-01-02T03:04:05Z"),
    );
    let set = json!({"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 5}});
    holds(set, "self + ['b', 'c'] == ['a', 'b', 'c']", json!(["a", "b"]));
    let keyed = json!({"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string", "maxLength": 5}, "n": {"type": "integer"}}, "required": ["k"]}});
    holds(
        keyed,
        "(self + self).size() == 2 && self.exists(x, x.k == 'a' && x.n == 1)",
        json!([{"k": "a", "n": 1}, {"k": "b"}]),
    );
    let map = json!({"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}});
    holds(
        map,
        "self.all(k, self[k] > 0) && self.a == 1 && 'b' in self && !has(self.c) && self.size() == 2",
        json!({"a": 1, "b": 2}),
    );
    let nullable = || json!({"type": "object", "properties": {"n": {"type": "object", "nullable": true, "properties": {"x": {"type": "integer"}}}}});
    for rule in [
        "!has(self.n)",
        "!self.?n.hasValue()",
        "has(self.n) ? self.n.x > 0 : true",
    ] {
        holds(nullable(), rule, json!({"n": null}));
    }
    let told = obeyed(
        &schema(ruled(nullable(), "self.n == null")),
        &json!({"v": {"n": null}}),
        None,
    );
    assert!(told[0].contains("no such key: n evaluating rule"), "{told:?}");
    let values =
        json!({"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer", "nullable": true}});
    holds(values, "has(self.n) && dyn(self.n) == null", json!({"n": null}));
}

#[test]
fn names_that_expressions_cannot_write_are_written_otherwise() {
    let names = json!({"type": "object", "properties": {
        "a.b": {"type": "integer"}, "a-b": {"type": "integer"}, "a/b": {"type": "integer"}, "namespace": {"type": "integer"},
        "x__y": {"type": "integer"}, "if": {"type": "integer"}}});
    let rule = "self.a__dot__b == 1 && self.a__dash__b == 2 && self.a__slash__b == 3 && self.__namespace__ == 4 && \
                self.x__underscores__y == 5 && self.__if__ == 6";
    holds(
        names,
        rule,
        json!({"a.b": 1, "a-b": 2, "a/b": 3, "namespace": 4, "x__y": 5, "if": 6}),
    );
    let root = schema(json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.metadata.name.startsWith('a') && self.kind == 'K' && self.apiVersion == 'g/v1'"}]}));
    let object = json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "ab"}});
    assert_eq!(obeyed(&root, &object, None), [""; 0]);
    let embedded =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    holds(
        embedded,
        "self.metadata.name == 'n'",
        json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": "n"}, "x": 1}),
    );
}

#[test]
fn rules_that_are_none_are_refused_in_upstreams_words() {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "integer"},
        "hidden": {"x-kubernetes-preserve-unknown-fields": true}}});
    for (field, rule, wanted) in [
        (
            integer(),
            "self.foo",
            "ERROR: <input>:1:5: type 'int' does not support field selection\n | self.foo\n | ....^",
        ),
        (
            free.clone(),
            "self.b == 1",
            "ERROR: <input>:1:5: undefined field 'b'\n | self.b == 1\n | ....^",
        ),
        (free, "self.hidden == 1", "undefined field 'hidden'"),
        (
            integer(),
            "selfie == 1",
            "undeclared reference to 'selfie' (in container '')",
        ),
        (
            integer(),
            "self == 'a'",
            "ERROR: <input>:1:6: found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (
            text(),
            "self.startsWith(1)",
            "found no matching overload for 'startsWith' applied to 'string.(int)'",
        ),
        (
            text(),
            "self.sortBy(x, x)",
            "undeclared reference to 'sortBy' (in container '')",
        ),
        (text(), "nope(self)", "undeclared reference to 'nope' (in container '')"),
        (integer(), "self ==", "Syntax error: mismatched input '<EOF>' expecting"),
        (
            integer(),
            "self == 1 1",
            "Syntax error: mismatched input '1' expecting <EOF>",
        ),
        (
            integer(),
            "[1, 'a'].size() == 2",
            "expected type 'int' but found 'string'",
        ),
        (text(), "self.matches('(')", "invalid matches argument"),
        (
            integer(),
            "duration('x') == duration('1s')",
            "invalid duration argument",
        ),
        (
            integer(),
            "timestamp('2026-01-02').getDate() == 2",
            "invalid timestamp argument",
        ),
        (integer(), "has(self)", "invalid argument to has() macro"),
        (
            integer(),
            "self ? true : false",
            "found no matching overload for '_?_:_' applied to '(int, bool, bool)'",
        ),
        (
            integer(),
            "self && true",
            "found no matching overload for '_&&_' applied to '(int, bool)'",
        ),
        (integer(), "self.all(x, true)", "cannot be range of a comprehension"),
        (integer(), "\n\n  self.foo ", "ERROR: <input>:3:7: type 'int'"),
    ] {
        let mut wanted_schema = ruled(field, rule);
        wanted_schema["properties"]["v"]["x-kubernetes-validations"][0]["message"] = json!("m");
        let told = refused(wanted_schema);
        let start = "s.properties[v].x-kubernetes-validations[0].rule: Invalid value: {";
        assert!(
            told.len() == 1 && told[0].starts_with(start) && told[0].contains("compilation failed: ERROR: <input>:"),
            "{rule}: {told:?}"
        );
        assert!(told[0].contains(wanted), "{rule}: {told:?}");
    }
    let told = refused(ruled(integer(), "self + 1"));
    assert!(told[0].ends_with("cel expression must evaluate to a bool"), "{told:?}");
    // However deep and long: no stack ends here.
    for rule in [
        "(".repeat(50_000),
        "!".repeat(90_000),
        format!("{}1 == 1", "1+".repeat(40_000)),
        "self.a".repeat(10_000),
    ] {
        assert!(
            refused(ruled(integer(), &rule))[0].contains("recursion limit exceeded"),
            "{}",
            &rule[..10]
        );
    }
    let told = refused(ruled(integer(), &"a".repeat(100_001)));
    assert!(told[0].contains("expression code point size exceeds limit: size: 100001, limit 100000"));
    let many = format!("[{}].size() > 0", "1,".repeat(20_000));
    assert!(refused(ruled(integer(), &many))[0].contains("at most 10000 nodes"));
}

#[test]
fn what_stands_beside_a_rule_is_judged_too() {
    for (rule, wanted) in [
        (json!({"rule": " "}), "rule: Required value: rule is not specified"),
        (
            json!({"rule": "true", "message": " "}),
            "message: Invalid value: \" \": must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "message": "a\nb"}),
            "message: Invalid value: \"a\\nb\": must not contain line breaks",
        ),
        (
            json!({"rule": "true &&\n true"}),
            "message: Required value: message must be specified if rule contains line breaks",
        ),
        (
            json!({"rule": "true", "messageExpression": " "}),
            "messageExpression: Required value: messageExpression must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "reason": "No"}),
            "reason: Unsupported value: \"No\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \
             \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
        (
            json!({"rule": "true", "fieldPath": ".none"}),
            "fieldPath: Invalid value: \".none\": must be a valid path",
        ),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ] {
        let told = refused(json!({"type": "object", "x-kubernetes-validations": [rule.clone()]}));
        assert_eq!(told, [format!("s.x-kubernetes-validations[0].{wanted}")], "{rule}");
    }
    let told =
        refused(json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "messageExpression": "1"}]}));
    assert!(
        told[0].ends_with("messageExpression must evaluate to a string"),
        "{told:?}"
    );
    let told = refused(json!({"type": "object", "allOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]}));
    assert_eq!(
        told,
        ["s.allOf[0].x-kubernetes-validations: Forbidden: must be empty to be structural"]
    );
}

#[test]
fn broken_rules_say_what_they_are_told_to() {
    let of = |rule: Value| {
        schema(
            json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [rule],
            "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 10}}}}}),
        )
    };
    let object = json!({"spec": {"a": 5, "b": "x"}});
    for (rule, wanted) in [
        (
            json!({"rule": "self.a < 5"}),
            "spec: Invalid value: failed rule: self.a < 5",
        ),
        (
            json!({"rule": "self.a < 5", "message": "too many"}),
            "spec: Invalid value: too many",
        ),
        (
            json!({"rule": "self.a < 5", "messageExpression": "'a is %d'.format([self.a])", "message": "other"}),
            "spec: Invalid value: a is 5",
        ),
        (
            json!({"rule": "self.a < 5", "messageExpression": "string(self.a / 0)", "message": "other"}),
            "spec: Invalid value: other",
        ),
        (
            json!({"rule": "self.a < 5", "fieldPath": ".a", "reason": "FieldValueForbidden", "message": "no"}),
            "spec.a: Forbidden: no",
        ),
        (
            json!({"rule": "self.a < 5", "reason": "FieldValueRequired"}),
            "spec: Required value: failed rule: self.a < 5",
        ),
        (
            json!({"rule": "self.a / 0 == 1"}),
            "spec: Invalid value: \"object\": division by zero evaluating rule: self.a / 0 == 1",
        ),
        (
            json!({"rule": "{'a': 1}[self.b] == 1"}),
            "spec: Invalid value: \"object\": no such key: x evaluating rule: {'a': 1}[self.b] == 1",
        ),
        (
            json!({"rule": "[1][self.a] == 1"}),
            "spec: Invalid value: \"object\": index out of bounds: 5 evaluating rule: [1][self.a] == 1",
        ),
        (
            json!({"rule": "dyn(self.b) + 1 == 2"}),
            "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, function or \
             macro signature for rule: dyn(self.b) + 1 == 2",
        ),
    ] {
        assert_eq!(obeyed(&of(rule.clone()), &object, None), [wanted], "{rule}");
    }
    let scalar = schema(ruled(integer(), "self < 5"));
    assert_eq!(
        obeyed(&scalar, &json!({"v": 5}), None),
        ["v: Invalid value: 5: failed rule: self < 5"]
    );
    let members = schema(ruled(
        json!({"type": "object", "additionalProperties": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]}}),
        "true",
    ));
    assert_eq!(
        obeyed(&members, &json!({"v": {"a": 7}}), None),
        ["v[a]: Invalid value: 7: failed rule: self < 5"]
    );
}

#[test]
fn rules_of_what_was_there_before_wait_for_it() {
    let grown = schema(ruled(integer(), "self >= oldSelf"));
    assert_eq!(obeyed(&grown, &json!({"v": 1}), None), [""; 0]);
    assert_eq!(obeyed(&grown, &json!({"v": 1}), Some(&json!({}))), [""; 0]);
    assert_eq!(obeyed(&grown, &json!({"v": 1}), Some(&json!({"v": 2}))).len(), 1);
    let mut optional = ruled(integer(), "oldSelf.hasValue() ? self >= oldSelf.value() : self == 1");
    optional["properties"]["v"]["x-kubernetes-validations"][0]["optionalOldSelf"] = json!(true);
    let optional = schema(optional);
    assert_eq!(obeyed(&optional, &json!({"v": 2}), None).len(), 1);
    assert_eq!(obeyed(&optional, &json!({"v": 1}), None), [""; 0]);
    assert_eq!(obeyed(&optional, &json!({"v": 2}), Some(&json!({"v": 2}))), [""; 0]);
    let item = json!({"type": "object", "required": ["k"], "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n"}],
        "properties": {"k": {"type": "string", "maxLength": 5}, "n": {"type": "integer"}}});
    let atomic = json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 5, "items": item}}});
    assert_eq!(
        refused(atomic),
        [
            "s.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: \"self.n >= oldSelf.n\": oldSelf cannot be used on \
          the uncorrelatable portion of the schema within s.properties[l]"
        ]
    );
    let keyed = schema(
        json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 5, "items": item,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}}}),
    );
    let old = json!({"l": [{"k": "a", "n": 1}, {"k": "b", "n": 5}]});
    let new = json!({"l": [{"k": "b", "n": 4}, {"k": "a", "n": 1}, {"k": "c", "n": 0}]});
    let told = obeyed(&keyed, &new, Some(&old));
    assert_eq!(told, ["l[0]: Invalid value: failed rule: self.n >= oldSelf.n"]);
}

#[test]
fn what_was_broken_and_is_not_touched_is_let_be() {
    let schema = schema(json!({"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]},
        "b": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > oldSelf"}]},
        "l": {"type": "array", "maxItems": 5, "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]}},
        "c": {"type": "integer"}}}));
    let old = json!({"a": 7, "b": 1, "c": 1, "l": [9]});
    let mut new = old.clone();
    new["c"] = json!(2);
    new["b"] = json!(2);
    assert_eq!(obeyed(&schema, &new, Some(&old)), [""; 0]);
    new["b"] = json!(1);
    assert_eq!(
        obeyed(&schema, &new, Some(&old)).len(),
        1,
        "a rule of change is of every update"
    );
    new["b"] = json!(2);
    new["l"] = json!([9, 1]);
    assert_eq!(
        obeyed(&schema, &new, Some(&old)),
        ["l[0]: Invalid value: 9: failed rule: self < 5"]
    );
    assert_eq!(
        obeyed(&schema, &old, None).len(),
        2,
        "of a new object everything counts"
    );
}

#[test]
fn rules_are_asked_of_nothing_that_has_another_form() {
    let schema = schema(ruled(integer(), "self < 5"));
    assert_eq!(
        wrong(&schema, &json!({"v": 7})),
        [""; 0],
        "what schemas say is one thing"
    );
    assert_eq!(obeyed(&schema, &json!({"v": "x"}), None).len(), 1, "and no panic");
    assert_eq!(obeyed(&schema, &json!({"v": null}), None), [""; 0]);
    assert_eq!(obeyed(&schema, &json!([]), None), [""; 0]);
}
