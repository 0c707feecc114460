//! One simulated cluster: control plane, nodes, users, faults and judges, wired together from a seed.

mod control;
mod node;
mod rest;
mod scripted;

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
use kubelet::runtime::observed::ContainerState;
use node::Node;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Steps of a script, faults on.
const STEPS: usize = 18;
/// Every kind of fault and of misfortune that has to occur somewhere in 200 seeds.
pub const FAULTS: [&str; 21] = [
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
    "owned object collected",
    "eviction allowed by a budget",
    "pod counted by a job",
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
    /// Carry out the events written for that fault, in place of what the seed makes up.
    pub script: Option<Planted>,
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
        if let Some(fault) = options.script {
            scripted::prepare(fault, &wire);
        }
        let mut control = ControlPlane::new(options, clock.clone(), wire.clone(), judge.clone());
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
        let mut breaches = match options.script {
            None => simulation.live(seed).await,
            Some(fault) => simulation.enact(fault).await,
        };
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

    /// What the seed makes up, faults and all; returns what does not come to rest afterwards.
    async fn live(&mut self, seed: u64) -> Vec<String> {
        let mut script = Script::new(seed);
        self.start_kubelets();
        for step in script.first_steps() {
            self.step(&step).await;
        }
        for _ in 0..STEPS {
            tokio::time::sleep(Duration::from_millis(script.pause())).await;
            self.misfortune().await;
            self.step(&script.step()).await;
        }
        self.heal().await;
        for step in script.last_steps() {
            self.step(&step).await;
        }
        self.rest(&script).await
    }

    fn count(&mut self, fault: &str) {
        *self.faults.entry(fault.to_owned()).or_default() += 1;
    }

    fn start_kubelets(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.start_kubelet(node));
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
