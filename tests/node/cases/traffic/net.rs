//! Other networks than the first node's: that of a pod, and that of somebody outside of the cluster. And the packets that no tool of a
//! pod's sends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto, socket};

use crate::command::run;

/// A network namespace.
pub(super) struct Namespace(File);

impl Namespace {
    /// A pod's, by its processes, whichever containerd has them. One that is just being started may still be in its node's, so all
    /// have to be in the same.
    pub(super) fn of_pod(uid: &str) -> anyhow::Result<Self> {
        let mut found: BTreeMap<PathBuf, File> = BTreeMap::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let process = entry.path();
            let cgroup = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
            if cgroup.replace('_', "-").contains(&format!("pod{uid}")) {
                let path = process.join("ns/net");
                found.insert(fs::read_link(&path)?, File::open(path)?);
            }
        }
        ensure!(found.len() == 1, "pod {uid} is in {:?}", found.keys());
        let (_, only) = found.pop_first().context("a namespace")?;
        Ok(Self(only))
    }

    /// What a function gives that runs in there. Sockets that it makes stay there.
    pub(super) fn inside<T: Send>(&self, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let entered = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).context("entering a network namespace")?;
            work()
        };
        std::thread::scope(|scope| scope.spawn(entered).join())
            .map_err(|_| anyhow::anyhow!("what ran in a network namespace panicked"))?
    }
}

/// Somebody whom a link joins to the first node, and nothing to the cluster: what comes from there is external traffic.
pub(super) struct Outside {
    name: String,
}

/// The link's end at the node.
const LINK: &str = "outside";

impl Outside {
    /// Their own address.
    pub(super) const ADDRESS: &str = "198.51.100.2";
    /// The first node's, as they know it. All else is behind it.
    pub(super) const NODE: &str = "198.51.100.1";

    pub(super) fn new() -> anyhow::Result<Self> {
        let name = format!("skiff-node-{}-outside", std::process::id());
        run("ip", &["netns", "add", &name])?;
        let made = Self { name };
        let name = &made.name;
        for line in [
            format!("link add {LINK} type veth peer name eth0 netns {name}"),
            format!("address add {}/24 dev {LINK}", Self::NODE),
            format!("link set {LINK} up"),
            format!("-n {name} address add {}/24 dev eth0", Self::ADDRESS),
            format!("-n {name} link set eth0 up"),
            format!("-n {name} route add default via {}", Self::NODE),
        ] {
            run("ip", &line.split(' ').collect::<Vec<_>>())?;
        }
        Ok(made)
    }

    /// `curl` from there.
    pub(super) fn curl(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new("ip");
        command
            .args(["netns", "exec", &self.name, "curl", "-sS"])
            .args(arguments);
        command
    }

    pub(super) fn namespace(&self) -> anyhow::Result<Namespace> {
        Ok(Namespace(File::open(format!("/run/netns/{}", self.name))?))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // The link first: that of a namespace goes in its own time.
        let _ = run("ip", &["link", "delete", LINK]);
        let _ = run("ip", &["netns", "delete", &self.name]);
    }
}

/// Answers each datagram with the name it was given and the address it sees, until it is dropped.
pub(super) struct Echo {
    ended: Arc<AtomicBool>,
    answers: Option<JoinHandle<()>>,
}

impl Echo {
    pub(super) fn start(pod: &Namespace, name: &str, port: u16) -> anyhow::Result<Self> {
        let bound = pod.inside(move || Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?))?;
        bound.set_read_timeout(Some(Duration::from_millis(100)))?;
        let ended = Arc::new(AtomicBool::new(false));
        let (over, name) = (ended.clone(), name.to_owned());
        let answers = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                if let Ok((_, from)) = bound.recv_from(&mut [0; 16]) {
                    let _ = bound.send_to(format!("udp {name} {}", from.ip()).as_bytes(), from);
                }
            }
        });
        Ok(Self {
            ended,
            answers: Some(answers),
        })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(answers) = self.answers.take() {
            let _ = answers.join();
        }
    }
}

/// A socket whose datagrams are one flow to the kernel, as long as it lives.
pub(super) struct Flow(UdpSocket);

impl Flow {
    /// From the namespace, or from the first node.
    pub(super) fn to(from: Option<&Namespace>, target: &str) -> anyhow::Result<Self> {
        let open = || {
            let opened = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            opened.connect(target)?;
            Ok(opened)
        };
        let opened = from.map_or_else(open, |namespace| namespace.inside(open))?;
        opened.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(Self(opened))
    }

    /// What one more datagram is answered.
    pub(super) fn ask(&self) -> std::io::Result<String> {
        // An error that was told of one before is not this one's.
        let _ = self.0.take_error();
        self.0.send(b"?")?;
        let mut buffer = [0; 256];
        let size = self.0.recv(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
    }
}

/// SCTP's protocol number.
const SCTP: u8 = 132;

/// Begins an association from the first node, by hand: few kernels have sockets of SCTP. The checksum is left out, which nobody looks
/// at on the way out and NAT makes.
pub(super) fn send_sctp_init(to: SocketAddrV4, from_port: u16) -> anyhow::Result<()> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, SCTP, 0, 0, 0, 0, 0, 0];
    packet.extend(to.ip().octets());
    packet.extend([from_port.to_be_bytes(), to.port().to_be_bytes()].concat());
    // No tag yet, the checksum; INIT of 20 bytes: tag, window, streams out and in, first TSN (RFC 9260, 3.3.2).
    packet.extend([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 1]);
    packet.extend([0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let raw = socket(
        AddressFamily::Inet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Raw,
    )?;
    let address = SockaddrIn::from(SocketAddrV4::new(*to.ip(), 0));
    let sent = sendto(raw.as_raw_fd(), &packet, &address, MsgFlags::empty())?;
    ensure!(sent == packet.len(), "{sent} bytes of {}", packet.len());
    Ok(())
}

/// Hears what IPv4 packets arrive in a namespace.
pub(super) struct Ear(OwnedFd);

impl Ear {
    pub(super) fn of(namespace: &Namespace) -> anyhow::Result<Self> {
        let (packet, flags) = (SockType::Datagram, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
        let open = || Ok(socket(AddressFamily::Packet, packet, flags, SockProtocol::EthIp)?);
        namespace.inside(open).map(Self)
    }

    /// Where the SCTP packets went that have come since the last look.
    pub(super) fn sctp_targets(&self) -> Vec<SocketAddr> {
        let mut targets = Vec::new();
        let mut buffer = [0; 2048];
        while let Ok(size) = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            let packet = &buffer[..size];
            if size >= 32 && packet[0] == 0x45 && packet[9] == SCTP {
                let address = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
                targets.push((address, u16::from_be_bytes([packet[22], packet[23]])).into());
            }
        }
        targets
    }
}
