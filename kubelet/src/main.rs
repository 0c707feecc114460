//! The kubelet: flags, configuration, run until a signal, exit code.

use anyhow::Context;
use client::memory;
use kubelet::config::{self, FlagsEnd};
use kubelet::network::install;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Threads for everything that does not block.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let flags = match config::parse_flags(std::env::args().skip(1)) {
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
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
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
    kubelet::log::init(&config.logging);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    memory::limit_arenas();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let stopping = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping; pods keep running");
            stopping.cancel();
        });
        tokio::spawn(memory::give_back());
        kubelet::boot::run(config, stop).await.map_err(anyhow::Error::from)
    })
}

/// The plugins' binary as packages put it: in the kubelet's own directory.
fn beside_the_kubelet() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(install::BINARY);
    path.is_file().then_some(path)
}
