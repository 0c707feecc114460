//! Static pods and their mirrors, over a scripted runtime and API server.

use super::testing::Bench;
use crate::id::PodUid;
use crate::pod::testing::at;
use crate::pod_object;
use crate::runtime::fake::{Faults, Mishap};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::time::Duration;

/// The mirror's name: the node is `node-a`.
const WEB: &str = "web-node-a";

fn is_ready(bench: &Bench, name: &str) -> bool {
    let status = bench.api.status(name).unwrap_or_default();
    proto::api::condition::is_true(status.conditions.as_ref(), "Ready")
}

fn hash(bench: &Bench) -> String {
    let mirror = bench.api.pod(WEB).unwrap_or_default();
    pod_object::mirror_hash(&mirror).unwrap_or_default().to_owned()
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
    assert_eq!(pod_object::uid(&snapshot.pod).as_str(), first);

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

/// Static pods whose containers run, by pod name and UID.
fn running_by_name(bench: &Bench) -> BTreeSet<(String, PodUid)> {
    let running: BTreeSet<PodUid> = bench.runtime.running().into_iter().map(|(uid, _)| uid).collect();
    let sandboxes = bench.runtime.sandboxes();
    let named = sandboxes.into_iter().filter(|sandbox| running.contains(&sandbox.pod));
    named.map(|sandbox| (sandbox.name, sandbox.pod)).collect()
}

/// Files are written, changed and removed, mirrors deleted, containers crash and kubelets die on a runtime full of faults. Two
/// pods of one name never run beside each other, and in the end there is what the files say.
async fn a_hard_life(seed: u64) {
    const FILES: [&str; 3] = ["a", "b", "c"];
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = Bench::seeded(seed);
    bench.runtime.add_image("other:1");
    bench.runtime.set_faults(Faults {
        drop_event: 0.2,
        duplicate_event: 0.2,
        delay_event: 0.3,
        event_delay_max: Duration::from_secs(3),
        fail_call: 0.05,
        lose_reply: 0.05,
    });
    let mut kubelet = bench.start();
    let mut present: BTreeSet<&str> = BTreeSet::new();
    for _ in 0..15 {
        let file = FILES[rng.random_range(0..FILES.len())];
        let mirror = format!("{file}-node-a");
        match rng.random_range(0..6) {
            0 | 1 => {
                let image = ["img:latest", "other:1"][rng.random_range(0..2)];
                bench.write_manifest(file, file, image);
                present.insert(file);
            }
            2 if present.remove(file) => std::fs::remove_file(bench.manifests().join(file)).expect("remove"),
            3 if bench.api.has(&mirror) => bench.api.delete(&mirror, 30, bench.clock.now()),
            4 => {
                for (uid, container) in bench.runtime.running() {
                    bench.runtime.crash(&uid, &container, 1);
                }
            }
            _ => {
                kubelet.kill().await;
                kubelet = bench.start();
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..30_000))).await;
        let running = running_by_name(&bench);
        let names: BTreeSet<&String> = running.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), running.len(), "seed {seed}: {running:?}");
        assert!(bench.runtime.doubled().is_empty(), "seed {seed}");
    }
    let settled = |b: &Bench| {
        let expected: BTreeSet<String> = present.iter().map(|file| format!("{file}-node-a")).collect();
        let shown: BTreeSet<String> = b.api.names();
        let running: BTreeSet<String> = running_by_name(b).into_iter().map(|(name, _)| name).collect();
        shown == expected && running == expected && expected.iter().all(|name| is_ready(b, name))
    };
    bench.until(&format!("as the files say, seed {seed}"), settled).await;
    for file in &present {
        std::fs::remove_file(bench.manifests().join(file)).expect("remove");
    }
    bench
        .until(&format!("nothing left, seed {seed}"), |b| {
            b.runtime.counts() == (0, 0) && b.leftovers().is_empty() && b.api.names().is_empty()
        })
        .await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_hard_life_of_static_pods_ends_well_whatever_the_seed() {
    for seed in 0..20 {
        a_hard_life(seed).await;
    }
}

