//! The simulation: real pod workers, status writers, API server, controllers and scheduler in one process, over scripted
//! runtimes, a faulty wire and tokio's paused clock. Everything follows from a seed.
//!
//! Each seed runs in a process of its own ([`process`]), so that the same seed is the same run.
//! `SKIFF_SIM_LOG=debug` shows what happens, requests included;
//! `SKIFF_SIM_TRACES=DIRECTORY` keeps each seed's trace;
//! `SKIFF_SIM_SEEDS=7` or `SKIFF_SIM_SEEDS=0..200` chooses the seeds; a failure prints its own.

mod checker;
mod cluster;
mod identity;
mod judge;
mod model;
mod network;
mod planted;
mod process;
mod seeded;
mod store;
mod trace;
mod watcher;
mod workload;

use cluster::{Options, Outcome};
use planted::Planted;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that once failed, each with what it found; they run first, for ever.
const REGRESSIONS: [(u64, &str); 7] = [
    (
        0,
        "a refused deletion was taken for done: a deployment scaled to one kept three pods",
    ),
    (
        6,
        "controllers began before their informers had listed: a restart made a second replica set beside the one there was",
    ),
    (
        32,
        "a cluster was taken to be at rest while a kubelet still waited to tell the API server, which had been away, of a pod's end",
    ),
    (
        66,
        "the judge of rollouts did not know that a deployment made smaller in its middle takes from each set its part",
    ),
    (
        98,
        "a node refused one pod after the other for a taint that was gone, because its watch waited to be resumed",
    ),
    (
        120,
        "the answer to the creation of a replica set got lost, and its own name was taken for another's: a second one came beside it",
    ),
    (
        177,
        "the judge of rollouts did not know that a deployment counts replica sets that a stranger took from it a moment ago",
    ),
];

fn seeds() -> Vec<u64> {
    let text = std::env::var("SKIFF_SIM_SEEDS").unwrap_or_else(|_| "0..200".to_owned());
    let range = match text.split_once("..") {
        Some((from, to)) => from.parse().ok().zip(to.parse().ok()).map(|(from, to)| from..to),
        None => text.parse().ok().map(|seed: u64| seed..seed + 1),
    };
    let range = range.unwrap_or_else(|| panic!("SKIFF_SIM_SEEDS is {text:?}: want N or FROM..TO"));
    REGRESSIONS.iter().map(|(seed, _)| *seed).chain(range).collect()
}

/// Runs every seed, as many at a time as there are cores, and hands each outcome on.
fn run_all(runs: &[Options], mut done: impl FnMut(Options, Result<Outcome, String>) + Send) {
    let scratch = cluster::scratch();
    let next = AtomicU64::new(0);
    let done: Mutex<&mut (dyn FnMut(Options, Result<Outcome, String>) + Send)> = Mutex::new(&mut done);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(options) = runs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let outcome = process::run(*options, scratch.path());
                    done.lock().expect("no holder panics")(*options, outcome);
                }
            });
        }
    });
}

/// Writes a trace where it was asked for.
fn keep_trace(seed: u64, trace: &[String]) {
    if let Ok(directory) = std::env::var("SKIFF_SIM_TRACES") {
        let path = std::path::Path::new(&directory).join(format!("{seed}.trace"));
        std::fs::write(path, trace.join("\n")).expect("the trace is written");
    }
}

