//! A whole kubelet over a scripted runtime and a scripted API server, on tokio's paused clock.

mod alive;
mod machine;

pub(crate) use alive::Alive;

use super::Kubelet;
use crate::admission::description::Describer;
use crate::admission::placement::NodeView;
use crate::collect;
use crate::eviction::threshold::Rules;
use crate::host::FakeMounter;
use crate::host::addresses::HostIps;
use crate::id::PodUid;
use crate::image::{self, provider};
use crate::node_shutdown::Periods;
use crate::node_shutdown::testing::FakeLogind;
use crate::parts::testing::dependencies;
use crate::parts::{Dependencies, Settings};
use crate::pinning::topology::Topology;
use crate::pinning::{self, Pinning};
use crate::pod::spec::NodeContext;
use crate::pod::spec::testing::context;
use crate::runtime::fake::FakeRuntime;
use crate::source::StaticSources;
use bytes::Bytes;
use client::{Clock, TokioClock};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::client::Body;
use proto::api::resources::ResourceList;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

mod accounts;
mod claims;
mod reply;

use reply::{not_found, refused, reply};

type Reply = UnsyncBoxBody<Bytes, std::io::Error>;

/// Pods and events of one API server, in memory: just enough of the protocol for a kubelet.
#[derive(Clone)]
pub(crate) struct Api {
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<Value>,
    away: Arc<watch::Sender<bool>>,
}

#[derive(Default)]
struct State {
    revision: u64,
    /// Watches from before this revision have missed something: they are told to list again.
    watched_from: u64,
    pods: BTreeMap<String, Value>,
    secrets: Vec<Value>,
    service_accounts: BTreeMap<String, Value>,
    runtime_classes: Vec<Value>,
    claims: BTreeMap<String, Value>,
    events: Vec<(String, String)>,
    /// What they were annotated with, by reason.
    annotations: Vec<(String, Value)>,
    /// Phases each pod was told to have, in order.
    phases: BTreeMap<String, Vec<String>>,
}

