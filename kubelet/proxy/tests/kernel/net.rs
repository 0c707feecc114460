//! A node between a client and endpoints, each a network namespace that ends with the test.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use netlink::netns::Netns;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// How long a connection or an answer may take. Only refusals and drops wait for it.
pub(crate) const WAIT: Duration = Duration::from_secs(5);

/// Runs a program; panics with its error output when it fails.
pub(crate) fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) fn new(what: &str) -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sk-px{:x}-{number:x}-{what}", std::process::id());
        command("ip", &["netns", "add", &name]);
        let made = Self { name };
        // Until a link's own address is known to be its alone, which takes two seconds, and more where the machine is busy, nobody is asked
        // where a packet of IPv6 is to go that is led on; and after three seconds it is dropped. No packet made by hand is sent again.
        made.inside(|| netlink::sysctl::set("ipv6/conf/default/accept_dad", "0").unwrap());
        made.ip(&["link", "set", "lo", "up"]);
        made
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        command("ip", &[&["-n", self.name.as_str()], arguments].concat())
    }

    pub(crate) fn nft(&self, arguments: &[&str]) -> String {
        command(
            "ip",
            &[&["netns", "exec", self.name.as_str(), "nft"], arguments].concat(),
        )
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

/// A node with neighbours. Neighbour `n` has 10.1.n.2 and fd00:1:n::2, the node has .1 and ::1 beside it. Neighbour 0 is the
/// client outside, the others are pods.
pub(crate) struct Net {
    pub(crate) node: Namespace,
    pub(crate) neighbours: Vec<Namespace>,
}

pub(crate) fn v4(neighbour: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 1, neighbour as u8, 2))
}

pub(crate) fn v6(neighbour: usize) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd00, 1, neighbour as u16, 0, 0, 0, 0, 2))
}

/// The node's address beside a neighbour.
pub(crate) fn node_v4(neighbour: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 1, neighbour as u8, 1))
}

impl Net {
    /// A client and `pods` pods.
    pub(crate) fn new(pods: usize) -> Self {
        let node = Namespace::new("node");
        node.inside(|| {
            netlink::sysctl::set("ipv4/ip_forward", "1").unwrap();
            netlink::sysctl::set("ipv6/conf/all/forwarding", "1").unwrap();
        });
        let neighbours = (0..=pods).map(|number| neighbour(&node, number)).collect();
        node.ip(&["route", "add", "default", "via", "10.1.0.2"]);
        node.ip(&["-6", "route", "add", "default", "via", "fd00:1:0::2"]);
        Self { node, neighbours }
    }
}

fn neighbour(node: &Namespace, number: usize) -> Namespace {
    let made = Namespace::new(&format!("n{number}"));
    let link = format!("pod{number}");
    node.ip(&[
        "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &made.name,
    ]);
    node.ip(&["link", "set", &link, "up"]);
    made.ip(&["link", "set", "eth0", "up"]);
    for (family, ours, theirs, length) in [
        ("-4", format!("10.1.{number}.1"), v4(number), 24),
        ("-6", format!("fd00:1:{number}::1"), v6(number), 64),
    ] {
        let nodad: &[&str] = if family == "-6" { &["nodad"] } else { &[] };
        let node_address = format!("{ours}/{length}");
        let address = format!("{theirs}/{length}");
        node.ip(&[&["addr", "add", &node_address, "dev", &link], nodad].concat());
        made.ip(&[&["addr", "add", &address, "dev", "eth0"], nodad].concat());
        made.ip(&[family, "route", "add", "default", "via", &ours]);
    }
    made
}

