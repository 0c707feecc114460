//! SCTP, by packets made by hand: few kernels that follow its connections have sockets of it.

use std::net::SocketAddr;
use std::process::Command;

use proxy::conntrack::switches::follows_sctp;
use proxy::model::{Protocol, ServicePort};

use crate::net::{Net, node_v4, v4, v6};
use crate::packet::{Ear, Packet, SCTP, send};
use crate::proxy::{Proxy, endpoint, port, served, settings};

const HEADER_BYTES: usize = 12;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;

/// What is told of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    from: SocketAddr,
    to: SocketAddr,
    /// The verification tag; that of the chunk is one more.
    tag: u32,
    chunk: u8,
}

/// CRC-32C (RFC 9260, appendix A).
fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32| {
        if crc & 1 == 1 {
            (crc >> 1) ^ 0x82F6_3B78
        } else {
            crc >> 1
        }
    };
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
    })
}

impl Heard {
    fn packet(&self) -> Packet {
        let mut sctp = Vec::new();
        sctp.extend(self.from.port().to_be_bytes());
        sctp.extend(self.to.port().to_be_bytes());
        sctp.extend(self.tag.to_be_bytes());
        sctp.extend([0; 4]);
        // Type, flags, length; tag, window, streams out and in, first TSN.
        sctp.extend([self.chunk, 0, 0, 20]);
        sctp.extend((self.tag + 1).to_be_bytes());
        sctp.extend(65_536u32.to_be_bytes());
        sctp.extend([0, 1, 0, 1, 0, 0, 0, 1]);
        let sum = checksum(&sctp).to_le_bytes();
        sctp[8..12].copy_from_slice(&sum);
        Packet::of(self.from, self.to, SCTP, sctp)
    }

    /// The next sound packet of SCTP.
    fn next(ear: &Ear) -> Self {
        let Packet {
            from,
            to,
            payload: mut sctp,
            ..
        } = ear.hear(SCTP);
        let number = |at: usize| u16::from_be_bytes([sctp[at], sctp[at + 1]]);
        let found = Self {
            from: SocketAddr::new(from, number(0)),
            to: SocketAddr::new(to, number(2)),
            tag: u32::from_be_bytes([sctp[4], sctp[5], sctp[6], sctp[7]]),
            chunk: sctp[HEADER_BYTES],
        };
        let said = u32::from_le_bytes([sctp[8], sctp[9], sctp[10], sctp[11]]);
        sctp[8..12].fill(0);
        assert_eq!(said, checksum(&sctp), "{found:?}");
        found
    }
}

/// Whether the kernel was made without following SCTP, as far as it tells.
fn is_without_sctp() -> bool {
    let listed = Command::new("zcat").arg("/proc/config.gz").output();
    listed.is_ok_and(|listed| {
        let text = String::from_utf8_lossy(&listed.stdout);
        !text.contains("CONFIG_NF_CT_PROTO_SCTP=y")
    })
}

/// There and back, as TCP's are: by the cluster's address and port, and by a node's, to the endpoint's, and the answer from where it was
/// asked for, in either family. The same port of another protocol is another's.
#[test]
fn associations_go_to_endpoints_and_answers_come_from_the_service() {
    let net = Net::new(3);
    if !net.node.inside(follows_sctp) {
        assert!(is_without_sctp(), "this kernel follows SCTP, and nobody noticed");
        eprintln!("not tested: this kernel does not follow SCTP");
        return;
    }
    let signal = ServicePort {
        node_port: 30_132,
        ..port("signal", Protocol::Sctp, &["10.96.0.1", "fd00:96::1"])
    };
    let web = ServicePort {
        name: port("web", Protocol::Tcp, &[]).name,
        ..signal.clone()
    };
    let ports = [
        served(signal, &[v4(1), v6(1)].map(|ip| endpoint(ip, true))),
        served(web, &[v4(2), v6(2)].map(|ip| endpoint(ip, true))),
    ];
    let _proxy = Proxy::start(&net.node, settings(), &ports);
    let pod = &net.neighbours[1];
    let node_v6 = "fd00:1:0::1".parse().unwrap();
    // Who asks where; whether the pod sees who it is.
    for (client, service, is_seen) in [
        (3, SocketAddr::new("10.96.0.1".parse().unwrap(), 80), true),
        (3, SocketAddr::new("fd00:96::1".parse().unwrap(), 80), true),
        (0, SocketAddr::new(node_v4(0), 30_132), false),
        (0, SocketAddr::new(node_v6, 30_132), false),
    ] {
        let of = |neighbour| {
            if service.is_ipv4() {
                v4(neighbour)
            } else {
                v6(neighbour)
            }
        };
        let asks = &net.neighbours[client];
        let (hears, answered) = (Ear::of(pod, service.is_ipv4()), Ear::of(asks, service.is_ipv4()));
        let (own, theirs) = (SocketAddr::new(of(client), 4711), SocketAddr::new(of(1), 8080));
        let asked = Heard {
            from: own,
            to: service,
            tag: 0,
            chunk: INIT,
        };
        send(asks, &asked.packet());
        let arrived = Heard::next(&hears);
        assert_eq!(
            arrived,
            Heard {
                from: arrived.from,
                to: theirs,
                ..asked
            }
        );
        assert_eq!(arrived.from == own, is_seen, "{service}: {arrived:?}");
        let answer = Heard {
            from: theirs,
            to: arrived.from,
            tag: 1,
            chunk: INIT_ACK,
        };
        send(pod, &answer.packet());
        let came = Heard::next(&answered);
        assert_eq!(
            came,
            Heard {
                from: service,
                to: own,
                ..answer
            }
        );
    }
}
