//! What the commands in `hack/` need from a runtime or an API server and a shell cannot do well.
//!
//! `bench` measures pods through the API server beside the same pods through bare CRI calls, `idle` what processes cost
//! while nothing happens, `api` an API server under load and floods, `schedule` a scheduler with many hollow nodes,
//! `controllers` all controllers with many deployments, `config-map` changes of mounted files, `stop-all` ends what a runtime runs,
//! `remove-all` empties it. Never part of a cluster.

mod api;
mod configmap;
mod connect;
mod controllers;
mod custom;
mod figures;
mod flood;
mod floor;
mod idle;
mod nodes;
mod pods;
mod processes;
mod runtime;
mod schedule;
mod stored;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use crate::figures::Burst;
use crate::processes::Group;

/// Pods of one round when they are started one after the other: all of a round run together, and a node has room for
/// only so many.
const SERIAL_ROUND: usize = 20;

#[derive(Parser)]
#[command(name = "podtool", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Pod start and stop: one at a time, then 10 and 50 at once.
    Bench(BenchArgs),
    /// CPU and memory of running processes over a time.
    Idle(IdleArgs),
    /// Keeps pods running through the API server: creates them, waits until all are Ready.
    Fill(FillArgs),
    /// Requests a second, watch latency and memory of an API server; fills it with objects.
    Api(ApiArgs),
    /// Pods bound a second; fills a control plane of its own with nodes that nobody runs.
    Schedule(ScheduleArgs),
    /// Deployments brought to their state by a control plane and hollow nodes, and what both cost afterwards.
    Controllers(ControllersArgs),
    /// How long changes of a ConfigMap take to the files of a pod on this machine.
    ConfigMap(ConfigMapArgs),
    /// Ends every running container of a runtime, each within its pod's grace: before the machine goes down.
    StopAll(RuntimeArgs),
    /// Stops and removes every pod of a runtime.
    RemoveAll(RuntimeArgs),
}

#[derive(Args)]
struct BenchArgs {
    /// The runtime's socket, for the floor: the same pods through bare CRI calls.
    #[arg(long)]
    runtime: PathBuf,
    /// Cgroup below which the floor's pods are put.
    #[arg(long)]
    cgroup_parent: String,
    /// Directory for the floor's logs and mounted files.
    #[arg(long)]
    work_dir: PathBuf,
    /// Kubeconfig of the cluster; without it only the floor is measured.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Node the pods are bound to.
    #[arg(long, requires = "kubeconfig")]
    node: Option<String>,
    /// Pods started and stopped one at a time, in rounds of 20.
    #[arg(long, default_value_t = 200)]
    serial: usize,
    /// Pods at once; repeatable.
    #[arg(long = "burst", default_values_t = [10, 50])]
    bursts: Vec<usize>,
    /// Repetitions of each burst.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also tell the CPU time a pod costs these processes, as NAME=PID[,PID...]; repeatable.
    #[arg(long = "cpu")]
    processes: Vec<Group>,
    /// Image, present on the node.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    image: String,
}

#[derive(Args)]
struct IdleArgs {
    /// How long to look, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// NAME=PID[,PID...]: processes whose figures are added up under one name.
    #[arg(required = true)]
    processes: Vec<Group>,
}

#[derive(Args)]
struct FillArgs {
    /// Kubeconfig of the cluster.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Node the pods are bound to.
    #[arg(long)]
    node: String,
    /// How many pods; 0 deletes those of an earlier fill.
    #[arg(long)]
    count: usize,
    /// Image, present on the node.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    image: String,
}

#[derive(Args)]
struct ConfigMapArgs {
    /// Kubeconfig of the cluster.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Node the pod is bound to: this machine.
    #[arg(long)]
    node: String,
    /// The kubelet's root directory.
    #[arg(long)]
    root_dir: PathBuf,
    /// How many changes.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// Image, present on the node.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    image: String,
}

#[derive(Args)]
struct ApiArgs {
    /// Kubeconfig of an administrator.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The API server's process, as NAME=PID.
    #[arg(long)]
    server: Group,
    /// Kubeconfig of an administrator at another API server of the cluster: watches and their writes are spread over all; repeatable.
    #[arg(long = "peer")]
    peers: Vec<PathBuf>,
    /// What is measured; repeatable. Without it all but definitions and stored, in this order.
    #[arg(long = "stage", value_enum)]
    stages: Vec<api::Stage>,
    /// Objects that are written, read and listed.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(500..))]
    objects: u32,
    /// Makes objects that have nothing in common.
    #[arg(long)]
    unlike: bool,
    /// How long watches are measured, and a flood, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// The process's anonymous memory before there were any objects, in kB.
    #[arg(long, default_value_t = 0)]
    empty_kb: u64,
}

#[derive(Args)]
struct ScheduleArgs {
    /// Kubeconfig of an administrator.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The control plane's process, as NAME=PID.
    #[arg(long)]
    server: Group,
    /// One of upstream's workloads; plain pods without it.
    #[arg(long)]
    workload: Option<String>,
    /// Hollow nodes; other than the workload's own, its pods change in proportion.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Pods to be bound.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pods: Option<u32>,
    /// Plain pods that are pending before the scheduler begins: `make` them, by a control plane without one, and `watch` them bound by one
    /// that has just started.
    #[arg(long, conflicts_with = "workload")]
    pending: Option<schedule::Pending>,
}

