//! The Node object: registration, status, lease, and what its podCIDR asks for.
//!
//! Owns everything this kubelet writes about its node. Never looks at pods.

mod health;
mod lease;
mod notices;
mod pod_network;
mod register;
mod resolver;
mod rival;
mod startup;
mod status;

pub use health::Health;
pub(crate) use pod_network::apply as apply_network;
pub(crate) use pod_network::pod_cidrs;
pub(crate) use status::architecture;
pub use status::{Facts, RuntimeFacts, allocatable, max_pods, memory_kept, node_status, over_reserved};

use crate::admission::description::Describer;
use crate::admission::placement::NodeView;
use crate::config::{Config, NodeConfig};
use crate::events::Severity;
use crate::parts::Parts;
use crate::reason::event;
use crate::runtime::{ImageInfo, Runtime, RuntimeStatus, RuntimeVersion};
use client::informer::{self, Informer};
use client::{AsTree, beat};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube::Api;
use kube::api::{Patch, PatchParams};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rival::{Identity, Rival};
use serde_json::{Map, Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Whoever asks for a look at the node's object waits 10 s at most: within that, a look that fails can be tried again.
const LOOK_DEADLINE: Duration = Duration::from_secs(3);
/// How long after a look that failed the next one begins.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const STATUS_TRIES: u32 = 5;
/// How often the node's images are listed for the status.
const IMAGES_EVERY: Duration = Duration::from_secs(60);

/// A write about the node that failed.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The API server refused or did not answer.
    #[error("{what}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("{0}: context deadline exceeded")]
    Deadline(&'static str),
}

/// Runs one API call with its deadline.
async fn call<T>(what: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T, NodeError> {
    call_within(CALL_DEADLINE, what, call).await
}

async fn call_within<T>(
    deadline: Duration,
    what: &'static str,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, NodeError> {
    match tokio::time::timeout(deadline, call).await {
        Err(_) => Err(NodeError::Deadline(what)),
        Ok(Err(source)) => Err(NodeError::Call {
            what,
            source: Box::new(source),
        }),
        Ok(Ok(value)) => Ok(value),
    }
}

/// Keeps the Node object.
pub struct NodeReporter {
    /// The kubelet's parts: the runtime it tells of, and whom it tells how the node is described.
    parts: Arc<Parts>,
    client: kube::Client,
    config: Arc<Config>,
    /// The machine and this kubelet's place on it.
    facts: Facts,
    node: Informer<Node>,
    random: StdRng,
    told: Told,
    startup: startup::Startup,
}

/// What was last written, to write only what changed.
#[derive(Default)]
struct Written {
    status: Option<NodeStatus>,
    /// The node's revision with it.
    revision: Option<u64>,
    report_at: Option<Instant>,
}

/// What was told of the node, once and for all or as it stands.
#[derive(Default)]
struct Told {
    boot: bool,
    unschedulable: bool,
}

/// The node's images, listed now and then.
#[derive(Default)]
struct Images {
    list: Vec<ImageInfo>,
    at: Option<Instant>,
}

impl Images {
    async fn current(&mut self, runtime: &dyn Runtime, health: &Health) -> Vec<ImageInfo> {
        let old = self.at.is_none_or(|at| at.elapsed() >= IMAGES_EVERY);
        if old
            && health.runtime.is_empty()
            && let Ok(list) = runtime.list_images().await
        {
            self.list = list;
            self.at = Some(Instant::now());
        }
        self.list.clone()
    }
}

impl NodeReporter {
    /// Starts watching the node's own object. Must be called inside a tokio runtime.
    pub fn new(parts: Arc<Parts>, client: kube::Client, config: Arc<Config>, facts: Facts) -> Self {
        let options = informer::Options {
            fields: format!("metadata.name={}", facts.name),
            seed: parts.seed,
            ..informer::Options::default()
        };
        Self {
            node: Informer::spawn_as_tree(Api::all(client.clone()), options),
            random: StdRng::seed_from_u64(parts.seed),
            told: Told::default(),
            startup: startup::Startup::begin(parts.clock.now()),
            parts,
            client,
            config,
            facts,
        }
    }

    /// This node's own object as the API server last had it.
    pub fn informer(&self) -> Informer<Node> {
        self.node.clone()
    }

    fn api(&self) -> Api<AsTree<Node>> {
        Api::all(self.client.clone())
    }

    /// Registers the node, then keeps its status, its lease and its network configuration until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        let (taken, lease_taken) = watch::channel(0);
        let lease = lease::Lease {
            client: self.client.clone(),
            clock: self.parts.clock.clone(),
            node: self.facts.name.clone(),
            seconds: self.config.node.lease_seconds,
            informer: self.node.clone(),
            seed: self.parts.seed,
            taken,
        };
        let network = pod_network::PodNetwork {
            config: self.config.clone(),
            runtime: self.parts.runtime.clone(),
            status: self.parts.runtime_status.subscribe(),
            node: self.node.clone(),
            name: self.facts.name.clone(),
            mtu: self.parts.pod_mtu.subscribe(),
        };
        let describe = describe(
            self.node.clone(),
            self.facts.name.clone(),
            self.api(),
            self.parts.described.clone(),
        );
        let parts = self.parts.clone();
        let resolver = async {
            resolver::watch(parts).await;
            std::future::pending::<()>().await
        };
        let work = async {
            self.register().await;
            tokio::join!(self.keep_status(lease_taken), lease.keep(), network.keep());
        };
        tokio::select! {
            biased;
            () = work => {}
            () = describe => {}
            () = resolver => {}
            () = stop.cancelled() => {}
        }
    }

    /// Makes the node object, or adopts it, unless somebody else is to.
    async fn register(&mut self) {
        if self.config.node.register {
            let labels = register::Registration::new(&self.config.node, &self.facts)
                .with_new_devices(self.startup.is_first() && self.parts.devices.is_new());
            let first = self.first_status().await;
            self.tell(notices::of_status(&self.facts.name, None, &first));
            self.startup.tries(self.parts.clock.now());
            let is_new = register::register(&self.api(), &labels, first, self.parts.seed).await;
            self.startup.registered(is_new, self.parts.clock.now());
        }
    }

    fn tell(&self, notices: impl IntoIterator<Item = notices::Notice>) {
        for notice in notices {
            let recorder = &self.parts.recorder;
            recorder.node(&self.facts.name, notice.severity, notice.reason, notice.message);
        }
    }

    /// Tells that the node takes new pods, or no longer does, and that its machine was booted since it was last described.
    fn tell_of_object(&mut self) {
        let Some(node) = self.node.get("", &self.facts.name) else {
            return;
        };
        let name = self.facts.name.clone();
        let unschedulable = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        let was = std::mem::replace(&mut self.told.unschedulable, unschedulable);
        self.tell(notices::of_scheduling(&name, was, unschedulable));
        // Whoever describes the node later with another boot is another kubelet.
        if !std::mem::replace(&mut self.told.boot, true) {
            let old = node.status.clone().unwrap_or_default();
            self.tell(notices::of_boot(&name, &old, &self.facts.machine.boot_id));
        }
    }

    fn health(&self, status: &RuntimeStatus) -> Health {
        let pleg = self.parts.pleg.sweeps().borrow().problem(Instant::now());
        Health::of(status, pleg, *self.parts.phase.borrow())
    }

    async fn first_status(&mut self) -> NodeStatus {
        let status = self.parts.runtime_status.borrow().clone();
        let runtime = RuntimeFacts::of(&status, RuntimeVersion::default());
        self.status_now(&runtime, &self.health(&status), None)
    }

    fn status_now(&self, runtime: &RuntimeFacts, health: &Health, old: Option<&NodeStatus>) -> NodeStatus {
        let (pressure, devices) = (self.parts.pressure.borrow().clone(), self.parts.devices.capacity());
        let (now, conditions) = (self.parts.clock.now(), (health, &pressure));
        node_status(&self.config, &self.facts, runtime, conditions, &devices, old, now)
    }

    /// Writes the status when the runtime's changed, when the node appears, and when it is due. A node that somebody deleted
    /// is registered again: this kubelet still runs.
    async fn keep_status(&mut self, mut lease_taken: watch::Receiver<u32>) {
        let mut written = Written::default();
        let mut rival = Rival::default();
        let mut images: Images = Images::default();
        let mut version = RuntimeVersion::default();
        let mut status = self.parts.runtime_status.subscribe();
        let mut pressure = self.parts.pressure.subscribe();
        let mut phase = self.parts.phase.subscribe();
        let mut node = self.node.subscribe();
        let mut host_ips = self.parts.context.host_ips.clone();
        let (mut devices, mut damper) = (self.parts.devices.news(), crate::rate::Damper::default());
        // The object's UID: another one is another object, though it has the name.
        let mut known_as: Option<String> = None;
        loop {
            self.facts.ips = host_ips.current().to_vec();
            let there = self.node.get("", &self.facts.name);
            let uid = there.and_then(|node| node.metadata.uid.clone());
            if known_as.is_some() && known_as != uid {
                tracing::warn!(node = self.facts.name, "node object is gone, registering again");
                written = Written::default();
                rival.node_is_new();
                self.register().await;
            }
            known_as = uid;
            if self.look_for_rival(&mut rival) {
                // Wherever the other is, the node must not go on being described as its machine once it is gone.
                written.status = None;
            }
            self.tell_of_object();
            pressure.mark_unchanged();
            phase.mark_unchanged();
            devices.mark_unchanged();
            let seen = status.borrow_and_update().clone();
            let health = self.health(&seen);
            if health.runtime.is_empty() && version.name.is_empty() {
                version = self.parts.runtime.version().await.unwrap_or_default();
            } else if !health.runtime.is_empty() {
                // It may be another version when it comes back.
                version = RuntimeVersion::default();
            }
            let mut runtime = RuntimeFacts::of(&seen, version.clone());
            runtime.images = images.current(&*self.parts.runtime, &health).await;
            if let Err(error) = self.write_status(&runtime, &health, &mut written).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "node status not written, retrying"
                );
                written.status = None;
            }
            let known = self.node.get("", &self.facts.name).is_some();
            tokio::select! {
                biased;
                changed = status.changed() => if changed.is_err() { return },
                Ok(()) = pressure.changed() => {}
                Ok(()) = phase.changed() => {}
                Ok(()) = damper.change(&mut devices) => {}
                () = beat::wait(self.config.node.status_update) => {}
                () = host_ips.changed() => {}
                Ok(()) = lease_taken.changed() => rival.lease_was_taken(Instant::now()),
                _ = node.next(), if !known => {}
            }
        }
    }

    /// Tells of another kubelet of this name, if there is one; returns whether it wrote over our status.
    fn look_for_rival(&self, rival: &mut Rival) -> bool {
        let ours = Identity::of_facts(&self.facts);
        let node = self.node.get("", &self.facts.name);
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        let now = Instant::now();
        let overwritten = status.is_some_and(|status| rival.saw(&ours, status, now));
        if let Some(message) = rival.message(&self.facts.name, &ours, now) {
            tracing::error!(node = self.facts.name, message);
            let recorder = &self.parts.recorder;
            recorder.node(&self.facts.name, Severity::Warning, event::DUPLICATE_NODE_NAME, message);
        }
        overwritten
    }

    async fn write_status(
        &mut self,
        runtime: &RuntimeFacts,
        health: &Health,
        written: &mut Written,
    ) -> Result<(), NodeError> {
        let Some(node) = self.node.get("", &self.facts.name) else {
            return Ok(());
        };
        let old = node.status.clone().unwrap_or_default();
        let new = self.status_now(runtime, health, Some(&old));
        // The watch may be behind this kubelet's own last write.
        let is_current = written.revision <= revision(&node);
        let turned = is_current && status::conditions_turned(&old, &new);
        let changed = turned
            || written
                .status
                .as_ref()
                .is_none_or(|have| !status::same_but_heartbeat(have, &new));
        let due = written.report_at.is_none_or(|at| Instant::now() >= at);
        if !changed && !due {
            return Ok(());
        }
        let mut patch = status_patch(written.status.as_ref(), &new);
        status::drop_stale(&mut patch, &old, &new);
        let mut tries = 0;
        loop {
            tries += 1;
            let params = PatchParams::default();
            let api = self.api();
            let body = Patch::Strategic(&patch);
            let sent = call("patch node status", api.patch_status(&self.facts.name, &params, &body)).await;
            match sent {
                Ok(node) => break written.revision = revision(&node.0),
                Err(error) if tries >= STATUS_TRIES => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50 << tries)).await,
            }
        }
        // What somebody else turned meanwhile turns back.
        let before = written.status.as_ref().filter(|_| !turned).unwrap_or(&old);
        self.tell(notices::of_status(&self.facts.name, Some(before), &new));
        if health.is_ready() {
            self.startup.ready(&self.parts).await;
        }
        written.status = Some(new);
        let report = self.config.node.status_report.as_secs_f64();
        let wait = report * self.random.random_range(0.5..1.5);
        written.report_at = Some(Instant::now() + Duration::from_secs_f64(wait));
        Ok(())
    }
}

