//! Hollow nodes: our kubelets as values, many in one process, each over a scripted runtime and with its own connection to a real API
//! server. What they tell it is real: registrations, leases, statuses of nodes and pods, events. What they run is nothing.
//!
//! For `hack/bench controllers`. Never part of a cluster.

mod node;

use anyhow::Context;
use clap::Parser;
use node::Node;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
#[command(name = "hollow", version, about)]
struct Cli {
    /// Kubeconfig of an administrator, who may act as any node.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// How many nodes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Directory for what kubelets keep on disk; it is not removed.
    #[arg(long)]
    work_dir: PathBuf,
}

fn main() -> anyhow::Result<()> {
    client::memory::limit_arenas();
    let log =
        tracing_subscriber::fmt().with_env_filter(std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()));
    log.with_writer(std::io::stderr).init();
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is installed already"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(Cli::parse()))
}

/// Runs the nodes until told to stop, or until one of them cannot go on.
async fn run(cli: Cli) -> anyhow::Result<()> {
    let config = client::connect::read_kubeconfig(&cli.kubeconfig).await?;
    let stop = CancellationToken::new();
    let mut nodes = JoinSet::new();
    for number in 0..cli.nodes {
        let node = Node::new(number, &cli.work_dir);
        let (name, client) = (node.name.clone(), node.connect(config.clone())?);
        let running = node.run(client, stop.clone());
        nodes.spawn(async move { running.await.with_context(|| name) });
    }
    println!("{} hollow nodes run", cli.nodes);
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = terminated.recv() => {}
        Some(ended) = nodes.join_next() => ended??,
    }
    stop.cancel();
    while let Some(ended) = nodes.join_next().await {
        ended??;
    }
    Ok(())
}