/// A server that answers every connection or datagram with its name and the client's address, until it is dropped.
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves TCP and UDP at a port of both families.
    pub(crate) fn start(namespace: &Namespace, name: &str, port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let (listener, socket) = namespace.inside(|| (TcpListener::bind(any).unwrap(), UdpSocket::bind(any).unwrap()));
        listener.set_nonblocking(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (name, ending) = (name.to_owned(), stop.clone());
        let udp_name = name.clone();
        let udp_ending = stop.clone();
        threads.push(std::thread::spawn(move || serve_tcp(&listener, &name, &ending)));
        threads.push(std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while !udp_ending.load(Ordering::Relaxed) {
                if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(answer(&udp_name, peer.ip()).as_bytes(), peer);
                }
            }
        }));
        Self { stop, threads }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn answer(name: &str, peer: IpAddr) -> String {
    let peer = peer.to_canonical();
    format!("{name} {peer}")
}

/// Answers each line of each connection.
fn serve_tcp(listener: &TcpListener, name: &str, ending: &AtomicBool) {
    let open: Mutex<Vec<TcpStream>> = Mutex::default();
    std::thread::scope(|scope| {
        while !ending.load(Ordering::Relaxed) {
            let Ok((mut stream, peer)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            stream.set_nonblocking(false).unwrap();
            open.lock().unwrap().push(stream.try_clone().unwrap());
            scope.spawn(move || {
                let mut byte = [0];
                while stream.read(&mut byte).unwrap_or(0) == 1 {
                    let text = answer(name, peer.ip()) + "\n";
                    if stream.write_all(text.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
        for stream in open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
}

/// Who answered, and as whom it saw the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) server: String,
    pub(crate) client: IpAddr,
}

fn parse(text: &str) -> Answer {
    let (server, client) = text.trim().split_once(' ').unwrap();
    Answer {
        server: server.to_owned(),
        client: client.parse().unwrap(),
    }
}

/// An open connection.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn open(from: &Namespace, to: SocketAddr) -> std::io::Result<Self> {
        let stream = from.inside(|| TcpStream::connect_timeout(&to, WAIT))?;
        stream.set_read_timeout(Some(WAIT))?;
        Ok(Self(stream))
    }

    pub(crate) fn local_port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// Asks over the connection.
    pub(crate) fn ask(&mut self) -> std::io::Result<Answer> {
        self.0.write_all(b"?")?;
        let (mut text, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            self.0.read_exact(&mut byte)?;
            text.push(byte[0]);
        }
        Ok(parse(std::str::from_utf8(&text).unwrap()))
    }
}

/// Connects and asks once.
pub(crate) fn tcp(from: &Namespace, to: SocketAddr) -> std::io::Result<Answer> {
    Connection::open(from, to)?.ask()
}

/// Sends a datagram from a port of its own, and waits for the answer.
pub(crate) fn udp(from: &Namespace, to: SocketAddr) -> std::io::Result<Answer> {
    let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let socket = from.inside(|| UdpSocket::bind(any))?;
    socket.set_read_timeout(Some(WAIT))?;
    socket.connect(to)?;
    socket.send(b"?")?;
    let mut buffer = [0; 64];
    let size = socket.recv(&mut buffer)?;
    Ok(parse(std::str::from_utf8(&buffer[..size]).unwrap()))
}

/// Begins a connection that nobody is to answer, neither with a connection nor with a refusal. It is judged once a later
/// connection by the same way, to `barrier`, was answered: packets between namespaces stay in order.
pub(crate) fn unanswered(from: &Namespace, to: SocketAddr, barrier: SocketAddr) {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getpeername, getsockopt, socket, sockopt,
    };
    use std::os::fd::AsRawFd;
    let family = if to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let open = || socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
    let stream = from.inside(open);
    let begun = connect(stream.as_raw_fd(), &SockaddrStorage::from(to));
    assert_eq!(begun, Err(nix::errno::Errno::EINPROGRESS));
    tcp(from, barrier).unwrap();
    assert_eq!(getsockopt(&stream, sockopt::SocketError), Ok(0), "refused");
    let peer = getpeername::<SockaddrStorage>(stream.as_raw_fd());
    assert_eq!(peer.err(), Some(nix::errno::Errno::ENOTCONN), "answered");
}

/// It was refused, at once.
pub(crate) fn refused<T: std::fmt::Debug>(outcome: std::io::Result<T>) {
    assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}
