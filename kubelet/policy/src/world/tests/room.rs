//! What there is no room for lets nothing through, costs other namespaces nothing, is told, and is back when there is room.

use super::*;
use crate::world::shares::{LIMITS, Limits, Shortage};

const WEB: &str = "10.0.0.1";

/// A namespace's web server on this node, of this number, and the policy of its own.
fn put_web(world: &mut World, namespace: &str, number: usize, rules: Value) {
    let web = format!("web{number}");
    put_pod(
        world,
        &pod(
            namespace,
            &web,
            NODE,
            json!({"app": web}),
            &[&addr_of(namespace, number)],
        ),
    );
    let spec = json!({"podSelector": {"matchLabels": {"app": web}}, "ingress": rules});
    put_policy(world, &policy(namespace, &format!("p{number}"), spec));
}

fn addr_of(namespace: &str, number: usize) -> String {
    format!("10.0.{}.{number}", namespace.as_bytes()[0])
}

fn put_client(world: &mut World, namespace: &str, number: usize, app: &str) {
    let name = format!("client{number}");
    put_pod(
        world,
        &pod(namespace, &name, "n2", json!({"app": app}), &[&client(number)]),
    );
}

fn client(number: usize) -> String {
    format!("10.1.0.{number}")
}

/// Lets in pods of its namespace that are of these apps.
fn from(apps: &[&str]) -> Value {
    let peers: Vec<Value> = apps
        .iter()
        .map(|app| json!({"podSelector": {"matchLabels": {"app": app}}}))
        .collect();
    json!([{"from": peers, "ports": [{"port": 80}]}])
}

/// A world and the kernel's table.
#[derive(Default)]
struct Both {
    world: World,
    table: Table,
}

impl Both {
    fn new(limits: Limits) -> Self {
        let mut both = Self::default();
        both.world.limit(limits);
        both
    }

    /// Tells the kernel; says what is told of policies.
    fn turn(&mut self) -> Vec<(String, Shortage)> {
        self.table.apply(&self.world.take_change());
        let over = self.world.take_overfull().into_iter();
        over.map(|over| (over.policy.to_string(), over.shortage)).collect()
    }

    fn passes(&self, initiator: &str, responder: &str) -> bool {
        self.table.passes(tcp(initiator, responder, 80))
    }

    /// Whether a kernel that is told everything would hold the same.
    fn is_as_if_told_anew(&mut self) -> bool {
        let mut anew = Table::default();
        anew.apply(&self.world.whole());
        anew.by_meaning() == self.table.by_meaning()
    }
}

#[test]
fn peers_there_is_no_room_for_are_let_through_by_nobody() {
    let mut both = Both::new(Limits { members: 2, ..LIMITS });
    for number in [1, 2] {
        put_client(&mut both.world, "d", number, "client");
    }
    put_pod(&mut both.world, &pod("d", "web", NODE, json!({"app": "web"}), &[WEB]));
    put_policy(&mut both.world, &policy("d", "p", clients()));
    assert_eq!(both.turn(), []);
    assert!(both.passes(&client(1), WEB));
    // One goes, another comes: there is room.
    both.world
        .set_pod(PodId::of(&pod("d", "client2", NODE, json!({}), &[])), None);
    put_client(&mut both.world, "d", 3, "client");
    assert_eq!(both.turn(), []);
    assert!(both.passes(&client(3), WEB));
    put_client(&mut both.world, "d", 4, "client");
    assert_eq!(both.turn(), [("d/p".to_owned(), Shortage::Members)]);
    for number in [1, 3, 4] {
        assert!(!both.passes(&client(number), WEB), "{number}");
    }
    assert_eq!(both.turn(), [], "it is told once");
    // As one made anew, it is as much too much; with fewer peers there is room again, without a new one.
    both.world.set_policy(Key::new("d", "p"), None);
    assert_eq!(both.turn(), []);
    put_policy(&mut both.world, &policy("d", "p", clients()));
    assert_eq!(both.turn(), [("d/p".to_owned(), Shortage::Members)]);
    assert!(!both.passes(&client(1), WEB) && both.is_as_if_told_anew());
    both.world
        .set_pod(PodId::of(&pod("d", "client4", "n2", json!({}), &[])), None);
    assert_eq!(both.turn(), []);
    assert!(both.passes(&client(1), WEB) && both.passes(&client(3), WEB));
}

