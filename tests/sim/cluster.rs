//! One simulated cluster: control plane, nodes, users, faults and judges, wired together from a seed.

mod control;
mod node;

use crate::checker::{Checker, ContainerView, RuntimeView, SandboxView, Seen};
use crate::network::Wire;
use crate::workload::{self, Script, Step};
use client::{Clock, TokioClock};
use control::ControlPlane;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::watcher;
use kubelet::runtime::observed::ContainerState;
use node::Node;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Steps of a script, faults on.
const STEPS: usize = 14;
/// Simulated time the cluster has to come to rest once the faults are over.
const REST_MAX: Duration = Duration::from_secs(900);
/// Every kind of fault that has to occur somewhere in 200 seeds.
pub const FAULTS: [&str; 11] = [
    "request delayed",
    "request refused",
    "reply lost",
    "watch cut",
    "kubelet killed",
    "control plane killed",
    "container crashed",
    "runtime drop_event",
    "runtime duplicate_event",
    "runtime delay_event",
    "runtime lose_reply",
];

/// What one seed ended with.
pub struct Outcome {
    pub breaches: Vec<String>,
    pub faults: BTreeMap<String, u64>,
}

/// A running cluster.
pub struct Simulation {
    control: ControlPlane,
    nodes: Vec<Node>,
    wire: Wire,
    rng: StdRng,
    faults: BTreeMap<String, u64>,
}

impl Simulation {
    /// Runs one seed from an empty cluster to rest.
    pub async fn run(seed: u64) -> Outcome {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(start));
        let wire = Wire::new(seed);
        let mut control = ControlPlane::new(seed, clock.clone(), wire.clone());
        control.start().await;
        let nodes = (0..2)
            .map(|n| Node::new(&format!("node{n}"), seed * 10 + n, clock.clone()))
            .collect();
        let rng = StdRng::seed_from_u64(seed ^ 0xfa17);
        let mut simulation = Self {
            control,
            nodes,
            wire,
            rng,
            faults: BTreeMap::new(),
        };
        let mut script = Script::new(seed);
        let judge = simulation.spawn_judge();
        for node in 0..simulation.nodes.len() {
            simulation.start_kubelet(node);
        }
        for _ in 0..STEPS {
            tokio::time::sleep(Duration::from_millis(script.pause())).await;
            simulation.misfortune().await;
            simulation.step(&script.step()).await;
        }
        simulation.heal().await;
        let mut breaches = simulation.rest(&script).await;
        let mut checker = judge.stop();
        let pods = simulation.pods().await;
        checker.at_rest(&pods, &simulation.views());
        breaches.extend(checker.breaches);
        breaches.extend(simulation.leftovers(&pods));
        simulation.count_faults();
        Outcome {
            breaches,
            faults: simulation.faults,
        }
    }

    fn count(&mut self, fault: &str) {
        *self.faults.entry(fault.to_owned()).or_default() += 1;
    }

    fn start_kubelet(&mut self, node: usize) {
        let client = self.control.door().client_of_node(&self.nodes[node].name);
        self.nodes[node].start(self.wire.wrap(client));
    }

    /// Kills something, now and then.
    async fn misfortune(&mut self) {
        match self.rng.random_range(0..10) {
            0..3 => {
                let node = self.rng.random_range(0..self.nodes.len());
                self.count("kubelet killed");
                self.nodes[node].kill().await;
                if self.rng.random_bool(0.5) {
                    tokio::time::sleep(Duration::from_millis(self.rng.random_range(10..20_000))).await;
                }
                self.start_kubelet(node);
            }
            3 => {
                self.count("control plane killed");
                self.control.kill().await;
                tokio::time::sleep(Duration::from_millis(self.rng.random_range(10..10_000))).await;
                self.control.start().await;
            }
            _ => {}
        }
    }

    async fn step(&mut self, step: &Step) {
        if let Step::Crash { place, exit_code } = step {
            let victims: Vec<_> = self.nodes.iter().flat_map(|node| node.runtime.running()).collect();
            if !victims.is_empty() {
                let (uid, container) = &victims[place % victims.len()];
                let struck = self
                    .nodes
                    .iter()
                    .any(|node| node.runtime.crash(uid, container, *exit_code));
                assert!(struck, "the victim runs somewhere");
                self.count("container crashed");
            }
            return;
        }
        let user = self.control.door().admin();
        let done = tokio::time::timeout(Duration::from_secs(120), workload::carry_out(step, &user)).await;
        if let Err(error) = done.expect("a user's request is answered") {
            panic!("{step:?}: {error}");
        }
    }

    /// Ends all faults.
    async fn heal(&mut self) {
        self.wire.heal();
        for node in &self.nodes {
            node.heal();
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
        if processes > running {
            missing.push(format!("{running} pods are Running, but {processes} have processes"));
        }
        missing
    }

    async fn pods(&self) -> Vec<Pod> {
        let api: Api<Pod> = Api::namespaced(self.control.door().admin(), "default");
        api.list(&ListParams::default()).await.expect("a list").items
    }

    fn views(&self) -> BTreeMap<String, RuntimeView> {
        self.nodes.iter().map(|node| (node.name.clone(), node.view())).collect()
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
    }

    /// Judges every watch event as it comes, and the runtimes all the time.
    fn spawn_judge(&self) -> Judge {
        let checker: Arc<Mutex<Checker>> = Arc::default();
        let runtimes: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (node.name.clone(), node.runtime.clone()))
            .collect();
        let views = move || -> BTreeMap<String, RuntimeView> {
            runtimes
                .iter()
                .map(|(name, runtime)| (name.clone(), view(runtime)))
                .collect()
        };
        let api: Api<Pod> = Api::namespaced(self.control.door().admin(), "default");
        let judged = checker.clone();
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
            let mut tick = tokio::time::interval(Duration::from_millis(100));
            loop {
                tokio::select! {
                    biased;
                    event = events.next() => {
                        let mut checker = judged.lock().expect("no holder panics");
                        match event {
                            Some(Ok(watcher::Event::Apply(pod))) => checker.on_pod(Seen::Applied, &pod, &views()),
                            Some(Ok(watcher::Event::Delete(pod))) => checker.on_pod(Seen::Deleted, &pod, &views()),
                            Some(Ok(_)) => {}
                            // The server is down: the watcher would ask again at once.
                            Some(Err(_)) => {
                                drop(checker);
                                tokio::time::sleep(Duration::from_millis(50)).await;
                            }
                            None => return,
                        }
                    }
                    _ = tick.tick() => judged.lock().expect("no holder panics").on_runtimes(&views()),
                }
            }
        });
        Judge { checker, task }
    }
}

struct Judge {
    checker: Arc<Mutex<Checker>>,
    task: tokio::task::JoinHandle<()>,
}

impl Judge {
    fn stop(self) -> Checker {
        self.task.abort();
        std::mem::take(&mut *self.checker.lock().expect("no holder panics"))
    }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
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
fn view(runtime: &kubelet::runtime::fake::FakeRuntime) -> RuntimeView {
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
