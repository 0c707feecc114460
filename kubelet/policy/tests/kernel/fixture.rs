//! A node with a bridge and pods on it, as network namespaces that end with the test.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use netlink::cidr::Cidr;
use netlink::netns::Netns;
use policy::facts::{Facts, PodId};
use policy::kernel::Kernel;
use policy::spec::Policy;
use policy::world::World;
use serde_json::{Value, json};

/// Long enough for whatever is let through.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough to see that nothing comes. Where something would come later, a test passes that should not; none fails.
const DOUBT: Duration = Duration::from_millis(400);
/// The name of the node.
pub(crate) const NODE: &str = "n1";

static COUNTER: AtomicU32 = AtomicU32::new(0);

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments:?}: {error}");
}

/// A network namespace of our own.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    fn new() -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sk-np{:x}-{number:x}", std::process::id());
        ip(&["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    pub(crate) fn ip(&self, arguments: &[&str]) {
        ip(&[&["-n", self.name.as_str()], arguments].concat());
    }

    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        Netns::open(&self.path()).unwrap().run(work).unwrap()
    }

    /// Runs a program inside; returns what it prints.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let command = [&["netns", "exec", self.name.as_str(), program], arguments].concat();
        let output = Command::new("ip").args(&command).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// A pod on the node's bridge.
pub(crate) struct Pod {
    pub(crate) name: &'static str,
    pub(crate) namespace: Namespace,
    pub(crate) v4: IpAddr,
    pub(crate) v6: IpAddr,
}