/// Tells how the node's object describes it, from the first answer of the API server on. While there is no object, what this
/// kubelet would register holds.
///
/// Whoever would refuse a pod by it may ask whether it is still true: the watch may be behind, and after a failure it waits.
async fn describe(informer: Informer<Node>, name: String, api: Api<AsTree<Node>>, described: Describer) {
    let own = described.current();
    let mut changes = informer.subscribe();
    let questions = described.questions();
    let (mut answered, mut looked) = (0, None);
    informer.synced().await;
    let mut look = pin!(look(&api, &name, questions.clone(), answered));
    loop {
        let newest = newer(informer.get("", &name), looked.clone());
        let view = newest.as_deref().map_or_else(|| own.clone(), NodeView::of);
        described.publish(NodeView {
            known: true,
            looked: answered,
            ..view
        });
        tokio::select! {
            biased;
            answer = &mut look => {
                (answered, looked) = answer;
                look.set(self::look(&api, &name, questions.clone(), answered));
            }
            _ = changes.next() => {
                if informer.get("", &name).is_none() {
                    looked = None;
                    // A look under way may still have seen what is gone.
                    look.set(self::look(&api, &name, questions.clone(), answered));
                }
            }
        }
    }
}

/// Waits for a question past the last that was answered, then looks at the node's object until the API server tells of it. Returns
/// the question that this answers, and the object if there is one.
async fn look(
    api: &Api<AsTree<Node>>,
    name: &str,
    mut questions: watch::Receiver<u64>,
    answered: u64,
) -> (u64, Option<Arc<Node>>) {
    loop {
        let asked = questions.wait_for(|asked| *asked > answered).await;
        let Ok(asked) = asked.map(|asked| *asked) else {
            // Nobody is left to ask.
            return std::future::pending().await;
        };
        match call_within(LOOK_DEADLINE, "get node", api.get_opt(name)).await {
            Ok(node) => return (asked, node.map(|node| Arc::new(node.0))),
            Err(error) => tracing::warn!(%error, "looking at the node's object failed, trying again"),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn revision(node: &Node) -> Option<u64> {
    node.metadata.resource_version.as_ref()?.parse().ok()
}

/// Of two states of the node's object the newer one.
fn newer(watched: Option<Arc<Node>>, looked: Option<Arc<Node>>) -> Option<Arc<Node>> {
    match (&watched, &looked) {
        (Some(watched), Some(looked)) if revision(watched) < revision(looked) => Some(looked.clone()),
        (None, _) => looked,
        _ => watched,
    }
}

/// The labels and taints this kubelet would register its node with.
pub fn own_description(config: &NodeConfig, facts: &Facts) -> NodeView {
    register::Registration::new(config, facts).description()
}

/// The patch that makes a status what it should be: conditions always (their heartbeat moves), the rest where it changed.
fn status_patch(have: Option<&NodeStatus>, new: &NodeStatus) -> Value {
    let tree = |status: &NodeStatus| match serde_json::to_value(status) {
        Ok(Value::Object(tree)) => tree,
        _ => Map::new(),
    };
    let old = have.map(tree).unwrap_or_default();
    let mut changed = tree(new);
    changed.retain(|field, value| field == "conditions" || old.get(field) != Some(value));
    // Merged by type otherwise, and an address that is gone would stay.
    if let Some(Value::Array(addresses)) = changed.get_mut("addresses") {
        addresses.push(json!({ "$patch": "replace" }));
    }
    json!({ "status": changed })
}

/// `Timestamp` cut to whole seconds, as the API stores times.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests;
