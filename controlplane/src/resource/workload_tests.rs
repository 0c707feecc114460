//! Tables over the workload kinds: defaults, validation, what an update may change.

use serde_json::{Value, json};

use super::*;

fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
    &*Registry::built_in()
        .by_gvk(group, "v1", kind)
        .expect("built in")
        .strategy
}

/// A workload of the given kind that is valid, with `patch` merged in and defaults applied.
fn workload(kind: &str, patch: Value) -> Value {
    let mut object = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    crate::patch::merge_patch_tree(&mut object, &patch);
    strategy("apps", kind).default(&mut object);
    object
}

fn texts(errors: crate::resource::field_error::FieldErrors) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn defaults() {
    for (kind, path, want) in [
        ("Deployment", "/spec/replicas", json!(1)),
        (
            "Deployment",
            "/spec/strategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
        ),
        ("Deployment", "/spec/progressDeadlineSeconds", json!(600)),
        ("Deployment", "/spec/revisionHistoryLimit", json!(10)),
        ("ReplicaSet", "/spec/replicas", json!(1)),
        (
            "DaemonSet",
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
        ),
        (
            "StatefulSet",
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ),
        ("StatefulSet", "/spec/podManagementPolicy", json!("OrderedReady")),
        (
            "StatefulSet",
            "/spec/persistentVolumeClaimRetentionPolicy",
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
        ),
        ("ReplicaSet", "/spec/template/spec/restartPolicy", json!("Always")),
    ] {
        let object = workload(kind, json!({}));
        assert_eq!(object.pointer(path), Some(&want), "{kind} {path}");
        let mut again = object.clone();
        strategy("apps", kind).default(&mut again);
        assert_eq!(again, object, "{kind}: defaults once are defaults for ever");
    }
    let recreate = workload("Deployment", json!({"spec": {"strategy": {"type": "Recreate"}}}));
    assert_eq!(recreate["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn validation() {
    for (kind, patch, want) in [
        ("Deployment", json!({}), ""),
        ("ReplicaSet", json!({}), ""),
        ("DaemonSet", json!({}), ""),
        ("StatefulSet", json!({}), ""),
        (
            "Deployment",
            json!({"spec": {"selector": null}}),
            "spec.selector: Required value",
        ),
        (
            "Deployment",
            json!({"spec": {"replicas": -1}}),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "Deployment",
            json!({"spec": {"template": {"metadata": {"labels": {"app": "x"}}}}}),
            "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`",
        ),
        (
            "Deployment",
            json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ),
        (
            "Deployment",
            json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
        ),
        (
            "Deployment",
            json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {}}}}),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            "Deployment",
            json!({"spec": {"minReadySeconds": 600}}),
            "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
        ),
        (
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}),
            "spec.template.spec.containers[0].image: Required value",
        ),
        (
            "DaemonSet",
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}}),
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
        ),
        (
            "StatefulSet",
            json!({"spec": {"podManagementPolicy": "Odd"}}),
            "spec.podManagementPolicy: Unsupported value: \"Odd\": supported values: \"OrderedReady\", \"Parallel\"",
        ),
    ] {
        let object = workload(kind, patch.clone());
        assert_eq!(texts(strategy("apps", kind).validate(&object)), want, "{kind} {patch}");
    }
}

#[test]
fn updates() {
    let other = json!({"spec": {"selector": {"matchLabels": {"app": "web", "x": "y"}},
        "template": {"metadata": {"labels": {"x": "y"}}}}});
    for kind in ["Deployment", "ReplicaSet", "DaemonSet"] {
        let (old, new) = (workload(kind, json!({})), workload(kind, other.clone()));
        assert_eq!(
            texts(strategy("apps", kind).validate_update(&new, &old, "")),
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"x\":\"y\"}}: field is immutable",
            "{kind}"
        );
        let scaled = workload(kind, json!({"spec": {"replicas": 7, "minReadySeconds": 1}}));
        assert_eq!(
            texts(strategy("apps", kind).validate_update(&scaled, &old, "")),
            "",
            "{kind}"
        );
    }
    let set = strategy("apps", "StatefulSet");
    let old = workload("StatefulSet", json!({}));
    let renamed = workload("StatefulSet", json!({"spec": {"serviceName": "other"}}));
    assert!(texts(set.validate_update(&renamed, &old, "")).starts_with("spec: Forbidden: updates to statefulset spec"));
}

