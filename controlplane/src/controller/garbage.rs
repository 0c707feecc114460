//! Garbage collection: objects whose owners are gone go too; foreground and orphaning deletions are carried out.
//!
//! Source: control-plane contract §12. The graph of owners ([`graph`], pure) is built from the metadata of every deletable
//! resource, found by discovery ([`follow`]). An owner that the graph does not know is looked up live ([`live`]) before anything is deleted for its
//! absence, so a graph that is late can delay a collection but never cause a wrong one. What rests on
//! knowing all dependents (letting a foreground or orphaning deletion end) waits until every resource has been listed.

use super::event::Recorder;
use super::harness::Environment;
use super::queue::Queue;
use super::write::{EventText, Resource};
use client::Backoff;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

mod act;
mod follow;
pub mod graph;
mod live;

#[cfg(test)]
pub(super) use follow::REDISCOVERY;

use follow::Unlisted;
use graph::{Graph, ObjectId, Observed, Owner};
use live::Absent;

/// Upstream's service account name.
pub const NAME: &str = "generic-garbage-collector";
/// Who its events are from.
const COMPONENT: &str = "garbage-collector-controller";
const DEADLINE: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 16;
/// The first and the longest wait before an object is looked at again.
const RETRY_FIRST: Duration = Duration::from_millis(5);
const RETRY_CAP: Duration = Duration::from_secs(60);

struct Collector {
    environment: Environment,
    graph: Mutex<Graph>,
    queue: Queue<String>,
    /// Known resources by group and kind, for owners.
    kinds: Mutex<BTreeMap<(String, String), Resource>>,
    absent: Mutex<Absent>,
    delays: Mutex<BTreeMap<String, Backoff>>,
    unlisted: Mutex<Unlisted>,
    /// A definition has changed, and with it perhaps what there is.
    definitions: Notify,
}

/// Collects until shutdown.
pub async fn run(mut environment: Environment) {
    let shutdown = environment.shutdown.clone();
    let (client, clock) = (environment.client.clone(), environment.clock.clone());
    environment.recorder = Recorder::spawn(client, clock, COMPONENT);
    let collector = Arc::new(Collector {
        queue: Queue::counted(environment.metrics.clone()),
        environment,
        graph: Mutex::default(),
        kinds: Mutex::default(),
        absent: Mutex::default(),
        delays: Mutex::default(),
        unlisted: Mutex::default(),
        definitions: Notify::new(),
    });
    let mut followed = BTreeMap::new();
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = async {
            collector.discover(&mut followed).await;
            tokio::join!(collector.process_queue(), collector.rediscover(&mut followed));
        } => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

/// Upstream's event about a reference to an owner that is in another namespace.
fn misplaced(object: &ObjectId, owner: &OwnerReference) -> EventText {
    let namespace = &object.key.namespace;
    let OwnerReference {
        api_version,
        kind,
        name,
        uid,
        ..
    } = owner;
    EventText {
        regarding: ObjectReference {
            api_version: Some(object.resource.api_version()),
            kind: Some(object.resource.kind.to_string()),
            name: Some(object.key.name.clone()),
            namespace: Some(namespace.clone()),
            uid: Some(object.uid.clone()),
            ..ObjectReference::default()
        },
        kind: "Warning",
        reason: "OwnerRefInvalidNamespace",
        message: format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] \
             does not exist in namespace {namespace:?}"
        ),
    }
}

impl Collector {
    /// Does what follows from a change of the graph.
    fn take_in(&self, observed: Observed) {
        if let Some(gone) = observed.gone {
            lock(&self.absent).add_object(&gone);
        }
        for (object, owner) in &observed.misplaced {
            self.environment.recorder.record(misplaced(object, owner));
        }
        observed.wake.into_iter().for_each(|uid| self.queue.add(uid));
    }

    async fn process_queue(&self) {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(uid) = running.next(), if !running.is_empty() => self.queue.done(&uid),
                uid = self.queue.next(), if running.len() < CONCURRENCY => running.push(self.reconcile(uid)),
            }
        }
    }

    async fn reconcile(&self, uid: String) -> String {
        let again = match self.collect(&uid).await {
            Ok(true) => {
                lock(&self.delays).remove(&uid);
                return uid;
            }
            Ok(false) => "an owner has not been seen yet".to_owned(),
            Err(error) => error,
        };
        let new = || Backoff::new(RETRY_FIRST, RETRY_CAP, 0);
        let delay = lock(&self.delays).entry(uid.clone()).or_insert_with(new).fail();
        tracing::debug!(uid, again, ?delay, "looking at an object again");
        self.environment.metrics.retries.inc();
        self.queue.add_after(uid.clone(), delay);
        uid
    }

    /// Looks at an object and does what is to be done; false if nobody will tell when it is to be looked at again: an owner that the server
    /// has, and that may go without ever having been seen.
    async fn collect(&self, uid: &str) -> Result<bool, String> {
        let unknown = lock(&self.graph).unknown_owners(uid);
        let mut answers: Vec<(OwnerReference, Owner)> = Vec::new();
        if let Some((object, owners)) = unknown {
            for owner in owners {
                let answer = self.look_up(&object, &owner).await?;
                answers.push((owner, answer));
            }
        }
        let judge = |owner: &OwnerReference| {
            let answer = answers.iter().find(|(asked, _)| asked == owner);
            // What has become unknown meanwhile wakes the object once more.
            answer.map_or(Owner::Present, |(_, answer)| *answer)
        };
        let (action, is_settled) = {
            let graph = lock(&self.graph);
            let is_there = |answer: &Owner| matches!(answer, Owner::Present | Owner::Waiting);
            let unseen = |(owner, answer): &(OwnerReference, Owner)| is_there(answer) && !graph.contains(&owner.uid);
            (graph.decide(uid, judge), !answers.iter().any(unseen))
        };
        self.act(action).await?;
        Ok(is_settled)
    }
}

#[cfg(test)]
mod tests;
