//! What clients see.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use netlink::cidr::Cidr;
use proxy::model::{Protocol, ServicePort};
use proxy::settings::{NodePortAddresses, Settings};

use crate::net::{Connection, Net, Server, node_v4, refused, tcp, udp, unanswered, v4, v6};
use crate::proxy::{Proxy, endpoint, port, served, settings};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn node_port(neighbour: usize) -> SocketAddr {
    SocketAddr::new(node_v4(neighbour), 30_080)
}

fn web() -> ServicePort {
    ServicePort {
        node_port: 30_080,
        ..port("web", Protocol::Tcp, &["10.96.0.1", "fd00:96::1"])
    }
}

/// Servers on pods 1 and 2.
fn servers(net: &Net) -> [Server; 2] {
    [
        Server::start(&net.neighbours[1], "one", 8080),
        Server::start(&net.neighbours[2], "two", 8080),
    ]
}

/// Asks until every one of `count` servers answered once. Returns the addresses they saw.
fn all_answer(count: usize, ask: impl Fn() -> crate::net::Answer) -> BTreeSet<IpAddr> {
    let (mut names, mut clients) = (BTreeSet::new(), BTreeSet::new());
    // One of two is missed 64 times in a row once in 10^19.
    for _ in 0..64 {
        let answer = ask();
        names.insert(answer.server);
        clients.insert(answer.client);
        if names.len() == count {
            return clients;
        }
    }
    panic!("only {names:?} answered");
}

#[test]
fn a_cluster_ip_leads_to_every_endpoint_in_both_families() {
    let net = Net::new(3);
    let _servers = servers(&net);
    let endpoints = [v4(1), v4(2), v6(1), v6(2)].map(|ip| endpoint(ip, true));
    let _proxy = Proxy::start(&net.node, settings(), &[served(web(), &endpoints)]);
    let client = &net.neighbours[3];
    let seen = all_answer(2, || tcp(client, at("10.96.0.1:80")).unwrap());
    assert_eq!(seen, BTreeSet::from([v4(3)]), "a pod is not masqueraded");
    let seen = all_answer(2, || tcp(client, at("[fd00:96::1]:80")).unwrap());
    assert_eq!(seen, BTreeSet::from([v6(3)]));
    // The node itself, and the client outside, whom nobody would answer without masquerading.
    let seen = all_answer(2, || tcp(&net.node, at("10.96.0.1:80")).unwrap());
    assert!(seen.iter().all(|ip| [node_v4(1), node_v4(2)].contains(ip)), "{seen:?}");
    let seen = all_answer(2, || tcp(&net.neighbours[0], at("10.96.0.1:80")).unwrap());
    assert!(seen.iter().all(|ip| [node_v4(1), node_v4(2)].contains(ip)), "{seen:?}");
    // nft shows the tables, which the rules are written to leave possible.
    let listed = net.node.nft(&["list", "ruleset"]);
    assert!(listed.contains("10.96.0.1 . tcp . 80"), "{listed}");
}

#[test]
fn without_endpoints_connections_are_refused() {
    let net = Net::new(1);
    let proxy_port = ServicePort {
        external_ips: ["203.0.113.9".parse().unwrap()].into(),
        ..web()
    };
    let mut proxy = Proxy::start(&net.node, settings(), &[served(proxy_port.clone(), &[])]);
    for to in ["10.96.0.1:80", "[fd00:96::1]:80", "203.0.113.9:80"] {
        refused(tcp(&net.neighbours[1], at(to)));
        refused(tcp(&net.node, at(to)));
    }
    refused(tcp(&net.neighbours[0], node_port(0)));
    // A port that the ClusterIP does not have.
    refused(tcp(&net.neighbours[1], at("10.96.0.1:81")));
    // An endpoint comes, and goes again.
    let _server = Server::start(&net.neighbours[1], "one", 8080);
    assert!(proxy.change(&[served(proxy_port.clone(), &[endpoint(v4(1), true)])]));
    assert_eq!(tcp(&net.neighbours[0], at("203.0.113.9:80")).unwrap().server, "one");
    assert!(proxy.change(&[served(proxy_port, &[])]));
    refused(tcp(&net.neighbours[0], at("203.0.113.9:80")));
}

