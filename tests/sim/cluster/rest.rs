//! The end of a simulation: what has to stand before the cluster counts as at rest, and what may not be left.

mod kinds;

use super::Simulation;
use super::node::Node;
use crate::checker::{RuntimeView, runs_without_sandbox};
use crate::workload::{self, Script};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;
use kube::api::ListParams;
use std::collections::BTreeSet;
use std::time::Duration;

/// Simulated time the cluster has to come to rest once the faults are over.
const REST_MAX: Duration = Duration::from_secs(900);

impl Simulation {
    /// Waits until what stands is what the script asks for.
    pub(super) async fn rest(&self, script: &Script) -> Vec<String> {
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
        missing.extend(
            pods.iter()
                .filter(|pod| is_ending(pod))
                .map(|pod| format!("pod {} is Running, and all its containers have ended", name_of(pod))),
        );
        // A pod's end is told once its sandbox is stopped, and while no API server is there a kubelet asks again after up to ten
        // seconds: until then the cluster is on its way to rest.
        let views: Vec<RuntimeView> = self.nodes.iter().map(Node::view).collect();
        missing.extend(
            pods.iter()
                .filter(|pod| runs_without_sandbox(pod, &views))
                .map(|pod| format!("pod {} is Running, and has no sandbox", name_of(pod))),
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
        let left = script.gone.iter().chain(&script.kinds.spaces.gone);
        let left = left.filter(|name| namespaces.contains_key(&format!("/registry/namespaces/{name}")));
        missing.extend(left.map(|name| format!("namespace {name} is still there")));
        missing.extend(
            pods.iter()
                .filter(|pod| is_bound(pod) && script.giants.contains(&name_of(pod)))
                .map(|pod| format!("pod {} fits no node and has one", name_of(pod))),
        );
        missing.extend(self.missing_kinds(&script.kinds));
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

    pub(super) async fn pods(&self) -> Vec<Pod> {
        let api: Api<Pod> = Api::all(self.control.door().admin());
        api.list(&ListParams::default()).await.expect("a list").items
    }

    /// What is left on nodes of pods the API server no longer has. A pod that is only being started has a directory before
    /// it has a sandbox.
    pub(super) fn leftovers(&self, pods: &[Pod]) -> Vec<String> {
        let known: BTreeSet<String> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        self.nodes.iter().flat_map(|node| node.leftovers(&known)).collect()
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

/// Whether the pod's next status is its last, or its containers begin again: a moment that is no rest.
fn is_ending(pod: &Pod) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let ended = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    is_running(pod) && statuses.is_some_and(|all| !all.is_empty() && all.iter().all(ended))
}
