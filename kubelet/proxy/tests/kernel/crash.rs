//! The process is killed between two writes: whatever was written, the next one takes over.

use std::net::SocketAddr;

use proxy::model::{Protocol, Served, ServicePort};

use crate::net::{Connection, Net, Server, refused, tcp, v4, v6};
use crate::proxy::{Proxy, endpoint, port, served, settings};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn web(endpoints: &[usize]) -> Served {
    let port = ServicePort {
        node_port: 30_080,
        ..port("web", Protocol::Tcp, &["10.96.0.1", "fd00:96::1"])
    };
    let all = endpoints.iter().flat_map(|number| [v4(*number), v6(*number)]);
    served(port, &all.map(|ip| endpoint(ip, true)).collect::<Vec<_>>())
}

fn sticky(endpoints: &[usize]) -> Served {
    let port = ServicePort {
        affinity_seconds: 600,
        external_ips: ["203.0.113.9".parse().unwrap()].into(),
        ..port("sticky", Protocol::Tcp, &["10.96.0.2"])
    };
    let all: Vec<_> = endpoints.iter().map(|number| endpoint(v4(*number), true)).collect();
    served(port, &all)
}

/// What the tables hold, in no order: the kernel has none either. Clients the kernel remembers are left out.
fn listed(net: &Net) -> Vec<String> {
    let text = net.node.nft(&["list", "ruleset"]);
    let words = text.split(['\n', ',', '{', '}']).map(|word| word.trim().to_owned());
    let mut words: Vec<String> = words
        .filter(|word| !word.is_empty() && !word.contains("expires"))
        .map(|word| word.trim_start_matches("elements = ").to_owned())
        .filter(|word| word != "elements =")
        .collect();
    words.sort_unstable();
    words
}

/// The states one after another, each a write of its own: a first one, an endpoint more, all gone, others, one Service more.
fn states() -> Vec<Vec<Served>> {
    vec![
        vec![web(&[1])],
        vec![web(&[1, 2])],
        vec![web(&[])],
        vec![web(&[2]), sticky(&[1])],
        vec![web(&[1, 2]), sticky(&[1, 2])],
    ]
}

#[test]
fn whatever_was_written_the_next_process_takes_over() {
    let net = Net::new(3);
    let _servers = [
        Server::start(&net.neighbours[1], "one", 8080),
        Server::start(&net.neighbours[2], "two", 8080),
    ];
    let (client, states) = (&net.neighbours[3], states());
    let last = &states[states.len() - 1];
    // What a process that nobody killed has in the end.
    drop(Proxy::start(&net.node, settings(), last));
    let whole = listed(&net);
    for written in 0..=states.len() {
        net.node.nft(&["flush", "ruleset"]);
        let mut before = None;
        let mut open: Vec<(String, Connection)> = Vec::new();
        for state in &states[..written] {
            let proxy = match before.take() {
                None => Proxy::start(&net.node, settings(), state),
                Some(mut proxy) => {
                    assert!(Proxy::change(&mut proxy, state));
                    proxy
                }
            };
            before = Some(proxy);
            if let Ok(mut connection) = Connection::open(client, at("10.96.0.1:80")) {
                open.push((connection.ask().unwrap().server, connection));
            }
        }
        // Killed: nothing but its socket is closed.
        drop(before);
        let _next = Proxy::start(&net.node, settings(), last);
        assert_eq!(listed(&net), whole, "after {written} writes");
        for (server, connection) in &mut open {
            assert_eq!(connection.ask().unwrap().server, *server, "after {written} writes");
        }
        let first = tcp(client, at("10.96.0.2:80")).unwrap().server;
        assert_eq!(tcp(client, at("203.0.113.9:80")).unwrap().server, first, "by any front");
        assert!(tcp(client, at("[fd00:96::1]:80")).is_ok());
        refused(tcp(client, at("10.96.0.1:81")));
    }
}
