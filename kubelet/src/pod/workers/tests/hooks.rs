//! Lifecycle hooks over a whole kubelet: how often they run, and what is left of the grace.

use super::*;
use k8s_openapi::api::core::v1::{ExecAction, LifecycleHandler};

fn command(word: &str) -> Option<LifecycleHandler> {
    Some(LifecycleHandler {
        exec: Some(ExecAction {
            command: Some(vec![word.into()]),
        }),
        ..LifecycleHandler::default()
    })
}

fn with_hook(post_start: bool) -> Pod {
    let mut pod = simple("p");
    let container = &mut pod.spec.as_mut().expect("spec").containers[0];
    let lifecycle = container.lifecycle.get_or_insert_default();
    if post_start {
        lifecycle.post_start = command("begin");
    } else {
        lifecycle.pre_stop = command("drain");
    }
    pod
}

/// A node whose commands take that long and end with that code.
fn bench(exec_takes: u64, exec_exit_code: i32) -> Bench {
    let bench = Bench::new();
    bench.runtime.script_image(
        "img:latest",
        Behaviour {
            exec_takes: Duration::from_secs(exec_takes),
            exec_exit_code,
            ..Behaviour::obedient()
        },
    );
    bench
}

fn calls(bench: &Bench, what: &str) -> Vec<String> {
    let calls = bench.runtime.calls();
    calls.into_iter().filter(|call| call.starts_with(what)).collect()
}

/// The graces containers were stopped with.
fn graces(bench: &Bench) -> Vec<String> {
    let stops = calls(bench, "StopContainer");
    let grace = |call: &String| call.rsplit(' ').next().unwrap_or_default().to_owned();
    stops.iter().map(grace).collect()
}

