use super::super::{Pod, Strategy};
use serde_json::{Value, json};

/// A pod of one container `c` with these resources, a sidecar `s` and an init container `i`.
fn pod(resources: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {
        "containers": [{"name": "c", "image": "a", "resources": resources}, {"name": "d", "image": "a"}],
        "initContainers": [
            {"name": "i", "image": "a", "resources": {"requests": {"cpu": "10m"}}},
            {"name": "s", "image": "a", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}},
        ],
    }});
    Pod.default(&mut pod);
    pod
}

fn burstable() -> Value {
    pod(json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}))
}

/// What is wrong with resizing `old` by a merge patch.
fn resized(old: &Value, change: impl Fn(&mut Value)) -> Vec<String> {
    let mut new = old.clone();
    change(&mut new);
    Pod.default(&mut new);
    Pod.prepare_update(&mut new, old, "resize");
    let errors = Pod.validate_update(&new, old, "resize");
    errors.iter().map(ToString::to_string).collect()
}

fn set(path: &'static str, value: Value) -> impl Fn(&mut Value) {
    move |pod| {
        let (parent, key) = path.rsplit_once('/').expect("a path");
        pod.pointer_mut(parent).expect("it is there")[key] = value.clone();
    }
}

const CPU: &str = "/spec/containers/0/resources/requests/cpu";

#[test]
fn cpu_and_memory_change_up_and_down() {
    let old = burstable();
    for (path, value) in [
        (CPU, "200m"),
        (CPU, "1m"),
        ("/spec/containers/0/resources/requests/memory", "1Gi"),
        ("/spec/containers/0/resources/requests/memory", "1Mi"),
        ("/spec/containers/0/resources/limits/cpu", "1"),
        ("/spec/containers/0/resources/limits/memory", "128Mi"),
        ("/spec/initContainers/1/resources/requests/cpu", "20m"),
    ] {
        assert_eq!(resized(&old, set(path, json!(value))), [""; 0], "{path} {value}");
    }
    let of_pod = resized(&old, set("/spec/resources", json!({"requests": {"cpu": "1"}})));
    assert_eq!(of_pod, [""; 0]);
}

#[test]
fn nothing_else_changes() {
    let old = burstable();
    let only = "spec: Forbidden: only cpu and memory resources are mutable";
    for (path, value, text) in [
        (
            "/spec/containers/0/resources/requests/ephemeral-storage",
            json!("1Gi"),
            only,
        ),
        (
            "/spec/containers/0/resizePolicy",
            json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]),
            only,
        ),
        (
            "/spec/resources",
            json!({"requests": {"cpu": "1"}, "limits": {"hugepages-2Mi": "2Mi"}}),
            only,
        ),
        (
            "/spec/initContainers/1/resources/requests/ephemeral-storage",
            json!("1Gi"),
            "spec: Forbidden: only cpu and memory resources for sidecar containers are mutable",
        ),
        (
            "/spec/initContainers/0/resources/requests/cpu",
            json!("20m"),
            "spec: Forbidden: resources for non-sidecar init containers are immutable",
        ),
    ] {
        assert_eq!(resized(&old, set(path, value)), [text], "{path}");
    }
    let mut new = old.clone();
    new["spec"]["containers"][0]["image"] = json!("other");
    new["spec"]["nodeName"] = json!("elsewhere");
    new["metadata"]["labels"] = json!({"a": "b"});
    Pod.prepare_update(&mut new, &old, "resize");
    assert_eq!(new, old, "what is no resource is not taken over");
}

#[test]
fn what_is_set_is_not_taken_away() {
    let old = burstable();
    let without = |part: &'static str, name: &'static str| {
        move |pod: &mut Value| {
            let amounts = pod["spec"]["containers"][0]["resources"][part].as_object_mut();
            amounts.expect("amounts").remove(name);
        }
    };
    assert_eq!(
        resized(&old, without("requests", "memory")),
        ["spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"]
    );
    assert_eq!(
        resized(&old, without("limits", "cpu")),
        ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"]
    );
}

#[test]
fn containers_keep_their_names_and_order() {
    let old = burstable();
    let swapped = resized(&old, |pod| {
        pod["spec"]["containers"].as_array_mut().expect("containers").swap(0, 1);
    });
    assert_eq!(
        swapped,
        [
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
            "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize"
        ]
    );
    let fewer = resized(&old, |pod| {
        pod["spec"]["containers"].as_array_mut().expect("containers").pop();
    });
    assert_eq!(
        fewer,
        ["spec.containers: Forbidden: containers may not be added or removed on resize"]
    );
}

#[test]
fn the_class_stays_and_some_pods_are_not_resized() {
    let qos = "Pod QOS Class may not change as a result of resizing";
    let mut best_effort = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "a"}]}});
    Pod.default(&mut best_effort);
    let asking = set("/spec/containers/0/resources", json!({"requests": {"cpu": "1"}}));
    let errors = resized(&best_effort, asking);
    assert_eq!(errors, [format!("spec: Invalid value: \"Burstable\": {qos}")]);
    let double = || set(CPU, json!("150m"));
    let mut of_file = burstable();
    of_file["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "h"});
    assert_eq!(
        resized(&of_file, double()),
        [": Forbidden: static pods cannot be resized"]
    );
    let mut windows = burstable();
    windows["spec"]["os"] = json!({"name": "windows"});
    assert_eq!(
        resized(&windows, double()),
        [": Forbidden: windows pods cannot be resized"]
    );
    let mut old_node = burstable();
    old_node["status"] = json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]});
    assert_eq!(
        resized(&old_node, double()),
        ["spec: Forbidden: Pod running on node without support for resize"]
    );
    old_node["status"]["containerStatuses"][0]["resources"] = json!({});
    assert_eq!(resized(&old_node, double()), [""; 0]);
}

#[test]
fn each_resource_has_one_policy() {
    let problems = |policies: Value, restart: &str| {
        let mut pod = burstable();
        pod["spec"]["restartPolicy"] = json!(restart);
        pod["spec"]["containers"][0]["resizePolicy"] = policies;
        let errors = Pod.validate(&pod);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let policy = |resource: &str, restart: &str| json!({"resourceName": resource, "restartPolicy": restart});
    let path = "spec.containers[0].resizePolicy";
    let restart = "RestartContainer";
    for (policies, pod, text) in [
        (
            json!([policy("cpu", "NotRequired"), policy("memory", restart)]),
            "Always",
            String::new(),
        ),
        (
            json!([policy("cpu", restart), policy("cpu", restart)]),
            "Always",
            format!("{path}[1]: Duplicate value: \"cpu\""),
        ),
        (
            json!([policy("gpu", restart)]),
            "Always",
            format!("{path}: Unsupported value: \"gpu\": supported values: \"cpu\", \"memory\""),
        ),
        (
            json!([policy("cpu", "Maybe")]),
            "Always",
            format!("{path}: Unsupported value: \"Maybe\": supported values: \"NotRequired\", \"RestartContainer\""),
        ),
        (
            json!([policy("cpu", restart)]),
            "Never",
            format!(
                "{path}: Invalid value: \"RestartContainer\": must be 'NotRequired' when `restartPolicy` is 'Never'"
            ),
        ),
    ] {
        assert_eq!(problems(policies.clone(), pod), text, "{policies}");
    }
}