#[test]
fn node_ports_are_served_on_the_addresses_wanted() {
    let net = Net::new(2);
    let _servers = servers(&net);
    let web = || served(web(), &[v4(1), v4(2)].map(|ip| endpoint(ip, true)));
    let _proxy = Proxy::start(&net.node, settings(), &[web()]);
    let client = &net.neighbours[0];
    let seen = all_answer(2, || tcp(client, node_port(0)).unwrap());
    assert!(seen.iter().all(|ip| *ip != v4(0)), "masqueraded under policy Cluster");
    assert_eq!(
        tcp(&net.node, node_port(0)).map(|answer| answer.server.len()).unwrap(),
        3
    );
    refused(tcp(&net.node, at("127.0.0.1:30080")));
    let only = |addresses| Settings {
        node_port_addresses: addresses,
        ..settings()
    };
    let networks = NodePortAddresses::Networks(vec![Cidr::parse("10.1.1.0/24").unwrap()]);
    for (addresses, served_at, not_at) in [(NodePortAddresses::Primary, 0, 1), (networks, 1, 0)] {
        let _proxy = Proxy::start(&net.node, only(addresses), &[web()]);
        assert!(tcp(client, node_port(served_at)).is_ok());
        refused(tcp(client, node_port(not_at)));
    }
}

#[test]
fn node_ports_on_localhost_are_a_setting() {
    let net = Net::new(1);
    let _server = Server::start(&net.neighbours[1], "one", 8080);
    net.node
        .inside(|| netlink::sysctl::set("ipv4/conf/all/route_localnet", "1"))
        .unwrap();
    let settings = Settings {
        localhost_node_ports: true,
        ..settings()
    };
    let _proxy = Proxy::start(&net.node, settings, &[served(web(), &[endpoint(v4(1), true)])]);
    assert_eq!(tcp(&net.node, at("127.0.0.1:30080")).unwrap().server, "one");
}

#[test]
fn udp_is_served() {
    let net = Net::new(3);
    let _servers = servers(&net);
    let dns = port("dns", Protocol::Udp, &["10.96.0.10", "fd00:96::10"]);
    let endpoints = [v4(1), v4(2), v6(1), v6(2)].map(|ip| endpoint(ip, true));
    let mut proxy = Proxy::start(&net.node, settings(), &[served(dns.clone(), &endpoints)]);
    let client = &net.neighbours[3];
    let seen = all_answer(2, || udp(client, at("10.96.0.10:80")).unwrap());
    assert_eq!(seen, BTreeSet::from([v4(3)]));
    all_answer(2, || udp(client, at("[fd00:96::10]:80")).unwrap());
    // The same port of another protocol is not there.
    refused(tcp(client, at("10.96.0.10:80")));
    assert!(proxy.change(&[served(dns, &[])]));
    refused(udp(client, at("10.96.0.10:80")));
}

#[test]
fn local_policy_keeps_the_client_address() {
    let net = Net::new(3);
    let _servers = servers(&net);
    let local = ServicePort {
        external_local: true,
        external_ips: ["203.0.113.9".parse().unwrap()].into(),
        ..web()
    };
    let endpoints = [endpoint(v4(1), true), endpoint(v4(2), false)];
    let mut proxy = Proxy::start(&net.node, settings(), &[served(local.clone(), &endpoints)]);
    let client = &net.neighbours[0];
    for to in [node_port(0), at("203.0.113.9:80")] {
        for _ in 0..8 {
            let answer = tcp(client, to).unwrap();
            assert_eq!((answer.server.as_str(), answer.client), ("one", v4(0)));
        }
        // Pods and the node are served from the whole cluster.
        let seen = all_answer(2, || tcp(&net.neighbours[3], to).unwrap());
        assert_eq!(seen, BTreeSet::from([v4(3)]));
        all_answer(2, || tcp(&net.node, to).unwrap());
    }
    // None on this node: dropped, for the load balancer to find another node.
    assert!(proxy.change(&[served(local, &[endpoint(v4(1), false), endpoint(v4(2), false)])]));
    unanswered(client, at("203.0.113.9:80"), at("10.1.1.2:8080"));
    assert!(tcp(&net.neighbours[3], at("203.0.113.9:80")).is_ok());
}

