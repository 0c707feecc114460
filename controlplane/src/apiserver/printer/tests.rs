use serde_json::json;

use super::*;
use crate::resource::Registry;
use crate::resource::columns::human_duration;

fn now() -> Timestamp {
    "2026-01-01T10:00:00Z".parse().expect("a moment")
}

fn cells(group: &str, kind: &str, object: Value) -> Value {
    let version = if group == "autoscaling" { "v2" } else { "v1" };
    let kind = Registry::built_in().by_gvk(group, version, kind).expect("built in");
    let table = render(kind, &[Arc::new(object)], IncludeObject::None, now(), json!({}));
    table["rows"][0]["cells"].clone()
}

#[test]
fn durations() {
    for (seconds, text) in [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_000, "3h20m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (183_600, "2d3h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_072_000 + 86_400 * 3, "2y3d"),
        (315_360_000, "10y"),
    ] {
        assert_eq!(human_duration(seconds), text, "{seconds}");
    }
}

#[test]
fn every_kind_renders_an_empty_and_a_named_object() {
    for kind in Registry::built_in().kinds() {
        for object in [
            json!({}),
            json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T09:00:00Z"}}),
        ] {
            let table = render(kind, &[Arc::new(object)], IncludeObject::Metadata, now(), json!({}));
            let columns = table["columnDefinitions"].as_array().expect("columns").len();
            let cells = table["rows"][0]["cells"].as_array().expect("cells").len();
            assert_eq!(columns, cells, "{kind:?}");
            assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        }
    }
}

#[test]
fn pod_status_by_precedence() {
    let running = json!({"name": "c", "ready": true, "restartCount": 0, "state": {"running": {}}});
    let done = json!({"name": "d", "ready": false, "restartCount": 1, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
        "lastState": {"terminated": {"finishedAt": "2026-01-01T09:55:00Z"}}});
    let waiting = |reason: &str| json!({"name": "c", "restartCount": 3, "state": {"waiting": {"reason": reason}}});
    let killed = json!({"name": "c", "state": {"terminated": {"exitCode": 137, "signal": 9}}});
    let init_failed = json!({"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 3}}});
    let init_waiting = json!({"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}});
    let sidecar = json!({"name": "s", "started": true, "ready": true, "state": {"running": {}}});
    let spec = json!({"containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}]});
    let with_sidecar =
        json!({"containers": [{"name": "c"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
    let deleting = json!({"deletionTimestamp": "2026-01-01T10:00:30Z"});
    for (name, meta, spec, status, ready, reason, restarts) in [
        (
            "phase",
            json!({}),
            &spec,
            json!({"phase": "Pending"}),
            "0/2",
            "Pending",
            "0",
        ),
        (
            "reason",
            json!({}),
            &spec,
            json!({"phase": "Failed", "reason": "Evicted"}),
            "0/2",
            "Evicted",
            "0",
        ),
        (
            "gated",
            json!({}),
            &spec,
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "0/2",
            "SchedulingGated",
            "0",
        ),
        (
            "crash loop",
            json!({}),
            &spec,
            json!({"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff")]}),
            "0/2",
            "CrashLoopBackOff",
            "3",
        ),
        (
            "one done, one runs",
            json!({}),
            &spec,
            json!({"phase": "Running", "containerStatuses": [running, done]}),
            "1/2",
            "NotReady",
            "1 (5m ago)",
        ),
        (
            "signal",
            json!({}),
            &spec,
            json!({"phase": "Running", "containerStatuses": [killed]}),
            "0/2",
            "Signal:9",
            "0",
        ),
        (
            "init failed",
            json!({}),
            &spec,
            json!({"phase": "Pending", "initContainerStatuses": [init_failed]}),
            "0/2",
            "Init:ExitCode:3",
            "2",
        ),
        (
            "initializing",
            json!({}),
            &spec,
            json!({"phase": "Pending", "initContainerStatuses": [init_waiting]}),
            "0/2",
            "Init:0/1",
            "0",
        ),
        (
            "sidecar counts",
            json!({}),
            &with_sidecar,
            json!({"phase": "Running", "initContainerStatuses": [sidecar], "containerStatuses": [running]}),
            "2/2",
            "Running",
            "0",
        ),
        (
            "deleting",
            deleting.clone(),
            &spec,
            json!({"phase": "Running", "containerStatuses": [running]}),
            "1/2",
            "Terminating",
            "0",
        ),
        (
            "deleting, lost",
            deleting.clone(),
            &spec,
            json!({"phase": "Running", "reason": "NodeLost"}),
            "0/2",
            "Unknown",
            "0",
        ),
        (
            "deleting, done",
            deleting,
            &spec,
            json!({"phase": "Succeeded", "containerStatuses": [done]}),
            "0/2",
            "Completed",
            "1 (5m ago)",
        ),
    ] {
        let row = cells("", "Pod", json!({"metadata": meta, "spec": spec, "status": status}));
        assert_eq!(
            (&row[1], &row[2], &row[3]),
            (&json!(ready), &json!(reason), &json!(restarts)),
            "{name}"
        );
    }
}

#[test]
fn rows_of_common_kinds() {
    let meta = json!({"name": "x", "creationTimestamp": "2026-01-01T09:57:30Z"});
    for (group, kind, rest, want) in [
        (
            "apps",
            "Deployment",
            json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j"}]}}},
                "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}}),
            json!(["x", "2/3", 3, 1, "2m30s", "a,b", "i:1,j", "app=web"]),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "ports":
                [{"port": 80, "nodePort": 30000, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}),
            json!([
                "x",
                "NodePort",
                "10.0.0.1",
                "<none>",
                "80:30000/TCP,53/UDP",
                "2m30s",
                "<none>"
            ]),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"]}}),
            json!([
                "x",
                "LoadBalancer",
                "10.0.0.1",
                "<pending>",
                "<none>",
                "2m30s",
                "<none>"
            ]),
        ),
        (
            "",
            "Secret",
            json!({"type": "Opaque", "data": {"a": "eA==", "b": ""}}),
            json!(["x", "Opaque", 2, "2m30s"]),
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"completions": 2}, "status": {"succeeded": 1, "startTime": "2026-01-01T09:59:00Z"}}),
            json!(["x", "Running", "1/2", "60s", "2m30s", "", "", "<none>"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "Role",
            json!({}),
            json!(["x", "2026-01-01T09:57:30Z"]),
        ),
        (
            "networking.k8s.io",
            "Ingress",
            json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}], "tls": [{}]}}),
            json!(["x", "<none>", "a,b,c + 1 more...", "", "80, 443", "2m30s"]),
        ),
        (
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"holderIdentity": "me"}}),
            json!(["x", "me", "2m30s"]),
        ),
    ] {
        let mut object = rest;
        object["metadata"] = meta.clone();
        assert_eq!(cells(group, kind, object), want, "{kind}");
    }
}