impl Pod {
    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        [self.v4, self.v6]
    }

    pub(crate) fn id(&self) -> PodId {
        PodId {
            key: client::Key::new("default", self.name),
            uid: self.name.to_owned(),
        }
    }

    pub(crate) fn object(&self, labels: Value, ports: Value) -> k8s_openapi::api::core::v1::Pod {
        let text = json!({
            "metadata": {"namespace": "default", "name": self.name, "uid": self.name, "labels": labels},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "ports": ports}]},
            "status": {"phase": "Running", "podIPs": [{"ip": self.v4.to_string()}, {"ip": self.v6.to_string()}]}
        });
        serde_json::from_value(text).unwrap()
    }

    pub(crate) fn listen(&self, addr: IpAddr, port: u16) -> TcpListener {
        self.namespace
            .inside(|| TcpListener::bind(SocketAddr::new(addr, port)).unwrap())
    }

    pub(crate) fn listen_on(&self, addr: SocketAddrV6) -> TcpListener {
        self.namespace.inside(|| TcpListener::bind(addr).unwrap())
    }

    /// Gives it a link-local address, ready for use; with the number of its interface.
    pub(crate) fn link_local(&self, addr: &str) -> SocketAddrV6 {
        self.namespace
            .ip(&["addr", "add", &format!("{addr}/64"), "dev", "eth0", "nodad"]);
        SocketAddrV6::new(addr.parse().unwrap(), 0, 0, self.interface())
    }

    pub(crate) fn receive(&self, addr: IpAddr, port: u16) -> UdpSocket {
        let socket = self
            .namespace
            .inside(|| UdpSocket::bind(SocketAddr::new(addr, port)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn connect(&self, target: SocketAddr, time: Duration) -> std::io::Result<TcpStream> {
        self.namespace.inside(|| TcpStream::connect_timeout(&target, time))
    }

    /// Both ends of a connection that must come about.
    pub(crate) fn reaches(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let target = listener.local_addr().unwrap();
        let near = self.connect(target, PATIENCE);
        let near = near.unwrap_or_else(|error| panic!("{} reaches {target}: {error}", self.name));
        let own = near.local_addr().unwrap();
        loop {
            let (far, peer) = listener.accept().unwrap();
            if peer.port() == own.port() {
                for stream in [&near, &far] {
                    stream.set_nodelay(true).unwrap();
                }
                return (near, far);
            }
        }
    }

    pub(crate) fn misses(&self, listener: &TcpListener) {
        let target = listener.local_addr().unwrap();
        let outcome = self.connect(target, DOUBT);
        assert!(outcome.is_err(), "{} reaches {target}", self.name);
    }

    /// Whether a connection to an address somebody translates comes about; the listener need not accept it.
    pub(crate) fn tries(&self, target: &str, is_allowed: bool) {
        let time = if is_allowed { PATIENCE } else { DOUBT };
        let outcome = self.connect(target.parse().unwrap(), time);
        assert_eq!(outcome.is_ok(), is_allowed, "{} to {target}: {outcome:?}", self.name);
    }

    /// Sends a datagram from a port of its own choice.
    pub(crate) fn send(&self, to: &UdpSocket, bytes: &[u8]) {
        let target = to.local_addr().unwrap();
        let any: IpAddr = if target.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let socket = self
            .namespace
            .inside(|| UdpSocket::bind(SocketAddr::new(any, 0)).unwrap());
        socket.send_to(bytes, target).unwrap();
    }

    /// The number of its interface.
    pub(crate) fn interface(&self) -> u32 {
        let shown = self.namespace.run("ip", &["-o", "link", "show", "eth0"]);
        shown.split_once(':').unwrap().0.parse().unwrap()
    }

    /// Sends a datagram from its own address to all or several; to port 5353, by IPv6 to 5354.
    pub(crate) fn send_to_several(&self, to: IpAddr) {
        let own = if to.is_ipv4() { self.v4 } else { self.v6 };
        let target: SocketAddr = match to {
            IpAddr::V4(_) => SocketAddr::new(to, 5353),
            IpAddr::V6(to) => SocketAddrV6::new(to, 5354, 0, self.interface()).into(),
        };
        let socket = self
            .namespace
            .inside(|| UdpSocket::bind(SocketAddr::new(own, 0)).unwrap());
        socket.set_broadcast(true).unwrap();
        socket.send_to(b"x", target).unwrap();
    }

    /// Sends a datagram from this address.
    pub(crate) fn send_from(&self, own: SocketAddr, to: &UdpSocket) {
        let socket = self.namespace.inside(|| UdpSocket::bind(own).unwrap());
        socket.send_to(b"x", to.local_addr().unwrap()).unwrap();
    }
}

/// No datagram is there, and none comes.
pub(crate) fn nothing_comes(to: &UdpSocket) {
    to.set_read_timeout(Some(DOUBT)).unwrap();
    let error = to.recv(&mut [0; 8]).expect_err("what is denied does not come");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// Whether what is written at one end arrives at the other.
pub(crate) fn passes(from: &mut TcpStream, to: &mut TcpStream, byte: u8) {
    from.write_all(&[byte]).unwrap();
    arrives(to, byte);
}

/// The next byte that comes is this.
pub(crate) fn arrives(to: &mut TcpStream, byte: u8) {
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut read = [0];
    to.read_exact(&mut read).unwrap();
    assert_eq!(read, [byte]);
}

/// What is written at one end does not arrive at the other; it stays under way.
pub(crate) fn is_stuck(from: &mut TcpStream, to: &mut TcpStream, byte: u8) {
    from.write_all(&[byte]).unwrap();
    to.set_read_timeout(Some(DOUBT)).unwrap();
    let error = to.read_exact(&mut [0]).expect_err("the connection is cut");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// How the kernel is to bring packets between pods of the bridge before our table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bridging {
    /// br_netfilter is switched on.
    Shown,
    /// It is not.
    Hidden,
}

/// The node.
pub(crate) struct Node {
    pub(crate) namespace: Namespace,
    pub(crate) pods: Vec<Pod>,
    pub(crate) world: World,
    pub(crate) kernel: Kernel,
}

impl Node {
    /// A node with so many pods, the table there but empty.
    pub(crate) fn new(bridging: Bridging, names: &[&'static str]) -> Self {
        let namespace = Namespace::new();
        namespace.ip(&["link", "add", "br0", "type", "bridge"]);
        namespace.ip(&["addr", "add", "10.77.0.1/24", "dev", "br0"]);
        namespace.ip(&["addr", "add", "fd77::1/64", "dev", "br0", "nodad"]);
        namespace.ip(&["link", "set", "br0", "up"]);
        let shown = if bridging == Bridging::Shown { "1" } else { "0" };
        namespace.inside(|| {
            for (name, value) in [
                ("ipv4/ip_forward", "1"),
                ("ipv6/conf/all/forwarding", "1"),
                ("bridge/bridge-nf-call-iptables", shown),
                ("bridge/bridge-nf-call-ip6tables", shown),
            ] {
                netlink::sysctl::set(name, value).unwrap();
            }
        });
        let pods: Vec<Pod> = (2u8..)
            .zip(names)
            .map(|(number, name)| plug(&namespace, number, name))
            .collect();
        for pair in pods.windows(2) {
            for addr in pair[1].addresses() {
                let listener = pair[1].listen(addr, 1);
                pair[0].reaches(&listener);
            }
        }
        let ranges = ["10.77.0.0/24", "fd77::/64"].map(|text| Cidr::parse(text).unwrap());
        let kernel = Kernel::open(Some(&namespace.path()), ranges.to_vec()).unwrap();
        let mut node = Self {
            namespace,
            pods,
            world: World::new(),
            kernel,
        };
        for at in 0..node.pods.len() {
            let name = node.pods[at].name;
            node.label(at, json!({"name": name}), json!([]));
        }
        node.kernel.replace(&node.world.whole()).unwrap();
        node
    }

    /// What is known of a pod.
    pub(crate) fn label(&mut self, at: usize, labels: Value, ports: Value) {
        let pod = &self.pods[at];
        let facts = Facts::of(&pod.object(labels, ports), NODE);
        self.world.set_pod(pod.id(), Some(facts));
    }

    /// A policy of the namespace `default`, or none of that name any more; in the kernel when this returns.
    pub(crate) fn policy(&mut self, name: &str, spec: Option<Value>) {
        let read = |spec| {
            let object = json!({"metadata": {"namespace": "default", "name": name}, "spec": spec});
            let policy = Policy::read(&serde_json::from_value(object).unwrap());
            assert_eq!(policy.flaws, []);
            policy
        };
        self.world.set_policy(client::Key::new("default", name), spec.map(read));
        self.apply();
    }

    pub(crate) fn apply(&mut self) {
        self.kernel.apply(&self.world.take_change()).unwrap();
    }
}

fn plug(node: &Namespace, number: u8, name: &'static str) -> Pod {
    let namespace = Namespace::new();
    let near = format!("v{number}");
    namespace.ip(&[
        "link", "add", "eth0", "type", "veth", "peer", "name", &near, "netns", &node.name,
    ]);
    let (v4, v6) = (format!("10.77.0.{number}"), format!("fd77::{number:x}"));
    namespace.ip(&["addr", "add", &format!("{v4}/24"), "dev", "eth0"]);
    namespace.ip(&["addr", "add", &format!("{v6}/64"), "dev", "eth0", "nodad"]);
    namespace.ip(&["link", "set", "eth0", "up"]);
    node.ip(&["link", "set", &near, "master", "br0", "up"]);
    // A pod that reaches itself by a Service needs it, where br_netfilter translates within the bridge.
    node.ip(&["link", "set", &near, "type", "bridge_slave", "hairpin", "on"]);
    namespace.ip(&["route", "add", "default", "via", "10.77.0.1"]);
    namespace.ip(&["route", "add", "default", "via", "fd77::1"]);
    Pod {
        name,
        namespace,
        v4: v4.parse().unwrap(),
        v6: v6.parse().unwrap(),
    }
}
