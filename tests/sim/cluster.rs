//! One simulated cluster: control plane, nodes, users, faults and judges, wired together from a seed.

mod control;
mod node;

use crate::checker::{ContainerView, RuntimeView, SandboxView};
use crate::judge::Judge;
use crate::network::Wire;
use crate::planted::Planted;
use crate::trace::Trace;
use crate::watcher;
use crate::workload::{self, Script, Step};
use client::{Clock, TokioClock};
use control::ControlPlane;
use controlplane::apiserver::user::User;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use kubelet::runtime::observed::ContainerState;
use node::Node;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Steps of a script, faults on.
const STEPS: usize = 18;
/// Simulated time the cluster has to come to rest once the faults are over.
const REST_MAX: Duration = Duration::from_secs(900);
/// Every kind of fault and of misfortune that has to occur somewhere in 200 seeds.
pub const FAULTS: [&str; 18] = [
    "request delayed",
    "request refused",
    "reply lost",
    "watch cut",
    "watch resumed",
    "kubelet killed",
    "node lost",
    "pod evicted by taint",
    "control plane killed",
    "store reopened after a crash",
    "container crashed",
    "object collected",
    "stranger refused",
    "runtime drop_event",
    "runtime duplicate_event",
    "runtime delay_event",
    "runtime lose_reply",
    "runtime fail_call",
];

/// What a seed runs with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    /// The fault of ours that somebody has to find.
    pub planted: Option<Planted>,
}

/// What one seed ended with.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    pub breaches: Vec<String>,
    pub faults: BTreeMap<String, u64>,
    /// Everything that happened, in order.
    pub trace: Vec<String>,
}

/// A running cluster.
pub struct Simulation {
    control: ControlPlane,
    nodes: Vec<Node>,
    wire: Wire,
    judge: Judge,
    rng: StdRng,
    faults: BTreeMap<String, u64>,
    /// Nodes whose kubelet stays away, until then.
    away: BTreeMap<usize, tokio::time::Instant>,
}

/// A directory for one simulation: in memory where there is one, since every commit is synced.
pub fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let dir = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    dir.expect("a temp dir")
}

impl Simulation {
    /// Runs one seed from an empty cluster to rest.
    pub async fn run(options: Options) -> Outcome {
        let seed = options.seed;
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let clock = TokioClock::starting_at(start);
        if let Some(planted) = options.planted {
            planted.plant();
        }
        let trace = Trace::new(clock);
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let judge = Judge::new(trace.clone());
        let wire = Wire::new(seed, judge.clone());
        let mut control = ControlPlane::new(seed, options.planted, clock.clone(), wire.clone(), judge.clone());
        control.start().await;
        let nodes: Vec<Node> = (0..3)
            .map(|n| Node::new(&format!("node{n}"), seed * 10 + n, clock.clone()))
            .collect();
        nodes.iter().for_each(|node| judge.follow(&node.name, &node.runtime));
        let watching = tokio::spawn(watcher::run(wire.wrap(control.door().admin()), judge.clone()));
        let rng = StdRng::seed_from_u64(seed ^ 0xfa17);
        let mut simulation = Self {
            control,
            nodes,
            wire,
            judge,
            rng,
            faults: BTreeMap::new(),
            away: BTreeMap::new(),
        };
        let mut script = Script::new(seed);
        for node in 0..simulation.nodes.len() {
            simulation.start_kubelet(node);
        }
        for step in script.first_steps() {
            simulation.step(&step).await;
        }
        for _ in 0..STEPS {
            tokio::time::sleep(Duration::from_millis(script.pause())).await;
            simulation.misfortune().await;
            simulation.step(&script.step()).await;
        }
        simulation.heal().await;
        for step in script.last_steps() {
            simulation.step(&step).await;
        }
        let mut breaches = simulation.rest(&script).await;
        watching.abort();
        let pods = simulation.pods().await;
        breaches.extend(simulation.judge.verdict(&pods));
        breaches.extend(simulation.leftovers(&pods));
        simulation.count_faults();
        Outcome {
            breaches,
            faults: simulation.faults,
            trace: trace.take(),
        }
    }

