//! Packets made by hand, of either family: what no socket would send, and what few kernels have sockets for.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use netlink::cidr::{from_octets, octets};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, recv, sendto, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::net::{Namespace, WAIT};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;

/// An IP packet without options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let length = u16::try_from(self.payload.len()).unwrap().to_be_bytes();
        let mut bytes = match self.from {
            // The kernel fills in the length and the checksum.
            IpAddr::V4(_) => vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, self.protocol, 0, 0],
            IpAddr::V6(_) => vec![0x60, 0, 0, 0, length[0], length[1], self.protocol, 64],
        };
        bytes.extend(octets(&self.from));
        bytes.extend(octets(&self.to));
        bytes.extend(&self.payload);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (protocol, addresses, begin, end) = match bytes.first()? >> 4 {
            4 if bytes[0] == 0x45 => (bytes.get(9)?, 12, 20, number(bytes, 2)?),
            6 => (bytes.get(6)?, 8, 40, 40 + number(bytes, 4)?),
            _ => return None,
        };
        let width = (begin - addresses) / 2;
        let address = |at: usize| from_octets(bytes.get(at..at + width)?);
        Some(Self {
            from: address(addresses)?,
            to: address(addresses + width)?,
            protocol: *protocol,
            payload: bytes.get(begin..end)?.to_vec(),
        })
    }

    pub(crate) fn source_port(&self) -> Option<usize> {
        number(&self.payload, 0)
    }

    /// One of TCP that begins a connection.
    pub(crate) fn syn(from: SocketAddr, to: SocketAddr) -> Self {
        let mut tcp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        // Sequence number, acknowledgement; 20 bytes, SYN; window; checksum and urgent pointer.
        tcp.extend([1, 2, 3, 4, 0, 0, 0, 0, 0x50, 2, 0x10, 0, 0, 0, 0, 0]);
        let sum = transport_checksum(from.ip(), to.ip(), TCP, &tcp);
        tcp[16..18].copy_from_slice(&sum);
        Self::of(from, to, TCP, tcp)
    }

    /// A datagram of one byte.
    pub(crate) fn datagram(from: SocketAddr, to: SocketAddr) -> Self {
        let mut udp = [from.port().to_be_bytes(), to.port().to_be_bytes(), [0, 9], [0, 0]].concat();
        udp.push(b'?');
        let sum = transport_checksum(from.ip(), to.ip(), UDP, &udp);
        udp[6..8].copy_from_slice(&sum);
        Self::of(from, to, UDP, udp)
    }

    pub(crate) fn of(from: SocketAddr, to: SocketAddr, protocol: u8, payload: Vec<u8>) -> Self {
        Self {
            from: from.ip(),
            to: to.ip(),
            protocol,
            payload,
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let two = bytes.get(at..at + 2)?;
    Some(usize::from(u16::from_be_bytes([two[0], two[1]])))
}

/// Over the pseudo header and what is behind it (RFC 1071).
fn transport_checksum(from: IpAddr, to: IpAddr, protocol: u8, bytes: &[u8]) -> [u8; 2] {
    let mut all = [octets(&from), octets(&to)].concat();
    all.extend([0, protocol]);
    all.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(2), 0);
    let sum: u32 = all
        .chunks(2)
        .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    (!(folded as u16)).to_be_bytes()
}

/// Sends it, whoever it says it is from.
pub(crate) fn send(from: &Namespace, packet: &Packet) {
    let family = if packet.to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let open = || socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
    let made = from.inside(open).unwrap();
    let bytes = packet.bytes();
    let sent = match packet.to {
        IpAddr::V4(to) => {
            let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
            sendto(made.as_raw_fd(), &bytes, &to, MsgFlags::empty())
        }
        IpAddr::V6(to) => {
            let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, 0));
            sendto(made.as_raw_fd(), &bytes, &to, MsgFlags::empty())
        }
    };
    assert_eq!(sent, Ok(bytes.len()), "{packet:?}");
}

/// Hears what arrives of one family.
pub(crate) struct Ear(OwnedFd);

impl Ear {
    pub(crate) fn of(namespace: &Namespace, v4: bool) -> Self {
        let protocol = if v4 { SockProtocol::EthIp } else { SockProtocol::EthIpv6 };
        let open = || {
            let flags = SockFlag::SOCK_CLOEXEC;
            socket(AddressFamily::Packet, SockType::Datagram, flags, protocol)
        };
        let made = namespace.inside(open).unwrap();
        let wait = TimeVal::new(i64::try_from(WAIT.as_secs()).unwrap(), 0);
        setsockopt(&made, sockopt::ReceiveTimeout, &wait).unwrap();
        Self(made)
    }

    /// The next packet of a protocol.
    pub(crate) fn hear(&self, protocol: u8) -> Packet {
        loop {
            let packet = self.next(MsgFlags::empty()).expect("a packet arrives");
            if let Some(packet) = packet.filter(|packet| packet.protocol == protocol) {
                return packet;
            }
        }
    }

    /// All that has arrived.
    pub(crate) fn all(&self) -> Vec<Packet> {
        let mut all = Vec::new();
        while let Some(packet) = self.next(MsgFlags::MSG_DONTWAIT) {
            all.extend(packet);
        }
        all
    }

    /// Nothing: nothing arrives. Nothing inside: no packet of ours.
    fn next(&self, flags: MsgFlags) -> Option<Option<Packet>> {
        let mut buffer = [0; 2048];
        let size = recv(self.0.as_raw_fd(), &mut buffer, flags).ok()?;
        Some(Packet::read(&buffer[..size]))
    }
}
