//! Events written for one planted fault each, on a sound wire: with the fault a judge speaks up, without it nobody does.

mod node;

use super::Simulation;
use crate::network::Wire;
use crate::planted::Planted;
use crate::workload::manifest::{Shape, deployment, pod};
use crate::workload::{self, SERVERS, TRESPASSES};
use serde_json::{Value, json};
use std::time::Duration;

/// Simulated time that everything here may take to come about.
const PATIENCE: Duration = Duration::from_secs(600);
/// Simulated time in which the garbage collector has long been at work.
const COLLECTED_WITHIN: Duration = Duration::from_secs(20);

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// What has to be so before the control plane starts.
pub fn prepare(fault: Planted, wire: &Wire) {
    wire.heal();
    if fault == Planted::NoLiveLookup {
        wire.hold_watches("/configmaps");
    }
}

impl Simulation {
    /// Carries out the events that bring a fault to light; returns what else is wrong.
    pub(super) async fn enact(&mut self, fault: Planted) -> Vec<String> {
        self.heal().await;
        match fault {
            Planted::FitLeftOut => self.overfill().await,
            Planted::AlwaysAuthorized => {
                for which in 0..TRESPASSES.len() {
                    self.trespass(which).await;
                }
            }
            Planted::UnavailableIgnored => self.roll_out().await,
            Planted::NoLiveLookup => self.own_unseen().await,
            Planted::AnswersFirst => self.crash_at_the_answer().await,
            Planted::Kubelet(fault) => return self.enact_on_a_node(fault).await,
        }
        Vec::new()
    }

    /// A request as the administrator.
    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let user = self.control.door().admin();
        let answer = tokio::time::timeout(PATIENCE, workload::send(&user, method, path, &body)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{method} {path} was not answered"));
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Waits until every object under a prefix of the store is as wanted, and there are so many.
    async fn until(&self, prefix: &str, count: usize, wanted: impl Fn(&Value) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let objects = self.judge.objects(prefix);
            if objects.len() == count && objects.values().all(&wanted) {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "not as wanted, or not {count}: {objects:?}"
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn until_nodes_are_ready(&mut self) {
        self.start_kubelets();
        let is_ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            is_ready && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
        };
        self.until("/registry/minions/", self.nodes.len(), is_ready).await;
    }

    /// More pods than three nodes of at most four CPUs have room for.
    async fn overfill(&mut self) {
        const COUNT: usize = 8;
        self.until_nodes_are_ready().await;
        for n in 0..COUNT {
            self.ask("POST", PODS, pod(&format!("large{n}"), SERVERS[0], "Never", "1500m"))
                .await;
        }
        let is_decided = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let refused = conditions
                .iter()
                .any(|c| c["type"] == "PodScheduled" && c["status"] == "False");
            refused || pod["spec"]["nodeName"].is_string()
        };
        self.until("/registry/pods/default/", COUNT, is_decided).await;
    }

    /// A rollout that may leave no pod unavailable.
    async fn roll_out(&mut self) {
        const REPLICAS: i32 = 4;
        self.until_nodes_are_ready().await;
        let shape = |image| Shape {
            image,
            replicas: REPLICAS,
            cpu_milli: 10,
            init: false,
            sidecar: false,
            probes: false,
            volumes: false,
            hurried: false,
            bounds: ("1", "0"),
        };
        let is_done = |deployment: &Value| {
            let status = &deployment["status"];
            let counts = ["replicas", "updatedReplicas", "availableReplicas"];
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && counts.iter().all(|count| status[count] == REPLICAS)
        };
        self.ask("POST", DEPLOYMENTS, deployment("web", &shape(SERVERS[0])))
            .await;
        self.until("/registry/deployments/", 1, is_done).await;
        let path = format!("{DEPLOYMENTS}/web");
        self.ask("MERGE", &path, deployment("web", &shape(SERVERS[1]))).await;
        self.until("/registry/deployments/", 1, is_done).await;
    }

    /// An owner whose creation no informer hears of, and a dependent that they all hear of.
    async fn own_unseen(&mut self) {
        // The collector has listed everything by then.
        tokio::time::sleep(COLLECTED_WITHIN).await;
        let owner = self
            .ask("POST", CONFIG_MAPS, json!({"metadata": {"name": "owner"}}))
            .await;
        let reference =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
        let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}});
        self.ask("POST", SECRETS, dependent).await;
        tokio::time::sleep(COLLECTED_WITHIN).await;
    }

    /// The control plane dies the moment a write is answered, while commits take a second.
    async fn crash_at_the_answer(&mut self) {
        self.ask("POST", CONFIG_MAPS, json!({"metadata": {"name": "answered"}}))
            .await;
        assert!(self.control.kill().await, "the store was on disk");
        self.control.start().await;
    }
}
