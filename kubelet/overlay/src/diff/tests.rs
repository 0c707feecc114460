use super::*;
use netlink::vxlan::Vxlan;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn device(number: u8) -> Device {
    Device {
        vxlan: Vxlan {
            vni: 1,
            port: 8472,
            local: Some([192, 0, 2, number % 2].into()),
            underlay: 2,
            extras: false,
        },
        mac: Mac([2, 0, 0, 0, 0, number / 2]),
        mtu: 1450,
        offload: number.is_multiple_of(3),
        up: !number.is_multiple_of(5),
        ours: !number.is_multiple_of(7),
    }
}

fn wanted_device(number: u8) -> Device {
    Device {
        up: true,
        ours: true,
        ..device(number)
    }
}

fn range(number: u8) -> Cidr {
    Cidr::parse(&format!("10.244.{number}.0/24")).unwrap()
}

fn family(v4: bool) -> Family {
    if v4 { Family::V4 } else { Family::V6 }
}

/// What a kernel does with a step. Refuses what a kernel would.
fn take(state: &mut State, change: &Change) {
    let has = |state: &State, family: &Family| state.devices.contains_key(family);
    match change {
        Change::CreateDevice(family, device) => {
            assert!(state.devices.insert(*family, *device).is_none(), "the device exists");
        }
        Change::ChangeDevice(family, device) => {
            let old = state.devices.insert(*family, *device).expect("a device to change");
            assert_eq!(old.vxlan, device.vxlan, "this cannot be changed");
        }
        Change::DeleteDevice(family) => {
            assert!(has(state, family));
            forget(state, *family);
        }
        Change::AddAddress(family, cidr) => {
            assert!(has(state, family) && state.addresses.insert((*family, *cidr)));
        }
        Change::DeleteAddress(family, cidr) => assert!(state.addresses.remove(&(*family, *cidr))),
        Change::SetNeighbour(family, addr, mac) => {
            assert!(has(state, family));
            state.neighbours.insert((*family, *addr), *mac);
        }
        Change::DeleteNeighbour(family, addr, mac) => {
            assert_eq!(state.neighbours.remove(&(*family, *addr)), Some(*mac));
        }
        Change::SetForwarding(family, mac, host) => {
            assert!(has(state, family));
            let hosts = state.forwarding.entry((*family, mac.0)).or_default();
            assert!(hosts.len() <= 1, "which one is replaced?");
            *hosts = BTreeSet::from([*host]);
        }
        Change::DeleteForwarding(family, mac, host) => {
            let hosts = state.forwarding.get_mut(&(*family, mac.0)).unwrap();
            assert!(hosts.remove(host));
            if hosts.is_empty() {
                state.forwarding.remove(&(*family, mac.0));
            }
        }
        Change::SetRoute { range, hop, replace } => {
            if let Port::Tunnel(family) = &hop.port {
                assert!(has(state, family), "a route by a device that is not there");
            }
            let old = state.routes.insert(*range, *hop);
            assert_eq!(old.is_some(), *replace);
            assert!(
                !state.foreign.contains_key(range) || *replace,
                "somebody else's route is there"
            );
        }
        Change::DeleteRoute(range, hop) => assert_eq!(state.routes.remove(range), Some(*hop)),
    }
}

fn any_hop() -> impl Strategy<Value = Hop> {
    (0..4u8, 0..3u8).prop_map(|(gateway, port)| Hop {
        gateway: Some([192, 0, 2, gateway].into()),
        port: match port {
            0 => Port::Tunnel(Family::V4),
            1 => Port::Link(2),
            _ => Port::Link(3),
        },
        onlink: port == 0,
    })
}

