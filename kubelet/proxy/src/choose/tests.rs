use std::net::SocketAddr;

use super::*;
use crate::model::{PortName, Protocol};

fn port(internal_local: bool, external_local: bool) -> ServicePort {
    ServicePort {
        name: PortName {
            namespace: "ns".into(),
            service: "web".into(),
            port: String::new(),
            protocol: Protocol::Tcp,
        },
        cluster_ips: vec!["10.96.0.1".parse().unwrap()],
        port: 80,
        node_port: if external_local { 30_000 } else { 0 },
        external_ips: [].into(),
        load_balancer_ips: [].into(),
        source_ranges: None,
        internal_local,
        external_local,
        affinity_seconds: 0,
        health_check_node_port: 0,
    }
}

/// `a` ready, `t` serving and terminating, `n` not ready, `e` ended; a capital letter is on this node; then zones and nodes hinted.
fn endpoint(number: u8, text: &str) -> Endpoint {
    let mut parts = text.split(' ');
    let state = parts.next().unwrap();
    let lower = state.to_lowercase();
    let hints: Vec<String> = parts.map(str::to_owned).collect();
    let of = |letter: char| hints.iter().filter(|hint| hint.starts_with(letter)).cloned().collect();
    Endpoint {
        address: SocketAddr::from(([10, 1, 0, number], 80)),
        ready: lower == "a",
        serving: lower == "a" || lower == "t",
        terminating: lower == "t" || lower == "e",
        local: state != lower,
        zone_hints: of('z'),
        node_hints: of('n'),
    }
}

/// The last bytes of the chosen addresses: for policy Cluster, for policy Local, and whether there is any.
fn chosen(port: ServicePort, texts: &[&str]) -> (Vec<u8>, Vec<u8>, bool) {
    let list: Vec<Endpoint> = (1..).zip(texts).map(|(number, text)| endpoint(number, text)).collect();
    let served = choose(port, list.iter(), Here { node: "n1", zone: "z1" });
    let numbers = |list: &[Chosen]| -> Vec<u8> {
        let last = |chosen: &Chosen| match chosen.address {
            SocketAddr::V4(v4) => v4.ip().octets()[3],
            SocketAddr::V6(_) => 0,
        };
        list.iter().map(last).collect()
    };
    (
        numbers(&served.v4.cluster),
        numbers(&served.v4.local),
        served.v4.has_any,
    )
}

#[test]
fn endpoints_of_the_cluster() {
    for (texts, expected) in [
        (&["a", "n", "t", "e", "A"][..], &[1, 5][..]),
        (&["n", "t", "e", "T"], &[2, 4]),
        (&["n", "e"], &[]),
        // Zones: all ready ones have a hint and one is for here.
        (&["a z1", "a z2", "a z2 z1"], &[1, 3]),
        (&["a z1", "a"], &[1, 2]),
        (&["a z2", "a z2"], &[1, 2]),
        (&["a z1", "n", "t"], &[1]),
        // Nodes go first.
        (&["a z1 n2", "a z2 n1"], &[2]),
        (&["a z1 n2", "a z2 n2"], &[1]),
        (&["a z2 n1", "a z1"], &[2]),
        // What ends has no say and no hints.
        (&["t z1", "t z2"], &[1, 2]),
    ] {
        let (cluster, local, any) = chosen(port(false, false), texts);
        assert_eq!(cluster, expected, "{texts:?}");
        assert_eq!((local, any), (Vec::new(), !expected.is_empty()), "{texts:?}");
    }
}

