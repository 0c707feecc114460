//! Updates of pods that are stored: such as broke no rule when they came, and very large ones.

use super::*;

#[test]
fn a_stored_pod_that_breaks_a_later_rule_can_still_be_changed_and_deleted() {
    let mount =
        json!({"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional", "recursiveReadOnly": "Enabled"});
    let key = json!({"volumeName": "v", "path": "../a", "key": "K"});
    let stored = pod(
        json!({"metadata": {"finalizers": ["a.b/c"]}, "spec": {"hostUsers": false, "hostPID": true,
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
        "containers": [{"name": "c", "image": "i", "volumeMounts": [mount], "securityContext": {"procMount": "Unmasked"},
            "env": [{"name": "E", "valueFrom": {"fileKeyRef": key}}]}],
        "ephemeralContainers": [{"name": "d", "image": "i", "targetContainerName": "gone"}]}}),
    );
    let broken = Pod.validate(&stored).len();
    assert!(broken > 5, "{broken}");
    let told = |patch: Value, subresource: &str| {
        let mut new = stored.clone();
        crate::patch::merge_patch_tree(&mut new, &patch);
        Pod.default(&mut new);
        Pod.prepare_update(&mut new, &stored, subresource);
        let errors = Pod.validate_update(&new, &stored, subresource);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        told(json!({"metadata": {"finalizers": null, "labels": {"a": "b"}}}), ""),
        [""; 0]
    );
    assert_eq!(told(json!({"status": {"phase": "Failed"}}), "status"), [""; 0]);
    assert_eq!(told(json!({}), "ephemeralcontainers"), [""; 0]);
    assert_eq!(told(json!({}), "resize"), [""; 0]);
    let toleration = json!({"spec": {"tolerations": [{"key": "a", "operator": "Never"}]}});
    assert_eq!(told(toleration, "").len(), 1, "what is new is told");
    let broken = json!({"name": "e", "image": "i", "targetContainerName": "gone"});
    let both = json!({"spec": {"ephemeralContainers": [stored["spec"]["ephemeralContainers"][0], broken]}});
    assert_eq!(
        told(both, "ephemeralcontainers"),
        ["spec.ephemeralContainers[1].targetContainerName: Not found: \"gone\""]
    );
}

/// Each of many is looked up among as many: by walking the lists these would take minutes.
#[test]
fn what_is_named_is_found_among_many() {
    const MANY: usize = 20_000;
    let each = |make: fn(usize) -> Value| Value::from((0..MANY).map(make).collect::<Vec<_>>());
    let key = |i: usize| json!({"volumeName": format!("v{i}"), "path": "p", "key": "K"});
    let mut variables: Vec<Value> = (0..MANY)
        .map(|i| json!({"name": "E", "valueFrom": {"fileKeyRef": key(i)}}))
        .collect();
    variables.push(json!({"name": "E", "valueFrom": {"fileKeyRef": key(MANY)}}));
    let stored = pod(json!({"spec": {
        "volumes": each(|i| json!({"name": format!("v{i}"), "emptyDir": {}})),
        "initContainers": each(|i| json!({"name": format!("i{i}"), "image": "i"})),
        "containers": [{"name": "c", "image": "i", "env": variables}],
        "tolerations": each(|i| json!({"key": format!("t{i}"), "operator": "Exists"})),
        "ephemeralContainers": each(|i| json!({"name": format!("e{i}"), "image": "i",
            "targetContainerName": format!("i{}", MANY - i)})),
    }}));
    let wrong: Vec<String> = crate::resource::pod_spec::validate::spec(&stored["spec"], "spec")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        wrong,
        [
            "spec.containers[0].env[20000].valueFrom.fileKeyRef.volumeName: Not found: \"v20000\"",
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"i20000\"",
        ]
    );
    assert!(Pod.validate_update(&stored, &stored, "ephemeralcontainers").is_empty());
    let mut fewer = stored.clone();
    fewer["spec"]["tolerations"].as_array_mut().expect("a list").pop();
    let errors = Pod.validate_update(&fewer, &stored, "");
    assert_eq!((errors.len(), &*errors[0].path), (1, "spec.tolerations"));
}
