//! §4: what is filled into an object that leaves it out.

use serde_json::{Value, json};

use crate::resource::Registry;
use crate::schema::normalize;

/// A pod's template around one container.
fn template(container: Value) -> Value {
    json!({"spec": {"containers": [container]}})
}

/// Group, kind, an object, and what has to be at which places of it with its defaults.
fn table() -> Vec<(&'static str, &'static str, Value, Value)> {
    let selector = json!({"matchLabels": {"a": "b"}});
    let plain = || template(json!({"name": "c", "image": "i:1"}));
    vec![
        (
            "",
            "Pod",
            json!({"spec": {"serviceAccountName": "s", "containers": [{"name": "c", "image": "i:1",
                "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"grpc": {"port": 1}}, "env": [{"name": "n", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]},
                {"name": "d", "image": "i"}, {"name": "e", "image": "i:latest"}],
                "volumes": [{"name": "empty"}, {"name": "secret", "secret": {"secretName": "s"}}, {"name": "map", "configMap": {"name": "m"}},
                {"name": "down", "downwardAPI": {}}, {"name": "host", "hostPath": {"path": "/x"}},
                {"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}}),
            json!({"/spec/dnsPolicy": "ClusterFirst", "/spec/restartPolicy": "Always", "/spec/securityContext": {},
                "/spec/terminationGracePeriodSeconds": 30, "/spec/schedulerName": "default-scheduler", "/spec/enableServiceLinks": true,
                "/spec/serviceAccount": "s", "/spec/containers/0/imagePullPolicy": "IfNotPresent",
                "/spec/containers/1/imagePullPolicy": "Always", "/spec/containers/2/imagePullPolicy": "Always",
                "/spec/containers/0/terminationMessagePath": "/dev/termination-log", "/spec/containers/0/terminationMessagePolicy": "File",
                "/spec/containers/0/ports/0/protocol": "TCP", "/spec/containers/0/resources/requests": {"cpu": "1"},
                "/spec/containers/0/livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
                "/spec/containers/0/readinessProbe/grpc/service": "",
                "/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion": "v1",
                "/spec/volumes/0/emptyDir": {}, "/spec/volumes/1/secret/defaultMode": 420, "/spec/volumes/2/configMap/defaultMode": 420,
                "/spec/volumes/3/downwardAPI/defaultMode": 420, "/spec/volumes/4/hostPath/type": "",
                "/spec/volumes/5/projected/defaultMode": 420,
                "/spec/volumes/5/projected/sources/0/serviceAccountToken/expirationSeconds": 3600}),
        ),
        (
            "",
            "Pod",
            json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}),
            json!({"/spec/containers/0/ports/0/hostPort": 80}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"ports": [{"port": 80}]}}),
            json!({"/spec/type": "ClusterIP", "/spec/sessionAffinity": "None", "/spec/ports/0/protocol": "TCP", "/spec/ports/0/targetPort": 80,
                "/spec/internalTrafficPolicy": "Cluster", "/spec/externalTrafficPolicy": null, "/spec/allocateLoadBalancerNodePorts": null}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]}}),
            json!({"/spec/sessionAffinityConfig/clientIP/timeoutSeconds": 10_800, "/spec/externalTrafficPolicy": "Cluster",
                "/spec/allocateLoadBalancerNodePorts": true}),
        ),
        (
            "apps",
            "Deployment",
            json!({"spec": {"selector": selector, "template": plain()}}),
            json!({"/spec/replicas": 1, "/spec/strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "/spec/revisionHistoryLimit": 10, "/spec/progressDeadlineSeconds": 600,
                "/spec/template/spec/restartPolicy": "Always"}),
        ),
        (
            "apps",
            "ReplicaSet",
            json!({"spec": {"selector": selector, "template": plain()}}),
            json!({"/spec/replicas": 1}),
        ),
        (
            "",
            "ReplicationController",
            json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}}}),
            json!({"/spec/replicas": 1, "/spec/selector": {"a": "b"}, "/metadata/labels": {"a": "b"}}),
        ),
        (
            "apps",
            "DaemonSet",
            json!({"spec": {"selector": selector, "template": plain()}}),
            json!({"/spec/updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                "/spec/revisionHistoryLimit": 10}),
        ),
        (
            "apps",
            "StatefulSet",
            json!({"spec": {"selector": selector, "template": plain()}}),
            json!({"/spec/replicas": 1, "/spec/podManagementPolicy": "OrderedReady", "/spec/revisionHistoryLimit": 10,
                "/spec/updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "/spec/persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}),
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"template": plain()}}),
            json!({"/spec/completions": 1, "/spec/parallelism": 1, "/spec/backoffLimit": 6, "/spec/completionMode": "NonIndexed",
                "/spec/suspend": false, "/spec/podReplacementPolicy": "TerminatingOrFailed", "/spec/manualSelector": false}),
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"template": plain(), "completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
                "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}}),
            json!({"/spec/parallelism": 1, "/spec/backoffLimit": i32::MAX, "/spec/podReplacementPolicy": "Failed",
                "/spec/podFailurePolicy/rules/0/onPodConditions/0/status": "True"}),
        ),
        (
            "batch",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": plain()}}}}),
            json!({"/spec/concurrencyPolicy": "Allow", "/spec/suspend": false, "/spec/successfulJobsHistoryLimit": 3,
                "/spec/failedJobsHistoryLimit": 1}),
        ),
        (
            "",
            "PersistentVolumeClaim",
            json!({"spec": {}}),
            json!({"/spec/volumeMode": "Filesystem"}),
        ),
        (
            "",
            "PersistentVolume",
            json!({"spec": {}}),
            json!({"/spec/volumeMode": "Filesystem", "/spec/persistentVolumeReclaimPolicy": "Retain"}),
        ),
        ("", "Secret", json!({}), json!({"/type": "Opaque"})),
        (
            "",
            "Node",
            json!({"status": {"capacity": {"cpu": "2"}}}),
            json!({"/status/allocatable": {"cpu": "2"}}),
        ),
        (
            "",
            "Endpoints",
            json!({"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]}),
            json!({"/subsets/0/ports/0/protocol": "TCP"}),
        ),
        (
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}]}),
            json!({"/ports/0/protocol": "TCP", "/ports/0/name": ""}),
        ),
        (
            "networking.k8s.io",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}}}),
            json!({"/spec/policyTypes": ["Ingress"]}),
        ),
        (
            "networking.k8s.io",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}}),
            json!({"/spec/policyTypes": ["Ingress", "Egress"], "/spec/egress/0/ports/0/protocol": "TCP"}),
        ),
        (
            "",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}}]}}),
            json!({"/spec/limits/0/default": {"cpu": "2"}, "/spec/limits/0/defaultRequest/cpu": "2",
                "/spec/limits/0/defaultRequest/memory": "1Gi"}),
        ),
        (
            "storage.k8s.io",
            "StorageClass",
            json!({"provisioner": "p"}),
            json!({"/reclaimPolicy": "Delete", "/volumeBindingMode": "Immediate"}),
        ),
        (
            "storage.k8s.io",
            "CSIDriver",
            json!({"spec": {}}),
            json!({"/spec/attachRequired": true, "/spec/podInfoOnMount": false, "/spec/storageCapacity": false, "/spec/requiresRepublish": false,
                "/spec/seLinuxMount": false, "/spec/fsGroupPolicy": "ReadWriteOnceWithFSType", "/spec/volumeLifecycleModes": ["Persistent"]}),
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "behavior": {"scaleUp": {}, "scaleDown": {}}}}),
            json!({"/spec/minReplicas": 1,
                "/spec/metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
                "/spec/behavior/scaleUp": {"selectPolicy": "Max", "stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]},
                "/spec/behavior/scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}}),
        ),
        (
            "scheduling.k8s.io",
            "PriorityClass",
            json!({"value": 1}),
            json!({"/preemptionPolicy": "PreemptLowerPriority"}),
        ),
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
            json!({"/roleRef/apiGroup": "rbac.authorization.k8s.io", "/subjects/0/apiGroup": "rbac.authorization.k8s.io",
                "/subjects/1/apiGroup": null}),
        ),
        (
            "networking.k8s.io",
            "IngressClass",
            json!({"spec": {"controller": "c", "parameters": {"kind": "K", "name": "n"}}}),
            json!({"/spec/parameters/scope": "Cluster"}),
        ),
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
            json!({"webhooks": [{"name": "w", "clientConfig": {"service": {"namespace": "n", "name": "s"}}, "rules": [{"operations": ["*"]}]}]}),
            json!({"/webhooks/0/failurePolicy": "Fail", "/webhooks/0/matchPolicy": "Equivalent", "/webhooks/0/namespaceSelector": {},
                "/webhooks/0/objectSelector": {}, "/webhooks/0/timeoutSeconds": 10, "/webhooks/0/reinvocationPolicy": "Never",
                "/webhooks/0/rules/0/scope": "*", "/webhooks/0/clientConfig/service/port": 443}),
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "FlowSchema",
            json!({"spec": {"priorityLevelConfiguration": {"name": "p"}}}),
            json!({"/spec/matchingPrecedence": 1000}),
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "PriorityLevelConfiguration",
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
            json!({"/spec/limited/nominalConcurrencyShares": 30, "/spec/limited/limitResponse/queuing":
                {"queues": 64, "handSize": 8, "queueLengthLimit": 50}}),
        ),
    ]
}

#[test]
fn what_is_left_out_is_filled_in_as_the_contract_says() {
    let mut wrong = Vec::new();
    for (group, kind, sent, expected) in table() {
        let version = if group == "autoscaling" { "v2" } else { "v1" };
        let known = Registry::built_in().by_gvk(group, version, kind).expect("built in");
        let mut object = sent;
        normalize(known, &mut object).expect("of its kind");
        known.strategy.default(&mut object);
        for (place, value) in expected.as_object().expect("an object") {
            let found = object.pointer(place).unwrap_or(&Value::Null);
            if found != value {
                wrong.push(format!("{kind} {place}: {found}, where {value} is the default"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
