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

fn pod() -> Pod {
    let status = |name: &str| {
        json!({"name": name, "image": "i", "imageID": "sha256:1", "containerID": "containerd://1", "ready": false, "restartCount": 3,
            "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}},
            "state": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-01T00:00:09Z"}},
            "volumeMounts": [{"name": "token", "mountPath": "/t"}]})
    };
    let spread = json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    let away = json!({"topologyKey": "z", "labelSelector": {"matchLabels": {"app": "web"}}});
    let pod = json!({
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
    });
    serde_json::from_value(pod).unwrap()
}

#[test]
fn who_starts_no_containers_keeps_nothing_of_how_that_is_done() {
    let left = serde_json::to_value(asked(pod())).unwrap();
    let whole = serde_json::to_value(pod()).unwrap();
    let lost = |at: &str| -> Vec<String> {
        let names = |value: &Value| -> Vec<String> {
            let members = value.pointer(at).and_then(Value::as_object).into_iter().flatten();
            members.map(|(name, _)| name.clone()).collect()
        };
        let had = names(&left);
        names(&whole).into_iter().filter(|name| !had.contains(name)).collect()
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
        ("/spec", &["dnsConfig", "hostAliases"]),
        ("/spec/containers/0", &of_container),
        ("/spec/initContainers/0", &of_container),
        ("/status", &["ephemeralContainerStatuses"]),
        ("/status/containerStatuses/0", &of_status),
        ("/status/initContainerStatuses/0", &of_status),
    ] {
        assert_eq!(lost(at), expected, "{at}");
    }
    let volumes = left["spec"]["volumes"].as_array().unwrap();
    let names: Vec<&Value> = volumes.iter().map(|volume| &volume["name"]).collect();
    assert_eq!(names, ["data", "scratch"]);
    assert_eq!(serde_json::to_value(Kept::Whole.of_pods()(pod())).unwrap(), whole);
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
        assert!(reference::names_secret(&whole, "s"), "{spec}");
        assert!(reference::names_secret(&asked(whole), "s"), "{spec}");
    }
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