#[test]
fn members_are_shared_by_namespace() {
    let mut both = Both::new(Limits { members: 6, ..LIMITS });
    for (namespace, number, app) in [
        ("v", 1, "x"),
        ("v", 2, "x"),
        ("a", 3, "x"),
        ("a", 4, "x"),
        ("a", 5, "y"),
        ("a", 6, "y"),
    ] {
        put_client(&mut both.world, namespace, number, app);
    }
    put_web(&mut both.world, "v", 1, from(&["x"]));
    put_web(&mut both.world, "a", 1, from(&["x"]));
    put_web(&mut both.world, "a", 2, from(&["y"]));
    assert_eq!(both.turn(), []);
    let (of_v, older, newer) = (addr_of("v", 1), addr_of("a", 1), addr_of("a", 2));
    assert!(both.passes(&client(1), &of_v) && both.passes(&client(3), &older) && both.passes(&client(5), &newer));
    // There is no room for one more: what the biggest made last goes, and nothing of who has no more than an equal part.
    put_client(&mut both.world, "v", 7, "x");
    assert_eq!(both.turn(), [("a/p2".to_owned(), Shortage::Members)]);
    assert!([1, 2, 7].iter().all(|number| both.passes(&client(*number), &of_v)));
    assert!(both.passes(&client(3), &older));
    assert!(!both.passes(&client(5), &newer) && !both.passes("10.9.9.9", &newer));
    assert!(both.is_as_if_told_anew());
    // Nobody else's set is that one's room.
    put_web(&mut both.world, "a", 3, from(&["y", "x"]));
    assert_eq!(both.turn(), [("a/p3".to_owned(), Shortage::Members)]);
    assert!(both.passes(&client(7), &of_v) && both.passes(&client(3), &older));
    for name in ["p1", "p3"] {
        both.world.set_policy(Key::new("a", name), None);
    }
    assert_eq!(both.turn(), []);
    assert!(both.passes(&client(5), &newer) && both.passes(&client(6), &newer) && both.passes(&client(7), &of_v));
}

#[test]
fn selectors_are_shared_by_namespace() {
    // A set of one selector with one requirement costs six.
    let mut both = Both::new(Limits {
        questions: 18,
        ..LIMITS
    });
    let clients = [("v", 1, "x"), ("a", 3, "x"), ("a", 4, "y"), ("a", 5, "z")];
    for (namespace, number, app) in clients {
        put_client(&mut both.world, namespace, number, app);
    }
    put_web(&mut both.world, "a", 1, from(&["x"]));
    put_web(&mut both.world, "a", 2, from(&["y"]));
    put_web(&mut both.world, "a", 3, from(&["z"]));
    assert_eq!(both.turn(), []);
    let of_a = [addr_of("a", 1), addr_of("a", 2), addr_of("a", 3)];
    assert!(both.passes(&client(5), &of_a[2]));
    put_web(&mut both.world, "v", 1, from(&["x"]));
    assert_eq!(both.turn(), [("a/p3".to_owned(), Shortage::Questions)]);
    assert!(both.passes(&client(1), &addr_of("v", 1)));
    assert!(both.passes(&client(3), &of_a[0]) && both.passes(&client(4), &of_a[1]));
    assert!(!both.passes(&client(5), &of_a[2]));
    // What is not asked about is not behind when it is asked about again.
    put_client(&mut both.world, "a", 6, "z");
    both.world
        .set_pod(PodId::of(&pod("a", "client5", "n2", json!({}), &[])), None);
    assert_eq!(both.turn(), []);
    assert!(!both.passes(&client(6), &of_a[2]));
    for name in ["p1", "p2"] {
        both.world.set_policy(Key::new("a", name), None);
    }
    assert_eq!(both.turn(), []);
    assert!(both.passes(&client(6), &of_a[2]) && !both.passes(&client(5), &of_a[2]));
    assert!(both.is_as_if_told_anew());
}

