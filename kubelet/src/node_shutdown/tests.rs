//! Whole kubelets whose machine goes down, on a paused clock.

mod bus;

use super::*;
use crate::kubelet::testing::{Alive, Bench};
use crate::pod::testing::{container, pod};
use crate::runtime::fake::Behaviour;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use std::time::Duration;

const CRITICAL: i32 = 2_000_000_000;

/// A machine whose pods have 20 seconds, the critical ones 10 after that. What has the image `slow` takes 3 seconds to end, what has
/// `deaf` as long as it may.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.shutdown = Periods::of_kinds(Duration::from_secs(30), Duration::from_secs(10));
    for (image, stops_after) in [("slow:latest", Some(Duration::from_secs(3))), ("deaf:latest", None)] {
        bench.runtime.add_image(image);
        let behaviour = Behaviour {
            stops_after,
            ..Behaviour::default()
        };
        bench.runtime.script_image(image, behaviour);
    }
    bench
}

fn simple(name: &str, image: &str, priority: i32) -> Pod {
    let container = Container {
        image_pull_policy: Some("IfNotPresent".into()),
        image: Some(format!("{image}:latest")),
        ..container("c")
    };
    let mut pod = pod(name).with(container).grace(60).build();
    let spec = pod.spec.as_mut().expect("spec");
    spec.node_name = Some("node-a".into());
    spec.priority = Some(priority);
    pod
}

fn is_running(bench: &Bench, pod: &str) -> bool {
    let status = bench.api.status(pod).unwrap_or_default();
    proto::api::condition::is_true(status.conditions.as_ref(), "Ready")
}

/// The status of a pod that the API server has as ended by the shutdown.
fn terminated(bench: &Bench, pod: &str) -> Option<PodStatus> {
    let status = bench.api.status(pod)?;
    (status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some("Terminated")).then_some(status)
}

fn told(bench: &Bench, message: &str) -> usize {
    let events = bench.api.events();
    let of_shutdown = events
        .iter()
        .filter(|(reason, text)| reason == "Shutdown" && text == message);
    of_shutdown.count()
}

fn seconds_since(bench: &Bench, begun: jiff::Timestamp) -> i64 {
    bench.clock.now().duration_since(begun).as_secs()
}

fn phase(kubelet: &Alive) -> Phase {
    *kubelet.parts.phase.borrow()
}

fn is_released(bench: &Bench) -> bool {
    bench.logind.locks().1 == 0
}

const BEGUN: &str = "Shutdown manager detected shutdown event";
const CANCELLED: &str = "Shutdown manager detected shutdown cancellation";

