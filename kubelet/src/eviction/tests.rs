//! A node that runs short, over a whole kubelet whose machine is a few files.

use super::threshold::{Amount, Condition, Rules, Signal, Threshold};
use crate::kubelet::testing::{Alive, Bench};
use crate::pod::testing::{container, pod};
use crate::runtime::fake::Behaviour;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use proto::api::quantity::Quantity;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const MIB: u64 = 1 << 20;

fn threshold(signal: Signal, amount: &str, grace: u64) -> Threshold {
    Threshold {
        signal,
        amount: Amount::Quantity(Quantity::parse(amount).expect("a quantity")),
        grace: Duration::from_secs(grace),
        reclaim: None,
    }
}

/// A node of 1 GiB with all of it left.
fn node(thresholds: &[Threshold]) -> Bench {
    let mut bench = Bench::new();
    bench.eviction = Rules {
        thresholds: thresholds.to_vec(),
        transition: Duration::from_secs(300),
        grace_seconds_max: 600,
    };
    bench.set_memory_left(1024);
    bench.set_pids_left(900);
    bench
}

fn memory(amount: &str) -> Threshold {
    threshold(Signal::MemoryAvailable, amount, 0)
}

/// A pod of this priority that asked for so much memory; its container is named as it is.
fn asking(name: &str, priority: i32, request: &str) -> Pod {
    let mut made = serde_json::to_value(pod(name).with(container(name)).build()).expect("a pod");
    made["spec"]["nodeName"] = json!("node-a");
    made["spec"]["priority"] = json!(priority);
    let container = &mut made["spec"]["containers"][0];
    container["image"] = json!("img:latest");
    container["imagePullPolicy"] = json!("IfNotPresent");
    if !request.is_empty() {
        container["resources"] = json!({"requests": {"memory": request}});
    }
    serde_json::from_value(made).expect("a pod")
}

fn is_ready(bench: &Bench, name: &str) -> bool {
    let status = bench.api.status(name).unwrap_or_default();
    proto::api::condition::is_true(status.conditions.as_ref(), "Ready")
}

async fn run(bench: &Bench, pods: &[(&str, i32, &str, u64)]) {
    for (name, priority, request, used) in pods {
        bench.runtime.set_memory(name, *used);
        bench.api.create(&asking(name, *priority, request));
    }
    bench
        .until("ready", |b| pods.iter().all(|(name, ..)| is_ready(b, name)))
        .await;
}

fn failed(bench: &Bench, pod: &str, reason: &str) -> Option<PodStatus> {
    let status = bench.api.status(pod)?;
    (status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some(reason)).then_some(status)
}

fn evicted(bench: &Bench, pod: &str) -> Option<PodStatus> {
    failed(bench, pod, "Evicted")
}

fn count(bench: &Bench, reason: &str) -> usize {
    bench.api.events().iter().filter(|(of, _)| of == reason).count()
}

fn pressed(kubelet: &Alive) -> Vec<Condition> {
    kubelet.pressure.borrow().iter().copied().collect()
}