#[test]
fn ranges_are_shared_by_namespace() {
    // A set of three blocks or ports costs seven, one of a range of ports five.
    let mut both = Both::new(Limits { ranges: 24, ..LIMITS });
    let blocks = |third: usize| {
        let block = |at: usize| json!({"ipBlock": {"cidr": format!("10.{at}.{third}.0/24")}});
        json!([{"from": (0..3).map(block).collect::<Vec<_>>()}])
    };
    let ports = json!([{"ports": [{"port": 80}, {"port": 82, "endPort": 90}, {"port": 443}]}]);
    put_web(&mut both.world, "v", 1, blocks(7));
    put_web(&mut both.world, "a", 1, blocks(8));
    put_web(&mut both.world, "a", 2, ports);
    assert_eq!(both.turn(), []);
    assert!(both.passes("10.9.9.9", &addr_of("a", 2)));
    put_web(
        &mut both.world,
        "v",
        2,
        json!([{"ports": [{"port": 80}, {"port": 81}]}]),
    );
    assert_eq!(both.turn(), [("a/p2".to_owned(), Shortage::Ranges)]);
    assert!(both.passes("10.0.7.1", &addr_of("v", 1)) && both.passes("10.9.9.9", &addr_of("v", 2)));
    assert!(both.passes("10.0.8.1", &addr_of("a", 1)));
    assert!(!both.passes("10.9.9.9", &addr_of("a", 2)) && both.is_as_if_told_anew());
    both.world.set_policy(Key::new("a", "p1"), None);
    assert_eq!(both.turn(), []);
    assert!(both.passes("10.9.9.9", &addr_of("a", 2)) && both.is_as_if_told_anew());
}

#[test]
fn what_the_kernel_has_no_room_for_is_the_biggest_ones() {
    let mut both = Both::new(Limits { members: 8, ..LIMITS });
    let clients = [
        ("v", 1, "x"),
        ("a", 2, "x"),
        ("a", 3, "y"),
        ("a", 4, "y"),
        ("a", 5, "y"),
    ];
    for (namespace, number, app) in clients {
        put_client(&mut both.world, namespace, number, app);
    }
    put_web(&mut both.world, "a", 1, from(&["x"]));
    put_web(&mut both.world, "a", 2, from(&["y"]));
    put_web(&mut both.world, "v", 1, from(&["x"]));
    assert_eq!(both.turn(), []);
    both.world.tighten();
    assert_eq!(both.turn(), [("a/p2".to_owned(), Shortage::Members)]);
    assert!(both.passes(&client(1), &addr_of("v", 1)) && both.passes(&client(2), &addr_of("a", 1)));
    assert!(!both.passes(&client(3), &addr_of("a", 2)));
    both.world.loosen();
    assert_eq!(both.turn(), []);
    assert!(both.passes(&client(3), &addr_of("a", 2)));
}

#[test]
fn rules_are_shared_by_namespace() {
    let mut both = Both::new(Limits { rules: 6, ..LIMITS });
    let blocks = |count: usize| -> Value {
        (0..count)
            .map(|at| json!({"from": [{"ipBlock": {"cidr": format!("10.{at}.0.0/16")}}]}))
            .collect()
    };
    put_web(&mut both.world, "a", 1, blocks(2));
    put_web(&mut both.world, "a", 2, blocks(3));
    assert_eq!(both.turn(), []);
    let (of_v, first, second) = (addr_of("v", 1), addr_of("a", 1), addr_of("a", 2));
    assert!(both.passes("10.0.0.9", &first) && both.passes("10.0.0.9", &second));
    // More than there is left, and no more than an equal part.
    put_web(&mut both.world, "v", 1, blocks(3));
    assert_eq!(both.turn(), [("a/p2".to_owned(), Shortage::Rules)]);
    assert!(both.passes("10.2.0.9", &of_v) && !both.passes("10.9.0.9", &of_v));
    assert!(both.passes("10.0.0.9", &first) && !both.passes("10.0.0.9", &second));
    assert!(both.is_as_if_told_anew());
    assert_eq!(both.turn(), [], "it is told once, and nothing changes");
    assert!(both.world.take_change().is_empty());
    both.world.set_policy(Key::new("v", "p1"), None);
    assert_eq!(both.turn(), []);
    assert!(both.passes("10.0.0.9", &second) && both.is_as_if_told_anew());
}

