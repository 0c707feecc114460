mod addresses;
mod admission;
mod claims;
mod classes;
mod devices;
mod ephemeral;
mod eviction;
mod faults;
mod hooks;
mod image_changes;
mod images;
mod impossible;
mod memory;
mod pinning;
mod resize;
mod restart_all;
mod volumes;

use crate::kubelet::testing::Bench;
use crate::pod::testing::{at, container, pod};
use crate::runtime::RuntimeError;
use crate::runtime::fake::{Behaviour, Faults, Mishap, Run};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

fn named(name: &str) -> Container {
    Container {
        image_pull_policy: Some("IfNotPresent".into()),
        image: Some("img:latest".into()),
        ..container(name)
    }
}

fn simple(name: &str) -> Pod {
    let mut pod = pod(name).with(named("c")).build();
    pod.spec.as_mut().expect("spec").node_name = Some("node-a".into());
    pod
}

fn is_ready(bench: &Bench, name: &str) -> bool {
    let status = bench.api.status(name).unwrap_or_default();
    proto::api::condition::is_true(status.conditions.as_ref(), "Ready")
}

fn has_event(bench: &Bench, reason: &str, text: &str) -> bool {
    bench
        .api
        .events()
        .iter()
        .any(|(r, message)| r == reason && message.contains(text))
}

