//! Where rules of expressions say what upstream's say.

use super::rule_tests::{holds, obeyed, ruled};
use super::tests::{refused, schema, wrong};
use serde_json::{Value, json};

fn text() -> Value {
    json!({"type": "string", "maxLength": 100})
}

fn integers(most: u64) -> Value {
    json!({"type": "array", "maxItems": most, "items": {"type": "integer"}})
}

fn texts(most: u64) -> Value {
    json!({"type": "array", "maxItems": most, "items": {"type": "string", "maxLength": 10}})
}

#[test]
fn lists_that_functions_make_have_a_size() {
    for rule in [
        "lists.range(3).all(i, i < 5)",
        "lists.range(3).map(i, i * 2) == [0, 2, 4]",
        "[1, 2, 3].reverse().all(x, x > 0)",
        "[false, true, true].reverse().reverse() == [false, true, true]",
        "self.distinct().all(x, x != '')",
        "self.sort().all(x, x != '') && self.slice(0, 1).all(x, x != '')",
    ] {
        holds(texts(10), rule, json!(["b", "a"]));
    }
}

#[test]
fn what_compares_all_with_all_costs_as_much() {
    let taken = |field: Value, rule: &str| refused(ruled(field, rule)).is_empty();
    assert!(taken(integers(1_000), "self.distinct().size() >= 0"));
    for rule in [
        "self.distinct().size() >= 0",
        "self.sort().size() >= 0",
        "sets.contains(self, self)",
        "sets.intersects(self, self)",
        "lists.range(self.size()).size() >= 0",
    ] {
        let told = refused(ruled(integers(10_000), rule));
        assert!(
            told[0].contains("estimated rule cost exceeds budget"),
            "{rule}: {told:?}"
        );
    }
}

#[test]
fn values_of_all_types_are_formatted_together() {
    let fields = json!({"type": "object", "properties": {"s": text(), "a": {"type": "integer"}}});
    for rule in [
        "'%s is %d'.format([self.s, self.a]) == 'x is 1'",
        "'%s %s'.format([[1, 'a', [true, null]], self.a]) == '[1, \"a\", [true, null]] 1'",
        "'%s'.format([{'b': 1, 'a': [2.5]}]) == '{\"a\":[2.500000], \"b\":1}'",
        "'%s'.format([dyn(self)]) == '{\"a\":1, \"s\":\"x\"}' && '%x %X'.format([b'ab', 'k']) == '6162 6B'",
        "'%e %.1f %f'.format([3.14, 2.55, 'NaN']) == '3.140000×10⁰⁰ 2.5 NaN'",
        "'%s %s'.format([type(1), [duration('1m')]]) == 'int [duration(\"60s\")]'",
    ] {
        holds(fields.clone(), rule, json!({"s": "x", "a": 1}));
    }
    for (rule, why) in [
        (
            "'%d'.format(['a']) == ''",
            "decimal clause can only be used on integers, was given string",
        ),
        (
            "'%f'.format([1]) == ''",
            "fixed-point clause can only be used on doubles, was given int",
        ),
        ("'%d %d'.format([1]) == ''", "index 1 out of range"),
        (
            "'%d'.format([1, 2]) == ''",
            "too many arguments supplied to string.format (expected 1, got 2)",
        ),
        ("['a', 1] == []", "expected type 'string' but found 'int'"),
    ] {
        let told = refused(ruled(text(), rule));
        assert!(told[0].contains(why), "{rule}: {told:?}");
    }
}

#[test]
fn reserved_words_are_names_of_fields() {
    let fields = json!({"type": "object", "properties": {
        "namespace": {"type": "string"}, "if": {"type": "integer"}, "for": {"type": "integer"},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}}}});
    let value = json!({"namespace": "x", "if": 2, "m": {"while": 3}});
    for rule in [
        "self.namespace == 'x' && self.__namespace__ == 'x' && self.?namespace.hasValue()",
        "self.if == 2 && has(self.if) && !has(self.for) && self.m.while == 3",
    ] {
        holds(fields.clone(), rule, value.clone());
    }
    for (rule, why) in [
        ("namespace == 'x'", "Syntax error: reserved identifier: namespace"),
        ("self.loop == 'x'", "undefined field 'loop'"),
        ("self.m.all(if, true)", "Syntax error: reserved identifier: if"),
    ] {
        let told = refused(ruled(fields.clone(), rule));
        assert!(told[0].contains(why), "{rule}: {told:?}");
    }
}

