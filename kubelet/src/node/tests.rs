//! The keeper against a pretended API server, and the parts of its writes.

use super::pod_network::pod_cidrs;
use super::status::tests::{config, facts};
use super::*;
use crate::events::Rate;
use crate::network;
use crate::runtime::RuntimeError;
use crate::runtime::fake::{FakeRuntime, Mishap};
use crate::runtime::pleg::Pleg;
use bytes::Bytes;
use client::TokioClock;
use futures::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
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
        let status = watch::Sender::new(RuntimeStatus::default());
        let runtime = FakeRuntime::new(clock.clone(), 0);
        let client = Some(api(server));
        let (recorder, sink) = Recorder::new(clock.clone(), &facts.name, client, Rate::default(), 1);
        tokio::spawn(sink.run());
        let keeper = Keeper::new(NodeParts {
            client: api(server),
            runtime: Arc::new(runtime.clone()),
            status: status.subscribe(),
            sweeps: Pleg::new(Arc::new(FakeRuntime::new(clock.clone(), 0)), Duration::from_secs(45)).sweeps(),
            clock,
            recorder,
            config: Arc::new(config),
            host_ips,
            facts,
            seed: 1,
        });
        let stop = CancellationToken::new();
        let task = tokio::spawn(keeper.run(stop.clone()));
        Self {
            dir,
            runtime,
            status,
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

/// The messages of the events about two kubelets.
fn rivals(server: &Server) -> Vec<String> {
    let events = server.events.iter();
    events
        .filter(|event| event["reason"] == rival::REASON && event["type"] == "Warning")
        .filter(|event| event["involvedObject"]["uid"] == "node-a")
        .filter_map(|event| event["message"].as_str().map(str::to_owned))
        .collect()
}

fn described_machine(server: &Server) -> Option<String> {
    let node = server.node.as_ref()?;
    node["status"]["nodeInfo"]["machineID"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn two_kubelets_of_one_name_are_told_on_the_node_and_the_one_that_stays_describes_it() {
    let server = Arc::new(Mutex::new(Server::default()));
    let first = AtWork::on_machine(&server, "aaa", "boot");
    until(&server, "registered", |s| {
        described_machine(s).as_deref() == Some("aaa")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let second = AtWork::on_machine(&server, "bbb", "boot");
    until(&server, "told by both, each naming both", |s| {
        let told = rivals(s);
        let tells = |of: &str, other: &str| {
            let text = format!("this one is on machine \"{of}\" at 192.0.2.10:10250, the other on machine \"{other}\"");
            told.iter().any(|message| message.contains(&text))
        };
        tells("aaa", "bbb") && tells("bbb", "aaa")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rivals(&server.lock().expect("lock")).len(), 2, "not told over and over");

    second.end().await;
    until(&server, "the first's again", |s| {
        described_machine(s).as_deref() == Some("aaa")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1200)).await;
    let server = server.lock().expect("lock");
    assert_eq!(described_machine(&server).as_deref(), Some("aaa"));
    assert_eq!(rivals(&server).len(), 2, "over, and told no more");
    drop(server);
    first.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_a_reboot_and_another_machine_in_its_place_are_no_second_kubelet() {
    let server = Arc::new(Mutex::new(Server::default()));
    for (machine, boot) in [("aaa", "one"), ("aaa", "one"), ("aaa", "two"), ("bbb", "one")] {
        let kubelet = AtWork::on_machine(&server, machine, boot);
        until(&server, "its own", |s| described_machine(s).as_deref() == Some(machine)).await;
        tokio::time::sleep(Duration::from_secs(700)).await;
        kubelet.end().await;
    }
    let server = server.lock().expect("lock");
    assert_eq!(rivals(&server), Vec::<String>::new());
    assert!(server.renewals > 200, "{}", server.renewals);
}

fn runtime_status(ready: bool) -> RuntimeStatus {
    RuntimeStatus {
        runtime_ready: ready,
        network_ready: ready,
        runtime_message: "asked".into(),
        ..RuntimeStatus::default()
    }
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_the_network_are_collected_now_and_then_and_when_the_runtime_is_back() {
    let server = Arc::new(Mutex::new(Server::default()));
    let kubelet = AtWork::begin(&server);
    kubelet.status.send_replace(runtime_status(true));
    let lists = |kubelet: &AtWork| {
        let calls = kubelet.runtime.calls();
        calls.iter().filter(|call| call.starts_with("ListPodSandbox")).count()
    };
    until(&server, "collected at start", |_| lists(&kubelet) == 1).await;
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert_eq!(lists(&kubelet), 1);
    kubelet
        .runtime
        .next("ListPodSandbox", Mishap::Fail(RuntimeError::deadline("ListPodSandbox")));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(lists(&kubelet), 2, "ten minutes later, and it failed");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lists(&kubelet), 3, "so it was tried again soon");
    tokio::time::sleep(Duration::from_secs(300)).await;
    kubelet.status.send_replace(runtime_status(false));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(lists(&kubelet), 3);
    kubelet.status.send_replace(runtime_status(true));
    until(&server, "collected when it is back", |_| lists(&kubelet) == 4).await;
    kubelet.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_address_is_on_the_node_within_the_status_period() {
    let server = Arc::new(Mutex::new(Server::default()));
    let (address, host_ips) = HostIps::following(facts().ips);
    let kubelet = AtWork::begin_at(&server, facts(), host_ips);
    let shown = |s: &Server, wanted: &str| {
        let patches = s.patches.iter().rev();
        let addresses = patches.filter_map(|patch| patch["status"]["addresses"].as_array());
        let newest = addresses.flatten().find(|a| a["type"] == "InternalIP");
        newest.is_some_and(|address| address["address"] == wanted)
    };
    until(&server, "its first address", |s| shown(s, "192.0.2.10")).await;
    address.send_replace(Arc::new(vec!["192.0.2.77".parse().expect("an address")]));
    let begun = tokio::time::Instant::now();
    until(&server, "its second address", |s| shown(s, "192.0.2.77")).await;
    assert!(begun.elapsed() <= Duration::from_secs(10));
    kubelet.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_range_of_a_node_registered_anew_is_configured_without_a_restart() {
    let server = Arc::new(Mutex::new(Server::default()));
    let kubelet = AtWork::begin(&server);
    let file = kubelet.dir.path().join("net.d").join(network::FILE_NAME);
    let has = |cidr: &str| {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        list["plugins"][0]["ipam"]["ranges"][0][0]["subnet"] == cidr
    };
    until(&server, "the first range", |_| has("10.9.0.0/24")).await;
    {
        let mut server = server.lock().expect("lock");
        server.show("DELETED");
        server.node = None;
        server.range = "10.7.0.0/24";
    }
    until(&server, "the second range", |_| has("10.7.0.0/24")).await;
    let told = |of: &AtWork| {
        of.runtime
            .calls()
            .iter()
            .any(|call| call == "UpdateRuntimeConfig 10.7.0.0/24")
    };
    until(&server, "the runtime was told", |_| told(&kubelet)).await;
    kubelet.end().await;
}