#[tokio::test(start_paused = true)]
async fn a_pod_starts_is_told_and_goes_without_a_trace() {
    let bench = Bench::new();
    // As long as starting takes at least, so that users are told of it.
    bench.runtime.set_latency("RunPodSandbox", Duration::from_millis(200));
    let kubelet = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let status = bench.api.status("p").expect("status");
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert!(status.pod_ip.is_some_and(|ip| ip.starts_with("10.88.")));
    for (reason, text) in [
        ("Pulled", "already present"),
        ("Created", "Container created"),
        ("Started", "Container started"),
    ] {
        bench.until(reason, |b| has_event(b, reason, text)).await;
    }
    let snapshot = kubelet.pods.get("ns", "p").expect("published");
    assert_eq!(snapshot.observed.containers.len(), 1);

    bench.api.delete("p", 30, at(0));
    bench.until("gone", |b| !b.api.has("p")).await;
    assert_eq!(bench.api.phases("p"), ["Pending", "Running", "Succeeded"]);
    bench
        .until("nothing left", |b| {
            b.runtime.counts() == (0, 0) && b.leftovers().is_empty()
        })
        .await;
    assert!(has_event(&bench, "Killing", "Stopping container c"));
    assert!(kubelet.pods.list().is_empty());
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_backs_off_and_counts() {
    let bench = Bench::new();
    let run = Run::For {
        duration: Duration::from_secs(1),
        exit_code: 3,
    };
    bench.runtime.script_image(
        "img:latest",
        Behaviour {
            run,
            ..Behaviour::default()
        },
    );
    let kubelet = bench.start();
    bench.api.create(&simple("p"));
    let waits = |b: &Bench| {
        let statuses = b.api.status("p").and_then(|s| s.container_statuses).unwrap_or_default();
        let state = statuses.first().and_then(|c| c.state.clone()).and_then(|s| s.waiting);
        state.and_then(|w| w.reason).is_some_and(|r| r == "CrashLoopBackOff")
    };
    bench.until("crash loop", waits).await;
    let count = |b: &Bench| {
        b.api
            .status("p")
            .and_then(|s| s.container_statuses)
            .map_or(0, |s| s[0].restart_count)
    };
    bench.until("four restarts", |b| count(b) >= 4).await;
    assert_eq!(bench.api.status("p").and_then(|s| s.phase).as_deref(), Some("Running"));
    bench
        .until("told", |b| {
            has_event(b, "BackOff", "Back-off restarting failed container c in pod p_ns(p)")
        })
        .await;
    // 0, 10, 20 and 40 seconds between the ends and the starts, and a second each to run.
    let elapsed = bench.clock.now().duration_since(at(0)).as_secs();
    assert!((70..90).contains(&elapsed), "{elapsed} s");
    assert!(bench.runtime.doubled().is_empty());
    let (_, containers) = bench.runtime.counts();
    assert!(containers <= 3, "{containers} containers are kept");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_starts_again_takes_its_pods_over() {
    let bench = Bench::new();
    let first = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let calls = |what: &str| {
        bench
            .runtime
            .calls()
            .iter()
            .filter(|call| call.starts_with(what))
            .count()
    };
    let (creates, stops) = (calls("CreateContainer"), calls("StopContainer"));
    first.kill().await;
    let second = bench.start();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(bench.running("p"), 1);
    assert_eq!(
        (calls("CreateContainer"), calls("StopContainer"), calls("RunPodSandbox")),
        (creates, stops, 1)
    );
    assert!(is_ready(&bench, "p"));
    bench.api.delete("p", 30, at(0));
    bench
        .until("gone", |b| !b.api.has("p") && b.runtime.counts() == (0, 0))
        .await;
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_moment_of_a_start_nothing_is_doubled() {
    for millis in (0..120).step_by(7) {
        let bench = Bench::new();
        for call in [
            "RunPodSandbox",
            "CreateContainer",
            "StartContainer",
            "ImageStatus",
            "ListContainers",
        ] {
            bench.runtime.set_latency(call, Duration::from_millis(20));
        }
        let first = bench.start();
        bench.api.create(&simple("p"));
        tokio::time::sleep(Duration::from_millis(millis)).await;
        first.kill().await;
        let second = bench.start();
        bench.until("ready", |b| is_ready(b, "p")).await;
        assert_eq!(bench.running("p"), 1, "killed after {millis} ms");
        assert!(bench.runtime.doubled().is_empty(), "killed after {millis} ms");
        second.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_removed_while_no_kubelet_ran_is_ended_as_an_orphan() {
    let bench = Bench::new();
    let first = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    first.kill().await;
    bench.api.remove("p");
    let second = bench.start();
    bench
        .until("nothing left", |b| {
            b.runtime.counts() == (0, 0) && b.leftovers().is_empty()
        })
        .await;
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_cannot_be_looked_at_is_ended_later() {
    let bench = Bench::new();
    let first = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    first.kill().await;
    bench.api.remove("p");
    // The first two lists are the sweep's at start; the next ones are the look at the orphan.
    bench.runtime.set_latency("ListContainers", Duration::from_secs(1));
    let second = bench.start();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for _ in 0..3 {
        let error = RuntimeError::new("ListPodSandbox", tonic::Code::Unavailable, "not now");
        bench.runtime.next("ListPodSandbox", Mishap::Fail(error));
    }
    bench
        .until("nothing left", |b| {
            b.runtime.counts() == (0, 0) && b.leftovers().is_empty()
        })
        .await;
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_hung_call_holds_up_its_pod_only() {
    let bench = Bench::new();
    let kubelet = bench.start();
    bench.runtime.next("StartContainer", Mishap::Hang);
    bench.api.create(&simple("stuck"));
    bench
        .until("hangs", |b| {
            b.runtime.calls().iter().any(|call| call.starts_with("StartContainer"))
        })
        .await;
    bench.api.create(&simple("free"));
    let begun = bench.clock.now();
    bench.until("ready", |b| is_ready(b, "free")).await;
    assert!(bench.clock.now().duration_since(begun).as_secs() < 5);
    assert!(!is_ready(&bench, "stuck"));
    bench.until("ready in the end", |b| is_ready(b, "stuck")).await;
    assert!(bench.runtime.doubled().is_empty());
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_and_tried_again() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let no = |call| Mishap::Fail(RuntimeError::new(call, tonic::Code::Unknown, "no luck"));
    bench.runtime.next("RunPodSandbox", no("RunPodSandbox"));
    bench.runtime.next("CreateContainer", no("CreateContainer"));
    bench.runtime.next("StartContainer", no("StartContainer"));
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let expected = [
        (
            "FailedCreatePodSandBox",
            "Failed to create pod sandbox: rpc error: code = Unknown desc = no luck",
        ),
        ("Failed", "Error: no luck"),
    ];
    for (reason, text) in expected {
        bench.until(reason, |b| has_event(b, reason, text)).await;
    }
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_does_not_exist_is_told_and_backed_off() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let mut p = simple("p");
    p.spec.as_mut().expect("spec").containers[0].image = Some("nowhere:1".into());
    bench.api.create(&p);
    let reason = |b: &Bench| {
        let statuses = b.api.status("p").and_then(|s| s.container_statuses).unwrap_or_default();
        statuses
            .first()
            .and_then(|c| c.state.clone())
            .and_then(|s| s.waiting)
            .and_then(|w| w.reason)
    };
    bench
        .until("failed", |b| reason(b).as_deref() == Some("ErrImagePull"))
        .await;
    bench
        .until("backed off", |b| reason(b).as_deref() == Some("ImagePullBackOff"))
        .await;
    bench
        .until("told", |b| {
            has_event(b, "BackOff", "Back-off pulling image \"nowhere:1\"")
        })
        .await;
    bench.runtime.add_remote_image("nowhere:1");
    bench.until("ready once it is there", |b| is_ready(b, "p")).await;
    bench.api.delete("p", 1, at(0));
    bench.until("gone", |b| !b.api.has("p")).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_done_is_told_when_it_is() {
    let bench = Bench::new();
    let run = Run::For {
        duration: Duration::from_secs(5),
        exit_code: 0,
    };
    bench.runtime.script_image(
        "img:latest",
        Behaviour {
            run,
            ..Behaviour::default()
        },
    );
    let kubelet = bench.start();
    let mut p = simple("p");
    p.spec.as_mut().expect("spec").restart_policy = Some("Never".into());
    bench.api.create(&p);
    bench
        .until("succeeded", |b| {
            b.api.status("p").and_then(|s| s.phase).as_deref() == Some("Succeeded")
        })
        .await;
    assert_eq!(bench.running("p"), 0);
    let (_, containers) = bench.runtime.counts();
    assert_eq!(containers, 1, "kept for its log");
    kubelet.kill().await;
    let second = bench.start();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(bench.api.phases("p").last().map(String::as_str), Some("Succeeded"));
    bench.api.delete("p", 30, at(0));
    bench
        .until("gone", |b| !b.api.has("p") && b.runtime.counts() == (0, 0))
        .await;
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_fails_its_liveness_probe_is_restarted() {
    let bench = Bench::new();
    bench.runtime.script_image(
        "img:latest",
        Behaviour {
            exec_exit_code: 1,
            ..Behaviour::obedient()
        },
    );
    let kubelet = bench.start();
    let mut p = simple("p");
    let exec = k8s_openapi::api::core::v1::ExecAction {
        command: Some(vec!["check".into()]),
    };
    let probe = Probe {
        exec: Some(exec),
        period_seconds: Some(1),
        failure_threshold: Some(3),
        ..Probe::default()
    };
    p.spec.as_mut().expect("spec").containers[0].liveness_probe = Some(probe);
    bench.api.create(&p);
    let count = |b: &Bench| {
        b.api
            .status("p")
            .and_then(|s| s.container_statuses)
            .map_or(0, |s| s[0].restart_count)
    };
    bench.until("restarted", |b| count(b) >= 1).await;
    bench
        .until("told", |b| has_event(b, "Unhealthy", "Liveness probe failed: "))
        .await;
    let text = "Container c failed liveness probe, will be restarted";
    bench.until("told why", |b| has_event(b, "Killing", text)).await;
    assert!(bench.runtime.doubled().is_empty());
    bench.api.delete("p", 30, at(0));
    bench.until("gone with its probes", |b| !b.api.has("p")).await;
    kubelet.kill().await;
}

/// Ready stays what it was over a restart: a readiness probe that cannot be asked at once does not take traffic away.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_starts_again_keeps_what_probes_told() {
    let bench = Bench::new();
    let first = bench.start();
    let mut p = simple("p");
    let exec = k8s_openapi::api::core::v1::ExecAction {
        command: Some(vec!["check".into()]),
    };
    let probe = Some(Probe {
        exec: Some(exec),
        period_seconds: Some(20),
        ..Probe::default()
    });
    let container = &mut p.spec.as_mut().expect("spec").containers[0];
    container.startup_probe.clone_from(&probe);
    container.readiness_probe = probe;
    bench.api.create(&p);
    bench.until("ready", |b| is_ready(b, "p")).await;
    let ready = |b: &Bench| {
        let conditions = b.api.status("p").and_then(|status| status.conditions);
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "Ready")
    };
    let before = ready(&bench);
    first.kill().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let second = bench.start();
    bench.runtime.set_latency("ExecSync", Duration::from_secs(15));
    let checks = |b: &Bench| {
        b.runtime
            .calls()
            .iter()
            .filter(|call| call.starts_with("ExecSync"))
            .count()
    };
    let asked = checks(&bench);
    bench.until("asked again", |b| checks(b) > asked + 1).await;
    assert_eq!(ready(&bench), before, "not even for a moment");
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_for_another_node_is_rejected_with_its_reason() {
    let bench = Bench::new();
    let kubelet = bench.start();
    let mut p = simple("p");
    p.spec.as_mut().expect("spec").node_name = Some("elsewhere".into());
    bench.api.create(&p);
    bench
        .until("rejected", |b| {
            b.api.status("p").and_then(|s| s.phase).as_deref() == Some("Failed")
        })
        .await;
    let status = bench.api.status("p").expect("status");
    assert_eq!(status.reason.as_deref(), Some("NodeName"));
    assert!(status.message.is_some_and(|m| m.starts_with("Pod was rejected: ")));
    assert_eq!(bench.runtime.counts(), (0, 0));
    bench.api.delete("p", 30, at(0));
    bench.until("gone", |b| !b.api.has("p")).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_it_starts_ends() {
    for millis in (0..100).step_by(9) {
        let bench = Bench::new();
        for call in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
            bench.runtime.set_latency(call, Duration::from_millis(30));
        }
        let kubelet = bench.start();
        bench.api.create(&simple("p"));
        tokio::time::sleep(Duration::from_millis(millis)).await;
        bench.api.delete("p", 30, at(0));
        bench
            .until("gone", |b| {
                !b.api.has("p") && b.runtime.counts() == (0, 0) && b.leftovers().is_empty()
            })
            .await;
        kubelet.kill().await;
    }
}

/// Pods come and go on a runtime that loses, doubles and delays events, fails calls and loses replies, under kubelets that are
/// killed and started again. Nothing may ever run twice, everything must end as it was asked to.
async fn a_hard_life(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = Bench::seeded(seed);
    bench.runtime.set_faults(Faults {
        drop_event: 0.2,
        duplicate_event: 0.2,
        delay_event: 0.3,
        event_delay_max: Duration::from_secs(3),
        fail_call: 0.05,
        lose_reply: 0.05,
    });
    for call in ["RunPodSandbox", "CreateContainer", "StartContainer", "StopPodSandbox"] {
        bench
            .runtime
            .set_latency(call, Duration::from_millis(rng.random_range(0..80)));
    }
    let mut kubelet = bench.start();
    let (mut wanted, mut ended): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for step in 0..12 {
        match rng.random_range(0..5) {
            0 | 1 => {
                let name = format!("p{step}");
                bench.api.create(&simple(&name));
                wanted.push(name);
            }
            2 if !wanted.is_empty() => {
                let name = wanted.remove(rng.random_range(0..wanted.len()));
                bench.api.delete(&name, rng.random_range(0..30), bench.clock.now());
                ended.push(name);
            }
            3 if !wanted.is_empty() => {
                let name = &wanted[rng.random_range(0..wanted.len())];
                bench.runtime.crash(&name.as_str().into(), "c", 1);
            }
            _ => {
                kubelet.kill().await;
                kubelet = bench.start();
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..2000))).await;
        assert!(
            bench.runtime.doubled().is_empty(),
            "seed {seed}: {:?}",
            bench.runtime.doubled()
        );
    }
    // A crash whose event was lost is seen with the next sweep only: until then the status is what was known.
    let fine = |b: &Bench, name: &String| is_ready(b, name) && b.running(name) == 1;
    bench
        .until(&format!("all ready, seed {seed}"), |b| {
            wanted.iter().all(|name| fine(b, name))
        })
        .await;
    bench
        .until(&format!("all gone, seed {seed}"), |b| {
            !ended.iter().any(|name| b.api.has(name))
        })
        .await;
    for name in &wanted {
        bench.api.delete(name, 5, bench.clock.now());
    }
    bench
        .until(&format!("nothing left, seed {seed}"), |b| {
            b.runtime.counts() == (0, 0) && b.leftovers().is_empty()
        })
        .await;
    assert!(
        bench.runtime.doubled().is_empty(),
        "seed {seed}: {:?}",
        bench.runtime.doubled()
    );
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_hard_life_ends_well_whatever_the_seed() {
    for seed in 0..20 {
        a_hard_life(seed).await;
    }
}
