//! `storebench`: compares engines for the control plane's store. Every measurement is a process of its own, so that memory and
//! a kill -9 are real. Run by `hack/bench store`.

mod engine;
mod measure;
mod sync;
mod workload;

use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Objects in the store that is killed.
const OBJECTS: &str = "100000";

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["writers", name, directory, writers, delay_ms, seconds] => workload::writers(
            name,
            Path::new(directory),
            writers.parse()?,
            Duration::from_millis(delay_ms.parse()?),
            Duration::from_secs(seconds.parse()?),
        ),
        ["until-killed", name, directory, count] => workload::until_killed(name, Path::new(directory), count.parse()?),
        ["reopen", name, directory, count] => workload::reopen(name, Path::new(directory), count.parse()?),
        ["churn", name, directory, count, updates] => {
            workload::churn(name, Path::new(directory), count.parse()?, updates.parse()?)
        }
        ["compare", directory, names @ ..] => compare(Path::new(directory), names),
        _ => anyhow::bail!(
            "usage: storebench compare DIRECTORY [ENGINE...]; engines: {}",
            engine::NAMES.join(", ")
        ),
    }
}

fn compare(directory: &Path, names: &[&str]) -> anyhow::Result<()> {
    let names = if names.is_empty() { &engine::NAMES[..] } else { names };
    let place = |name: &str| directory.join(name);
    for (writers, delay_ms) in [("1", "0"), ("100", "0"), ("1", "5"), ("100", "5")] {
        println!("\n{writers} concurrent writers, {delay_ms} ms added to each fsync, 10,000 objects of 1 kB:");
        for name in names {
            run(name, &["writers", name], &place(name), &[writers, delay_ms, "3"])?;
        }
    }
    println!("\nreopened after kill -9 with {OBJECTS} objects, everything read into memory:");
    for name in names {
        kill(name, &place(name))?;
        run(name, &["reopen", name], &place(name), &[OBJECTS])?;
    }
    println!("\n1,000,000 updates of 10,000 objects, 100 to a commit:");
    for name in names {
        run(name, &["churn", name], &place(name), &["10000", "1000000"])?;
    }
    Ok(())
}

fn child(words: &[&str], directory: &Path, more: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).arg(directory).args(more);
    Ok(command)
}

/// Runs one measurement; on an empty directory unless it is one of what a kill left.
fn run(name: &str, words: &[&str], directory: &PathBuf, more: &[&str]) -> anyhow::Result<()> {
    if words[0] != "reopen" {
        clear(directory)?;
    }
    let output = child(words, directory, more)?.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{name}: {}", output.status);
    print!("  {name:<11} {}", String::from_utf8_lossy(&output.stdout));
    clear(directory)
}

fn clear(directory: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Kills a process with -9 while it writes.
fn kill(name: &str, directory: &Path) -> anyhow::Result<()> {
    clear(directory)?;
    let mut child = child(&["until-killed", name], directory, &[OBJECTS])?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    ensure!(
        lines.next().transpose()?.as_deref() == Some("filled"),
        "{name} did not fill"
    );
    // A while of writing, so that the kill hits a commit.
    std::thread::sleep(Duration::from_millis(700));
    child.kill()?;
    child.wait()?;
    Ok(())
}
