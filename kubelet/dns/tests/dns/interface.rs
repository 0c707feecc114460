//! The link and the rules.

use crate::node::{Client, Namespace, Node, PATIENCE, Stream, V4, V6, data, question, run};
use dns::interface::{Keeper, LINK, TABLE};
use hickory_proto::rr::RecordType::A;
use std::collections::BTreeSet;
use std::net::IpAddr;

fn addresses() -> Vec<IpAddr> {
    [V4, V6].map(|text| text.parse().unwrap()).to_vec()
}

fn rules(namespace: &Namespace) -> String {
    run("ip", &["netns", "exec", &namespace.name, "nft", "list", "ruleset"])
}

fn link(namespace: &Namespace) -> String {
    namespace.ip(&["addr", "show", "dev", LINK])
}

#[test]
fn made_adopted_repaired_and_removed() {
    let namespace = Namespace::new();
    let mut keeper = Keeper::new(addresses());
    let mut ensured = || namespace.inside(|| keeper.ensure()).unwrap();
    assert!(ensured(), "made");
    let made = rules(&namespace);
    for family in ["ip", "ip6"] {
        for rule in ["udp dport 53", "udp sport 53", "tcp dport 53", "tcp sport 53"] {
            let count = made
                .lines()
                .filter(|line| line.contains(&format!("{family} ")) && line.contains(rule) && line.contains("notrack"));
            assert_eq!(count.count(), 2, "{family} {rule}: {made}");
        }
    }
    assert!(!ensured(), "adopted: nothing is touched that is as it should be");
    assert_eq!(rules(&namespace), made);
    run("ip", &["netns", "exec", &namespace.name, "nft", "flush", "ruleset"]);
    assert!(ensured(), "others flushed the rules");
    namespace.ip(&["addr", "del", &format!("{V4}/32"), "dev", LINK]);
    namespace.ip(&["addr", "add", "10.96.0.11/32", "dev", LINK]);
    assert!(ensured(), "others changed the addresses");
    let there = link(&namespace);
    assert!(
        there.contains(V4) && there.contains(V6) && !there.contains("10.96.0.11"),
        "{there}"
    );
    // What is not ours stays.
    run(
        "ip",
        &[
            "netns",
            "exec",
            &namespace.name,
            "nft",
            "add",
            "table",
            "inet",
            "others",
        ],
    );
    namespace.inside(dns::remove).unwrap();
    namespace.inside(dns::remove).unwrap();
    assert!(!namespace.ip(&["link"]).contains(LINK));
    assert!(rules(&namespace).contains("others") && !rules(&namespace).contains(TABLE));
}

#[test]
fn a_link_of_our_name_that_is_something_else_is_left_alone() {
    let namespace = Namespace::new();
    namespace.ip(&["link", "add", LINK, "type", "veth", "peer", "name", "other"]);
    for outcome in [
        namespace.inside(|| Keeper::new(addresses()).ensure().map(drop)),
        namespace.inside(dns::remove),
    ] {
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("is of kind \"veth\", not ours"), "{text}");
    }
    assert!(namespace.ip(&["link"]).contains(LINK));
}

#[test]
fn an_address_the_node_has_is_left_to_the_node() {
    let namespace = Namespace::new();
    namespace.ip(&["link", "add", "eth9", "type", "bridge"]);
    namespace.ip(&["link", "set", "eth9", "up"]);
    let mut keeper = Keeper::new(addresses());
    for (address, prefix) in [(V4, 24), (V6, 64)] {
        let own = format!("{address}/{prefix}");
        let mut ensured = || namespace.inside(|| keeper.ensure());
        // Also where it comes when ours stands already.
        assert!(ensured().unwrap());
        namespace.ip(&["addr", "add", &own, "dev", "eth9"]);
        for _ in 0..2 {
            let text = ensured().unwrap_err().to_string();
            let part = format!("clusterDNS {address} is an address this node has already, on link eth9");
            assert!(text.contains(&part), "{text}");
            assert!(!rules(&namespace).contains(TABLE), "no rule is around it");
            assert!(!namespace.ip(&["link"]).contains(LINK));
        }
        namespace.ip(&["addr", "del", &own, "dev", "eth9"]);
        assert!(ensured().unwrap() && !ensured().unwrap(), "made again");
        namespace.inside(dns::remove).unwrap();
    }
}