prop_compose! {
    fn any_state(wanted: bool)(
        devices in proptest::collection::btree_map(any::<bool>(), 0..12u8, 0..3),
        addresses in proptest::collection::btree_set((any::<bool>(), 0..4u8), 0..4),
        neighbours in proptest::collection::btree_map((any::<bool>(), 0..6u8), 0..4u8, 0..6),
        forwarding in proptest::collection::btree_map(
            (any::<bool>(), 0..4u8), proptest::collection::btree_set(0..4u8, 1..if wanted { 2 } else { 4 }), 0..4,
        ),
        routes in proptest::collection::btree_map(0..6u8, any_hop(), 0..6),
        foreign in proptest::collection::btree_map(0..6u8, any_hop(), 0..3),
    ) -> State {
        let devices: BTreeMap<Family, Device> = devices.into_iter()
            .map(|(v4, number)| (family(v4), if wanted { wanted_device(number) } else { device(number) }))
            .collect();
        // There is nothing on a device that is not there.
        let is = |family: Family| devices.contains_key(&family);
        let routable = |hop: &Hop| match hop.port {
            Port::Tunnel(family) => is(family),
            Port::Link(_) => true,
        };
        State {
            addresses: addresses.into_iter().filter(|(v4, _)| is(family(*v4)))
                .map(|(v4, number)| (family(v4), Cidr::host([10, 244, number, 0].into()))).collect(),
            neighbours: neighbours.into_iter().filter(|((v4, _), _)| is(family(*v4)))
                .map(|((v4, number), last)| ((family(v4), [10, 244, number, 0].into()), Mac([2, 0, 0, 0, 0, last]))).collect(),
            forwarding: forwarding.into_iter().filter(|((v4, _), _)| is(family(*v4)))
                .map(|((v4, last), hosts)| {
                    ((family(v4), [2, 0, 0, 0, 0, last]), hosts.into_iter().map(|host| [192, 0, 2, host].into()).collect())
                }).collect(),
            routes: routes.iter().filter(|(_, hop)| routable(hop)).map(|(number, hop)| (range(*number), *hop)).collect(),
            // Two routes of one range and metric there are not.
            foreign: foreign.into_iter()
                .filter(|(number, hop)| !wanted && !routes.contains_key(number) && !matches!(hop.port, Port::Tunnel(_)))
                .map(|(number, hop)| (range(number), hop)).collect(),
            devices,
        }
    }
}

proptest! {
    #[test]
    fn the_steps_lead_to_what_is_wanted_and_touch_nothing_else(mut wanted in any_state(true), found in any_state(false)) {
        for range in conflicts(&wanted, &found) {
            wanted.routes.remove(&range);
        }
        let mut state = found.clone();
        for change in diff(&wanted, &found) {
            take(&mut state, &change);
        }
        prop_assert_eq!(&state.foreign, &found.foreign);
        // A way somebody else's route gives is one.
        for (range, hop) in &found.foreign {
            if wanted.routes.get(range) == Some(hop) {
                state.routes.insert(*range, *hop);
            }
        }
        wanted.foreign = found.foreign;
        prop_assert_eq!(state, wanted);
    }

    #[test]
    fn what_is_as_it_should_be_takes_no_step(wanted in any_state(true)) {
        prop_assert_eq!(diff(&wanted, &wanted), []);
    }

    #[test]
    fn a_way_that_stays_wanted_is_never_missing(wanted in any_state(true), found in any_state(false)) {
        let remade = |family: &Family| wanted.devices.get(family).zip(found.devices.get(family)).is_some_and(|(a, b)| a.vxlan != b.vxlan);
        let mut state = found.clone();
        for change in diff(&wanted, &found) {
            take(&mut state, &change);
            for (range, hop) in &found.routes {
                let lost_with_device = matches!(&hop.port, Port::Tunnel(family) if remade(family));
                if wanted.routes.contains_key(range) && !lost_with_device {
                    prop_assert!(state.routes.contains_key(range), "{change:?}");
                }
            }
        }
    }
}

#[test]
fn somebody_elses_route_stays() {
    let hop = |last: u8| Hop {
        gateway: Some([192, 0, 2, last].into()),
        port: Port::Link(2),
        onlink: false,
    };
    let wanted = State {
        routes: BTreeMap::from([(range(1), hop(1)), (range(2), hop(2))]),
        ..State::default()
    };
    let found = State {
        foreign: BTreeMap::from([(range(1), hop(9)), (range(2), hop(2))]),
        ..State::default()
    };
    assert_eq!(conflicts(&wanted, &found), [range(1)]);
}