impl Api {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            changes: broadcast::Sender::new(4096),
            away: Arc::default(),
        }
    }

    /// Goes away, ending every watch, or comes back.
    pub(crate) fn set_away(&self, away: bool) {
        let mut state = self.state();
        state.watched_from = state.revision;
        drop(state);
        self.away.send_replace(away);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, mut pod: Value, kind: &str) -> Value {
        let mut state = self.state();
        state.revision += 1;
        pod["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        pod["kind"] = json!("Pod");
        pod["apiVersion"] = json!("v1");
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let Some(phase) = pod["status"]["phase"].as_str() {
            let phases = state.phases.entry(name.clone()).or_default();
            if phases.last().map(String::as_str) != Some(phase) {
                phases.push(phase.to_owned());
            }
        }
        if kind == "DELETED" {
            state.pods.remove(&name);
        } else {
            state.pods.insert(name, pod.clone());
        }
        drop(state);
        let _ = self.changes.send(json!({"type": kind, "object": pod}));
        pod
    }

    pub(crate) fn create(&self, pod: &Pod) {
        self.store(serde_json::to_value(pod).expect("a pod"), "ADDED");
    }

    /// Marks a pod for deletion, as `kubectl delete` does.
    pub(crate) fn delete(&self, name: &str, grace: i64, now: Timestamp) {
        let mut pod = self.state().pods[name].clone();
        pod["metadata"]["deletionTimestamp"] = serde_json::to_value(Time(now)).expect("a time");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.store(pod, "MODIFIED");
    }

    /// Changes a pod as an update by a user does.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = self.state().pods[name].clone();
        change(&mut pod);
        self.store(pod, "MODIFIED");
    }

    /// Removes a pod at once, as a forced deletion does.
    pub(crate) fn remove(&self, name: &str) {
        let pod = self.state().pods[name].clone();
        self.store(pod, "DELETED");
    }

    /// Adds a secret; it is there from the first question on and never changes.
    pub(crate) fn add_secret(&self, secret: &k8s_openapi::api::core::v1::Secret) {
        let secret = serde_json::to_value(secret).expect("serializes");
        self.state().secrets.push(secret);
    }

    /// Adds a runtime class, likewise.
    pub(crate) fn add_runtime_class(&self, name: &str, handler: &str) {
        let class = json!({"metadata": {"name": name}, "handler": handler});
        self.state().runtime_classes.push(class);
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Pod> {
        let pod = self.state().pods.get(name).cloned()?;
        serde_json::from_value(pod).ok()
    }

    pub(crate) fn status(&self, name: &str) -> Option<PodStatus> {
        let pod = self.state().pods.get(name).cloned()?;
        serde_json::from_value(pod["status"].clone()).ok()
    }

    pub(crate) fn phases(&self, name: &str) -> Vec<String> {
        self.state().phases.get(name).cloned().unwrap_or_default()
    }

    /// Every pod there is.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.state().pods.keys().cloned().collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.state().pods.contains_key(name)
    }

    /// Recorded events as (reason, message).
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        self.state().events.clone()
    }

    /// What the events of a reason were annotated with.
    pub(crate) fn annotations(&self, reason: &str) -> Vec<Value> {
        let state = self.state();
        let of_reason = state.annotations.iter().filter(|(of, _)| of == reason);
        of_reason.map(|(_, annotations)| annotations.clone()).collect()
    }

    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.serve(request).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn serve(&self, request: Request<Body>) -> Response<Reply> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let name = path.split('/').nth(6).unwrap_or_default().to_owned();
        if *self.away.borrow() {
            return refused(503, "ServiceUnavailable");
        }
        match (parts.method, path.ends_with("/pods")) {
            (Method::GET, true) if query.contains("watch=") => {
                let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
                let from: u64 = from.and_then(|text| text.parse().ok()).unwrap_or_default();
                if from < self.state().watched_from {
                    return refused(410, "Expired");
                }
                self.watch()
            }
            (Method::GET, true) => {
                let state = self.state();
                reply(
                    200,
                    &json!({"kind": "PodList", "apiVersion": "v1",
                    "metadata": {"resourceVersion": state.revision.to_string()},
                    "items": state.pods.values().collect::<Vec<_>>()}),
                )
            }
            (Method::GET, false) if query.contains("watch=") => {
                Response::new(UnsyncBoxBody::new(StreamBody::new(futures::stream::pending())))
            }
            (Method::GET, false) if path.ends_with("/secrets") => {
                let named = |secret: &&Value| query.contains(secret["metadata"]["name"].as_str().unwrap_or_default());
                let state = self.state();
                let items: Vec<&Value> = state.secrets.iter().filter(named).collect();
                reply(
                    200,
                    &json!({"kind": "SecretList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
                )
            }
            (Method::GET, false) if path.ends_with("/runtimeclasses") => {
                let items = self.state().runtime_classes.clone();
                let meta = json!({"resourceVersion": "1"});
                reply(
                    200,
                    &json!({"kind": "RuntimeClassList", "apiVersion": "node.k8s.io/v1", "metadata": meta, "items": items}),
                )
            }
            (method, false) if path.contains("/serviceaccounts/") => self.service_account(&method, &name, body),
            (Method::POST, _) if path.ends_with("/events") => {
                let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
                let mut state = self.state();
                state
                    .annotations
                    .push((text("reason"), body["metadata"]["annotations"].clone()));
                state.events.push((text("reason"), text("message")));
                drop(state);
                reply(201, &body)
            }
            (Method::POST, _) if path.ends_with("/pods") => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if self.has(&name) {
                    return refused(409, "AlreadyExists");
                }
                let mut pod = body;
                let uid = format!("api-{}", self.state().revision);
                pod["metadata"]["uid"] = json!(uid);
                reply(201, &self.store(pod, "ADDED"))
            }
            (Method::GET, false) if path.contains("/resourceclaims/") => self.claim(&path),
            (Method::GET, _) if path.contains("/nodes/") => {
                let node =
                    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-a", "uid": "node-uid"}});
                reply(200, &node)
            }
            (Method::GET, false) if path.contains("/pods/") => match self.state().pods.get(&name) {
                Some(pod) => reply(200, pod),
                None => not_found(),
            },
            (Method::GET, false) => reply(
                200,
                &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}),
            ),
            (Method::PATCH, _) if path.contains("/pods/") => self.patch(&name, &body),
            (Method::DELETE, _) if path.contains("/pods/") => {
                let pod = self.state().pods.get(&name).cloned();
                match pod {
                    Some(pod) => reply(200, &self.store(pod, "DELETED")),
                    None => not_found(),
                }
            }
            _ => reply(200, &body),
        }
    }

    fn patch(&self, name: &str, body: &Value) -> Response<Reply> {
        let Some(mut pod) = self.state().pods.get(name).cloned() else {
            return not_found();
        };
        if pod["metadata"]["uid"] != body["metadata"]["uid"] {
            return not_found();
        }
        let mut status = body["status"].clone();
        for list in ["podIPs", "hostIPs", "conditions"] {
            if let Some(list) = status[list].as_array_mut() {
                list.retain(|entry| entry.get("$patch").is_none());
            }
        }
        pod["status"] = status;
        reply(200, &self.store(pod, "MODIFIED"))
    }

    fn watch(&self) -> Response<Reply> {
        let changes = tokio_stream::wrappers::BroadcastStream::new(self.changes.subscribe());
        let lines = futures::StreamExt::map(changes, |change| {
            let mut line = change.unwrap_or_default().to_string().into_bytes();
            line.push(b'\n');
            Ok::<_, std::io::Error>(Frame::data(Bytes::from(line)))
        });
        let mut away = self.away.subscribe();
        let until_away = async move { drop(away.wait_for(|away| *away).await) };
        let lines = futures::StreamExt::take_until(lines, Box::pin(until_away));
        Response::new(UnsyncBoxBody::new(StreamBody::new(lines)))
    }
}

