//! A network namespace with a responder in it, clients, and resolvers that do as they are told.

use crate::cluster::{Cluster, namespace, service};
use dns::{ForwardBounds, Metrics, Settings};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use netlink::netns::Netns;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The responder's addresses.
pub(crate) const V4: &str = "10.96.0.10";
pub(crate) const V6: &str = "fd00:96::10";
/// Longer than anything here takes; who waits so long fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Runs a program, which must succeed, and returns what it said.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace that ends with the test.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sk-dns{:x}-{number:x}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        run("ip", &[&["-n", self.name.as_str()], arguments].concat())
    }

    /// Runs `work` on this thread, inside.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        Netns::open(&format!("/run/netns/{}", self.name))
            .unwrap()
            .run(work)
            .unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// A responder and everything around it.
pub(crate) struct Node {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) cluster: Cluster,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) folder: tempfile::TempDir,
    stop: CancellationToken,
    thread: Option<JoinHandle<Result<(), dns::Error>>>,
}

impl Node {
    /// A node whose responder asks these resolvers, with other settings as `change` makes them. Ready when this returns.
    pub(crate) fn start(resolvers: &[&Resolver], change: impl FnOnce(&mut Settings)) -> Self {
        let node = Self::launch(resolvers, small_cluster(), change);
        node.until(|node| node.code("web.default.svc.cluster.local") == Some(ResponseCode::NoError));
        node
    }

    /// The same, not ready yet.
    pub(crate) fn launch(resolvers: &[&Resolver], cluster: Cluster, change: impl FnOnce(&mut Settings)) -> Self {
        let namespace = resolvers
            .first()
            .map_or_else(|| Arc::new(Namespace::new()), |one| one.namespace.clone());
        let folder = tempfile::tempdir().unwrap();
        let lines: String = resolvers
            .iter()
            .map(|resolver| format!("nameserver {}\n", resolver.address.ip()))
            .collect();
        let path = folder.path().join("resolv.conf");
        std::fs::write(&path, lines).unwrap();
        let mut settings = Settings {
            addresses: vec![V4.parse().unwrap(), V6.parse().unwrap()],
            resolv_conf: path,
            forward: unhurried(),
            ..Settings::default()
        };
        change(&mut settings);
        let (metrics, stop) = (Arc::new(Metrics::default()), CancellationToken::new());
        let body = {
            let (namespace, cluster, metrics, stop) =
                (namespace.clone(), cluster.clone(), metrics.clone(), stop.clone());
            move || {
                namespace.inside(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .unwrap();
                    runtime.block_on(async { dns::run(cluster.sources(), settings, metrics, stop).await })
                })
            }
        };
        let thread = Some(std::thread::spawn(body));
        Self {
            namespace,
            cluster,
            metrics,
            folder,
            stop,
            thread,
        }
    }

    /// The code of the answer to a question for an address, if one comes soon.
    pub(crate) fn code(&self, name: &str) -> Option<ResponseCode> {
        // Until the link is there, its addresses are unreachable.
        let client = Client::open(&self.namespace, V4)?;
        let answer = client.try_ask(&question(name, RecordType::A), Duration::from_millis(200));
        answer.map(|answer| answer.response_code)
    }

    /// Asks again until it is so.
    pub(crate) fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let began = std::time::Instant::now();
        while !is_so(self) {
            let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!ended, "the responder ended");
            assert!(began.elapsed() < PATIENCE, "not so after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A client of its own port.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.namespace, V4)
    }

    pub(crate) fn ask(&self, name: &str, kind: RecordType) -> Message {
        self.client().ask(&question(name, kind))
    }

    /// A connection to the responder.
    pub(crate) fn connect(&self) -> Stream {
        let stream = self.namespace.inside(|| TcpStream::connect((V4, 53)).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Stream(stream)
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        self.metrics.render(&mut text);
        text
    }

    /// The number of a series.
    pub(crate) fn count(&self, series: &str) -> u64 {
        let text = self.metrics();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |number| number.parse().unwrap())
    }

    /// Stops it, and returns how it ended.
    pub(crate) fn stop(&mut self) -> Result<(), dns::Error> {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Patience with resolvers that a loaded machine does not use up.
fn unhurried() -> ForwardBounds {
    ForwardBounds {
        patience: Duration::from_secs(12),
        deadline: Duration::from_secs(25),
        sure: Duration::from_secs(11),
        ..ForwardBounds::default()
    }
}

/// What is in the cluster when a test begins.
pub(crate) fn small_cluster() -> Cluster {
    let cluster = Cluster::default();
    cluster.put("namespaces", namespace("default"));
    cluster.put("services", service("default", "web", "10.96.0.20"));
    let out = serde_json::json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "out", "namespace": "default"},
        "spec": {"type": "ExternalName", "externalName": "www.example.com"}});
    cluster.put("services", out);
    let endpoints: Vec<_> = (1..=120)
        .map(|last| serde_json::json!({"addresses": [format!("10.244.0.{last}")]}))
        .collect();
    cluster.put(
        "services",
        serde_json::json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "many", "namespace": "default"}, "spec": {"clusterIP": "None"}}),
    );
    cluster.put(
        "endpointslices",
        serde_json::json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
            "metadata": {"name": "many-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "many"}}}),
    );
    cluster
}

