//! One seed in a process of its own: what is global to a process (tokio counts its generators, tables are filled on first use)
//! is then part of the seed's run, and not of what ran before it.

use crate::cluster::{Options, Outcome, Simulation};
use crate::planted::Planted;
use crate::seeded;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Says, in a child, what to run: `SEED FAULT SCRIPT`, both the names of faults or `-`.
const RUN: &str = "SKIFF_SIM_RUN";
/// Where a child writes its outcome.
const OUTCOME: &str = "SKIFF_SIM_OUTCOME";
/// The test that runs as a child, too.
const TEST: &str = "every_seed_keeps_every_rule_and_comes_to_rest";
/// A simulation's futures are deep without optimisation.
const STACK_BYTES: usize = 64 << 20;
/// After that time a seed does not end any more: something goes round without letting simulated time pass.
const ENDLESS: Duration = Duration::from_secs(300);
/// How often a running child is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// If this process is a child: runs its seed, and writes the outcome. Returns whether it was.
pub fn was_child() -> bool {
    let (Ok(run), Ok(path)) = (std::env::var(RUN), std::env::var(OUTCOME)) else {
        return false;
    };
    let [seed, planted, script] = run.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{RUN} is {run:?}")
    };
    let options = Options {
        seed: seed.parse().expect("a seed"),
        planted: Planted::named(planted),
        script: Planted::named(script),
    };
    if let Ok(filter) = std::env::var("SKIFF_SIM_LOG") {
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        log.without_time().init();
    }
    let outcome = here(options);
    let text = serde_json::to_vec(&outcome).expect("JSON");
    std::fs::write(path, text).expect("the outcome is written");
    true
}

/// Runs a seed on a fresh thread of this process.
fn here(options: Options) -> Outcome {
    let run = move || {
        seeded::seed_this_thread(options.seed);
        client::blocking::run_on_this_thread();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(Simulation::run(options))
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    thread.expect("a thread").join().expect("the simulation does not panic")
}

/// Runs a seed in a process of its own.
pub fn run(options: Options, scratch: &Path) -> Result<Outcome, String> {
    let path = scratch.join(format!("{}-{:?}", options.seed, std::thread::current().id()));
    let [planted, script] = [options.planted, options.script].map(|fault| fault.map_or("-", Planted::name));
    let shows = std::env::var("SKIFF_SIM_LOG").is_ok();
    let mut child = Command::new(std::env::current_exe().expect("our own path"));
    child
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(RUN, format!("{} {planted} {script}", options.seed))
        .env(OUTCOME, &path)
        .stdout(Stdio::null())
        .stderr(if shows { Stdio::inherit() } else { Stdio::piped() });
    let done = finish(child.spawn().map_err(|error| error.to_string())?)?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let last: Vec<&str> = said.lines().rev().take(20).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        return Err(format!("panicked:\n{}", last.join("\n")));
    }
    let text = std::fs::read(&path).map_err(|error| error.to_string())?;
    // Nobody needs it any more, and the directory goes anyway.
    let _ = std::fs::remove_file(&path);
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Waits for a child, or ends it.
fn finish(mut child: Child) -> Result<Output, String> {
    let begin = Instant::now();
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if begin.elapsed() > ENDLESS {
            child.kill().map_err(|error| error.to_string())?;
            child.wait().map_err(|error| error.to_string())?;
            return Err(format!("still ran after {ENDLESS:?}: it does not come to an end"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    child.wait_with_output().map_err(|error| error.to_string())
}
