//! That what is held is what the API says, that whoever asks hears the same of it, and how much room it takes.

use super::*;
use crate::controller::kept::Kept;
use crate::controller::pod as ask;
use crate::scheduler::cluster::Cluster;
use client::informer::Options;
use k8s_openapi::api::core::v1 as api;
use proto::api::{affinity, qos, resources};
use serde_json::json;
use std::sync::Arc;

mod room;

/// A pod in which everything is said that is held, and some of what is not.
fn full() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry/{name}"), "command": ["c"], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "env": [{"name": "A", "value": "a"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "C", "valueFrom": {"secretKeyRef": {"name": "of-variable", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "m"}}, {"secretRef": {"name": "of-source"}}],
            "ports": [{"name": "web", "containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "restartPolicy": "Always", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
        })
    };
    let on_node = json!([{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 2, "labels": {"app": "web"},
            "annotations": {"a": "b"}, "finalizers": ["a/b"], "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}],
        },
        "spec": {
            "activeDeadlineSeconds": 9, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": on_node}}},
            "containers": [container("c"), container("d")], "initContainers": [container("i")],
            "ephemeralContainers": [container("e")], "hostNetwork": true, "hostUsers": false, "hostname": "h",
            "imagePullSecrets": [{"name": "of-images"}], "nodeName": "n", "nodeSelector": {"a": "b"}, "overhead": {"cpu": "10m"},
            "preemptionPolicy": "Never", "priority": 7, "priorityClassName": "high", "resourceClaims": [{"name": "g", "resourceClaimName": "g"}],
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}, "restartPolicy": "Never", "schedulerName": "s",
            "schedulingGates": [{"name": "g"}], "subdomain": "d", "terminationGracePeriodSeconds": 5,
            "tolerations": [{"key": "t", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "of-volume"}},
                {"name": "x", "persistentVolumeClaim": {"claimName": "c"}}],
            "dnsPolicy": "ClusterFirst", "securityContext": {"runAsUser": 1},
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}],
            "message": "m", "reason": "r", "nominatedNodeName": "n", "startTime": "2026-01-01T00:00:01Z", "hostIP": "10.0.0.2",
            "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "4"}},
            "resourceClaimStatuses": [{"name": "g", "resourceClaimName": "g"}],
            "initContainerStatuses": [{"name": "i", "image": "i", "imageID": "i", "ready": true, "restartCount": 0}],
            "containerStatuses": [{"name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 1,
                "allocatedResources": {"cpu": "2"}}]},
    })
}

fn both(pod: &Value) -> (Pod, api::Pod) {
    let read = |pod: &Value| serde_json::from_str(&pod.to_string()).unwrap();
    (read(pod), serde_json::from_value(pod.clone()).unwrap())
}

fn container_is(held: &Container, written: &api::Container) {
    let Container {
        name,
        image,
        variable_secrets,
        source_secrets,
        ports,
        resources,
        restart_policy,
        restart_policy_rules,
    } = held;
    assert_eq!((name, image), (&written.name, &written.image));
    assert_eq!((ports, resources), (&written.ports, &written.resources));
    assert_eq!(restart_policy, &written.restart_policy);
    assert_eq!(restart_policy_rules, &written.restart_policy_rules);
    assert_eq!(
        (&variable_secrets[..], &source_secrets[..]),
        (&["of-variable".to_owned()][..], &["of-source".to_owned()][..])
    );
}

fn status_is(held: PodStatus, written: api::PodStatus) {
    let PodStatus {
        allocated_resources,
        conditions,
        container_statuses,
        init_container_statuses,
        message,
        nominated_node_name,
        phase,
        pod_ip,
        pod_ips,
        reason,
        resource_claim_statuses,
        resources,
        start_time,
    } = held;
    assert!(pod_ip.is_some() && pod_ips.is_some() && start_time.is_some() && resources.is_some());
    assert_eq!(
        (allocated_resources, conditions),
        (written.allocated_resources, written.conditions)
    );
    assert_eq!(
        (container_statuses, init_container_statuses),
        (written.container_statuses, written.init_container_statuses)
    );
    assert_eq!(
        (message, nominated_node_name),
        (written.message, written.nominated_node_name)
    );
    assert_eq!((phase, reason), (written.phase, written.reason));
    assert_eq!(
        (pod_ip, pod_ips, start_time),
        (written.pod_ip, written.pod_ips, written.start_time)
    );
    assert_eq!(resource_claim_statuses, written.resource_claim_statuses);
    assert_eq!(resources.map(|resources| *resources), written.resources);
}

