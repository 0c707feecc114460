//! The keeper against a pretended API server, and the parts of its writes.

mod faults;

use super::pod_network::pod_cidrs;
use super::status::tests::{config, facts};
use super::*;
use crate::admission::description::Description;
use crate::host::addresses::HostIps;
use crate::network;
use crate::parts::{self, Dependencies};
use crate::runtime::RuntimeError;
use crate::runtime::fake::{FakeRuntime, Mishap};
use bytes::Bytes;
use client::{Clock, TokioClock};
use futures::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

#[test]
fn the_patch_holds_what_changed_and_always_the_conditions() {
    let status = |kubelet: &str, address: &str| -> NodeStatus {
        serde_json::from_value(json!({
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": kubelet, "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""},
        }))
        .expect("status")
    };
    let old = status("v1", "192.0.2.1");
    let fields = |patch: Value| {
        patch["status"]
            .as_object()
            .map(|o| o.keys().cloned().collect::<Vec<_>>())
            .unwrap_or_default()
    };
    assert_eq!(fields(status_patch(Some(&old), &old)), ["conditions"]);
    assert_eq!(
        fields(status_patch(Some(&old), &status("v2", "192.0.2.1"))),
        ["conditions", "nodeInfo"]
    );
    let moved = status_patch(Some(&old), &status("v1", "192.0.2.9"));
    assert_eq!(moved["status"]["addresses"][1], json!({"$patch": "replace"}));
    assert_eq!(fields(status_patch(None, &old)).len(), 3);
}

#[test]
fn pod_cidrs_of_either_field() {
    let node = |spec: Value| serde_json::from_value::<Node>(json!({"metadata": {}, "spec": spec})).expect("node");
    assert_eq!(
        pod_cidrs(&node(json!({"podCIDR": "a", "podCIDRs": ["a", "b"]}))),
        ["a", "b"]
    );
    assert_eq!(pod_cidrs(&node(json!({"podCIDR": "a"}))), ["a"]);
    assert!(pod_cidrs(&node(json!({}))).is_empty());
}

/// An API server with one node at most; it remembers what was written.
struct Server {
    node: Option<Value>,
    /// The range a node is given.
    range: &'static str,
    lease: Option<Value>,
    patches: Vec<Value>,
    renewals: u32,
    watchers: Vec<mpsc::UnboundedSender<Bytes>>,
    events: Vec<Value>,
    calls: Vec<String>,
    /// What befalls the next looks at the node.
    mishaps: VecDeque<Look>,
}

/// What befalls a look at the node.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// It is answered with an error.
    Refused,
    /// It is not answered.
    Hangs,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            node: None,
            range: "10.9.0.0/24",
            lease: None,
            patches: Vec::new(),
            renewals: 0,
            watchers: Vec::new(),
            events: Vec::new(),
            calls: Vec::new(),
            mishaps: VecDeque::new(),
        }
    }
}

impl Server {
    fn show(&mut self, kind: &str) {
        let Some(node) = &self.node else { return };
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": node})));
        self.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
    }

    fn put_node(&mut self, mut node: Value) -> Value {
        node["metadata"]["uid"] = json!("n-1");
        node["metadata"]["resourceVersion"] = json!((self.patches.len() + 2).to_string());
        node["spec"]["podCIDR"] = json!(self.range);
        let kind = if self.node.is_some() { "MODIFIED" } else { "ADDED" };
        self.node = Some(node.clone());
        self.show(kind);
        node
    }

