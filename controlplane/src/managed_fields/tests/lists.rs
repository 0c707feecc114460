use super::*;
use crate::managed_fields::merge::merge;

/// Order of names after `config` was laid over `live`.
fn order(live: &str, config: &str) -> String {
    let containers = |names: &str| -> Value { names.chars().map(|name| json!({"name": name.to_string()})).collect() };
    let mut object = json!({"spec": {"containers": containers(live)}});
    merge(
        typing("", "Pod"),
        &mut object,
        &json!({"spec": {"containers": containers(config)}}),
    );
    let names = object["spec"]["containers"].as_array().expect("a list").iter();
    names.filter_map(|one| one["name"].as_str()).collect()
}

#[test]
fn members_come_in_the_configurations_order_among_those_only_the_object_has() {
    // live, config, merged
    for (live, config, expected) in [
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("ab", "ab", "ab"),
        ("ab", "ba", "ba"),
        ("abc", "c", "abc"),
        ("abc", "ca", "bca"),
        ("abc", "xb", "axbc"),
        ("abc", "bx", "abcx"),
        ("abc", "x", "abcx"),
        ("abc", "cxa", "bcxa"),
        ("abcd", "db", "acdb"),
        ("abcde", "eca", "bdeca"),
    ] {
        let mut found: Vec<char> = order(live, config).chars().collect();
        assert_eq!(order(live, config), expected, "{live} {config}");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), expected.len(), "each once");
    }
}

#[test]
fn values_merge_by_the_form_of_their_type() {
    let base = json!({"spec": {"containers": [{"name": "c", "image": "1", "args": ["x", "y"],
        "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}, {"containerPort": 80, "protocol": "UDP"}]}],
        "nodeSelector": {"a": "b"}}, "metadata": {"labels": {"a": "1"}, "finalizers": ["x/1"]}});
    for (config, pointer, expected) in [
        (
            json!({"spec": {"nodeSelector": {"c": "d"}}}),
            "/spec/nodeSelector",
            json!({"c": "d"}),
        ),
        (
            json!({"metadata": {"labels": {"b": "2"}}}),
            "/metadata/labels",
            json!({"a": "1", "b": "2"}),
        ),
        (
            json!({"metadata": {"labels": {}}}),
            "/metadata/labels",
            json!({"a": "1"}),
        ),
        (
            json!({"metadata": {"labels": null}}),
            "/metadata/labels",
            json!({"a": "1"}),
        ),
        (
            json!({"metadata": {"annotations": {}}}),
            "/metadata/annotations",
            json!({}),
        ),
        (
            json!({"metadata": {"finalizers": ["y/2"]}}),
            "/metadata/finalizers",
            json!(["x/1", "y/2"]),
        ),
        (
            json!({"spec": {"containers": [{"name": "c", "args": ["z"]}]}}),
            "/spec/containers/0/args",
            json!(["z"]),
        ),
        (
            json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 1}]}]}}),
            "/spec/containers/0/ports",
            json!([{"containerPort": 80, "protocol": "TCP", "name": "web", "hostPort": 1}, {"containerPort": 80, "protocol": "UDP"}]),
        ),
        (json!({"spec": {"hostname": null}}), "/spec/hostname", json!(null)),
    ] {
        let mut object = base.clone();
        merge(typing("", "Pod"), &mut object, &config);
        assert_eq!(object.pointer(pointer), Some(&expected), "{config}");
    }
}