/// A question.
pub(crate) fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(rand::random(), MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// The data of an answer's records.
pub(crate) fn data(message: &Message) -> Vec<String> {
    message.answers.iter().map(|record| record.data.to_string()).collect()
}

/// Who asks by UDP.
pub(crate) struct Client(pub(crate) UdpSocket);

impl Client {
    pub(crate) fn new(namespace: &Namespace, server: &str) -> Self {
        Self::open(namespace, server).expect("a way to the server")
    }

    fn open(namespace: &Namespace, server: &str) -> Option<Self> {
        let server: IpAddr = server.parse().unwrap();
        let any: IpAddr = if server.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
        namespace.inside(|| {
            let socket = UdpSocket::bind((any, 0)).unwrap();
            socket.connect((server, 53)).is_ok().then_some(Self(socket))
        })
    }

    pub(crate) fn send(&self, message: &Message) {
        // An address nobody listens on yet refuses; who asks again gets through.
        let _ = self.0.send(&message.to_vec().unwrap());
    }

    /// The answer of this number, if it comes in time; others are passed over.
    pub(crate) fn receive(&self, id: u16, patience: Duration) -> Option<Message> {
        let until = std::time::Instant::now() + patience;
        let mut buffer = [0; 65535];
        loop {
            let left = until.checked_duration_since(std::time::Instant::now())?;
            self.0
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))
                .unwrap();
            let Ok(length) = self.0.recv(&mut buffer) else { continue };
            let message = Message::from_vec(&buffer[..length]).unwrap();
            if message.id == id {
                return Some(message);
            }
        }
    }

    pub(crate) fn try_ask(&self, message: &Message, patience: Duration) -> Option<Message> {
        self.send(message);
        self.receive(message.id, patience)
    }

    pub(crate) fn ask(&self, message: &Message) -> Message {
        self.try_ask(message, PATIENCE).expect("an answer")
    }
}

/// A connection.
pub(crate) struct Stream(pub(crate) TcpStream);

impl Stream {
    pub(crate) fn send(&mut self, messages: &[Message]) {
        let mut bytes = Vec::new();
        for message in messages {
            let message = message.to_vec().unwrap();
            bytes.extend((message.len() as u16).to_be_bytes());
            bytes.extend(message);
        }
        self.0.write_all(&bytes).unwrap();
    }

    /// The next answer; nothing when the connection ends.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).ok()?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut message).ok()?;
        Some(Message::from_vec(&message).unwrap())
    }

    /// Waits for the other side to end the connection, without another answer; not so if it says something, or nothing for long.
    pub(crate) fn ended(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(length) => length == 0,
            // Who ends with something unread resets.
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// One thing a resolver sends.
pub(crate) enum Reply {
    /// From where it was asked.
    Answer(Message),
    /// From another port.
    Elsewhere(Message),
}

/// A resolver at an address of its own, by UDP and TCP.
pub(crate) struct Resolver {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) address: SocketAddr,
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) by_stream: Arc<AtomicUsize>,
    pub(crate) sources: Arc<Mutex<Vec<(u16, u16)>>>,
    heard: Mutex<Receiver<String>>,
}

