//! Namespace deletion: pods first, then everything else, then the finalizer.
//!
//! Source: control-plane contract §12, KEP-5080. What is in a namespace is known only to the server, so this controller asks it ([`content`]); what that
//! means is decided in [`condition`]. Never waits for one namespace while another is to be emptied.

use super::harness::Environment;
use super::queue::Queue;
use super::write::NAMESPACES;
use crate::held::Pod;
use crate::turn::{self, TURN};
use client::informer::Change;
use client::{Backoff, Key};
use condition::conditions;
use content::call;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub mod condition;
mod content;

/// Upstream's service account name.
pub const NAME: &str = "namespace-controller";
const FINALIZER: &str = "kubernetes";
/// Namespaces that are emptied at the same time (upstream's `--concurrent-namespace-syncs`).
const CONCURRENCY: usize = 10;
/// The first and the longest wait before a namespace is looked at again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(60);

/// What a look at a namespace showed.
#[derive(Debug, PartialEq)]
enum Look {
    /// Nothing is left to do.
    Done,
    /// Something remains that should be gone after so many seconds.
    Remains(u64),
    /// Something is in the way.
    Failed(String),
}

struct Emptier {
    environment: Environment,
    delays: Mutex<BTreeMap<Key, Backoff>>,
}

/// Deletes the content of namespaces until shutdown.
pub async fn run(environment: Environment) {
    let queue = Queue::counted(environment.metrics.clone());
    let mut namespaces = environment.informers.namespaces.subscribe();
    let mut pods = environment.informers.pods.subscribe();
    let emptier = Emptier {
        environment,
        delays: Mutex::default(),
    };
    // A namespace must not be looked at before its pods' grace periods are known.
    let informers = emptier.environment.informers.clone();
    tokio::select! {
        biased;
        () = emptier.environment.shutdown.cancelled() => return,
        _ = async { tokio::join!(informers.namespaces.synced(), informers.pods.synced()) } => {}
    }
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = emptier.environment.shutdown.cancelled() => return,
            changes = namespaces.next() => hear_namespaces(changes, &queue, TURN).await,
            changes = pods.next() => emptier.hear_pods(changes, &queue, TURN).await,
            Some((key, again)) = running.next(), if !running.is_empty() => {
                if let Some(delay) = again {
                    queue.add_after(Key::clone(&key), delay);
                }
                queue.done(&key);
                // A look at what is gone waits for nothing.
                tokio::task::yield_now().await;
            }
            key = queue.next(), if running.len() < CONCURRENCY => running.push(emptier.look_at(key)),
        }
    }
}

/// Takes in changes of namespaces; others on the thread have theirs whenever `turn` is over.
async fn hear_namespaces(changes: Vec<Change<Namespace>>, queue: &Queue<Key>, turn: Duration) {
    turn::each(changes, turn, |change| {
        if is_news(change.old.as_deref(), change.new.as_deref()) {
            queue.add(change.key);
        }
    })
    .await;
}

/// Whether a namespace is to be looked at for this change; what this controller writes into its status is none of them.
fn is_news(old: Option<&Namespace>, new: Option<&Namespace>) -> bool {
    let matters = |namespace: &Namespace| (namespace.metadata.uid.clone(), finalizers(namespace));
    let is_going = |namespace: &&Namespace| namespace.metadata.deletion_timestamp.is_some();
    let (old, new) = (old.filter(is_going), new.filter(is_going));
    new.is_some() && old.map(matters) != new.map(matters)
}

fn finalizers(namespace: &Namespace) -> Vec<String> {
    let spec = namespace.spec.as_ref();
    spec.and_then(|s| s.finalizers.clone()).unwrap_or_default()
}

/// Seconds until the last pod should be gone: the longest grace period, counted from the namespace's deletion; 0 once that is over.
fn grace(pods: &[Arc<Pod>], deleted_at: Timestamp, now: Timestamp) -> u64 {
    let is_over = |pod: &&Arc<Pod>| {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    };
    let graces = pods.iter().filter(is_over).filter_map(|pod| {
        let seconds = pod.spec.as_ref()?.termination_grace_period_seconds?;
        u64::try_from(seconds).ok()
    });
    let longest = graces.max().unwrap_or(0);
    let since = Duration::try_from(now.duration_since(deleted_at)).unwrap_or(Duration::ZERO);
    if since.as_secs() >= longest { 0 } else { longest }
}

/// When to look again: soon at first, then less often; but not later than half of what it should take, as upstream.
fn again_in(look: &Look, backoff: &mut Backoff) -> Duration {
    let delay = backoff.fail();
    match look {
        Look::Remains(seconds) => delay.min(Duration::from_secs(seconds / 2 + 1)),
        Look::Done | Look::Failed(_) => delay,
    }
}

