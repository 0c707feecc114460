//! What is left of a pod, and that everybody who asks hears the same of it.

use super::*;
use crate::controller::endpoint;
use crate::controller::job::backoff;
use crate::quota::Measured;
use crate::scheduler::extender::Tls;
use crate::scheduler::pod::PodInfo;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn container(name: &str, extra: &Value) -> Value {
    let mut container = json!({
        "name": name, "image": format!("registry/{name}"), "imagePullPolicy": "Always",
        "command": ["c"], "args": ["a"], "workingDir": "/", "env": [{"name": "E", "value": "v"}],
        "envFrom": [{"configMapRef": {"name": "m"}}], "volumeMounts": [{"name": "token", "mountPath": "/t"}],
        "livenessProbe": {"tcpSocket": {"port": 80}}, "securityContext": {"privileged": true},
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}, "terminationMessagePath": "/dev/termination-log",
        "ports": [{"name": name, "containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1"}},
        "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}],
    });
    json_patch::merge(&mut container, extra);
    container
}

fn written() -> Value {
    let status = |name: &str| {
        json!({"name": name, "image": "i", "imageID": "sha256:1", "containerID": "containerd://1", "ready": false, "restartCount": 3,
            "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}},
            "state": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-01T00:00:09Z"}},
            "volumeMounts": [{"name": "token", "mountPath": "/t"}]})
    };
    let spread = json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    let away = json!({"topologyKey": "z", "labelSelector": {"matchLabels": {"app": "web"}}});
    json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "7", "labels": {"app": "web"},
            "annotations": {"a": "b", LAST_APPLIED: "{}"}, "finalizers": ["a/b"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]},
        "spec": {
            "nodeName": "n", "priority": 7, "hostNetwork": true, "hostUsers": false, "dnsConfig": {"nameservers": ["1.1.1.1"]},
            "hostname": "h", "subdomain": "web", "tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"},
            "imagePullSecrets": [{"name": "s"}], "hostAliases": [{"ip": "1.1.1.1"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}},
            "topologySpreadConstraints": [spread],
            "containers": [container("web", &json!({}))],
            "initContainers": [container("beside", &json!({"restartPolicy": "Always"}))],
            "ephemeralContainers": [{"name": "debug", "image": "d"}],
            "volumes": [
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            ],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [status("web")], "initContainerStatuses": [status("beside")],
            "ephemeralContainerStatuses": [status("debug")]},
    })
}

fn pod() -> Pod {
    serde_json::from_value(written()).unwrap()
}

/// Names of the members that say something.
fn names(object: &Value) -> Vec<String> {
    let members = object.as_object().into_iter().flatten();
    members
        .filter(|(_, value)| !value.is_null())
        .map(|(name, _)| name.clone())
        .collect()
}

#[test]
fn who_starts_no_containers_keeps_nothing_of_how_that_is_done() {
    let kept = asked(pod());
    let (left, whole) = (serde_json::to_value(&kept).unwrap(), written());
    let lost = |at: &str| -> Vec<String> {
        let [had, has] = [&whole, &left].map(|pod| names(pod.pointer(at).unwrap()));
        had.into_iter().filter(|name| !has.contains(name)).collect()
    };
    let of_container = [
        "args",
        "command",
        "env",
        "envFrom",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "securityContext",
        "terminationMessagePath",
        "volumeMounts",
        "workingDir",
    ];
    let of_status = ["containerID", "volumeMounts"];
    for (at, expected) in [
        ("/metadata", &[][..]),
        ("/metadata/annotations", &[LAST_APPLIED]),
        // Of Secrets and volumes the names are kept, and what they need.
        ("/spec", &["dnsConfig", "hostAliases", "imagePullSecrets", "volumes"]),
        ("/spec/containers/0", &of_container),
        ("/spec/initContainers/0", &of_container),
        ("/status", &["ephemeralContainerStatuses"]),
        ("/status/containerStatuses/0", &of_status),
        ("/status/initContainerStatuses/0", &of_status),
    ] {
        assert_eq!(lost(at), expected, "{at}");
    }
    let spec = kept.spec.unwrap();
    assert!(spec.volumes.need_claims);
    assert_eq!(
        (spec.pull_secrets, spec.volumes.secrets),
        (vec!["s".to_owned()], vec![])
    );
    assert_eq!(super::whole(written()).unwrap().shown(), whole);
}

