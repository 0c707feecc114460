//! The kubelet: flags, configuration, run until a signal, exit code.

use anyhow::Context;
use client::{beat, memory};
use futures::FutureExt;
use kubelet::config::{self, FlagsEnd};
use kubelet::log::{Format, LogLevel, Logging, Pattern, Verbosity};
use kubelet::network::install;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// By this name the same program is a Service proxy alone.
const KUBE_PROXY: &str = "kube-proxy";
/// How much it says without being told.
const PROXY_VERBOSITY: i64 = 2;
/// The flag by which a kubelet does nothing but take the cluster's network away.
const REMOVE_NETWORK: &str = "remove-cluster-network";
/// Threads for everything that does not block.
const WORKERS: usize = 2;
/// How long a thread that did file work is kept for the next: a little longer than eviction looks apart, so that there is one when no
/// process ids are left.
const FILE_THREAD_KEPT: Duration = Duration::from_secs(12);
/// How long file work under way is waited for at the end.
const FILE_WORK_MAX: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let name = arguments.next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == KUBE_PROXY) {
        return proxy::program::main(arguments, start_log);
    }
    let flags = match config::parse_flags(arguments) {
        Ok(flags) => flags,
        Err(FlagsEnd::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(FlagsEnd::Mistakes(mistakes)) => {
            for mistake in mistakes {
                eprintln!("Error: {mistake}");
            }
            return ExitCode::FAILURE;
        }
    };
    if flags.bool(REMOVE_NETWORK) == Some(true) {
        return remove_network();
    }
    memory::keep_no_caches();
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Begins the log of the program `kube-proxy`.
fn start_log(logging: &proxy::config::Logging) {
    let files = logging.modules.iter();
    let logging = Logging {
        format: if logging.json { Format::Json } else { Format::Text },
        verbosity: Verbosity {
            default: logging.verbosity.unwrap_or(PROXY_VERBOSITY),
            files: files
                .map(|(files, verbosity)| Pattern {
                    files: files.clone(),
                    verbosity: *verbosity,
                })
                .collect(),
        },
    };
    kubelet::log::init(&logging, &LogLevel::new(&logging));
}

/// Takes away what the cluster's network made in the kernel.
fn remove_network() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let removed = match runtime {
        Ok(runtime) => runtime.block_on(kubelet::cluster_network::remove()),
        Err(error) => Err(vec![format!("start the async runtime: {error}")]),
    };
    match removed {
        Ok(()) => ExitCode::SUCCESS,
        Err(failures) => {
            for failure in failures {
                eprintln!("Error: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &config::Flags) -> anyhow::Result<()> {
    for text in flags.deprecations() {
        eprintln!("{text}");
    }
    let mut config = config::load(flags)?;
    if config.paths.cni_plugins.is_none() {
        config.paths.cni_plugins = beside_the_kubelet();
    }
    let level = LogLevel::new(&config.logging);
    kubelet::log::init(&config.logging, &level);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    memory::limit_arenas();
    beat::begin();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_keep_alive(FILE_THREAD_KEPT)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let ended = runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let stopping = stop.clone();
        tokio::spawn(
            async move {
                tokio::select! {
                    biased;
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                tracing::info!("stopping; pods keep running");
                stopping.cancel();
            }
            .boxed(),
        );
        tokio::spawn(memory::give_back().boxed());
        tokio::spawn(memory::forget_start().boxed());
        memory::may_hold();
        kubelet::boot::run(config, level, stop)
            .await
            .map_err(anyhow::Error::from)
    });
    end(runtime, FILE_WORK_MAX);
    ended
}

/// Ends the runtime, and with it the process: a dropped one would wait for file work that hangs, for ever.
fn end(runtime: Runtime, patience: Duration) {
    runtime.shutdown_timeout(patience);
}

/// The plugins' binary as packages put it: in the kubelet's own directory.
fn beside_the_kubelet() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(install::BINARY);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn file_work_that_hangs_does_not_keep_the_process() {
        let runtime = Runtime::new().expect("a runtime");
        let (go_on, hangs) = mpsc::channel::<()>();
        let (begun, is_begun) = mpsc::channel();
        runtime.block_on(async {
            drop(client::blocking::spawn(move || {
                begun.send(()).expect("somebody waits");
                hangs.recv().is_ok()
            }));
        });
        is_begun.recv().expect("it begins");
        end(runtime, Duration::from_millis(1));
        assert!(go_on.send(()).is_ok(), "it hangs still, and this goes on");
    }
}
