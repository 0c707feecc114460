//! How much room pods and nodes take: bytes that are allocated for them and not given back, by all who hold them in one process.

use super::*;
use crate::tests::room::held;

/// What issue 12 allows for a pod or a node, in bytes.
const MOST: isize = 6_000;
const COUNT: isize = 200;

const AT: &str = "2026-11-28T23:00:01Z";

fn spec(i: isize, resources: &Value) -> Value {
    let stands = |what: &str| json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let token = "kube-api-access-x7k2p";
    json!({
        "nodeName": format!("node-{}", i % 10), "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {}, "schedulerName": "default-scheduler",
        "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [stands("not-ready"), stands("unreachable")],
        "volumes": [{"name": token, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}],
        "containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10", "imagePullPolicy": "IfNotPresent", "resources": resources,
            "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}], "env": [{"name": "LEVEL", "value": "info"}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1},
            "volumeMounts": [{"name": token, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        }],
    })
}

/// A pod of a Deployment, of which a node has twenty, that runs as it was asked to, as the API server has it.
fn running(i: isize) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": AT, "observedGeneration": 1});
    let kinds = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    let resources = json!({"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}});
    let set = format!("deployment-{}-6c5d7f9b8d", i / 10);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{set}-{i:05}"), "generateName": format!("{set}-"), "namespace": "default", "generation": 1,
            "uid": format!("4f1e2d3c-0000-4000-8000-{i:012}"), "resourceVersion": format!("{}", 100_000 + i), "creationTimestamp": AT,
            "labels": {"app": format!("deployment-{}", i / 10), "pod-template-hash": "6c5d7f9b8d"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "controller": true, "blockOwnerDeletion": true,
                "uid": format!("4f1e2d3c-0000-4000-9000-{:012}", i / 10)}],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": AT, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:phase": {}}}, "subresource": "status"}],
        },
        "spec": spec(i, &resources),
        "status": {
            "phase": "Running", "qosClass": "Burstable", "startTime": AT, "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
            "podIP": "10.244.1.17", "podIPs": [{"ip": "10.244.1.17"}], "observedGeneration": 1, "conditions": kinds.map(condition),
            "containerStatuses": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "imageID": "sha256:0123456789abcdef", "ready": true,
                "containerID": "containerd://0123456789abcdef", "started": true, "restartCount": 0, "state": {"running": {"startedAt": AT}},
                "lastState": {}, "resources": resources, "allocatedResources": resources["requests"]}],
        },
    })
}

/// A node without images, as its kubelet says it.
fn node(i: isize) -> Value {
    let name = format!("node-{i}");
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "lastHeartbeatTime": AT, "lastTransitionTime": AT,
            "reason": format!("KubeletHas{kind}"), "message": format!("kubelet says so of {kind}")})
    };
    let amounts = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi", "hugepages-1Gi": "0", "hugepages-2Mi": "0"});
    let range = format!("10.244.{}.0/24", i % 250);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("4f1e2d3c-0000-4000-a000-{i:012}"), "resourceVersion": format!("{}", 200_000 + i),
            "creationTimestamp": AT, "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "topology.kubernetes.io/zone": format!("zone-{}", i % 3)}},
        "spec": {"podCIDR": range, "podCIDRs": [range]},
        "status": {"capacity": amounts, "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False"),
                condition("Ready", "True")],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6.12.0", "osImage": "Linux",
                "architecture": "amd64", "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.0",
                "kubeProxyVersion": "", "operatingSystem": "linux"}},
    })
}

/// A server that lists these objects and never says more.
fn lists(of: fn(isize) -> Value) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        async move {
            if is_watch {
                std::future::pending::<()>().await;
            }
            let items: Vec<Value> = (0..COUNT).map(of).collect();
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
            let body = kube::client::Body::from(list.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        }
    });
    kube::Client::new(service, "default")
}

/// The copy that all share, and what the scheduler knows beside it.
#[tokio::test]
async fn a_pod_and_a_node_take_what_is_allowed_and_no_more() {
    let mut cluster = Cluster::default();
    let client = lists(node);
    let before = held();
    let nodes = Kept::Asked.nodes(&client, Options::default());
    nodes.synced().await;
    let copied = (held() - before) / COUNT;
    nodes.list().iter().for_each(|node| drop(cluster.set_node(node)));
    let known = (held() - before) / COUNT;
    println!("a node: {copied} bytes, {known} with what the scheduler knows of it");
    let (of_node, copy_of_node) = (known, copied);

    let client = lists(running);
    let before = held();
    let pods = Kept::Asked.pods(&client, Options::default(), ask::node_name);
    pods.synced().await;
    let copied = (held() - before) / COUNT;
    for pod in pods.list() {
        let node = ask::node_name(&pod).to_owned();
        let pod = Arc::new(cluster.describe(pod));
        cluster.place(pod, &node);
    }
    let known = (held() - before) / COUNT;
    println!("a pod: {copied} bytes, {known} with what the scheduler knows of it");
    assert!(
        of_node <= MOST,
        "{of_node} bytes a node, {copy_of_node} of them the copy"
    );
    assert!(known <= MOST, "{known} bytes a pod, {copied} of them the copy");
}
