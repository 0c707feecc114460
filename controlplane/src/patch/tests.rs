use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::resource::Registry;

fn kind(group: &str, name: &str) -> &'static Kind {
    Registry::built_in().by_gvk(group, "v1", name).expect("built in")
}

fn strategic(original: Value, patch: Value) -> Result<Value, PatchError> {
    strategic_patch(kind("", "Pod"), &original, &patch)
}

#[test]
fn json_patches_apply_or_say_why() {
    let pod = kind("", "Pod");
    let original = json!({"metadata": {"labels": {"a/b": "1"}}});
    // What is not there is null to a test, in an object that is there.
    for (path, value, passes) in [
        ("/metadata/finalizers", json!(null), true),
        ("/metadata/finalizers", json!([]), false),
        ("/metadata/labels", json!(null), false),
        ("/spec/replicas", json!(null), false),
    ] {
        let patch = json!([{"op": "test", "path": path, "value": value}]);
        assert_eq!(json_patch(pod, &original, &patch).is_ok(), passes, "{patch}");
    }
    let patch = json!([{"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"}]);
    assert_eq!(
        json_patch(pod, &original, &patch),
        Ok(json!({"metadata": {"labels": {"a/b": "2"}}}))
    );
    for (patch, code) in [
        (
            json!([{"op": "test", "path": "/metadata/labels/a~1b", "value": "9"}]),
            422,
        ),
        (json!([{"op": "remove", "path": "/spec"}]), 422),
        (json!({"op": "remove"}), 400),
        (json!([{"op": "frob", "path": "/a"}]), 400),
        (Value::from(vec![json!({"op": "remove", "path": "/a"}); 10_001]), 413),
    ] {
        assert_eq!(
            json_patch(pod, &original, &patch).map_err(|error| error.code),
            Err(code)
        );
    }
}

#[test]
fn merge_patches_follow_the_rfc() {
    for (original, patch, want) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
    ] {
        assert_eq!(merge_patch(kind("", "Pod"), &original, &patch), Ok(want));
    }
    assert_eq!(
        merge_patch(kind("", "Pod"), &json!({}), &json!([])).map_err(|error| error.code),
        Err(400)
    );
}