#[test]
fn the_last_second_there_is_is_a_time() {
    let time = json!({"type": "string", "format": "date-time"});
    for rule in [
        "self == timestamp('9999-12-31T23:59:59Z') && self == timestamp(253402300799)",
        "self.getFullYear() == 9999 && self.getHours() == 23 && string(self) == '9999-12-31T23:59:59Z'",
        "self.getHours('+02:00') == 1 || self.getHours('-08:00') == 15",
        "self.getHours('UTC') == 23 && self.getMinutes('-00:30') == 29 && self.getDate('-24:00') == 30",
        "self - duration('1s') == timestamp('9999-12-31T23:59:58Z') && type(self) == google.protobuf.Timestamp",
        "!optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue()",
    ] {
        holds(time.clone(), rule, json!("9999-12-31T23:59:59Z"));
    }
    let own = schema(json!({"type": "object", "properties": {"v": time}}));
    assert_eq!(wrong(&own, &json!({"v": "9999-12-31T23:59:59Z"})), [""; 0]);
    for not in [
        "2026-01-02T00Z",
        "2026-01-02T00:00:00+00:00[UTC]",
        "2026-01-02T23:59:60Z",
    ] {
        assert_eq!(wrong(&own, &json!({"v": not})).len(), 1, "{not}");
    }
    for beyond in [
        "timestamp(-62135596801)",
        "self + duration('1s')",
        "timestamp(253402300800)",
    ] {
        let schema = schema(ruled(time.clone(), &format!("{beyond} != self")));
        let told = obeyed(&schema, &json!({"v": "9999-12-31T23:59:59Z"}), None);
        assert!(told[0].contains("timestamp overflow"), "{beyond}: {told:?}");
    }
}

#[test]
fn durations_are_whole_and_may_be_written_in_words() {
    let duration = json!({"type": "string", "format": "duration"});
    let rule = "self.getMilliseconds() == 3723004 && self.getSeconds() == 3723";
    holds(duration.clone(), rule, json!("1h2m3.004s"));
    holds(duration.clone(), "self == duration('24h')", json!("1 day"));
    let own = schema(json!({"type": "object", "properties": {"v": duration}}));
    assert_eq!(wrong(&own, &json!({"v": "3 days"})), [""; 0]);
    let told = wrong(&own, &json!({"v": "banana"}));
    assert_eq!(
        told,
        ["v: Invalid value: \"banana\": v in body must be of type duration: \"banana\""]
    );
    let many = json!({"type": "array", "maxItems": 5, "items": {"type": "string", "format": "duration"}});
    holds(many, "self.sum() == duration('0')", json!([]));
}

#[test]
fn members_with_an_identity_have_no_place() {
    let set = json!({"type": "array", "maxItems": 10, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 10}});
    for rule in [
        "self == ['c', 'b', 'a'] && !(['c', 'b', 'a'] == self)",
        "(self + ['d']) == ['d', 'c', 'b', 'a'] && self + ['a'] == self && self != ['a', 'b', 'd'] && self != ['a', 'b']",
    ] {
        holds(set.clone(), rule, json!(["a", "b", "c"]));
    }
    let map = json!({"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {
            "k": {"type": "string", "maxLength": 10}, "v": {"type": "integer"}}}});
    for rule in [
        "self == [self[1], self[0]] && self + [self[0]] == self",
        "self != [self[0], self[0]] || self.size() == 2",
    ] {
        holds(map.clone(), rule, json!([{"k": "a", "v": 1}, {"k": "b", "v": 2}]));
    }
}