/// A pod's namespace, joined to the node's by a pair of links.
pub(crate) fn pod(node: &Namespace) -> Namespace {
    let pod = Namespace::new();
    node.ip(&[
        "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", &pod.name,
    ]);
    for (namespace, link, last) in [(node, "pod0", 1), (&pod, "eth0", 2)] {
        namespace.ip(&["addr", "add", &format!("10.244.0.{last}/24"), "dev", link]);
        namespace.ip(&["addr", "add", &format!("fd00:244::{last}/64"), "dev", link, "nodad"]);
        namespace.ip(&["link", "set", link, "up"]);
    }
    pod.ip(&["route", "add", "default", "via", "10.244.0.1"]);
    pod.ip(&["-6", "route", "add", "default", "via", "fd00:244::1"]);
    pod
}

#[test]
fn pods_reach_it_untracked_whatever_a_service_proxy_says() {
    let node = Node::start(&[], |_| {});
    // Another program translates the address to nowhere, and counts what it sees.
    let nft = |rule: &str| drop(run("ip", &["netns", "exec", &node.namespace.name, "nft", rule]));
    nft("add table ip proxy");
    nft("add chain ip proxy pre { type nat hook prerouting priority -100 ; }");
    nft("add rule ip proxy pre ip daddr 10.96.0.10 udp dport 53 counter dnat to 10.9.9.9");
    nft("add chain ip proxy tracked { type filter hook prerouting priority 0 ; }");
    nft("add rule ip proxy tracked udp dport 53 ct state untracked counter");
    let pod = pod(&node.namespace);
    for server in [V4, V6] {
        let answer = Client::new(&pod, server).ask(&question("web.default.svc.cluster.local", A));
        assert_eq!(data(&answer), ["10.96.0.20"], "{server}");
    }
    let rules = rules(&node.namespace);
    let counted = |part: &str| {
        let line = rules.lines().find(|line| line.contains(part)).unwrap();
        !line.contains("counter packets 0 ")
    };
    assert!(!counted("dnat to"), "{rules}");
    assert!(counted("ct state untracked"), "{rules}");
}

