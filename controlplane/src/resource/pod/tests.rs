use serde_json::{Value, json};

use super::*;

mod stored;

fn pod(patch: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}});
    crate::patch::merge_patch_tree(&mut pod, &patch);
    Pod.default(&mut pod);
    pod
}

fn problems(patch: Value) -> Vec<String> {
    Pod.validate(&pod(patch)).iter().map(ToString::to_string).collect()
}

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "nginx"});
    crate::patch::merge_patch_tree(&mut container, &fields);
    json!({"spec": {"containers": [container]}})
}

#[test]
fn validation_texts() {
    for (patch, text) in [
        (json!({}), ""),
        (json!({"spec": {"containers": null}}), "spec.containers: Required value"),
        (
            container(json!({"image": ""})),
            "spec.containers[0].image: Required value",
        ),
        (
            container(json!({"name": ""})),
            "spec.containers[0].name: Required value",
        ),
        (
            json!({"spec": {"containers": [{"name": "c", "image": "a"}, {"name": "c", "image": "a"}]}}),
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        (
            json!({"spec": {"restartPolicy": "Sometimes"}}),
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            json!({"spec": {"terminationGracePeriodSeconds": -1}}),
            "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            container(json!({"imagePullPolicy": "Maybe"})),
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \
             \"IfNotPresent\", \"Never\"",
        ),
        (
            container(json!({"lifecycle": {"stopSignal": "SIGUSR1"}})),
            "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
        ),
        (
            container(json!({"ports": [{"containerPort": 70000}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            container(json!({"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]})),
            "spec.containers[0].ports[1].name: Duplicate value: \"a\"",
        ),
        (
            container(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            container(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            container(json!({"resources": {"limits": {"gpu": "1"}}})),
            "spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully \
             qualified; spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource \
             type or fully qualified",
        ),
        (
            container(json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}]})),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"spec.foo\": supported values: \
             \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \
             \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
        ),
        (
            container(json!({"livenessProbe": {"periodSeconds": 3}})),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            container(json!({"livenessProbe": {"tcpSocket": {"port": 0}, "successThreshold": 2}})),
            "spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive; \
             spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]}}),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]}}),
            "spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "image": {}}]}}),
            "spec.volumes[0].image.reference: Required value",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "image": {"reference": "i", "pullPolicy": "Often"}}]}}),
            "spec.volumes[0].image.pullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            json!({"spec": {"initContainers": [{"name": "i", "image": "a", "readinessProbe": {"exec": {"command": ["x"]}}}]}}),
            "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without \
             restartPolicy=Always",
        ),
        (
            json!({"spec": {"tolerations": [{"operator": "Equal"}]}}),
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which \
             means \"match all values and all keys\"",
        ),
    ] {
        assert_eq!(problems(patch.clone()).join("; "), text, "{patch}");
    }
}

#[test]
fn new_pods_are_pending_with_their_class() {
    let ctx = PrepareContext {
        uid: "u",
        now: "2026-01-01T00:00:00Z".parse().expect("a moment"),
    };
    for (patch, class) in [
        (json!({"status": {"phase": "Running"}}), "BestEffort"),
        (
            container(json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}})),
            "Guaranteed",
        ),
        (container(json!({"resources": {"requests": {"cpu": "1"}}})), "Burstable"),
    ] {
        let mut pod = pod(patch);
        Pod.prepare_create(&mut pod, &ctx);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": class}));
    }
    let mut gated = pod(json!({"spec": {"schedulingGates": [{"name": "a.b/c"}]}}));
    Pod.prepare_create(&mut gated, &ctx);
    assert_eq!(gated["status"]["conditions"][0]["reason"], "SchedulingGated");
}

#[test]
fn match_label_keys_become_requirements() {
    let mut pod = pod(
        json!({"metadata": {"labels": {"hash": "1"}}, "spec": {"topologySpreadConstraints": [
        {"labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["hash", "absent"]}]}}),
    );
    merge_match_label_keys(&mut pod);
    assert_eq!(
        pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"],
        json!([{"key": "hash", "operator": "In", "values": ["1"]}])
    );
}

#[test]
fn match_label_keys_of_every_affinity_term_become_requirements_once() {
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}},
        "matchLabelKeys": ["hash", "absent"], "mismatchLabelKeys": ["tenant"]});
    let of_nobody = json!({"topologyKey": "zone", "matchLabelKeys": ["hash"]});
    let terms = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [term, of_nobody],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]});
    let mut pod = pod(
        json!({"metadata": {"labels": {"hash": "1", "tenant": "t"}}, "spec": {"affinity": {
        "podAffinity": terms, "podAntiAffinity": terms}}}),
    );
    merge_match_label_keys(&mut pod);
    let rules = json!([
        {"key": "hash", "operator": "In", "values": ["1"]},
        {"key": "tenant", "operator": "NotIn", "values": ["t"]}]);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let found = &pod["spec"]["affinity"][kind];
        let required = &found["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(required[0]["labelSelector"]["matchExpressions"], rules);
        assert_eq!(required[1], of_nobody, "a missing selector selects nobody");
        let preferred = &found["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
        assert_eq!(preferred["labelSelector"]["matchExpressions"], rules);
    }
}

