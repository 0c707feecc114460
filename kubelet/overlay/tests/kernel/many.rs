//! More than two nodes: they come, go, move and are cut off, and what is between the others goes on. One of them may be flannel's.

use crate::lab::{Lab, Node, connect, echo, talk, until, until_they_meet};
use overlay::Backend;
use overlay::peer::annotation;
use serde_json::json;

/// Every two of them.
fn pairs<'n>(nodes: &[&'n Node]) -> Vec<(&'n Node, &'n Node)> {
    let of = |(at, a): (usize, &&'n Node)| nodes[at + 1..].iter().map(|b| (*a, *b)).collect::<Vec<_>>();
    nodes.iter().enumerate().flat_map(of).collect()
}

fn until_all_meet(nodes: &[&Node]) {
    pairs(nodes).into_iter().for_each(|(a, b)| until_they_meet(a, b));
}

/// Hosts behind which a node finds tunnels of IPv4, in order.
fn hosts(node: &Node) -> Vec<String> {
    let text = node.namespace.exec("bridge fdb show dev flannel.1");
    let host = |line: &str| line.split_once("dst ")?.1.split(' ').next().map(str::to_owned);
    let mut hosts: Vec<String> = text.lines().filter_map(host).collect();
    hosts.sort();
    hosts
}

#[test]
fn four_nodes_come_go_and_move_and_nobody_else_notices() {
    for backend in [Backend::Vxlan, Backend::HostGw] {
        let lab = Lab::new(backend);
        let (a, b, c) = (lab.node(1), lab.node(2), lab.node(3));
        until_all_meet(&[&a, &b, &c]);
        let (mut client, mut server) = connect(&a.pod, &b.pod, b.pod_address(true)).unwrap();
        let d = lab.node(4);
        until_all_meet(&[&a, &b, &c, &d]);
        echo(&mut client, &mut server).unwrap();

        c.namespace.ip("addr delete 192.0.2.3/24 dev eth0");
        c.namespace.ip("addr add 192.0.2.33/24 dev eth0");
        lab.server.change("node-3", |node| {
            node["status"]["addresses"][0]["address"] = json!("192.0.2.33");
        });
        until_all_meet(&[&a, &b, &c, &d]);
        echo(&mut client, &mut server).unwrap();

        lab.server.delete("node-4");
        for node in [&a, &b, &c] {
            until("its routes are gone", || {
                node.namespace.ip("route show 10.244.4.0/24").is_empty()
                    && node.namespace.ip("-6 route show fd00:0:0:4::/64").is_empty()
            });
        }
        until_all_meet(&[&a, &b, &c]);
        echo(&mut client, &mut server).unwrap();
        if backend == Backend::Vxlan {
            until("nobody else is left", || hosts(&a) == ["192.0.2.2", "192.0.2.33"]);
        }
    }
}

#[test]
fn a_node_that_was_cut_off_finds_what_changed_meanwhile() {
    let lab = Lab::new(Backend::Vxlan);
    let (a, mut b, c) = (lab.node(1), lab.node(2), lab.node(3));
    until_all_meet(&[&a, &b, &c]);
    let (mut client, mut server) = connect(&a.pod, &b.pod, b.pod_address(true)).unwrap();
    let (mut near, mut far) = connect(&a.pod, &c.pod, c.pod_address(true)).unwrap();
    // The wire and, as an API server it does not reach tells it nothing, its overlay.
    lab.wire.ip("link set port2 down");
    b.stop();
    assert!(talk(&a.pod, &b.pod, b.pod_address(true)).is_err());
    let d = lab.node(4);
    c.namespace.ip("addr delete 192.0.2.3/24 dev eth0");
    c.namespace.ip("addr add 192.0.2.33/24 dev eth0");
    lab.server.change("node-3", |node| {
        node["status"]["addresses"][0]["address"] = json!("192.0.2.33");
    });
    until_all_meet(&[&a, &c, &d]);
    echo(&mut near, &mut far).unwrap();
    // Its Node is there, so its place is kept.
    assert!(a.namespace.ip("route show 10.244.2.0/24").contains("flannel.1"));
    lab.wire.ip("link set port2 up");
    // What it knew before serves until it knows more.
    echo(&mut client, &mut server).unwrap();
    b.start(&lab.server, lab.backend);
    until_all_meet(&[&a, &b, &c, &d]);
    echo(&mut client, &mut server).unwrap();
}

/// A node with flannel, as that sets it up: everything here is by hand and in flannel's words. No overlay of ours runs there.
struct Flannel(Node);

impl Flannel {
    /// Node 9, which has made its device and written what flannel writes.
    fn new(lab: &Lab) -> Self {
        let node = lab.idle_node(9);
        let ip = |words: &str| node.namespace.ip(words);
        ip(
            "link add flannel.1 address 0a:58:00:00:00:09 mtu 1450 type vxlan id 1 local 192.0.2.9 dev eth0 dstport 8472 nolearning",
        );
        ip("addr add 10.244.9.0/32 dev flannel.1");
        ip("link set flannel.1 up");
        node.namespace.exec("sysctl -qw net.ipv4.ip_forward=1");
        lab.server.change("node-9", |node| {
            node["spec"] = json!({"podCIDR": "10.244.9.0/24", "podCIDRs": ["10.244.9.0/24"]});
            node["metadata"]["annotations"] = json!({
                "flannel.alpha.coreos.com/backend-data": "{\"VNI\":1,\"VtepMAC\":\"0a:58:00:00:00:09\"}",
                "flannel.alpha.coreos.com/backend-type": "vxlan",
                "flannel.alpha.coreos.com/kube-subnet-manager": "true",
                "flannel.alpha.coreos.com/public-ip": "192.0.2.9",
            });
        });
        Self(node)
    }

    /// Takes up another node by its annotations alone.
    fn take(&self, lab: &Lab, other: &Node) {
        let said = |name: &str| annotation(&lab.server.node(&other.name), name).map(str::to_owned);
        until("it says what flannel reads", || {
            said("backend-type").as_deref() == Some("vxlan")
                && said("kube-subnet-manager").as_deref() == Some("true")
                && said("backend-data").is_some()
                && said("public-ip").is_some()
        });
        let data: serde_json::Value = serde_json::from_str(&said("backend-data").unwrap()).unwrap();
        assert_eq!(data["VNI"], 1);
        let (mac, host, range) = (
            data["VtepMAC"].as_str().unwrap(),
            said("public-ip").unwrap(),
            other.number,
        );
        let ip = |words: &str| self.0.namespace.ip(words);
        ip(&format!(
            "neigh replace 10.244.{range}.0 lladdr {mac} dev flannel.1 nud permanent"
        ));
        let entry = format!("bridge fdb replace {mac} dev flannel.1 dst {host} self permanent");
        self.0.namespace.exec(&entry);
        ip(&format!(
            "route replace 10.244.{range}.0/24 via 10.244.{range}.0 dev flannel.1 onlink"
        ));
    }

    /// Waits until its pod and a node's reach each other, with their own addresses.
    fn until_it_meets(&self, other: &Node) {
        let (own, theirs) = ("10.244.9.5".parse().unwrap(), other.pod_address(true));
        until("flannel's pod reaches ours", || {
            talk(&self.0.pod, &other.pod, theirs).is_ok_and(|seen| seen == own)
        });
        until("our pod reaches flannel's", || {
            talk(&other.pod, &self.0.pod, own).is_ok_and(|seen| seen == theirs)
        });
    }
}

#[test]
fn nodes_with_flannel_and_nodes_with_this_are_one_network() {
    let lab = Lab::new(Backend::Vxlan);
    let flannel = Flannel::new(&lab);
    let (a, b, c) = (lab.node(1), lab.node(2), lab.node(3));
    for node in [&a, &b, &c] {
        flannel.take(&lab, node);
        flannel.until_it_meets(node);
    }
    until_all_meet(&[&a, &b, &c]);
    // One that moves is followed by what it says: flannel reads that, too.
    c.namespace.ip("addr delete 192.0.2.3/24 dev eth0");
    c.namespace.ip("addr add 192.0.2.33/24 dev eth0");
    lab.server.change("node-3", |node| {
        node["status"]["addresses"][0]["address"] = json!("192.0.2.33");
    });
    until("it says where it is", || {
        annotation(&lab.server.node("node-3"), "public-ip") == Some("192.0.2.33")
    });
    flannel.take(&lab, &c);
    flannel.until_it_meets(&c);
    // And the flannel node's new tunnel (its machine was set up anew) is found by its annotation.
    flannel.0.namespace.ip("link set flannel.1 address 0a:58:00:00:00:19");
    lab.server.change("node-9", |node| {
        node["metadata"]["annotations"]["flannel.alpha.coreos.com/backend-data"] =
            json!("{\"VNI\":1,\"VtepMAC\":\"0a:58:00:00:00:19\"}");
    });
    for node in [&a, &b, &c] {
        // Its own kernel forgot all neighbours with the address.
        flannel.take(&lab, node);
        flannel.until_it_meets(node);
    }
    lab.server.delete("node-9");
    until("nothing leads there", || hosts(&a) == ["192.0.2.2", "192.0.2.33"]);
}

/// How many questions of tunnels' tests a node has sent.
fn asked(node: &Node) -> u64 {
    let text = node.namespace.exec("nft list counter ip count asked");
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "packets").unwrap();
    words[at + 1].parse().unwrap()
}