    fn answer(&mut self, method: &str, path: &str, query: &str, body: &Value) -> (u16, BoxBody<Bytes, Infallible>) {
        self.calls.push(format!("{method} {path} {query}"));
        let whole = |value: Value| Full::new(Bytes::from(value.to_string())).boxed();
        let missing = || {
            whole(json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "none"}))
        };
        match (method, path) {
            ("GET", "/api/v1/nodes") if query.contains("watch=") => {
                let (sender, receiver) = mpsc::unbounded_channel();
                self.watchers.push(sender);
                // What was written after the list the watch resumes from.
                self.show("ADDED");
                let frames =
                    UnboundedReceiverStream::new(receiver).map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
                (200, BodyExt::boxed(StreamBody::new(frames)))
            }
            ("GET", "/api/v1/nodes") => {
                let items: Vec<&Value> = self.node.iter().collect();
                let list = json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
                (200, whole(list))
            }
            ("GET", "/api/v1/nodes/node-a") => match (self.mishaps.pop_front(), &self.node) {
                (Some(Look::Refused), _) => (
                    500,
                    whole(json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no luck"})),
                ),
                (Some(Look::Hangs), _) => (200, BodyExt::boxed(StreamBody::new(futures::stream::pending()))),
                (None, Some(node)) => (200, whole(node.clone())),
                (None, None) => (404, missing()),
            },
            ("POST", "/api/v1/nodes") if self.node.is_some() => (
                409,
                whole(
                    json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "AlreadyExists", "message": "there"}),
                ),
            ),
            ("POST", "/api/v1/nodes") => (201, whole(self.put_node(body.clone()))),
            ("PATCH", "/api/v1/nodes/node-a/status") => {
                self.patches.push(body.clone());
                let mut node = self.node.clone().unwrap_or_default();
                for (field, value) in body["status"].as_object().into_iter().flatten() {
                    if field != "addresses" {
                        node["status"][field] = value.clone();
                    }
                }
                (200, whole(self.put_node(node)))
            }
            ("GET", path) if path.contains("/leases") => match &self.lease {
                Some(lease) => (200, whole(lease.clone())),
                None => (404, missing()),
            },
            ("POST" | "PUT", path) if path.contains("/leases") => {
                let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
                if self.lease.as_ref().map_or(Value::Null, version) != version(body) {
                    let text = json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "changed"});
                    return (409, whole(text));
                }
                self.renewals += 1;
                let mut lease = body.clone();
                lease["metadata"]["resourceVersion"] = json!(self.renewals.to_string());
                self.lease = Some(lease.clone());
                (200, whole(lease))
            }
            ("POST", "/api/v1/namespaces/default/events") => {
                self.events.push(body.clone());
                (201, whole(body.clone()))
            }
            _ => (404, missing()),
        }
    }
}

fn api(server: &Arc<Mutex<Server>>) -> kube::Client {
    let server = server.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let server = server.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let query = head.uri.query().unwrap_or_default().to_owned();
            let (code, body) =
                server
                    .lock()
                    .expect("lock")
                    .answer(head.method.as_str(), head.uri.path(), &query, &body);
            let answer = http::Response::builder()
                .status(code)
                .header("content-type", "application/json");
            Ok::<_, std::io::Error>(answer.body(body).expect("answer"))
        }
    });
    kube::Client::new(service, "default")
}

