//! Pods bound per second: hollow nodes (objects, statuses and leases, with nobody behind them), pods created through the API,
//! bindings counted on a watch; plain pods, or one of upstream's workloads with what else there is in it.

mod pending;
mod workload;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::connect;
use crate::idle;
use crate::processes::Group;
pub(crate) use pending::{Pending, pending};
use workload::{Kind, Workload};

/// Requests of ours under way at once.
const WORKERS: usize = 32;
/// How long the nodes may take to become schedulable, and the pods to be bound.
const PATIENCE: Duration = Duration::from_secs(900);
/// What the names of these nodes and pods begin with.
const PREFIX: &str = "hollow-";
/// Where nodes' leases are.
const LEASES: &str = "kube-node-lease";
/// How often a kubelet renews its lease.
const RENEWAL: Duration = Duration::from_secs(10);
/// Between two pods that come between those that are measured.
const BETWEEN: Duration = Duration::from_millis(200);
/// How long the API server needs for a watch of ours at most.
const WATCH_SECONDS: u32 = 290;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    workload: Workload,
    /// Whether it has upstream's size, so that upstream's gate is one for it.
    is_upstream: bool,
}

impl Plan {
    /// The workload of that name, or plain pods on nodes of 32 CPUs; with other nodes (and pods in proportion) or pods than it has
    /// by itself.
    ///
    /// # Errors
    /// There is no such workload.
    pub(crate) fn new(name: Option<&str>, nodes: Option<usize>, pods: Option<usize>) -> Result<Self, String> {
        let named = |name: &str| {
            let known: Vec<&str> = workload::ALL.iter().map(|workload| workload.name).collect();
            Workload::named(name).ok_or_else(|| format!("no workload {name:?}; there are {}", known.join(", ")))
        };
        let whole = name.map_or(Ok(PLAIN), named)?;
        let mut workload = nodes.map_or(whole, |nodes| whole.with_nodes(nodes));
        workload.measured.0 = pods.unwrap_or(match name {
            None => PLAIN.measured.0,
            Some(_) => workload.measured.0,
        });
        let sizes = |workload: Workload| (workload.nodes, workload.first.0, workload.measured.0);
        Ok(Self {
            workload,
            is_upstream: name.is_some() && sizes(workload) == sizes(whole),
        })
    }
}

/// What is measured without a workload's name.
const PLAIN: Workload = Workload {
    name: "plain",
    upstream: "",
    gate: 0,
    nodes: 1_000,
    zones: 3,
    first: (0, Kind::Plain),
    measured: (5_000, Kind::Plain),
    between: None,
};

/// Makes the nodes and pods of the plan, waits until all pods that are measured have a node, and prints how fast that went;
/// `server` is the control plane's process.
///
/// # Errors
/// If a request fails, or nodes or pods are not ready in time.
pub(crate) async fn measure(kubeconfig: &Path, server: Group, plan: Plan) -> anyhow::Result<()> {
    let client = connect::client(kubeconfig).await?;
    let groups = [server, Group::own()];
    let Workload {
        nodes, first, measured, ..
    } = plan.workload;
    println!(
        "{}: {nodes} nodes, {} pods first, {} measured",
        plan.workload.name, first.0, measured.0
    );
    let begun = Instant::now();
    let lease_api: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    // Leases are renewed from the first node on; that never ends by itself.
    tokio::select! {
        biased;
        failed = renew(&lease_api, nodes, begun) => failed.context("renewing leases"),
        done = async {
            register(&client, &plan, begun).await?;
            prepare(&client, &plan.workload).await.context("what is there before")?;
            let pods: Api<Pod> = Api::namespaced(client.clone(), workload::FIRST);
            tokio::select! {
                biased;
                failed = come_between(&pods, &plan.workload) => failed.context("creating pods between"),
                done = bind(&client, &groups, &plan) => done,
            }
        } => done,
    }
}

/// The nodes, until pods may go there.
async fn register(client: &Client, plan: &Plan, begun: Instant) -> anyhow::Result<()> {
    let nodes = plan.workload.nodes;
    let node_api: Api<Node> = Api::all(client.clone());
    let lease_api: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    each(nodes, |n| make_node(&node_api, &lease_api, n, plan))
        .await
        .context("registering nodes")?;
    row("registered", nodes, begun.elapsed());
    until(|| schedulable(client, nodes))
        .await
        .context("nodes with their taints off")?;
    row("and schedulable", nodes, begun.elapsed());
    Ok(())
}

