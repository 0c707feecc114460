//! Controllers and scheduler against the real API server, in process, on a paused clock, with nodes that only pretend.

mod autoscalers;
mod budgets;
mod constraints;
mod custom;
mod deployments;
mod device_claims;
mod endpoints;
mod garbage;
mod jobs;
mod namespaces;
mod nodes;
mod quotas;
mod remote;
mod roles;
mod scheduling;
mod services;
mod sets;
mod tokens;
mod usage;
pub(super) mod world;
mod writes;

use super::kept::Kept;
use super::{ControllerContext, PROGRAM, read, spawn_all};
use crate::apiserver::gate::secured::{Denied, Secured};
use crate::apiserver::user::User;
use crate::apiserver::{ApiServer, Parts};
use crate::bootstrap;
use crate::held::Pod;
use crate::metrics::Metrics;
use crate::scheduler::{self, SchedulerContext};
use crate::store::memory::Memory;
use client::informer::Options;
use client::{Clock, Informer, TokioClock};
use http::Request;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long a test waits for what must happen, on the paused clock.
const PATIENCE: Duration = Duration::from_secs(700);

struct World {
    server: ApiServer,
    /// The CA that namespaces are told.
    root_ca_pem: tokio::sync::watch::Sender<String>,
    client: kube::Client,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
    refused: Arc<Mutex<Vec<String>>>,
    /// What kubelets say of pods' use.
    usage: Arc<usage::Kubelets>,
    /// Where controllers and scheduler count.
    metrics: Arc<Metrics>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if !std::thread::panicking() {
            assert_eq!(*self.refused.lock().unwrap(), Vec::<String>::new());
        }
    }
}

impl World {
    /// A server with controllers and scheduler, and that many ready nodes whose pods start when bound.
    async fn start(nodes: usize) -> Self {
        Self::start_denying(nodes, Denied::default()).await
    }

    /// As [`World::start`], with a gate that refuses what `denied` says as long as it says so.
    async fn start_denying(nodes: usize, denied: Denied) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
        let mut gate = Secured::new();
        gate.denied = denied;
        let refused = gate.refused.clone();
        let measured = Arc::new(usage::Kubelets::new(clock.clone()));
        gate.usage = Some(measured.served());
        let parts = Parts {
            store: Arc::new(Memory::new()),
            clock: clock.clone(),
            seed: 7,
            gate: Arc::new(gate),
        };
        let server = ApiServer::new(parts).await.unwrap();
        let shutdown = CancellationToken::new();
        measured.serve(&server, &shutdown);
        let (root_ca_pem, root_ca) = tokio::sync::watch::channel("PEM".to_owned());
        let world = Self {
            server: server.clone(),
            root_ca_pem,
            client: server.client_as(User::named("admin", &["system:masters"])),
            clock: clock.clone(),
            shutdown: shutdown.clone(),
            refused,
            usage: measured,
            metrics: Arc::default(),
        };
        let loopback = std::net::Ipv4Addr::LOCALHOST.into();
        let facts = bootstrap::Facts {
            cluster_ip: "10.96.0.1".parse().unwrap(),
            service_ranges: vec!["10.96.0.0/16".to_owned()],
            cluster_dns: None,
            advertise: loopback,
            port: 6443,
            client_ca_pem: "PEM".into(),
        };
        bootstrap::run(&server, &facts).await.unwrap();
        let scheduler = server.client_as(User::named("system:kube-scheduler", &[]));
        let client_for = Arc::new(move |name: &str| {
            server.client_as(match name {
                PROGRAM => User::named("system:kube-controller-manager", &[]),
                name => User::service_account("kube-system", name),
            })
        });
        let informers = read(&*client_for, 1, Kept::Asked);
        spawn_all(ControllerContext {
            informers: informers.clone(),
            client_for,
            clock: clock.clone(),
            seed: 1,
            cluster_cidr: Some("10.244.0.0/16".into()),
            root_ca_pem: root_ca,
            authority: None,
            sign: Some(tokens::sign()),
            selection: Default::default(),
            rates: Default::default(),
            options: Default::default(),
            metrics: Arc::clone(&world.metrics),
            shutdown: shutdown.clone(),
        })
        .detach_all();
        let context = SchedulerContext {
            informers: (&informers).into(),
            config: Default::default(),
            client: scheduler,
            clock,
            host: "host".to_owned(),
            seed: 2,
            metrics: Arc::clone(&world.metrics),
            shutdown,
        };
        tokio::spawn(scheduler::run(context));
        tokio::spawn(kubelets(world.client.clone(), world.shutdown.clone()));
        tokio::spawn(heartbeats(
            world.client.clone(),
            world.clock.clone(),
            world.shutdown.clone(),
        ));
        for i in 0..nodes {
            world.add_node(&format!("n{i}")).await;
        }
        world
    }

    /// The metrics' lines.
    fn counted(&self) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, kube::Error> {
        call(&self.client, method, path, body).await
    }

    async fn create(&self, path: &str, body: Value) -> Value {
        self.call("POST", path, Some(body)).await.unwrap()
    }

    async fn get(&self, path: &str) -> Option<Value> {
        self.call("GET", path, None).await.ok()
    }

    async fn patch(&self, path: &str, body: Value) -> Value {
        self.call("PATCH", path, Some(body)).await.unwrap()
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        let list = self.call("GET", path, None).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Waits until `holds` of what is at `path`; `Null` when nothing is there.
    async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let mut pause = Duration::from_millis(1);
        let looking = async {
            loop {
                last = self.get(path).await.unwrap_or_default();
                if holds(&last) {
                    return last.clone();
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        };
        let found = timeout(PATIENCE, looking).await;
        found.unwrap_or_else(|_| panic!("{path} never became what was expected: {last:#}"))
    }

    async fn add_node(&self, name: &str) {
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        self.create(
            "/api/v1/nodes",
            json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
                "status": {"conditions": [ready], "allocatable": allocatable, "capacity": allocatable}}),
        )
        .await;
    }

    async fn deploy(&self, name: &str, replicas: usize, image: &str) {
        self.create(
            "/apis/apps/v1/namespaces/default/deployments",
            deployment(name, replicas, image),
        )
        .await;
    }
}

