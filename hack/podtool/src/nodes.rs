//! What a write of a pod costs the API server while every node of a large cluster watches its own pods: with no watcher, and with all;
//! and, at the same pace, that of a ConfigMap.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::AsyncBufReadExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::{Method, Request};
use serde_json::{Value, json};

use crate::api::{Load, NAMESPACE, PATIENCE, WORKERS};
use crate::processes::{cpu, cpu_since};

const NODES: usize = 5_000;
/// Nodes that have a pod, which is written.
const PODS: usize = 500;
const WRITES_PER_SECOND: usize = 200;

/// Measures and prints.
///
/// # Errors
/// If the API server refuses a request, or events do not arrive.
pub(crate) async fn measure(load: &Load) -> anyhow::Result<()> {
    load.namespace().await?;
    let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
    let deadline = Instant::now() + PATIENCE;
    while load.send(Request::get(&account), Vec::new()).await.is_err() {
        anyhow::ensure!(Instant::now() < deadline, "there is no default service account");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{:<28} {:>9} {:>16}", "", "events", "server ms a write");
    fill(load, &maps_path(), map).await?;
    write(load, "ConfigMaps, unwatched", (&maps_path(), "m"), &Arc::default()).await?;
    fill(load, &pods_path(), pod).await?;
    write(load, "no node watches its pods", (&pods_path(), "a"), &Arc::default()).await?;
    let arrived = Arc::new(AtomicUsize::new(0));
    let _watchers = watch_all(load, &arrived).await?;
    write(load, "5,000 nodes watch theirs", (&pods_path(), "b"), &arrived).await?;
    load.memory("with 5,000 watchers")?;
    // Their nodes are not there: before the pods are found to be orphans.
    let path = format!("{}?gracePeriodSeconds=0", pods_path());
    load.send(Request::delete(path), Vec::new()).await?;
    Ok(())
}

fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

fn maps_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

async fn fill(load: &Load, collection: &str, object: fn(usize) -> Value) -> anyhow::Result<()> {
    let posts = stream::iter(0..PODS).map(|number| async move { load.post(collection, &object(number)).await });
    let posts = posts.buffer_unordered(WORKERS);
    posts.try_for_each(|_| std::future::ready(Ok(()))).await
}

fn map(number: usize) -> Value {
    json!({"metadata": {"name": format!("p{number}")}, "data": {"k": "x".repeat(1_000)}})
}

fn pod(number: usize) -> Value {
    json!({"metadata": {"name": format!("p{number}")},
        "spec": {"nodeName": format!("n{number}"), "containers": [{"name": "c", "image": "registry.k8s.io/pause"}]}})
}

/// A watch for each node, counting events; they end when what is returned is dropped.
async fn watch_all(load: &Load, arrived: &Arc<AtomicUsize>) -> anyhow::Result<tokio::task::JoinSet<()>> {
    let list = Request::get(format!("{}?limit=1", pods_path())).body(Vec::new())?;
    let list = load.client.request::<Value>(list).await?;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
    let revision = revision.as_str();
    let opened = stream::iter(0..NODES).map(|number| async move {
        let selector = format!("fieldSelector=spec.nodeName%3Dn{number}");
        let path = format!("/api/v1/pods?watch=1&resourceVersion={revision}&timeoutSeconds=600&{selector}");
        anyhow::Ok(load.client.request_stream(Request::get(path).body(Vec::new())?).await?)
    });
    let mut opened = std::pin::pin!(opened.buffer_unordered(WORKERS));
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(lines) = opened.next().await {
        let (lines, arrived) = (lines?, Arc::clone(arrived));
        tasks.spawn(async move {
            let mut lines = std::pin::pin!(lines.lines());
            while let Some(Ok(_)) = lines.next().await {
                arrived.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    Ok(tasks)
}

/// Writes objects at an even pace and prints what one cost; waits for the events of watchers, if there are any.
async fn write(
    load: &Load,
    what: &str,
    (collection, mark): (&str, &str),
    arrived: &Arc<AtomicUsize>,
) -> anyhow::Result<()> {
    let writes = WRITES_PER_SECOND * usize::try_from(load.time.as_secs())?;
    let before = cpu(&load.groups)?;
    let begun = tokio::time::Instant::now();
    let each = stream::iter(0..writes).map(|number| async move {
        let due = Duration::from_secs_f64(number as f64 / WRITES_PER_SECOND as f64);
        tokio::time::sleep_until(begun + due).await;
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{collection}/p{}", number % PODS))
            .header("content-type", "application/merge-patch+json");
        let patch = json!({"metadata": {"annotations": {"written": format!("{mark}{number}")}}});
        load.send(request, serde_json::to_vec(&patch)?).await
    });
    let each = each.buffered(WORKERS);
    each.try_for_each(|_| std::future::ready(Ok(())))
        .await
        .with_context(|| format!("writing {what}"))?;
    let used = cpu_since(&load.groups, &before)?;
    let expected = if Arc::strong_count(arrived) > 1 { writes } else { 0 };
    let deadline = Instant::now() + PATIENCE;
    while arrived.load(Ordering::Relaxed) < expected && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let events = arrived.load(Ordering::Relaxed);
    anyhow::ensure!(events >= expected, "{events} of {expected} events arrived");
    println!(
        "{what:<28} {events:>9} {:>16.3}",
        used[0].as_secs_f64() * 1000.0 / writes as f64
    );
    Ok(())
}
