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
use std::collections::{BTreeMap, HashMap, HashSet};
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
use graph::{Graph, ObjectId, Observed, Owner, identity};
use live::{Absent, Question};

/// Upstream's service account name.
pub const NAME: &str = "generic-garbage-collector";
/// Who its events are from.
const COMPONENT: &str = "garbage-collector-controller";
const DEADLINE: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 16;
/// The first and the longest wait before an object is looked at again.
const RETRY_FIRST: Duration = Duration::from_millis(5);
const RETRY_CAP: Duration = Duration::from_secs(60);

/// Owners looked up in one turn of an object; the others' turn comes in between.
const LOOK_UPS: usize = 50;

type Answers = Vec<(OwnerReference, Owner)>;

/// What a turn of an object ended with.
enum Turn {
    /// A change of what there is brings the next one.
    Settled,
    /// Nobody will tell when it is to be looked at again: an owner that the server has, and that may go without ever having been seen.
    Unsettled,
    /// There are more owners to ask about.
    Unfinished,
}

struct Collector {
    environment: Environment,
    graph: Mutex<Graph>,
    queue: Queue<String>,
    /// Known resources by group and kind, for owners.
    kinds: Mutex<BTreeMap<(String, String), Resource>>,
    absent: Mutex<Absent>,
    delays: Mutex<BTreeMap<String, Backoff>>,
    /// What has been answered about objects with more owners to ask about than one turn asks; no more than the graph has references.
    learnt: Mutex<BTreeMap<String, Answers>>,
    unlisted: Mutex<Unlisted>,
    /// A definition has changed, and with it perhaps what there is.
    definitions: Notify,
}

/// Collects until shutdown.
pub async fn run(mut environment: Environment) {
    let shutdown = environment.shutdown.clone();
    let (client, clock) = (environment.client.clone(), environment.clock.clone());
    environment.recorder = Recorder::spawn(client, clock, COMPONENT);
    let collector = Arc::new(Collector::new(environment));
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
    fn new(environment: Environment) -> Self {
        Self {
            queue: Queue::counted(environment.metrics.clone()),
            environment,
            graph: Mutex::default(),
            kinds: Mutex::default(),
            absent: Mutex::default(),
            delays: Mutex::default(),
            learnt: Mutex::default(),
            unlisted: Mutex::default(),
            definitions: Notify::new(),
        }
    }

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
                Some(uid) = running.next(), if !running.is_empty() => {
                    self.queue.done(&uid);
                    // Most objects need no question and no write, and so wait for nothing.
                    tokio::task::yield_now().await;
                }
                uid = self.queue.next(), if running.len() < CONCURRENCY => running.push(self.reconcile(uid)),
            }
        }
    }

    async fn reconcile(&self, uid: String) -> String {
        let again = match self.collect(&uid).await {
            Ok(Turn::Settled) => {
                lock(&self.delays).remove(&uid);
                return uid;
            }
            Ok(Turn::Unfinished) => {
                self.queue.add(uid.clone());
                return uid;
            }
            Ok(Turn::Unsettled) => "an owner has not been seen yet".to_owned(),
            Err(error) => error,
        };
        let new = || Backoff::new(RETRY_FIRST, RETRY_CAP, 0);
        let delay = lock(&self.delays).entry(uid.clone()).or_insert_with(new).fail();
        tracing::debug!(uid, again, ?delay, "looking at an object again");
        self.environment.metrics.retries.inc();
        self.queue.add_after(uid.clone(), delay);
        uid
    }

    /// Looks at an object and does what is to be done.
    async fn collect(&self, uid: &str) -> Result<Turn, String> {
        let unknown = lock(&self.graph).unknown_owners(uid);
        let mut answers = lock(&self.learnt).remove(uid).unwrap_or_default();
        if let Some((object, owners)) = unknown {
            let asked = self.ask(&object, owners, &mut answers).await;
            if !matches!(asked, Ok(true)) && !answers.is_empty() {
                lock(&self.learnt).insert(uid.to_owned(), answers);
                return asked.map(|_| Turn::Unfinished);
            }
            if !asked? {
                return Ok(Turn::Unfinished);
            }
        }
        let asked: HashMap<_, Owner> = answers
            .iter()
            .map(|(owner, answer)| (identity(owner), *answer))
            .collect();
        // What has become unknown meanwhile wakes the object once more.
        let judge = |owner: &OwnerReference| asked.get(&identity(owner)).copied().unwrap_or(Owner::Present);
        let (action, is_settled) = {
            let graph = lock(&self.graph);
            let is_there = |answer: &Owner| matches!(answer, Owner::Present | Owner::Waiting);
            let unseen = |(owner, answer): &(OwnerReference, Owner)| is_there(answer) && !graph.contains(&owner.uid);
            (graph.decide(uid, judge), !answers.iter().any(unseen))
        };
        self.act(action).await?;
        Ok(if is_settled { Turn::Settled } else { Turn::Unsettled })
    }

    /// Asks about owners that are not among the answers yet, of no more than [`LOOK_UPS`] of them the server; whether those were all. Asks
    /// about none if one of them is of a kind that is not known.
    async fn ask(&self, object: &ObjectId, owners: Vec<OwnerReference>, answers: &mut Answers) -> Result<bool, String> {
        let known: HashSet<_> = answers.iter().map(|(owner, _)| identity(owner)).collect();
        let open: Vec<_> = owners
            .iter()
            .filter(|owner| !known.contains(&identity(owner)))
            .collect();
        let questions: Result<Vec<_>, String> = open.iter().map(|owner| self.question(object, owner)).collect();
        drop(known);
        let (mut asked, is_shared) = (0, owners.len() <= LOOK_UPS);
        for (owner, question) in open.into_iter().zip(questions?) {
            let answer = match question {
                Question::Answered(answer) => answer,
                Question::Of(_) if asked == LOOK_UPS => return Ok(false),
                Question::Of(resource) => {
                    asked += 1;
                    self.look_up(object, owner, &resource, is_shared).await?
                }
            };
            answers.push((owner.clone(), answer));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