async fn gone(bench: &Bench) {
    bench
        .until("gone", |b| {
            !b.api.has("p") && b.runtime.counts() == (0, 0) && b.leftovers().is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pre_stop_hook_runs_within_the_grace() {
    for (takes, code, expected) in [(4, 0, "26"), (4, 1, "26"), (100, 0, "2")] {
        let bench = bench(takes, code);
        let kubelet = bench.start();
        bench.api.create(&with_hook(false));
        bench.until("ready", |b| is_ready(b, "p")).await;
        bench.api.delete("p", 30, at(0));
        gone(&bench).await;
        assert_eq!(calls(&bench, "ExecSync"), ["ExecSync drain"], "{takes} s");
        assert_eq!(graces(&bench), [expected], "{takes} s");
        let killing = |(reason, _): &&(String, String)| reason == "Killing";
        assert_eq!(bench.api.events().iter().filter(killing).count(), 1);
        assert_eq!(has_event(&bench, "FailedPreStopHook", "PreStopHook failed"), code != 0);
        kubelet.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_begun_before_a_restart_is_not_begun_again() {
    let bench = bench(20, 0);
    let first = bench.start();
    bench.api.create(&with_hook(false));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench.api.delete("p", 30, at(0));
    bench.until("hook", |b| !calls(b, "ExecSync").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    first.kill().await;
    let second = bench.start();
    gone(&bench).await;
    assert_eq!(calls(&bench, "ExecSync").len(), 1);
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_goes_on_after_a_restart_with_what_is_left_of_its_grace() {
    // The hook had 8 of 30 seconds when its kubelet died, and the next one comes 5 seconds later.
    let bench = bench(20, 0);
    let first = bench.start();
    bench.api.create(&with_hook(false));
    bench.until("ready", |b| is_ready(b, "p")).await;
    bench.api.delete("p", 30, at(0));
    bench.until("hook", |b| !calls(b, "ExecSync").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    first.kill().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let second = bench.start();
    gone(&bench).await;
    assert_eq!(graces(&bench), ["17"]);
    assert_eq!(calls(&bench, "ExecSync").len(), 1);
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ignores_its_stop_has_its_grace_once_whatever_happens_to_the_kubelet() {
    let bench = Bench::new();
    let stubborn = Behaviour {
        stops_after: None,
        ..Behaviour::default()
    };
    bench.runtime.script_image("img:latest", stubborn);
    let first = bench.start();
    bench.api.create(&simple("p"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let begun = bench.clock.now();
    bench.api.delete("p", 60, at(0));
    bench.until("stop", |b| !calls(b, "StopContainer").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    first.kill().await;
    // The runtime forgets a stop whose caller is gone: the container is told again, with the rest.
    let second = bench.start();
    gone(&bench).await;
    let took = bench.clock.now().duration_since(begun).as_secs();
    assert!((60..70).contains(&took), "{took} s");
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_no_kubelet_was_there_has_its_whole_grace() {
    let bench = bench(1, 0);
    let first = bench.start();
    bench.api.create(&with_hook(false));
    bench.until("ready", |b| is_ready(b, "p")).await;
    first.kill().await;
    bench.api.delete("p", 30, at(0));
    tokio::time::sleep(Duration::from_secs(300)).await;
    let second = bench.start();
    gone(&bench).await;
    assert_eq!(calls(&bench, "ExecSync"), ["ExecSync drain"]);
    assert_eq!(graces(&bench), ["29"]);
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_delete_with_less_grace_ends_the_hook() {
    let bench = bench(500, 0);
    let kubelet = bench.start();
    bench.api.create(&with_hook(false));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let begun = bench.clock.now();
    bench.api.delete("p", 300, at(0));
    bench.until("hook", |b| !calls(b, "ExecSync").is_empty()).await;
    bench.api.delete("p", 5, at(0));
    gone(&bench).await;
    let took = bench.clock.now().duration_since(begun).as_secs();
    assert!((5..20).contains(&took), "{took} s");
    assert_eq!(calls(&bench, "ExecSync").len(), 1);
    assert_eq!(graces(&bench), ["2"]);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_orphans_hook_runs_from_its_annotation() {
    let bench = bench(0, 0);
    let first = bench.start();
    bench.api.create(&with_hook(false));
    bench.until("ready", |b| is_ready(b, "p")).await;
    first.kill().await;
    bench.api.remove("p");
    let second = bench.start();
    bench.until("nothing left", |b| b.runtime.counts() == (0, 0)).await;
    assert_eq!(calls(&bench, "ExecSync"), ["ExecSync drain"]);
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_is_told_when_its_hook_is_done() {
    let bench = bench(7, 0);
    let kubelet = bench.start();
    bench.api.create(&with_hook(true));
    bench.until("hook", |b| !calls(b, "ExecSync").is_empty()).await;
    let begun = bench.clock.now();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let phase = |b: &Bench| b.api.status("p").and_then(|status| status.phase);
    assert_eq!(phase(&bench).as_deref(), Some("Pending"));
    bench.until("ready", |b| is_ready(b, "p")).await;
    let took = bench.clock.now().duration_since(begun).as_secs();
    assert!((6..10).contains(&took), "{took} s");
    assert_eq!(calls(&bench, "ExecSync"), ["ExecSync begin"]);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_post_start_hook_that_fails_ends_its_container() {
    let bench = bench(0, 3);
    let kubelet = bench.start();
    bench.api.create(&with_hook(true));
    bench
        .until("told", |b| {
            has_event(b, "FailedPostStartHook", "PostStartHook failed")
                && has_event(b, "Killing", "FailedPostStartHook")
        })
        .await;
    let waits = |b: &Bench, reason: &str| {
        let statuses = b.api.status("p").and_then(|s| s.container_statuses).unwrap_or_default();
        let state = statuses.first().and_then(|c| c.state.clone()).and_then(|s| s.waiting);
        state.and_then(|w| w.reason).as_deref() == Some(reason)
    };
    bench.until("crash loop", |b| waits(b, "CrashLoopBackOff")).await;
    assert!(!is_ready(&bench, "p"));
    bench.api.delete("p", 30, at(0));
    gone(&bench).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_post_start_hook_without_an_end_does_not_hold_up_the_pods_end() {
    let bench = bench(100_000, 0);
    let kubelet = bench.start();
    bench.api.create(&with_hook(true));
    bench.until("hook", |b| !calls(b, "ExecSync").is_empty()).await;
    bench.api.delete("p", 30, at(0));
    gone(&bench).await;
    kubelet.kill().await;
}
