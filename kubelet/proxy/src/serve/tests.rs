mod whole;

use super::node::settings;
use super::*;
use crate::config::{LocalTraffic, NodePorts, resolve};
use crate::flags::Flags;
use crate::settings::DetectLocal;
use netlink::cidr::Cidr;
use serde_json::{Value, json};

fn config() -> Config {
    resolve(None, &Flags::default()).expect("defaults are sound")
}

fn node(addresses: &[(&str, &str)], ranges: &[&str]) -> Node {
    let addresses: Vec<Value> = addresses
        .iter()
        .map(|(kind, address)| json!({"type": kind, "address": address}))
        .collect();
    let object = json!({
        "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z"}},
        "spec": {"podCIDRs": ranges},
        "status": {"addresses": addresses},
    });
    serde_json::from_value(object).unwrap()
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn nodes_are_known_by_their_first_address_of_each_family() {
    for (addresses, expected) in [
        (&[("Hostname", "n1"), ("InternalIP", "10.0.0.1")][..], &["10.0.0.1"][..]),
        (
            &[
                ("ExternalIP", "1.2.3.4"),
                ("InternalIP", "fd00::1"),
                ("InternalIP", "10.0.0.1"),
                ("InternalIP", "10.0.0.2"),
            ],
            &["fd00::1", "10.0.0.1"],
        ),
        (
            &[("InternalIP", "10.0.0.1"), ("ExternalIP", "2001:db8::1")],
            &["10.0.0.1", "2001:db8::1"],
        ),
        (&[("ExternalIP", "1.2.3.4")], &["1.2.3.4"]),
    ] {
        let facts = Facts::read(Some(&node(addresses, &[])), "n1", &config()).expect("known");
        assert_eq!(facts.addresses, ips(expected));
        assert_eq!(facts.zone, "z");
    }
}

#[test]
fn what_is_missing_of_the_node_is_named() {
    let mut by_range = config();
    by_range.local = LocalTraffic::NodeCidr;
    let bare = node(&[("Hostname", "n1")], &["10.1.0.0/24"]);
    let without_range = node(&[("InternalIP", "10.0.0.1")], &[]);
    for (node, config, why) in [
        (None, config(), "node \"n1\" not found"),
        (Some(&bare), config(), "host IP unknown; node \"n1\" has no address"),
        (
            Some(&without_range),
            by_range,
            "node \"n1\" does not have any PodCIDR allocated",
        ),
    ] {
        assert_eq!(Facts::read(node, "n1", &config), Err(why.to_owned()));
    }
}

#[test]
fn settings_follow_configuration_and_node() {
    let range = |text: &str| Cidr::parse(text).unwrap();
    let facts = Facts {
        addresses: ips(&["10.0.0.1", "fd00::1"]),
        pod_cidrs: vec![range("10.1.0.0/24")],
        zone: "z".into(),
    };
    let base = settings(&config(), "n1", &facts, true);
    assert_eq!(
        (base.node_ips, base.zone.as_str(), base.ipv4, base.ipv6),
        (facts.addresses.clone(), "z", true, true)
    );
    assert_eq!(
        (base.detect_local, base.node_port_addresses),
        (DetectLocal::Nothing, NodePortAddresses::All)
    );
    assert_eq!(
        (base.masquerade_bit, base.masquerade_all, base.localhost_node_ports),
        (14, false, true)
    );

    let mut own = config();
    (own.node_ip, own.local) = (Some("fd00::9".parse().unwrap()), LocalTraffic::NodeCidr);
    (own.node_ports, own.masquerade.all) = (NodePorts::Ranges(vec![range("10.0.0.0/8")]), true);
    let own = settings(&own, "n1", &facts, false);
    assert_eq!(
        own.node_ips,
        ips(&["fd00::9", "10.0.0.1"]),
        "the bind address is the primary one"
    );
    assert_eq!(own.detect_local, DetectLocal::Networks(vec![range("10.1.0.0/24")]));
    let every_v6 = NodePortAddresses::Networks(vec![range("10.0.0.0/8"), range("::/0")]);
    assert_eq!(
        (own.node_port_addresses, own.masquerade_all, own.ipv6),
        (every_v6, true, false)
    );

    for (local, expected) in [
        (LocalTraffic::Bridge("br0".into()), DetectLocal::Interface("br0".into())),
        (
            LocalTraffic::InterfacePrefix("veth".into()),
            DetectLocal::InterfacePrefix("veth".into()),
        ),
        (
            LocalTraffic::ClusterCidr(vec![range("10.0.0.0/8")]),
            DetectLocal::Networks(vec![range("10.0.0.0/8")]),
        ),
    ] {
        let config = Config { local, ..config() };
        assert_eq!(settings(&config, "n1", &facts, true).detect_local, expected);
    }
}
