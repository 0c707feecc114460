//! No patch gives a result that is too deep or too large, and none needs more stack than a worker has.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::resource::Registry;
use crate::schema::{self, Media};
use crate::store::value::{TypeMeta, canonical};
use crate::store::window::Stored;
use crate::tree::{DEPTH_MAX, SIZE_MAX_BYTES};

/// Half of what a worker thread of the daemon has, and of code that is not optimised.
const STACK_BYTES: usize = 1 << 20;

fn kind(group: &str, name: &str) -> &'static Kind {
    Registry::built_in().by_gvk(group, "v1", name).expect("built in")
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({"a": inner}))
}

/// The oracle: another way to measure.
fn oracle(result: &Value) -> (usize, usize) {
    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }
    (depth(result), serde_json::to_vec(result).expect("text").len())
}

fn is_bounded(result: &Value) -> bool {
    let (depth, size) = oracle(result);
    depth <= DEPTH_MAX && size <= SIZE_MAX_BYTES
}

#[test]
fn copies_of_the_whole_into_itself_end_at_the_depth_bound() {
    let operations: Vec<Value> = (0..13)
        .map(|doubled| json!({"op": "copy", "from": "", "path": "/a".repeat(1 << doubled)}))
        .collect();
    let error = json_patch(kind("", "Pod"), &json!({"b": 1}), &Value::from(operations)).expect_err("too deep");
    assert_eq!((error.code, error.message.as_str()), (422, "exceeded max depth"));
}

#[test]
fn copies_add_up_to_as_much_as_a_body_may_have() {
    let original = json!({"data": {"x": "y".repeat(1 << 20)}});
    let copies = |count: usize| -> Value {
        let operations = (0..count).map(|i| json!({"op": "copy", "from": "/data/x", "path": format!("/data/x{i}")}));
        operations.collect::<Vec<_>>().into()
    };
    let map = kind("", "ConfigMap");
    assert!(json_patch(map, &original, &copies(1)).is_ok());
    let error = json_patch(map, &original, &copies(3)).expect_err("the copies alone are too much");
    assert_eq!(error.code, 422);
    let words = "Unable to complete the copy, the accumulated size increase of copy is ";
    assert!(error.message.starts_with(words), "{error}");
    assert!(error.message.ends_with(", exceeding the limit 3145728"), "{error}");
}

#[test]
fn results_larger_than_a_body_are_refused_by_every_engine() {
    let half = "y".repeat(SIZE_MAX_BYTES / 2);
    let original = json!({"data": {"x": half}});
    let map = kind("", "ConfigMap");
    let merge = json!({"data": {"z": half}});
    let operations = json!([{"op": "add", "path": "/data/z", "value": half}]);
    for result in [
        merge_patch(map, &original, &merge),
        strategic_patch(map, &original, &merge),
        json_patch(map, &original, &operations),
    ] {
        let error = ApiError::from(result.expect_err("too large"));
        assert_eq!(
            (error.code, error.message.as_str()),
            (413, "Request entity too large: limit is 3145728")
        );
    }
}

#[test]
fn what_is_too_large_already_may_shrink_or_stay_as_large_in_every_engine() {
    let original = json!({"metadata": {"finalizers": ["a"]}, "data": {"x": "y".repeat(SIZE_MAX_BYTES)}});
    let map = kind("", "ConfigMap");
    let merge = json!({"metadata": {"finalizers": null}});
    for result in [
        merge_patch(map, &original, &merge),
        strategic_patch(map, &original, &merge),
        json_patch(
            map,
            &original,
            &json!([{"op": "remove", "path": "/metadata/finalizers/0"}]),
        ),
        merge_patch(map, &original, &json!({"metadata": {"finalizers": ["b"]}})),
    ] {
        result.expect("no larger than before");
    }
    let grown = merge_patch(map, &original, &json!({"metadata": {"finalizers": ["bb"]}}));
    assert_eq!(grown.expect_err("larger").code, 413);
}

#[test]
fn a_patch_that_compares_for_minutes_is_refused() {
    let finalizers = |prefix: &str| -> Vec<Value> { (0..5_000).map(|i| json!(format!("{prefix}/{i}"))).collect() };
    let original = json!({"metadata": {"finalizers": finalizers("a")}});
    let patch = json!({"metadata": {"finalizers": finalizers("b")}});
    let error = strategic_patch(kind("", "Pod"), &original, &patch).expect_err("too much work");
    assert_eq!(error.code, 413);
    let containers = |count: usize| -> Vec<Value> { (0..count).map(|i| json!({"name": i.to_string()})).collect() };
    let patch = json!({"spec": {"containers": containers(5_000)}});
    let error = strategic_patch(kind("", "Pod"), &patch, &patch).expect_err("too much work");
    assert_eq!(error.code, 413);
    let list = json!({"list": vec![0; 100_000]});
    let operations = vec![json!({"op": "add", "path": "/list/0", "value": 1}); 5_000];
    let error = json_patch(kind("", "Pod"), &list, &Value::from(operations)).expect_err("too much work");
    assert_eq!(error.code, 413);
}

