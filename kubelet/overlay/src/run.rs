//! The loop: the nodes' and the kernel's news in, changes to the kernel and to this node's Node out.
//!
//! Level-triggered: whatever wakes it, it compares what is to be with what is. It looks at the whole kernel at the start,
//! whenever the kernel tells of a change that concerns it, and every thirty seconds; between that it goes by what it remembers.
//! Tunnels are tested beside the turns.

mod news;
mod schedule;

use crate::kernel::{Kernel, Turn};
use crate::peer::Peer;
use crate::plan::{Problem, Reason};
use crate::publish;
use crate::settings::{Backend, Settings};
use crate::state::Each;
use crate::trial::{Tested, Tried};
use client::informer::Change;
use client::ordered::CollectOrdered;
use client::{Backoff, Clock, Informer, blocking};
use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use netlink::link::Mac;
use netlink::monitor::Monitor;
use news::{Interest, hear, watched};
use schedule::Tests;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How often everything is looked at though nothing was heard: the kernel does not tell of lost neighbours.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How soon after a look the kernel's news lead to another: our own changes are news, too.
const SETTLE: Duration = Duration::from_millis(200);
/// How long what failed waits, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long a test that was told to end may take: one answer it waits for, and the kernel's switches.
const TRIAL_ENDS: Duration = Duration::from_secs(2);
/// Deadline of one write to the API.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);

/// What the operator is to see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// The event's reason.
    pub reason: &'static str,
    /// In words.
    pub message: String,
    /// Whether something is wrong.
    pub is_warning: bool,
}

/// The event of a node, or a range of one, that is left out.
const UNREACHABLE: &str = "PodNetworkIncomplete";
/// The event of a kernel that refuses.
const FAILED: &str = "PodNetworkFailed";

/// What the overlay needs of others.
pub struct Sources {
    /// The cluster's nodes.
    pub nodes: Informer<Node>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Takes what becomes an event of this node; told once for each thing that is wrong, or was found out.
    pub notices: Box<dyn Fn(Notice) + Send + Sync>,
    /// Gets the MTU pods are to have, in bytes, once it is known and whenever it changes.
    pub mtu: watch::Sender<Option<u32>>,
    /// Seed of the retry jitter.
    pub seed: u64,
}

/// Why the overlay cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting, named.
    #[error("pod network of several nodes: {0}")]
    Settings(String),
    /// No netlink.
    #[error("pod network of several nodes")]
    Kernel(#[source] netlink::Error),
    /// The kernel's news cannot be waited for.
    #[error("pod network of several nodes: wait for the kernel's news")]
    Monitor(#[source] io::Error),
}

/// Keeps this node's pods and those of the others in reach of each other until `stop`. What it made stays.
///
/// # Errors
/// It cannot begin: a setting is wrong, or there is no netlink.
pub async fn run(
    sources: Sources,
    client: kube::Client,
    settings: Settings,
    stop: CancellationToken,
) -> Result<(), Error> {
    settings.validate().map_err(Error::Settings)?;
    let monitor = Monitor::open().map_err(Error::Kernel)?;
    let mut monitor = watched(monitor).map_err(Error::Monitor)?;
    let settings = Arc::new(settings);
    let kernel = Kernel::open(settings.clone(), spare()).map_err(Error::Kernel)?;
    // Before the nodes are known, nothing of what an earlier run made is stale.
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = sources.nodes.synced() => {}
    }
    let mut changes = sources.nodes.subscribe();
    let mut driver = Driver {
        client,
        backoff: Backoff::new(RETRY.0, RETRY.1, sources.seed),
        kernel: Some(kernel),
        peers: Arc::default(),
        node: None,
        look: true,
        work: true,
        due: Instant::now(),
        looked: Instant::now(),
        interest: Interest::default(),
        told: BTreeSet::new(),
        failed: BTreeSet::new(),
        noticed: BTreeSet::new(),
        tests: Tests::default(),
        trial: None,
        stop: stop.child_token(),
        sources,
        settings,
    };
    driver.take(changes.take());
    let outcome = loop {
        driver.turn().await;
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ok(()),
            taken = changes.next() => driver.take(taken),
            heard = hear(&mut monitor, &driver.interest) => match heard {
                Ok(()) => driver.heard(),
                Err(error) => break Err(Error::Monitor(error)),
            },
            ended = ended(&mut driver.trial) => driver.ended(ended),
            () = sleep_until(driver.due) => driver.look = true,
        }
    };
    // What it switched on to try it, it switches off first: the next run would take it for tested.
    driver.stop.cancel();
    end(&mut driver.trial).await;
    outcome
}

/// Hardware addresses for devices that never had one: locally administered, of one device.
fn spare() -> Each<Mac> {
    let mac = || {
        // The standard hasher's keys are random, and that is all that is needed here.
        let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8).to_be_bytes();
        Mac([
            (number[0] & 0xfc) | 2,
            number[1],
            number[2],
            number[3],
            number[4],
            number[5],
        ])
    };
    Each { v4: mac(), v6: mac() }
}

