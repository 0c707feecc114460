//! `controlplane`: flags, config, start, run until a signal, drain.

mod heap;

use anyhow::Context;
use client::SystemClock;
use controlplane::config::{Config, flags};
use controlplane::daemon::alone::Alone;
use controlplane::daemon::{Daemon, Host};
use controlplane::{backup, kubeconfig_command, migrate, token_command};
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "kubeconfig").is_some() {
        return finish(kubeconfig_command::run(words));
    }
    if words.next_if(|word| word == "backup").is_some() {
        return finish(backup::command::backup(words));
    }
    if words.next_if(|word| word == "restore").is_some() {
        return finish(backup::command::restore(words));
    }
    if words.next_if(|word| word == "migrate").is_some() {
        return finish(migrate::run(words));
    }
    if words.next_if(|word| word == "token").is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime");
        return finish(runtime.and_then(|runtime| runtime.block_on(token_command::run(words))));
    }
    let flags = flags::parse(words);
    if flags.is_set("help") {
        print!("{}", flags::help());
        return ExitCode::SUCCESS;
    }
    if flags.is_set("version") {
        println!("Kubernetes {}", controlplane::apiserver::unstored::git_version());
        return ExitCode::SUCCESS;
    }
    let config = match Config::resolve(&flags) {
        Ok(config) => config,
        Err(mistakes) => {
            for mistake in mistakes {
                eprintln!("Error: {mistake}");
            }
            return ExitCode::FAILURE;
        }
    };
    start_logging(config.verbosity);
    heap::give_back_soon();
    // Most work is waiting: a few threads serve thousands of watches.
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build();
    finish(
        runtime
            .context("cannot start the runtime")
            .and_then(|runtime| runtime.block_on(run(&config))),
    )
}

async fn run(config: &Config) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    let host = Host {
        clock: Arc::new(SystemClock),
        seed: rand::random(),
        hostname: nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        address: own_address(),
        proc: "/proc".into(),
    };
    let terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let failed = match &config.alone {
        Some(alone) => {
            let mut parts = Alone::start(config, alone, host).await?;
            println!("controlplane runs as a client of {}", parts.url);
            let failed = wait(terminate, interrupt, parts.failed()).await;
            parts.stop().await;
            failed
        }
        None => {
            let mut daemon = Daemon::start(config, host).await?;
            println!(
                "controlplane is ready at {} after {} ms; export KUBECONFIG={}",
                daemon.url,
                began.elapsed().as_millis(),
                daemon.admin_kubeconfig.display()
            );
            let failed = wait(terminate, interrupt, daemon.failed()).await;
            daemon.stop().await;
            failed
        }
    };
    anyhow::ensure!(!failed, "a part of the control plane ended by itself");
    Ok(())
}

/// Tells the service manager that everything runs, and waits for a signal (false) or a part's end (true).
async fn wait(mut terminate: Signal, mut interrupt: Signal, failed: impl Future<Output = ()>) -> bool {
    // Without a service manager there is nobody to tell.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let failed = tokio::select! {
        biased;
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
        () = failed => true,
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    failed
}

/// The first address of this machine that is not loopback.
fn own_address() -> IpAddr {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let mut addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        Some(address.as_sockaddr_in()?.ip())
    });
    let found = addresses.find(|address| !address.is_loopback() && !address.is_link_local());
    IpAddr::V4(found.unwrap_or(Ipv4Addr::LOCALHOST))
}

fn start_logging(verbosity: u8) {
    let level = match verbosity {
        0..=3 => "info",
        4..=7 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,controlplane={level},client={level}")));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// The whole chain of an error on one line, and exit code 1.
fn finish(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