#[test]
fn internal_local_policy_drops_without_a_local_endpoint() {
    let net = Net::new(3);
    let _servers = servers(&net);
    let inner = ServicePort {
        internal_local: true,
        ..port("inner", Protocol::Tcp, &["10.96.0.3"])
    };
    let endpoints = [endpoint(v4(1), false), endpoint(v4(2), true)];
    let mut proxy = Proxy::start(&net.node, settings(), &[served(inner.clone(), &endpoints)]);
    for _ in 0..8 {
        assert_eq!(tcp(&net.neighbours[3], at("10.96.0.3:80")).unwrap().server, "two");
    }
    assert!(proxy.change(&[served(inner, &[endpoint(v4(1), false)])]));
    unanswered(&net.neighbours[3], at("10.96.0.3:80"), at("10.1.1.2:8080"));
}

#[test]
fn source_ranges_guard_a_load_balancer() {
    let net = Net::new(2);
    let _servers = servers(&net);
    let guarded = |ranges: &[&str]| {
        let port = ServicePort {
            load_balancer_ips: ["203.0.113.1", "2001:db8::113"].map(|ip| ip.parse().unwrap()).into(),
            source_ranges: Some(ranges.iter().map(|range| Cidr::parse(range).unwrap()).collect()),
            ..web()
        };
        served(port, &[endpoint(v4(1), true), endpoint(v6(1), true)])
    };
    let first = guarded(&["10.1.0.0/24", "198.51.100.0/24", "fd00:1::/64"]);
    let mut proxy = Proxy::start(&net.node, settings(), &[first]);
    let client = &net.neighbours[0];
    let balanced = [
        ("203.0.113.1:80", "10.1.1.2:8080"),
        ("[2001:db8::113]:80", "[fd00:1:1::2]:8080"),
    ];
    for (front, _) in balanced {
        assert!(tcp(client, at(front)).is_ok(), "{front}");
    }
    // Others, and what stands for nobody where nothing of a family could be read.
    for ranges in [["192.0.2.0/24", "fd00:9::/64"], ["0.0.0.0/32", "::/128"]] {
        assert!(proxy.change(&[guarded(&ranges)]));
        for (front, endpoint) in balanced {
            unanswered(client, at(front), at(endpoint));
        }
    }
    assert!(tcp(client, node_port(0)).is_ok(), "NodePorts are not guarded");
}

/// The kernel refuses ranges that overlap, with all that is written together with them.
#[test]
fn overlapping_source_ranges_of_two_services_harm_nobody() {
    let net = Net::new(2);
    let _servers = servers(&net);
    let balanced = |name: &str, cluster_ip: &str, range: &str| {
        let port = ServicePort {
            load_balancer_ips: ["203.0.113.1".parse().unwrap()].into(),
            source_ranges: Some([Cidr::parse(range).unwrap()].into()),
            ..port(name, Protocol::Tcp, &[cluster_ip])
        };
        served(port, &[endpoint(v4(1), true)])
    };
    let one = balanced("one", "10.96.0.21", "10.1.0.0/24");
    let two = balanced("two", "10.96.0.22", "10.1.0.0/16");
    let client = &net.neighbours[0];
    // Together, and one after the other in both orders.
    let both = [one.clone(), two.clone()];
    let _proxy = Proxy::start(&net.node, settings(), &both);
    assert!(tcp(client, at("203.0.113.1:80")).is_ok());
    for (first, second) in [(&one, &two), (&two, &one)] {
        let mut proxy = Proxy::start(&net.node, settings(), std::slice::from_ref(first));
        assert!(proxy.change(std::slice::from_ref(second)));
        assert!(tcp(client, at("203.0.113.1:80")).is_ok());
        assert!(tcp(client, at("10.96.0.21:80")).is_ok() && tcp(client, at("10.96.0.22:80")).is_ok());
    }
}

#[test]
fn an_endpoint_reaches_itself() {
    let net = Net::new(1);
    let _server = Server::start(&net.neighbours[1], "one", 8080);
    let endpoints = [endpoint(v4(1), true), endpoint(v6(1), true)];
    let _proxy = Proxy::start(&net.node, settings(), &[served(web(), &endpoints)]);
    let pod = &net.neighbours[1];
    assert_eq!(tcp(pod, at("10.96.0.1:80")).unwrap().client, node_v4(1));
    assert_eq!(
        tcp(pod, at("[fd00:96::1]:80")).unwrap().client,
        at("[fd00:1:1::1]:0").ip()
    );
    assert_eq!(udp_self(&net), node_v4(1));
}