fn deployment(name: &str, replicas: usize, image: &str) -> Value {
    json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// A kind of a user's own that has a scale; the path of its collection, once it is served.
async fn define_herds(world: &World) -> &'static str {
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"});
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "herds.zoo.example"}, "spec": {"group": "zoo.example", "scope": "Namespaced",
            "names": {"plural": "herds", "kind": "Herd"}, "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": scale}, "schema": {"openAPIV3Schema": schema}}]}});
    world
        .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        .await;
    let herds = "/apis/zoo.example/v1/namespaces/default/herds";
    world.until(herds, Value::is_object).await;
    herds
}

async fn call(client: &kube::Client, method: &str, path: &str, body: Option<Value>) -> Result<Value, kube::Error> {
    let content = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content);
    let body = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
    client.request(request.body(body).unwrap()).await
}

/// All nodes not labelled `silent` report every ten seconds.
async fn heartbeats(client: kube::Client, clock: Arc<dyn Clock>, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let nodes = call(&client, "GET", "/api/v1/nodes?labelSelector=!silent", None)
            .await
            .unwrap();
        for node in nodes["items"].as_array().unwrap() {
            let beat = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(clock.now());
            let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": beat});
            let path = format!("/api/v1/nodes/{}/status", node["metadata"]["name"].as_str().unwrap());
            let _ = call(
                &client,
                "PATCH",
                &path,
                Some(json!({"status": {"conditions": [ready]}})),
            )
            .await;
        }
    }
}

/// All nodes' kubelets: bound pods become ready at once, or end as their image says; deleted ones go at once.
async fn kubelets(client: kube::Client, shutdown: CancellationToken) {
    let pods: Informer<Pod> = Informer::spawn(Api::all(client.clone()), Options::default());
    let mut changes = pods.subscribe();
    loop {
        let seen = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            seen = changes.next() => seen,
        };
        for pod in seen.into_iter().filter_map(|c| c.new) {
            let spec = pod.spec.as_ref().unwrap();
            let path = format!(
                "/api/v1/namespaces/{}/pods/{}",
                pod.namespace().unwrap(),
                pod.name_any()
            );
            let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
            if spec.node_name.is_none() || pod.labels().contains_key("stuck") {
                continue;
            }
            if pod.metadata.deletion_timestamp.is_some() {
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
                let _ = call(&client, "DELETE", &path, Some(options)).await;
            } else if let Some("Succeeded" | "Failed") = phase {
                continue;
            } else if let Some(image @ ("succeeds" | "fails")) = spec.containers[0].image.as_deref() {
                let phase = if image == "fails" { "Failed" } else { "Succeeded" };
                let status = json!({"status": {"phase": phase}});
                let _ = call(&client, "PATCH", &format!("{path}/status"), Some(status)).await;
            } else if phase != Some("Running") && spec.containers[0].image.as_deref() != Some("broken") {
                let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
                let mut status = json!({"status": {"phase": "Running", "podIP": "10.244.0.9", "conditions": [ready]}});
                if pod.labels().contains_key("measured") {
                    status["status"]["startTime"] = json!("2025-12-31T00:00:00Z");
                }
                let _ = call(&client, "PATCH", &format!("{path}/status"), Some(status)).await;
            }
        }
    }
}
