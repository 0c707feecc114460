//! A cluster's ordinary life.

use crate::lab::{Lab, Node, connect, echo, talk, until, until_they_meet};
use netlink::{Protocol, Socket};
use overlay::peer::annotation;
use overlay::{Backend, Notice};
use std::net::IpAddr;

const TUNNELS: [&str; 2] = ["flannel.1", "flannel-v6.1"];

fn is_routed(node: &Node, other: &Node) -> bool {
    let number = other.number;
    !node
        .namespace
        .ip(&format!("route show 10.244.{number}.0/24"))
        .is_empty()
        && !node
            .namespace
            .ip(&format!("-6 route show fd00:0:0:{number}::/64"))
            .is_empty()
}

/// What is set, without what the kernel adds and says in its own time.
fn settled(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.contains("fe80:") && !line.contains("proto kernel"));
    lines.map(|line| line.replace(" linkdown", "") + "\n").collect()
}

/// Everything a node's kernel holds that has to do with the network of several nodes.
fn held(node: &Node) -> String {
    let mut text = String::new();
    for device in TUNNELS {
        for words in [
            "neigh show dev",
            "route show dev",
            "-6 route show dev",
            "addr show scope global dev",
        ] {
            text += &node.namespace.try_ip(&format!("{words} {device}")).unwrap_or_default();
        }
    }
    for family in ["", "-6 "] {
        text += &node.namespace.ip(&format!("{family}route show proto 115"));
    }
    settled(&text) + &node.namespace.exec("nft list ruleset")
}

#[test]
fn pods_of_two_nodes_meet_through_a_tunnel() {
    let lab = Lab::new(Backend::Vxlan);
    let (a, b) = (lab.node(1), lab.node(2));
    until_they_meet(&a, &b);
    for (device, mtu) in TUNNELS.into_iter().zip([1450, 1430]) {
        let link = a.namespace.link(device).unwrap();
        assert_eq!(link["mtu"], mtu);
        assert_eq!(link["linkinfo"]["info_data"]["port"], 8472);
    }
    until("the pods' MTU is told", || *a.mtu.borrow() == Some(1430));
    let node = lab.server.node("node-1");
    let mac = a.namespace.link("flannel.1").unwrap()["address"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        annotation(&node, "backend-data"),
        Some(&*format!("{{\"VNI\":1,\"VtepMAC\":\"{mac}\"}}"))
    );
    assert_eq!(annotation(&node, "public-ip"), Some("192.0.2.1"));
    let condition = &node.status.unwrap().conditions.unwrap()[0];
    assert_eq!((&*condition.type_, &*condition.status), ("NetworkUnavailable", "False"));
    // The node itself reaches the other's pod, also from an address that is none of the cluster's.
    talk(&a.namespace, &b.pod, b.pod_address(true)).unwrap();
}

fn offloads(node: &Node, device: &str) -> bool {
    let ask = || Socket::open(Protocol::Route).unwrap().transmit_checksum_offload(device);
    node.namespace.inside(ask).unwrap()
}

#[test]
fn checksums_are_the_network_cards_once_another_node_has_answered() {
    let lab = Lab::new(Backend::Vxlan);
    let (mut a, b) = (lab.node(1), lab.idle_node(2));
    until("there are tunnels", || {
        TUNNELS
            .map(|device| a.namespace.link(device))
            .iter()
            .all(Option::is_some)
    });
    for device in TUNNELS {
        // There is nobody to ask.
        until("checksums are the processor's", || !offloads(&a, device));
    }
    let mut b = b;
    b.start(&lab.server, lab.backend);
    until_they_meet(&a, &b);
    for device in TUNNELS {
        until("it is found out", || offloads(&a, device));
    }
    for family in ["V4", "V6"] {
        until("it is told", || {
            let notices = a.notices.lock().unwrap();
            let mut tested = notices.iter().filter(|notice| notice.reason == "PodNetworkTested");
            tested.any(|notice| notice.message.starts_with(family) && !notice.is_warning)
        });
    }
    // Nothing that was lost on the way was taken for what a network does.
    let is_bad = |notice: &Notice| notice.reason == "PodNetworkTested" && notice.is_warning;
    assert!(!a.notices.lock().unwrap().iter().any(is_bad));
    until_they_meet(&a, &b);
    // What a run before this has found out, the next takes over.
    a.stop();
    a.start(&lab.server, lab.backend);
    until_they_meet(&a, &b);
    until("they are still the cards'", || {
        TUNNELS.iter().all(|device| offloads(&a, device))
    });
}