/// What an answer by TCP is, if it is another.
pub(crate) type Streamed = fn(&Message) -> Message;

impl Resolver {
    /// A resolver at `127.0.0.LAST` of a namespace.
    pub(crate) fn new(
        namespace: &Arc<Namespace>,
        last: u8,
        behaviour: impl Fn(&Message) -> Vec<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::with_streams(namespace, last, behaviour, |question| {
            positive(question, 60, last_octets(9))
        })
    }

    pub(crate) fn with_streams(
        namespace: &Arc<Namespace>,
        last: u8,
        behaviour: impl Fn(&Message) -> Vec<Reply> + Send + Sync + 'static,
        streamed: Streamed,
    ) -> Self {
        let address: SocketAddr = format!("127.0.0.{last}:53").parse().unwrap();
        let (socket, other, listener) = namespace.inside(|| {
            let other = UdpSocket::bind((address.ip(), 0)).unwrap();
            (
                UdpSocket::bind(address).unwrap(),
                other,
                TcpListener::bind(address).unwrap(),
            )
        });
        let (tell, heard) = channel();
        let resolver = Self {
            namespace: namespace.clone(),
            address,
            asked: Arc::default(),
            by_stream: Arc::default(),
            sources: Arc::default(),
            heard: Mutex::new(heard),
        };
        // These threads end with the test's process: nothing else would wake them.
        let (asked, sources) = (resolver.asked.clone(), resolver.sources.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                let question = Message::from_vec(&buffer[..length]).unwrap();
                asked.fetch_add(1, Ordering::SeqCst);
                sources.lock().unwrap().push((peer.port(), question.id));
                for reply in behaviour(&question) {
                    let (from, message) = match &reply {
                        Reply::Answer(message) => (&socket, message),
                        Reply::Elsewhere(message) => (&other, message),
                    };
                    let _ = from.send_to(&message.to_vec().unwrap(), peer);
                }
                let _ = tell.send(question.queries[0].name().to_string().to_ascii_lowercase());
            }
        });
        let by_stream = resolver.by_stream.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut stream = Stream(stream);
                while let Some(question) = stream.receive() {
                    by_stream.fetch_add(1, Ordering::SeqCst);
                    stream.send(&[streamed(&question)]);
                }
            }
        });
        resolver
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits for the next question, and says its name.
    pub(crate) fn hear(&self) -> String {
        self.heard.lock().unwrap().recv_timeout(PATIENCE).unwrap()
    }
}

/// An answer without records.
pub(crate) fn reply(question: &Message, code: ResponseCode) -> Message {
    let mut message = Message::response(question.id, OpCode::Query);
    message.metadata.response_code = code;
    message.metadata.recursion_available = true;
    message.add_query(question.queries[0].clone());
    message
}

/// 192.0.2.LAST.
pub(crate) fn last_octets(last: u8) -> A {
    A::new(192, 0, 2, last)
}

/// An answer of one address.
pub(crate) fn positive(question: &Message, ttl: u32, address: A) -> Message {
    let mut message = reply(question, ResponseCode::NoError);
    let name = question.queries[0].name().clone();
    message.add_answer(Record::from_rdata(name, ttl, RData::A(address)));
    message
}

/// An answer that there is nothing, which holds so long.
pub(crate) fn negative(question: &Message, code: ResponseCode, seconds: u32) -> Message {
    let mut message = reply(question, code);
    let name = |text| Name::from_ascii(text).unwrap();
    let soa = SOA::new(name("ns.example.com."), name("x.example.com."), 1, 2, 3, 4, seconds);
    message.add_authority(Record::from_rdata(name("example.com."), seconds, RData::SOA(soa)));
    message
}
