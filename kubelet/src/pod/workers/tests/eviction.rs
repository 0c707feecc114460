//! Pods that outgrow their limits on local storage, over a whole kubelet.

use super::*;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};

const VOLUME: &str = "Usage of EmptyDir volume \"v\" exceeds the limit \"64Ki\". ";

const OVERDUE: &str = "ExceededGracePeriod";

fn limited(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = serde_json::to_value(simple(name)).expect("a pod");
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": "64Ki"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    change(&mut pod);
    serde_json::from_value(pod).expect("a pod")
}

/// Writes into a pod's emptyDir as its container would.
fn write(bench: &Bench, pod: &str, bytes: usize) {
    let path = bench.volume_path(pod, "kubernetes.io~empty-dir/v/file");
    std::fs::write(path, vec![7; bytes]).expect("written");
}

fn evicted(bench: &Bench, pod: &str) -> Option<PodStatus> {
    let status = bench.api.status(pod)?;
    (status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some("Evicted")).then_some(status)
}

fn events(bench: &Bench) -> usize {
    bench
        .api
        .events()
        .iter()
        .filter(|(reason, _)| reason == "Evicted")
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_volume_outgrows_its_limit_is_evicted_and_no_other() {
    let bench = Bench::new();
    let kubelet = bench.start();
    bench.api.create(&limited("p", |_| {}));
    bench.api.create(&limited("q", |_| {}));
    bench
        .api
        .create(&limited("vip", |pod| pod["spec"]["priority"] = 2_000_000_000.into()));
    bench
        .until("ready", |b| ["p", "q", "vip"].iter().all(|pod| is_ready(b, pod)))
        .await;
    write(&bench, "q", 30_000);
    write(&bench, "vip", 300_000);
    write(&bench, "p", 300_000);
    bench.until("evicted", |b| evicted(b, "p").is_some()).await;
    let status = evicted(&bench, "p").expect("a status");
    assert_eq!(status.message.as_deref(), Some(VOLUME));
    let conditions = status.conditions.unwrap_or_default();
    assert!(
        !conditions.iter().any(|c| c.type_ == "DisruptionTarget"),
        "nobody disrupted it"
    );
    bench.until("told", |b| has_event(b, "Evicted", VOLUME)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!has_event(&bench, OVERDUE, ""), "it went at once");
    assert!(is_ready(&bench, "q") && is_ready(&bench, "vip"));
    assert_eq!((bench.running("p"), events(&bench)), (0, 1));
    bench.api.delete("p", 0, bench.clock.now());
    bench.until("gone", |b| !b.api.has("p")).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_container_writes_outside_of_volumes_counts_against_its_limit() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let limit = |pod: &mut Value| {
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "1Mi"}});
        pod["spec"]["containers"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"name": "d", "image": "img:latest",
            "imagePullPolicy": "IfNotPresent", "resources": {"limits": {"ephemeral-storage": "1Mi"}}}));
    };
    bench.api.create(&limited("p", limit));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench.runtime.set_layer("c", (1 << 20) + 1);
    bench.until("evicted", |b| evicted(b, "p").is_some()).await;
    let message = evicted(&bench, "p").and_then(|status| status.message);
    assert_eq!(
        message.as_deref(),
        Some("Container c exceeded its local ephemeral storage limit \"1Mi\". ")
    );
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_goes_on_after_a_kill_of_the_kubelet_though_the_files_are_gone() {
    let bench = Bench::new();
    let first = bench.start();
    bench.api.create(&limited("p", |_| {}));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(100));
    write(&bench, "p", 300_000);
    bench.until("told", |b| events(b) == 1).await;
    bench
        .until("being stopped", |b| {
            b.runtime.calls().iter().any(|call| call.starts_with("StopContainer"))
        })
        .await;
    first.kill().await;
    write(&bench, "p", 0);
    bench.runtime.set_latency("StopContainer", Duration::ZERO);
    let second = bench.start();
    bench.until("evicted", |b| evicted(b, "p").is_some()).await;
    let message = evicted(&bench, "p").and_then(|status| status.message);
    assert_eq!(message.as_deref(), Some(VOLUME));
    let starts = bench.runtime.calls();
    assert_eq!(
        starts.iter().filter(|call| call.starts_with("StartContainer")).count(),
        1
    );
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_takes_far_longer_than_its_grace_is_told_once() {
    let bench = Bench::new();
    let kubelet = bench.start();
    bench.api.create(&limited("p", |_| {}));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(100));
    write(&bench, "p", 300_000);
    bench.until("told", |b| events(b) == 1).await;
    let message = "Container runtime did not kill the pod within specified grace period.";
    bench.until("overdue", |b| has_event(b, OVERDUE, message)).await;
    assert!(evicted(&bench, "p").is_none(), "it is not over");
    bench.until("evicted", |b| evicted(b, "p").is_some()).await;
    let told = bench.api.events();
    assert_eq!(told.iter().filter(|(reason, _)| reason == OVERDUE).count(), 1);
    kubelet.kill().await;
}
