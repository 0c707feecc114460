//! The simulation: real pod workers, status writers, API server, controllers and scheduler in one process, over scripted
//! runtimes, a faulty wire and tokio's paused clock. Everything follows from a seed.
//!
//! `SKIFF_SIM_LOG=debug` shows what happens, requests included;
//! `SKIFF_SIM_SEEDS=7` or `SKIFF_SIM_SEEDS=0..200` chooses the seeds; a failure prints its own.

mod checker;
mod cluster;
mod identity;
mod network;
mod workload;

use cluster::{Outcome, Simulation};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that once failed, each with what it found; they run first, for ever.
const REGRESSIONS: [(u64, &str); 1] = [(
    0,
    "a refused deletion was taken for done: a deployment scaled to one kept three pods",
)];

fn seeds() -> Vec<u64> {
    let text = std::env::var("SKIFF_SIM_SEEDS").unwrap_or_else(|_| "0..200".to_owned());
    let range = match text.split_once("..") {
        Some((from, to)) => from.parse().ok().zip(to.parse().ok()).map(|(from, to)| from..to),
        None => text.parse().ok().map(|seed: u64| seed..seed + 1),
    };
    let range = range.unwrap_or_else(|| panic!("SKIFF_SIM_SEEDS is {text:?}: want N or FROM..TO"));
    REGRESSIONS.iter().map(|(seed, _)| *seed).chain(range).collect()
}

fn run_one(seed: u64) -> Outcome {
    if let Ok(filter) = std::env::var("SKIFF_SIM_LOG") {
        // A second seed finds it set, which is as good.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .without_time()
            .try_init();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(Simulation::run(seed))
}

/// Runs every seed on as many threads as there are cores; tells failures and the sum of all faults.
fn run_all(seeds: &[u64]) -> (Vec<String>, BTreeMap<String, u64>) {
    let next = AtomicU64::new(0);
    let results: Mutex<(Vec<String>, BTreeMap<String, u64>)> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| run_one(*seed)));
                    let mut results = results.lock().expect("no holder panics");
                    if let Ok(outcome) = &outcome
                        && !outcome.breaches.is_empty()
                    {
                        println!("seed {seed}: {} breaches", outcome.breaches.len());
                    }
                    match outcome {
                        Ok(outcome) => {
                            for (fault, count) in outcome.faults {
                                *results.1.entry(fault).or_default() += count;
                            }
                            results
                                .0
                                .extend(outcome.breaches.iter().map(|text| format!("seed {seed}: {text}")));
                        }
                        Err(_) => results.0.push(format!("seed {seed}: panicked (see above)")),
                    }
                }
            });
        }
    });
    results.into_inner().expect("no holder panicked")
}

#[test]
fn every_seed_keeps_every_rule_and_comes_to_rest() {
    let seeds = seeds();
    let (failures, faults) = run_all(&seeds);
    println!("{} seeds, faults that occurred: {faults:?}", seeds.len());
    assert!(
        failures.is_empty(),
        "{} breaches:\n{}",
        failures.len(),
        failures.join("\n")
    );
    if seeds.len() >= 100 {
        for fault in cluster::FAULTS {
            assert!(
                faults.get(fault).is_some_and(|count| *count > 0),
                "fault {fault} never occurred: it proves nothing"
            );
        }
    }
}
