use super::*;
use serde_json::json;

#[test]
fn values_are_checked_though_nothing_comes_of_them() {
    for (field, value, wrong) in [
        (
            "configMapAndSecretChangeDetectionStrategy",
            json!("Poll"),
            "configMapAndSecretChangeDetectionStrategy: \"Poll\" is not one of Get, Cache, Watch",
        ),
        ("configMapAndSecretChangeDetectionStrategy", json!(""), ""),
        (
            "volumeStatsAggPeriod",
            json!("soon"),
            "volumeStatsAggPeriod: invalid duration",
        ),
        (
            "featureGates",
            json!({"A": "yes"}),
            "featureGates: A: \"yes\" is not true or false",
        ),
        ("volumeStatsAggPeriod", json!("0s"), ""),
    ] {
        let found = mistake(field, &value).unwrap_or_default();
        assert!(
            found.starts_with(wrong) && found.is_empty() == wrong.is_empty(),
            "{field} {value}: {found}"
        );
    }
}

#[test]
fn what_upstream_does_anyway_needs_no_warning() {
    for (field, value, more) in [
        ("volumeStatsAggPeriod", json!("0s"), false),
        ("volumeStatsAggPeriod", json!("60s"), false),
        ("volumeStatsAggPeriod", json!("10s"), true),
        ("enableControllerAttachDetach", json!(true), false),
    ] {
        assert_eq!(asks_for_more(field, &value), more, "{field} {value}");
    }
}

/// Some sound value that is not the default, if the shape has one.
fn other_than(default: &str, shape: Shape) -> Value {
    let default: Value = serde_json::from_str(default).unwrap_or_default();
    match shape {
        Bool => json!(default != json!(true)),
        Int(min, max) => json!([min.max(0) + 2, max].into_iter().find(|n| default != json!(n))),
        Text => json!("other"),
        OneOf(words) => json!(words.iter().find(|word| default != json!(word))),
        Time => json!("77s"),
        Bools => json!({"a": true}),
        Any => json!({"a": 1}),
    }
}

#[test]
fn only_what_cannot_matter_is_taken_without_a_word() {
    for Field(name, shape, default, waits) in FIELDS {
        let other = other_than(default, *shape);
        assert_eq!(mistake(name, &other), None, "{name}: {other} is not sound");
        let tree = Map::from_iter([((*name).to_owned(), other.clone())]);
        let silent = !asks_for_more(name, &other) && mistakes_between(&tree).is_empty();
        assert_eq!(silent, matches!(waits, Moot(_)), "{name}: {other}");
        assert!(!matches!(waits, Moot("")), "{name}: why does it not matter?");
    }
    for field in ["enableContentionProfiling", "runOnce"] {
        assert!(!asks_for_more(field, &json!(false)), "{field}");
    }
}

#[test]
fn nothing_that_hardens_is_without_effect() {
    for field in [
        "allowedUnsafeSysctls",
        "authentication",
        "authorization",
        "enableDebugFlagsHandler",
        "enableDebuggingHandlers",
        "enableProfilingHandler",
        "enableSystemLogHandler",
        "localStorageCapacityIsolation",
        "protectKernelDefaults",
        "readOnlyPort",
        "seccompDefault",
        "tlsCipherSuites",
        "tlsCurvePreferences",
        "tlsMinVersion",
    ] {
        assert!(!is_inert(field), "{field}");
    }
    assert!(!asks_for_more("hairpinMode", &json!("hairpin-veth")));
}

#[test]
fn rules_between_fields() {
    let between = |tree: Value| mistakes_between(tree.as_object().expect("an object"));
    assert!(between(json!({})).is_empty());
    let broken = between(json!({"runOnce": true}));
    assert_eq!(broken.len(), 1, "{broken:?}");
}
