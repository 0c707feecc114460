//! Events for the planted faults of kubelets: lives of a few pods on one node.

use super::{PODS, Simulation, pod};
use crate::workload::{CRASHER, SERVERS, Script, WORKER};
use kubelet::planted::Fault;
use serde_json::{Value, json};
use std::time::Duration;

/// An image that takes four seconds to end.
const STUBBORN: &str = "stubborn:v1";
const OF_PODS: &str = "/registry/pods/default/";
/// Simulated time after which a kubelet has long done what there is to do.
const DONE_WITHIN: Duration = Duration::from_secs(60);
/// A crash back-off and two more of them.
const CRASHES_WITHIN: Duration = Duration::from_secs(120);

fn is_in(phase: &'static str) -> impl Fn(&Value) -> bool {
    move |pod| pod["status"]["phase"] == phase
}

impl Simulation {
    /// Carries out the events that bring a kubelet's fault to light; returns what else is wrong.
    pub(super) async fn enact_on_a_node(&mut self, fault: Fault) -> Vec<String> {
        self.until_nodes_are_ready().await;
        match fault {
            Fault::ObjectBeforeEnd | Fault::SandboxNotStopped | Fault::SandboxKept | Fault::DirectoryKept => {
                self.come_and_go().await;
            }
            Fault::StartedTwice | Fault::SandboxDoubled | Fault::AddressLeftOut => {
                self.ask("POST", PODS, pod("server", SERVERS[0], "Always", "10m")).await;
                tokio::time::sleep(DONE_WITHIN).await;
            }
            Fault::InitLeftOut => {
                let mut waits = pod("waits", SERVERS[0], "Always", "10m");
                waits["spec"]["initContainers"] = json!([{"name": "init", "image": CRASHER}]);
                self.ask("POST", PODS, waits).await;
                tokio::time::sleep(DONE_WITHIN).await;
            }
            Fault::RestartsForgotten => {
                self.ask("POST", PODS, pod("crashes", CRASHER, "Always", "10m")).await;
                tokio::time::sleep(CRASHES_WITHIN).await;
            }
            Fault::EndToldEarly => {
                let mut limited = pod("limited", STUBBORN, "Never", "10m");
                limited["spec"]["activeDeadlineSeconds"] = json!(10);
                limited["spec"]["terminationGracePeriodSeconds"] = json!(10);
                self.ask("POST", PODS, limited).await;
                self.until(OF_PODS, 1, is_in("Failed")).await;
                tokio::time::sleep(DONE_WITHIN).await;
            }
            Fault::EndTakenBack => {
                self.ask("POST", PODS, pod("works", WORKER, "Never", "10m")).await;
                self.until(OF_PODS, 1, is_in("Succeeded")).await;
                tokio::time::sleep(DONE_WITHIN).await;
            }
            Fault::EndUntold => return self.end_alone().await,
            Fault::KeptForGood | Fault::KeptInVain | Fault::EndForgotten => return self.reboot_alone().await,
        }
        Vec::new()
    }

    /// A pod that is deleted while it runs, and ends slowly.
    async fn come_and_go(&mut self) {
        self.ask("POST", PODS, pod("slow", STUBBORN, "Always", "10m")).await;
        self.until(OF_PODS, 1, is_in("Running")).await;
        let grace = json!({"gracePeriodSeconds": 10});
        self.ask("DELETE", &format!("{PODS}/slow"), grace).await;
        self.until(OF_PODS, 0, |_| true).await;
        tokio::time::sleep(DONE_WITHIN).await;
    }

    /// A pod ends while no API server is there, and the cluster is asked whether it is at rest the moment there is one again: before
    /// any kubelet can have told it anything.
    async fn end_alone(&mut self) -> Vec<String> {
        self.ask("POST", PODS, pod("works", WORKER, "Never", "10m")).await;
        self.until(OF_PODS, 1, is_in("Running")).await;
        self.control.kill().await;
        tokio::time::sleep(DONE_WITHIN).await;
        self.control.start().await;
        let is_told = !self.judge.objects(OF_PODS).values().all(is_in("Running"));
        assert!(!is_told, "the end was told before anybody could ask");
        self.rest(&Script::new(0)).await
    }

    /// A node that keeps its pods (node autonomy) starts again while no API server is there: after one of its pods was deleted, and
    /// one of another's two containers ended for good.
    async fn reboot_alone(&mut self) -> Vec<String> {
        let name = self.nodes[0].name.clone();
        let mut half = pod("half", SERVERS[0], "Never", "10m");
        let done = json!({"name": "done", "image": WORKER});
        half["spec"]["containers"]
            .as_array_mut()
            .expect("containers")
            .push(done);
        for mut pod in [
            pod("stays", SERVERS[0], "Always", "10m"),
            pod("goes", SERVERS[0], "Always", "10m"),
            half,
        ] {
            pod["spec"]["nodeName"] = json!(name);
            self.ask("POST", PODS, pod).await;
        }
        self.until(OF_PODS, 3, is_in("Running")).await;
        tokio::time::sleep(DONE_WITHIN).await;
        self.ask("DELETE", &format!("{PODS}/goes"), json!({"gracePeriodSeconds": 1}))
            .await;
        self.until(OF_PODS, 2, is_in("Running")).await;
        self.control.kill().await;
        self.nodes[0].kill().await;
        self.nodes[0].runtime.reboot();
        self.start_kubelet(0);
        tokio::time::sleep(DONE_WITHIN).await;
        let running = self.nodes[0]
            .view()
            .containers
            .into_iter()
            .filter(|container| container.running);
        let running: Vec<(String, String)> = running.map(|container| (container.uid, container.name)).collect();
        let mut wrong = Vec::new();
        for (key, pod) in self.judge.objects(OF_PODS) {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            if !running.iter().any(|(of, name)| of == uid && name == "main") {
                wrong.push(format!("{key} was not started without an API server"));
            }
        }
        self.control.start().await;
        tokio::time::sleep(DONE_WITHIN).await;
        wrong
    }
}