#[test]
fn a_stored_template_that_breaks_a_later_rule_does_not_stop_other_changes() {
    let broken = json!({"spec": {"template": {"spec": {"hostUsers": false, "hostPID": true}}}});
    for kind in ["Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"] {
        let stored = workload(kind, broken.clone());
        let rules = strategy("apps", kind);
        assert!(texts(rules.validate(&stored)).contains("HostPID"), "{kind}");
        let mut new = stored.clone();
        new["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(texts(rules.validate_update(&new, &stored, "")), "", "{kind}");
        let whole = workload(kind, json!({}));
        assert!(
            texts(rules.validate_update(&stored, &whole, "")).contains("HostPID"),
            "{kind}"
        );
    }
}

#[test]
fn generations() {
    let deployment = strategy("apps", "Deployment");
    let old = workload("Deployment", json!({}));
    for (kind, patch, bumps) in [
        ("Deployment", json!({"spec": {"replicas": 2}}), true),
        ("Deployment", json!({"metadata": {"annotations": {"a": "b"}}}), true),
        ("Deployment", json!({"metadata": {"labels": {"a": "b"}}}), false),
        ("ReplicaSet", json!({"metadata": {"annotations": {"a": "b"}}}), false),
    ] {
        let new = workload("Deployment", patch.clone());
        assert_eq!(
            strategy("apps", kind).bumps_generation(&new, &old),
            bumps,
            "{kind} {patch}"
        );
    }
    let mut new = workload(
        "Deployment",
        json!({"metadata": {"labels": {"a": "b"}}, "status": {"replicas": 1}}),
    );
    deployment.prepare_update(&mut new, &old, "status");
    assert_eq!(new["metadata"].get("labels"), None);
    assert_eq!(new["status"], json!({"replicas": 1}));
    for (group, kind, has) in [
        ("", "Pod", true),
        ("", "Service", false),
        ("", "Node", false),
        ("batch", "Job", true),
        ("coordination.k8s.io", "Lease", false),
        ("discovery.k8s.io", "EndpointSlice", true),
        ("rbac.authorization.k8s.io", "Role", false),
    ] {
        assert_eq!(strategy(group, kind).has_generation(), has, "{kind}");
    }
}

#[test]
fn namespaces_carry_name_finalizer_and_phase() {
    let ctx = PrepareContext {
        uid: "u",
        now: "2026-01-01T00:00:00Z".parse().expect("a moment"),
    };
    let namespace = strategy("", "Namespace");
    let mut object = json!({"metadata": {"name": "a"}});
    namespace.prepare_create(&mut object, &ctx);
    assert_eq!(
        object,
        json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    );
    let mut stripped = json!({"metadata": {"name": "a"}, "spec": {}});
    namespace.prepare_update(&mut stripped, &object, "");
    assert_eq!(stripped["spec"]["finalizers"], json!(["kubernetes"]));
    let mut finalized = json!({"metadata": {"name": "a"}, "spec": {"finalizers": []}});
    namespace.prepare_update(&mut finalized, &object, "finalize");
    assert_eq!(finalized["spec"]["finalizers"], json!([]));
    assert_eq!(namespace.name_rule().check("a.b", false).len(), 1);
    let odd = json!({"spec": {"finalizers": ["kubernetes", "a.b/c", "abc"]}});
    let why = "Invalid value: \"abc\": name is neither a standard finalizer name nor is it fully qualified";
    assert_eq!(texts(namespace.validate(&odd)), format!("spec.finalizers: {why}"));
    assert_eq!(
        texts(namespace.validate_update(&odd, &object, "finalize")),
        format!("spec.finalizers[2]: {why}")
    );
    assert_eq!(texts(namespace.validate_update(&object, &odd, "")), "");
}

#[test]
fn nodes_keep_their_range() {
    let node = strategy("", "Node");
    let mut old = json!({"spec": {"podCIDR": "10.1.0.0/24"}, "status": {"capacity": {"cpu": "2"}}});
    node.default(&mut old);
    assert_eq!(old["spec"]["podCIDRs"], json!(["10.1.0.0/24"]));
    assert_eq!(old["status"]["allocatable"], json!({"cpu": "2"}));
    let mut new = old.clone();
    new["spec"]["podCIDRs"] = json!(["10.2.0.0/24"]);
    assert_eq!(
        texts(node.validate_update(&new, &old, "")),
        "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"
    );
    let tainted =
        json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}});
    assert!(texts(node.validate(&tainted)).contains("taints must be unique by key and effect pair"));
}

#[test]
fn bindings_keep_their_role() {
    let binding = strategy("rbac.authorization.k8s.io", "RoleBinding");
    let mut old = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]});
    binding.default(&mut old);
    assert_eq!(texts(binding.validate(&old)), "");
    let mut new = old.clone();
    new["roleRef"]["name"] = json!("s");
    assert!(texts(binding.validate_update(&new, &old, "")).ends_with("cannot change roleRef"));
}