#[test]
fn of_very_many_sets_without_room_every_policy_that_may_be_meant_is_told() {
    // A set costs six; those of the other namespace go on the part of who wants least, and one of this one's has room beside.
    let policies = |cut: usize| {
        let mut both = Both::new(Limits {
            questions: 6 * 4,
            ..LIMITS
        });
        put_web(&mut both.world, "v", 1, from(&["x"]));
        put_web(&mut both.world, "a", 1, from(&["kept"]));
        assert_eq!(both.turn(), []);
        put_web(
            &mut both.world,
            "a",
            2,
            json!([{"from": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}]),
        );
        let rules = (0..cut).map(|at| from(&[&format!("x{at}")])[0].clone()).collect();
        put_web(&mut both.world, "a", 3, rules);
        let told = both.turn();
        assert!(both.turn().is_empty(), "once");
        told
    };
    let of = |name: &str| (format!("a/{name}"), Shortage::Questions);
    // Two of these have room.
    assert_eq!(policies(66), [of("p3")]);
    assert_eq!(policies(67), [of("p1"), of("p3")]);
}

#[test]
fn of_very_many_sets_of_ports_without_room_every_policy_that_may_be_meant_is_told() {
    let blocks = |count: usize| -> Value {
        let block = |at: usize| json!({"ipBlock": {"cidr": format!("10.{}.0.0/16", 2 * at)}});
        json!([{"from": (0..count).map(block).collect::<Vec<_>>()}])
    };
    // A set of one port costs five, of three blocks seven.
    let policies = |cut: usize| {
        let mut both = Both::new(Limits { ranges: 40, ..LIMITS });
        put_web(&mut both.world, "v", 1, json!([{"ports": [{"port": 80}]}]));
        put_web(&mut both.world, "a", 1, blocks(3));
        assert_eq!(both.turn(), []);
        put_web(&mut both.world, "a", 2, blocks(2));
        put_client(&mut both.world, "a", 1, "x");
        put_web(&mut both.world, "a", 3, json!([{"from": [{"podSelector": {}}]}]));
        let rules = (0..cut).map(|at| json!({"ports": [{"port": 1000 + at}]})).collect();
        put_web(&mut both.world, "a", 4, rules);
        both.turn()
    };
    let of = |name: &str| (format!("a/{name}"), Shortage::Ranges);
    assert_eq!(policies(60), [of("p4")]);
    assert_eq!(policies(80), [of("p1"), of("p4")]);
}

