use super::*;
use serde_json::{Value, json};

fn mistakes(change: impl Fn(&mut Value)) -> Vec<String> {
    let mut tree = json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "img"}]}});
    change(&mut tree);
    pod(&serde_json::from_value(tree).expect("a pod"))
}

/// Mounts an empty directory with more said of the mount.
fn mount(pod: &mut Value, more: Value) {
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let mut mount = json!({"name": "v", "mountPath": "/v"});
    for (key, value) in more.as_object().into_iter().flatten() {
        mount[key] = value.clone();
    }
    pod["spec"]["containers"][0]["volumeMounts"] = json!([mount]);
}

#[test]
fn a_sound_pod_has_no_mistakes() {
    assert_eq!(mistakes(|_| {}), Vec::<String>::new());
}

#[test]
fn mistakes_are_named_by_their_path() {
    type Change = fn(&mut Value);
    let table: &[(Change, &str)] = &[
        (
            |p| p["metadata"]["namespace"] = json!("N"),
            "metadata.namespace: Invalid value: \"N\"",
        ),
        (
            |p| p["metadata"]["labels"] = json!({"a b": "c"}),
            "metadata.labels: Invalid value",
        ),
        (
            |p| p["spec"]["restartPolicy"] = json!("Sometimes"),
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            |p| p["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGTERM"}),
            "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
        ),
        (
            |p| p["spec"]["activeDeadlineSeconds"] = json!(0),
            "spec.activeDeadlineSeconds: Invalid value: 0",
        ),
        (
            |p| p["spec"]["containers"][0]["name"] = json!(""),
            "spec.containers[0].name: Required value",
        ),
        (
            |p| p["spec"]["containers"][0]["image"] = json!(" x"),
            "spec.containers[0].image: Invalid value",
        ),
        (
            |p| p["spec"]["initContainers"] = json!([{"name": "c", "image": "i"}]),
            "spec.containers[0].name: Duplicate value: \"c\"",
        ),
        (
            |p| p["spec"]["containers"][0]["ports"] = json!([{"containerPort": 0}]),
            "spec.containers[0].ports[0].containerPort: Invalid value: 0",
        ),
        (
            |p| p["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            |p| p["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
            "spec.volumes[0]: Forbidden: may not specify more than 1 volume type",
        ),
        (
            |p| p["spec"]["volumes"] = json!([{"name": "v", "hostPath": {"path": "/a/../b"}}]),
            "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            |p| p["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"2\": must be less than or equal to cpu limit",
        ),
        (
            |p| p["spec"]["containers"][0]["livenessProbe"] = json!({"periodSeconds": 1}),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            |p| {
                p["spec"]["hostUsers"] = json!(false);
                p["spec"]["hostPID"] = json!(true);
            },
            "spec.HostPID: Forbidden: when `hostUsers` is false",
        ),
        (
            |p| p["spec"]["containers"][0]["securityContext"] = json!({"procMount": "Unmasked"}),
            "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use",
        ),
        (
            |p| mount(p, json!({"mountPropagation": "Bidirectional"})),
            "spec.containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is",
        ),
        (
            |p| mount(p, json!({"recursiveReadOnly": "Enabled"})),
            "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly",
        ),
        (
            |p| {
                let from = json!({"fileKeyRef": {"volumeName": "v", "path": "p", "key": "K"}});
                p["spec"]["containers"][0]["env"] = json!([{"name": "E", "valueFrom": from}]);
            },
            "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: \"v\"",
        ),
    ];
    for (change, expected) in table {
        let found = mistakes(change);
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{expected}: {found:?}"
        );
    }
}

#[test]
fn references_to_api_objects_are_found_wherever_they_are() {
    let refers = |spec: Value| {
        let tree = json!({"spec": spec});
        api_reference(&serde_json::from_value(tree).expect("a pod"))
    };
    let env = |from: Value| json!({"containers": [{"name": "c", "env": [{"name": "A", "valueFrom": from}]}]});
    for (spec, expected) in [
        (json!({"containers": []}), None),
        (env(json!({"fieldRef": {"fieldPath": "metadata.name"}})), None),
        (env(json!({"secretKeyRef": {"name": "s", "key": "k"}})), Some("secrets")),
        (
            env(json!({"configMapKeyRef": {"name": "s", "key": "k"}})),
            Some("configmaps"),
        ),
        (
            json!({"containers": [], "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]}),
            Some("secrets"),
        ),
        (
            json!({"containers": [], "volumes": [{"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "t"}}]}}]}),
            Some("serviceaccounts"),
        ),
        (
            json!({"containers": [], "volumes": [{"name": "v", "projected": {"sources": [
                {"downwardAPI": {}}, {"configMap": {"name": "c"}}]}}]}),
            Some("configmaps"),
        ),
        (
            json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}),
            None,
        ),
    ] {
        assert_eq!(refers(spec.clone()), expected, "{spec}");
    }
}
