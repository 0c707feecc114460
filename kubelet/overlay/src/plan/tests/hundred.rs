//! A hundred nodes, each with its own view: what they plan leads every packet home, and one node's change is a step or two of
//! each other one's.

use super::*;
use crate::diff::{Change, diff};

const NODES: u8 = 100;

/// Node `number` as all see it.
fn member(number: u8) -> Peer {
    peer(
        &format!("n{number:03}"),
        &format!("10.244.{number}.0/24"),
        &format!("192.0.2.{number}"),
        number,
    )
}

fn cluster() -> BTreeMap<String, Peer> {
    (1..=NODES).map(member).map(|peer| (peer.name.clone(), peer)).collect()
}

/// What a node plans, from what all of them say.
fn planned(backend: Backend, all: &BTreeMap<String, Peer>, name: &str) -> Plan {
    let peer = all[name].clone();
    let end = peer.ends.v4;
    let own = Own {
        underlay: Each {
            v4: Some(Underlay {
                address: end.public.unwrap(),
                index: 2,
                mtu: 1500,
                networks: vec![cidr("192.0.2.0/24")],
            }),
            v6: None,
        },
        macs: Each {
            v4: end.mac.unwrap(),
            v6: mac(0),
        },
        addresses: BTreeSet::new(),
        peer,
    };
    plan(&settings(backend), &own, all.values())
}

fn all_plans(backend: Backend, all: &BTreeMap<String, Peer>) -> BTreeMap<String, Plan> {
    let plans = all.keys().map(|name| (name.clone(), planned(backend, all, name)));
    plans.collect()
}

/// The node a packet from `plan`'s node comes to.
fn arrives<'p>(
    plans: &'p BTreeMap<String, Plan>,
    all: &BTreeMap<String, Peer>,
    plan: &Plan,
    to: Cidr,
) -> Option<&'p str> {
    let hop = plan.state.routes.get(&to)?;
    let at = |host: IpAddr| {
        let name = all.iter().find(|(_, peer)| peer.ends.v4.public == Some(host))?.0;
        plans.get_key_value(name)
    };
    match hop.port {
        Port::Link(_) => at(hop.gateway?).map(|(name, _)| name.as_str()),
        Port::Tunnel(family) => {
            let mac = plan.state.neighbours.get(&(family, hop.gateway?))?;
            let hosts = plan.state.forwarding.get(&(family, mac.0))?;
            let (name, theirs) = at(*hosts.first()?)?;
            // The other end takes it only if it is for its own device, which has the gateway's address.
            let is_theirs = theirs.state.devices.get(&family)?.mac == *mac
                && theirs.state.addresses.contains(&(family, Cidr::host(hop.gateway?)));
            is_theirs.then_some(name.as_str())
        }
    }
}

#[test]
fn every_packet_comes_home() {
    for backend in [Backend::Vxlan, Backend::HostGw] {
        let all = cluster();
        let plans = all_plans(backend, &all);
        for (name, plan) in &plans {
            assert_eq!(plan.problems, BTreeSet::new(), "{name}");
            for other in all.values().filter(|other| other.name != *name) {
                let found = arrives(&plans, &all, plan, other.ranges[0]);
                assert_eq!(found, Some(&*other.name), "{backend:?}: from {name}");
            }
        }
    }
}

/// A node is another: with its number.
type Event = fn(&mut BTreeMap<String, Peer>);

#[test]
fn what_one_node_does_is_some_steps_of_each_other_and_of_nothing_else() {
    fn change(all: &mut BTreeMap<String, Peer>, write: impl FnOnce(&mut Peer)) {
        write(all.get_mut("n050").unwrap());
    }
    let events: [(&str, Event, [usize; 2]); 6] = [
        ("leaves", |all| drop(all.remove("n050")), [3, 1]),
        ("comes", |all| drop(all.insert("n101".into(), member(101))), [3, 1]),
        (
            "moves",
            |all| change(all, |peer| peer.ends.v4.public = Some(addr("192.0.2.200"))),
            [1, 1],
        ),
        (
            "has another tunnel",
            |all| change(all, |peer| peer.ends.v4.mac = Some(mac(200))),
            [3, 0],
        ),
        (
            "has another range",
            |all| change(all, |peer| peer.ranges = vec![cidr("10.244.200.0/24")]),
            [4, 2],
        ),
        (
            "says nothing new",
            |all| change(all, |peer| peer.created = None),
            [0, 0],
        ),
    ];
    let before = cluster();
    for (what, event, steps) in events {
        let mut after = before.clone();
        event(&mut after);
        for (backend, steps) in [Backend::Vxlan, Backend::HostGw].into_iter().zip(steps) {
            let (old, new) = (all_plans(backend, &before), all_plans(backend, &after));
            for (name, plan) in &new {
                let itself = name == "n050" || name == "n101";
                let changes = old
                    .get(name)
                    .filter(|_| !itself)
                    .map(|old| diff(&plan.state, &old.state));
                let Some(changes) = changes else { continue };
                assert_eq!(changes.len(), steps, "{what}, {backend:?}, {name}: {changes:?}");
                let is_device = |change: &Change| {
                    matches!(
                        change,
                        Change::CreateDevice(..) | Change::DeleteDevice(..) | Change::ChangeDevice(..)
                    )
                };
                assert!(!changes.iter().any(is_device), "{what}, {name}");
            }
            for (name, plan) in &new {
                for other in after.values().filter(|other| other.name != *name) {
                    let found = arrives(&new, &after, plan, other.ranges[0]);
                    assert_eq!(found, Some(&*other.name), "{what}: from {name}");
                }
            }
        }
    }
}

/// Halves of a cluster that hear nothing of each other go on as they are; what each planned meets once they hear again.
#[test]
fn two_halves_that_hear_of_each_other_late_agree_in_the_end() {
    let mut told = [cluster(), cluster()];
    // While they are apart nodes move in both.
    let moves = [(10u8, 210u8), (90, 211)];
    for ((number, to), half) in moves.into_iter().zip(0..) {
        let name = format!("n{number:03}");
        told[half].get_mut(&name).unwrap().ends.v4.public = Some(addr(&format!("192.0.2.{to}")));
    }
    let half = |name: &str| usize::from(name > "n050");
    let apart: BTreeMap<String, Plan> = told[0]
        .keys()
        .map(|name| (name.clone(), planned(Backend::Vxlan, &told[half(name)], name)))
        .collect();
    let mut truth = told[0].clone();
    truth.insert("n090".into(), told[1]["n090"].clone());
    for (name, plan) in &apart {
        for other in truth.values().filter(|other| other.name != *name) {
            let found = arrives(&apart, &truth, plan, other.ranges[0]);
            let is_known = half(name) == half(&other.name) || !["n010", "n090"].contains(&&*other.name);
            assert_eq!(found == Some(&*other.name), is_known, "{name} to {}", other.name);
        }
    }
    let together = all_plans(Backend::Vxlan, &truth);
    for (name, plan) in &together {
        let steps = diff(&plan.state, &apart[name].state).len();
        assert_eq!(steps, 1, "{name} hears of one who moved in the other half");
        for other in truth.values().filter(|other| other.name != *name) {
            assert_eq!(arrives(&together, &truth, plan, other.ranges[0]), Some(&*other.name));
        }
    }
}
