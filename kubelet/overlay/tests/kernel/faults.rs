//! What others do to a node's network, and nodes that are wrong.

use crate::lab::{Lab, Node, connect, echo, until, until_they_meet};
use overlay::Backend;
use overlay::peer::annotation;
use serde_json::json;

fn is_noticed(node: &Node, words: &str) -> bool {
    node.notices
        .lock()
        .unwrap()
        .iter()
        .any(|notice| notice.message.contains(words))
}

#[test]
fn a_deleted_device_is_made_again_with_its_hardware_address() {
    let lab = Lab::new(Backend::Vxlan);
    let (a, b) = (lab.node(1), lab.node(2));
    until_they_meet(&a, &b);
    let of = |key: &str| a.namespace.link("flannel.1").map(|link| link[key].clone());
    let (mac, index) = (of("address"), of("ifindex"));
    let (mut client, mut server) = connect(&b.pod, &a.pod, a.pod_address(true)).unwrap();
    a.namespace.ip("link delete flannel.1");
    until("there is a new one", || {
        of("ifindex").is_some_and(|new| Some(new) != index)
    });
    echo(&mut client, &mut server).unwrap();
    assert_eq!(of("address"), mac);
    until_they_meet(&a, &b);
}

#[test]
fn what_somebody_changes_is_set_right() {
    let lab = Lab::new(Backend::Vxlan);
    let (a, b) = (lab.node(1), lab.node(2));
    until_they_meet(&a, &b);
    let mac = a.namespace.link("flannel.1").unwrap()["address"].clone();
    for harm in [
        "link set flannel.1 down",
        "link set flannel.1 address 02:11:22:33:44:55",
        "link set flannel.1 mtu 1300",
        "addr flush dev flannel.1",
        "route delete 10.244.2.0/24",
    ] {
        a.namespace.ip(harm);
        until(harm, || {
            let link = a.namespace.link("flannel.1").unwrap();
            let is_up = link["flags"].as_array().unwrap().iter().any(|flag| flag == "UP");
            let route = a.namespace.ip("route show 10.244.2.0/24");
            let has_address = a.namespace.ip("addr show dev flannel.1").contains("10.244.1.0/32");
            is_up && link["address"] == mac && link["mtu"] == 1450 && has_address && route.contains("dev flannel.1")
        });
        until_they_meet(&a, &b);
    }
}

#[test]
fn a_node_changes_its_address() {
    for backend in [Backend::Vxlan, Backend::HostGw] {
        let lab = Lab::new(backend);
        let (a, b) = (lab.node(1), lab.node(2));
        until_they_meet(&a, &b);
        let (mut client, mut server) = connect(&a.pod, &b.pod, b.pod_address(true)).unwrap();
        b.namespace.ip("addr delete 192.0.2.2/24 dev eth0");
        b.namespace.ip("addr add 192.0.2.22/24 dev eth0");
        lab.server.change("node-2", |node| {
            node["status"]["addresses"][0]["address"] = json!("192.0.2.22");
        });
        echo(&mut client, &mut server).unwrap();
        until_they_meet(&a, &b);
        let text = a.namespace.exec("bridge fdb show") + &a.namespace.ip("route show");
        assert!(!text.contains("192.0.2.2 "), "{text}");
    }
}

#[test]
fn an_address_that_goes_away_takes_nothing_with_it() {
    let lab = Lab::new(Backend::Vxlan);
    let (a, b) = (lab.node(1), lab.node(2));
    until_they_meet(&a, &b);
    let index = a.namespace.link("flannel.1").unwrap()["ifindex"].clone();
    lab.server.change("node-1", |node| {
        node["status"]["addresses"][0]["address"] = json!("192.0.2.99")
    });
    until("it is told", || {
        is_noticed(&a, "no interface of this node has its address")
    });
    assert_eq!(a.namespace.link("flannel.1").unwrap()["ifindex"], index);
    until_they_meet(&a, &b);
}

#[test]
fn a_wrong_node_is_named_and_harms_nobody() {
    let lab = Lab::new(Backend::Vxlan);
    let (a, b) = (lab.node(1), lab.node(2));
    for (name, range) in [("node-80", "10.244.2.128/25"), ("node-81", "172.16.0.0/24")] {
        lab.server.change(name, |node| {
            node["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
            node["spec"]["podCIDRs"] = json!([range]);
            node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "192.0.2.80"}]);
        });
    }
    until_they_meet(&a, &b);
    until("the overlap is told", || {
        is_noticed(&a, "overlaps 10.244.2.0/24 of node \"node-2\"")
    });
    until("the stranger is told", || {
        is_noticed(&a, "\"node-81\" is not in the pod network")
    });
    assert_eq!(a.namespace.ip("route show 172.16.0.0/24"), "");
    assert_eq!(a.namespace.ip("route show 10.244.2.128/25"), "");
}

