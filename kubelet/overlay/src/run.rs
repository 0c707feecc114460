//! The loop: the nodes' and the kernel's news in, changes to the kernel and to this node's Node out.
//!
//! Level-triggered: whatever wakes it, it compares what is to be with what is. It looks at the whole kernel at the start,
//! whenever the kernel tells of a change that concerns it, and every thirty seconds; between that it goes by what it remembers.

use crate::kernel::{Kernel, Tested, Turn};
use crate::own::Way;
use crate::peer::Peer;
use crate::plan::{Problem, Reason};
use crate::publish;
use crate::settings::{Backend, Settings};
use crate::state::{Each, Family, PROTOCOL};
use client::informer::Change;
use client::{Backoff, Clock, Informer, blocking};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use netlink::address::Address;
use netlink::cidr::Cidr;
use netlink::link::{Link, Mac};
use netlink::marked_route::MarkedRoute;
use netlink::monitor::{Heard, Monitor};
use netlink::socket::Reply;
use netlink::wire::{RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How often everything is looked at though nothing was heard: the kernel does not tell of lost neighbours.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How soon after a look the kernel's news lead to another: our own changes are news, too.
const SETTLE: Duration = Duration::from_millis(200);
/// How long what failed waits, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How often tunnels are tested while nobody answers.
const TESTS_MAX: u32 = 6;
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
        api: Api::all(client),
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
        sources,
        settings,
    };
    driver.take(changes.take());
    loop {
        driver.turn().await;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            taken = changes.next() => driver.take(taken),
            heard = hear(&mut monitor, &driver.interest) => driver.heard(heard.map_err(Error::Monitor)?),
            () = sleep_until(driver.due) => driver.look = true,
        }
    }
}

/// Has the runtime wait for the socket.
#[expect(
    deprecated,
    reason = "what takes its place is unsafe; the socket stays open in it and is no other's"
)]
fn watched(monitor: Monitor) -> io::Result<AsyncFd<Monitor>> {
    AsyncFd::new(monitor)
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

/// What of the kernel's news concerns the overlay.
#[derive(Debug, Default)]
struct Interest {
    names: Vec<String>,
    links: Vec<u32>,
    addresses: Vec<IpAddr>,
    ranges: BTreeSet<Cidr>,
}

impl Interest {
    fn of(turn: &Turn, settings: &Settings) -> Self {
        let underlays = Family::ALL
            .into_iter()
            .filter_map(|family| turn.own.underlay.of(family).as_ref());
        let internal = Family::ALL
            .into_iter()
            .filter_map(|family| turn.own.peer.ends.of(family).internal);
        Self {
            names: Family::ALL.map(|family| family.device(settings.vni)).to_vec(),
            links: underlays
                .map(|underlay| underlay.index)
                .chain(turn.tunnels.iter().copied())
                .collect(),
            addresses: settings.underlay.iter().copied().chain(internal).collect(),
            ranges: turn.plan.owners.keys().copied().collect(),
        }
    }

    fn concerns(&self, change: &Reply) -> bool {
        match change.kind {
            RTM_NEWLINK | RTM_DELLINK => Link::read(&change.body)
                .is_some_and(|link| self.names.contains(&link.name) || self.links.contains(&link.index)),
            RTM_NEWADDR | RTM_DELADDR => Address::read(&change.body)
                .is_some_and(|a| self.links.contains(&a.index) || self.addresses.contains(&a.cidr.addr)),
            RTM_NEWROUTE => MarkedRoute::read(&change.body)
                .is_some_and(|route| route.protocol != PROTOCOL && self.ranges.contains(&route.dst)),
            RTM_DELROUTE => MarkedRoute::read(&change.body).is_some_and(|route| self.ranges.contains(&route.dst)),
            _ => false,
        }
    }
}

/// Waits for news that concern us. Cancel safe: what is taken is judged before anything else is waited for.
async fn hear(monitor: &mut AsyncFd<Monitor>, interest: &Interest) -> io::Result<()> {
    loop {
        let mut ready = monitor.readable_mut().await?;
        match ready.get_inner_mut().take()? {
            Heard::Nothing => ready.clear_ready(),
            Heard::Lost => return Ok(()),
            Heard::Changes(changes) if changes.iter().any(|change| interest.concerns(change)) => return Ok(()),
            Heard::Changes(_) => {}
        }
    }
}

struct Driver {
    sources: Sources,
    settings: Arc<Settings>,
    api: Api<Node>,
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
}

/// The tests of the tunnels.
#[derive(Debug, Default)]
struct Tests {
    is_done: bool,
    /// How often nobody answered.
    silent: u32,
    /// When to ask again.
    at: Option<Instant>,
    /// By what the tunnels' packets go that this is of.
    ways: BTreeMap<Family, Way>,
}

impl Tests {
    fn is_due(&self, now: Instant) -> bool {
        !self.is_done && self.at.is_none_or(|at| at <= now)
    }

    /// What is known of other ways says nothing of these.
    fn follow(&mut self, ways: BTreeMap<Family, Way>) {
        if self.ways != ways {
            *self = Self {
                ways,
                ..Self::default()
            };
        }
    }

    /// Where nobody answered, who has yet to hear of this node may; nobody is asked for ever.
    fn take(&mut self, tested: Tested, again: Duration, now: Instant) {
        let is_silent = tested == Tested::Silent;
        self.silent += u32::from(is_silent);
        self.is_done = tested == Tested::Done || self.silent >= TESTS_MAX;
        self.at = match tested {
            Tested::Done | Tested::Alone => None,
            Tested::Silent => Some(now + Duration::from_secs(1 << self.silent.min(5))),
            Tested::Doubtful => Some(now + again),
        };
    }
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

    fn heard(&mut self, (): ()) {
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
                self.fail(BTreeSet::from([error.clone()]));
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
            self.test().await;
        }
    }

    /// Has the tunnels tested, until they are or nobody answered too often.
    async fn test(&mut self) {
        if self.settings.backend != Backend::Vxlan || !self.tests.is_due(Instant::now()) {
            return;
        }
        let Some(mut kernel) = self.kernel.take() else { return };
        let work = blocking::spawn(move || {
            let tested = kernel.test();
            (kernel, tested)
        });
        if let Ok((kernel, tested)) = work.await {
            self.kernel = Some(kernel);
            self.tests.take(tested, self.settings.test_again, Instant::now());
            // What was found out is told by the next turn.
            let soon = if tested == Tested::Done {
                Some(Instant::now())
            } else {
                self.tests.at
            };
            self.due = soon.map_or(self.due, |soon| self.due.min(soon));
        }
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
        self.tests.follow(turn.ways.clone());
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
        self.fail(turn.failures.iter().cloned().collect());
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
        let (body, params) = (Patch::Strategic(&patch), PatchParams::default());
        match timeout(
            WRITE_DEADLINE,
            self.api.patch_status(&self.settings.node_name, &params, &body),
        )
        .await
        {
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
}

/// Whether every node is like that for a moment when it joins.
fn is_beginning(reason: &Reason) -> bool {
    matches!(reason, Reason::NoRange | Reason::NoMac(_) | Reason::NoAddress(_))
}

#[cfg(test)]
mod tests;
