"""The smallest object of each kind that the API takes, by resource and group version."""

_LABELS = {"app": "x"}
_TEMPLATE = {"metadata": {"labels": _LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
_JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
_WORKLOAD = {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}
_RBAC = "rbac.authorization.k8s.io"
_WEBHOOK = {
    "name": "a.example.com",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "failurePolicy": "Ignore",
    "clientConfig": {"url": "https://127.0.0.1:1/none"},
    "rules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "resources": ["none"], "operations": ["CREATE"]}],
}
_MATCH = {"resourceRules": _WEBHOOK["rules"]}
_DEVICES = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "class.example.com"}}]}}
_EVENT_TIME = "2026-01-02T03:04:05.000006Z"

# Resource and group version -> what the object has beside apiVersion, kind and metadata.
MINIMAL = {
    ("configmaps", "v1"): {"data": {"a": "b"}},
    ("endpoints", "v1"): {"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]},
    ("events", "v1"): {"involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R", "message": "m", "type": "Normal"},
    ("events", "events.k8s.io/v1"): {
        "eventTime": _EVENT_TIME, "reportingController": "example.com/c", "reportingInstance": "i", "action": "A",
        "reason": "R", "type": "Normal", "regarding": {"kind": "Pod", "name": "p"},
    },
    ("limitranges", "v1"): {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}},
    ("namespaces", "v1"): {},
    ("nodes", "v1"): {},
    ("persistentvolumeclaims", "v1"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    ("persistentvolumes", "v1"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/none"}}},
    ("pods", "v1"): {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    ("podtemplates", "v1"): {"template": _TEMPLATE},
    ("replicationcontrollers", "v1"): {"spec": {"replicas": 0, "selector": _LABELS, "template": _TEMPLATE}},
    ("resourcequotas", "v1"): {"spec": {"hard": {"pods": "100"}}},
    ("secrets", "v1"): {"stringData": {"a": "b"}},
    ("serviceaccounts", "v1"): {},
    ("services", "v1"): {"spec": {"ports": [{"port": 80}]}},
    ("mutatingadmissionpolicies", "admissionregistration.k8s.io/v1"): {"spec": {
        "matchConstraints": _MATCH, "reinvocationPolicy": "Never", "failurePolicy": "Ignore",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
    }},
    ("mutatingadmissionpolicybindings", "admissionregistration.k8s.io/v1"): {"spec": {"policyName": "none.example.com"}},
    ("mutatingwebhookconfigurations", "admissionregistration.k8s.io/v1"): {"webhooks": [_WEBHOOK]},
    ("validatingadmissionpolicies", "admissionregistration.k8s.io/v1"): {
        "spec": {"matchConstraints": _MATCH, "validations": [{"expression": "true"}]}},
    ("validatingadmissionpolicybindings", "admissionregistration.k8s.io/v1"): {
        "spec": {"policyName": "none.example.com", "validationActions": ["Deny"]}},
    ("validatingwebhookconfigurations", "admissionregistration.k8s.io/v1"): {"webhooks": [_WEBHOOK]},
    ("customresourcedefinitions", "apiextensions.k8s.io/v1"): {"spec": {
        "group": "sweep.example.com", "scope": "Cluster", "names": {"plural": "NAME", "kind": "Sweep"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }},
    ("controllerrevisions", "apps/v1"): {"revision": 1, "data": {"any": ["thing"]}},
    ("daemonsets", "apps/v1"): {"spec": _WORKLOAD},
    ("deployments", "apps/v1"): {"spec": {**_WORKLOAD, "replicas": 0}},
    ("replicasets", "apps/v1"): {"spec": {**_WORKLOAD, "replicas": 0}},
    ("statefulsets", "apps/v1"): {"spec": {**_WORKLOAD, "replicas": 0, "serviceName": "s"}},
    ("horizontalpodautoscalers", "autoscaling/v1"): {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}},
    ("horizontalpodautoscalers", "autoscaling/v2"): {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}},
    ("cronjobs", "batch/v1"): {"spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": _JOB}}},
    ("jobs", "batch/v1"): {"spec": {**_JOB, "suspend": True}},
    ("leases", "coordination.k8s.io/v1"): {"spec": {"holderIdentity": "me"}},
    ("endpointslices", "discovery.k8s.io/v1"): {
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"name": "p", "port": 80}]},
    ("flowschemas", "flowcontrol.apiserver.k8s.io/v1"): {
        "spec": {"priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 9000}},
    ("prioritylevelconfigurations", "flowcontrol.apiserver.k8s.io/v1"): {
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}},
    ("ingressclasses", "networking.k8s.io/v1"): {"spec": {"controller": "example.com/c"}},
    ("ingresses", "networking.k8s.io/v1"): {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    ("networkpolicies", "networking.k8s.io/v1"): {"spec": {"podSelector": {}}},
    ("servicecidrs", "networking.k8s.io/v1"): {"spec": {"cidrs": ["192.0.2.0/24"]}},
    ("runtimeclasses", "node.k8s.io/v1"): {"handler": "runc"},
    ("poddisruptionbudgets", "policy/v1"): {"spec": {"minAvailable": 1, "selector": {"matchLabels": _LABELS}}},
    ("clusterroles", f"{_RBAC}/v1"): {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ("clusterrolebindings", f"{_RBAC}/v1"): {"roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "none"}},
    ("roles", f"{_RBAC}/v1"): {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ("rolebindings", f"{_RBAC}/v1"): {"roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "none"}},
    ("deviceclasses", "resource.k8s.io/v1"): {"spec": {}},
    ("resourceclaims", "resource.k8s.io/v1"): {"spec": _DEVICES},
    ("resourceclaimtemplates", "resource.k8s.io/v1"): {"spec": {"spec": _DEVICES}},
    ("resourceslices", "resource.k8s.io/v1"): {"spec": {
        "driver": "driver.example.com", "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d"}],
    }},
    ("priorityclasses", "scheduling.k8s.io/v1"): {"value": 5},
    ("csidrivers", "storage.k8s.io/v1"): {"spec": {"attachRequired": False}},
    ("csinodes", "storage.k8s.io/v1"): {"spec": {"drivers": []}},
    ("csistoragecapacities", "storage.k8s.io/v1"): {"storageClassName": "c"},
    ("storageclasses", "storage.k8s.io/v1"): {"provisioner": "example.com/p"},
    ("volumeattachments", "storage.k8s.io/v1"): {
        "spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}},
    ("volumeattributesclasses", "storage.k8s.io/v1"): {"driverName": "example.com", "parameters": {"a": "b"}},
}

# What is asked of these is not stored, or the name or content must be of a form of its own; other tests have them.
ELSEWHERE = {
    ("certificatesigningrequests", "certificates.k8s.io/v1"),
    ("ipaddresses", "networking.k8s.io/v1"),
    ("apiservices", "apiregistration.k8s.io/v1"),
}


def minimal(resource, version, kind, name, namespace):
    """The object of this name, or None where another test has this kind."""
    if (resource, version) in ELSEWHERE:
        return None
    body = MINIMAL[resource, version]
    if resource == "customresourcedefinitions":
        plural = name.replace("-", "")
        body = {"spec": {**body["spec"], "names": {"plural": plural, "kind": plural.capitalize()}}}
        name = f"{plural}.sweep.example.com"
    if resource.startswith("mutatingadmission") or resource.startswith("validatingadmission"):
        name = f"{name}.example.com"
    if resource == "events":
        about = "involvedObject" if version == "v1" else "regarding"
        body = {**body, about: {**body[about], "namespace": namespace}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **body}
