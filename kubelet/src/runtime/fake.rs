//! A scripted runtime in memory, for the simulation and for tests of everything above the CRI.
//!
//! It behaves as a CRI runtime does, on tokio's clock: names are reserved, containers end when their script says so, a
//! stop waits for its grace, events can be lost, doubled or late, replies can be lost after the effect. It survives the
//! kubelet: drop every kubelet task and its containers go on. Never consulted outside tests and simulations.

mod calls;
mod state;

pub use state::{Behaviour, Run};

use super::observed::{ObservedContainer, ObservedSandbox};
use super::{ImageInfo, RuntimeError, RuntimeEvent};
use crate::id::PodUid;
use client::Clock;
use proto::cri as pb;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use state::State;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;

/// Events a slow subscriber may fall behind before it loses some.
const EVENTS_MAX: usize = 1024;

/// Faults drawn from the seed, as probabilities between 0 and 1.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// An event is not delivered.
    pub drop_event: f64,
    /// An event is delivered twice.
    pub duplicate_event: f64,
    /// An event is delivered up to `event_delay_max` late.
    pub delay_event: f64,
    /// The bound of that delay.
    pub event_delay_max: Duration,
    /// A call fails and has no effect.
    pub fail_call: f64,
    /// A call has its effect, and fails.
    pub lose_reply: f64,
}

/// What happens to the next call of a given name.
#[derive(Clone, Debug)]
pub enum Mishap {
    /// It fails with this error and has no effect.
    Fail(RuntimeError),
    /// It never returns until its deadline, and has no effect.
    Hang,
    /// It takes that long, and goes on even if its caller dies meanwhile (`RunPodSandbox`): the name is held from the start.
    GoOn(Duration),
}

/// The scripted runtime. Clones share everything.
#[derive(Clone)]
pub struct FakeRuntime {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    timeout: Duration,
    state: Mutex<State>,
    script: Mutex<Script>,
    events: broadcast::Sender<RuntimeEvent>,
    /// Told of every event, whatever the faults make of it.
    witness: Mutex<Option<Witness>>,
}

type Witness = Arc<dyn Fn(&RuntimeEvent) + Send + Sync>;
type Reopen = Arc<dyn Fn(&str) + Send + Sync>;

struct Script {
    rng: StdRng,
    faults: Faults,
    latency: BTreeMap<&'static str, Duration>,
    mishaps: BTreeMap<&'static str, VecDeque<Mishap>>,
    calls: Vec<String>,
    faults_seen: BTreeMap<&'static str, u64>,
    has_events: bool,
    reopen: Option<Reopen>,
}

impl FakeRuntime {
    /// A runtime without images, on the given clock; `seed` decides its faults.
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        let script = Script {
            rng: StdRng::seed_from_u64(seed),
            faults: Faults::default(),
            latency: BTreeMap::new(),
            mishaps: BTreeMap::new(),
            calls: Vec::new(),
            faults_seen: BTreeMap::new(),
            has_events: true,
            reopen: None,
        };
        let shared = Shared {
            clock,
            timeout: Duration::from_secs(120),
            state: Mutex::default(),
            script: Mutex::new(script),
            events: broadcast::Sender::new(EVENTS_MAX),
            witness: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Gives every sandbox to come this address before its own.
    pub fn set_first_address(&self, address: &str) {
        self.state().first_addresses = vec![address.to_owned()];
    }

    /// Adds an image that is present.
    pub fn add_image(&self, name: &str) {
        self.state().images.insert(name.to_owned(), image_named(name));
    }

    /// Adds an image as it is told.
    pub fn add_image_info(&self, image: ImageInfo) {
        let name = image.repo_tags.first().unwrap_or(&image.id).clone();
        self.state().images.insert(name, image);
    }

    /// The images that are here.
    pub fn images(&self) -> Vec<ImageInfo> {
        self.state().images.values().cloned().collect()
    }

    /// Tells where images are.
    pub fn set_image_file_system(&self, mountpoint: &str) {
        self.state().image_fs = Some(mountpoint.to_owned());
    }

    /// Has `reopen` called with the container's id whenever a log is to be opened anew.
    pub fn reopens_by(&self, reopen: impl Fn(&str) + Send + Sync + 'static) {
        self.script().reopen = Some(Arc::new(reopen));
    }

    /// Adds an image a pull will find.
    pub fn add_remote_image(&self, name: &str) {
        self.state().remote.insert(name.to_owned());
    }

    /// Adds an image a pull will find with this password only.
    pub fn add_private_image(&self, name: &str, password: &str) {
        let mut state = self.state();
        state.remote.insert(name.to_owned());
        state.passwords.insert(name.to_owned(), password.to_owned());
    }

    /// Scripts every container of that image from now on.
    pub fn script_image(&self, image: &str, behaviour: Behaviour) {
        self.state().behaviours.insert(image.to_owned(), behaviour);
    }

    /// Makes every call of that name take this long.
    pub fn set_latency(&self, call: &'static str, latency: Duration) {
        self.script().latency.insert(call, latency);
    }

    /// Sets the seeded faults.
    pub fn set_faults(&self, faults: Faults) {
        self.script().faults = faults;
    }

    /// Has `witness` called at every event as it happens, before any fault: a judge sees what a kubelet may miss.
    pub fn witnessed_by(&self, witness: impl Fn(&RuntimeEvent) + Send + Sync + 'static) {
        *self.shared.witness.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(witness));
    }

    /// Queues what happens to the next call of that name.
    pub fn next(&self, call: &'static str, mishap: Mishap) {
        self.script().mishaps.entry(call).or_default().push_back(mishap);
    }

    /// Takes the event stream away or gives it back: without it subscriptions are refused as unimplemented.
    pub fn set_has_events(&self, has_events: bool) {
        self.script().has_events = has_events;
    }