/// Nothing that is held is unset, and a field that is added has to be compared, too.
#[test]
fn what_is_held_is_what_the_api_says() {
    let (held, written) = both(&full());
    assert_eq!(held.metadata, written.metadata);
    status_is(held.status.unwrap(), written.status.unwrap());
    let (spec, api) = (held.spec.unwrap(), written.spec.unwrap());
    let PodSpec {
        active_deadline_seconds,
        affinity,
        containers,
        ephemeral_containers,
        host_network,
        host_users,
        hostname,
        pull_secrets,
        init_containers,
        node_name,
        node_selector,
        overhead,
        preemption_policy,
        priority,
        priority_class_name,
        resource_claims,
        resources,
        restart_policy,
        scheduler_name,
        scheduling_gates,
        subdomain,
        termination_grace_period_seconds,
        tolerations,
        topology_spread_constraints,
        volumes,
    } = spec;
    assert_eq!(
        active_deadline_seconds.zip(termination_grace_period_seconds),
        Some((9, 5))
    );
    assert_eq!(affinity.map(|affinity| *affinity), api.affinity);
    assert_eq!(resources.map(|resources| *resources), api.resources);
    assert_eq!(containers.len(), 2);
    containers
        .iter()
        .zip(&api.containers)
        .for_each(|(held, written)| container_is(held, written));
    container_is(&init_containers.unwrap()[0], &api.init_containers.unwrap()[0]);
    assert_eq!(ephemeral_containers.unwrap()[0].variable_secrets, ["of-variable"]);
    assert_eq!((host_network, host_users), (api.host_network, api.host_users));
    assert_eq!((hostname, subdomain), (api.hostname, api.subdomain));
    assert_eq!((node_name, node_selector), (api.node_name, api.node_selector));
    assert_eq!((overhead, resource_claims), (api.overhead, api.resource_claims));
    assert_eq!((preemption_policy, priority), (api.preemption_policy, api.priority));
    assert_eq!(
        (priority_class_name, scheduler_name),
        (api.priority_class_name, api.scheduler_name)
    );
    assert_eq!(
        (restart_policy, scheduling_gates),
        (api.restart_policy, api.scheduling_gates)
    );
    assert_eq!(
        (tolerations, topology_spread_constraints),
        (api.tolerations, api.topology_spread_constraints)
    );
    assert_eq!(pull_secrets, ["of-images"]);
    let needed = Volumes {
        need_claims: true,
        secrets: vec!["of-volume".to_owned()],
    };
    assert_eq!(volumes, needed);
}

#[test]
fn who_reads_any_form_reads_the_same() {
    let (mut held, mut written) = both(&full());
    for has_own in [true, false] {
        let (spec, api) = (held.spec.as_mut().unwrap(), written.spec.as_mut().unwrap());
        if !has_own {
            (spec.resources, api.resources) = (None, None);
        }
        assert_eq!(qos::qos_class(spec), qos::qos_class(api));
        assert_eq!(resources::pod_requests(spec), resources::pod_requests(api));
        assert_eq!(resources::pod_limits(spec), resources::pod_limits(api));
        for name in ["cpu", "memory", "ephemeral-storage"] {
            let limits = resources::every_container_limits(spec, name);
            assert_eq!(limits, resources::every_container_limits(api, name), "{name}");
        }
        let of_held = resources::reserved_requests(spec, held.status.as_ref(), |c| asked(c.resources.as_ref()));
        let of_written = resources::reserved_requests(api, written.status.as_ref(), |c| asked(c.resources.as_ref()));
        assert_eq!(of_held, of_written);
        for value in ["b", "c"] {
            let labels = BTreeMap::from([("a".to_owned(), value.to_owned())]);
            let allows = affinity::pod_allows(spec, "n", &labels);
            assert_eq!(allows, affinity::pod_allows(api, "n", &labels));
            assert_eq!(allows, value == "b");
        }
    }
}

