use std::collections::BTreeSet;

use serde_json::json;

use super::*;

#[test]
fn every_kind_is_found_by_both_keys_and_stored_where_upstream_stores_it() {
    let registry = Registry::built_in();
    let mut prefixes = BTreeSet::new();
    for kind in registry.kinds() {
        let by_resource = registry.by_resource(&kind.group, &kind.version, &kind.plural);
        assert!(Arc::ptr_eq(by_resource.expect("by resource"), kind));
        let by_gvk = registry.by_gvk(&kind.group, &kind.version, &kind.kind);
        assert!(Arc::ptr_eq(by_gvk.expect("by kind"), kind));
        assert_eq!(kind.singular, kind.kind.to_lowercase(), "{kind:?}");
        let gets = kind.has_verb("get") && kind.has_verb("create");
        assert_eq!(kind.is_stored(), gets, "{kind:?}");
        if kind.is_stored() && kind.conversion.is_none() {
            assert!(prefixes.insert(&kind.storage_prefix), "{kind:?} shares its prefix");
        }
        assert!(
            kind.verbs.is_sorted() && kind.subresources.is_sorted_by_key(|sub| sub.name),
            "{kind:?}"
        );
    }
    assert_eq!(
        registry.by_gvk("", "v1", "Node").map(|kind| &*kind.storage_prefix),
        Some("minions")
    );
    assert!(registry.by_resource("apps", "v1beta1", "deployments").is_none());
}

#[test]
fn endpoints_may_change_only_their_own_half() {
    let old = json!({"metadata": {"name": "a"}, "spec": {"x": 1}, "status": {"y": 1}});
    let sent = json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {"x": 2}, "status": {"y": 2}});
    for (subresource, spec, status) in [("", 2, 1), ("status", 1, 2)] {
        let mut new = sent.clone();
        isolate(&mut new, &old, subresource);
        assert_eq!(
            new,
            json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {"x": spec}, "status": {"y": status}})
        );
    }
    let mut new = sent.clone();
    isolate(&mut new, &json!({"metadata": {"name": "a"}}), "");
    assert_eq!(new.get("status"), None);
}

/// Upstream's strategies that restore what may be sent with a status; `Definition` is none of them.
#[test]
fn a_status_leaves_the_metadata_of_some_kinds_alone() {
    let old = json!({"metadata": {"name": "a", "finalizers": ["a.b/c"]}});
    let kinds = Registry::built_in().kinds();
    let left_alone = kinds.filter(|kind| {
        let mut new = json!({"metadata": {"name": "a", "annotations": {"a": "b"}}, "status": {}});
        kind.strategy.prepare_update(&mut new, &old, "status");
        kind.subresource("status").is_some() && new["metadata"] == old["metadata"]
    });
    let names: BTreeSet<&str> = left_alone.map(|kind| &*kind.kind).collect();
    let expected = [
        "FlowSchema",
        "PriorityLevelConfiguration",
        "ResourceClaim",
        "ServiceCIDR",
        "ValidatingAdmissionPolicy",
        "VolumeAttachment",
    ];
    assert_eq!(names, BTreeSet::from(expected));
}

#[test]
fn metadata_errors_name_field_and_rule() {
    let texts = |meta: Value, namespaced: bool| -> Vec<String> {
        metadata::validate(&json!({"metadata": meta}), namespaced, NameRule::Subdomain)
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        texts(json!({}), false),
        ["metadata.name: Required value: name or generateName is required"]
    );
    assert_eq!(
        texts(json!({"name": "a", "namespace": "x"}), false),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
    let two = texts(
        json!({"name": "a", "namespace": "x", "ownerReferences": [owner, owner]}),
        true,
    );
    assert_eq!(two.len(), 1, "{two:?}");
    assert!(two[0].contains("Only one reference can have Controller set to true"));
    let finalizers = texts(
        json!({"name": "a", "namespace": "x", "finalizers": ["mine", "a.b/c"]}),
        true,
    );
    assert_eq!(
        finalizers,
        [
            "metadata.finalizers: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully \
             qualified"
        ]
    );
}

#[test]
fn a_deleted_object_takes_no_new_finalizers() {
    let old = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.b/c"]}});
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!(["a.b/c", "a.b/d"]);
    assert_eq!(metadata::validate_update(&new, &old, false).len(), 1);
    new["metadata"]["finalizers"] = json!([]);
    assert_eq!(metadata::validate_update(&new, &old, false), []);
}

/// The table of kinds is below the API server, which is written over it.
#[test]
fn nothing_here_imports_the_api_server() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/resource")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // Tests may look from above.
            if path.to_string_lossy().ends_with("tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let forbidden = ["crate", "::apiserver"].concat();
            assert!(!text.contains(&forbidden), "{}", path.display());
            read += 1;
        }
    }
    assert!(read > 40, "{read}");
}
