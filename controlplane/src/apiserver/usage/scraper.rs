//! Asks every ready node's kubelet, as long as somebody reads.

use super::history::NodeHistory;
use super::{FIRST_WINDOW, Kept, RESOLUTION, Usage, page};
use crate::apiserver::ApiServer;
use crate::resource::field::{list, text};
use futures::StreamExt;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Kubelets asked at the same time: each may send a page of 2 MiB.
const CONCURRENCY: usize = 32;
/// How long one may take, as metrics-server's `--kubelet-request-timeout`.
const DEADLINE: Duration = Duration::from_secs(10);

/// Asks until shutdown.
pub async fn run(server: ApiServer, usage: Arc<Usage>, shutdown: CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = rounds(&server, &usage) => {}
    }
}

async fn rounds(server: &ApiServer, usage: &Usage) {
    let mut asked = usage.asked.subscribe();
    loop {
        if !usage.is_wanted() {
            usage.forget();
            if asked.changed().await.is_err() {
                return;
            }
            continue;
        }
        let began = Instant::now();
        round(server, usage).await;
        usage.rounds.send_modify(|rounds| *rounds = rounds.saturating_add(1));
        let pause = match *usage.rounds.borrow() {
            1 => FIRST_WINDOW,
            _ => RESOLUTION,
        };
        tokio::time::sleep_until(began + pause).await;
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = list(node, &["status", "conditions"]);
    conditions
        .iter()
        .any(|condition| text(condition, &["type"]) == "Ready" && text(condition, &["status"]) == "True")
}

/// Asks each ready node once. Those that are gone, or not ready, are forgotten.
async fn round(server: &ApiServer, usage: &Usage) {
    let nodes = server.reader().list("", "nodes", "");
    let ready: Vec<(String, Arc<Value>)> = nodes
        .into_iter()
        .filter(|node| is_ready(node))
        .map(|node| (text(&node, &["metadata", "name"]).to_owned(), node))
        .collect();
    let names: BTreeSet<String> = ready.iter().map(|(name, _)| name.clone()).collect();
    usage.nodes().retain(|name, _| names.contains(name));
    let asking = ready.into_iter().map(|(name, node)| ask(server, usage, name, node));
    let mut asking = futures::stream::iter(asking).buffer_unordered(CONCURRENCY);
    while asking.next().await.is_some() {}
}

/// Asks one kubelet and keeps what it says; a node that does not answer is left out until it does.
async fn ask(server: &ApiServer, usage: &Usage, name: String, node: Arc<Value>) {
    let began = Instant::now();
    let answer = timeout(DEADLINE, (usage.fetch)(name.clone(), node)).await;
    let answer = answer.unwrap_or_else(|_| Err("deadline exceeded".to_owned()));
    let page = answer.and_then(|bytes| page::read(&bytes).map_err(|error| error.to_string()));
    server.metrics().scraped(page.is_ok(), began.elapsed());
    match page {
        Ok(page) => {
            // Nobody else writes this node's: it is made without holding up who reads.
            let before = usage.nodes().get(&name).map(|kept| Arc::clone(&kept.history));
            let history = Arc::new(NodeHistory::after(before.as_deref(), page));
            let kept = Kept { history, answers: true };
            usage.nodes().insert(name, kept);
        }
        Err(error) => {
            tracing::warn!(node = name, error, "failed to scrape node");
            if let Some(kept) = usage.nodes().get_mut(&name) {
                kept.answers = false;
            }
        }
    }
}
