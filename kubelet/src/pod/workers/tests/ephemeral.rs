//! Ephemeral containers over a whole kubelet.

use super::*;
use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::{Value, json};

fn look_at(bench: &Bench, more: &Value) {
    let mut ephemeral = json!({"name": "d", "image": "debug:latest", "imagePullPolicy": "IfNotPresent"});
    for (key, value) in more.as_object().into_iter().flatten() {
        ephemeral[key] = value.clone();
    }
    bench
        .api
        .edit("p", |pod| pod["spec"]["ephemeralContainers"] = json!([ephemeral]));
}

fn told(bench: &Bench) -> Option<ContainerStatus> {
    bench.api.status("p")?.ephemeral_container_statuses?.pop()
}

fn runs(bench: &Bench) -> bool {
    let state = told(bench).and_then(|status| status.state);
    state.is_some_and(|state| state.running.is_some())
}

#[tokio::test(start_paused = true)]
async fn a_debugger_joins_its_target_is_told_and_is_not_started_again() {
    let bench = Bench::new();
    bench.runtime.add_image("debug:latest");
    let kubelet = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    look_at(&bench, &json!({"targetContainerName": "c"}));
    bench.until("the debugger runs", runs).await;
    let status = told(&bench).expect("told");
    assert_eq!((status.name.as_str(), status.ready, status.started), ("d", false, None));
    let target = bench.runtime.containers().into_iter().find(|c| c.name == "c");
    let linux = bench.runtime.container_config("d").and_then(|config| config.linux);
    let options = linux.and_then(|linux| linux.security_context?.namespace_options);
    let options = options.expect("namespaces");
    assert_eq!(options.pid, proto::cri::NamespaceMode::Target as i32);
    assert_eq!(Some(options.target_id), target.map(|target| target.id.to_string()));

    bench.runtime.crash(&"p".into(), "d", 3);
    let code = |b: &Bench| Some(told(b)?.state?.terminated?.exit_code);
    bench.until("its end is told", |b| code(b) == Some(3)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!runs(&bench) && is_ready(&bench, "p"));
    kubelet.kill().await;
    let second = bench.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((code(&bench), bench.running("p")), (Some(3), 1));
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_start_waits_with_its_reason_and_holds_up_nobody() {
    let bench = Bench::new();
    bench.runtime.add_image("debug:latest");
    let kubelet = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    look_at(&bench, &json!({"targetContainerName": "later"}));
    let reason = |b: &Bench| told(b)?.state?.waiting?.reason;
    bench
        .until("the reason is told", |b| {
            reason(b).as_deref() == Some("CreateContainerConfigError")
        })
        .await;
    let message = "Error: unable to find target container later";
    bench.until("the event", |b| has_event(b, "Failed", message)).await;
    assert!(is_ready(&bench, "p"));
    bench.runtime.crash(&"p".into(), "c", 1);
    bench
        .until("the pod's own container starts again", |b| bench_restarts(b) == 1)
        .await;
    kubelet.kill().await;
}

fn bench_restarts(bench: &Bench) -> i32 {
    let statuses = bench.api.status("p").and_then(|status| status.container_statuses);
    statuses.map_or(0, |statuses| statuses[0].restart_count)
}