#[test]
fn endpoints_of_this_node() {
    for (texts, expected, any) in [
        (&["a", "A", "T"][..], &[2][..], true),
        (&["a", "T", "N"], &[2], true),
        (&["a", "N", "E"], &[], true),
        (&["N", "e"], &[], false),
        // Hints do not count.
        (&["A z2", "a z1"], &[1], true),
    ] {
        let internal = chosen(port(true, false), texts);
        assert_eq!(internal, (Vec::new(), expected.to_vec(), any), "{texts:?}");
        let external = chosen(port(false, true), texts);
        assert_eq!(external.1, expected, "{texts:?}");
        assert_eq!(
            external.0.is_empty(),
            !any,
            "pods are served from the whole cluster: {texts:?}"
        );
    }
}

#[test]
fn one_address_counts_once_at_its_best() {
    let twice = [endpoint(1, "n"), endpoint(1, "A"), endpoint(1, "t")];
    let served = choose(port(false, true), twice.iter(), Here { node: "n1", zone: "" });
    assert_eq!(
        (served.v4.cluster.len(), served.v4.local.len(), served.local_endpoints),
        (1, 1, 1)
    );
}

/// A node whose last endpoint ends says so to balancers, while it still serves what they send.
#[test]
fn only_what_is_ready_here_counts_for_balancers() {
    for (texts, led, counted) in [
        (&["A", "A", "T", "a"][..], 2, 2),
        (&["T", "T", "N", "a"], 2, 0),
        (&["T", "A"], 1, 1),
        (&["N", "E", "a"], 0, 0),
    ] {
        let list: Vec<Endpoint> = (1..).zip(texts).map(|(number, text)| endpoint(number, text)).collect();
        let here = Here { node: "n1", zone: "" };
        let served = choose(port(false, true), list.iter(), here);
        assert_eq!(
            (served.v4.local.len(), served.local_endpoints),
            (led, counted),
            "{texts:?}"
        );
        // Nor does it matter whether this node leads any traffic there: a balancer may go past node ports and addresses.
        let mut unled = port(false, true);
        unled.node_port = 0;
        assert_eq!(choose(unled, list.iter(), here).local_endpoints, counted, "{texts:?}");
    }
    // Two ports of one pod are one endpoint, and the Service's first family speaks for it.
    let mut other_port = endpoint(1, "A");
    other_port.address.set_port(81);
    let mut v6 = [endpoint(2, "A"), endpoint(3, "A")];
    v6[0].address = "[fd00::2]:80".parse().unwrap();
    v6[1].address = "[fd00::3]:80".parse().unwrap();
    let all = || [&other_port].into_iter().chain(&v6);
    for (first, counted) in [("10.96.0.1", 1), ("fd00:96::1", 2)] {
        let mut port = port(false, true);
        port.cluster_ips = vec![first.parse().unwrap()];
        let one = endpoint(1, "A");
        let served = choose(port, all().chain([&one]), Here { node: "n1", zone: "" });
        assert_eq!(served.local_endpoints, counted, "{first}");
    }
}

/// The author of one Service decides on its ports and on its endpoints: their product is bounded, and what is beyond is told.
#[test]
fn endpoints_beyond_what_is_used_are_counted() {
    for (ports, most) in [
        (0, 4095),
        (1, 4095),
        (12, 4095),
        (13, 3846),
        (5_000, 10),
        (1_000_000, 1),
    ] {
        assert_eq!(endpoints_max(ports), most, "{ports}");
    }
    let mut udp = port(false, false);
    udp.name.protocol = Protocol::Udp;
    let list: Vec<Endpoint> = (1..=9).map(|number| endpoint(number, "a")).collect();
    for (most, used, beyond, serving) in [(9, 9, 0, 9), (8, 8, 1, 9), (3, 3, 6, 9), (2, 2, 7, 2)] {
        let each = list.iter().map(|endpoint| (80, endpoint));
        let served = choose_at(udp.clone(), each, most, Here { node: "n1", zone: "" });
        assert_eq!((served.v4.cluster.len(), served.beyond), (used, beyond));
        assert_eq!(served.serving.len(), serving, "flows stay with what serves");
        assert_eq!(served.v4.cluster[0].address, list[0].address, "always the same ones");
    }
}
