//! One seed in a process of its own: what is global to a process (tokio counts its generators, tables are filled on first use)
//! is then part of the seed's run, and not of what ran before it.

use crate::cluster::{Options, Outcome, Simulation};
use crate::planted::Planted;
use crate::seeded;
use nix::unistd::{SysconfVar, sysconf};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says, in a child, what to run: `SEED FAULT SCRIPT`, both the names of faults or `-`.
const RUN: &str = "SKIFF_SIM_RUN";
/// Where a child writes its outcome.
const OUTCOME: &str = "SKIFF_SIM_OUTCOME";
/// The test that runs as a child, too.
const TEST: &str = "every_seed_keeps_every_rule_and_comes_to_rest";
/// A simulation's futures are deep without optimisation.
const STACK_BYTES: usize = 64 << 20;
/// When a child does not come to an end any more.
struct Limits {
    /// After so much CPU time something goes round without letting simulated time pass. A busy machine does not use it up.
    cpu: Duration,
    /// After so long without any CPU time it waits for what does not come.
    idle: Duration,
}

const LIMITS: Limits = Limits {
    cpu: Duration::from_secs(300),
    idle: Duration::from_secs(300),
};
/// Of what a child says, as much is looked at for its last lines.
const TAIL_BYTES: u64 = 16 << 10;
/// How many of them stand in an error.
const TAIL_LINES: usize = 20;
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
    let said = path.with_extension("stderr");
    let [planted, script] = [options.planted, options.script].map(|fault| fault.map_or("-", Planted::name));
    let mut child = Command::new(std::env::current_exe().expect("our own path"));
    child
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(RUN, format!("{} {planted} {script}", options.seed))
        .env(OUTCOME, &path)
        .stdout(Stdio::null());
    if std::env::var("SKIFF_SIM_LOG").is_err() {
        // A file takes as much as a child says, and nobody needs to read along.
        child.stderr(File::create(&said).map_err(|error| error.to_string())?);
    }
    let outcome = finish(&mut child, &LIMITS).and_then(|()| {
        let text = std::fs::read(&path).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    });
    let outcome = outcome.map_err(|error| with_tail(error, &said));
    // Nobody needs them any more, and the directory goes anyway.
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_file(&said);
    outcome
}

/// Runs a child until it ends, or ends it; an error unless it succeeds.
fn finish(command: &mut Command, limits: &Limits) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (mut used, mut since) = (Duration::ZERO, Instant::now());
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return if status.success() {
                Ok(())
            } else {
                Err(format!("panicked ({status})"))
            };
        }
        let now_used = cpu_time(&child).map_err(|error| error.to_string())?;
        if now_used > used {
            (used, since) = (now_used, Instant::now());
        }
        let endless = if used > limits.cpu {
            Some(format!(
                "still ran after {used:?} of CPU time: it does not come to an end"
            ))
        } else if since.elapsed() > limits.idle {
            Some(format!("did nothing for {:?}: it does not come to an end", limits.idle))
        } else {
            None
        };
        if let Some(error) = endless {
            child.kill().map_err(|error| error.to_string())?;
            child.wait().map_err(|error| error.to_string())?;
            return Err(error);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The CPU time that all threads of a child have used, in user and kernel mode (proc_pid_stat(5), fields 14 and 15).
fn cpu_time(child: &Child) -> io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    // The program's name is in parentheses, and may hold anything.
    let (_, fields) = stat.rsplit_once(')').ok_or(io::ErrorKind::InvalidData)?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    let per_second = sysconf(SysconfVar::CLK_TCK)?.ok_or(io::ErrorKind::Unsupported)?;
    Ok(Duration::from_secs(ticks) / u32::try_from(per_second).map_err(io::Error::other)?)
}

/// An error with the last lines of what a child said.
fn with_tail(error: String, said: &Path) -> String {
    let tail = || -> io::Result<String> {
        let mut file = File::open(said)?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    };
    let tail = match tail() {
        // What it said went where ours goes.
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return error,
        Err(unread) => unread.to_string(),
        Ok(tail) => tail,
    };
    let lines: Vec<&str> = tail.lines().collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("{error}:\n{}", last.join("\n"))
}

/// Runs a shell script as a child, and returns its error with what it said last.
#[cfg(test)]
fn error_of(script: &str, limits: &Limits) -> String {
    let scratch = tempfile::tempdir().expect("a directory");
    let said = scratch.path().join("said.stderr");
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).stderr(File::create(&said).expect("a file"));
    let error = finish(&mut shell, limits).expect_err("it fails");
    with_tail(error, &said)
}

#[test]
fn a_child_may_say_more_than_a_pipe_holds() {
    let much = "i=0; while [ $i -lt 20000 ]; do echo \"line $i\"; i=$((i + 1)); done >&2; exit 1";
    let error = error_of(much, &LIMITS);
    let expected: Vec<String> = (19_980..20_000).map(|line| format!("line {line}")).collect();
    assert!(error.starts_with("panicked"), "{error}");
    assert!(error.ends_with(&format!(":\n{}", expected.join("\n"))), "{error}");
}

#[test]
fn a_child_that_does_not_end_is_ended_and_its_last_words_are_told() {
    let rounds = Limits {
        cpu: Duration::from_millis(50),
        ..LIMITS
    };
    let error = error_of("echo round >&2; while :; do :; done", &rounds);
    assert!(error.contains("of CPU time") && error.ends_with(":\nround"), "{error}");
    let waits = Limits {
        idle: Duration::from_millis(200),
        ..LIMITS
    };
    let error = error_of("echo waits >&2; exec sleep 600", &waits);
    assert!(error.contains("did nothing") && error.ends_with(":\nwaits"), "{error}");
}