/// A test that is under way, with the generation of the ways it began with.
type Trial = (u64, JoinHandle<Tried>);

/// Waits for the test that is under way; for ever, if none is. What it found out, unless it broke off. Cancel safe.
async fn ended(trial: &mut Option<Trial>) -> (u64, Option<Tried>) {
    let ended = match trial {
        Some((begun, handle)) => (*begun, handle.await),
        None => std::future::pending().await,
    };
    *trial = None;
    let (begun, tried) = ended;
    if let Err(error) = &tried {
        tracing::error!(%error, "a test of the tunnels broke off");
    }
    (begun, tried.ok())
}

/// The same at the end of everything: nothing to wait for is fine.
async fn end(trial: &mut Option<Trial>) {
    if trial.is_some() && timeout(TRIAL_ENDS, ended(trial)).await.is_err() {
        tracing::warn!("a test of the tunnels did not end in time: checksums may be left to the network card untested");
    }
}

struct Driver {
    sources: Sources,
    settings: Arc<Settings>,
    client: kube::Client,
    backoff: Backoff,
    /// Away only while a turn is under way.
    kernel: Option<Kernel>,
    peers: Arc<BTreeMap<String, Peer>>,
    /// This node.
    node: Option<Arc<Node>>,
    /// Everything is to be looked at.
    look: bool,
    /// A node has changed.
    work: bool,
    /// When to look at the latest.
    due: Instant,
    looked: Instant,
    interest: Interest,
    told: BTreeSet<Problem>,
    failed: BTreeSet<String>,
    noticed: BTreeSet<Notice>,
    tests: Tests,
    /// The test that is under way.
    trial: Option<Trial>,
    /// Ends that test.
    stop: CancellationToken,
}

impl Driver {
    fn take(&mut self, changes: Vec<Change<Node>>) {
        for Change { key, new, .. } in changes {
            let peer = new.as_deref().map(Peer::of);
            if self.peers.get(&key.name) != peer.as_ref() {
                self.work = true;
                let peers = Arc::make_mut(&mut self.peers);
                match peer {
                    Some(peer) => drop(peers.insert(key.name.clone(), peer)),
                    None => drop(peers.remove(&key.name)),
                }
            }
            if key.name == self.settings.node_name {
                // Its condition may have been turned, or an annotation taken.
                self.work = true;
                self.node = new;
            }
        }
    }

    fn heard(&mut self) {
        let soon = self.looked + SETTLE;
        if Instant::now() >= soon {
            self.look = true;
        } else {
            self.due = self.due.min(soon);
        }
    }

    async fn turn(&mut self) {
        if !self.look && !self.work {
            return;
        }
        let own = self.peers.get(&self.settings.node_name).cloned();
        // Without its Node, or without a range, this node has no part in the network; what it had stays for now.
        let Some(own) = own.filter(|own| !own.ranges.is_empty()) else {
            (self.look, self.work) = (false, false);
            self.due = Instant::now() + LOOK_EVERY;
            return;
        };
        let outcome = self.change_kernel(own).await;
        let mut again = match &outcome {
            Ok(turn) => {
                self.told(turn);
                !turn.failures.is_empty()
            }
            Err(error) => {
                self.fail(std::iter::once(error.clone()).collect_ordered());
                true
            }
        };
        if let Ok(turn) = outcome
            && !again
        {
            again = !self.publish(&turn).await;
        }
        let now = Instant::now();
        (self.look, self.work) = (false, false);
        self.due = now + if again { self.backoff.fail() } else { LOOK_EVERY };
        if !again {
            self.backoff.reset();
            self.test();
        }
    }

    /// Has the tunnels tested, until they are or nobody answered too often.
    fn test(&mut self) {
        let is_due = self.trial.is_none() && self.tests.is_due(Instant::now());
        if self.settings.backend != Backend::Vxlan || !is_due {
            return;
        }
        let Some(kernel) = &mut self.kernel else { return };
        let trials = kernel.trials();
        if trials.is_empty() {
            self.ended((self.tests.generation(), Some(trials.run(&|| true))));
            return;
        }
        let stop = self.stop.clone();
        let work = blocking::spawn(move || trials.run(&|| stop.is_cancelled()));
        self.trial = Some((self.tests.generation(), work));
    }