/// Scheduling, endpoints, quotas and back-offs ask for the most.
#[test]
fn whoever_asks_hears_the_same_of_what_is_kept() {
    let [whole, kept] = [pod(), asked(pod())].map(Arc::new);
    let [of_whole, of_kept] = [&whole, &kept].map(|pod| {
        let pod = PodInfo::new(Arc::clone(pod));
        let rules = (
            pod.terms.all().count(),
            format!("{:?}", pod.spread),
            pod.features,
            pod.unknown,
        );
        (pod.requests, pod.assumed, pod.ports, pod.images, pod.kin, rules)
    });
    assert_eq!(of_kept, of_whole);
    assert!(
        !of_whole.5.2.is_empty() && of_whole.5.3.len() == 1,
        "or nothing is asked"
    );
    let ports = json!([{"port": 80, "targetPort": "web"}, {"port": 81, "targetPort": "beside"}]);
    let service = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}, "ports": ports}});
    let service: Service = serde_json::from_value(service).unwrap();
    let [offered, offers] = [&whole, &kept].map(|pod| endpoint::backends(&service, &[Arc::clone(pod)]));
    assert_eq!((offers[0].ports.len(), &offers), (2, &offered));
    let now = backoff::ended(&whole);
    assert_eq!(backoff::ended(&kept), now);
    assert_eq!(kept.usage(now), whole.usage(now));
}

/// A Secret that nobody names may be deleted.
#[test]
fn whoever_names_a_secret_goes_on_naming_it() {
    let variable = json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    let by_variable = json!([{"name": "c", "image": "i", "env": variable}]);
    let by_all = json!([{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]);
    for spec in [
        json!({"imagePullSecrets": [{"name": "s"}]}),
        json!({"containers": by_variable}),
        json!({"initContainers": by_all}),
        json!({"ephemeralContainers": by_variable}),
        json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
        json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}),
        json!({"volumes": [{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}}]}),
    ] {
        let mut whole = json!({"metadata": {"name": "p"}, "spec": {"containers": []}});
        json_patch::merge(&mut whole, &json!({"spec": spec}));
        let whole: Pod = serde_json::from_value(whole).unwrap();
        assert!(whole.names_secret("s"), "{spec}");
        assert!(asked(whole).names_secret("s"), "{spec}");
    }
}

/// A pod that runs as it was asked for, as nearly all do.
fn running(extra: &Value) -> Pod {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"});
    let kinds = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    let asks = json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "1"}});
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "default", "generateName": "p-"},
        "spec": {"nodeName": "n", "dnsPolicy": "ClusterFirst", "serviceAccountName": "a", "serviceAccount": "a", "securityContext": {},
            "containers": [{"name": "c", "image": "i", "resources": asks}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "127.0.0.1", "qosClass": "Burstable",
            "hostIPs": [{"ip": "127.0.0.1"}], "conditions": kinds.map(condition),
            "containerStatuses": [{"name": "c", "image": "i", "imageID": "i", "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}, "lastState": {},
                "resources": asks, "allocatedResources": asks["requests"]}]},
    });
    json_patch::merge(&mut pod, extra);
    serde_json::from_value(pod).unwrap()
}

fn told(kept: &Pod) -> Vec<Value> {
    let statuses = kept
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses
        .into_iter()
        .flatten()
        .map(|status| serde_json::to_value(status).unwrap())
        .collect()
}

#[test]
fn of_a_pod_that_runs_as_it_asks_nothing_is_kept_of_how_it_came_to_that() {
    let left = serde_json::to_value(asked(running(&json!({})))).unwrap();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"});
    let expected = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [condition("Ready"), condition("PodScheduled")]});
    let mut status = left["status"].clone();
    status.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    assert_eq!(status, expected);
    assert_eq!(names(&left["spec"]), ["containers", "nodeName"]);
    assert_eq!(left["metadata"], json!({"name": "p", "namespace": "default"}));
}