#[test]
fn updates_change_little() {
    let old = pod(json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}], "activeDeadlineSeconds": 10}}));
    for (patch, want) in [
        (
            container(json!({"image": "nginx:2", "imagePullPolicy": "IfNotPresent"})),
            "",
        ),
        (json!({"spec": {"activeDeadlineSeconds": 5}}), ""),
        (
            json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}}),
            "",
        ),
        (json!({"metadata": {"labels": {"x": "y"}}}), ""),
        (
            json!({"spec": {"activeDeadlineSeconds": 11}}),
            "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value",
        ),
        (
            json!({"spec": {"tolerations": []}}),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            container(json!({"command": ["x"], "imagePullPolicy": "IfNotPresent"})),
            "spec: Forbidden: pod updates may not change fields other than",
        ),
        (
            json!({"spec": {"containers": [{"name": "c", "image": "nginx:1"}, {"name": "d", "image": "x"}]}}),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            json!({"spec": {"nodeName": "n1"}}),
            "spec: Forbidden: pod updates may not change fields other than",
        ),
    ] {
        let mut new = old.clone();
        crate::patch::merge_patch_tree(&mut new, &patch);
        Pod.default(&mut new);
        let texts: Vec<String> = Pod
            .validate_update(&new, &old, "")
            .iter()
            .map(ToString::to_string)
            .collect();
        let text = texts.join("; ");
        assert!(
            text.starts_with(want) && text.is_empty() == want.is_empty(),
            "{patch}: {text}"
        );
    }
}

#[test]
fn a_forbidden_change_is_shown() {
    let old = pod(json!({}));
    let new = pod(json!({"spec": {"hostNetwork": true}}));
    let text = Pod.validate_update(&new, &old, "")[0].to_string();
    assert!(text.ends_with("\n+ spec.hostNetwork: true"), "{text}");
}

#[test]
fn status_writes_touch_only_status() {
    let old = pod(json!({"metadata": {"ownerReferences": [{"name": "o"}]}, "status": {"qosClass": "BestEffort"}}));
    let mut new =
        pod(json!({"metadata": {"labels": {"l": "1"}}, "spec": {"nodeName": "x"}, "status": {"phase": "Running"}}));
    Pod.prepare_update(&mut new, &old, "status");
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(new["metadata"]["ownerReferences"], old["metadata"]["ownerReferences"]);
    assert_eq!(new["status"], json!({"phase": "Running", "qosClass": "BestEffort"}));
    let ended = |state: Value| {
        pod(
            json!({"spec": {"restartPolicy": "Never"}, "status": {"containerStatuses": [{"name": "c", "state": state}]}}),
        )
    };
    let (old, new) = (
        ended(json!({"terminated": {"exitCode": 0}})),
        ended(json!({"running": {}})),
    );
    assert_eq!(
        Pod.validate_update(&new, &old, "status")[0].to_string(),
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    );
}

/// What is wrong with changing the ephemeral containers from `old` to `new` through their subresource.
fn added(old: &Value, new: Value) -> Vec<String> {
    let mut new = pod(json!({"metadata": old["metadata"], "spec": {"ephemeralContainers": new}}));
    Pod.default(&mut new);
    Pod.prepare_update(&mut new, old, "ephemeralcontainers");
    let errors = Pod.validate_update(&new, old, "ephemeralcontainers");
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn ephemeral_containers_are_only_added() {
    let debugger = json!({"name": "d", "image": "busybox", "targetContainerName": "c"});
    let none = pod(json!({}));
    let one = pod(json!({"spec": {"ephemeralContainers": [debugger]}}));
    let base = "spec.ephemeralContainers";
    assert_eq!(added(&none, json!([debugger])), [""; 0]);
    assert_eq!(
        added(&one, json!([{"name": "e", "image": "busybox"}, debugger])),
        [""; 0],
        "order does not matter"
    );
    assert_eq!(
        added(&one, json!(null)),
        [format!(
            "{base}: Forbidden: existing ephemeral containers \"d\" may not be removed\n"
        )]
    );
    let other = json!([{"name": "d", "image": "nginx", "targetContainerName": "c"}]);
    assert!(added(&one, other)[0].starts_with(&format!(
        "{base}: Forbidden: existing ephemeral containers \"d\" may not be changed\n"
    )));
    let mirror = pod(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "h"}}}));
    assert_eq!(
        added(&mirror, json!([debugger])),
        [": Forbidden: static pods do not support ephemeral containers"]
    );
    let by_update = one.clone();
    let errors = Pod.validate_update(&by_update, &none, "");
    assert!(
        errors[0]
            .to_string()
            .contains("pod updates may not change fields other than"),
        "the main endpoint adds none"
    );
}

