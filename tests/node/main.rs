//! A real node: `hack/up` in a network namespace and a data directory of the tests' own, driven by kubectl.
//!
//! One cluster serves all cases, which run in the order of [`cases::ALL`]; each removes what it made. The cluster ends
//! with `hack/down --purge`, after which nothing of it may be left: that is the last case. Arguments select cases by a
//! part of their name; `NODE_TEST_KEEP=1` keeps the cluster for a look at it.

mod cases;
mod cluster;
mod command;
mod leftovers;
mod wait;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::cluster::Cluster;

fn main() -> ExitCode {
    // Arguments of the usual test harness have no meaning here.
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let selected: Vec<_> = cases::ALL
        .iter()
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())))
        .collect();
    let cluster = match Cluster::prepare() {
        Ok(cluster) => cluster,
        Err(error) => {
            println!("test prepare ... FAILED\n{error:#}\n\ntest result: FAILED. 0 passed; 1 failed");
            return ExitCode::FAILURE;
        }
    };
    println!("running {} tests", selected.len() + 2);
    let mut outcome = Outcome::default();
    if outcome
        .record("hack_up", || cluster.enter_namespace().and_then(|()| cluster.up()))
        .is_some()
    {
        for (name, case) in selected {
            if outcome.record(name, || case(&cluster)).is_none() {
                cluster.explain();
                // What a failed case has left must not fail the next.
                if let Err(error) = cluster.reset() {
                    println!("--- cleaning up after it: {error:#}");
                }
            }
        }
    }
    if std::env::var_os("NODE_TEST_KEEP").is_some() {
        println!("kept: {}", cluster.describe());
    } else {
        outcome.record("hack_down_leaves_nothing", || cluster.down());
    }
    outcome.report()
}

/// What has passed and failed so far.
#[derive(Default)]
struct Outcome {
    passed: usize,
    failed: Vec<String>,
}

impl Outcome {
    /// Runs one case and prints how it went; a panic is a failure like any other.
    fn record<T>(&mut self, name: &str, case: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        let begin = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(case))
            .unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {}", panic_text(panic.as_ref()))));
        let took = begin.elapsed().as_secs_f64();
        match result {
            Ok(value) => {
                self.passed += 1;
                println!("test {name} ... ok ({took:.1} s)");
                Some(value)
            }
            Err(error) => {
                self.failed.push(name.to_owned());
                println!("test {name} ... FAILED ({took:.1} s)");
                for (depth, cause) in error.chain().enumerate() {
                    println!("{:1$}{cause}", "", 2 * (depth + 1));
                }
                None
            }
        }
    }

    fn report(self) -> ExitCode {
        for name in &self.failed {
            println!("failed: {name}");
        }
        let verdict = if self.failed.is_empty() { "ok" } else { "FAILED" };
        println!(
            "\ntest result: {verdict}. {} passed; {} failed",
            self.passed,
            self.failed.len()
        );
        if self.failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("with something that is no text")
}