/// Failure policies of Jobs name conditions and exit codes of their own, back-offs count restarts, and what holds more than it asks for
/// is counted by that.
#[test]
fn what_became_of_containers_is_kept_where_it_tells_something() {
    let of_job =
        json!({"metadata": {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}]}});
    let kept = asked(running(&of_job));
    assert_eq!(kept.status.unwrap().conditions.unwrap().len(), 5);
    let status = |extra: &Value| {
        let mut pod = serde_json::to_value(running(&json!({}))).unwrap();
        json_patch::merge(&mut pod["status"]["containerStatuses"][0], extra);
        told(&asked(serde_json::from_value(pod).unwrap()))
    };
    assert!(status(&json!({})).is_empty());
    let plain = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0});
    let with = |extra: Value| {
        let mut status = plain.clone();
        json_patch::merge(&mut status, &extra);
        [status]
    };
    let ended = json!({"state": {"terminated": {"exitCode": 3}}});
    for (extra, left) in [
        (json!({"restartCount": 2}), json!({"restartCount": 2})),
        (
            json!({"state": {"running": null, "terminated": {"exitCode": 3}}}),
            ended,
        ),
        (
            json!({"allocatedResources": {"cpu": "2"}}),
            json!({"allocatedResources": {"cpu": "2"}}),
        ),
        (
            json!({"resources": {"limits": {"cpu": "2"}}}),
            json!({"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "2"}}}),
        ),
    ] {
        assert_eq!(status(&extra), with(left), "{extra}");
    }
    let pending = json!([{"type": RESIZE_PENDING, "status": "True", "reason": "Infeasible"}]);
    let pod = asked(running(&json!({"status": {"conditions": pending}})));
    let held = json!({"cpu": "50m"});
    let all = json!({"allocatedResources": held, "resources": {"requests": held, "limits": {"cpu": "1"}}});
    assert_eq!(told(&pod), with(all), "what it asks for is given by nobody");
}

/// One container has ended, the other has not: the pod's end is not that of the first.
#[test]
fn an_end_is_told_beside_containers_that_run_on() {
    let two = json!([
        {"name": "a", "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "state": {"running": {}}},
        {"name": "b", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:09Z"}}},
    ]);
    let whole = running(&json!({"status": {"containerStatuses": two}}));
    let kept = asked(whole.clone());
    assert_eq!(told(&kept).len(), 2);
    assert_eq!(backoff::ended(&kept), backoff::ended(&whole));
}

#[test]
fn of_a_node_nothing_is_kept_that_only_people_read() {
    let amounts = json!({"cpu": "4", "pods": "110"});
    let node = json!({
        "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"c": "d", LAST_APPLIED: "{}"}},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "taints": [{"key": "t", "effect": "NoSchedule"}], "unschedulable": true},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}, "declaredFeatures": ["F"],
            "images": [{"names": ["i"], "sizeBytes": 1}], "volumesInUse": ["v"], "runtimeHandlers": [{"name": ""}],
            "nodeInfo": {"machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "", "architecture": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": ""}},
    });
    let kept = |node: &Value| -> Value {
        serde_json::to_value(asked_of_node(serde_json::from_value(node.clone()).unwrap())).unwrap()
    };
    let left = kept(&node);
    assert_eq!(left["spec"], node["spec"]);
    assert_eq!(left["metadata"]["annotations"], json!({"c": "d"}));
    assert_eq!(
        left["status"]["conditions"],
        json!([{"type": "Ready", "status": "True"}])
    );
    assert_eq!(
        names(&left["status"]),
        ["addresses", "allocatable", "conditions", "declaredFeatures", "images"]
    );
    let mut bare = node.clone();
    bare["status"].as_object_mut().unwrap().remove("allocatable");
    assert_eq!(
        kept(&bare)["status"]["capacity"],
        amounts,
        "where there is nothing else"
    );
    assert_eq!(whole_node(node.clone()).unwrap().shown(), node);
}

#[test]
fn extenders_are_shown_whole_pods() {
    assert_eq!(Kept::beside(&[]), Kept::Asked);
    let extender = Extender {
        url_prefix: "http://localhost".to_owned(),
        filter: "filter".to_owned(),
        prioritize: String::new(),
        preempt: String::new(),
        bind: String::new(),
        weight: 1,
        timeout: Duration::from_secs(5),
        knows_nodes: false,
        managed: Vec::new(),
        ignorable: false,
        tls: Tls::default(),
    };
    assert_eq!(Kept::beside(&[extender]), Kept::Whole);
}