#[test]
fn pods_that_differ_in_ports_nobody_asks_for_take_rules_once() {
    let mut both = Both::new(Limits { rules: 5, ..LIMITS });
    let rule = |at: usize, port: Value| json!({"from": [{"ipBlock": {"cidr": format!("10.{at}.0.0/16")}}], "ports": [{"port": port}]});
    let ingress = [rule(1, json!(80)), rule(2, json!("web")), rule(3, json!(81))];
    put_policy(
        &mut both.world,
        &policy("a", "p", json!({"podSelector": {}, "ingress": ingress})),
    );
    let put = |both: &mut Both, number: usize, ports: &[(&str, u16)]| {
        let address = addr_of("a", number);
        let mut pod = pod("a", &format!("web{number}"), NODE, json!({}), &[&address]);
        let ports = ports
            .iter()
            .map(|(name, port)| json!({"name": name, "containerPort": port}));
        let containers = json!([{"name": "c", "ports": ports.collect::<Vec<_>>()}]);
        pod.spec.as_mut().unwrap().containers = read(containers);
        put_pod(&mut both.world, &pod);
        address
    };
    let alike = [
        put(&mut both, 1, &[("web", 8080)]),
        put(&mut both, 2, &[("web", 8080), ("metrics", 9090)]),
        put(&mut both, 3, &[("metrics", 9091), ("web", 8080)]),
    ];
    assert_eq!(both.turn(), []);
    let passes = |both: &Both, to: &str, port: u16| both.table.passes(tcp("10.2.0.9", to, port));
    for address in &alike {
        assert!(both.passes("10.1.0.9", address), "{address}");
        assert!(
            passes(&both, address, 8080) && !passes(&both, address, 9090),
            "{address}"
        );
    }
    // What is asked for makes a difference.
    let other = put(&mut both, 4, &[("web", 8081)]);
    assert_eq!(both.turn(), [("a/p".to_owned(), Shortage::Rules)]);
    assert!(alike.iter().all(|address| passes(&both, address, 8080)));
    assert!(!passes(&both, &other, 8080) && !passes(&both, &other, 8081));
    both.world.limit(LIMITS);
    put(&mut both, 4, &[("web", 8081), ("metrics", 9090)]);
    assert_eq!(both.turn(), []);
    assert!(!passes(&both, &other, 8080) && passes(&both, &other, 8081));
    assert!(both.is_as_if_told_anew());
}

/// Rules that let in one block each, beginning with this one.
fn blocks_from(first: usize, count: usize) -> Value {
    (first..first + count)
        .map(|at| json!({"from": [{"ipBlock": {"cidr": format!("10.{at}.0.0/16")}}]}))
        .collect()
}

#[test]
fn equal_chains_of_different_policies_take_rules_once() {
    let mut both = Both::new(Limits { rules: 6, ..LIMITS });
    put_web(&mut both.world, "v", 1, blocks_from(1, 3));
    let alike = [addr_of("a", 1), addr_of("a", 2), addr_of("a", 3)];
    for number in [1, 2, 3] {
        put_web(&mut both.world, "a", number, blocks_from(1, 3));
    }
    assert_eq!(both.turn(), [], "they are six together");
    assert!(alike.iter().all(|address| both.passes("10.3.0.9", address)));
    // Nor is what each may have spent on one of them twice, where it is given out.
    put_web(&mut both.world, "a", 4, blocks_from(7, 1));
    assert_eq!(both.turn(), [("a/p4".to_owned(), Shortage::Rules)]);
    assert!(alike.iter().all(|address| both.passes("10.3.0.9", address)));
    assert!(!both.passes("10.7.0.9", &addr_of("a", 4)) && both.passes("10.3.0.9", &addr_of("v", 1)));
    assert!(both.is_as_if_told_anew());
}

#[test]
fn what_equal_pods_lack_is_asked_for_once() {
    let mut both = Both::new(Limits { rules: 10, ..LIMITS });
    put_web(&mut both.world, "v", 1, blocks_from(1, 6));
    let put_alike = |both: &mut Both, first: usize| {
        for number in [1, 2, 3] {
            put_web(&mut both.world, "a", number, blocks_from(first, 4));
        }
    };
    put_alike(&mut both, 1);
    assert_eq!(both.turn(), []);
    // While the old ones stand there is no room for the new: but when they have gone there is, and nobody else makes it.
    put_alike(&mut both, 11);
    assert_eq!(both.turn(), []);
    assert!(both.passes("10.6.0.9", &addr_of("v", 1)));
    for number in [1, 2, 3] {
        assert!(both.passes("10.14.0.9", &addr_of("a", number)), "{number}");
    }
    assert!(both.is_as_if_told_anew());
}
