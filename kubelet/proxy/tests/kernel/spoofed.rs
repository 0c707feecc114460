//! Packets that are not from whom they say, or for whom they can be: martians of 127.0.0.0/8, and others' addresses.

use std::net::{IpAddr, SocketAddr};

use proxy::model::{Protocol, ServicePort};
use proxy::settings::Settings;

use crate::net::{Connection, Net, Server, node_v4, tcp, udp, unanswered, v4};
use crate::packet::{Ear, Packet, TCP, UDP, send};
use crate::proxy::{Proxy, endpoint, port, served, settings};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

const NODE_PORT: u16 = 30_080;

/// A Service of TCP and one of UDP at pod 1, on a node that serves them at 127.0.0.1, too, or not.
fn node(net: &Net, localhost_node_ports: bool) -> Proxy {
    let settings = Settings {
        localhost_node_ports,
        ..settings()
    };
    net.node.inside(|| {
        let value = if localhost_node_ports { "1" } else { "0" };
        netlink::sysctl::set("ipv4/conf/all/route_localnet", value).unwrap();
    });
    let ports = [("web", Protocol::Tcp), ("names", Protocol::Udp)].map(|(name, protocol)| {
        let port = ServicePort {
            node_port: NODE_PORT,
            ..port(name, protocol, &["10.96.0.1"])
        };
        served(port, &[endpoint(v4(1), true)])
    });
    Proxy::start(&net.node, settings, &ports)
}

/// 127.0.0.1 of the node is not reached from outside of it, whether it serves node ports there or not.
#[test]
fn the_nodes_loopback_is_the_nodes() {
    let net = Net::new(2);
    let _server = Server::start(&net.neighbours[1], "one", 8080);
    let _own = Server::start(&net.node, "node", 9090);
    let client = &net.neighbours[2];
    // A client that has no 127.0.0.1 of its own, and sends such packets to the node.
    client.ip(&["link", "set", "lo", "down"]);
    client.ip(&["route", "add", "127.0.0.0/8", "via", "10.1.2.1"]);
    for localhost_node_ports in [true, false] {
        let _proxy = node(&net, localhost_node_ports);
        for port in [NODE_PORT, 9090] {
            let loopback = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port);
            unanswered(client, loopback, at("10.1.1.2:8080"));
        }
        assert_eq!(
            tcp(&net.node, at("127.0.0.1:30080")).is_ok(),
            localhost_node_ports,
            "the node itself"
        );
    }
}

/// Nobody is 127.0.0.1 but the node to itself: such packets reach neither endpoints nor what listens on the node.
#[test]
fn nobody_comes_from_loopback() {
    let net = Net::new(3);
    let _server = Server::start(&net.neighbours[1], "one", 8080);
    let liar = &net.neighbours[3];
    for localhost_node_ports in [true, false] {
        let _proxy = node(&net, localhost_node_ports);
        let ears = [Ear::of(&net.neighbours[1], true), Ear::of(&net.neighbours[3], true)];
        let listens = net.node.inside(|| std::net::UdpSocket::bind("0.0.0.0:9091")).unwrap();
        // The kernel knows 127.0.0.1 for its own, and none of the others.
        let said = SocketAddr::new(IpAddr::from([127, 0, 0, 9]), 4711);
        for to in [
            at("10.96.0.1:80"),
            SocketAddr::new(node_v4(3), NODE_PORT),
            SocketAddr::new(node_v4(3), 9091),
        ] {
            send(liar, &Packet::syn(said, to));
            send(liar, &Packet::datagram(said, to));
        }
        // Behind them, by the same way: all before were judged.
        assert_eq!(tcp(liar, at("10.96.0.1:80")).unwrap().server, "one");
        assert_eq!(udp(liar, at("10.96.0.1:80")).unwrap().server, "one");
        for heard in ears.iter().flat_map(Ear::all) {
            let is_ours = [TCP, UDP].contains(&heard.protocol) && heard.source_port() == Some(4711);
            assert!(
                !heard.from.is_loopback() && !is_ours && !heard.to.is_loopback(),
                "{heard:?}"
            );
        }
        listens.set_nonblocking(true).unwrap();
        let heard = listens.recv_from(&mut [0; 8]).map(|(_, from)| from);
        assert_eq!(heard.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

/// Who sends in another's name gets none of the answers, and takes no connection from him.
#[test]
fn anothers_name_brings_nothing() {
    let net = Net::new(3);
    let _server = Server::start(&net.neighbours[1], "one", 8080);
    let _proxy = node(&net, false);
    let (owner, liar) = (&net.neighbours[2], &net.neighbours[3]);
    let service = at("10.96.0.1:80");
    let mut open = Connection::open(owner, service).unwrap();
    let before = open.ask().unwrap();
    assert_eq!(before.client, v4(2));
    let hears = Ear::of(liar, true);
    // The very connection, and one of its own.
    for port in [open.local_port(), 4711] {
        let said = SocketAddr::new(v4(2), port);
        send(liar, &Packet::syn(said, service));
        send(liar, &Packet::datagram(said, service));
    }
    assert_eq!(tcp(liar, service).unwrap().client, v4(3), "its own name is its own");
    assert_eq!(open.ask().unwrap(), before);
    for heard in hears.all() {
        assert!(heard.to == v4(3), "an answer to another: {heard:?}");
    }
}
