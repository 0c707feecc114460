//! Static pods and their mirrors, over a scripted runtime and API server.

use super::testing::Bench;
use crate::pod::shape;
use crate::pod::testing::at;
use std::time::Duration;

/// The mirror's name: the node is `node-a`.
const WEB: &str = "web-node-a";

fn is_ready(bench: &Bench, name: &str) -> bool {
    let status = bench.api.status(name).unwrap_or_default();
    proto::api::condition::is_true(status.conditions.as_ref(), "Ready")
}

fn hash(bench: &Bench) -> String {
    let mirror = bench.api.pod(WEB).unwrap_or_default();
    shape::mirror_hash(&mirror).unwrap_or_default().to_owned()
}

fn starts(bench: &Bench) -> usize {
    let calls = bench.runtime.calls();
    calls
        .iter()
        .filter(|call| format!("{call:?}").contains("StartContainer"))
        .count()
}

async fn settle() {
    tokio::time::sleep(Duration::from_secs(90)).await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_runs_is_mirrored_changes_and_goes() {
    let bench = Bench::new();
    bench.runtime.add_image("other:1");
    bench.write_manifest("web.json", "web", "img:latest");
    let kubelet = bench.start();
    bench.until("ready", |b| is_ready(b, WEB)).await;
    let first = hash(&bench);
    let mirror = bench.api.pod(WEB).expect("a mirror");
    assert_ne!(mirror.metadata.uid.as_deref(), Some(first.as_str()));
    assert_eq!(mirror.metadata.owner_references.expect("an owner")[0].name, "node-a");
    assert_eq!(bench.running(&first), 1);
    let snapshot = kubelet.pods.get("ns", WEB).expect("published");
    assert_eq!(shape::uid(&snapshot.pod).as_str(), first);

    bench.write_manifest("web.json", "web", "other:1");
    bench.until("replaced", |b| hash(b) != first && is_ready(b, WEB)).await;
    let second = hash(&bench);
    assert_eq!((bench.running(&first), bench.running(&second)), (0, 1));

    std::fs::remove_file(bench.manifests().join("web.json")).expect("remove");
    bench.until("gone", |b| !b.api.has(WEB)).await;
    bench
        .until("nothing left", |b| {
            b.runtime.counts() == (0, 0) && b.leftovers().is_empty()
        })
        .await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn deleting_the_mirror_does_not_stop_the_pod() {
    let bench = Bench::new();
    bench.write_manifest("web.json", "web", "img:latest");
    let kubelet = bench.start();
    bench.until("ready", |b| is_ready(b, WEB)).await;
    let first = bench.api.pod(WEB).and_then(|pod| pod.metadata.uid);
    bench.api.delete(WEB, 30, at(0));
    let other = |b: &Bench| b.api.pod(WEB).is_some_and(|pod| pod.metadata.uid != first);
    bench.until("another mirror", |b| other(b) && is_ready(b, WEB)).await;
    bench.api.remove(WEB);
    bench.until("a third mirror", |b| is_ready(b, WEB)).await;
    settle().await;
    assert_eq!((bench.running(&hash(&bench)), starts(&bench)), (1, 1));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_starts_again_keeps_its_static_pods() {
    let bench = Bench::new();
    bench.write_manifest("web.json", "web", "img:latest");
    bench.write_manifest("gone.json", "gone", "img:latest");
    let first = bench.start();
    bench
        .until("ready", |b| is_ready(b, WEB) && is_ready(b, "gone-node-a"))
        .await;
    let started = bench.api.status(WEB).and_then(|status| status.start_time);
    first.kill().await;
    settle().await;
    std::fs::remove_file(bench.manifests().join("gone.json")).expect("remove");
    let second = bench.start();
    bench.until("the other is gone", |b| !b.api.has("gone-node-a")).await;
    settle().await;
    assert_eq!((bench.running(&hash(&bench)), starts(&bench)), (1, 2));
    assert!(is_ready(&bench, WEB));
    assert_eq!(bench.api.status(WEB).and_then(|status| status.start_time), started);
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_static_pods_run_and_follow_their_files() {
    let mut bench = Bench::new();
    bench.standalone = true;
    bench.runtime.add_image("other:1");
    bench.write_manifest("web.json", "web", "img:latest");
    let first = bench.start();
    bench.until("runs", |b| b.runtime.running().len() == 1).await;
    first.kill().await;
    // Changed while no kubelet ran: the old one ends before the new one starts.
    let before = bench.runtime.running();
    bench.write_manifest("web.json", "web", "other:1");
    let second = bench.start();
    bench
        .until("replaced", |b| {
            b.runtime.running().len() == 1 && b.runtime.running() != before
        })
        .await;
    std::fs::remove_file(bench.manifests().join("web.json")).expect("remove");
    bench
        .until("gone", |b| b.runtime.counts() == (0, 0) && b.leftovers().is_empty())
        .await;
    assert!(!bench.api.has(WEB));
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_mirror_goes_and_a_pod_of_that_name_stays() {
    let bench = Bench::new();
    bench.write_manifest("web.json", "web", "img:latest");
    let first = bench.start();
    bench.until("ready", |b| is_ready(b, WEB)).await;
    first.kill().await;
    std::fs::remove_file(bench.manifests().join("web.json")).expect("remove");
    let second = bench.start();
    bench.until("gone", |b| !b.api.has(WEB)).await;
    bench.until("ended", |b| b.runtime.counts() == (0, 0)).await;
    second.kill().await;
}
