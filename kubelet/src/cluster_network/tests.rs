//! Containers at the gate of their pods' network policies, in a whole kubelet over a scripted runtime.

use crate::kubelet::testing::Bench;
use crate::pod::testing::pod;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

fn on_node(name: &str) -> Pod {
    let mut pod = pod(name).build();
    pod.metadata.uid = Some(format!("uid-{name}"));
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some("node-a".into());
        for container in &mut spec.containers {
            container.image_pull_policy = Some("IfNotPresent".into());
        }
    }
    pod
}

/// What pods were told about waiting.
fn told(bench: &Bench) -> Vec<String> {
    let events = bench.api.events().into_iter();
    events
        .filter(|(reason, _)| reason == "NetworkNotReady")
        .map(|(_, message)| message)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn containers_wait_for_their_pods_rules_and_tell_it() {
    let mut bench = Bench::new();
    bench.policies = true;
    bench.api.create(&on_node("a"));
    let kubelet = bench.start();
    let gate = kubelet.parts.gate.clone().expect("a gate");
    // Nothing is known of policies, and nothing held back.
    bench
        .until("it is told", |b| {
            told(b).iter().any(|message| message.contains("not known yet"))
        })
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.running("uid-a"), 0);
    // Static pods do not wait: the API server may be one.
    bench.write_manifest("web.json", "web", "img:latest");
    bench.until("it runs", |b| b.runtime.running().len() == 1).await;
    assert_eq!(bench.running("uid-a"), 0);
    // Once the kernel holds traffic back, nothing is lost by containers that run.
    gate.hold(true);
    bench.until("it runs", |b| b.running("uid-a") == 1).await;
    bench
        .until("it is told", |b| {
            told(b).iter().any(|message| message.contains("held back"))
        })
        .await;
    // With its rules in the kernel nobody waits.
    gate.reach(u64::MAX, true);
    let before = told(&bench).len();
    bench.api.create(&on_node("b"));
    bench.until("it runs", |b| b.running("uid-b") == 1).await;
    assert_eq!(told(&bench).len(), before);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn who_enforces_no_policies_waits_for_none() {
    let bench = Bench::new();
    bench.api.create(&on_node("a"));
    let kubelet = bench.start();
    assert!(kubelet.parts.gate.is_none());
    bench.until("it runs", |b| b.running("uid-a") == 1).await;
    assert_eq!(told(&bench), [""; 0]);
    kubelet.kill().await;
}