#[test]
fn numbers_and_types_have_upstreams_names() {
    for rule in [
        "string(1000000.0) == '1e+06' && string(0.00001) == '1e-05' && string(1.5) == '1.5'",
        "type(ip('1.2.3.4')) == net.IP && type(duration('1s')) == google.protobuf.Duration",
        "type(quantity('1')) == kubernetes.Quantity && type(url('/a')) == kubernetes.URL && type(cidr('::/0')) == net.CIDR",
        "!isCIDR('10.0.0.0/08') && isCIDR('10.0.0.0/8') && isCIDR('0.0.0.0/0')",
        "quantity('100u').asApproximateFloat() == 0.0001 && quantity('1.5Ki').asApproximateFloat() == 1536.0",
        "quantity('1e3').asApproximateFloat() == 1000.0 && quantity('-5M').asApproximateFloat() == -5000000.0",
        "[optional.of(1), optional.none()].unwrapOpt() == [1] && optional.unwrap([optional.of(2)]) == [2]",
    ] {
        holds(text(), rule, json!("x"));
    }
    for (rule, why) in [
        ("self.startsWith('a',)", "Syntax error"),
        ("rb'a' == b'a'", "Syntax error"),
        ("[1].all(i, i, true)", "duplicate variable name: i"),
        (
            "authorizer.path('/').check('get').allowed()",
            "undeclared reference to 'authorizer'",
        ),
        (
            "[[1], [2]].min() == [1]",
            "found no matching overload for 'min' applied to 'list(list(int)).()'",
        ),
        (
            "timestamp('2026-01-02T03:04:05Z').getHours('Europe/Berlin') == 4",
            "this server knows no time zone \"Europe/Berlin\"",
        ),
        ("google.protobuf.Any == int", "undeclared reference to 'google'"),
    ] {
        let told = refused(ruled(text(), rule));
        assert!(told[0].contains(why), "{rule}: {told:?}");
    }
}

#[test]
fn formats_are_upstreams() {
    for (format, has, not) in [
        (
            "uuid",
            "01234567-89ab-cdef-0123-456789abcdef",
            "{01234567-89ab-cdef-0123-456789abcdef}",
        ),
        (
            "uuid",
            "0123456789abcdef0123456789ABCDEF",
            "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
        ),
        (
            "uuid4",
            "01234567-89ab-4def-8123-456789abcdef",
            "01234567-89ab-1def-8123-456789abcdef",
        ),
        ("mac", "00:11:22:aa:bb:cc", "x"),
        ("mac", "0011.22aa.bbcc", "00:11:22:aa:bb"),
        ("hexcolor", "#0aF", "zz"),
        ("k8s-short-name", "a-b", "A_b"),
        ("k8s-long-name", "a.b", "A_b"),
    ] {
        let own = schema(json!({"type": "object", "properties": {"v": {"type": "string", "format": format}}}));
        assert_eq!(wrong(&own, &json!({"v": has})), [""; 0], "{format}");
        assert_eq!(wrong(&own, &json!({"v": not})).len(), 1, "{format} {not}");
    }
}

#[test]
fn patterns_are_in_the_syntax_of_re2() {
    let pattern =
        |pattern: &str| json!({"type": "object", "properties": {"v": {"type": "string", "pattern": pattern}}});
    let own = schema(pattern("^[[]{1,1000}{$"));
    assert_eq!(wrong(&own, &json!({"v": "[{"})), [""; 0]);
    let told = wrong(&own, &json!({"v": "a"}));
    assert!(told[0].ends_with("v in body should match '^[[]{1,1000}{$'"), "{told:?}");
    let told = refused(pattern("x++"));
    assert!(told[0].contains("invalid nested repetition operator: `++`"), "{told:?}");
    holds(
        text(),
        "self.matches('^[a-z&&b]{1,1000}$') && !self.matches('{')",
        json!("x&"),
    );
}

#[test]
fn a_whole_number_is_one_however_it_is_written() {
    let own = schema(json!({"type": "object", "properties": {"v": {"type": "integer", "format": "int32"}}}));
    for (text, errors) in [("1.0", 0), ("1e3", 0), ("2147483648", 1), ("-2147483648", 0)] {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(wrong(&own, &json!({"v": value})).len(), errors, "{text}");
    }
}