fn udp_self(net: &Net) -> IpAddr {
    let dns = port("dns", Protocol::Udp, &["10.96.0.10"]);
    let _proxy = Proxy::start(&net.node, settings(), &[served(dns, &[endpoint(v4(1), true)])]);
    udp(&net.neighbours[1], at("10.96.0.10:80")).unwrap().client
}

#[test]
fn affinity_survives_rewrites_and_leaves_what_is_gone() {
    let net = Net::new(3);
    let _servers = servers(&net);
    let sticky = |ips: &[usize]| {
        let port = ServicePort {
            affinity_seconds: 600,
            ..web()
        };
        let v4s = ips.iter().map(|number| endpoint(v4(*number), true));
        let v6s = ips.iter().map(|number| endpoint(v6(*number), true));
        served(port, &v4s.chain(v6s).collect::<Vec<_>>())
    };
    let mut proxy = Proxy::start(&net.node, settings(), &[sticky(&[1, 2])]);
    assert_eq!(proxy.clients(), [0, 0]);
    let client = &net.neighbours[3];
    let mine = |to: &str| tcp(client, at(to)).unwrap().server;
    for (to, remembered) in [
        ("10.96.0.1:80", [1, 0]),
        ("[fd00:96::1]:80", [1, 1]),
        ("10.1.3.1:30080", [1, 1]),
    ] {
        let first = mine(to);
        assert_eq!(proxy.clients(), remembered);
        (0..24).for_each(|_| assert_eq!(mine(to), first));
        // Changed: an endpoint comes and the numbers move.
        assert!(proxy.change(&[sticky(&[1, 2, 3])]));
        (0..24).for_each(|_| assert_eq!(mine(to), first));
        assert!(proxy.change(&[sticky(&[1, 2])]));
        // Written anew, as after a restart.
        proxy = Proxy::start(&net.node, settings(), &[sticky(&[1, 2])]);
        (0..24).for_each(|_| assert_eq!(mine(to), first));
        // Gone: another, and that one for good.
        let (kept, other) = if first == "one" { (2, "two") } else { (1, "one") };
        assert!(proxy.change(&[sticky(&[kept])]));
        assert_eq!(mine(to), other);
        assert!(proxy.change(&[sticky(&[1, 2])]));
        (0..24).for_each(|_| assert_eq!(mine(to), other));
    }
}

/// As upstream: what is remembered of a client is of the Service's port, whichever way it comes.
#[test]
fn a_client_is_served_by_the_same_endpoint_by_every_front() {
    let net = Net::new(3);
    let _servers = servers(&net);
    let sticky = ServicePort {
        affinity_seconds: 600,
        external_ips: ["203.0.113.9".parse().unwrap()].into(),
        ..web()
    };
    let endpoints = [v4(1), v4(2), v6(1), v6(2)].map(|ip| endpoint(ip, true));
    for external_local in [false, true] {
        let port = ServicePort {
            external_local,
            ..sticky.clone()
        };
        net.node.nft(&["flush", "ruleset"]);
        let _proxy = Proxy::start(&net.node, settings(), &[served(port, &endpoints)]);
        for client in [&net.neighbours[0], &net.neighbours[3], &net.node] {
            let first = tcp(client, node_port(0)).unwrap().server;
            for _ in 0..8 {
                for to in [at("10.96.0.1:80"), at("203.0.113.9:80"), node_port(0)] {
                    // The node has another address of its own towards a ClusterIP than towards itself.
                    if client.name != net.node.name || to == node_port(0) {
                        assert_eq!(tcp(client, to).unwrap().server, first, "{to}");
                    }
                }
            }
        }
    }
}

