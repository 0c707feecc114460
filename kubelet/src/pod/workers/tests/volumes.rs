//! What containers see in volumes, over a whole kubelet.

use super::*;
use serde_json::json;

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
