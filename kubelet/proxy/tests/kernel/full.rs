//! A full table of connections. The most there may be is the machine's (`net.netfilter.nf_conntrack_max` is no namespace's own), and stays as
//! it is; but each network namespace is counted for itself: one is filled with that many, and the machine's own traffic does not notice.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use netlink::codec::{Attributes, Message};
use netlink::wire::{AF_INET, NLM_F_CREATE};
use netlink::{Protocol as Netlink, Socket, sysctl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getpeername, socket};
use proxy::conntrack::switches::Room;
use proxy::model::Protocol;

use crate::net::{Connection, Net, Server, tcp, v4};
use crate::proxy::{Proxy, endpoint, port, served, settings};

/// Beyond so many it is not tested: each takes some 300 bytes of the kernel's.
const MOST: u32 = 1 << 19;
/// Requests at once.
const BATCH: u32 = 64;
/// Numbers of `nfnetlink_conntrack.h`.
const CT_NEW: u16 = 1 << 8;
const CT_DELETE: u16 = 1 << 8 | 2;
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const TIMEOUT: u16 = 7;
/// Answered, assured, confirmed: the kernel gives none of these up for a new one.
const HELD: u32 = 2 | 4 | 8;

fn tuple(from: [u8; 4], to: [u8; 4], ports: [u16; 2]) -> Attributes {
    let ip = Attributes::new().attr(1, &from).attr(2, &to);
    let [from, to] = ports.map(u16::to_be_bytes);
    let protocol = Attributes::new().attr(1, &[17]).attr(2, &from).attr(3, &to);
    Attributes::new().nested(1, ip).nested(2, protocol)
}

/// A UDP flow of its own for each number.
fn flow(kind: u16, number: u32) -> Message {
    let [high, middle, low, port] = number.to_be_bytes();
    let (from, to) = ([198, 18 + high, middle, low], [203, 0, 113, 1]);
    let ports = [1000 + u16::from(port), 9];
    let flags = if kind == CT_NEW { NLM_F_CREATE } else { 0 };
    let message = Message::new(kind, flags, &[AF_INET, 0, 0, 0]).nested(TUPLE_ORIG, tuple(from, to, ports));
    match kind {
        CT_NEW => message
            .nested(TUPLE_REPLY, tuple(to, from, [ports[1], ports[0]]))
            .attr(STATUS, &HELD.to_be_bytes())
            .attr(TIMEOUT, &600u32.to_be_bytes()),
        _ => message,
    }
}

/// Makes flows until the kernel takes no more; how many there are then.
fn fill(socket: &mut Socket, most: u32) -> u32 {
    let mut made = 0;
    for first in (0..=most).step_by(BATCH as usize) {
        let flows: Vec<Message> = (first..first + BATCH).map(|number| flow(CT_NEW, number)).collect();
        for outcome in socket.batch(&flows).unwrap() {
            match outcome {
                Ok(_) => made += 1,
                Err(error) if error.errno() == Some(nix::errno::Errno::ENOMEM) => return made,
                Err(error) => panic!("{error}"),
            }
        }
    }
    panic!("{made} flows, and there is room for more");
}

#[test]
fn connections_go_on_and_rules_are_kept_where_no_more_connections_fit() {
    let net = Net::new(3);
    let _servers = [
        Server::start(&net.neighbours[1], "one", 8080),
        Server::start(&net.neighbours[2], "two", 8080),
    ];
    let web = |number| {
        served(
            port("web", Protocol::Tcp, &["10.96.0.1"]),
            &[endpoint(v4(number), true)],
        )
    };
    let mut proxy = Proxy::start(&net.node, settings(), &[web(1)]);
    let read = || sysctl::get("netfilter/nf_conntrack_max").and_then(|text| text.parse::<u32>().ok());
    let most = net.node.inside(read).expect("connections are followed");
    if most > MOST {
        eprintln!("not tested: this machine's table has room for {most} connections");
        return;
    }
    let (client, service): (_, SocketAddr) = (&net.neighbours[3], "10.96.0.1:80".parse().unwrap());
    let mut open = Connection::open(client, service).unwrap();
    let before = open.ask().unwrap();
    let mut flows = net.node.inside(|| Socket::open(Netlink::Netfilter)).unwrap();
    let mut room = Room::default();
    let mut fills = || net.node.inside(|| room.fills());
    assert_eq!(fills(), None);
    fill(&mut flows, most);
    assert!(fills().is_some_and(|count| count >= u64::from(most)), "it is told");
    assert_eq!(fills(), None, "once");
    // One more does not fit, and waits. What is asked over the open one comes behind it by the same way.
    let begin = || socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
    let stream = client.inside(begin);
    let begun = connect(stream.as_raw_fd(), &SockaddrStorage::from(service));
    assert_eq!(begun, Err(nix::errno::Errno::EINPROGRESS));
    assert_eq!(open.ask().unwrap(), before, "what worked goes on");
    let peer = getpeername::<SockaddrStorage>(stream.as_raw_fd());
    assert_eq!(peer.err(), Some(nix::errno::Errno::ENOTCONN), "there was room");
    // Rules are no connections.
    assert!(proxy.is_intact() && proxy.change(&[web(2)]));
    assert_eq!(open.ask().unwrap(), before, "an open connection stays where it is");
    // Room again: new ones are followed, by the rules as they are now.
    let some: Vec<Message> = (0..BATCH).map(|number| flow(CT_DELETE, number)).collect();
    flows.batch_all(&some).unwrap();
    drop(stream);
    assert_eq!(tcp(client, service).unwrap().server, "two");
    assert_eq!(open.ask().unwrap(), before);
}
