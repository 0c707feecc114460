//! A resize the node does not make changes nothing of it, over a whole kubelet.

use super::*;
use crate::allocation::PodResources;
use crate::kubelet::testing::Alive;
use crate::pinning::memory::reserve::Reservation;
use crate::pinning::topology::testing::TWO;
use crate::pinning::{CpuRules, Rules};
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use proto::api::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A node of twelve CPUs and 30 GiB; with the static policies by the seed.
fn node(seed: u64) -> Bench {
    let mut bench = Bench::seeded(seed);
    for (name, amount) in [("cpu", "11"), ("memory", "27Gi")] {
        let amount = Quantity::of(&Text(amount.into()));
        bench.allocatable.insert(name.to_owned(), amount);
    }
    let reserved = || Reservation {
        node: 0,
        limits: [("memory".to_owned(), Quantity::parse("3Gi").expect("a quantity"))].into(),
    };
    let rules = Rules {
        cpu: (seed & 1 != 0).then(|| CpuRules {
            options: Default::default(),
            reserved_milli: 1000,
        }),
        memory: (seed & 2 != 0).then(|| vec![reserved()]),
        ..Rules::default()
    };
    bench.pinning = Some((rules, TWO.topology()));
    bench
}

/// What a container asks for: whole CPUs to itself, parts of them for certain, or some with more as its limit.
fn resources(rng: &mut StdRng, kind: usize) -> Value {
    let (whole, parts) = (rng.random_range(1..9), rng.random_range(1..90) * 100 + 50);
    let memory = rng.random_range(1..14);
    let list = |cpu: String, memory: i64| json!({"cpu": cpu, "memory": format!("{memory}Gi")});
    let (requests, limits) = match kind {
        0 => (list(whole.to_string(), memory), list(whole.to_string(), memory)),
        1 => (list(format!("{parts}m"), memory), list(format!("{parts}m"), memory)),
        _ => (list(format!("{parts}m"), memory), list("20".to_owned(), memory + 1)),
    };
    json!({"requests": requests, "limits": limits})
}

fn sized(name: &str, resources: &Value) -> Pod {
    let mut pod = serde_json::to_value(simple(name)).expect("a pod");
    pod["metadata"]["generation"] = json!(1);
    pod["spec"]["containers"][0]["name"] = json!(name);
    pod["spec"]["containers"][0]["resources"] = resources.clone();
    serde_json::from_value(pod).expect("a pod")
}

fn resize(bench: &Bench, name: &str, generation: i64, resources: &Value) {
    bench.api.edit(name, |pod| {
        pod["metadata"]["generation"] = json!(generation);
        pod["spec"]["containers"][0]["resources"] = resources.clone();
    });
}

fn pending(bench: &Bench, name: &str) -> Option<PodCondition> {
    let conditions = bench.api.status(name)?.conditions?;
    conditions.into_iter().find(|c| c.type_ == "PodResizePending")
}

fn given(kubelet: &Alive, name: &str) -> Option<PodResources> {
    let snapshot = kubelet.parts.pods.by_uid(&name.into())?;
    Some(PodResources::of(&snapshot.pod))
}

/// All that a resize may change: what pods have been given, by which their cgroups are made, what the runtime was asked to do and has its
/// containers run with, and every file the next kubelet reads.
fn state(bench: &Bench, kubelet: &Alive, names: &[String]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for name in names {
        all.insert(format!("given {name}"), format!("{:?}", given(kubelet, name)));
        let config = bench.runtime.container_config(name);
        all.insert(
            format!("config {name}"),
            format!("{:?}", config.map(|config| config.linux)),
        );
    }
    let looks = [
        "List",
        "Version",
        "Status",
        "Get",
        "ImageStatus",
        "ImageFs",
        "RuntimeConfig",
    ];
    let does = |call: &String| looks.iter().all(|look| !call.starts_with(look)) && !call.contains("Status");
    let calls: Vec<String> = bench.runtime.calls().into_iter().filter(does).collect();
    all.insert("calls".to_owned(), calls.join("\n"));
    let data = bench.manifests().with_file_name("kubelet");
    for file in [
        "cpu_manager_state",
        "memory_manager_state",
        "allocated_pods_state",
        "actuated_pods_state",
    ] {
        let text = std::fs::read_to_string(data.join(file)).unwrap_or_default();
        all.insert(file.to_owned(), text);
    }
    all
}

/// Resizes pods at random; counts the answers.
async fn resizes(seed: u64, answers: &mut BTreeMap<String, u32>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = node(seed);
    let kubelet = bench.start();
    let mut pods: Vec<(String, usize, Value)> = Vec::new();
    for number in 0..4 {
        let (name, kind) = (format!("p{number}"), rng.random_range(0..3));
        let wanted = resources(&mut rng, kind);
        bench.api.create(&sized(&name, &wanted));
        let is_failed = |b: &Bench| {
            let status = b.api.status(&name).unwrap_or_default();
            status.phase.as_deref() == Some("Failed")
        };
        bench.until("judged", |b| is_ready(b, &name) || is_failed(b)).await;
        if !is_failed(&bench) {
            pods.push((name, kind, wanted));
        }
    }
    let names: Vec<String> = pods.iter().map(|(name, ..)| name.clone()).collect();
    let settle = || tokio::time::sleep(Duration::from_secs(30));
    let mut generation = 1;
    for _ in 0..8 {
        let which = rng.random_range(0..pods.len());
        let (name, kind, has) = pods[which].clone();
        settle().await;
        let before = state(&bench, &kubelet, &names);
        let wanted = resources(&mut rng, kind);
        generation += 1;
        resize(&bench, &name, generation, &wanted);
        let waits = |b: &Bench| pending(b, &name).filter(|c| c.observed_generation == Some(generation));
        let is_given = || given(&kubelet, &name) == Some(PodResources::of(&sized(&name, &wanted)));
        bench.until("answered", |b| waits(b).is_some() || is_given()).await;
        settle().await;
        let Some(pending) = waits(&bench) else {
            *answers.entry("made".to_owned()).or_default() += 1;
            pods[which].2 = wanted;
            continue;
        };
        let reason = pending.reason.unwrap_or_default();
        for (what, was) in &before {
            let is = state(&bench, &kubelet, &names);
            assert_eq!(
                is.get(what),
                Some(was),
                "seed {seed}: {what} of a resize of {name} that is {reason}"
            );
        }
        *answers.entry(reason).or_default() += 1;
        // Taken back, so that the next one is judged alone.
        generation += 1;
        resize(&bench, &name, generation, &has);
        bench.until("taken back", |b| self::pending(b, &name).is_none()).await;
    }
    kubelet.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_impossible_resize_changes_nothing() {
    let mut answers = BTreeMap::new();
    for seed in 0..16 {
        resizes(seed, &mut answers).await;
    }
    // A run in which one of them never came proves nothing.
    for answer in ["made", "Deferred", "Infeasible"] {
        assert!(answers.get(answer).is_some_and(|times| *times >= 5), "{answers:?}");
    }
}
