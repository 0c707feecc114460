//! The program `kube-proxy`: flags, configuration, credentials, informers, run until a signal.

mod events;

use crate::apply;
use crate::config::{self, Config, Logging, VERSION};
use crate::conntrack::switches;
use crate::flags::{self, Flags, FlagsEnd};
use crate::node_ports;
use crate::run::Sources;
use crate::serve::{self, Informers};
use client::connect::{self, ConnectError};
use client::informer::Options;
use client::{AsTree, Informer};
use kube::Api;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Threads for everything that does not block.
const WORKERS: usize = 2;
/// How long blocking work under way is waited for at the end.
const WORK_MAX: Duration = Duration::from_secs(5);
/// How often the configuration file is looked at.
const FILE_EVERY: Duration = Duration::from_secs(10);
/// What is left to other proxies and to DNS.
const OURS: &str = "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless";

/// Why the program ended badly.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    #[error("write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("remove the rules")]
    Cleanup(#[source] netlink::nft::Error),
    #[error("give back node ports that were reserved: {0}")]
    Reserved(String),
    #[error("start the async runtime")]
    Runtime(#[source] io::Error),
    #[error("listen for signals")]
    Signals(#[source] io::Error),
    #[error("read the host's name")]
    Hostname(#[source] io::Error),
    #[error("empty hostname is invalid")]
    EmptyHostname,
    #[error("--master {0:?} is no address of a server")]
    Master(String),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Proxy(#[from] serve::Error),
    #[error("content of the proxy server's configuration file was updated")]
    FileChanged,
}

/// Runs the program with its arguments (without its name). `start_log` begins the log as the configuration asks for.
pub fn main(arguments: impl IntoIterator<Item = String>, start_log: impl FnOnce(&Logging)) -> ExitCode {
    let flags = match flags::parse(arguments) {
        Ok(flags) => flags,
        Err(FlagsEnd::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(FlagsEnd::Mistakes(mistakes)) => {
            mistakes.iter().for_each(|mistake| eprintln!("Error: {mistake}"));
            return ExitCode::FAILURE;
        }
    };
    match run(&flags, start_log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", chain(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}

fn run(flags: &Flags, start_log: impl FnOnce(&Logging)) -> Result<(), Error> {
    flags.deprecations.iter().for_each(|text| eprintln!("{text}"));
    let config = config::load(flags)?;
    start_log(&config.logging);
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let given = |flag| flags.text(flag).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = given("write-config-to") {
        let written = std::fs::write(&path, config::written(&config));
        return written.map_err(|source| Error::Write { path, source });
    }
    if flags.bool("cleanup") {
        let reserved = node_ports::remove().map_err(Error::Reserved);
        return apply::remove().map_err(Error::Cleanup).and(reserved);
    }
    if flags.bool("init-only") {
        let failed = switches::set(&config.conntrack).into_iter();
        let failed = failed.chain(node_ports::keep(config.reserve_node_ports.as_ref()));
        failed.for_each(|why| tracing::warn!("{why}"));
        return Ok(());
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", config.oom_score_adj.to_string()) {
        tracing::warn!(%error, "Failed to apply OOMScore");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    let ended = runtime.block_on(until_signal(&config, given("config")));
    runtime.shutdown_timeout(WORK_MAX);
    ended
}

async fn until_signal(config: &Config, file: Option<PathBuf>) -> Result<(), Error> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; the rules stay");
        stopping.cancel();
    });
    let proxy = proxy(config, stop.clone());
    match file {
        None => proxy.await,
        Some(file) => tokio::select! {
            biased;
            ended = proxy => ended,
            () = changes(file) => Err(Error::FileChanged),
        },
    }
}

/// Returns once the file says something else. One that cannot be read says what it said.
async fn changes(file: PathBuf) {
    let first = read(&file).await;
    loop {
        tokio::time::sleep(FILE_EVERY).await;
        let now = read(&file).await;
        if now.is_some() && now != first {
            return;
        }
    }
}

async fn read(file: &Path) -> Option<Vec<u8>> {
    let file = file.to_owned();
    let text = client::blocking::spawn(move || std::fs::read(file)).await;
    text.ok()?.ok()
}

async fn proxy(config: &Config, stop: CancellationToken) -> Result<(), Error> {
    tracing::info!(version = VERSION, "Version info");
    let host = hostname()?;
    let node = config.hostname_override.clone().unwrap_or_else(|| host.clone());
    let client = connect(config).await?;
    let (tell, events) = events::channel(client.clone(), &host);
    let writing = tokio::spawn(events);
    let ended = serve::run(config, &node, informers(&client, &node), tell, stop).await;
    // The last event may say why it ended.
    let _ = tokio::time::timeout(WORK_MAX, writing).await;
    Ok(ended?)
}

/// The host's name, as nodes are named by it.
fn hostname() -> Result<String, Error> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(Error::Hostname)?;
    let name = name.trim().to_lowercase();
    if name.is_empty() {
        Err(Error::EmptyHostname)
    } else {
        Ok(name)
    }
}

async fn connect(config: &Config) -> Result<kube::Client, Error> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let options = connect::Options::new(format!("kube-proxy/{VERSION} (linux/{arch})"));
    let master = match &config.master {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| Error::Master(text.clone()))?),
    };
    Ok(match (&config.kubeconfig, master) {
        (None, None) => {
            tracing::info!("Neither kubeconfig file nor master URL was specified, falling back to in-cluster config");
            connect::in_cluster(&options)?
        }
        (Some(path), None) => connect::from_kubeconfig(path, &options).await?,
        (Some(path), Some(master)) => {
            let mut read = connect::read_kubeconfig(path).await?;
            read.cluster_url = master;
            connect::from_config(read, &options)?
        }
        (None, Some(master)) => connect::from_config(kube::Config::new(master), &options)?,
    })
}

/// What the proxy follows: its node, and what is not left to others.
fn informers(client: &kube::Client, node: &str) -> Informers {
    let seed = u64::from(std::process::id());
    let options = |labels: &str, fields: String| Options {
        labels: labels.to_owned(),
        fields,
        seed,
    };
    let ours = || options(OURS, String::new());
    Informers {
        nodes: Informer::spawn_as_tree(
            Api::<AsTree<_>>::all(client.clone()),
            options("", format!("metadata.name={node}")),
        ),
        rules: Sources {
            services: Informer::spawn_as_tree(Api::<AsTree<_>>::all(client.clone()), ours()),
            slices: Informer::spawn_as_tree(Api::<AsTree<_>>::all(client.clone()), ours()),
        },
        service_cidrs: Informer::spawn_as_tree(Api::<AsTree<_>>::all(client.clone()), options("", String::new())),
    }
}

#[cfg(test)]
mod tests;
