//! Services that ask for the same front: it is all of one of them, whatever comes and goes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netlink::cidr::Cidr;
use proptest::prelude::*;

use crate::desired::{Element, Owner, Set, elements, owner, pool};
use crate::diff::Delta;
use crate::ledger::{Changes, Ledger};
use crate::model::{Choice, Chosen, Protocol, Served, ServiceName};
use crate::settings::Settings;

type Contents = BTreeMap<(Set, Vec<u8>), Vec<u8>>;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([198, 51, 100, last])
}

/// A Service with a ClusterIP of its own.
fn service(number: u8) -> Served {
    let mut made = crate::testing::nothing_served();
    made.port.name.service = format!("s{number}");
    made.port.name.protocol = Protocol::Tcp;
    made.port.port = 80;
    made.port.cluster_ips = vec![ip(number)];
    made
}

/// With this many endpoints, none the same as another Service's.
fn with_endpoints(mut served: Served, count: u8) -> Served {
    let IpAddr::V4(own) = served.port.cluster_ips[0] else {
        unreachable!("of IPv4")
    };
    let chosen = (0..count).map(|number| Chosen {
        address: SocketAddr::from(([10, 1, own.octets()[3], number], 8080)),
        local: number == 0,
    });
    served.v4 = Choice {
        cluster: chosen.clone().collect(),
        local: chosen.filter(|chosen| chosen.local).collect(),
        has_any: count > 0,
    };
    served
}

/// What the kernel does with a delta: it refuses what is there, what is not there, and ranges that overlap.
fn apply(contents: &mut Contents, delta: &Delta) {
    for (set, pairs) in &delta.gone {
        for (key, data) in pairs.iter() {
            assert_eq!(contents.remove(&(*set, key.to_vec())).as_deref(), Some(data), "{set:?}");
        }
    }
    for (set, pairs) in &delta.come {
        for (key, data) in pairs.iter() {
            assert_eq!(contents.insert((*set, key.to_vec()), data.to_vec()), None, "{set:?}");
        }
    }
    let ranges: Vec<_> = contents.keys().filter(|(set, _)| *set == Set::Allowed).collect();
    let halves = |key: &[u8]| (key[..key.len() / 2].to_vec(), key[key.len() / 2..].to_vec());
    for pair in ranges.windows(2) {
        let (before, after) = (halves(&pair[0].1), halves(&pair[1].1));
        assert!(before.1 < after.0, "{before:?} overlaps {after:?}");
    }
}

fn changes(services: &[Served], gone: &[Served]) -> Changes {
    let name = |served: &Served| ServiceName::new("", served.port.name.service.clone());
    let gone = gone.iter().map(|served| (name(served), None));
    let made = services
        .iter()
        .map(|served| (name(served), Some(Arc::from([served.clone()]))));
    gone.chain(made).collect()
}

fn enter(ledger: &mut Ledger, contents: &mut Contents, services: &[Served], gone: &[Served]) {
    let deltas = ledger.enter(changes(services, gone), &Settings::default());
    apply(contents, &deltas[&true]);
}

fn contents(services: &[Served]) -> Contents {
    let mut contents = Contents::new();
    enter(&mut Ledger::new(&Settings::default()), &mut contents, services, &[]);
    contents
}

/// Directly: every front is of who asks for it by the best right, and nobody else has anything under it.
fn expected(services: &[Served]) -> Contents {
    let all: Vec<(Owner, Element)> = services
        .iter()
        .flat_map(|served| {
            let owner = owner(&served.port.name);
            // No two of these few Services have the same.
            elements(served, pool(owner), &[], true)
                .into_iter()
                .map(move |element| (owner, element))
        })
        .collect();
    let mut owners: BTreeMap<Vec<u8>, (u8, Owner)> = BTreeMap::new();
    for (owner, element) in &all {
        if let Some(front) = element.set.front(&element.key) {
            let best = owners.entry(front.to_vec()).or_insert((element.rank, *owner));
            *best = (*best).min((element.rank, *owner));
        }
    }
    let mut contents = Contents::new();
    for (owner, element) in all {
        let ours = element.set.front(&element.key).is_none_or(|front| {
            let best = owners[front];
            best.1 == owner && (best.0 == element.rank || matches!(element.set, Set::Guarded | Set::Allowed))
        });
        if ours {
            contents.insert((element.set, element.key.to_vec()), element.data.to_vec());
        }
    }
    contents
}

fn targets(contents: &Contents, front: IpAddr) -> BTreeSet<Vec<u8>> {
    let IpAddr::V4(front) = front else {
        unreachable!("of IPv4")
    };
    let of_front = |(set, key): &&(Set, Vec<u8>)| *set == Set::Pools && key.starts_with(&front.octets());
    let pools: Vec<&Vec<u8>> = contents.keys().filter(of_front).map(|key| &contents[key]).collect();
    let of_pool =
        |(set, key): &&(Set, Vec<u8>)| *set == Set::Endpoints(false) && pools.iter().any(|pool| key.starts_with(pool));
    let keys = contents.keys().filter(of_pool);
    keys.map(|key| contents[key][..4].to_vec()).collect()
}