/// One node: a runtime that outlives its kubelets.
pub(crate) struct Bench {
    pub(crate) api: Api,
    pub(crate) runtime: FakeRuntime,
    pub(crate) clock: Arc<dyn Clock>,
    /// Its kubelets know no API server; or they keep what their pods need.
    pub(crate) standalone: bool,
    pub(crate) autonomy: bool,
    /// Its pods wait for their network policies.
    pub(crate) policies: bool,
    /// What its pods are admitted to; what is not listed is not judged.
    pub(crate) allocatable: ResourceList,
    /// When its pods must go for the node's sake.
    pub(crate) eviction: Rules,
    /// How long they may take to end before it goes down, and who says that it does.
    pub(crate) shutdown: Periods,
    pub(crate) logind: FakeLogind,
    /// Its node object, as far as pods are judged by it.
    pub(crate) described: Describer,
    /// What may stay of dead containers and unused images.
    pub(crate) collect: collect::Rules,
    /// Who of its pods has CPUs alone, on which machine.
    pub(crate) pinning: Option<(pinning::Rules, Topology)>,
    /// Plugins that give its kubelets logins.
    pub(crate) providers: provider::Setup,
    root: tempfile::TempDir,
    pub(crate) mounter: Arc<FakeMounter>,
    address: watch::Sender<Arc<Vec<IpAddr>>>,
    host_ips: HostIps,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::seeded(1)
    }

    /// A node whose runtime's faults follow from the seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
        Self::of(Api::new(), clock, seed)
    }

    /// Another machine whose kubelet has the same node's name.
    pub(crate) fn beside(other: &Self) -> Self {
        Self::of(other.api.clone(), other.clock.clone(), 2)
    }

    /// Gives the machine another address.
    pub(crate) fn move_to(&self, address: &str) {
        let address = address.parse().expect("an address");
        self.address.send_replace(Arc::new(vec![address]));
    }

    fn of(api: Api, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let runtime = FakeRuntime::new(clock.clone(), seed);
        runtime.add_image("img:latest");
        let (address, host_ips) = HostIps::following(vec![IpAddr::from([192, 0, 2, 10])]);
        let bench = Self {
            address,
            host_ips,
            api,
            runtime,
            clock,
            standalone: false,
            autonomy: false,
            policies: false,
            allocatable: ResourceList::new(),
            eviction: Rules::default(),
            shutdown: Periods::default(),
            logind: FakeLogind::new(),
            described: Describer::new(NodeView {
                known: true,
                ..NodeView::default()
            }),
            collect: collect::Rules::default(),
            pinning: None,
            providers: provider::Setup::default(),
            root: tempfile::tempdir().expect("temp dir"),
            mounter: Arc::default(),
        };
        std::fs::write(bench.resolv_conf(), "nameserver 192.0.2.1\n").expect("a file");
        std::fs::write(bench.hosts(), "127.0.0.1 node\n").expect("a file");
        bench
    }

    /// Starts a kubelet on this node.
    pub(crate) fn start(&self) -> Alive {
        let root = self.root.path();
        let mut node: NodeContext = context();
        node.root_dir = root.join("kubelet");
        node.pod_logs_dir = root.join("logs");
        node.host_ips = self.host_ips.clone();
        node.resolv_conf = Some(self.resolv_conf());
        node.hosts_path = self.hosts();
        let pinning = self.pinning.as_ref().map(|(rules, machine)| {
            let machine = || Ok(machine.clone());
            Pinning::open(&node.root_dir, rules, crate::pinning::KEPT, machine).expect("opens")
        });
        let kubelet = Kubelet::new(Dependencies {
            client: (!self.standalone).then(|| self.api.client()),
            mounter: self.mounter.clone(),
            described: self.described.clone(),
            pinning: pinning.unwrap_or_default(),
            logind: Arc::new(self.logind.clone()),
            settings: Settings {
                statics: StaticSources {
                    path: Some(self.manifests()),
                    ..StaticSources::default()
                },
                allocatable: self.allocatable.clone(),
                autonomy: self.autonomy,
                policies: self.policies,
                eviction: self.eviction.clone(),
                shutdown: self.shutdown.clone(),
                machine: self.machine(),
                collect: self.collect.clone(),
                // Where it matters.
                swap: self.mounter.has_no_noswap(),
                images: image::Rules {
                    providers: self.providers.clone(),
                    ..image::Rules::default()
                },
                ..Settings::default()
            },
            ..dependencies(root, node, Arc::new(self.runtime.clone()), self.clock.clone())
        });
        let (parts, shutdown) = (kubelet.parts(), CancellationToken::new());
        let (pods, metrics) = (parts.pods.clone(), parts.metrics.clone());
        let pressure = parts.pressure.subscribe();
        let stop = shutdown.clone();
        let task = tokio::spawn(async move { kubelet.run(stop).await.expect("runs") });
        Alive {
            parts,
            pods,
            metrics,
            pressure,
            shutdown,
            task,
        }
    }

    /// Waits for something to become true of this node, for at most ten minutes of its time.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..12_000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "never: {what}; events {:#?}; calls {:#?}",
            self.api.events(),
            self.runtime.calls()
        );
    }

    /// How often a container of that pod runs now.
    pub(crate) fn running(&self, pod: &str) -> usize {
        let uid = PodUid::from(pod);
        self.runtime.running().iter().filter(|(of, _)| *of == uid).count()
    }
}
