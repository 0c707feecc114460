//! Nodes on one wire, each with a pod behind it.

use crate::server::Server;
use client::informer::Options;
use client::{Informer, SystemClock};
use kube::api::Api;
use netlink::cidr::Cidr;
use netlink::netns::Netns;
use overlay::{Backend, Notice, Settings, Sources};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a condition may take: much longer than it does, for machines with much to do.
const PATIENCE: Duration = Duration::from_secs(60);
static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(format!("ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A network namespace of our own.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    fn new(what: &str) -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sko-{what}{:x}-{number:x}", std::process::id());
        ip(&["netns", "add", &name]).unwrap();
        let namespace = Self { name };
        namespace.ip("link set lo up");
        namespace
    }

    /// `ip` inside; must succeed.
    pub(crate) fn ip(&self, words: &str) -> String {
        self.try_ip(words).unwrap()
    }

    /// `ip` inside.
    pub(crate) fn try_ip(&self, words: &str) -> Result<String, String> {
        let words: Vec<&str> = words.split(' ').collect();
        ip(&[&["-n", self.name.as_str()], &*words].concat())
    }

    /// What a program inside says.
    pub(crate) fn exec(&self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        ip(&[&["netns", "exec", self.name.as_str()], &*words].concat()).unwrap()
    }

    /// A link inside, as `ip` describes it.
    pub(crate) fn link(&self, name: &str) -> Option<Value> {
        let text = self.try_ip(&format!("-json -details link show {name}")).ok()?;
        serde_json::from_str::<Vec<Value>>(&text).unwrap().pop()
    }

    /// Runs `work` on this thread inside.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let path = format!("/run/netns/{}", self.name);
        Netns::open(&path).unwrap().run(work).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// A node: its number is in its addresses.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) namespace: Namespace,
    pub(crate) pod: Namespace,
    pub(crate) notices: Arc<Mutex<Vec<Notice>>>,
    pub(crate) mtu: watch::Receiver<Option<u32>>,
    mtu_sender: watch::Sender<Option<u32>>,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Node {
    /// The address of its pod.
    pub(crate) fn pod_address(&self, v4: bool) -> IpAddr {
        let number = self.number;
        let text = if v4 {
            format!("10.244.{number}.5")
        } else {
            format!("fd00:0:0:{number}::5")
        };
        text.parse().unwrap()
    }

    /// Stops the overlay; what it made stays.
    pub(crate) fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            stop.cancel();
            thread.join().unwrap();
        }
    }

    /// Starts the overlay.
    pub(crate) fn start(&mut self, server: &Server, backend: Backend) {
        let clusters = ["10.244.0.0/16", "fd00::/48"].map(|text| Cidr::parse(text).unwrap());
        let settings = Settings {
            test_again: Duration::from_secs(1),
            ..Settings::new(self.name.clone(), backend, clusters.to_vec())
        };
        let (server, stop) = (server.clone(), CancellationToken::new());
        let (notices, mtu) = (self.notices.clone(), self.mtu_sender.clone());
        let path = format!("/run/netns/{}", self.namespace.name);
        let stopped = stop.clone();
        let work = async move {
            let client = server.client();
            let sources = Sources {
                nodes: Informer::spawn(Api::all(client.clone()), Options::default()),
                clock: Arc::new(SystemClock),
                notices: Box::new(move |notice| notices.lock().unwrap().push(notice)),
                mtu,
                seed: 1,
            };
            overlay::run(sources, client, settings, stopped).await.unwrap();
        };
        // Its threads are the namespace's, too: a thread begins where the one that made it is.
        let thread = std::thread::spawn(move || {
            let run = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(work);
            };
            Netns::open(&path).unwrap().run(run).unwrap();
        });
        self.running = Some((stop, thread));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            stop.cancel();
            let _ = thread.join();
        }
    }
}

/// The nodes, the wire between them and the server they ask.
pub(crate) struct Lab {
    pub(crate) server: Server,
    pub(crate) wire: Namespace,
    pub(crate) backend: Backend,
}

impl Lab {
    pub(crate) fn new(backend: Backend) -> Self {
        let wire = Namespace::new("w");
        wire.ip("link add br0 type bridge");
        wire.ip("addr add 192.0.2.254/24 dev br0");
        wire.ip("addr add 2001:db8::fe/64 dev br0 nodad");
        wire.ip("link set br0 up");
        let server = Server::default();
        Self { server, wire, backend }
    }