#[test]
fn somebody_elses_route_stays_and_is_told() {
    let lab = Lab::new(Backend::HostGw);
    let (mut a, b, c) = (lab.idle_node(1), lab.node(2), lab.node(3));
    a.namespace.ip("route add 10.244.3.0/24 via 192.0.2.254");
    a.start(&lab.server, lab.backend);
    until_they_meet(&a, &b);
    until("it is told", || is_noticed(&a, "a route to 10.244.3.0/24 exists"));
    assert!(a.namespace.ip("route show 10.244.3.0/24").contains("192.0.2.254"));
    // Once it is gone, ours takes its place.
    a.namespace.ip("route delete 10.244.3.0/24");
    until_they_meet(&a, &c);
}

#[test]
fn rules_that_were_flushed_are_written_again() {
    let lab = Lab::new(Backend::HostGw);
    let (a, b) = (lab.node(1), lab.node(2));
    until_they_meet(&a, &b);
    a.namespace.exec("nft flush ruleset");
    // Whatever makes it look: here its own link.
    a.namespace.ip("link set eth0 mtu 1400");
    until("they are", || {
        a.namespace.exec("nft list ruleset").contains("masquerade")
    });
    until("the pods' MTU follows", || *a.mtu.borrow() == Some(1400));
}

#[test]
fn of_two_nodes_with_one_hardware_address_the_younger_takes_another() {
    let lab = Lab::new(Backend::Vxlan);
    let (a, c) = (lab.node(1), lab.node(3));
    until_they_meet(&a, &c);
    let data = annotation(&lab.server.node("node-1"), "backend-data")
        .unwrap()
        .to_owned();
    // A machine that was copied: what its Node says is what the first one said.
    let mut b = lab.idle_node(2);
    lab.server.change("node-2", |node| {
        node["metadata"]["annotations"] = json!({"flannel.alpha.coreos.com/backend-data": data.as_str()});
    });
    b.start(&lab.server, lab.backend);
    until_they_meet(&a, &b);
    until_they_meet(&b, &c);
    assert_eq!(annotation(&lab.server.node("node-1"), "backend-data"), Some(&*data));
    assert_ne!(annotation(&lab.server.node("node-2"), "backend-data"), Some(&*data));
    until("it is told", || is_noticed(&b, "Another node has the hardware address"));
}

#[test]
fn a_network_that_takes_smaller_packets_is_told() {
    let lab = Lab::new(Backend::Vxlan);
    let (mut a, b) = (lab.idle_node(1), lab.node(2));
    lab.wire.ip("link set port1 mtu 1400");
    a.start(&lab.server, lab.backend);
    until("it is told", || is_noticed(&a, "packets of 1450 bytes do not arrive"));
    drop(b);
}

#[test]
fn a_chain_of_others_that_drops_is_told() {
    let lab = Lab::new(Backend::HostGw);
    let mut a = lab.idle_node(1);
    a.namespace.exec("nft add table ip filter");
    a.namespace
        .exec("nft add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }");
    a.namespace
        .exec("nft add chain ip filter INPUT { type filter hook input priority 0 ; policy accept ; }");
    a.start(&lab.server, lab.backend);
    until("it is told", || {
        is_noticed(&a, "chain FORWARD of table ip filter drops")
    });
    assert!(!is_noticed(&a, "INPUT"));
}

#[test]
fn a_range_with_a_nodes_address_leads_nowhere() {
    let lab = Lab::new(Backend::HostGw);
    let (a, b) = (lab.node(1), lab.node(2));
    // On no interface the overlay uses, but this node's own.
    a.namespace.ip("addr add 10.244.90.7/32 dev lo");
    lab.server.change("node-90", |node| {
        node["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
        node["spec"]["podCIDRs"] = json!(["10.244.90.0/24"]);
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "192.0.2.90"}]);
    });
    until_they_meet(&a, &b);
    until("it is told", || {
        is_noticed(&a, "its pod range 10.244.90.0/24 contains the node address 10.244.90.7")
    });
    until("there is no route", || {
        a.namespace.ip("route show 10.244.90.0/24").is_empty()
    });
}
