//! Pods are resized, over a whole kubelet.

use super::*;
use crate::id::PodUid;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use proto::api::quantity::Quantity;
use proto::cri::LinuxContainerResources;
use serde_json::{Value, json};

/// A node with four CPUs.
fn node() -> Bench {
    let mut bench = Bench::new();
    bench
        .allocatable
        .insert("cpu".to_owned(), Quantity::of(&Text("4".into())));
    bench
}

/// CPU and memory, requested and limited alike.
fn resources(cpu: &str, memory: &str) -> Value {
    let list = json!({"cpu": cpu, "memory": memory});
    json!({"requests": list, "limits": list})
}

fn sized(name: &str, cpu: &str, memory: &str) -> Pod {
    let mut pod = serde_json::to_value(simple(name)).expect("a pod");
    pod["metadata"]["generation"] = json!(1);
    pod["spec"]["containers"][0]["resources"] = resources(cpu, memory);
    serde_json::from_value(pod).expect("a pod")
}

/// Where kubelets keep what the next one is to know.
fn data(bench: &Bench) -> std::path::PathBuf {
    bench.manifests().with_file_name("kubelet")
}

fn resize(bench: &Bench, pod: &str, resources: &Value) {
    bench.api.edit(pod, |pod| {
        let generation = pod["metadata"]["generation"].as_i64().unwrap_or(0);
        pod["metadata"]["generation"] = json!(generation + 1);
        pod["spec"]["containers"][0]["resources"] = resources.clone();
    });
}

/// What the runtime has a container run with: milliseconds of CPU each 100, and MiB.
fn runs_with(bench: &Bench, container: &str) -> (i64, i64) {
    let config = bench.runtime.container_config(container).unwrap_or_default();
    let LinuxContainerResources {
        cpu_quota,
        memory_limit_in_bytes,
        ..
    } = config.linux.unwrap_or_default().resources.unwrap_or_default();
    (cpu_quota / 1000, memory_limit_in_bytes >> 20)
}

fn told(bench: &Bench, pod: &str) -> ContainerStatus {
    let status = bench.api.status(pod).unwrap_or_default();
    status.container_statuses.unwrap_or_default().pop().unwrap_or_default()
}

/// Whether the status tells these resources as given and as running.
fn shows(bench: &Bench, pod: &str, resources: &Value) -> bool {
    let told = told(bench, pod);
    serde_json::to_value(&told.resources).is_ok_and(|shown| shown == *resources)
        && serde_json::to_value(&told.allocated_resources).is_ok_and(|given| given == resources["requests"])
}

fn condition(bench: &Bench, pod: &str, kind: &str) -> Option<PodCondition> {
    let status = bench.api.status(pod)?;
    status.conditions?.into_iter().find(|c| c.type_ == kind)
}

fn is_resized(bench: &Bench, pod: &str, resources: &Value) -> bool {
    shows(bench, pod, resources)
        && condition(bench, pod, "PodResizeInProgress").is_none()
        && condition(bench, pod, "PodResizePending").is_none()
}