/// What an earlier kubelet left and cannot be looked at holds up the static pod of its own name alone.
#[tokio::test(start_paused = true)]
async fn an_orphan_that_cannot_be_looked_at_holds_up_its_namesake_alone() {
    let bench = Bench::new();
    bench.write_manifest("web.json", "web", "img:latest");
    let first = bench.start();
    bench.until("ready", |b| is_ready(b, WEB)).await;
    let old = hash(&bench);
    first.kill().await;
    bench.runtime.add_image("other:1");
    bench.write_manifest("web.json", "web", "other:1");
    bench.write_manifest("api.json", "api", "img:latest");
    bench.runtime.next("ContainerStatus", Mishap::Hang);
    let begun = bench.clock.now();
    let second = bench.start();
    bench.until("another name", |b| is_ready(b, "api-node-a")).await;
    let took = bench.clock.now().duration_since(begun).as_secs();
    assert!(took < 60, "{took} s");
    assert_eq!(bench.running(&old), 1, "it could not be looked at yet");
    bench.until("replaced", |b| hash(b) != old && is_ready(b, WEB)).await;
    assert_eq!((bench.running(&old), bench.running(&hash(&bench))), (0, 1));
    second.kill().await;
}

/// How often the only container of the static pod was restarted, as its mirror tells while it runs.
fn restarts(bench: &Bench) -> Option<i32> {
    let status = bench
        .api
        .status(WEB)
        .filter(|status| status.phase.as_deref() == Some("Running"))?;
    let only = status.container_statuses?.pop()?;
    only.state?.running.map(|_| only.restart_count)
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_removed_and_put_back_restarts_its_pod_as_often() {
    let bench = Bench::new();
    bench.write_manifest("web.json", "web", "img:latest");
    let kubelet = bench.start();
    bench.until("ready", |b| is_ready(b, WEB)).await;
    let first = hash(&bench);
    for count in 1..4 {
        // The runtime's part: the scripted one writes no logs, which tell how often a container was started.
        let logs = bench
            .manifests()
            .with_file_name("logs")
            .join(format!("ns_{WEB}_{first}/c"));
        std::fs::create_dir_all(&logs).expect("a directory");
        std::fs::write(logs.join(format!("{}.log", count - 1)), "").expect("a log");
        std::fs::remove_file(bench.manifests().join("web.json")).expect("remove");
        bench.write_manifest("web.json", "web", "img:latest");
        bench
            .until("restarted", |b| restarts(b) == Some(count) && is_ready(b, WEB))
            .await;
        assert_eq!((hash(&bench), bench.running(&first)), (first.clone(), 1));
    }
    settle().await;
    assert_eq!((restarts(&bench), starts(&bench)), (Some(3), 4));
    std::fs::remove_file(bench.manifests().join("web.json")).expect("remove");
    bench
        .until("gone", |b| !b.api.has(WEB) && b.leftovers().is_empty())
        .await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_comes_back_while_its_pod_ends_is_a_pod_again() {
    let bench = Bench::new();
    bench.write_manifest("web.json", "web", "img:latest");
    let kubelet = bench.start();
    bench.until("ready", |b| is_ready(b, WEB)).await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(20));
    std::fs::remove_file(bench.manifests().join("web.json")).expect("remove");
    let stops = |b: &Bench| b.runtime.calls().iter().any(|call| call.starts_with("StopContainer"));
    bench.until("being stopped", stops).await;
    bench.write_manifest("web.json", "web", "img:latest");
    bench
        .until("runs again", |b| {
            starts(b) == 2 && is_ready(b, WEB) && restarts(b).is_some()
        })
        .await;
    settle().await;
    assert_eq!((bench.running(&hash(&bench)), starts(&bench)), (1, 2));
    kubelet.kill().await;
}