    /// A test has ended. One that broke off says as little as one that nobody answered.
    fn ended(&mut self, (begun, tried): (u64, Option<Tried>)) {
        let Some(kernel) = &mut self.kernel else { return };
        let is_past = tried.as_ref().is_some_and(|tried| self.tests.is_past(begun, tried));
        let tested = match tried {
            Some(tried) if !is_past => kernel.tried(tried),
            nothing => {
                kernel.tried(Tried::default());
                if nothing.is_none() {
                    // How far it came is to be seen.
                    self.look = true;
                }
                Tested::Silent
            }
        };
        if is_past {
            // What was tried is no more; how the switch of its checksums stands now is to be seen.
            self.look = true;
            return;
        }
        self.tests.take(tested, self.settings.test_again, Instant::now());
        // What was found out is told by the next turn.
        let soon = if tested == Tested::Done {
            Some(Instant::now())
        } else {
            self.tests.at
        };
        self.due = soon.map_or(self.due, |soon| self.due.min(soon));
    }

    /// Has the kernel changed where that holds up no task.
    async fn change_kernel(&mut self, own: Peer) -> Result<Turn, String> {
        let mut kernel = match self.kernel.take() {
            Some(kernel) => kernel,
            None => Kernel::open(self.settings.clone(), spare()).map_err(|error| crate::apply::chain(&error))?,
        };
        let (peers, look) = (self.peers.clone(), self.look);
        if look {
            self.looked = Instant::now();
        }
        let work = blocking::spawn(move || {
            let outcome = kernel.turn(&own, &peers, look);
            (kernel, outcome)
        });
        let (kernel, outcome) = work.await.map_err(|error| error.to_string())?;
        match outcome {
            Ok(turn) => {
                self.kernel = Some(kernel);
                Ok(turn)
            }
            // The next turn opens another socket: answers may still be on their way in this one.
            Err(error) => Err(crate::apply::chain(&error)),
        }
    }

    /// Tells what is wrong now and was not before.
    fn told(&mut self, turn: &Turn) {
        self.interest = Interest::of(turn, &self.settings);
        let nodes = turn.plan.owners.values().cloned().collect_ordered();
        self.tests.follow(turn.ways.clone(), nodes);
        if turn.steps > 0 {
            tracing::info!(
                steps = turn.steps,
                nodes = turn.plan.owners.len(),
                "pod network changed"
            );
        }
        for problem in turn.plan.problems.difference(&self.told) {
            let Problem { node, reason } = problem;
            if is_beginning(reason) {
                tracing::info!(node, %reason, "node is not in the pod network yet");
                continue;
            }
            tracing::warn!(node, %reason, "node is not in the pod network");
            let message = format!("Node {node:?} is not in the pod network: {reason}");
            (self.sources.notices)(Notice {
                reason: UNREACHABLE,
                message,
                is_warning: true,
            });
        }
        for problem in self.told.difference(&turn.plan.problems) {
            tracing::info!(node = problem.node, was = %problem.reason, "pod network: no longer so");
        }
        self.told.clone_from(&turn.plan.problems);
        for notice in turn.notices.difference(&self.noticed) {
            tracing::info!(reason = notice.reason, "{}", notice.message);
            (self.sources.notices)(notice.clone());
        }
        self.noticed.clone_from(&turn.notices);
        self.fail(turn.failures.iter().cloned().collect_ordered());
        if let Some(mtu) = turn.plan.pod_mtu(&turn.own) {
            self.sources
                .mtu
                .send_if_modified(|known| known.replace(mtu) != Some(mtu));
        }
    }

    fn fail(&mut self, failures: BTreeSet<String>) {
        for error in failures.difference(&self.failed) {
            tracing::error!(error, "pod network not as it should be, trying again");
            let message = format!("Pod network: {error}");
            (self.sources.notices)(Notice {
                reason: FAILED,
                message,
                is_warning: true,
            });
        }
        self.failed = failures;
    }

    /// Tells the others of this node; whether they know.
    async fn publish(&self, turn: &Turn) -> bool {
        let Some(node) = &self.node else { return true };
        let wanted = publish::annotations(&self.settings, &turn.own, &turn.plan.held);
        let Some(patch) = publish::patch(node, &wanted, self.sources.clock.now()) else {
            return true;
        };
        match timeout(WRITE_DEADLINE, self.write(&Patch::Strategic(&patch))).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "node's annotations not written, retrying"
                );
                false
            }
            Err(_) => {
                tracing::warn!("node's annotations not written in time, retrying");
                false
            }
        }
    }

    /// Changes this node's Node. What it looks like then the informer tells, so the answer is not read as one: that is much code.
    async fn write(&self, patch: &Patch<&Value>) -> Result<(), kube::Error> {
        let nodes = Request::new(Node::url_path(&(), None));
        let request = nodes.patch_subresource("status", &self.settings.node_name, &PatchParams::default(), patch);
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("patch_status");
        self.client.request_text(request).await.map(drop)
    }
}

/// Whether every node is like that for a moment when it joins.
fn is_beginning(reason: &Reason) -> bool {
    matches!(reason, Reason::NoRange | Reason::NoMac(_) | Reason::NoAddress(_))
}

#[cfg(test)]
mod tests;
