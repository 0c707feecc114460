//! Deployments brought to their state: made through the API, carried out by a control plane and by hollow nodes in a process apart
//! (`hack/hollow`), and what both cost once nothing happens any more.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::processes::{Group, cpu, cpu_since};
use crate::schedule::{each, row, schedulable, until};
use crate::{connect, idle};

/// How long the deployments may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long the API server needs for a watch of ours at most.
const WATCH_SECONDS: u32 = 290;
/// After the last change: by then queues are empty, and what the API server keeps of the last five minutes for watchers is gone.
const SETTLED_AFTER: Duration = Duration::from_secs(360);
/// How long one change may take to go its way.
const CHANGE_TAKES: Duration = Duration::from_secs(10);
/// The image that hollow nodes have.
const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// What is measured.
pub(crate) struct Plan {
    /// Hollow nodes that are expected.
    pub(crate) nodes: usize,
    /// Deployments.
    pub(crate) deployments: usize,
    /// Pods of each.
    pub(crate) replicas: i32,
    /// How long the idle processes are looked at.
    pub(crate) idle: Duration,
}

/// Makes the deployments, waits until all are available, and prints how long that took and what it cost; then what the processes cost
/// while nothing happens, and which controllers one change wakes. `groups`: the control plane's process, then the nodes'.
///
/// # Errors
/// If a request fails, or nodes or deployments are not ready in time.
pub(crate) async fn measure(kubeconfig: &Path, groups: [Group; 2], plan: Plan) -> anyhow::Result<()> {
    let client = connect::client(kubeconfig).await?;
    let groups = [groups.as_slice(), &[Group::own()]].concat();
    let begun = Instant::now();
    until(|| schedulable(&client, plan.nodes))
        .await
        .context("hollow nodes")?;
    row("nodes ready", plan.nodes, begun.elapsed());
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    until(|| async { Ok(accounts.get_opt("default").await?.is_some()) })
        .await
        .context("the default service account")?;
    println!("with the nodes alone:");
    print!(
        "{}",
        idle::measure(&groups[..2], plan.idle.min(Duration::from_secs(20))).await?
    );
    bring_up(&client, &groups, &plan).await?;
    let [proportional, anonymous] = idle::memory(&groups[0])?;
    println!(
        "{:<22} {proportional:>9.1} MB Pss, {anonymous:.1} anonymous",
        "server's memory"
    );
    tokio::time::sleep(SETTLED_AFTER).await;
    println!("idle with {} pods:", plan.deployments * usize::try_from(plan.replicas)?);
    print!("{}", idle::measure(&groups[..2], plan.idle).await?);
    change(&client).await
}

async fn bring_up(client: &Client, groups: &[Group], plan: &Plan) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    let from = list.metadata.resource_version.unwrap_or_default();
    let before = cpu(groups)?;
    let begun = Instant::now();
    let creating = async {
        let made = each(plan.deployments, |n| make(&api, n, plan.replicas)).await;
        made.context("creating deployments")?;
        anyhow::Ok(begun.elapsed())
    };
    let following = async {
        let done = tokio::time::timeout(PATIENCE, available(&api, plan, from)).await;
        let done = done.context("not all deployments were available in time")??;
        anyhow::Ok(done.duration_since(begun))
    };
    let (created, done) = tokio::try_join!(creating, following)?;
    let used = cpu_since(groups, &before)?;
    row("deployments created", plan.deployments, created);
    row("deployments available", plan.deployments, done);
    for (group, used) in groups.iter().zip(used) {
        println!("{:<22} {:>9.1} s of CPU", group.name, used.as_secs_f64());
    }
    Ok(())
}

async fn make(api: &Api<Deployment>, n: usize, replicas: i32) -> anyhow::Result<()> {
    let name = format!("web-{n}");
    let container =
        json!({"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": "50m", "memory": "50Mi"}}});
    let labels = json!({"app": name});
    let deployment = json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels},
            "spec": {"automountServiceAccountToken": false, "containers": [container]}}}});
    api.create(&PostParams::default(), &serde_json::from_value(deployment)?)
        .await?;
    Ok(())
}

/// When the last of the deployments was seen with all its pods available.
async fn available(api: &Api<Deployment>, plan: &Plan, mut from: String) -> anyhow::Result<Instant> {
    let mut left: BTreeMap<String, ()> = (0..plan.deployments).map(|n| (format!("web-{n}"), ())).collect();
    loop {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let mut events = api.watch(&params, &from).await?.boxed();
        while let Some(event) = events.next().await {
            let deployment = match event? {
                WatchEvent::Added(deployment) | WatchEvent::Modified(deployment) => deployment,
                WatchEvent::Error(status) => bail!("watch: {}", status.message),
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
            };
            from = deployment.metadata.resource_version.unwrap_or_default();
            let count = deployment.status.and_then(|status| status.available_replicas);
            if count == Some(plan.replicas) {
                left.remove(&deployment.metadata.name.unwrap_or_default());
                if left.is_empty() {
                    return Ok(Instant::now());
                }
            }
        }
    }
}

/// Annotates one deployment, and prints whose queues got something by that.
async fn change(client: &Client) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let before = queued(client).await?;
    let body = Patch::Merge(json!({"metadata": {"annotations": {"changed": "yes"}}}));
    api.patch("web-0", &PatchParams::default(), &body).await?;
    tokio::time::sleep(CHANGE_TAKES).await;
    let after = queued(client).await?;
    let woken = after.iter().filter_map(|(name, count)| {
        let more = count - before.get(name).unwrap_or(&0.0);
        (more > 0.0).then(|| format!("{name} {more}"))
    });
    let woken: Vec<String> = woken.collect();
    let seconds = CHANGE_TAKES.as_secs();
    println!(
        "an annotation of one deployment: put into queues within {seconds} s: {}",
        woken.join(", ")
    );
    Ok(())
}

/// What each controller's queue was given so far.
async fn queued(client: &Client) -> anyhow::Result<BTreeMap<String, f64>> {
    let page = client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
    let lines = page
        .lines()
        .filter_map(|line| line.strip_prefix("workqueue_adds_total{name=\""));
    let pairs = lines.filter_map(|line| {
        let (name, count) = line.split_once("\"} ")?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    });
    Ok(pairs.collect())
}
