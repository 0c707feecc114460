use super::*;
use crate::fair::Fair;
use std::sync::Mutex;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Clients of a node that knows these addresses now, and how often it was asked.
struct Node {
    clients: Clients,
    state: Arc<Mutex<(HashSet<IpAddr>, u32)>>,
}

impl Node {
    fn of(known: &[&str]) -> Self {
        let state = Arc::new(Mutex::new((HashSet::new(), 0)));
        let asked = state.clone();
        let ask: KnownSources = Arc::new(move || {
            let mut state = asked.lock().unwrap();
            state.1 += 1;
            state.0.clone()
        });
        let node = Self {
            clients: Clients::new(vec![ip("fd00:96::10")], Some(ask)),
            state,
        };
        node.know(known);
        node
    }

    fn know(&self, addresses: &[&str]) {
        self.state.lock().unwrap().0 = addresses.iter().map(|text| ip(text)).collect();
    }

    fn asked(&self) -> u32 {
        self.state.lock().unwrap().1
    }
}

#[test]
fn known_addresses_count_by_themselves_and_all_others_as_one() {
    let (mut node, now) = (Node::of(&["10.244.0.5", "fd00:244::5", "fd00:244::6"]), Instant::now());
    for own in ["10.244.0.5", "fd00:244::5", "fd00:244::6", "fd00:96::10"] {
        assert_eq!(node.clients.of(ip(own), now), ip(own));
    }
    // Of the pods' own /64, of another, and of the other family.
    for stranger in ["fd00:244::7", "fd00:244::5:1", "2001:db8::1", "10.244.0.6", "192.0.2.1"] {
        assert_eq!(node.clients.of(ip(stranger), now), STRANGERS, "{stranger}");
    }
    let mut unknowing = Clients::new(Vec::new(), None);
    assert_eq!(unknowing.of(ip("2001:db8::1"), now), ip("2001:db8::1"));
}

#[test]
fn a_new_pod_is_known_soon_and_one_that_is_gone_not_for_long() {
    let (mut node, now) = (Node::of(&["10.244.0.5"]), Instant::now());
    assert_eq!(node.clients.of(ip("10.244.0.6"), now), STRANGERS);
    node.know(&["10.244.0.6"]);
    assert_eq!(
        node.clients.of(ip("10.244.0.6"), now + AGE_MAX_OF_STRANGERS),
        ip("10.244.0.6")
    );
    node.know(&[]);
    assert_eq!(node.clients.of(ip("10.244.0.6"), now + AGE_MAX), ip("10.244.0.6"));
    assert_eq!(node.clients.of(ip("10.244.0.6"), now + 2 * AGE_MAX), STRANGERS);
}

#[test]
fn strangers_do_not_cost_a_list_each() {
    let (mut node, now) = (Node::of(&[]), Instant::now());
    for number in 0..100_000_u128 {
        // Of one second.
        let now = now + Duration::from_micros(10 * number as u64);
        node.clients.of(std::net::Ipv6Addr::from(number).into(), now);
    }
    assert_eq!(node.asked(), 10);
}

#[test]
fn who_invents_addresses_has_what_one_has() {
    let mut node = Node::of(&["fd00:244::5"]);
    let (mut fair, mut now) = (Fair::new(Instant::now()), Instant::now());
    let (mut pod, mut inventor) = (0, 0);
    for turn in 0..1000_u128 {
        // The kernel says that it drops questions, all the time: everybody has the least there is.
        fair.overflow();
        now += Duration::from_millis(5);
        for number in 0..100 {
            let invented = std::net::Ipv6Addr::from((0xfd00_0244 << 96) + (turn << 32) + 1000 + number);
            let client = node.clients.of(invented.into(), now);
            inventor += u32::from(fair.allows(client, now));
            let client = node.clients.of(ip("fd00:244::5"), now);
            pod += u32::from(fair.allows(client, now));
        }
    }
    assert!(pod > 5000, "{pod}");
    assert!(inventor <= pod, "{inventor} beside {pod}");
}