#[test]
fn ephemeral_containers_change_nothing_else() {
    let old = pod(json!({"metadata": {"labels": {"a": "b"}, "uid": "u"}}));
    let mut new = pod(json!({"metadata": {"labels": {"a": "c"}, "resourceVersion": "7"},
        "spec": {"nodeName": "elsewhere", "ephemeralContainers": [{"name": "d", "image": "busybox"}]}}));
    Pod.prepare_update(&mut new, &old, "ephemeralcontainers");
    assert_eq!(new["spec"].get("nodeName"), None);
    assert_eq!(new["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(
        new["metadata"]["resourceVersion"], "7",
        "what pins the change to a revision stays"
    );
}

#[test]
fn ephemeral_containers_are_no_part_of_the_pods_work() {
    let refused = |fields: Value| {
        let mut container = json!({"name": "d", "image": "busybox"});
        crate::patch::merge_patch_tree(&mut container, &fields);
        let old = pod(json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}));
        added(&old, json!([container]))
    };
    let base = "spec.ephemeralContainers[0]";
    for (fields, field) in [
        (json!({"ports": [{"containerPort": 80}]}), "ports"),
        (json!({"resources": {"limits": {"cpu": "1"}}}), "resources"),
        (json!({"livenessProbe": {"exec": {"command": ["x"]}}}), "livenessProbe"),
        (
            json!({"lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}),
            "lifecycle",
        ),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}]}),
            "volumeMounts[0].subPath",
        ),
    ] {
        assert_eq!(
            refused(fields),
            [format!(
                "{base}.{field}: Forbidden: cannot be set for an Ephemeral Container"
            )]
        );
    }
    assert_eq!(
        refused(json!({"targetContainerName": "nobody"})),
        [format!("{base}.targetContainerName: Not found: \"nobody\"")]
    );
    assert_eq!(
        refused(json!({"name": "c"})),
        [format!("{base}.name: Duplicate value: \"c\"")]
    );
}

#[test]
fn mounts_users_and_files_are_checked() {
    let volume = |mount: Value| {
        let mut mounted = json!({"name": "v", "mountPath": "/v"});
        crate::patch::merge_patch_tree(&mut mounted, &mount);
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "c", "image": "i", "volumeMounts": [mounted]}]}})
    };
    let file = |reference: Value| {
        let mut key = json!({"volumeName": "v", "path": "a/env", "key": "K"});
        crate::patch::merge_patch_tree(&mut key, &reference);
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}],
            "containers": [{"name": "c", "image": "i", "env": [{"name": "E", "valueFrom": {"fileKeyRef": key}}]}]}})
    };
    let own = |spec: Value| {
        let mut pod = json!({"spec": {"hostUsers": false}});
        crate::patch::merge_patch_tree(&mut pod, &json!({"spec": spec}));
        pod
    };
    let mount = "spec.containers[0].volumeMounts[0]";
    let from = "spec.containers[0].env[0].valueFrom.fileKeyRef";
    for (patch, text) in [
        (
            volume(json!({"readOnly": true, "recursiveReadOnly": "Enabled"})),
            String::new(),
        ),
        (
            volume(json!({"recursiveReadOnly": "IfPossible"})),
            format!("{mount}.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"),
        ),
        (
            volume(json!({"readOnly": true, "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"})),
            format!(
                "{mount}.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified"
            ),
        ),
        (
            volume(json!({"subPathExpr": "../$(X)"})),
            format!("{mount}.subPathExpr: Invalid value: \"../$(X)\": must not contain '..'"),
        ),
        (
            volume(json!({"mountPropagation": "Bidirectional"})),
            format!(
                "{mount}.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged \
                 containers"
            ),
        ),
        (
            container(json!({"securityContext": {"procMount": "Unmasked"}})),
            "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to \
             use `Unmasked`"
                .to_owned(),
        ),
        (own(json!({})), String::new()),
        (
            own(json!({"hostPID": true})),
            "spec.HostPID: Forbidden: when `hostUsers` is false".to_owned(),
        ),
        (file(json!({})), String::new()),
        (
            file(json!({"volumeName": "x"})),
            format!("{from}.volumeName: Not found: \"x\""),
        ),
        (
            file(json!({"volumeName": "h"})),
            format!("{from}.volumeName: Invalid value: \"h\": referenced volume must be of type emptyDir"),
        ),
        (
            file(json!({"path": "../env"})),
            format!("{from}.path: Invalid value: \"../env\": must not contain '..'"),
        ),
        (file(json!({"key": null})), format!("{from}.key: Required value")),
    ] {
        assert_eq!(problems(patch.clone()).join("; "), text, "{patch}");
    }
    let defaulted = pod(file(json!({})));
    let from = &defaulted["spec"]["containers"][0]["env"][0]["valueFrom"];
    assert_eq!(from["fileKeyRef"]["optional"], false);
}