#[tokio::test(start_paused = true)]
async fn a_pod_grows_and_shrinks_without_a_restart() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("p", "500m", "64Mi"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    assert_eq!(runs_with(&bench, "c"), (50, 64));
    for (cpu, memory, runs) in [("1", "128Mi", (100, 128)), ("250m", "32Mi", (25, 32))] {
        let wanted = resources(cpu, memory);
        resize(&bench, "p", &wanted);
        bench.until("resized", |b| is_resized(b, "p", &wanted)).await;
        assert_eq!(runs_with(&bench, "c"), runs);
    }
    assert_eq!(told(&bench, "p").restart_count, 0);
    assert_eq!(bench.runtime.containers().len(), 1);
    for (reason, text) in [
        (
            "ResizeStarted",
            "Pod resize started: {\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{\"cpu\":\"1\"",
        ),
        ("ResizeCompleted", "\"generation\":2}"),
        ("ResizeCompleted", "\"generation\":3}"),
    ] {
        bench.until(reason, |b| has_event(b, reason, text)).await;
    }
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_waits_until_something_is_freed() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("p", "1", "64Mi"));
    bench.api.create(&sized("q", "2", "64Mi"));
    bench.until("ready", |b| is_ready(b, "p") && is_ready(b, "q")).await;
    let (before, wanted) = (resources("1", "64Mi"), resources("3", "64Mi"));
    resize(&bench, "p", &wanted);
    bench
        .until("told to wait", |b| condition(b, "p", "PodResizePending").is_some())
        .await;
    let pending = condition(&bench, "p", "PodResizePending").expect("it waits");
    assert_eq!(pending.reason.as_deref(), Some("Deferred"));
    let message = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000";
    assert_eq!(pending.message.as_deref(), Some(message));
    assert_eq!(pending.observed_generation, Some(2));
    assert!(shows(&bench, "p", &before), "it runs with what it was given");
    bench.until("event", |b| has_event(b, "ResizeDeferred", message)).await;
    bench.api.delete("q", 0, at(0));
    bench.until("resized", |b| is_resized(b, "p", &wanted)).await;
    for line in [
        r#"kubelet_container_requested_resizes_total{resource="cpu",requirement="requests",operation="increase"} 1"#,
        r#"kubelet_pod_deferred_accepted_resizes_total{retry_trigger="pod_terminated"} 1"#,
        r#"kubelet_pod_resize_duration_milliseconds_count{success="true"} 1"#,
        r#"kubelet_pod_worker_duration_seconds_count{operation_type="kill"} 1"#,
        r#"kubelet_terminated_containers_total{container_type="container",exit_code="0",reason="Completed"} 1"#,
    ] {
        assert!(kubelet.tells(line), "{line}");
    }
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_taken_back_waits_no_more() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("p", "1", "64Mi"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    resize(&bench, "p", &resources("8", "64Mi"));
    bench
        .until("told to wait", |b| condition(b, "p", "PodResizePending").is_some())
        .await;
    let before = resources("1", "64Mi");
    resize(&bench, "p", &before);
    bench.until("as before", |b| is_resized(b, "p", &before)).await;
    assert!(!has_event(&bench, "ResizeStarted", ""));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_container_restarts_for_what_its_policy_says() {
    let bench = node();
    let kubelet = bench.start();
    let mut pod = serde_json::to_value(sized("p", "1", "64Mi")).expect("a pod");
    pod["spec"]["containers"][0]["resizePolicy"] =
        json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    bench.api.create(&serde_json::from_value(pod).expect("a pod"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let more_cpu = resources("2", "64Mi");
    resize(&bench, "p", &more_cpu);
    bench.until("resized", |b| is_resized(b, "p", &more_cpu)).await;
    assert_eq!(told(&bench, "p").restart_count, 0);
    let more_memory = resources("2", "128Mi");
    resize(&bench, "p", &more_memory);
    bench
        .until("restarted", |b| {
            told(b, "p").restart_count == 1 && is_ready(b, "p") && is_resized(b, "p", &more_memory)
        })
        .await;
    assert!(has_event(&bench, "Killing", "Container c resize requires restart"));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn memory_in_use_is_not_taken_away() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("p", "1", "128Mi"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench.runtime.set_memory("c", 100 << 20);
    let (before, wanted) = (resources("1", "128Mi"), resources("1", "64Mi"));
    resize(&bench, "p", &wanted);
    let refused = |b: &Bench| {
        let told = condition(b, "p", "PodResizeInProgress");
        told.is_some_and(|told| told.reason.as_deref() == Some("Error"))
    };
    bench.until("refused", refused).await;
    let told = condition(&bench, "p", "PodResizeInProgress").expect("it is under way");
    let why = "cannot decrease memory limits: attempting to set container \"c\" memory limit (67108864) below current \
               usage (104857600)";
    assert_eq!(told.message.as_deref(), Some(why));
    let shown = serde_json::to_value(super::resize::told(&bench, "p").resources).expect("resources");
    assert_eq!(shown, before, "it still runs with what it had");
    bench
        .until("event", |b| {
            has_event(b, "ResizeError", "cannot decrease memory limits")
        })
        .await;
    bench.runtime.set_memory("c", 10 << 20);
    bench.until("resized", |b| is_resized(b, "p", &wanted)).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_kubelet_goes_on_with_what_was_given() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("p", "1", "64Mi"));
    bench.api.create(&sized("q", "2", "64Mi"));
    bench.until("ready", |b| is_ready(b, "p") && is_ready(b, "q")).await;
    let failure = || RuntimeError::new("UpdateContainerResources", tonic::Code::Unknown, "no");
    for _ in 0..8 {
        bench.runtime.next("UpdateContainerResources", Mishap::Fail(failure()));
    }
    let wanted = resources("2", "64Mi");
    resize(&bench, "p", &wanted);
    bench
        .until("under way", |b| condition(b, "p", "PodResizeInProgress").is_some())
        .await;
    kubelet.kill().await;
    // What was wanted while nobody looked does not fit beside what was given.
    resize(&bench, "q", &resources("3", "64Mi"));
    let kubelet = bench.start();
    bench
        .until("q waits", |b| condition(b, "q", "PodResizePending").is_some())
        .await;
    bench.until("p is resized", |b| is_resized(b, "p", &wanted)).await;
    assert_eq!(
        (told(&bench, "p").restart_count, told(&bench, "q").restart_count),
        (0, 0)
    );
    bench
        .until("completed", |b| has_event(b, "ResizeCompleted", "\"generation\":2}"))
        .await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn without_notes_the_spec_is_what_was_given() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("p", "1", "64Mi"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    kubelet.kill().await;
    for file in ["allocated_pods_state", "actuated_pods_state"] {
        std::fs::remove_file(data(&bench).join(file)).expect("it was there");
    }
    let kubelet = bench.start();
    let uid = PodUid::from("p");
    bench.until("seen", |_| kubelet.pods.by_uid(&uid).is_some()).await;
    let wanted = resources("2", "64Mi");
    resize(&bench, "p", &wanted);
    bench.until("resized", |b| is_resized(b, "p", &wanted)).await;
    assert_eq!(runs_with(&bench, "c").0, 200);
    assert_eq!(told(&bench, "p").restart_count, 0);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_noted_of_pods_that_are_gone() {
    let bench = node();
    let kubelet = bench.start();
    bench.api.create(&sized("p", "1", "64Mi"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let noted = |b: &Bench, file: &str| {
        let text = std::fs::read_to_string(data(b).join(file)).unwrap_or_default();
        text.contains("ContainerResources")
    };
    let files = ["allocated_pods_state", "actuated_pods_state"];
    bench.until("noted", |b| files.iter().all(|file| noted(b, file))).await;
    bench.api.delete("p", 0, at(0));
    bench
        .until("forgotten", |b| files.iter().all(|file| !noted(b, file)))
        .await;
    kubelet.kill().await;
}