/// Namespaces, the priority class, and the pods that are there before, each with a node.
async fn prepare(client: &Client, workload: &Workload) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in [workload::FIRST, workload::MEASURED] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
        until(|| async { Ok(accounts.get_opt("default").await?.is_some()) })
            .await
            .context("the default service account")?;
    }
    let class = json!({"metadata": {"name": workload::URGENT}, "value": workload::URGENT_VALUE});
    let classes: Api<PriorityClass> = Api::all(client.clone());
    classes
        .create(&PostParams::default(), &serde_json::from_value(class)?)
        .await?;
    let (count, kind) = workload.first;
    if count == 0 {
        return Ok(());
    }
    let api: Api<Pod> = Api::namespaced(client.clone(), workload::FIRST);
    let begun = Instant::now();
    let (_, bound) = tokio::try_join!(
        each(count, |n| make_pod(&api, kind, n)),
        bound(&api, count, latest(&api).await?)
    )?;
    row("pods before", count, bound.duration_since(begun));
    Ok(())
}

/// A pod every 200 ms, if the workload has such; never ends by itself.
async fn come_between(api: &Api<Pod>, workload: &Workload) -> anyhow::Result<()> {
    let Some(kind) = workload.between else {
        return std::future::pending().await;
    };
    let mut ticks = tokio::time::interval(BETWEEN);
    for n in workload.first.0.. {
        ticks.tick().await;
        make_pod(api, kind, n).await?;
    }
    Ok(())
}

/// Where a watch begins that is to see what comes from now on.
async fn latest(api: &Api<Pod>) -> anyhow::Result<String> {
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Seconds that scheduling attempts took so far, and how many there were.
async fn attempts(client: &Client) -> anyhow::Result<(f64, f64)> {
    let text = client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
    let sum = |suffix: &str| {
        let name = format!("scheduler_scheduling_attempt_duration_seconds_{suffix}");
        let lines = text.lines().filter(|line| line.starts_with(&name));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    Ok((sum("sum"), sum("count")))
}

/// Creates the pods and waits until they are bound.
async fn bind(client: &Client, groups: &[Group; 2], plan: &Plan) -> anyhow::Result<()> {
    let (pods, kind) = plan.workload.measured;
    let api: Api<Pod> = Api::namespaced(client.clone(), workload::MEASURED);
    let from = latest(&api).await?;
    let start = Costs::of(client, groups).await?;
    let begun = Instant::now();
    let creating = async {
        each(pods, |n| make_pod(&api, kind, n)).await.context("creating pods")?;
        anyhow::Ok(begun.elapsed())
    };
    let binding = async {
        let bound = tokio::time::timeout(PATIENCE, bound(&api, pods, from)).await;
        let bound = bound.context("not all pods were bound in time")??;
        anyhow::Ok(bound.duration_since(begun))
    };
    let (created, bound) = tokio::try_join!(creating, binding)?;
    let end = Costs::of(client, groups).await?;
    row("pods created", pods, created);
    row("pods bound", pods, bound);
    tell_gate(plan, pods as f64 / bound.as_secs_f64());
    end.tell_since(&start, pods);
    tell_memory(&groups[0])
}

/// What pods took so far.
struct Costs {
    /// CPU time of the control plane, and of this process.
    cpu: [Duration; 2],
    /// Seconds of scheduling attempts, and how many there were.
    attempts: (f64, f64),
}

impl Costs {
    async fn of(client: &Client, groups: &[Group; 2]) -> anyhow::Result<Self> {
        let attempts = attempts(client).await?;
        let cpu = [groups[0].cpu()?, groups[1].cpu()?];
        Ok(Self { cpu, attempts })
    }

    fn tell_since(&self, before: &Self, pods: usize) {
        let each = |group: usize| (self.cpu[group] - before.cpu[group]).as_secs_f64() * 1000.0 / pods as f64;
        println!(
            "{:<20} {:>9.3} ms server, {:.3} ms client (leases included)",
            "CPU of a pod",
            each(0),
            each(1)
        );
        let (seconds, count) = (self.attempts.0 - before.attempts.0, self.attempts.1 - before.attempts.1);
        println!(
            "{:<20} {:>9.3} ms, {count:.0} of them",
            "a scheduling attempt",
            seconds * 1000.0 / count.max(1.0)
        );
    }
}

fn tell_memory(server: &Group) -> anyhow::Result<()> {
    let [proportional, anonymous] = idle::memory(server)?;
    println!(
        "{:<20} {proportional:>9.1} MB Pss, {anonymous:.1} anonymous",
        "server's memory"
    );
    Ok(())
}

/// How the figure stands to the one upstream asks for.
fn tell_gate(plan: &Plan, per_second: f64) {
    let Workload {
        gate, upstream, nodes, ..
    } = plan.workload;
    if gate == 0 {
        return;
    }
    let size = match plan.is_upstream {
        true => String::new(),
        false => format!("; with {nodes} nodes, not upstream's size"),
    };
    let times = per_second / f64::from(gate);
    println!(
        "{:<20} {times:>9.1} times {gate} per s of {upstream}{size}",
        "upstream's gate"
    );
}

pub(crate) fn row(what: &str, count: usize, took: Duration) {
    let seconds = took.as_secs_f64();
    println!("{what:<20} {:>9.0} per s, {seconds:.1} s", count as f64 / seconds);
}

pub(crate) async fn each<F: Future<Output = anyhow::Result<()>>>(
    count: usize,
    make: impl Fn(usize) -> F,
) -> anyhow::Result<()> {
    let all = stream::iter(0..count).map(|n| Ok(make(n)));
    all.try_buffer_unordered(WORKERS).try_collect().await
}

/// Asks until the answer is yes.
pub(crate) async fn until<F: Future<Output = anyhow::Result<bool>>>(ask: impl Fn() -> F) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !ask().await? {
        if Instant::now() > deadline {
            bail!("not in time");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

fn node_name(n: usize) -> String {
    format!("{PREFIX}{n}")
}

/// A node as a kubelet registers it: the object, its lease, its first status.
async fn make_node(nodes: &Api<Node>, leases: &Api<Lease>, n: usize, plan: &Plan) -> anyhow::Result<()> {
    let name = node_name(n);
    let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": format!("zone-{}", n % plan.workload.zones)});
    let node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
    let node = nodes.create(&PostParams::default(), &node).await?;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid});
    let lease = json!({"metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(Timestamp::now())}});
    let lease = serde_json::from_value(lease)?;
    leases.create(&PostParams::default(), &lease).await?;
    let amounts = match plan.workload.gate {
        0 => json!({"cpu": "32", "memory": "128Gi", "pods": "110"}),
        _ => json!({"cpu": "4", "memory": "32Gi", "pods": "110"}),
    };
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow",
        "lastHeartbeatTime": Timestamp::now().to_string(), "lastTransitionTime": Timestamp::now().to_string()});
    let status = json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}});
    nodes
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// Renews every node's lease as often as kubelets do, evenly spread; leases that are not there yet are left out.
async fn renew(api: &Api<Lease>, nodes: usize, begun: Instant) -> anyhow::Result<()> {
    let start = tokio::time::Instant::from_std(begun);
    let due = |turn: usize| start + RENEWAL + RENEWAL.mul_f64(turn as f64 / nodes as f64);
    stream::iter(0..)
        .then(|turn: usize| async move {
            tokio::time::sleep_until(due(turn)).await;
            anyhow::Ok(turn % nodes)
        })
        .map_ok(|n| async move {
            let body = Patch::Merge(json!({"spec": {"renewTime": MicroTime(Timestamp::now())}}));
            match api.patch(&node_name(n), &PatchParams::default(), &body).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => other.map(drop).map_err(Into::into),
            }
        })
        .try_buffer_unordered(WORKERS)
        .try_collect()
        .await
}