#[test]
fn a_test_nobody_answers_holds_up_no_change_of_nodes() {
    // Three who never answer, each asked twice.
    const QUESTIONS: u64 = 6;
    let lab = Lab::new(Backend::Vxlan);
    let mut a = lab.idle_node(1);
    let silent = |number: u8| {
        lab.server.change(&format!("node-{number}"), |node| {
            node["metadata"]["creationTimestamp"] = json!(format!("2026-02-01T00:00:{number}Z"));
            node["metadata"]["annotations"] = json!({
                "flannel.alpha.coreos.com/backend-data": format!("{{\"VNI\":1,\"VtepMAC\":\"02:00:00:00:00:{number}\"}}"),
            });
            node["spec"] = json!({"podCIDRs": [format!("10.244.{number}.0/24")]});
            node["status"]["addresses"] = json!([{"type": "InternalIP", "address": format!("192.0.2.{number}")}]);
        });
    };
    (20..23).for_each(silent);
    a.namespace.exec("nft add table ip count");
    a.namespace.exec("nft add counter ip count asked");
    a.namespace
        .exec("nft add chain ip count out { type filter hook output priority 0 ; }");
    a.namespace
        .exec("nft add rule ip count out udp dport 33434 counter name asked");
    a.start(&lab.server, lab.backend);
    // A test lasts some seconds, so it is seen at work if the machine is not held up each time; if changes wait for it, never.
    let is_seen = (23..27u8).zip(0..).any(|(number, before)| {
        until("a test has begun", || asked(&a) > before * QUESTIONS);
        silent(number);
        until("the change is made", || {
            let route = a.namespace.ip(&format!("route show 10.244.{number}.0/24"));
            route.contains("flannel.1")
        });
        asked(&a) < (before + 1) * QUESTIONS
    });
    assert!(is_seen, "each change waited until the test had ended");
}