    fn count(&mut self, fault: &str) {
        *self.faults.entry(fault.to_owned()).or_default() += 1;
    }

    fn start_kubelet(&mut self, node: usize) {
        let client = self.control.door().client_of_node(&self.nodes[node].name);
        self.nodes[node].start(self.wire.wrap(client));
    }

    /// Kills something, now and then, and brings back what has been away long enough.
    async fn misfortune(&mut self) {
        let now = tokio::time::Instant::now();
        let back: Vec<usize> = self
            .away
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(n, _)| *n)
            .collect();
        for node in back {
            self.away.remove(&node);
            self.start_kubelet(node);
        }
        match self.rng.random_range(0..20) {
            0..5 => {
                let node = self.rng.random_range(0..self.nodes.len());
                if self.away.contains_key(&node) {
                    return;
                }
                self.count("kubelet killed");
                self.nodes[node].kill().await;
                if self.rng.random_bool(0.5) {
                    tokio::time::sleep(Duration::from_millis(self.rng.random_range(10..20_000))).await;
                }
                self.start_kubelet(node);
            }
            5 => self.lose_node().await,
            6..8 => {
                self.count("control plane killed");
                if self.control.kill().await {
                    self.count("store reopened after a crash");
                }
                tokio::time::sleep(Duration::from_millis(self.rng.random_range(10..10_000))).await;
                self.control.start().await;
            }
            _ => {}
        }
    }

    /// A kubelet stays away until its node is given up; sometimes the others have to live with that for a while.
    async fn lose_node(&mut self) {
        let node = self.rng.random_range(0..self.nodes.len());
        if self.away.contains_key(&node) {
            return;
        }
        self.count("node lost");
        self.nodes[node].kill().await;
        let away = Duration::from_secs(self.rng.random_range(60..400));
        self.away.insert(node, tokio::time::Instant::now() + away);
        if self.rng.random_bool(0.5) {
            tokio::time::sleep(Duration::from_secs(self.rng.random_range(60..120))).await;
        }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Crash { place, exit_code } => return self.crash(*place, *exit_code),
            Step::Trespass(which) => return self.trespass(*which).await,
            _ => {}
        }
        let user = self.control.door().admin();
        let done = tokio::time::timeout(Duration::from_secs(120), workload::carry_out(step, &user)).await;
        if let Err(error) = done.expect("a user's request is answered") {
            panic!("{step:?}: {error}");
        }
    }

    fn crash(&mut self, place: usize, exit_code: i32) {
        let victims: Vec<_> = self.nodes.iter().flat_map(|node| node.runtime.running()).collect();
        if victims.is_empty() {
            return;
        }
        let (uid, container) = &victims[place % victims.len()];
        let mut nodes = self.nodes.iter();
        assert!(
            nodes.any(|node| node.runtime.crash(uid, container, exit_code)),
            "the victim runs somewhere"
        );
        self.count("container crashed");
    }

    /// Somebody asks for what he may not have.
    async fn trespass(&mut self, which: usize) {
        let (name, group, method, path) = workload::TRESPASSES[which];
        let user = User::named(name, &[group, "system:authenticated"]);
        let client = self.control.door().client_as(user);
        match workload::send(&client, method, path, &serde_json::Value::Null).await {
            Err(kube::Error::Api(status)) if status.code == 403 => self.count("stranger refused"),
            other => {
                let answer = other.map_or_else(|error| error.to_string(), |_| "success".to_owned());
                self.judge
                    .breach(format!("{name} was allowed to {method} {path}: {answer}"));
            }
        }
    }

    /// Ends all faults.
    async fn heal(&mut self) {
        self.wire.heal();
        for node in &self.nodes {
            node.heal();
        }
        for (node, _) in std::mem::take(&mut self.away) {
            self.start_kubelet(node);
        }
    }

    /// Waits until what stands is what the script asks for.
    async fn rest(&self, script: &Script) -> Vec<String> {
        let mut missing = Vec::new();
        let deadline = tokio::time::Instant::now() + REST_MAX;
        while tokio::time::Instant::now() < deadline {
            missing = self.missing(script).await;
            if missing.is_empty() {
                return missing;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        missing
            .iter()
            .map(|text| format!("never came to rest: {text}"))
            .collect()
    }

    async fn missing(&self, script: &Script) -> Vec<String> {
        let mut missing = Vec::new();
        let api: Api<Deployment> = Api::namespaced(self.control.door().admin(), "default");
        let list = api.list(&ListParams::default()).await.expect("a list");
        let names: Vec<_> = list.items.iter().filter_map(|d| d.metadata.name.clone()).collect();
        let wanted: Vec<_> = script.deployments.keys().cloned().collect();
        if names != wanted {
            missing.push(format!("deployments are {names:?}, not {wanted:?}"));
        }
        for deployment in &list.items {
            let status = deployment.status.clone().unwrap_or_default();
            let name = deployment.metadata.name.clone().unwrap_or_default();
            let replicas = script.deployments.get(&name).copied();
            let seen = status.observed_generation == deployment.metadata.generation;
            let settled = [status.replicas, status.updated_replicas, status.available_replicas]
                .iter()
                .all(|count| Some(count.unwrap_or(0)) == replicas);
            if !seen || !settled {
                missing.push(format!("deployment {name} wants {replicas:?}, has {status:?}"));
            }
        }
        let pods = self.pods().await;
        let running: usize = pods.iter().filter(|pod| is_running(pod)).count();
        let processes: usize = self.nodes.iter().map(|node| pods_running(&node.view())).sum();
        missing.extend(
            pods.iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_some())
                .map(|pod| format!("pod {:?} is still being deleted", pod.metadata.name)),
        );
        let known: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        for node in &self.nodes {
            let strangers = node
                .view()
                .sandboxes
                .into_iter()
                .filter(|sandbox| !known.contains(&sandbox.uid));
            missing.extend(strangers.map(|sandbox| format!("a sandbox of {} is on {}", sandbox.uid, node.name)));
        }
        missing.extend(self.stale_volumes(&pods));
        missing.extend(self.stale_slices(&pods));
        let namespaces = self.judge.objects("/registry/namespaces/");
        let left = script
            .gone
            .iter()
            .filter(|name| namespaces.contains_key(&format!("/registry/namespaces/{name}")));
        missing.extend(left.map(|name| format!("namespace {name} is still there")));
        missing.extend(
            pods.iter()
                .filter(|pod| is_bound(pod) && script.giants.contains(&name_of(pod)))
                .map(|pod| format!("pod {} fits no node and has one", name_of(pod))),
        );
        if processes > running {
            missing.push(format!("{running} pods are Running, but {processes} have processes"));
        }
        missing
    }

    /// Running pods whose files are not what the configuration says by now.
    fn stale_volumes(&self, pods: &[Pod]) -> Vec<String> {
        let key = |kind: &str| format!("/registry/{kind}/default/{}", workload::CONFIG);
        let objects = self.judge.objects("/registry/");
        let number = |kind: &str| {
            objects
                .get(&key(kind))
                .and_then(|object| object["data"]["number"].as_str())
                .unwrap_or_default()
        };
        let decoded = base64(number("secrets"));
        let wanted = [
            ("configmap", "config", number("configmaps").to_owned()),
            ("secret", "secret", decoded),
        ];
        let mut stale = Vec::new();
        for pod in pods.iter().filter(|pod| is_running(pod)) {
            let spec = pod.spec.clone().unwrap_or_default();
            let mounts = spec.volumes.into_iter().flatten().any(|volume| volume.name == "config");
            let Some(node) = self
                .nodes
                .iter()
                .find(|node| mounts && Some(&node.name) == spec.node_name.as_ref())
            else {
                continue;
            };
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            for (kind, volume, wanted) in &wanted {
                let found = node.volume_file(&uid, kind, volume, "number");
                if found.as_deref() != Some(wanted.as_str()) {
                    stale.push(format!("{kind} of {} has {found:?}, not {wanted:?}", name_of(pod)));
                }
            }
        }
        stale
    }

    /// Services whose slices do not have exactly the addresses of their ready pods.
    fn stale_slices(&self, pods: &[Pod]) -> Vec<String> {
        let mut stale = Vec::new();
        let slices = self.judge.objects("/registry/endpointslices/default/");
        for (key, service) in self.judge.objects("/registry/services/specs/default/") {
            let Some(app) = service["spec"]["selector"]["app"].as_str() else {
                continue;
            };
            let own = slices.values().filter(|slice| {
                slice["metadata"]["labels"]["kubernetes.io/service-name"] == service["metadata"]["name"]
            });
            let endpoints = own.flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
            let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
            let found: BTreeSet<String> = ready
                .filter_map(|endpoint| endpoint["targetRef"]["uid"].as_str().map(str::to_owned))
                .collect();
            let of_app = |pod: &&Pod| {
                pod.metadata
                    .labels
                    .as_ref()
                    .is_some_and(|labels| labels.get("app").is_some_and(|label| label == app))
            };
            let wanted: BTreeSet<String> = pods
                .iter()
                .filter(of_app)
                .filter(|pod| is_ready(pod))
                .filter_map(|pod| pod.metadata.uid.clone())
                .collect();
            if found != wanted {
                stale.push(format!("{key} has the endpoints {found:?}, not {wanted:?}"));
            }
        }
        stale
    }

    async fn pods(&self) -> Vec<Pod> {
        let api: Api<Pod> = Api::all(self.control.door().admin());
        api.list(&ListParams::default()).await.expect("a list").items
    }

    /// What is left on nodes of pods the API server no longer has. A pod that is only being started has a directory before
    /// it has a sandbox.
    fn leftovers(&self, pods: &[Pod]) -> Vec<String> {
        let known: BTreeSet<String> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        self.nodes.iter().flat_map(|node| node.leftovers(&known)).collect()
    }

    fn count_faults(&mut self) {
        use std::sync::atomic::Ordering::Relaxed;
        let counts = self.wire.counts.clone();
        for (name, count) in [
            ("request delayed", &counts.delayed),
            ("request refused", &counts.refused),
            ("reply lost", &counts.reply_lost),
            ("watch cut", &counts.watch_cut),
        ] {
            *self.faults.entry(name.to_owned()).or_default() += count.load(Relaxed);
        }
        for node in &self.nodes {
            for (name, count) in node.runtime.faults_seen() {
                *self.faults.entry(format!("runtime {name}")).or_default() += count;
            }
        }
        for (name, count) in self.judge.counts() {
            *self.faults.entry(name).or_default() += count;
        }
    }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn name_of(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

/// Digits out of base64.
fn base64(text: &str) -> String {
    let secret: k8s_openapi::ByteString = serde_json::from_value(text.into()).unwrap_or_default();
    String::from_utf8_lossy(&secret.0).into_owned()
}

fn pods_running(view: &RuntimeView) -> usize {
    let uids: std::collections::BTreeSet<_> = view
        .containers
        .iter()
        .filter(|container| container.running)
        .map(|container| &container.uid)
        .collect();
    uids.len()
}

/// What a scripted runtime holds, in the judges' words.
pub fn view(runtime: &kubelet::runtime::fake::FakeRuntime) -> RuntimeView {
    let sandboxes = runtime.sandboxes().into_iter().map(|sandbox| SandboxView {
        uid: sandbox.pod.to_string(),
        ready: sandbox.ready,
        ip: sandbox.ips.first().cloned().unwrap_or_default(),
    });
    let containers = runtime.containers().into_iter().map(|container| ContainerView {
        uid: container.pod.to_string(),
        name: container.name.clone(),
        running: container.state == ContainerState::Running,
        exit_code: (container.state == ContainerState::Exited).then_some(container.exit_code),
    });
    RuntimeView {
        sandboxes: sandboxes.collect(),
        containers: containers.collect(),
    }
}