#[test]
fn overlapping_ranges_of_two_services_at_one_address_are_of_one_of_them() {
    let balanced = |number, range| {
        let mut served = with_endpoints(service(number), 1);
        served.port.load_balancer_ips = [ip(100)].into();
        served.port.source_ranges = Some([Cidr::parse(range).unwrap()].into());
        served
    };
    let both = [balanced(1, "192.0.2.0/24"), balanced(2, "192.0.0.0/16")];
    let contents = contents(&both);
    let allowed = contents.keys().filter(|(set, _)| *set == Set::Allowed).count();
    assert_eq!((allowed, targets(&contents, ip(100)).len()), (1, 1));
    // Also when the second comes later, and when the one who has it goes.
    for (first, second) in [(0, 1), (1, 0)] {
        let (mut ledger, mut contents) = (Ledger::new(&Settings::default()), Contents::new());
        enter(&mut ledger, &mut contents, &both[first..=first], &[]);
        enter(&mut ledger, &mut contents, &both[second..=second], &[]);
        assert_eq!(contents, expected(&both));
        enter(&mut ledger, &mut contents, &[], &both[first..=first]);
        assert_eq!(contents, expected(&both[second..=second]));
    }
}

#[test]
fn nobody_gets_the_traffic_of_anothers_cluster_ip_or_node_port() {
    let mut thief = with_endpoints(service(2), 1);
    thief.port.external_ips = [ip(1), ip(100)].into();
    for endpoints in [0, 1] {
        let owner = with_endpoints(service(1), endpoints);
        let contents = contents(&[owner, thief.clone()]);
        let found = targets(&contents, ip(1));
        let own: BTreeSet<Vec<u8>> = (0..endpoints).map(|number| vec![10, 1, 1, number]).collect();
        assert_eq!(found, own);
        assert_eq!(targets(&contents, ip(100)).len(), 1);
    }
    // A load balancer's address goes before externalIPs, whichever of the two Services would go first.
    for (balanced, thief) in [(1, 2), (2, 1)] {
        let mut owner = with_endpoints(service(balanced), 0);
        owner.port.load_balancer_ips = [ip(100)].into();
        let mut thief = with_endpoints(service(thief), 1);
        thief.port.external_ips = [ip(100)].into();
        assert_eq!(targets(&contents(&[owner, thief]), ip(100)), BTreeSet::new());
    }
}

fn any_service(number: u8) -> impl Strategy<Value = Served> {
    let addresses =
        || prop::collection::vec(1u8..5, 0..3).prop_map(|list| list.into_iter().map(ip).collect::<Arc<[IpAddr]>>());
    let ranges = prop::collection::vec((0u8..8, 8u8..=32), 0..4);
    (addresses(), addresses(), ranges, any::<[bool; 4]>(), 0u8..4).prop_map(
        move |(external, balancer, ranges, flags, endpoints)| {
            let mut made = service(number);
            made.port.external_ips = external;
            made.port.load_balancer_ips = balancer;
            let range = |(byte, prefix)| Cidr::new(IpAddr::from([byte, byte & 1, 0, byte & 3]), prefix);
            let ranges = ranges.into_iter().filter_map(range).map(|range| range.network());
            made.port.source_ranges = flags[1].then(|| ranges.collect());
            made.port.node_port = if flags[0] { 30_000 } else { 0 };
            made.port.affinity_seconds = if flags[1] { 60 } else { 0 };
            made.port.external_local = flags[2];
            made.port.internal_local = flags[3];
            with_endpoints(made, endpoints)
        },
    )
}

fn any_services() -> impl Strategy<Value = Vec<Served>> {
    (any_service(1), any_service(2), any_service(3), any_service(4)).prop_map(|(a, b, c, d)| vec![a, b, c, d])
}

proptest! {
    #[test]
    fn every_front_is_of_one_whatever_comes_and_goes(
        states in prop::collection::vec((any_services(), any::<[bool; 4]>()), 1..4),
    ) {
        let (mut ledger, mut contents) = (Ledger::new(&Settings::default()), Contents::new());
        for (services, there) in states {
            let (here, gone): (Vec<_>, Vec<_>) = services.into_iter().zip(there).partition(|(_, there)| *there);
            let list = |of: Vec<(Served, bool)>| -> Vec<Served> { of.into_iter().map(|(served, _)| served).collect() };
            let (here, gone) = (list(here), list(gone));
            enter(&mut ledger, &mut contents, &here, &gone);
            prop_assert_eq!(&contents, &expected(&here));
        }
    }
}