/// Whether so many nodes are there and nothing keeps pods from them.
pub(crate) async fn schedulable(client: &Client, nodes: usize) -> anyhow::Result<bool> {
    let list: Value = client
        .request(Request::get("/api/v1/nodes?resourceVersion=0").body(Vec::new())?)
        .await?;
    let is_free = |node: &&Value| node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
    let free = list["items"].as_array().into_iter().flatten().filter(is_free);
    Ok(free.count() == nodes)
}

async fn make_pod(api: &Api<Pod>, kind: Kind, n: usize) -> anyhow::Result<()> {
    let pod = serde_json::from_value(kind.pod(&node_name(n)))?;
    api.create(&PostParams::default(), &pod).await?;
    Ok(())
}

/// When the last of so many pods was seen with a node.
async fn bound(api: &Api<Pod>, count: usize, from: String) -> anyhow::Result<Instant> {
    bound_beside(api, count, from, BTreeSet::new()).await
}

/// As [`bound`], where these pods have one already.
async fn bound_beside(
    api: &Api<Pod>,
    count: usize,
    mut from: String,
    mut seen: BTreeSet<Option<String>>,
) -> anyhow::Result<Instant> {
    loop {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let mut events = api.watch(&params, &from).await?.boxed();
        while let Some(event) = events.next().await {
            let pod = match event? {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => pod,
                WatchEvent::Error(status) => bail!("watch: {}", status.message),
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
            };
            from = pod.metadata.resource_version.unwrap_or_default();
            let has_node = pod.spec.is_some_and(|spec| spec.node_name.is_some());
            if has_node && seen.insert(pod.metadata.name) && seen.len() == count {
                return Ok(Instant::now());
            }
        }
    }
}