/// For a while in which nothing may happen.
async fn passes(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_short_of_memory_ends_the_pod_that_is_most_beyond_its_request_and_tells_why() {
    let bench = node(&[memory("100Mi")]);
    let kubelet = bench.start();
    let pods = [
        ("modest", 0, "200Mi", 100 * MIB),
        ("hog", 0, "1Mi", 500 * MIB),
        ("greedy", 0, "", 200 * MIB),
        ("vip", 2_000_000_000, "", 900 * MIB),
    ];
    run(&bench, &pods).await;
    assert!(pressed(&kubelet).is_empty());
    bench.set_memory_left(50);
    bench.until("being ended", |b| count(b, "Evicted") > 0).await;
    bench.set_memory_left(600);
    bench.until("evicted", |b| evicted(b, "hog").is_some()).await;
    let status = evicted(&bench, "hog").expect("a status");
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
                   Container hog was using 500Mi, request is 1Mi, has larger consumption of memory. ";
    assert_eq!(status.message.as_deref(), Some(message));
    let conditions = status.conditions.unwrap_or_default();
    let disrupted = conditions.iter().find(|c| c.type_ == "DisruptionTarget").expect("told");
    assert_eq!(
        (
            disrupted.status.as_str(),
            disrupted.reason.as_deref(),
            disrupted.message.as_deref()
        ),
        ("True", Some("TerminationByKubelet"), Some(message))
    );
    let events = bench.api.events();
    let has = |reason: &str, message: &str| events.contains(&(reason.to_owned(), message.to_owned()));
    assert!(
        has("EvictionThresholdMet", "Attempting to reclaim memory") && has("Evicted", message),
        "{events:#?}"
    );
    let annotations =
        json!({"offending_containers": "hog", "offending_containers_usage": "500Mi", "starved_resource": "memory"});
    assert_eq!(bench.api.annotations("Evicted"), [annotations]);
    assert!(kubelet.tells(r#"kubelet_evictions{eviction_signal="memory.available"} 1"#));
    assert!(kubelet.tells(r#"kubelet_eviction_stats_age_seconds_count{eviction_signal="memory.available"} 1"#));
    assert_eq!(pressed(&kubelet), [Condition::Memory]);
    passes(280).await;
    assert_eq!(pressed(&kubelet), [Condition::Memory], "for the transition period");
    passes(40).await;
    assert!(pressed(&kubelet).is_empty());
    assert!(["modest", "greedy", "vip"].iter().all(|pod| is_ready(&bench, pod)));
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn one_pod_goes_at_a_time_in_order_and_what_is_critical_never() {
    let bench = node(&[memory("100Mi")]);
    bench.runtime.set_latency("StopContainer", Duration::from_secs(12));
    bench.write_manifest("web.json", "web", "img:latest");
    let kubelet = bench.start();
    let pods = [
        ("low", -1, "", 10 * MIB),
        ("large", 0, "", 300 * MIB),
        ("small", 0, "", 100 * MIB),
        ("vip", 2_000_000_000, "", 900 * MIB),
    ];
    run(&bench, &pods).await;
    bench
        .until("the static pod runs", |b| b.runtime.running().len() == 5)
        .await;
    bench.set_memory_left(50);
    for (gone, next) in [("low", "large"), ("large", "small")] {
        bench.until("evicted", |b| evicted(b, gone).is_some()).await;
        assert!(is_ready(&bench, next), "{next} must wait for {gone}");
    }
    bench.until("evicted", |b| evicted(b, "small").is_some()).await;
    passes(300).await;
    assert_eq!(count(&bench, "Evicted"), 3);
    assert_eq!(
        bench.runtime.running().len(),
        2,
        "the static and the critical pod go on"
    );
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_go_holds_up_the_next_for_half_a_minute_only() {
    let bench = node(&[memory("100Mi")]);
    let kubelet = bench.start();
    run(&bench, &[("a", 0, "", 300 * MIB), ("b", 0, "", 100 * MIB)]).await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(1000));
    bench.set_memory_left(50);
    bench.until("the first is told", |b| count(b, "Evicted") == 1).await;
    let first = Instant::now();
    bench.until("the second is told", |b| count(b, "Evicted") == 2).await;
    let between = first.elapsed().as_secs();
    assert!((29..=42).contains(&between), "{between}");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_soft_threshold_waits_gives_the_pods_grace_and_a_hard_one_overrides_it_at_once() {
    let bench = node(&[memory("100Mi"), threshold(Signal::MemoryAvailable, "500Mi", 60)]);
    // Its containers end when they are killed, not before.
    bench.runtime.script_image("img:latest", Behaviour::default());
    let kubelet = bench.start();
    run(&bench, &[("a", 0, "", 300 * MIB), ("b", 0, "", 100 * MIB)]).await;
    bench.set_memory_left(400);
    bench.until("pressure", |_| !pressed(&kubelet).is_empty()).await;
    passes(50).await;
    assert_eq!(count(&bench, "Evicted"), 0, "the grace is not over");
    bench.until("told", |b| count(b, "Evicted") == 1).await;
    passes(5).await;
    assert!(evicted(&bench, "a").is_none(), "it may take its time");
    bench.set_memory_left(50);
    let hurried = Instant::now();
    bench.until("hurried", |b| evicted(b, "a").is_some()).await;
    assert!(hurried.elapsed() < Duration::from_secs(12), "{:?}", hurried.elapsed());
    let message = evicted(&bench, "a")
        .and_then(|status| status.message)
        .unwrap_or_default();
    assert!(
        message.contains("Threshold quantity: 500Mi, available: 400Mi."),
        "{message}"
    );
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_slowly_and_goes_on_writing_is_hurried_once_it_outgrows_its_limit() {
    let bench = node(&[threshold(Signal::MemoryAvailable, "500Mi", 10)]);
    bench.runtime.script_image("img:latest", Behaviour::default());
    let kubelet = bench.start();
    let mut writer = serde_json::to_value(asking("a", 0, "")).expect("a pod");
    writer["spec"]["terminationGracePeriodSeconds"] = json!(3600);
    writer["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": "64Ki"}}]);
    writer["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    bench.runtime.set_memory("a", 300 * MIB);
    bench.api.create(&serde_json::from_value(writer).expect("a pod"));
    bench.until("ready", |b| is_ready(b, "a")).await;
    bench.set_memory_left(400);
    bench.until("told", |b| count(b, "Evicted") == 1).await;
    passes(60).await;
    assert!(evicted(&bench, "a").is_none(), "it has ten minutes");
    let file = bench.volume_path("a", "kubernetes.io~empty-dir/v/file");
    std::fs::write(file, vec![7; 300_000]).expect("written");
    let begun = Instant::now();
    bench.until("over", |b| evicted(b, "a").is_some()).await;
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let message = evicted(&bench, "a").and_then(|status| status.message);
    let message = message.unwrap_or_default();
    assert!(
        message.starts_with("The node was low on resource: memory. "),
        "{message}"
    );
    assert!(!kubelet.tells("emptydirfs"), "it is one eviction");
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_for_the_nodes_sake_goes_on_after_a_kill_of_the_kubelet_though_the_node_recovered() {
    let bench = node(&[memory("100Mi")]);
    let first = bench.start();
    run(&bench, &[("a", 0, "", 300 * MIB)]).await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(100));
    bench.set_memory_left(50);
    bench
        .until("being stopped", |b| {
            b.runtime.calls().iter().any(|call| call.starts_with("StopContainer"))
        })
        .await;
    first.kill().await;
    bench.set_memory_left(1000);
    bench.runtime.set_latency("StopContainer", Duration::ZERO);
    let second = bench.start();
    bench.until("evicted", |b| evicted(b, "a").is_some()).await;
    let message = evicted(&bench, "a")
        .and_then(|status| status.message)
        .unwrap_or_default();
    assert!(
        message.starts_with("The node was low on resource: memory. "),
        "{message}"
    );
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_short_of_memory_takes_no_best_effort_pod_and_one_short_of_process_ids_only_critical_ones() {
    let bench = node(&[memory("100Mi"), threshold(Signal::PidAvailable, "100", 0)]);
    let kubelet = bench.start();
    run(&bench, &[("vip", 2_000_000_000, "", 1)]).await;
    bench.set_memory_left(50);
    bench
        .until("pressure", |_| pressed(&kubelet) == [Condition::Memory])
        .await;
    bench.set_memory_left(1000);
    bench.api.create(&asking("best-effort", 0, ""));
    bench.api.create(&asking("burstable", 0, "1Mi"));
    let mut tolerant = asking("tolerant", 0, "");
    let toleration =
        json!([{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]);
    if let Some(spec) = tolerant.spec.as_mut() {
        spec.tolerations = serde_json::from_value(toleration).expect("a toleration");
    }
    bench.api.create(&tolerant);
    bench.until("refused", |b| evicted(b, "best-effort").is_some()).await;
    let message = evicted(&bench, "best-effort").and_then(|status| status.message);
    assert_eq!(
        message.as_deref(),
        Some("Pod was rejected: The node had condition: [MemoryPressure]. ")
    );
    bench
        .until("let in", |b| is_ready(b, "burstable") && is_ready(b, "tolerant"))
        .await;
    assert!(kubelet.tells(r#"kubelet_admission_rejections_total{reason="Evicted"} 1"#));

    bench.set_pids_left(50);
    bench
        .until("pressure", |_| pressed(&kubelet).contains(&Condition::Pid))
        .await;
    bench.set_pids_left(900);
    bench.api.create(&asking("late", 0, "1Mi"));
    bench.api.create(&asking("vip-too", 2_000_000_000, ""));
    bench.until("refused", |b| evicted(b, "late").is_some()).await;
    let message = evicted(&bench, "late").and_then(|status| status.message);
    assert_eq!(
        message.as_deref(),
        Some("Pod was rejected: The node had condition: [MemoryPressure PIDPressure]. ")
    );
    bench.until("let in", |b| is_ready(b, "vip-too")).await;
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_fast_hog_is_seen_long_before_the_next_turn() {
    let bench = node(&[memory("100Mi")]);
    let kubelet = bench.start();
    run(&bench, &[("hog", 0, "", 300 * MIB)]).await;
    // Just after a turn, whenever that was.
    passes(25).await;
    let begun = Instant::now();
    bench.set_memory_left(50);
    bench.until("told", |b| count(b, "Evicted") == 1).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    kubelet.kill().await;
}

fn critical(name: &str, cpu: &str) -> Pod {
    let mut made: Value = serde_json::to_value(asking(name, 2_000_000_000, "")).expect("a pod");
    made["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    serde_json::from_value(made).expect("a pod")
}

fn one_cpu() -> Bench {
    let mut bench = node(&[]);
    for (name, amount) in [("cpu", "1"), ("pods", "10")] {
        let amount = Quantity::parse(amount).expect("a quantity");
        bench.allocatable.insert(name.to_owned(), amount);
    }
    bench
}

fn plain(name: &str, cpu: &str) -> Pod {
    let mut pod = critical(name, cpu);
    if let Some(spec) = pod.spec.as_mut() {
        spec.priority = Some(0);
    }
    pod
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_without_room_takes_the_place_of_as_few_as_can_be() {
    let bench = one_cpu();
    let kubelet = bench.start();
    bench.api.create(&plain("small", "200m"));
    bench.api.create(&plain("large", "700m"));
    bench
        .until("ready", |b| is_ready(b, "small") && is_ready(b, "large"))
        .await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(5));
    bench.api.create(&critical("vip", "600m"));
    bench.until("being ended", |b| count(b, "Preempting") == 1).await;
    // Somebody who would fit if the critical pod did not hold its room already.
    bench.api.create(&plain("thief", "100m"));
    bench
        .until("refused", |b| failed(b, "thief", "OutOfcpu").is_some())
        .await;
    assert!(
        bench
            .api
            .status("vip")
            .is_none_or(|status| status.phase.as_deref() != Some("Failed"))
    );
    bench.until("the critical pod runs", |b| is_ready(b, "vip")).await;
    let status = failed(&bench, "large", "Preempting").expect("a status");
    assert_eq!(
        status.message.as_deref(),
        Some("Preempted in order to admit critical pod")
    );
    let conditions = status.conditions.unwrap_or_default();
    let disrupted = conditions.iter().find(|c| c.type_ == "DisruptionTarget").expect("told");
    assert_eq!(disrupted.reason.as_deref(), Some("TerminationByKubelet"));
    let told = (
        "Preempting".to_owned(),
        "Preempted in order to admit critical pod".to_owned(),
    );
    assert!(bench.api.events().contains(&told));
    assert!(is_ready(&bench, "small"));
    assert!(kubelet.tells(r#"kubelet_preemptions{preemption_signal="cpu"} 1"#));
    kubelet.kill().await;
}

/// A pod that takes an hour to end.
fn slow(bench: &Bench, cpu: &str) -> Pod {
    bench.runtime.add_image("stubborn:latest");
    bench.runtime.script_image("stubborn:latest", Behaviour::default());
    let mut pod = plain("slow", cpu);
    let spec = pod.spec.as_mut().expect("spec");
    spec.termination_grace_period_seconds = Some(3600);
    spec.containers[0].image = Some("stubborn:latest".into());
    pod
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_waits_for_those_deleted_ones_alone_whose_room_it_needs() {
    let bench = one_cpu();
    let kubelet = bench.start();
    bench.api.create(&slow(&bench, "100m"));
    bench.api.create(&plain("quick", "800m"));
    bench
        .until("ready", |b| is_ready(b, "slow") && is_ready(b, "quick"))
        .await;
    bench.api.remove("slow");
    bench.api.remove("quick");
    bench.api.create(&critical("vip", "800m"));
    let waiting = "waiting up to 45s for pods that end: quick_ns";
    let told = |b: &Bench| b.api.events().iter().any(|(_, text)| text.contains(waiting));
    bench.until("told", told).await;
    bench.until("the critical pod runs", |b| is_ready(b, "vip")).await;
    assert_eq!((bench.running("slow"), bench.running("quick")), (1, 0));
    assert_eq!(count(&bench, "Preempting"), 0);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_starts_as_soon_as_there_is_room_whoever_left_it() {
    let bench = one_cpu();
    let kubelet = bench.start();
    bench.api.create(&slow(&bench, "800m"));
    let mut other = plain("other", "200m");
    other.spec.as_mut().expect("spec").priority = Some(2_000_000_000);
    bench.api.create(&other);
    bench
        .until("ready", |b| is_ready(b, "slow") && is_ready(b, "other"))
        .await;
    bench.api.create(&critical("vip", "200m"));
    bench.until("being ended", |b| count(b, "Preempting") == 1).await;
    bench.api.delete("other", 1, bench.clock.now());
    bench.until("the critical pod runs", |b| is_ready(b, "vip")).await;
    assert_eq!(bench.running("slow"), 1);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_goes_for_a_critical_pod_that_would_not_fit_or_is_refused_anyway() {
    let bench = one_cpu();
    let kubelet = bench.start();
    bench.api.create(&plain("small", "200m"));
    bench.until("ready", |b| is_ready(b, "small")).await;
    bench.api.create(&critical("vip", "1100m"));
    bench
        .until("refused", |b| failed(b, "vip", "UnexpectedAdmissionError").is_some())
        .await;
    let message = failed(&bench, "vip", "UnexpectedAdmissionError").and_then(|status| status.message);
    assert_eq!(
        message.as_deref(),
        Some(
            "Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: error finding a set \
             of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 100), ]"
        )
    );
    let mut elsewhere = critical("elsewhere", "900m");
    if let Some(spec) = elsewhere.spec.as_mut() {
        spec.node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into());
    }
    bench.api.create(&elsewhere);
    bench
        .until("refused", |b| failed(b, "elsewhere", "NodeAffinity").is_some())
        .await;
    assert!(is_ready(&bench, "small") && count(&bench, "Preempting") == 0);
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_that_is_taken_back_gives_its_room_up() {
    let bench = one_cpu();
    let kubelet = bench.start();
    bench.api.create(&plain("large", "700m"));
    bench.until("ready", |b| is_ready(b, "large")).await;
    bench.runtime.set_latency("StopContainer", Duration::from_secs(5));
    bench.api.create(&critical("vip", "1"));
    bench.until("being ended", |b| count(b, "Preempting") == 1).await;
    bench.api.remove("vip");
    bench
        .until("gone", |b| failed(b, "large", "Preempting").is_some())
        .await;
    bench.api.create(&plain("next", "1"));
    bench.until("the room is free", |b| is_ready(b, "next")).await;
    kubelet.kill().await;
}