#[tokio::test(start_paused = true)]
async fn pods_end_before_the_machine_goes_down_the_least_important_first() {
    let bench = bench();
    let kubelet = bench.start();
    bench.api.create(&simple("low", "slow", 0));
    bench.api.create(&simple("high", "slow", CRITICAL));
    bench
        .until("ready", |b| is_running(b, "low") && is_running(b, "high"))
        .await;
    bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
    assert_eq!(phase(&kubelet), Phase::Up);
    bench
        .until("raised", |b| b.logind.raised() == [Duration::from_secs(30)])
        .await;
    let begun = bench.clock.now();
    bench.logind.prepare(true);
    bench.until("low ended", |b| terminated(b, "low").is_some()).await;
    assert_eq!(phase(&kubelet), Phase::ShuttingDown);
    assert_eq!(bench.running("high"), 1, "its turn comes after that");
    assert!(!is_released(&bench));
    bench.until("the lock to be let go", is_released).await;
    // Whoever reads the API server knows it before the machine is gone.
    let status = terminated(&bench, "high").expect("an ended pod");
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was terminated in response to imminent node shutdown.")
    );
    let conditions = status.conditions.unwrap_or_default();
    let disrupted = conditions
        .iter()
        .find(|condition| condition.type_ == "DisruptionTarget");
    let disrupted = disrupted.map(|condition| (condition.status.as_str(), condition.reason.as_deref()));
    assert_eq!(disrupted, Some(("True", Some("TerminationByKubelet"))));
    assert!(
        (6..=9).contains(&seconds_since(&bench, begun)),
        "nobody is waited for who has ended"
    );
    bench.until("told", |b| told(b, BEGUN) == 1).await;
    let of_pods = bench.api.events().into_iter().any(|(reason, _)| reason == "Terminated");
    assert!(!of_pods, "it is the node's event");
    let record = record::Record::read(&bench.root_dir().join(record::FILE_NAME)).expect("a record");
    assert!(record.start_time.is_some_and(|start| start >= begun) && record.end_time > record.start_time);
    let page = kubelet.parts.metrics.text(&kubelet.pods);
    let shown = |name: &str| {
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        value.map(|seconds| (seconds * 1000.0).round())
    };
    let millis = |time: Option<jiff::Timestamp>| time.map(|time| (time.as_duration().as_secs_f64() * 1000.0).round());
    assert_eq!(
        shown("kubelet_graceful_shutdown_start_time_seconds "),
        millis(record.start_time)
    );
    assert_eq!(
        shown("kubelet_graceful_shutdown_end_time_seconds "),
        millis(record.end_time)
    );
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_its_groups_time_and_no_more() {
    let bench = bench();
    let kubelet = bench.start();
    bench.api.create(&simple("low", "deaf", 0));
    bench.api.create(&simple("high", "deaf", CRITICAL));
    bench
        .until("ready", |b| is_running(b, "low") && is_running(b, "high"))
        .await;
    bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
    let begun = bench.clock.now();
    bench.logind.prepare(true);
    bench.until("low ended", |b| b.running("low") == 0).await;
    assert!((19..=21).contains(&seconds_since(&bench, begun)));
    bench.until("the lock to be let go", is_released).await;
    assert!((29..=33).contains(&seconds_since(&bench, begun)));
    assert!(terminated(&bench, "high").is_some(), "it is told all the same");
    let stops: Vec<String> = bench.runtime.calls();
    let graces: Vec<&str> = stops
        .iter()
        .filter(|call| call.starts_with("StopContainer"))
        .filter_map(|call| call.rsplit(' ').next())
        .collect();
    assert_eq!(graces, ["20", "10"], "their own is longer");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_let_in_meanwhile_and_a_shutdown_that_is_taken_back_ends_nobody_else() {
    let bench = bench();
    let kubelet = bench.start();
    bench.api.create(&simple("low", "deaf", 0));
    bench.api.create(&simple("high", "slow", CRITICAL));
    bench
        .until("ready", |b| is_running(b, "low") && is_running(b, "high"))
        .await;
    bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
    bench.logind.prepare(true);
    bench.until("told", |b| told(b, BEGUN) == 1).await;
    bench.api.create(&simple("new", "slow", CRITICAL));
    let refused = |b: &Bench| {
        b.api
            .status("new")
            .is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    };
    bench.until("refused", refused).await;
    let status = bench.api.status("new").expect("a status");
    assert_eq!(
        (status.reason.as_deref(), status.message.as_deref()),
        (
            Some("NodeShutdown"),
            Some("Pod was rejected: Pod was rejected as the node is shutting down.")
        )
    );
    bench.logind.prepare(false);
    bench.until("told", |b| told(b, CANCELLED) == 1).await;
    assert_eq!(phase(&kubelet), Phase::Up);
    bench.api.create(&simple("later", "slow", 0));
    bench.until("let in", |b| is_running(b, "later")).await;
    bench.until("low ended", |b| terminated(b, "low").is_some()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_running(&bench, "high") && is_running(&bench, "later"));
    assert_eq!(bench.logind.locks().1, 1, "the next one is delayed as well");
    bench.logind.prepare(true);
    bench.until("the lock to be let go", is_released).await;
    assert!(terminated(&bench, "high").is_some() && terminated(&bench, "later").is_some());
    bench.logind.prepare(false);
    bench.until("locked again", |b| b.logind.locks().1 == 1).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_comes_in_the_middle_goes_on_with_what_is_left() {
    let bench = bench();
    let first = bench.start();
    bench.api.create(&simple("low", "deaf", 0));
    bench.api.create(&simple("high", "deaf", CRITICAL));
    bench
        .until("ready", |b| is_running(b, "low") && is_running(b, "high"))
        .await;
    bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
    let begun = bench.clock.now();
    bench.logind.prepare(true);
    bench.until("told", |b| told(b, BEGUN) == 1).await;
    let stopping = |b: &Bench| b.runtime.calls().iter().any(|call| call.starts_with("StopContainer"));
    bench.until("being stopped", stopping).await;
    first.kill().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.logind.locks(), (1, 1), "the machine waits for the next kubelet");
    bench.api.create(&simple("new", "slow", 0));
    let second = bench.start();
    bench.until("low ended", |b| terminated(b, "low").is_some()).await;
    assert!(
        (19..=22).contains(&seconds_since(&bench, begun)),
        "its grace counts once"
    );
    bench.until("high ended", |b| terminated(b, "high").is_some()).await;
    assert!(
        (29..=32).contains(&seconds_since(&bench, begun)),
        "and so does the shutdown's time"
    );
    let status = bench.api.status("new").expect("a status");
    assert_eq!(status.reason.as_deref(), Some("NodeShutdown"), "it was never started");
    assert_eq!(told(&bench, BEGUN), 1);
    let ended = || record::Record::read(&bench.root_dir().join(record::FILE_NAME)).is_ok_and(|r| r.end_time.is_some());
    bench.until("the end on disk", |_| ended()).await;
    bench.until("the machine may go down", is_released).await;
    second.kill().await;
    // The machine is up again: what had ended stays so, and whoever is new is let in.
    bench.runtime.reboot();
    bench.logind.prepare(false);
    let third = bench.start();
    bench.api.create(&simple("next", "slow", 0));
    bench.until("let in", |b| is_running(b, "next")).await;
    assert!(terminated(&bench, "low").is_some());
    third.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_file_runs_again_once_the_machine_is_up() {
    for is_cut_short in [false, true] {
        let bench = bench();
        let image = if is_cut_short { "deaf:latest" } else { "slow:latest" };
        bench.write_manifest("a.yaml", "static", image);
        let first = bench.start();
        let runs = |b: &Bench| is_running(b, "static-node-a");
        bench.until("ready", runs).await;
        bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
        bench.logind.prepare(true);
        if is_cut_short {
            let stopping = |b: &Bench| b.runtime.calls().iter().any(|call| call.starts_with("StopContainer"));
            bench.until("being stopped", stopping).await;
        } else {
            bench.until("the lock to be let go", is_released).await;
            assert!(bench.runtime.running().is_empty());
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(bench.runtime.running().is_empty(), "it does not come back before that");
        }
        first.kill().await;
        bench.runtime.reboot();
        bench.logind.prepare(false);
        let second = bench.start();
        bench.until("running again", |b| b.runtime.running().len() == 1).await;
        bench.until("told", runs).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(runs(&bench), "and stays");
        second.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_machine_waits_until_the_last_end_is_told_but_not_for_long() {
    for comes_back in [true, false] {
        let bench = bench();
        let kubelet = bench.start();
        bench.api.create(&simple("p", "slow", 0));
        bench.until("ready", |b| is_running(b, "p")).await;
        bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
        bench.api.set_away(true);
        bench.logind.prepare(true);
        let is_over = || kubelet.pods.list().iter().all(|snapshot| !snapshot.active);
        bench.until("ended", |_| is_over()).await;
        let ended = bench.clock.now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!is_released(&bench), "nobody knows of it");
        if comes_back {
            bench.api.set_away(false);
        }
        bench.until("the lock to be let go", is_released).await;
        assert_eq!(terminated(&bench, "p").is_some(), comes_back);
        assert!(seconds_since(&bench, ended) <= 6);
        kubelet.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_logind_that_comes_late_or_anew_gives_its_lock() {
    let bench = bench();
    bench.logind.leave();
    let kubelet = bench.start();
    bench.api.create(&simple("p", "slow", 0));
    bench.until("ready", |b| is_running(b, "p")).await;
    assert_eq!((phase(&kubelet), bench.logind.locks()), (Phase::Up, (0, 0)));
    bench.logind.live(1);
    bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
    bench.logind.live(2);
    bench
        .until("locked by the new one alone", |b| b.logind.locks() == (2, 1))
        .await;
    // It goes in the middle of a shutdown, and what was begun goes on.
    bench.logind.prepare(true);
    bench.until("begun", |b| told(b, BEGUN) == 1).await;
    bench.logind.leave();
    bench.until("the lock to be let go", is_released).await;
    assert!(terminated(&bench, "p").is_some());
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_logind_that_allows_less_is_asked_for_more_and_delayed_all_the_same() {
    let bench = bench();
    bench.logind.be_stubborn();
    let kubelet = bench.start();
    bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.logind.raised(), [Duration::from_secs(30)], "once");
    assert_eq!(bench.logind.locks(), (1, 1));
    // It is the same after a conversation that broke.
    bench.logind.leave();
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.logind.live(1);
    bench.until("locked", |b| b.logind.locks() == (2, 1)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.logind.raised().len(), 1);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_logind_that_hangs_holds_nobody_up() {
    let bench = bench();
    bench.logind.hang();
    let kubelet = bench.start();
    let begun = bench.clock.now();
    bench.api.create(&simple("p", "slow", 0));
    bench.until("ready", |b| is_running(b, "p")).await;
    assert!((10..=20).contains(&seconds_since(&bench, begun)));
    assert_eq!(phase(&kubelet), Phase::Up);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn the_lock_goes_also_while_a_new_logind_hangs() {
    let bench = bench();
    let kubelet = bench.start();
    bench.api.create(&simple("p", "deaf", 0));
    bench.until("ready", |b| is_running(b, "p")).await;
    bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
    bench.logind.prepare(true);
    bench.until("begun", |b| told(b, BEGUN) == 1).await;
    bench.logind.hang();
    bench.logind.live(2);
    bench.until("the lock to be let go", is_released).await;
    assert!(terminated(&bench, "p").is_some());
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_file_runs_again_once_a_shutdown_is_taken_back() {
    for is_restarted in [false, true] {
        let bench = bench();
        bench.write_manifest("a.yaml", "static", "slow:latest");
        let mut kubelet = bench.start();
        let runs = |b: &Bench| is_running(b, "static-node-a");
        bench.until("ready", runs).await;
        bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
        bench.logind.prepare(true);
        bench.until("the lock to be let go", is_released).await;
        assert!(bench.runtime.running().is_empty());
        if is_restarted {
            kubelet.kill().await;
            kubelet = bench.start();
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(bench.runtime.running().is_empty(), "the machine still goes down");
        }
        bench.write_manifest("b.yaml", "late", "slow:latest");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(bench.runtime.running().is_empty(), "nor is another let in");
        bench.logind.prepare(false);
        bench.until("running again", |b| b.runtime.running().len() == 2).await;
        bench.until("told", |b| runs(b) && is_running(b, "late-node-a")).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(runs(&bench) && bench.runtime.running().len() == 2, "and stays");
        assert!(bench.runtime.doubled().is_empty());
        kubelet.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_periods_nobody_asks_logind() {
    let mut bench = bench();
    let before = bench.start();
    bench.until("locked", |b| b.logind.locks() == (1, 1)).await;
    before.kill().await;
    bench.shutdown = Periods::default();
    let kubelet = bench.start();
    bench
        .until("what the kubelet before left is let go of", is_released)
        .await;
    bench.api.create(&simple("p", "slow", 0));
    bench.until("ready", |b| is_running(b, "p")).await;
    bench.logind.prepare(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_running(&bench, "p"));
    assert_eq!((phase(&kubelet), bench.logind.locks()), (Phase::Up, (1, 0)));
    kubelet.kill().await;
}