/// This test is also what a child process runs, for the one seed it was given.
#[test]
fn every_seed_keeps_every_rule_and_comes_to_rest() {
    if process::was_child() {
        return;
    }
    let seeds = seeds();
    let runs: Vec<Options> = seeds
        .iter()
        .map(|seed| Options {
            seed: *seed,
            planted: None,
            script: None,
        })
        .collect();
    let (mut failures, mut faults) = (Vec::new(), BTreeMap::<String, u64>::new());
    run_all(&runs, |options, outcome| match outcome {
        Ok(outcome) => {
            keep_trace(options.seed, &outcome.trace);
            for (fault, count) in outcome.faults {
                *faults.entry(fault).or_default() += count;
            }
            failures.extend(
                outcome
                    .breaches
                    .iter()
                    .map(|text| format!("seed {}: {text}", options.seed)),
            );
        }
        Err(error) => failures.push(format!("seed {}: {error}", options.seed)),
    });
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

/// Seeds that are run twice.
const REPLAYED: u64 = 20;

#[test]
fn a_seed_runs_the_same_way_twice() {
    let runs: Vec<Options> = (0..REPLAYED)
        .flat_map(|seed| {
            [Options {
                seed,
                planted: None,
                script: None,
            }; 2]
        })
        .collect();
    let mut traces: BTreeMap<u64, Vec<Vec<String>>> = BTreeMap::new();
    run_all(&runs, |options, outcome| {
        let outcome = outcome.unwrap_or_else(|error| panic!("seed {}: {error}", options.seed));
        traces.entry(options.seed).or_default().push(outcome.trace);
    });
    let mut differences = Vec::new();
    for (seed, traces) in &traces {
        let [one, other] = &traces[..] else {
            panic!("two runs of seed {seed}")
        };
        assert!(one.len() > 300, "the trace of seed {seed} has {} lines", one.len());
        let lines = one.len().max(other.len());
        let at = (0..lines).find(|at| one.get(*at) != other.get(*at));
        differences.extend(at.map(|at| {
            let (one, other) = (one.get(at), other.get(at));
            format!("seed {seed}, line {at} of {lines}:\n  {one:?}\n  {other:?}")
        }));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// For each fault of ours, events that bring it to light: a judge finds it where it is planted, and nothing where it is not.
#[test]
fn planted_faults_are_found() {
    let options = |script, planted| Options {
        seed: 1,
        planted,
        script: Some(script),
    };
    let both = |fault| [options(fault, Some(fault)), options(fault, None)];
    let runs: Vec<Options> = Planted::all().flat_map(both).collect();
    let mut wrong = Vec::new();
    run_all(&runs, |options, outcome| {
        let breaches = outcome.map_or_else(|error| vec![error], |outcome| outcome.breaches);
        let name = options.script.map_or("", Planted::name);
        match options.planted {
            None if breaches.is_empty() => {}
            None => wrong.push(format!("{name} is not planted, and yet: {}", breaches.join("\n"))),
            Some(fault) => match breaches.iter().find(|text| text.contains(fault.told_as())) {
                Some(text) => println!("{name}: {text}"),
                None => wrong.push(format!("{name} is planted and not found, but: {}", breaches.join("\n"))),
            },
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Seeds that a planted fault has to be found in.
const SOUGHT: u64 = 12;

/// What seeds make up by themselves comes upon these faults soon.
#[test]
fn seeds_find_planted_faults_by_themselves() {
    let mut missed = Vec::new();
    for planted in [Planted::AlwaysAuthorized, Planted::UnavailableIgnored] {
        let mut told = Vec::new();
        // A few seeds at a time, until one finds it.
        for first in (0..SOUGHT).step_by(2) {
            if !told.is_empty() {
                break;
            }
            let options = |seed| Options {
                seed,
                planted: Some(planted),
                script: None,
            };
            run_all(&[options(first), options(first + 1)], |options, outcome| {
                let breaches = outcome.map_or_else(|error| vec![error], |outcome| outcome.breaches);
                let found = breaches.iter().filter(|text| text.contains(planted.told_as()));
                told.extend(found.map(|text| format!("seed {}: {text}", options.seed)));
            });
        }
        println!("{}: {} times, such as {:?}", planted.name(), told.len(), told.first());
        if told.is_empty() {
            missed.push(planted.name());
        }
    }
    assert!(missed.is_empty(), "planted and not found: {missed:?}");
}
