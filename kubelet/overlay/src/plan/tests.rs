use super::*;
use crate::peer::End;
use k8s_openapi::jiff::Timestamp;

mod hundred;

fn cidr(text: &str) -> Cidr {
    Cidr::parse(text).unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

fn settings(backend: Backend) -> Settings {
    Settings::new("own", backend, vec![cidr("10.244.0.0/16"), cidr("fd00::/48")])
}

fn peer(name: &str, range: &str, address: &str, last: u8) -> Peer {
    let end = End {
        public: Some(addr(address)),
        mac: Some(mac(last)),
        vni: Some(1),
        ..End::default()
    };
    let mut peer = Peer {
        name: name.into(),
        created: Some(Timestamp::from_second(i64::from(last)).unwrap()),
        ranges: vec![cidr(range)],
        ..Peer::default()
    };
    *peer.ends.of_mut(Family::of(&addr(address))) = end;
    peer
}

fn own() -> Own {
    let underlay = |address: &str, network: &str| Underlay {
        address: addr(address),
        index: 2,
        mtu: 1500,
        networks: vec![cidr(network)],
    };
    let mut peer = peer("own", "10.244.0.0/24", "192.0.2.1", 1);
    peer.ranges.push(cidr("fd00::/64"));
    Own {
        peer,
        underlay: Each {
            v4: Some(underlay("192.0.2.1", "192.0.2.0/24")),
            v6: Some(underlay("2001:db8::1", "2001:db8::/64")),
        },
        macs: Each {
            v4: mac(1),
            v6: mac(101),
        },
        addresses: BTreeSet::new(),
    }
}

fn reasons(plan: &Plan) -> Vec<(&str, String)> {
    let reasons = plan.problems.iter();
    reasons
        .map(|problem| (problem.node.as_str(), problem.reason.to_string()))
        .collect()
}

#[test]
fn a_tunnel_leads_to_each_node() {
    let peers = [
        own().peer,
        peer("b", "10.244.1.0/24", "192.0.2.2", 2),
        peer("c", "fd00:0:0:2::/64", "2001:db8::3", 3),
    ];
    let plan = plan(&settings(Backend::Vxlan), &own(), &peers);
    assert_eq!(reasons(&plan), []);
    let state = &plan.state;
    let device = state.devices[&Family::V4];
    assert_eq!((device.mtu, device.mac, device.offload), (1450, mac(1), false));
    assert_eq!(device.vxlan.local, Some(addr("192.0.2.1")));
    assert_eq!(state.devices[&Family::V6].mtu, 1430);
    assert_eq!(
        state.addresses,
        BTreeSet::from([(Family::V4, cidr("10.244.0.0/32")), (Family::V6, cidr("fd00::/128"))])
    );
    let hop = |gateway: &str, family| Hop {
        gateway: Some(addr(gateway)),
        port: Port::Tunnel(family),
        onlink: true,
    };
    assert_eq!(
        state.routes,
        BTreeMap::from([
            (cidr("10.244.1.0/24"), hop("10.244.1.0", Family::V4)),
            (cidr("fd00:0:0:2::/64"), hop("fd00:0:0:2::", Family::V6)),
        ])
    );
    assert_eq!(state.neighbours[&(Family::V4, addr("10.244.1.0"))], mac(2));
    assert_eq!(
        state.forwarding[&(Family::V6, mac(3).0)],
        BTreeSet::from([addr("2001:db8::3")])
    );
    assert_eq!(plan.pod_mtu(&own()), Some(1430));
}

#[test]
fn a_route_leads_straight_to_each_node_on_the_link() {
    let peers = [
        peer("b", "10.244.1.0/24", "192.0.2.2", 2),
        peer("far", "10.244.2.0/24", "198.51.100.2", 3),
    ];
    let plan = plan(&settings(Backend::HostGw), &own(), &peers);
    assert_eq!(plan.state.devices, BTreeMap::new());
    let hop = Hop {
        gateway: Some(addr("192.0.2.2")),
        port: Port::Link(2),
        onlink: false,
    };
    assert_eq!(plan.state.routes, BTreeMap::from([(cidr("10.244.1.0/24"), hop)]));
    assert_eq!(reasons(&plan).len(), 1);
    assert_eq!(reasons(&plan)[0].0, "far");
    assert_eq!(plan.pod_mtu(&own()), Some(1500));
}

#[test]
fn a_range_that_holds_more_than_pods_leads_nowhere() {
    let mut settings = settings(Backend::HostGw);
    settings.reserved = vec![cidr("10.244.128.0/20"), cidr("10.244.7.9/32")];
    let mut own = own();
    own.addresses.insert(addr("10.244.5.5"));
    // It says that it is among a younger node's pods: that harms nobody but itself.
    let mut among = peer("among", "10.244.1.0/24", "192.0.2.2", 2);
    among.ends.v4.internal = Some(addr("10.244.6.6"));
    let peers = [
        among,
        peer("own-address", "10.244.5.0/24", "192.0.2.5", 5),
        peer("others-address", "10.244.6.0/24", "192.0.2.6", 6),
        peer("api-server", "10.244.7.0/24", "192.0.2.7", 7),
        peer("services", "10.244.130.0/24", "192.0.2.8", 8),
        // Among the pods of an older one, whatever became of that, and among ours.
        peer("late", "10.244.20.0/24", "10.244.1.9", 20),
        peer("late-to-us", "10.244.21.0/24", "10.244.0.9", 21),
        peer("good", "10.244.9.0/24", "192.0.2.9", 9),
    ];
    let plan = plan(&settings, &own, &peers);
    let said = reasons(&plan).into_iter().map(|(node, text)| format!("{node}: {text}"));
    assert_eq!(
        said.collect::<BTreeSet<_>>(),
        BTreeSet::from(
            [
                "own-address: its pod range 10.244.5.0/24 contains the node address 10.244.5.5",
                "among: its address 10.244.6.6 is in the pod range 10.244.6.0/24 of node \"others-address\"",
                "api-server: its pod range 10.244.7.0/24 overlaps 10.244.7.9/32, where the cluster's own addresses are",
                "services: its pod range 10.244.130.0/24 overlaps 10.244.128.0/20, where the cluster's own addresses are",
                "late: its address 10.244.1.9 is in the pod range 10.244.1.0/24 of node \"among\"",
                "late-to-us: its address 10.244.0.9 is in the pod range 10.244.0.0/24 of node \"own\"",
            ]
            .map(str::to_owned)
        )
    );
    let routes: Vec<&Cidr> = plan.state.routes.keys().collect();
    assert_eq!(routes, [&cidr("10.244.6.0/24"), &cidr("10.244.9.0/24")]);
}

#[test]
fn of_two_hardware_addresses_that_are_the_same_the_younger_nodes_changes() {
    let spare = Mac([2, 0, 0, 0, 0, 0xfe]);
    let all: BTreeMap<String, Peer> = [
        peer("old", "10.244.1.0/24", "192.0.2.1", 1),
        peer("mine", "10.244.2.0/24", "192.0.2.2", 2),
        peer("new", "10.244.3.0/24", "192.0.2.3", 3),
    ]
    .into_iter()
    .map(|peer| (peer.name.clone(), peer))
    .collect();
    for (told, present, spare, expected) in [
        (Some(2), None, spare, mac(2)),
        (Some(3), None, spare, mac(3)),
        (Some(1), None, spare, spare),
        (Some(1), Some(9), spare, mac(9)),
        (Some(1), Some(1), spare, spare),
        (None, Some(9), spare, mac(9)),
        // What nobody was told of yet gives way to the younger, too.
        (None, Some(3), spare, spare),
        (None, None, mac(3), mac(4)),
        (None, None, spare, spare),
    ] {
        let mut own = all["mine"].clone();
        own.ends.v4.mac = told.map(mac);
        let found = |gave_way| super::mac(&all, &own, Family::V4, present.map(mac), spare, gave_way);
        assert_eq!(found(false), expected, "{told:?} {present:?} {spare}");
        // Not a second time, once all know what it has.
        let is_known = told.is_some() && told == present;
        let kept = if is_known { mac(told.unwrap_or(0)) } else { expected };
        assert_eq!(found(true), kept, "{told:?} {present:?} {spare}");
    }
}

/// Makes something of a node wrong.
type Spoil = fn(&mut Peer);

#[test]
fn a_node_that_is_wrong_is_named_and_the_others_are_not_harmed() {
    let cases: &[(Spoil, &str)] = &[
        (|p| p.ranges.clear(), "it has no pod range"),
        (|p| p.ranges = vec![cidr("10.9.0.0/24")], "outside of the cluster's"),
        (|p| p.ranges = vec![cidr("10.244.0.0/15")], "outside of the cluster's"),
        (
            |p| p.ranges = vec![cidr("10.244.0.128/25")],
            "overlaps 10.244.0.0/24 of node \"own\"",
        ),
        (
            |p| p.ranges = vec![cidr("10.244.1.0/25")],
            "overlaps 10.244.1.0/24 of node \"good\"",
        ),
        (|p| p.ends.v4.public = None, "no address"),
        (
            |p| p.ends.v4.public = Some(addr("10.244.9.7")),
            "contains the node address 10.244.9.7",
        ),
        (
            |p| p.ends.v4.public = Some(addr("192.0.2.1")),
            "192.0.2.1 is this node's",
        ),
        (|p| p.backend = Some("host-gw".into()), "its backend is \"host-gw\""),
        (|p| p.ends.v4.vni = Some(4096), "its VXLAN network is 4096"),
        (|p| p.ends.v4.mac = None, "not published the hardware address"),
        (|p| p.ends.v4.mac = Some(mac(1)), "is that of node \"own\""),
        (|p| p.ends.v4.mac = Some(mac(2)), "is that of node \"good\""),
        (
            |p| (p.ranges, p.unreadable) = (Vec::new(), vec!["x".into()]),
            "\"x\" is no address range",
        ),
    ];
    for (spoil, words) in cases {
        let mut bad = peer("bad", "10.244.9.0/24", "192.0.2.9", 9);
        spoil(&mut bad);
        // The younger, though its name comes first.
        let peers = [bad, peer("good", "10.244.1.0/24", "192.0.2.2", 2)];
        let plan = plan(&settings(Backend::Vxlan), &own(), &peers);
        let found = reasons(&plan);
        assert_eq!(found.len(), 1, "{words}: {found:?}");
        assert_eq!(found[0].0, "bad");
        assert!(found[0].1.contains(words), "{}: {words}", found[0].1);
        let routes: Vec<&Cidr> = plan.state.routes.keys().collect();
        assert_eq!(routes, [&cidr("10.244.1.0/24")], "{words}");
    }
}

#[test]
fn without_this_nodes_address_what_is_there_is_held() {
    let mut without = own();
    without.underlay.v4 = None;
    let peers = [peer("b", "10.244.1.0/24", "192.0.2.2", 2)];
    let made = plan(&settings(Backend::Vxlan), &without, &peers);
    assert_eq!(made.held, BTreeSet::from([Family::V4]));
    assert!(reasons(&made)[0].1.contains("no interface of this node"));
    assert!(made.state.devices.contains_key(&Family::V6));
    let mut outside = own();
    outside.peer.ranges = vec![cidr("10.9.0.0/24")];
    let made = plan(&settings(Backend::Vxlan), &outside, &peers);
    assert_eq!(made.held, BTreeSet::from([Family::V4]));
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn any_peer() -> impl Strategy<Value = Peer> {
        (0..12u8, 0..14u8, 0..12u8, 0..10u8, any::<bool>()).prop_map(|(name, range, address, mac_of, backend)| {
            let mut peer = peer(
                &format!("n{name}"),
                &format!("10.244.{}.0/{}", range, if range % 5 == 4 { 23 } else { 24 }),
                &format!("192.0.2.{address}"),
                mac_of,
            );
            peer.backend = backend.then(|| "vxlan".to_owned());
            peer.ranges[0] = peer.ranges[0].network();
            peer
        })
    }

    proptest! {
        #[test]
        fn ranges_hardware_addresses_and_hosts_are_never_mixed_up(
            peers in proptest::collection::vec(any_peer(), 0..12), straight: bool,
        ) {
            let backend = if straight { Backend::HostGw } else { Backend::Vxlan };
            let plan = plan(&settings(backend), &own(), &peers);
            let ranges: Vec<Cidr> = plan.state.routes.keys().copied().collect();
            for (i, range) in ranges.iter().enumerate() {
                prop_assert!(!range.overlaps(&cidr("10.244.0.0/24")));
                prop_assert!(ranges[..i].iter().all(|other| !other.overlaps(range)));
            }
            // Who has a route is named nowhere for its range; who has none is named.
            for peer in peers.iter().filter(|peer| peer.name != "own") {
                let routed = plan.owners.values().any(|owner| *owner == peer.name);
                let named = plan.problems.iter().any(|problem| problem.node == peer.name);
                prop_assert!(routed || named, "{}", peer.name);
            }
            // In a tunnel each gateway has a hardware address, and that leads to one host.
            for hop in plan.state.routes.values().filter(|hop| matches!(hop.port, Port::Tunnel(_))) {
                let mac = plan.state.neighbours[&(Family::V4, hop.gateway.unwrap())];
                prop_assert_eq!(plan.state.forwarding[&(Family::V4, mac.0)].len(), 1);
            }
            prop_assert_eq!(plan.state.neighbours.len(), plan.state.forwarding.len());
        }

        #[test]
        fn the_order_in_which_nodes_are_heard_of_does_not_matter(
            peers in proptest::collection::btree_map(0..12u8, any_peer(), 0..8),
        ) {
            let mut peers: Vec<Peer> = peers.into_iter().map(|(i, mut peer)| {
                peer.name = format!("m{i}");
                peer
            }).collect();
            let forward = plan(&settings(Backend::Vxlan), &own(), &peers);
            peers.reverse();
            prop_assert_eq!(plan(&settings(Backend::Vxlan), &own(), &peers), forward);
        }
    }
}