/// A connection to where nobody is to answer.
fn refused(namespace: &Namespace, server: &str, port: u16) -> bool {
    let address = std::net::SocketAddr::new(server.parse().unwrap(), port);
    let outcome = namespace.inside(|| std::net::TcpStream::connect_timeout(&address, PATIENCE));
    outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[test]
fn a_service_whose_endpoint_is_the_address_answers() {
    let node = Node::start(&[], |_| {});
    let pod = pod(&node.namespace);
    // The node has a way there, too.
    node.namespace.ip(&["route", "add", "default", "dev", "pod0"]);
    node.namespace.ip(&["-6", "route", "add", "default", "dev", "pod0"]);
    // As a proxy does for pods and for the node itself.
    for (family, service, endpoint) in [("ip", "10.96.5.5", V4), ("ip6", "fd00:96::5:5", V6)] {
        let nft = |rule: &str| drop(run("ip", &["netns", "exec", &node.namespace.name, "nft", rule]));
        nft(&format!("add table {family} proxy"));
        for (chain, priority) in [("prerouting", "-100"), ("output", "-100")] {
            nft(&format!(
                "add chain {family} proxy {chain} {{ type nat hook {chain} priority {priority} ; }}"
            ));
            for protocol in ["udp", "tcp"] {
                nft(&format!(
                    "add rule {family} proxy {chain} {family} daddr {service} {protocol} dport 53 dnat to {endpoint}"
                ));
            }
        }
        let question = question("web.default.svc.cluster.local", A);
        let ask = |from: &Namespace, server: &str| {
            let answer = Client::new(from, server).ask(&question);
            assert_eq!(data(&answer), ["10.96.0.20"], "{server}");
        };
        // What came by no Service is not remembered.
        let (map, clients) = match family {
            "ip" => ("led4", ["10.244.0.2", "10.244.0.1"]),
            _ => ("led6", ["fd00:244::2", "fd00:244::1"]),
        };
        ask(&pod, endpoint);
        ask(&node.namespace, endpoint);
        assert_eq!(led(&node.namespace, map), BTreeSet::new());
        for (from, client) in [(&pod, clients[0]), (&*node.namespace, clients[1])] {
            // From several ports, and beside it as ever.
            for server in [service, service, endpoint] {
                ask(from, server);
            }
            let stream = from.inside(|| std::net::TcpStream::connect((service, 53)).unwrap());
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut stream = Stream(stream);
            stream.send(std::slice::from_ref(&question));
            assert_eq!(data(&stream.receive().unwrap()), ["10.96.0.20"], "{service}");
            // (Those before may have been forgotten on a slow machine.)
            let mut there = led(&node.namespace, map);
            there.retain(|entry| entry.ends_with(&format!(" {client}")));
            let wanted = ["tcp", "udp"].map(|protocol| format!("{protocol} {client}"));
            assert_eq!(there, BTreeSet::from(wanted));
        }
    }
}

/// Who is remembered of a family: protocol and address.
fn led(namespace: &Namespace, map: &str) -> BTreeSet<String> {
    let list = [
        "netns",
        "exec",
        &namespace.name,
        "nft",
        "list",
        "map",
        "inet",
        TABLE,
        map,
    ];
    let text = run("ip", &list);
    let elements = text.split_once("elements").map_or("", |(_, elements)| elements);
    let words: Vec<&str> = elements.split_whitespace().collect();
    let entries = words.windows(3).filter(|words| words[1] == ".");
    entries.map(|words| format!("{} {}", words[0], words[2])).collect()
}

#[test]
fn nothing_else_of_the_node_is_reached_at_the_addresses() {
    let node = Node::start(&[], |_| {});
    let pod = pod(&node.namespace);
    let any = ("::", 2222);
    let (_listener, datagrams) = node.namespace.inside(|| {
        (
            std::net::TcpListener::bind(any).unwrap(),
            std::net::UdpSocket::bind(any).unwrap(),
        )
    });
    for from in [&pod, &node.namespace] {
        for server in [V4, V6] {
            assert!(refused(from, server, 2222), "{server}");
            // Nor does anybody hear a datagram: who sent it is told.
            let any = if server.contains(':') { "::" } else { "0.0.0.0" };
            let sender = from.inside(|| std::net::UdpSocket::bind((any, 0)).unwrap());
            sender.set_read_timeout(Some(PATIENCE)).unwrap();
            from.inside(|| sender.connect((server, 2222)).unwrap());
            sender.send(b"x").unwrap();
            let error = sender.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{server}");
        }
    }
    datagrams.set_nonblocking(true).unwrap();
    assert!(datagrams.recv(&mut [0; 8]).is_err(), "no datagram came");
    // At the node's other addresses it is.
    let reached = pod.inside(|| std::net::TcpStream::connect_timeout(&"10.244.0.1:2222".parse().unwrap(), PATIENCE));
    reached.unwrap();
}

#[test]
fn it_ends_when_told_and_the_next_one_finds_the_link() {
    let mut node = Node::start(&[], |_| {});
    node.stop().unwrap();
    assert!(link(&node.namespace).contains(V4), "the link stays");
    assert!(
        !node.namespace.inside(|| Keeper::new(addresses()).ensure()).unwrap(),
        "and the rules"
    );
}

#[test]
fn a_start_that_cannot_work_says_why() {
    let cluster = crate::cluster::Cluster::default();
    let namespace = Namespace::new();
    let start = |change: &dyn Fn(&mut dns::Settings)| {
        let mut settings = dns::Settings {
            addresses: addresses(),
            ..dns::Settings::default()
        };
        change(&mut settings);
        namespace.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut sources = cluster.sources();
                sources.pods = None;
                let error = dns::run(sources, settings, Default::default(), Default::default())
                    .await
                    .unwrap_err();
                let source = std::error::Error::source(&error).map(ToString::to_string);
                format!("{error}: {}", source.unwrap_or_default())
            })
        })
    };
    for (change, part) in [
        (
            &(|s: &mut dns::Settings| s.addresses.clear()) as &dyn Fn(&mut dns::Settings),
            "clusterDNS names no address",
        ),
        (
            &|s| s.addresses[0] = "0.0.0.0".parse().unwrap(),
            "clusterDNS 0.0.0.0 is no address of one host",
        ),
        (&|s| s.zone = "a..b".into(), "clusterDomain \"a..b\""),
        (&|s| s.zone = ".".into(), "clusterDomain \".\""),
        (&|s| s.ttl = 0, "ttl 0"),
        (&|s| s.datagram_bytes = 100, "largest datagram 100"),
        (&|s| s.pods = dns::PodNames::Verified, "pods \"verified\""),
        (&|s| s.port = 5353, "port 53"),
        (
            &|s| {
                s.stub_domains = vec![dns::StubDomain {
                    domain: "x".into(),
                    resolvers: Vec::new(),
                }]
            },
            "\"x\" has no resolvers",
        ),
        (
            &|s| (s.interface, s.port) = (false, 5353),
            "listening on 10.96.0.10:5353 (UDP): Cannot assign",
        ),
    ] {
        let text = start(change);
        assert!(text.contains(part), "{text}");
    }
    let taken = namespace.inside(|| std::net::UdpSocket::bind("0.0.0.0:53").unwrap());
    let text = start(&|_| {});
    assert!(
        text.contains("listening on 10.96.0.10:53 (UDP): Address already in use"),
        "{text}"
    );
    drop(taken);
}