fn asked(resources: Option<&ResourceRequirements>) -> resources::ResourceList {
    resources::parse_list(resources.and_then(|r| r.requests.as_ref()))
}

/// As the API's own types: what is null is not there, and what is not known is passed over.
#[test]
fn what_is_null_or_unknown_is_as_good_as_absent() {
    for text in [
        r#"{"metadata":{"name":"p"},"spec":{"containers":null,"volumes":null,"imagePullSecrets":null,"affinity":null,"x":[{}]}}"#,
        r#"{"metadata":{"name":"p","labels":null,"y":1},"spec":{"containers":[]},"status":null,"kind":"Pod"}"#,
        r#"{"metadata":{"name":"p","managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]},"spec":{}}"#,
    ] {
        let pod: Pod = serde_json::from_str(text).unwrap();
        let mut expected = Pod::default();
        expected.metadata.name = Some("p".to_owned());
        expected.spec = Some(PodSpec::default());
        assert_eq!(pod, expected, "{text}");
    }
    for text in [
        r#"{"spec":{"containers":[{"env":null,"envFrom":null,"ports":null}]}}"#,
        r#"{"spec":{"containers":[{"env":[{"valueFrom":null}],"envFrom":[{"secretRef":null}],"resources":null}]}}"#,
    ] {
        let pod: Pod = serde_json::from_str(text).unwrap();
        assert_eq!(pod.spec.unwrap().containers, [Container::default()], "{text}");
    }
    for text in [
        r#"{"spec":{"priority":"7"}}"#,
        r#"{"spec":{"containers":{}}}"#,
        r#""x""#,
    ] {
        assert!(serde_json::from_str::<Pod>(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_held_of_a_node_is_what_the_api_says() {
    let amounts = json!({"cpu": "4", "pods": "110"});
    let tree = json!({
        "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "taints": [{"key": "t", "effect": "NoSchedule"}], "unschedulable": true},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"}],
            "declaredFeatures": ["F"], "images": [{"names": ["i"], "sizeBytes": 1}], "volumesInUse": ["v"]},
    });
    let held: Node = serde_json::from_value(tree.clone()).unwrap();
    let written: api::Node = serde_json::from_value(tree.clone()).unwrap();
    assert_eq!(held.metadata, written.metadata);
    let (spec, api) = (held.spec.unwrap(), written.spec.unwrap());
    let NodeSpec {
        pod_cidr,
        pod_cidrs,
        taints,
        unschedulable,
    } = spec;
    assert_eq!((pod_cidr.is_some(), unschedulable), (true, Some(true)));
    assert_eq!((pod_cidr, pod_cidrs, taints), (api.pod_cidr, api.pod_cidrs, api.taints));
    let (status, api) = (held.status.unwrap(), written.status.unwrap());
    let NodeStatus {
        addresses,
        allocatable,
        capacity,
        conditions,
        declared_features,
        images,
    } = status;
    assert!(addresses.is_some() && allocatable.is_some() && images.is_some());
    assert_eq!(
        (addresses, allocatable, capacity),
        (api.addresses, api.allocatable, api.capacity)
    );
    assert_eq!(
        (conditions, declared_features, images),
        (api.conditions, api.declared_features, api.images)
    );
    assert_eq!(Node::whole(tree.clone()).unwrap().shown(), tree);
}

#[test]
fn who_is_shown_a_pod_is_shown_all_but_who_manages_what() {
    let mut tree = full();
    let whole = tree.clone();
    tree["metadata"]["managedFields"] = json!([{"manager": "m"}]);
    let pod = Pod::whole(tree).unwrap();
    assert_eq!(pod.shown(), whole);
    assert_eq!(
        both(&whole).0.shown(),
        json!({"metadata": whole["metadata"]}),
        "there is no more of it"
    );
    assert!(Pod::whole(json!({"spec": 1})).is_err());
}
