//! The sets and chains, applied to a stand-in for the kernel's table and walked as the kernel walks it.

mod cases;
mod direct;
mod random;
mod room;
mod table;

use std::net::IpAddr;

use client::Key;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use super::World;
use crate::change::{Change, SetId};
use crate::facts::{Facts, PodId};
use crate::spec::{Direction, Policy};
use table::{Packet, Table};

const NODE: &str = "n1";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(namespace: &str, name: &str, node: &str, labels: Value, addresses: &[&str]) -> Pod {
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    read(json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "labels": labels},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "podIPs": ips}
    }))
}

fn policy(namespace: &str, name: &str, spec: Value) -> NetworkPolicy {
    read(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}))
}

fn put_pod(world: &mut World, pod: &Pod) {
    world.set_pod(PodId::of(pod), Some(Facts::of(pod, NODE)));
}

fn put_policy(world: &mut World, policy: &NetworkPolicy) {
    world.set_policy(Key::of(policy), Some(Policy::read(policy)));
}

fn tcp(initiator: &str, responder: &str, port: u16) -> Packet {
    Packet {
        initiator: initiator.parse().unwrap(),
        responder: responder.parse().unwrap(),
        protocol: 6,
        port,
    }
}

/// A web server and a client of it on this node, another client elsewhere, and a policy that lets clients in.
fn small() -> World {
    let mut world = World::new();
    put_pod(&mut world, &pod("d", "web", NODE, json!({"app": "web"}), &["10.0.0.1"]));
    put_pod(
        &mut world,
        &pod("d", "near", NODE, json!({"app": "client"}), &["10.0.0.2"]),
    );
    put_pod(
        &mut world,
        &pod("d", "far", "n2", json!({"app": "client"}), &["10.0.1.2"]),
    );
    put_policy(&mut world, &policy("d", "p", clients()));
    world
}

fn clients() -> Value {
    json!({"podSelector": {"matchLabels": {"app": "web"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}], "ports": [{"port": 80}]}]})
}

#[test]
fn a_new_address_elsewhere_is_one_element() {
    let mut world = small();
    let mut table = Table::default();
    table.apply(&world.take_change());
    put_pod(
        &mut world,
        &pod("d", "more", "n2", json!({"app": "client"}), &["10.0.1.3"]),
    );
    let change = world.take_change();
    assert_eq!(change.revisions.len(), 1);
    assert_eq!(change.revisions[0].added.len(), 1);
    let rest = Change {
        revisions: Vec::new(),
        ..change.clone()
    };
    assert!(rest.is_empty());
    table.apply(&change);
    assert!(table.passes(tcp("10.0.1.3", "10.0.0.1", 80)));
    assert!(!table.passes(tcp("10.0.1.3", "10.0.0.1", 81)));
    assert!(!table.passes(tcp("10.0.1.4", "10.0.0.1", 80)));
}

#[test]
fn what_does_not_matter_changes_nothing() {
    let mut world = small();
    world.take_change();
    // A pod that is no peer, a status that says nothing new, a policy of another namespace, labels nobody asks for.
    put_pod(&mut world, &pod("d", "other", "n2", json!({}), &["10.0.1.9"]));
    put_pod(
        &mut world,
        &pod("d", "far", "n2", json!({"app": "client"}), &["10.0.1.2"]),
    );
    put_policy(&mut world, &policy("e", "p", clients()));
    put_policy(&mut world, &policy("d", "p", clients()));
    world.set_namespace("d", Some(crate::selector::Labels::from([("a".into(), "b".into())])));
    assert!(world.take_change().is_empty());
    // There and gone between two turns.
    put_pod(
        &mut world,
        &pod("d", "brief", "n2", json!({"app": "client"}), &["10.0.1.8"]),
    );
    world.set_pod(PodId::of(&pod("d", "brief", "n2", json!({}), &[])), None);
    assert!(world.take_change().is_empty());
}

#[test]
fn equal_groups_and_equal_pods_share() {
    let mut world = small();
    put_pod(
        &mut world,
        &pod("d", "web2", NODE, json!({"app": "web"}), &["10.0.0.3"]),
    );
    put_policy(&mut world, &policy("d", "q", clients()));
    let whole = world.whole();
    let numbered = whole.new_sets.iter().filter(|set| matches!(set.id, SetId::Numbered(_)));
    assert_eq!(
        (numbered.count(), whole.new_chains.len(), whole.dispatches.len()),
        (2, 1, 2)
    );
    // The last user takes sets and chains along.
    let mut table = Table::default();
    table.apply(&whole);
    for name in ["p", "q"] {
        world.set_policy(Key::new("d", name), None);
    }
    let change = world.take_change();
    assert_eq!(
        (
            change.gone_sets.len(),
            change.gone_chains.len(),
            change.dispatches.len()
        ),
        (2, 1, 2)
    );
    table.apply(&change);
    assert!(table.passes(tcp("10.9.9.9", "10.0.0.1", 1)));
}

