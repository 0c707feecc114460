mod kernel;

use super::*;
use crate::model::{Served, ServiceName};
use crate::testing::nothing_served;
use netlink::conntrack::Flow;
use std::net::SocketAddr;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn flow(target: &str, reply_source: &str) -> Flow {
    Flow {
        target: at(target),
        reply_source: at(reply_source),
    }
}

/// A Service's UDP port 53 at these addresses and that node port, with these endpoints that serve.
fn served(addresses: &[&str], node_port: u16, serving: &[&str]) -> Served {
    let mut served = nothing_served();
    served.port.cluster_ips = addresses.iter().map(|address| address.parse().unwrap()).collect();
    served.port.port = 53;
    served.port.node_port = node_port;
    served.serving = serving.iter().map(|endpoint| at(endpoint)).collect();
    served
}

fn snapshot(services: Vec<(&str, Served)>) -> Snapshot {
    let services = services.into_iter();
    let services = services.map(|(name, served)| (Arc::new(ServiceName::new("a", name)), [served].into()));
    Snapshot {
        services: services.collect(),
    }
}

#[test]
fn flows_that_go_to_no_endpoint_are_stale() {
    let state = snapshot(vec![
        (
            "dns",
            served(&["10.96.0.10", "fd00::10"], 30053, &["10.1.0.5:5353", "10.1.0.6:5353"]),
        ),
        ("empty", served(&["10.96.0.11"], 30054, &[])),
    ]);
    let stale = stale_after(None, &state);
    let local = ["192.168.0.1".parse().unwrap()];
    for (target, reply_source, expected) in [
        ("10.96.0.10:53", "10.1.0.5:5353", false),
        ("10.96.0.10:53", "10.1.0.6:5353", false),
        // Gone, another port of the same pod, and sent before there were rules.
        ("10.96.0.10:53", "10.1.0.7:5353", true),
        ("10.96.0.10:53", "10.1.0.5:53", true),
        ("10.96.0.10:53", "10.96.0.10:53", true),
        // No endpoint of that family: what goes nowhere waits for nobody.
        ("[fd00::10]:53", "[fd00::10]:53", false),
        ("[fd00::10]:53", "[fd01::5]:5353", true),
        // The last endpoint went.
        ("10.96.0.11:53", "10.1.0.5:5353", true),
        ("10.96.0.11:53", "10.96.0.11:53", false),
        ("192.168.0.1:30054", "10.1.0.5:5353", true),
        ("192.168.0.1:30054", "192.168.0.1:30054", false),
        // A node port is one on this node alone.
        ("192.168.0.1:30053", "10.1.0.7:5353", true),
        ("192.168.0.1:30053", "10.1.0.6:5353", false),
        ("8.8.8.8:30053", "8.8.8.8:30053", false),
        // Of no Service.
        ("10.96.0.10:54", "10.1.0.7:5353", false),
        ("10.96.0.12:53", "10.1.0.7:5353", false),
        ("192.168.0.1:9999", "10.1.0.7:5353", false),
    ] {
        assert_eq!(
            stale.is_stale(&flow(target, reply_source), &local),
            expected,
            "{target} {reply_source}"
        );
    }
}

#[test]
fn only_what_changed_is_looked_at() {
    let endpoints = &["10.1.0.5:53", "10.1.0.6:53"];
    let before = snapshot(vec![
        ("same", served(&["10.96.0.1"], 0, endpoints)),
        ("scaled", served(&["10.96.0.2"], 30002, endpoints)),
        ("moved", served(&["10.96.0.3"], 30003, endpoints)),
        ("gone", served(&["10.96.0.4"], 30004, endpoints)),
        ("given", served(&["10.96.0.5"], 0, endpoints)),
    ]);
    let mut after = snapshot(vec![
        ("scaled", served(&["10.96.0.2"], 30002, &endpoints[..1])),
        ("moved", served(&["10.96.0.3"], 30033, endpoints)),
        ("taken", served(&["10.96.0.5"], 0, &["10.1.0.9:53"])),
    ]);
    let same = before.services.iter().find(|(name, _)| name.name == "same").unwrap();
    after.services.insert(same.0.clone(), same.1.clone());
    let stale = stale_after(Some(&before), &after);
    let looked_at = |target: &str| {
        let local = [at(target).ip()];
        stale.is_stale(&flow(target, "10.1.0.99:53"), &local)
    };
    for (target, expected) in [
        ("10.96.0.1:53", false),
        ("10.96.0.2:53", true),
        ("192.168.0.1:30002", true),
        ("10.96.0.3:53", false),
        ("192.168.0.1:30003", true),
        ("192.168.0.1:30033", true),
        ("10.96.0.4:53", true),
        ("192.168.0.1:30004", true),
    ] {
        assert_eq!(looked_at(target), expected, "{target}");
    }
    assert!(
        !stale.is_stale(&flow("10.96.0.5:53", "10.1.0.9:53"), &[]),
        "another Service has the address"
    );
    assert!(stale.is_stale(&flow("10.96.0.5:53", "10.1.0.5:53"), &[]));
    assert!(stale_after(Some(&after), &after).is_empty());
    let mut tcp = served(&["10.96.0.8"], 30008, endpoints);
    tcp.port.name.protocol = crate::model::Protocol::Tcp;
    assert!(
        stale_after(None, &snapshot(vec![("tcp", tcp)])).is_empty(),
        "TCP ends by itself"
    );
}