/// Waits until `test` holds of the server.
async fn until(server: &Arc<Mutex<Server>>, what: &str, test: impl Fn(&Server) -> bool) {
    let wait = async {
        while !test(&server.lock().expect("lock")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(60), wait).await.is_ok();
    assert!(done, "not {what} after {:#?}", server.lock().expect("lock").calls);
}

fn last_ready(server: &Server) -> Option<String> {
    let conditions = server.patches.last()?["status"]["conditions"].as_array()?.clone();
    let ready = conditions.into_iter().find(|c| c["type"] == "Ready")?;
    ready["status"].as_str().map(str::to_owned)
}

/// A node's keeper at work; its network files are under `dir`.
struct AtWork {
    dir: tempfile::TempDir,
    runtime: FakeRuntime,
    status: watch::Sender<RuntimeStatus>,
    descriptions: Description,
    parts: Arc<Parts>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl AtWork {
    fn begin(server: &Arc<Mutex<Server>>) -> Self {
        Self::begin_as(server, facts())
    }

    /// A kubelet of a machine of its own.
    fn on_machine(server: &Arc<Mutex<Server>>, machine: &str, boot: &str) -> Self {
        let mut facts = facts();
        facts.machine.machine_id = machine.to_owned();
        facts.machine.boot_id = boot.to_owned();
        Self::begin_as(server, facts)
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("ended");
    }

    fn begin_as(server: &Arc<Mutex<Server>>, facts: Facts) -> Self {
        let ips = HostIps::fixed(facts.ips.clone());
        Self::begin_at(server, facts, ips)
    }

    fn begin_at(server: &Arc<Mutex<Server>>, facts: Facts, host_ips: HostIps) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH));
        let mut config = config();
        config.paths.cni_conf_dir = dir.path().join("net.d");
        config.paths.cni_bin_dir = dir.path().join("bin");
        let runtime = FakeRuntime::new(clock.clone(), 0);
        let mut context = parts::testing::context();
        context.node_name.clone_from(&facts.name);
        context.host_ips = host_ips;
        let (parts, sink, _) = Parts::new(Dependencies {
            client: Some(api(server)),
            described: Describer::new(super::own_description(&config.node, &facts)),
            ..parts::testing::dependencies(dir.path(), context, Arc::new(runtime.clone()), clock)
        });
        tokio::spawn(sink.run());
        let (status, descriptions) = (parts.runtime_status.clone(), parts.described.subscribe());
        let keeper = NodeReporter::new(parts.clone(), api(server), Arc::new(config), facts);
        let stop = CancellationToken::new();
        let task = tokio::spawn(keeper.run(stop.clone()));
        Self {
            dir,
            runtime,
            status,
            descriptions,
            parts,
            stop,
            task,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_registers_follows_its_runtime_and_writes_only_what_changed() {
    let server = Arc::new(Mutex::new(Server::default()));
    let AtWork {
        dir,
        runtime: _,
        status,
        stop,
        task,
        ..
    } = AtWork::begin(&server);
    until(&server, "registered and not ready", |s| {
        last_ready(s).as_deref() == Some("False")
    })
    .await;
    status.send_replace(RuntimeStatus {
        runtime_ready: true,
        network_ready: true,
        ..RuntimeStatus::default()
    });
    until(&server, "ready", |s| last_ready(s).as_deref() == Some("True")).await;
    until(&server, "network configured", |_| {
        dir.path().join("net.d").join(network::FILE_NAME).exists()
    })
    .await;

    // Nothing changes for two minutes: the lease is renewed every ten seconds, the status is not written again.
    let (patches, renewals) = {
        let server = server.lock().expect("lock");
        (server.patches.len(), server.renewals)
    };
    tokio::time::sleep(Duration::from_secs(120)).await;
    {
        let server = server.lock().expect("lock");
        assert!(
            server.patches.len() <= patches + 1,
            "{} status writes",
            server.patches.len() - patches
        );
        let renewed = server.renewals - renewals;
        assert!((11..=13).contains(&renewed), "{renewed} renewals");
        let lease = server.lease.as_ref().expect("a lease");
        assert_eq!(lease["spec"]["holderIdentity"], "node-a");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
        assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "n-1");
    }
    // And after the report frequency (at most one and a half times five minutes) it is written although nothing changed.
    let before = server.lock().expect("lock").patches.len();
    tokio::time::sleep(Duration::from_secs(460)).await;
    assert!(server.lock().expect("lock").patches.len() > before);
    stop.cancel();
    task.await.expect("ended");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_is_registered_again() {
    let server = Arc::new(Mutex::new(Server::default()));
    let AtWork {
        dir: _dir,
        runtime: _,
        status: _status,
        stop,
        task,
        ..
    } = AtWork::begin(&server);
    until(&server, "registered", |s| !s.patches.is_empty()).await;
    {
        let mut server = server.lock().expect("lock");
        server.show("DELETED");
        server.node = None;
        server.patches.clear();
    }
    until(&server, "registered again, its status written", |s| {
        s.node.is_some() && !s.patches.is_empty()
    })
    .await;
    let creations = |s: &Server| {
        s.calls
            .iter()
            .filter(|call| call.starts_with("POST /api/v1/nodes "))
            .count()
    };
    assert_eq!(creations(&server.lock().expect("lock")), 2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(creations(&server.lock().expect("lock")), 2);
    stop.cancel();
    task.await.expect("ended");
}

#[tokio::test(start_paused = true)]
async fn pods_are_judged_by_what_the_api_server_has_of_the_node() {
    let server = Arc::new(Mutex::new(Server::default()));
    let mut node = AtWork::begin(&server);
    let before = node.descriptions.current();
    assert!(!before.known && before.labels.contains_key("kubernetes.io/hostname"));
    until(&server, "registered", |s| !s.patches.is_empty()).await;
    {
        let mut server = server.lock().expect("lock");
        let object = server.node.as_mut().expect("a node");
        object["metadata"]["resourceVersion"] = "1000".into();
        object["metadata"]["labels"]["disk"] = "ssd".into();
        object["spec"]["taints"] = serde_json::json!([{"key": "full", "effect": "NoExecute"}]);
        server.show("MODIFIED");
    }
    let labelled = |view: &NodeView| view.known && view.labels.contains_key("disk") && view.taints.len() == 1;
    until_described(&mut node.descriptions, "its labels and taints", labelled).await;

    // A change that the watch has not brought is seen by whoever asks.
    {
        let mut server = server.lock().expect("lock");
        let object = server.node.as_mut().expect("a node");
        object["metadata"]["resourceVersion"] = "1001".into();
        object["spec"]["taints"] = serde_json::json!([]);
    }
    let question = node.descriptions.ask().expect("somebody looks");
    let answered = |view: &NodeView| view.looked == question;
    let seen = until_described(&mut node.descriptions, "the answer", answered).await;
    assert!(seen.taints.is_empty() && seen.labels.contains_key("disk"));
    // What the watch brings late is older than that.
    {
        let mut server = server.lock().expect("lock");
        let object = server.node.as_mut().expect("a node");
        object["metadata"]["resourceVersion"] = "1000".into();
        object["metadata"]["labels"]["late"] = "yes".into();
        object["spec"]["taints"] = serde_json::json!([{"key": "full", "effect": "NoExecute"}]);
        server.show("MODIFIED");
        let object = server.node.as_mut().expect("a node");
        object["metadata"]["resourceVersion"] = "1002".into();
        object["metadata"]["labels"]["newest"] = "yes".into();
        object["spec"]["taints"] = serde_json::json!([]);
        server.show("MODIFIED");
    }
    loop {
        let view = node.descriptions.current();
        assert!(
            view.taints.is_empty(),
            "what was looked up is forgotten for what is older"
        );
        if view.labels.contains_key("newest") {
            break;
        }
        node.descriptions.changed().await.expect("described");
    }
    node.end().await;
}

/// Waits for a description.
async fn until_described(descriptions: &mut Description, what: &str, test: impl Fn(&NodeView) -> bool) -> NodeView {
    let seen = async {
        loop {
            let view = descriptions.current();
            if test(&view) {
                return view;
            }
            descriptions.changed().await.expect("described");
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(60), seen).await;
    seen.unwrap_or_else(|_| panic!("never told of {what}"))
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_makes_anew_keeps_what_it_says_of_extended_resources() {
    let server = Arc::new(Mutex::new(Server::default()));
    let AtWork {
        dir: _dir,
        runtime: _,
        status: _status,
        stop,
        task,
        ..
    } = AtWork::begin(&server);
    until(&server, "registered", |s| !s.patches.is_empty()).await;
    {
        let mut server = server.lock().expect("lock");
        server.show("DELETED");
        let node = server.node.as_mut().expect("a node");
        node["metadata"]["uid"] = "n-2".into();
        node["metadata"]["resourceVersion"] = "1000".into();
        node["status"]["capacity"]["example.com/gpu"] = "3".into();
        server.patches.clear();
        server.show("ADDED");
    }
    until(&server, "registered again, its status written", |s| {
        !s.patches.is_empty()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let patches = server.lock().expect("lock").patches.clone();
    let zero = |patch: &&Value| patch["status"]["capacity"]["example.com/gpu"] == "0";
    assert_eq!(patches.iter().find(zero), None);
    stop.cancel();
    task.await.expect("ended");
}
