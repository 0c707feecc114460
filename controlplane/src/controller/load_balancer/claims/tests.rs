use super::*;
use proptest::prelude::*;

fn key(name: &str) -> Key {
    Key::new("n".to_owned(), name.to_owned())
}

fn ports(numbers: &[i32]) -> BTreeSet<Port> {
    numbers.iter().map(|number| (*number, "TCP".to_owned())).collect()
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// The plain version of [`Holdings`]: everything anew from all claims.
struct Settled {
    claims: BTreeMap<Key, Claim>,
    taken: BTreeMap<IpAddr, BTreeMap<Port, Key>>,
}

impl Settled {
    /// Settles these claims.
    fn of(claims: Vec<Claim>) -> Self {
        let mut by_age: Vec<&Claim> = claims.iter().collect();
        by_age.sort_by_key(|claim| (claim.created, &claim.key));
        let mut taken: BTreeMap<IpAddr, BTreeMap<Port, Key>> = BTreeMap::new();
        for claim in &by_age {
            for (address, ports) in &claim.has {
                let of_address = taken.entry(*address).or_default();
                for port in ports {
                    of_address.entry(port.clone()).or_insert_with(|| claim.key.clone());
                }
            }
        }
        for claim in &by_age {
            for address in &claim.wants {
                let of_address = taken.entry(*address).or_default();
                let is_free = |port: &Port| of_address.get(port).is_none_or(|holder| *holder == claim.key);
                if claim.ports.iter().all(is_free) {
                    of_address.extend(claim.ports.iter().map(|port| (port.clone(), claim.key.clone())));
                }
            }
        }
        let claims = claims.into_iter().map(|claim| (claim.key.clone(), claim)).collect();
        Self { claims, taken }
    }

    /// What keeps the Service `key` from addresses it wants: every port that somebody else has, by address.
    fn clashes(&self, key: &Key) -> BTreeMap<IpAddr, Vec<Clash>> {
        let Some(own) = self.claims.get(key) else {
            return BTreeMap::new();
        };
        let of_address = |address: &IpAddr| {
            let taken = self.taken.get(address)?;
            let others = own.ports.iter().filter_map(|port| {
                let holder = taken.get(port).filter(|holder| *holder != key)?;
                Some(Clash {
                    port: port.clone(),
                    holder: holder.clone(),
                })
            });
            let others: Vec<Clash> = others.collect();
            (!others.is_empty()).then_some((*address, others))
        };
        own.wants.iter().filter_map(of_address).collect()
    }
}

fn claim(name: &str, age: i64, numbers: &[i32], wants: &[u8], has: &[u8]) -> Claim {
    Claim {
        key: key(name),
        created: Timestamp::from_second(1_800_000_000 - age).ok(),
        ports: ports(numbers),
        wants: wants.iter().copied().map(ip).collect(),
        has: has.iter().map(|last| (ip(*last), ports(numbers))).collect(),
    }
}

/// Address, port and holder of each clash.
fn told(name: &str, claims: &[Claim]) -> Vec<(u8, i32, String)> {
    let found = Settled::of(claims.to_vec()).clashes(&key(name)).into_iter();
    let all = found.flat_map(|(address, clashes)| clashes.into_iter().map(move |clash| (address, clash)));
    all.map(|(address, clash)| match address {
        IpAddr::V4(v4) => (v4.octets()[3], clash.port.0, clash.holder.name),
        IpAddr::V6(_) => unreachable!("the tests have no such address"),
    })
    .collect()
}

#[test]
fn who_has_a_port_keeps_it_and_what_is_free_goes_to_the_oldest() {
    let young_has = [
        claim("old", 9, &[80], &[1, 2], &[]),
        claim("young", 1, &[80], &[1, 2], &[1]),
    ];
    assert_eq!(told("old", &young_has), [(1, 80, "young".to_owned())]);
    assert_eq!(told("young", &young_has), [(2, 80, "old".to_owned())]);
    let nobody_has = [claim("young", 1, &[80], &[1], &[]), claim("old", 9, &[80], &[1], &[])];
    assert_eq!(told("old", &nobody_has), []);
    assert_eq!(told("young", &nobody_has), [(1, 80, "old".to_owned())]);
    let equally_old = [claim("b", 1, &[80], &[1], &[]), claim("a", 1, &[80], &[1], &[])];
    assert_eq!(told("a", &equally_old), []);
    let both_have = [claim("old", 9, &[80], &[1], &[1]), claim("young", 1, &[80], &[1], &[1])];
    assert_eq!((told("old", &both_have).len(), told("young", &both_have).len()), (0, 1));
}

/// An address is had whole: who lacks one port of it holds back nobody at the others.
#[test]
fn who_cannot_have_an_address_does_not_stand_in_the_way() {
    let claims = [
        claim("first", 9, &[443], &[1], &[1]),
        claim("second", 5, &[80, 443], &[1], &[]),
        claim("third", 1, &[80], &[1], &[]),
    ];
    assert_eq!(
        told("second", &claims),
        [(1, 80, "third".to_owned()), (1, 443, "first".to_owned())]
    );
    assert_eq!(told("third", &claims), []);
}

#[test]
fn what_is_shown_is_held_until_it_is_not_shown() {
    let gone = [claim("gone", 9, &[80], &[], &[1]), claim("next", 1, &[80], &[1], &[])];
    assert_eq!(told("next", &gone), [(1, 80, "gone".to_owned())]);
    // A Service that shows an address gets no right to another's port there by asking for it.
    let mut moved = claim("moved", 9, &[80], &[1], &[1]);
    moved.ports = ports(&[443]);
    let claims = [moved, claim("other", 1, &[443], &[1], &[1])];
    assert_eq!(told("moved", &claims), [(1, 443, "other".to_owned())]);
    assert_eq!(told("other", &claims), []);
}

#[test]
fn rivals_are_those_whose_claims_bear_on_each_other() {
    let mut rivals = Rivals::default();
    for (name, numbers) in [("a", &[80][..]), ("b", &[80, 443]), ("c", &[443]), ("d", &[22])] {
        rivals.note(&key(name), Some(ports(numbers)));
    }
    let of = |rivals: &Rivals, name| -> Vec<String> { rivals.of(&key(name)).into_iter().map(|key| key.name).collect() };
    assert_eq!(of(&rivals, "a"), ["a", "b", "c"]);
    assert_eq!(of(&rivals, "d"), ["d"]);
    rivals.note(&key("b"), None);
    assert_eq!(of(&rivals, "a"), ["a"]);
    assert_eq!(rivals.all().len(), 3);
    rivals.note(&key("d"), Some(ports(&[80])));
    assert_eq!(of(&rivals, "d"), ["a", "d"]);
}

/// What holders have, by address and port, as it is kept and as it is found from nothing.
fn kept_is_what_is_found(holdings: &Holdings, claims: &BTreeMap<Key, Claim>) {
    let plain = Settled::of(claims.values().cloned().collect());
    for key in claims.keys() {
        assert_eq!(holdings.clashes(key), plain.clashes(key), "{key} of {claims:#?}");
    }
}

/// The claim, once its status shows what it is not kept from.
fn served(claim: &Claim, kept_from: &BTreeMap<IpAddr, Vec<Clash>>) -> Claim {
    let free = claim.wants.iter().filter(|address| !kept_from.contains_key(address));
    Claim {
        has: free.map(|address| (*address, claim.ports.clone())).collect(),
        ..claim.clone()
    }
}

/// Services that come one after another, are written, and go: of one port each, none is judged because of others; of one port for all, those
/// who wait are judged when the holder goes, and at no other time.
#[test]
fn a_new_service_costs_its_own_ports() {
    let addresses: Vec<u8> = (1..=8).collect();
    let count = 500usize;
    for is_shared in [false, true] {
        let port = |number: usize| {
            if is_shared {
                80
            } else {
                100 + i32::try_from(number).unwrap()
            }
        };
        let mut holdings = Holdings::default();
        let mut all: Vec<Claim> = (0..count)
            .map(|number| {
                claim(
                    &format!("s{number:04}"),
                    -(number as i64),
                    &[port(number)],
                    &addresses,
                    &[],
                )
            })
            .collect();
        for own in &mut all {
            holdings.set(&own.key, Some(own.clone()));
            *own = served(own, &holdings.clashes(&own.key));
            holdings.set(&own.key, Some(own.clone()));
        }
        assert_eq!(holdings.judged, 0, "nobody lost or won anything");
        let waiting = if is_shared { count - 1 } else { 0 };
        assert_eq!(all.iter().filter(|own| own.has.is_empty()).count(), waiting);
        // From the last, who waits; then the first, who has what the others wait for.
        for own in all.iter().skip(1).rev().take(100) {
            holdings.set(&own.key, None);
        }
        let judged = holdings.judged;
        assert_eq!(judged, 0, "who goes and had nothing others want is missed by nobody");
        holdings.set(&all[0].key, None);
        let left = if is_shared { count - 101 } else { 0 };
        assert_eq!(holdings.judged - judged, left * addresses.len());
        assert_eq!(holdings.clashes(&all[1].key).len(), 0, "the next has it");
    }
}

#[test]
fn what_may_not_be_so_any_more_is_looked_at_once() {
    let mut rivals = Rivals::default();
    let claims = [claim("a", 9, &[80], &[1], &[]), claim("b", 8, &[80], &[1], &[])];
    for claim in &claims {
        rivals.note(&claim.key, Some(claim.ports.clone()));
    }
    let keys = |names: &[&str]| -> BTreeSet<Key> { names.iter().map(|name| key(name)).collect() };
    assert_eq!(rivals.take_stale(), keys(&["a", "b"]));
    assert_eq!(rivals.take_stale(), keys(&[]));
    claims
        .iter()
        .for_each(|claim| rivals.enter(&claim.key, Some(claim.clone())));
    assert_eq!(rivals.clashes(&key("b")).len(), 1);
    rivals.note(&key("a"), None);
    assert_eq!(rivals.take_stale(), keys(&["a"]));
    rivals.forget(&key("b"));
    assert_eq!(rivals.take_stale(), keys(&["b"]));
    rivals.forget_all();
    assert_eq!(
        rivals.take_stale(),
        keys(&["a", "b"]),
        "one that has no say, but a claim yet"
    );
    rivals.enter(&key("a"), None);
    assert_eq!(rivals.clashes(&key("b")).len(), 0);
}

proptest! {
    /// Each Service that takes what it is not kept from, one after the other in any order, ends where no port has two holders, and nobody
    /// who had an address alone lost it.
    #[test]
    fn no_port_has_two_holders(
        wanted in proptest::collection::vec((0i64..3, proptest::collection::btree_set(80i32..84, 1..3), proptest::collection::btree_set(1u8..4, 0..4)), 1..6),
        order in proptest::collection::vec(0usize..6, 0..24),
    ) {
        let mut claims: Vec<Claim> = wanted.iter().enumerate().map(|(number, (age, numbers, wants))| {
            let numbers: Vec<i32> = numbers.iter().copied().collect();
            let wants: Vec<u8> = wants.iter().copied().collect();
            claim(&number.to_string(), *age, &numbers, &wants, &[])
        }).collect();
        for turn in order.into_iter().chain(0..6).filter(|turn| *turn < wanted.len()) {
            let found = Settled::of(claims.clone()).clashes(&claims[turn].key);
            let (had, own) = (claims[turn].has.clone(), &mut claims[turn]);
            let free = own.wants.iter().filter(|address| !found.contains_key(address));
            own.has = free.map(|address| (*address, own.ports.clone())).collect();
            prop_assert!(had.keys().all(|address| own.has.contains_key(address)), "it lost what it had");
            let mut seen = BTreeSet::new();
            for (address, ports) in claims.iter().flat_map(|claim| &claim.has) {
                prop_assert!(ports.iter().all(|port| seen.insert((*address, port.clone()))), "one port has two holders");
            }
        }
    }
    /// Whatever comes, changes and goes, in whatever order: what is kept is what the plain version finds.
    #[test]
    fn what_is_kept_is_what_is_found_from_nothing(
        steps in proptest::collection::vec(
            (0u8..6, 0u8..8, -1i64..3, proptest::collection::btree_set(80i32..84, 1..3), proptest::collection::btree_set(1u8..4, 0..4),
                proptest::collection::btree_map(1u8..4, proptest::collection::btree_set(80i32..84, 1..3), 0..3)),
            1..60,
        ),
    ) {
        let (mut holdings, mut claims) = (Holdings::default(), BTreeMap::new());
        for (name, what, age, numbers, wants, shown) in steps {
            let (numbers, wants): (Vec<i32>, Vec<u8>) = (numbers.into_iter().collect(), wants.into_iter().collect());
            let own = key(&name.to_string());
            let next = match (what, claims.get(&own)) {
                (0, _) => None,
                // As a controller goes on: its status shows what it is given.
                (1..=4, Some(old)) => Some(served(old, &holdings.clashes(&own))),
                // Another claim, with what its status shows yet.
                (5..=6, Some(old)) => {
                    let wanted = claim(&name.to_string(), age, &numbers, &wants, &[]);
                    let (created, has) = (old.created, old.has.clone());
                    Some(Claim { created, has, ..wanted })
                }
                _ => {
                    let mut next = claim(&name.to_string(), age, &numbers, &wants, &[]);
                    if what == 7 {
                        next.has = shown.iter().map(|(last, numbers)| (ip(*last), ports(&numbers.iter().copied().collect::<Vec<_>>()))).collect();
                    }
                    Some(next)
                }
            };
            holdings.set(&own, next.clone());
            match next {
                Some(next) => drop(claims.insert(own, next)),
                None => drop(claims.remove(&own)),
            }
            kept_is_what_is_found(&holdings, &claims);
        }
    }
}