#[test]
fn more_operations_than_upstream_takes_are_refused_in_its_words() {
    let operations = Value::from(vec![json!({"op": "test", "path": "/a"}); 10_001]);
    let error = json_patch(kind("", "Pod"), &json!({}), &operations).expect_err("too many");
    assert_eq!(
        ApiError::from(error).message,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

/// Everything that walks a tree on its way through a request, at the deepest there is.
fn walk_everything() {
    let revision = kind("apps", "ControllerRevision");
    let object = json!({"kind": "ControllerRevision", "apiVersion": "apps/v1", "metadata": {"name": "r"},
        "revision": 1, "data": nested(DEPTH_MAX - 1)});
    for (media, bytes) in [
        (Media::Json, serde_json::to_vec(&object).expect("text")),
        (
            Media::Yaml,
            serde_saphyr::to_string(&object).expect("text").into_bytes(),
        ),
    ] {
        let decoded = schema::decode(revision, &bytes, media).expect("at the bound").value;
        assert_eq!(decoded["data"], object["data"]);
    }
    let deeper = json!({"data": nested(DEPTH_MAX)});
    for (media, bytes) in [
        (Media::Json, serde_json::to_vec(&deeper).expect("text")),
        (
            Media::Yaml,
            serde_saphyr::to_string(&deeper).expect("text").into_bytes(),
        ),
        (Media::Json, vec![b'['; 1 << 20]),
        (Media::Yaml, vec![b'['; 1 << 16]),
    ] {
        schema::decode(revision, &bytes, media).expect_err("beyond the bound");
    }
    let raw = canonical(&TypeMeta::new("apps/v1", "ControllerRevision"), &object);
    let stored = Stored::new("/registry/x".into(), 1, 1, raw.into());
    assert_eq!(stored.tree()["data"], object["data"], "what is stored can be read back");
    let patch = json!({"data": nested(DEPTH_MAX - 1), "revision": 2});
    for result in [
        merge_patch(revision, &object, &patch),
        strategic_patch(revision, &object, &patch),
        json_patch(
            revision,
            &object,
            &json!([{"op": "replace", "path": "/data", "value": patch["data"]}]),
        ),
    ] {
        let mut result = result.expect("at the bound");
        schema::normalize(revision, &mut result).expect("valid");
        assert_eq!(result["data"], object["data"]);
    }
    let free = json!({"unknown": nested(DEPTH_MAX - 1)});
    assert_eq!(strategic_patch(revision, &free, &free).expect("at the bound"), free);
}

#[test]
fn the_deepest_objects_fit_half_a_workers_stack() {
    let thread = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(walk_everything);
    thread.expect("a thread").join().expect("no overflow, no failure");
}

#[test]
fn aliases_of_yaml_cannot_grow_beyond_a_body() {
    let long = "x".repeat(1 << 16);
    let text = format!(
        "data:\n  a: &l {long}\n{}",
        (0..100).map(|i| format!("  b{i}: *l\n")).collect::<String>()
    );
    schema::decode(kind("", "ConfigMap"), text.as_bytes(), Media::Yaml).expect_err("6 MiB of 64 KiB");
    // 200,000 numbers without a string among them: 3.8 MB of JSON.
    let row = vec!["123456789012345678"; 8_000].join(",");
    let text = format!(
        "data:\n  a: &l [{row}]\n{}",
        (0..24).map(|i| format!("  b{i}: *l\n")).collect::<String>()
    );
    let error = schema::parse(text.as_bytes(), Media::Yaml).expect_err("larger as JSON");
    assert!(error.contains("limit is 3145728"), "{error}");
}

fn small_tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!("x")), Just(Value::Null)];
    leaf.prop_recursive(8, 24, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof!["[a-c]", "[0-2]", Just("-".to_owned())], 0..6)
        .prop_map(|parts| parts.into_iter().map(|part| format!("/{part}")).collect())
}

fn operation() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => (path(), small_tree()).prop_map(|(path, value)| json!({"op": "add", "path": path, "value": value})),
        1 => (path(), small_tree()).prop_map(|(path, value)| json!({"op": "replace", "path": path, "value": value})),
        1 => path().prop_map(|path| json!({"op": "remove", "path": path})),
        1 => (path(), path()).prop_map(|(from, path)| json!({"op": "move", "from": from, "path": path})),
        3 => (path(), path()).prop_map(|(from, path)| json!({"op": "copy", "from": from, "path": path})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Operations that lead nowhere are left out, so that long patches get somewhere.
    #[test]
    fn json_patches_stay_within_bounds(original in small_tree(), operations in proptest::collection::vec(operation(), 1..60)) {
        let pod = kind("", "Pod");
        let mut patch: Vec<Value> = Vec::new();
        let mut expected = original.clone();
        for operation in operations {
            let one: json_patch::Patch = serde_json::from_value(json!([operation])).expect("a patch");
            let mut next = expected.clone();
            let applies = json_patch::patch(&mut next, &one.0).is_ok();
            patch.push(operation);
            let result = json_patch(pod, &original, &Value::from(patch.clone()));
            if !applies {
                prop_assert!(result.is_err());
                patch.pop();
            } else if is_bounded(&next) {
                prop_assert_eq!(&result, &Ok(next.clone()));
                expected = next;
            } else {
                prop_assert!(result.is_err());
                patch.pop();
            }
        }
    }

    #[test]
    fn merges_stay_within_bounds(original in small_tree(), patch in small_tree(), around in 0usize..DEPTH_MAX + 10) {
        let wrap = |inner: Value| (0..around).fold(inner, |inner, _| json!({"spec": inner}));
        let (original, patch) = (json!({"spec": wrap(original)}), json!({"spec": wrap(patch)}));
        for engine in [merge_patch, strategic_patch] {
            if let Ok(result) = engine(kind("", "Pod"), &original, &patch) {
                prop_assert!(is_bounded(&result));
            }
        }
    }
}