    /// Makes lists of everything fail as replies beyond the bound do; lists of one pod still work.
    pub fn refuse_list_of_all(&self, refuse: bool) {
        self.state().refuses_list_of_all = refuse;
    }

    /// Images that containers were created with as mounts, each with the path inside it, in order.
    pub fn mounted_images(&self) -> Vec<(String, String)> {
        self.state().mounted_images.clone()
    }

    /// Sets how much containers of that name have written into their layers.
    pub fn set_layer(&self, container: &str, bytes: u64) {
        self.state().layers.insert(container.to_owned(), bytes);
    }

    /// Sets how much memory containers of that name use.
    pub fn set_memory(&self, container: &str, bytes: u64) {
        self.state().memory.insert(container.to_owned(), bytes);
    }

    /// Sets whether the network is ready.
    pub fn set_network_ready(&self, ready: bool) {
        self.state().network_down = !ready;
    }

    /// Ends a container's process from within, as a crash would.
    pub fn crash(&self, pod: &PodUid, container: &str, exit_code: i32) -> bool {
        let now = self.shared.clock.now();
        let ended = self.state().crash(pod, container, exit_code, now);
        if let Some(id) = &ended {
            self.emit(id.clone(), pod.clone(), true);
        }
        ended.is_some()
    }

    /// Ends everything at once, as the power's end does, and forgets it: images are all that is found afterwards.
    pub fn reboot(&self) {
        let now = self.shared.clock.now();
        let ended = self.state().reboot(now);
        for (id, pod) in ended {
            self.emit(id, pod, true);
        }
    }

    /// Running containers as (pod, container name); a checker asserts that no pair is there twice.
    pub fn running(&self) -> Vec<(PodUid, String)> {
        self.state().running()
    }

    /// Pairs (pod, container name) that ever ran twice at the same time.
    pub fn doubled(&self) -> BTreeSet<(PodUid, String)> {
        self.state().doubled.clone()
    }

    /// Every sandbox there is, ready or not.
    pub fn sandboxes(&self) -> Vec<ObservedSandbox> {
        self.state()
            .sandboxes
            .values()
            .map(|sandbox| sandbox.observed.clone())
            .collect()
    }

    /// The name servers of the sandbox of a pod of that name.
    pub fn nameservers(&self, pod: &str) -> Vec<String> {
        let dns = self.sandbox_config(pod).and_then(|config| config.dns_config);
        dns.map(|dns| dns.servers).unwrap_or_default()
    }

    /// What the sandbox of a pod of that name was asked to be.
    pub fn sandbox_config(&self, pod: &str) -> Option<pb::PodSandboxConfig> {
        let state = self.state();
        let sandbox = state.sandboxes.values().find(|sandbox| sandbox.observed.name == pod);
        sandbox.map(|sandbox| sandbox.config.clone())
    }

    /// What a container of that name was asked to be.
    pub fn container_config(&self, container: &str) -> Option<pb::ContainerConfig> {
        let state = self.state();
        let mut containers = state.containers.values();
        let found = containers.find(|found| found.observed.name == container);
        found.map(|found| found.config.clone())
    }

    /// Sets what the runtime says of its handlers and of itself.
    pub fn set_features(&self, handlers: Vec<pb::RuntimeHandler>, features: Option<pb::RuntimeFeatures>) {
        let mut state = self.state();
        (state.handlers, state.features) = (handlers, features);
    }

    /// Every container there is, in any state.
    pub fn containers(&self) -> Vec<ObservedContainer> {
        let state = self.state();
        state
            .containers
            .values()
            .map(|container| container.observed.clone())
            .collect()
    }

    /// How many sandboxes, ready or not, and containers, in any state, there are.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.sandboxes.len(), state.containers.len())
    }

    /// The calls made so far, `Name argument`, in order.
    pub fn calls(&self) -> Vec<String> {
        self.script().calls.clone()
    }

    /// How often each kind of fault struck: a run whose faults never struck proves nothing.
    pub fn faults_seen(&self) -> BTreeMap<&'static str, u64> {
        self.script().faults_seen.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers an event as the faults allow.
    fn emit(&self, id: String, pod: PodUid, ended: bool) {
        let event = RuntimeEvent {
            id,
            pod: Some(pod),
            ended,
        };
        let witness = self
            .shared
            .witness
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(witness) = witness {
            witness(&event);
        }
        let (copies, delay) = {
            let mut script = self.script();
            let faults = script.faults.clone();
            if script.strikes("drop_event", faults.drop_event) {
                return;
            }
            let copies = if script.strikes("duplicate_event", faults.duplicate_event) {
                2
            } else {
                1
            };
            let late = script.strikes("delay_event", faults.delay_event);
            let delay = if late {
                faults.event_delay_max.mul_f64(script.rng.random::<f64>())
            } else {
                Duration::ZERO
            };
            (copies, delay)
        };
        let sender = self.shared.events.clone();
        let deliver = move || {
            for _ in 0..copies {
                // Nobody subscribed is as good as delivered.
                let _ = sender.send(event.clone());
            }
        };
        if delay.is_zero() {
            deliver();
        } else {
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                deliver();
            });
        }
    }
}

impl Script {
    fn strikes(&mut self, fault: &'static str, probability: f64) -> bool {
        let strikes = probability > 0.0 && self.rng.random::<f64>() < probability;
        if strikes {
            *self.faults_seen.entry(fault).or_default() += 1;
        }
        strikes
    }
}

fn image_named(name: &str) -> ImageInfo {
    ImageInfo {
        id: format!("sha256:{}", hex::encode(name)),
        repo_tags: vec![name.to_owned()],
        size: 1_000_000,
        ..ImageInfo::default()
    }
}