impl Emptier {
    fn delays(&self) -> MutexGuard<'_, BTreeMap<Key, Backoff>> {
        self.delays.lock().expect("no holder of this lock panics")
    }

    /// Whether the last pod of a namespace that is going away has gone.
    fn waits_for_no_pod(&self, namespace: &str) -> bool {
        let informers = &self.environment.informers;
        let known = informers.namespaces.get("", namespace);
        let is_going = known.is_some_and(|n| n.metadata.deletion_timestamp.is_some());
        is_going && informers.pods.list_namespace(namespace).is_empty()
    }

    /// Takes in changes of pods; others on the thread have theirs whenever `turn` is over. However many have gone, each namespace of
    /// theirs is asked once whether it was the last.
    async fn hear_pods(&self, changes: Vec<Change<Pod>>, queue: &Queue<Key>, turn: Duration) {
        let mut emptied = BTreeSet::new();
        turn::each(changes, turn, |change| {
            if change.new.is_none() {
                emptied.insert(change.key.namespace);
            }
        })
        .await;
        turn::each(emptied, turn, |namespace| {
            if self.waits_for_no_pod(&namespace) {
                queue.add(Key::new("", namespace));
            }
        })
        .await;
    }

    /// One look at a namespace, and when the next one is due.
    async fn look_at(&self, key: Key) -> (Key, Option<Duration>) {
        let look = self.reconcile(&key).await.unwrap_or_else(Look::Failed);
        if let Look::Failed(error) = &look {
            self.environment.metrics.retries.inc();
            tracing::warn!(namespace = key.name, error, "namespace not emptied, retrying");
        }
        if look == Look::Done {
            self.delays().remove(&key);
            return (key, None);
        }
        let new = || Backoff::new(RETRY_FIRST, RETRY_CAP, 0);
        let delay = again_in(&look, self.delays().entry(key.clone()).or_insert_with(new));
        (key, Some(delay))
    }

    async fn reconcile(&self, key: &Key) -> Result<Look, String> {
        let Some(namespace) = self.environment.informers.namespaces.get_key(key) else {
            return Ok(Look::Done);
        };
        let is_ours = finalizers(&namespace).iter().any(|f| f == FINALIZER);
        let Some(deleted) = namespace.metadata.deletion_timestamp.as_ref().filter(|_| is_ours) else {
            return Ok(Look::Done);
        };
        let pods = self.environment.informers.pods.list_namespace(&key.name);
        let grace = grace(&pods, deleted.0, self.environment.clock.now());
        let Some(remains) = content::empty(&self.environment.client, &namespace, grace).await else {
            // It is gone, or another one by now: news of that one come as an event.
            return Ok(Look::Done);
        };
        if let Err(error) = self.report(&namespace, &remains).await {
            // Conditions are no precondition of finalizing.
            tracing::warn!(namespace = key.name, error, "conditions not written");
        }
        if let Some(failure) = remains.failure() {
            return Ok(Look::Failed(failure));
        }
        if !remains.objects.is_empty() {
            return Ok(Look::Remains(remains.estimate_seconds));
        }
        self.finalize(&namespace).await?;
        Ok(Look::Done)
    }

    async fn report(&self, namespace: &Namespace, remains: &condition::Remains) -> Result<(), String> {
        let old = namespace.status.as_ref().and_then(|s| s.conditions.clone());
        let new = conditions(old.clone(), remains, self.environment.clock.now());
        if old.as_ref() == Some(&new) {
            return Ok(());
        }
        let mut body = serde_json::to_value(namespace).map_err(|e| e.to_string())?;
        body["apiVersion"] = json!("v1");
        body["kind"] = json!("Namespace");
        body["status"]["conditions"] = json!(new);
        // Whoever wrote in between must not be overwritten.
        let path = format!("{}/status", NAMESPACES.path(&Key::of(namespace)));
        match call(&self.environment.client, Method::PUT, &path, Some(&body)).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            done => done.map(|_| ()).map_err(|error| error.to_string()),
        }
    }

    async fn finalize(&self, namespace: &Namespace) -> Result<(), String> {
        let client = &self.environment.client;
        let path = NAMESPACES.path(&Key::of(namespace));
        let mut live = match call(client, Method::GET, &path, None).await {
            Ok(live) => live,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        if live["metadata"]["uid"].as_str() != namespace.metadata.uid.as_deref() {
            return Ok(());
        }
        let kept = live["spec"]["finalizers"].as_array().into_iter().flatten();
        let kept: Vec<_> = kept.filter(|f| *f != FINALIZER).cloned().collect();
        live["spec"]["finalizers"] = json!(kept);
        let path = format!("{path}/finalize");
        match call(client, Method::PUT, &path, Some(&live)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => done.map(|_| ()).map_err(|error| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