#[test]
fn strategic_table() {
    let two = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}});
    let containers = |items: Value| json!({"spec": {"containers": items}});
    for (name, original, patch, want) in [
        (
            "merges by key, appends new",
            two.clone(),
            containers(json!([{"name": "b", "image": "3"}, {"name": "c"}])),
            containers(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "3"}, {"name": "c"}])),
        ),
        (
            "deletes by key",
            two.clone(),
            containers(json!([{"name": "a", "$patch": "delete"}])),
            containers(json!([{"name": "b", "image": "2"}])),
        ),
        (
            "replaces the list",
            two.clone(),
            containers(json!([{"name": "z"}, {"$patch": "replace"}])),
            containers(json!([{"name": "z"}])),
        ),
        (
            "orders",
            two.clone(),
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "9"}]}}),
            containers(json!([{"name": "b", "image": "2"}, {"name": "a", "image": "9"}])),
        ),
        (
            "keeps what only the server has where it was",
            containers(json!([{"name": "a"}, {"name": "server"}, {"name": "b"}])),
            json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
                "containers": [{"name": "c"}]}}),
            containers(json!([{"name": "a"}, {"name": "server"}, {"name": "b"}, {"name": "c"}])),
        ),
        (
            "null removes, objects merge",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeName": "n"}}),
            json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"nodeName": null}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "spec": {}}),
        ),
        (
            "replaces and empties maps",
            json!({"metadata": {"labels": {"a": "1"}, "annotations": {"x": "y"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "z": "1"}, "annotations": {"$patch": "delete"}}}),
            json!({"metadata": {"labels": {"z": "1"}, "annotations": {}}}),
        ),
        (
            "scalar lists with merge strategy unite",
            json!({"metadata": {"finalizers": ["a/1", "b/1"]}}),
            json!({"metadata": {"finalizers": ["c/1", "a/1"]}}),
            json!({"metadata": {"finalizers": ["a/1", "b/1", "c/1"]}}),
        ),
        (
            "values leave scalar lists",
            json!({"metadata": {"finalizers": ["a/1", "b/1"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/1"]}}),
            json!({"metadata": {"finalizers": ["b/1"]}}),
        ),
        (
            "atomic lists are replaced",
            containers(json!([{"name": "a", "args": ["x"]}])),
            containers(json!([{"name": "a", "args": ["y"]}])),
            containers(json!([{"name": "a", "args": ["y"]}])),
        ),
        (
            "retained keys push out the others",
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
        ),
        (
            "directives never reach fresh objects",
            json!({}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"]}], "$setElementOrder/volumes": [{"name": "v"}]}}),
            json!({"spec": {"volumes": [{"name": "v"}]}}),
        ),
    ] {
        assert_eq!(strategic(original, patch), Ok(want), "{name}");
    }
}

#[test]
fn deployment_strategy_retains_keys() {
    let original = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let want = json!({"spec": {"strategy": {"type": "Recreate"}}});
    assert_eq!(strategic_patch(kind("apps", "Deployment"), &original, &patch), Ok(want));
}

#[test]
fn strategic_errors() {
    let original = json!({"spec": {"containers": [{"name": "a"}]}, "metadata": {"finalizers": ["x/y"]}});
    for (patch, code) in [
        (json!([]), 400),
        (json!({"spec": {"$patch": "merge"}}), 400),
        (json!({"spec": {"containers": [{"image": "x"}]}}), 500),
        (json!({"spec": {"containers": [[1]]}}), 422),
        (json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}), 400),
        (json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "x/y"}}), 400),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
            400,
        ),
        (json!({"spec": {"$retainKeys": ["nodeName"], "hostNetwork": true}}), 400),
    ] {
        let error = strategic(original.clone(), patch.clone()).expect_err("refused");
        assert_eq!(error.code, code, "{patch}: {error}");
    }
    let error = strategic(original, json!({"spec": {"containers": [{"image": "x"}]}})).expect_err("no key");
    assert_eq!(
        error.message,
        "map: {\"image\":\"x\"} does not contain declared merge key: name"
    );
}

fn containers() -> impl Strategy<Value = Value> {
    let one = ("[a-e]", "[0-9]", proptest::option::of("[x-z]"));
    proptest::collection::btree_map("[a-e]", one, 0..5).prop_map(|items| {
        let items: Vec<Value> = items
            .into_iter()
            .map(|(name, (_, image, command))| match command {
                Some(command) => json!({"name": name, "image": image, "args": [command]}),
                None => json!({"name": name, "image": image}),
            })
            .collect();
        json!({"metadata": {"labels": {"l": "1"}}, "spec": {"containers": items}})
    })
}

proptest! {
    #[test]
    fn strategic_merge_is_idempotent(original in containers(), patch in containers()) {
        let once = strategic(original, patch.clone()).expect("applies");
        let twice = strategic(once.clone(), patch).expect("applies");
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn an_empty_patch_changes_nothing(original in containers()) {
        prop_assert_eq!(strategic(original.clone(), json!({})), Ok(original));
    }

    #[test]
    fn order_directive_gives_exactly_that_order(original in containers(), patch in containers()) {
        let list = patch["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let order: Vec<Value> = list.iter().rev().map(|item| json!({"name": item["name"]})).collect();
        let reversed: Vec<Value> = list.into_iter().rev().collect();
        let patch = json!({"spec": {"$setElementOrder/containers": order, "containers": reversed}});
        let result = strategic(original, patch).expect("applies");
        let names: Vec<Value> = result["spec"]["containers"].as_array().expect("a list").iter()
            .map(|item| json!({"name": item["name"]})).filter(|item| order.contains(item)).collect();
        prop_assert_eq!(names, order);
    }
}
