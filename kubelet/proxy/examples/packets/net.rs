//! A node between a client and a server, each the namespace of a thread, joined by veth.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};

use crate::Outcome;

/// How long an answer may take before the way is taken for broken.
const WAIT: Duration = Duration::from_secs(5);
const FIRST_PORT: u16 = 8080;

fn run(program: &str, arguments: &[&str]) -> Outcome<()> {
    let output = Command::new(program).args(arguments).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn ip(words: &str) -> Outcome<()> {
    run("ip", &words.split(' ').collect::<Vec<_>>())
}

/// Runs nft in the namespace of the calling thread.
pub(crate) fn nft(words: &str) -> Outcome<()> {
    run("nft", &[words])
}

type Work = Box<dyn FnOnce() + Send>;

/// A thread with a network namespace of its own, both of which end when it is dropped.
struct Place {
    work: Option<mpsc::Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    id: Pid,
}

impl Place {
    fn new() -> Outcome<Self> {
        let (tell, told) = mpsc::channel();
        let (work, given) = mpsc::channel::<Work>();
        let thread = std::thread::spawn(move || {
            let _ = tell.send(unshare(CloneFlags::CLONE_NEWNET).map(|()| gettid()));
            given.into_iter().for_each(|work| work());
        });
        let id = told.recv()??;
        Ok(Self {
            work: Some(work),
            thread: Some(thread),
            id,
        })
    }

    /// Runs `work` inside, and waits for it.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Outcome<T> {
        let (tell, told) = mpsc::channel();
        let job: Work = Box::new(move || drop(tell.send(work())));
        self.work.as_ref().ok_or("it ended")?.send(job)?;
        Ok(told.recv()??)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Client, node (the calling thread) and server.
pub(crate) struct Net {
    client: Place,
    _server: Place,
}

fn text<T>(outcome: Outcome<T>) -> Result<T, String> {
    outcome.map_err(|error| error.to_string())
}

impl Net {
    /// Neighbours of the calling thread's namespace: 10.1.0.2 is the client, 10.1.1.2 the server, which answers at so many ports.
    pub(crate) fn new(ports: u16) -> Outcome<Self> {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        let (client, server) = (Place::new()?, Place::new()?);
        for (number, place) in [(0, &client), (1, &server)] {
            ip(&format!(
                "link add side{number} type veth peer name eth0 netns {}",
                place.id
            ))?;
            ip(&format!("addr add 10.1.{number}.1/24 dev side{number}"))?;
            ip(&format!("link set side{number} up"))?;
            place.run(move || {
                text(ip(&format!("addr add 10.1.{number}.2/24 dev eth0")))?;
                text(ip("link set eth0 up"))?;
                text(ip(&format!("route add default via 10.1.{number}.1")))
            })?;
        }
        for port in FIRST_PORT..FIRST_PORT + ports {
            let socket = server.run(move || UdpSocket::bind(("0.0.0.0", port)).map_err(|error| error.to_string()))?;
            // Ends with the process.
            std::thread::spawn(move || answer(&socket));
        }
        Ok(Self {
            client,
            _server: server,
        })
    }

    /// Where the server answers.
    pub(crate) fn endpoint(&self, number: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::from([10, 1, 1, 2]), FIRST_PORT + number)
    }

    /// How long the first packet of each of so many connections takes there and back.
    pub(crate) fn first_packets(&self, to: SocketAddr, count: usize) -> Outcome<Vec<Duration>> {
        self.client.run(move || {
            let one = |_| first_packet(to);
            (0..count).map(one).collect::<Result<_, _>>()
        })
    }
}

fn answer(socket: &UdpSocket) {
    let mut buffer = [0; 64];
    while let Ok((size, peer)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(buffer.get(..size).unwrap_or_default(), peer);
    }
}

/// Each socket has a port of its own: to the kernel it is another connection.
fn first_packet(to: SocketAddr) -> Result<Duration, String> {
    let work = || -> std::io::Result<Duration> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(WAIT))?;
        socket.connect(to)?;
        let begun = Instant::now();
        socket.send(b"?")?;
        socket.recv(&mut [0; 64])?;
        Ok(begun.elapsed())
    };
    work().map_err(|error| format!("no answer from {to}: {error}"))
}