#[derive(Args)]
struct ControllersArgs {
    /// Kubeconfig of an administrator.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The control plane's process, as NAME=PID.
    #[arg(long)]
    server: Group,
    /// The hollow nodes' process, as NAME=PID.
    #[arg(long)]
    hollow: Group,
    /// How many nodes those are.
    #[arg(long)]
    nodes: u32,
    /// Deployments.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    deployments: u32,
    /// Pods of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(i32).range(1..))]
    replicas: i32,
    /// How long the idle processes are looked at, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

#[derive(Args)]
struct RuntimeArgs {
    /// The runtime's socket.
    #[arg(long)]
    runtime: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is installed already"))?;
    match Cli::parse().command {
        Command::Bench(args) => bench(args).await,
        Command::Idle(args) => {
            print!(
                "{}",
                idle::measure(&args.processes, Duration::from_secs(args.seconds)).await?
            );
            Ok(())
        }
        Command::Fill(args) => {
            let cluster = pods::Cluster::connect(&args.kubeconfig, args.node, args.image).await?;
            cluster.fill(args.count).await
        }
        Command::Api(args) => {
            let plan = api::Plan {
                peers: args.peers,
                stages: args.stages,
                objects: args.objects as usize,
                are_unlike: args.unlike,
                time: Duration::from_secs(args.seconds.into()),
                empty_kb: args.empty_kb,
            };
            api::measure(&args.kubeconfig, args.server, plan).await
        }
        Command::Schedule(args) => {
            let [nodes, pods] = [args.nodes, args.pods].map(|count| count.map(|count| count as usize));
            let plan = schedule::Plan::new(args.workload.as_deref(), nodes, pods).map_err(anyhow::Error::msg)?;
            match args.pending {
                None => schedule::measure(&args.kubeconfig, args.server, plan).await,
                Some(step) => schedule::pending(&args.kubeconfig, args.server, plan, step).await,
            }
        }
        Command::Controllers(args) => {
            let plan = controllers::Plan {
                nodes: args.nodes as usize,
                deployments: args.deployments as usize,
                replicas: args.replicas,
                idle: Duration::from_secs(args.seconds),
            };
            controllers::measure(&args.kubeconfig, [args.server, args.hollow], plan).await
        }
        Command::ConfigMap(args) => {
            let plan = configmap::Plan {
                node: args.node,
                root_dir: &args.root_dir,
                image: args.image,
                changes: args.changes as usize,
            };
            configmap::measure(&args.kubeconfig, plan).await
        }
        Command::StopAll(args) => {
            let stopped = runtime::stop_all(&args.runtime).await?;
            println!("{stopped} containers ended");
            Ok(())
        }
        Command::RemoveAll(args) => {
            let removed = runtime::remove_all(&args.runtime).await?;
            println!("{removed} pods removed from the runtime");
            Ok(())
        }
    }
}

/// Runs the floor and, if there is a cluster, its pods in turn, so that both see the same machine.
async fn bench(args: BenchArgs) -> anyhow::Result<()> {
    let floor = floor::Floor::connect(&args.runtime, &args.cgroup_parent, &args.work_dir, &args.image).await?;
    let cluster = match (&args.kubeconfig, &args.node) {
        (Some(kubeconfig), Some(node)) => {
            Some(pods::Cluster::connect(kubeconfig, node.clone(), args.image.clone()).await?)
        }
        (Some(_), None) => anyhow::bail!("--kubeconfig needs --node"),
        _ => None,
    };
    // The first pod of a runtime pays for what later ones find warm.
    floor
        .run(Burst::one_at_a_time(2), &[])
        .await
        .context("warming up the floor")?;
    if let Some(cluster) = &cluster {
        cluster
            .run(Burst::one_at_a_time(2), &[])
            .await
            .context("warming up the cluster")?;
    }
    println!("{}", figures::heading(cluster.is_some()));
    let rounds = args.serial.div_ceil(SERIAL_ROUND);
    let mut plan = Vec::new();
    if rounds > 0 {
        plan.push((Burst::one_at_a_time(args.serial.min(SERIAL_ROUND)), rounds));
    }
    plan.extend(args.bursts.iter().map(|&pods| (Burst::at_once(pods), args.rounds)));
    let mut groups = args.processes;
    if !groups.is_empty() {
        groups.push(Group::own());
    }
    for (burst, rounds) in plan {
        let mut floor_runs = Vec::new();
        let mut cluster_runs = Vec::new();
        for _ in 0..rounds {
            let run = floor.run(burst, &groups).await;
            floor_runs.push(run.with_context(|| format!("floor, {burst}"))?);
            if let Some(cluster) = &cluster {
                let run = cluster.run(burst, &groups).await;
                cluster_runs.push(run.with_context(|| format!("cluster, {burst}"))?);
                // What the node still removes is no part of the next floor.
                floor.until_without(pods::PREFIX).await?;
            }
        }
        print!("{}", figures::rows(burst, &floor_runs, &cluster_runs));
        print!("{}", figures::cpu_rows(&groups, burst, &floor_runs, &cluster_runs));
    }
    Ok(())
}
