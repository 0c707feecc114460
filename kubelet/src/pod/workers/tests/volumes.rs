//! What containers see in volumes, over a whole kubelet.

use super::*;
use serde_json::json;
use std::cell::RefCell;
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn a_pod_sees_its_labels_and_annotations_change() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let item = |field: &str| json!({"path": field, "fieldRef": {"fieldPath": format!("metadata.{field}")}});
    let mut pod = serde_json::to_value(simple("p")).expect("a pod");
    pod["metadata"]["labels"] = json!({"tier": "one"});
    pod["spec"]["volumes"] = json!([{"name": "info", "downwardAPI": {"items": [item("labels"), item("annotations")]}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "info", "mountPath": "/info"}]);
    bench.api.create(&serde_json::from_value(pod).expect("a pod"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let shown = |b: &Bench, field: &str| {
        let path = b.volume_path("p", &format!("kubernetes.io~downward-api/info/{field}"));
        std::fs::read_to_string(path).unwrap_or_default()
    };
    assert_eq!(shown(&bench, "labels"), "tier=\"one\"");
    bench
        .api
        .edit("p", |pod| pod["metadata"]["labels"]["tier"] = "two".into());
    bench
        .until("the label changed", |b| shown(b, "labels") == "tier=\"two\"")
        .await;
    bench
        .api
        .edit("p", |pod| pod["metadata"]["annotations"] = json!({"note": "x"}));
    bench
        .until("the annotation came", |b| {
            shown(b, "annotations").contains("note=\"x\"")
        })
        .await;
    assert_eq!(bench.running("p"), 1);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn no_earlier_delivery_of_a_pod_is_held() {
    let bench = Bench::new();
    // Its volumes are there, and its status is told, before it runs.
    bench.runtime.set_latency("RunPodSandbox", Duration::from_millis(500));
    let kubelet = bench.start();
    let mut pod = serde_json::to_value(simple("p")).expect("a tree");
    pod["spec"]["volumes"] = json!([{"name": "info", "downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "info", "mountPath": "/info"}]);
    pod["spec"]["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["true"]}});
    bench.api.create(&serde_json::from_value(pod).expect("a pod"));
    let seen = RefCell::new(Vec::new());
    bench
        .until("ready", |b| {
            let delivered = kubelet.pods.get("ns", "p").map(|shown| Arc::downgrade(&shown.pod));
            seen.borrow_mut().extend(delivered);
            is_ready(b, "p")
        })
        .await;
    // Its own status comes back as one more delivery.
    let revision = |pod: &Pod| pod.metadata.resource_version.clone();
    let told = bench.api.pod("p").and_then(|pod| revision(&pod));
    let newest = || kubelet.pods.get("ns", "p").map(|shown| shown.pod.clone());
    bench
        .until("delivered", |_| newest().is_some_and(|pod| revision(&pod) == told))
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let newest = newest().expect("published");
    let earlier = seen.take();
    let held = earlier
        .iter()
        .filter_map(|pod| pod.upgrade())
        .filter(|pod| !Arc::ptr_eq(pod, &newest));
    assert!(!earlier.is_empty());
    assert_eq!(held.count(), 0, "of {}", earlier.len());
}