    /// A node with a pod, in the cluster; its overlay runs.
    pub(crate) fn node(&self, number: u32) -> Node {
        let mut node = self.idle_node(number);
        node.start(&self.server, self.backend);
        node
    }

    /// A node with a pod, in the cluster.
    pub(crate) fn idle_node(&self, number: u32) -> Node {
        let (namespace, pod) = (Namespace::new("n"), Namespace::new("p"));
        let port = format!("port{number}");
        self.wire.ip(&format!(
            "link add {port} type veth peer name eth0 netns {}",
            namespace.name
        ));
        self.wire.ip(&format!("link set {port} master br0 up"));
        namespace.ip("link set eth0 up");
        namespace.ip(&format!("addr add 192.0.2.{number}/24 dev eth0"));
        namespace.ip(&format!("addr add 2001:db8::{number}/64 dev eth0 nodad"));
        namespace.ip(&format!("link add pod type veth peer name eth0 netns {}", pod.name));
        namespace.ip(&format!("addr add 10.244.{number}.1/24 dev pod"));
        namespace.ip(&format!("addr add fd00:0:0:{number}::1/64 dev pod nodad"));
        namespace.ip("link set pod up");
        namespace.ip("route add default via 192.0.2.254");
        pod.ip(&format!("addr add 10.244.{number}.5/24 dev eth0"));
        pod.ip(&format!("addr add fd00:0:0:{number}::5/64 dev eth0 nodad"));
        pod.ip("link set eth0 up");
        pod.ip(&format!("route add default via 10.244.{number}.1"));
        pod.ip(&format!("-6 route add default via fd00:0:0:{number}::1"));
        let name = format!("node-{number}");
        self.server.change(&name, |node| {
            node["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{number:02}Z"));
            node["spec"] = json!({"podCIDRs": [format!("10.244.{number}.0/24"), format!("fd00:0:0:{number}::/64")]});
            node["status"]["addresses"] = json!([
                {"type": "InternalIP", "address": format!("192.0.2.{number}")},
                {"type": "InternalIP", "address": format!("2001:db8::{number}")},
            ]);
        });
        let (mtu_sender, mtu) = watch::channel(None);
        Node {
            name,
            number,
            namespace,
            pod,
            notices: Arc::default(),
            mtu,
            mtu_sender,
            running: None,
        }
    }
}

/// A TCP connection through which a word goes and comes back; who the server saw. One that begins while the network changes
/// under it may hang for as long as TCP is patient, which says nothing of the network that comes: it is given up soon, for who
/// asks again.
pub(crate) fn talk(from: &Namespace, to: &Namespace, target: IpAddr) -> std::io::Result<IpAddr> {
    let (mut client, mut server) = connect(from, to, target)?;
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    }
    echo(&mut client, &mut server)?;
    Ok(server.peer_addr()?.ip())
}

/// Both ends of a TCP connection.
pub(crate) fn connect(from: &Namespace, to: &Namespace, target: IpAddr) -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = to.inside(|| TcpListener::bind(SocketAddr::new(target, 0)))?;
    let target = listener.local_addr()?;
    let client = from.inside(|| TcpStream::connect_timeout(&target, Duration::from_secs(3)))?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE))?;
    }
    Ok((client, server))
}

/// Sends more than a packet there and back.
pub(crate) fn echo(client: &mut TcpStream, server: &mut TcpStream) -> std::io::Result<()> {
    let (sent, mut got) = (vec![7u8; 9000], vec![0u8; 9000]);
    client.write_all(&sent)?;
    server.read_exact(&mut got)?;
    server.write_all(&got)?;
    client.read_exact(&mut got)?;
    assert_eq!(got, sent);
    Ok(())
}

/// Waits until the pods of both reach each other with their own addresses, by both families.
pub(crate) fn until_they_meet(a: &Node, b: &Node) {
    for (from, to) in [(a, b), (b, a)] {
        for v4 in [true, false] {
            let (source, target) = (from.pod_address(v4), to.pod_address(v4));
            let what = format!("{source} reaches {target}; notices: {:?}", a.notices.lock().unwrap());
            // Both at once: while a network changes, one connection says nothing of the next.
            until(&what, || {
                talk(&from.pod, &to.pod, target).is_ok_and(|seen| seen == source)
            });
        }
    }
}