/// An address of the range that no Service has leads nowhere; one beside the range is nobody's business.
#[test]
fn unused_addresses_of_services_are_dropped() {
    let net = Net::new(2);
    let _servers = servers(&net);
    let with = |ranges: &[&str]| Settings {
        service_cidrs: ranges.iter().map(|text| Cidr::parse(text).unwrap()).collect(),
        ..settings()
    };
    let web = || [served(web(), &[endpoint(v4(1), true)])];
    let (client, barrier) = (&net.neighbours[2], at("10.1.1.2:8080"));
    net.neighbours[0].ip(&["route", "add", "unreachable", "10.96.0.0/16"]);
    let _proxy = Proxy::start(&net.node, with(&["10.96.0.0/16"]), &web());
    unanswered(client, at("10.96.0.99:80"), barrier);
    unanswered(&net.node, at("10.96.0.99:80"), barrier);
    assert!(tcp(client, at("10.96.0.1:80")).is_ok());
    refused(tcp(client, at("10.96.0.1:81")));
    // Without the range it goes where routes say, whose end tells.
    let _proxy = Proxy::start(&net.node, with(&[]), &web());
    assert!(tcp(client, at("10.96.0.99:80")).is_err());
}

#[test]
fn an_open_connection_outlives_changes_and_a_restart() {
    let net = Net::new(3);
    let _servers = servers(&net);
    let both = || served(web(), &[v4(1), v4(2)].map(|ip| endpoint(ip, true)));
    let mut proxy = Proxy::start(&net.node, settings(), &[both()]);
    let mut open: Vec<Connection> = (0..4)
        .map(|_| Connection::open(&net.neighbours[3], at("10.96.0.1:80")).unwrap())
        .collect();
    let before: Vec<_> = open.iter_mut().map(|connection| connection.ask().unwrap()).collect();
    assert!(proxy.change(&[served(web(), &[endpoint(v4(3), true)])]));
    drop(proxy);
    let _proxy = Proxy::start(&net.node, settings(), &[both()]);
    let after: Vec<_> = open.iter_mut().map(|connection| connection.ask().unwrap()).collect();
    assert_eq!(before, after);
}

#[test]
fn a_removed_endpoint_gets_no_new_connection() {
    let net = Net::new(3);
    let _servers = servers(&net);
    let of = |ips: &[usize]| {
        let endpoints: Vec<_> = ips.iter().map(|number| endpoint(v4(*number), true)).collect();
        served(web(), &endpoints)
    };
    let mut proxy = Proxy::start(&net.node, settings(), &[of(&[1, 2])]);
    for kept in [2, 1, 2] {
        assert!(proxy.change(&[of(&[kept])]));
        let name = if kept == 1 { "one" } else { "two" };
        (0..16).for_each(|_| assert_eq!(tcp(&net.neighbours[3], at("10.96.0.1:80")).unwrap().server, name));
        assert!(proxy.change(&[of(&[1, 2])]));
    }
}

#[test]
fn changes_by_others_are_noticed() {
    let net = Net::new(1);
    let _server = Server::start(&net.neighbours[1], "one", 8080);
    let one = || served(web(), &[endpoint(v4(1), true)]);
    for foreign in [
        &["flush", "ruleset"][..],
        &["flush", "chain", "ip", "skiff-proxy", "services"],
        &["delete", "table", "ip6", "skiff-proxy"],
    ] {
        let mut proxy = Proxy::start(&net.node, settings(), &[one()]);
        assert!(proxy.is_intact());
        assert!(proxy.change(&[served(web(), &[])]) && proxy.is_intact());
        assert!(proxy.change(&[one()]) && proxy.is_intact());
        net.node.nft(&["add", "table", "ip", "other"]);
        assert!(proxy.is_intact(), "another's table");
        net.node.nft(foreign);
        assert!(!proxy.is_intact(), "{foreign:?}");
        assert!(!proxy.change(&[served(web(), &[])]), "{foreign:?}");
    }
}

#[test]
fn removal_leaves_nothing() {
    let net = Net::new(1);
    net.node.nft(&["add", "table", "ip", "other"]);
    let _proxy = Proxy::start(&net.node, settings(), &[served(web(), &[endpoint(v4(1), true)])]);
    net.node.inside(|| {
        proxy::apply::remove().unwrap();
        proxy::apply::remove().unwrap();
    });
    assert_eq!(net.node.nft(&["list", "tables"]).trim(), "table ip other");
}