/// Who asks for another's front, which the rules do not give it, takes nobody's flows away.
#[test]
fn flows_belong_to_the_owner_of_their_front() {
    let (ours, theirs) = (&["10.1.0.5:53"], &["10.1.0.6:53"]);
    let owner = || served(&["10.96.0.1"], 30001, ours);
    let thief = |endpoints: &[&str]| {
        let mut thief = served(&["10.96.0.2"], 30001, endpoints);
        thief.port.external_ips = ["10.96.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into();
        thief.port.name.service = "thief".into();
        thief
    };
    // With its first endpoints, with others, and when it goes.
    let states = [
        snapshot(vec![("owner", owner())]),
        snapshot(vec![("owner", owner()), ("thief", thief(theirs))]),
        snapshot(vec![("owner", owner()), ("thief", thief(&[]))]),
        snapshot(vec![("owner", owner())]),
    ];
    let flow_of_owner = flow("10.96.0.1:53", "10.1.0.5:53");
    for pair in states.windows(2) {
        let stale = stale_after(Some(&pair[0]), &pair[1]);
        assert!(!stale.is_stale(&flow_of_owner, &[]), "{stale:?}");
        assert!(
            !stale.is_stale(&flow("[fd00::1]:53", "[fd00::9]:53"), &[]),
            "a family it is not served in"
        );
    }
    assert!(stale_after(Some(&states[1]), &states[2]).is_stale(&flow("10.96.0.2:53", "10.1.0.6:53"), &[]));
    // The owner goes: now it is the other's.
    let left = snapshot(vec![("thief", thief(theirs))]);
    assert!(stale_after(Some(&states[1]), &left).is_stale(&flow_of_owner, &[]));
    // Of two with the same right it is the one the rules choose.
    let mut both = [thief(theirs), thief(ours)];
    both[1].port.name.service = "other".into();
    let owners = both.each_ref().map(|served| crate::desired::owner(&served.port.name));
    let loser = if owners[0] < owners[1] {
        "10.1.0.5:53"
    } else {
        "10.1.0.6:53"
    };
    let [one, other] = both;
    let stale = stale_after(None, &snapshot(vec![("thief", one), ("other", other)]));
    let local = ["192.168.0.1".parse().unwrap()];
    for endpoint in ["10.1.0.5:53", "10.1.0.6:53"] {
        assert_eq!(
            stale.is_stale(&flow("192.168.0.1:30001", endpoint), &local),
            endpoint == loser
        );
    }
}

#[test]
fn newer_states_win_and_few_places_are_asked_for_one_by_one() {
    let (old, new) = (&["10.1.0.5:53"], &["10.1.0.6:53"]);
    let state = |endpoints: &[&str]| stale_after(None, &snapshot(vec![("a", served(&["10.96.0.1"], 0, endpoints))]));
    let mut merged = state(old);
    merged.extend(state(new));
    assert_eq!(merged, state(new));

    let few = stale_after(
        None,
        &snapshot(vec![("a", served(&["10.96.0.1", "fd00::1"], 30001, old))]),
    );
    let exact: Vec<_> = few
        .filters(true)
        .iter()
        .map(|filter| (filter.address, filter.port))
        .collect();
    assert_eq!(
        exact,
        [(Some("10.96.0.1".parse().unwrap()), Some(53)), (None, Some(30001))]
    );
    assert_eq!(few.filters(false).len(), 2);
    assert!(few.has_node_ports());
    let addresses: Vec<String> = (1..10).map(|last| format!("10.96.0.{last}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let many = stale_after(None, &snapshot(vec![("a", served(&addresses, 0, old))]));
    let all: Vec<_> = many
        .filters(true)
        .iter()
        .map(|filter| (filter.address, filter.port))
        .collect();
    assert_eq!(all, [(None, None)]);
    assert_eq!(many.filters(false), []);
}

fn synced(snapshot: Snapshot) -> Synced {
    Synced {
        snapshot: Arc::new(snapshot),
        previous: None,
        full: false,
        queued_at: None,
        duration: Duration::ZERO,
    }
}

/// Whoever changes a Service again and again has no more than half a processor of every node by it.
#[tokio::test(start_paused = true)]
async fn who_looks_rests_as_long_as_that_takes() {
    for (took, rest) in [(3, 12), (100, 400), (1000, 2000), (5000, 5000)] {
        let (took, rest) = (Duration::from_millis(took), Duration::from_millis(rest));
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let look: Look = Arc::new(move |_| {
            let _ = tell.send(Instant::now());
            Ok(took)
        });
        let (flows, stop) = (Flows::default(), CancellationToken::new());
        let looking = tokio::spawn(flows.clone().look(look, stop.clone()));
        let mut looks = Vec::new();
        for _ in 0..3 {
            flows.synced(&synced(snapshot(vec![("dns", served(&["10.96.0.10"], 0, &[]))])));
            looks.push(told.recv().await.unwrap());
        }
        assert!(
            looks.windows(2).all(|two| two[1] - two[0] >= rest),
            "{took:?} {looks:?}"
        );
        stop.cancel();
        looking.await.unwrap();
    }
}