#[test]
fn the_node_knows_addresses_first() {
    let mut world = small();
    let mut table = Table::default();
    table.apply(&world.take_change());
    let new = pod("d", "new", NODE, json!({"app": "web"}), &[]);
    put_pod(&mut world, &new);
    assert!(world.take_change().is_empty(), "it has no address yet");
    let told = Facts {
        addresses: vec!["10.0.0.7".parse().unwrap()],
        ..Facts::of(&new, NODE)
    };
    world.set_local_pod(PodId::of(&new), Some(told.clone()));
    table.apply(&world.take_change());
    assert!(table.knows("10.0.0.7") && !table.passes(tcp("10.9.9.9", "10.0.0.7", 80)));
    // Deleted at the API server, the sandbox is still there, and so are its rules.
    world.set_pod(PodId::of(&new), None);
    table.apply(&world.take_change());
    assert!(table.knows("10.0.0.7") && !table.passes(tcp("10.9.9.9", "10.0.0.7", 80)));
    world.set_local_pod(PodId::of(&new), None);
    table.apply(&world.take_change());
    assert!(!table.knows("10.0.0.7"));
}

#[test]
fn an_address_that_changes_hands_has_the_new_ones_rules() {
    let mut world = small();
    let mut table = Table::default();
    table.apply(&world.take_change());
    // The API server has not said yet that the client is gone when this node gives its address to a web server.
    let new = pod("d", "new", NODE, json!({"app": "web"}), &["10.0.0.2"]);
    world.set_local_pod(PodId::of(&new), Some(Facts::of(&new, NODE)));
    table.apply(&world.take_change());
    assert!(!table.passes(tcp("10.9.9.9", "10.0.0.2", 80)));
    world.set_pod(PodId::of(&pod("d", "near", NODE, json!({}), &[])), None);
    table.apply(&world.take_change());
    assert!(!table.passes(tcp("10.9.9.9", "10.0.0.2", 80)));
    assert!(
        !table.passes(tcp("10.0.0.2", "10.0.0.1", 80)),
        "it is no client any more"
    );
}

#[test]
fn of_two_pods_of_one_address_the_one_told_last_has_it() {
    for names in [["a", "z"], ["z", "a"]] {
        let mut world = small();
        let mut table = Table::default();
        let addr = "10.0.0.8";
        // The API server shows both for as long as it likes.
        let old = pod("d", names[0], NODE, json!({"app": "client"}), &[addr]);
        let new = pod("d", names[1], NODE, json!({"app": "web"}), &[addr]);
        let tell = |world: &mut World, pod: &Pod| {
            put_pod(world, pod);
            world.set_local_pod(PodId::of(pod), Some(Facts::of(pod, NODE)));
        };
        let mut holds = |world: &mut World, is_known: bool, is_client: bool, is_open: bool| {
            table.apply(&world.take_change());
            assert_eq!(table.knows(addr), is_known, "{names:?}");
            assert_eq!(table.passes(tcp(addr, "10.0.0.1", 80)), is_client, "{names:?}");
            assert_eq!(table.passes(tcp("10.9.9.9", addr, 80)), is_open, "{names:?}");
        };
        tell(&mut world, &old);
        holds(&mut world, true, true, true);
        tell(&mut world, &new);
        holds(&mut world, true, false, false);
        // What the API server says again of the old one gives it nothing back.
        let again = pod("d", names[0], NODE, json!({"app": "client", "more": "x"}), &[addr]);
        put_pod(&mut world, &again);
        holds(&mut world, true, false, false);
        // This node does.
        tell(&mut world, &old);
        holds(&mut world, true, true, true);
        tell(&mut world, &new);
        world.set_local_pod(PodId::of(&new), None);
        world.set_pod(PodId::of(&new), None);
        let change = world.take_change();
        assert!(
            change
                .revisions
                .iter()
                .any(|revision| revision.id == SetId::Known(true))
        );
    }
}

#[test]
fn isolation_is_by_direction_and_family() {
    let mut world = small();
    let both = pod("d", "both", NODE, json!({"app": "web"}), &["10.0.0.5", "fd00::5"]);
    put_pod(&mut world, &both);
    let whole = world.whole();
    let of = |addr: &str| {
        let addr: IpAddr = addr.parse().unwrap();
        let found = whole.dispatches.iter().filter(|dispatch| dispatch.addr == addr);
        found.map(|dispatch| dispatch.direction).collect::<Vec<_>>()
    };
    assert_eq!(of("10.0.0.5"), [Direction::Ingress]);
    assert_eq!(of("fd00::5"), [Direction::Ingress]);
    assert_eq!(of("10.0.0.2"), []);
}