#[test]
fn what_leaves_the_cluster_gets_the_nodes_address() {
    for backend in [Backend::Vxlan, Backend::HostGw] {
        let lab = Lab::new(backend);
        let a = lab.node(1);
        for (outside, node) in [("192.0.2.254", "192.0.2.1"), ("2001:db8::fe", "2001:db8::1")] {
            let (outside, node): (IpAddr, IpAddr) = (outside.parse().unwrap(), node.parse().unwrap());
            // The wire has no way back to a pod: nothing comes of it without the node's address.
            until("a pod reaches what is outside", || {
                talk(&a.pod, &lab.wire, outside).is_ok()
            });
            assert_eq!(talk(&a.pod, &lab.wire, outside).unwrap(), node);
            // Nor does the pod's own port stand for it: two pods may use the same at the same moment. (That chance gives the very same
            // one three times happens once in 10^14.)
            let is_kept = |_| {
                let (client, server) = connect(&a.pod, &lab.wire, outside).unwrap();
                client.local_addr().unwrap().port() == server.peer_addr().unwrap().port()
            };
            assert!(!(0..3).all(is_kept), "{backend:?} {outside}");
        }
    }
}

#[test]
fn pods_of_two_nodes_meet_on_one_link() {
    let lab = Lab::new(Backend::HostGw);
    let (a, b) = (lab.node(1), lab.node(2));
    until_they_meet(&a, &b);
    assert_eq!(TUNNELS.map(|device| a.namespace.link(device)), [None, None]);
    until("the pods' MTU is told", || *a.mtu.borrow() == Some(1500));
    until("the other nodes are told", || {
        annotation(&lab.server.node("node-1"), "backend-data") == Some("null")
    });
}

#[test]
fn a_node_that_leaves_takes_its_entries_with_it() {
    let lab = Lab::new(Backend::Vxlan);
    let (a, b, c) = (lab.node(1), lab.node(2), lab.node(3));
    until_they_meet(&a, &b);
    until_they_meet(&a, &c);
    let (mut client, mut server) = connect(&a.pod, &b.pod, b.pod_address(true)).unwrap();
    let entries = || a.namespace.exec("bridge fdb show dev flannel.1").lines().count();
    assert_eq!(entries(), 2);
    lab.server.delete("node-3");
    until("its routes are gone", || !is_routed(&a, &c));
    until("its entries are gone", || entries() == 1);
    assert!(!a.namespace.ip("neigh show dev flannel.1").contains("10.244.3.0"));
    assert!(is_routed(&a, &b));
    echo(&mut client, &mut server).unwrap();
}

#[test]
fn what_a_stopped_overlay_made_goes_on_and_is_taken_over() {
    for backend in [Backend::Vxlan, Backend::HostGw] {
        let lab = Lab::new(backend);
        let (mut a, b) = (lab.node(1), lab.node(2));
        until_they_meet(&a, &b);
        let (mut client, mut server) = connect(&a.pod, &b.pod, b.pod_address(true)).unwrap();
        a.stop();
        echo(&mut client, &mut server).unwrap();
        let before = held(&a);
        let index = a.namespace.link("flannel.1").map(|link| link["ifindex"].clone());
        // A node that came meanwhile is how we see that the new one is at work.
        let c = lab.node(3);
        a.start(&lab.server, backend);
        until("the new one works", || is_routed(&a, &c));
        echo(&mut client, &mut server).unwrap();
        lab.server.delete("node-3");
        until("the third has gone", || held(&a) == before);
        assert_eq!(a.namespace.link("flannel.1").map(|link| link["ifindex"].clone()), index);
        echo(&mut client, &mut server).unwrap();
    }
}

#[test]
fn another_backend_takes_the_place_of_the_first() {
    let mut lab = Lab::new(Backend::Vxlan);
    let (mut a, mut b) = (lab.node(1), lab.node(2));
    until_they_meet(&a, &b);
    for backend in [Backend::HostGw, Backend::Vxlan] {
        lab.backend = backend;
        for node in [&mut a, &mut b] {
            node.stop();
            node.start(&lab.server, backend);
        }
        let is_tunnel = backend == Backend::Vxlan;
        until("the tunnels are as they should be", || {
            TUNNELS
                .iter()
                .all(|device| a.namespace.link(device).is_some() == is_tunnel)
        });
        until_they_meet(&a, &b);
    }
}

#[test]
fn what_is_removed_is_ours_and_all_of_it() {
    for backend in [Backend::Vxlan, Backend::HostGw] {
        let lab = Lab::new(backend);
        let (mut a, b) = (lab.idle_node(1), lab.node(2));
        a.namespace.ip("route add 10.244.77.0/24 via 192.0.2.254");
        let routes = |a: &Node| settled(&(a.namespace.ip("route show") + &a.namespace.ip("-6 route show")));
        let before = routes(&a);
        a.start(&lab.server, backend);
        until_they_meet(&a, &b);
        assert!(a.namespace.exec("nft list tables").contains("skiff_overlay"));
        a.stop();
        a.namespace.inside(|| overlay::remove(1)).unwrap();
        assert_eq!(routes(&a), before);
        assert!(before.contains("10.244.77.0/24"));
        assert_eq!(TUNNELS.map(|device| a.namespace.link(device)), [None, None]);
        assert_eq!(a.namespace.exec("nft list tables"), "");
        a.namespace.inside(|| overlay::remove(1)).unwrap();
    }
}