#[test]
fn nodes_say_roles_and_scheduling() {
    let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
        "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}], "nodeInfo": {"kubeletVersion": "v1.36.0"}}});
    let row = cells("", "Node", node);
    assert_eq!(
        row,
        json!([
            "n",
            "Ready,SchedulingDisabled",
            "edge,worker",
            "<unknown>",
            "v1.36.0",
            "10.1.1.1",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ])
    );
}

#[test]
fn events_have_no_name_first_and_count_series() {
    let event = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "Pulled", "message": " ok \n",
        "firstTimestamp": "2026-01-01T09:00:00Z", "lastTimestamp": "2026-01-01T09:59:00Z", "count": 4,
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
        "source": {"component": "kubelet", "host": "n1"}});
    assert_eq!(
        cells("", "Event", event),
        json!([
            "60s",
            "Normal",
            "Pulled",
            "pod/p",
            "spec.containers{c}",
            "kubelet, n1",
            "ok",
            "60m",
            4,
            "e"
        ])
    );
}

#[test]
fn policies_and_capacities_say_what_they_are_about() {
    let group = "admissionregistration.k8s.io";
    let age = json!({"name": "x", "creationTimestamp": "2026-01-01T09:00:00Z"});
    let of = |kind: &str, spec: Value| cells(group, kind, json!({"metadata": age, "spec": spec}));
    let param = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    assert_eq!(
        of(
            "ValidatingAdmissionPolicy",
            json!({"validations": [{}, {}], "paramKind": param})
        ),
        json!(["x", 2, "v1/ConfigMap", "60m"])
    );
    assert_eq!(
        of("MutatingAdmissionPolicy", json!({"mutations": [{}]})),
        json!(["x", 1, "<unset>", "60m"])
    );
    let selector = json!({"matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "k", "operator": "In", "values": ["v", "w"]}]});
    for (param, shown) in [
        (Value::Null, "<unset>"),
        (json!({"name": "p"}), "*/p"),
        (json!({"name": "p", "namespace": "n"}), "n/p"),
        (
            json!({"selector": selector}),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[v w],},},}",
        ),
    ] {
        let binding = of(
            "ValidatingAdmissionPolicyBinding",
            json!({"policyName": "q", "paramRef": param}),
        );
        assert_eq!(binding, json!(["x", "q", shown, "60m"]));
    }
    let capacity = json!({"metadata": age, "storageClassName": "fast", "capacity": "1Gi"});
    assert_eq!(
        cells("storage.k8s.io", "CSIStorageCapacity", capacity),
        json!(["x", "fast", "1Gi"])
    );
}

#[test]
fn rows_carry_what_was_asked_for() {
    let kind = Registry::built_in().by_gvk("", "v1", "ConfigMap").expect("built in");
    let object = Arc::new(json!({"metadata": {"name": "a", "resourceVersion": "7"}, "data": {"k": "v"}}));
    let object_of = |include| {
        let table = render(
            kind,
            &[Arc::clone(&object)],
            include,
            now(),
            json!({"resourceVersion": "9"}),
        );
        assert_eq!(table["metadata"]["resourceVersion"], "9");
        table["rows"][0]["object"].clone()
    };
    assert_eq!(object_of(IncludeObject::None), Value::Null);
    assert_eq!(object_of(IncludeObject::Metadata)["metadata"]["resourceVersion"], "7");
    assert_eq!(object_of(IncludeObject::Object)["kind"], "ConfigMap");
}
