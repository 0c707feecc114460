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
    let found = clashes(&key(name), claims).into_iter();
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
            let found = clashes(&claims[turn].key, &claims);
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
}
