use std::net::{IpAddr, SocketAddrV6};

use fixture::{Bridging, Node, PATIENCE, arrives, is_stuck, nothing_comes, passes};
use policy::change::{Change, Content, Refill};
use serde_json::{Value, json};

use super::fixture;

fn of(name: &str) -> Value {
    json!({"matchLabels": {"name": name}})
}

/// A case on nodes of both kinds.
fn on_both(names: &[&'static str], case: impl Fn(&mut Node)) {
    for bridging in [Bridging::Shown, Bridging::Hidden] {
        case(&mut Node::new(bridging, names));
    }
}

#[test]
fn denied_by_default_and_allowed_by_label() {
    on_both(&["a", "b", "c"], |node| {
        let deny = json!({"podSelector": of("b"), "policyTypes": ["Ingress"]});
        let allow = json!({"podSelector": of("b"), "ingress": [{"from": [{"podSelector": of("a")}]}]});
        for addr in node.pods[1].addresses() {
            let listener = node.pods[1].listen(addr, 80);
            node.pods[0].reaches(&listener);
            node.policy("deny", Some(deny.clone()));
            node.pods[0].misses(&listener);
            node.policy("allow", Some(allow.clone()));
            node.pods[0].reaches(&listener);
            node.pods[2].misses(&listener);
            node.label(2, json!({"name": "a"}), json!([]));
            node.apply();
            node.pods[2].reaches(&listener);
            node.label(2, json!({"name": "c"}), json!([]));
            node.policy("allow", None);
            node.pods[0].misses(&listener);
            node.policy("deny", None);
            node.pods[2].reaches(&listener);
        }
    });
}

#[test]
fn an_established_connection_is_cut_and_goes_on() {
    on_both(&["a", "b"], |node| {
        for addr in node.pods[1].addresses() {
            let listener = node.pods[1].listen(addr, 80);
            let (mut near, mut far) = node.pods[0].reaches(&listener);
            passes(&mut near, &mut far, 1);
            node.policy(
                "deny",
                Some(json!({"podSelector": of("b"), "policyTypes": ["Ingress"]})),
            );
            is_stuck(&mut near, &mut far, 2);
            is_stuck(&mut far, &mut near, 3);
            node.policy("deny", None);
            arrives(&mut far, 2);
            arrives(&mut near, 3);
            node.policy("deny", Some(json!({"podSelector": of("a"), "policyTypes": ["Egress"]})));
            is_stuck(&mut far, &mut near, 4);
            node.policy("deny", None);
            arrives(&mut near, 4);
        }
    });
}

#[test]
fn egress_to_a_block_but_not_to_its_exception() {
    on_both(&["a", "b", "c"], |node| {
        let blocks = json!([
            {"ipBlock": {"cidr": "10.77.0.0/24", "except": ["10.77.0.4/32"]}},
            {"ipBlock": {"cidr": "fd77::/64", "except": ["fd77::4/128"]}}]);
        let spec = json!({"podSelector": of("a"), "policyTypes": ["Egress"], "egress": [{"to": blocks}]});
        node.policy("p", Some(spec));
        for (at, is_allowed) in [(1, true), (2, false)] {
            for addr in node.pods[at].addresses() {
                let listener = node.pods[at].listen(addr, 80);
                if is_allowed {
                    node.pods[0].reaches(&listener);
                } else {
                    node.pods[0].misses(&listener);
                }
                let back = node.pods[0].listen(node.pods[0].addresses()[usize::from(addr.is_ipv6())], 80);
                node.pods[at].reaches(&back);
            }
        }
    });
}

#[test]
fn named_ports_and_ranges_of_ports() {
    on_both(&["a", "b"], |node| {
        node.label(1, json!({"name": "b"}), json!([{"name": "web", "containerPort": 8080}]));
        let to_b = json!([{"podSelector": of("b")}]);
        let egress = json!({"podSelector": of("a"), "policyTypes": ["Egress"],
            "egress": [{"to": to_b, "ports": [{"port": "web"}]}]});
        let ingress =
            json!({"podSelector": of("b"), "ingress": [{"ports": [{"port": "web"}, {"port": 90, "endPort": 92}]}]});
        for addr in node.pods[1].addresses() {
            let [web, range, end, beyond] = [8080, 91, 92, 93].map(|port| node.pods[1].listen(addr, port));
            node.policy("p", Some(ingress.clone()));
            for listener in [&web, &range, &end] {
                node.pods[0].reaches(listener);
            }
            node.pods[0].misses(&beyond);
            node.policy("p", Some(egress.clone()));
            node.pods[0].reaches(&web);
            node.pods[0].misses(&range);
            node.policy("p", None);
        }
    });
}

#[test]
fn datagrams_are_judged_by_protocol_and_port() {
    on_both(&["a", "b"], |node| {
        let spec = json!({"podSelector": of("b"), "ingress": [{"ports": [{"protocol": "UDP", "port": 53}]}]});
        node.policy("p", Some(spec));
        for addr in node.pods[1].addresses() {
            let (allowed, denied) = (node.pods[1].receive(addr, 53), node.pods[1].receive(addr, 54));
            let sender = &node.pods[0];
            let mut read = [0; 8];
            sender.send(&allowed, b"allowed");
            assert_eq!(allowed.recv(&mut read).unwrap(), 7);
            sender.send(&denied, b"denied");
            node.policy("q", Some(json!({"podSelector": of("b"), "ingress": [{}]})));
            node.pods[0].send(&denied, b"later");
            let length = denied.recv(&mut read).unwrap();
            assert_eq!(&read[..length], b"later", "what was denied came through");
            node.policy("q", None);
        }
    });
}

#[test]
fn behind_a_service_the_pod_itself_counts() {
    on_both(&["a", "b"], |node| {
        // What the Service proxy does: an address nobody has, translated before our chain.
        node.namespace.run(
            "nft",
            &[
                "add table inet svc; add chain inet svc pre { type nat hook prerouting priority -100; }; \
            add rule inet svc pre ip daddr 10.96.0.1 tcp dport 80 dnat ip to 10.77.0.3:8080",
            ],
        );
        let listener = node.pods[1].listen(node.pods[1].v4, 8080);
        let by_service = |node: &Node, is_allowed: bool| node.pods[0].tries("10.96.0.1:80", is_allowed);
        by_service(node, true);
        for spec in [
            json!({"podSelector": of("b"), "ingress": [{"from": [{"podSelector": of("a")}], "ports": [{"port": 8080}]}]}),
            json!({"podSelector": of("a"), "policyTypes": ["Egress"],
                "egress": [{"to": [{"podSelector": of("b")}], "ports": [{"port": 8080}]}]}),
        ] {
            node.policy("p", Some(spec));
            by_service(node, true);
        }
        for spec in [
            json!({"podSelector": of("b"), "ingress": [{"ports": [{"port": 80}]}]}),
            json!({"podSelector": of("a"), "policyTypes": ["Egress"],
                "egress": [{"to": [{"ipBlock": {"cidr": "10.96.0.0/16"}}]}]}),
        ] {
            node.policy("p", Some(spec));
            by_service(node, false);
        }
        drop(listener);
    });
}

#[test]
fn a_pod_reaches_itself_and_its_node_reaches_it() {
    on_both(&["a", "b"], |node| {
        node.namespace.run(
            "nft",
            &[
                "add table inet svc; add chain inet svc pre { type nat hook prerouting priority -100; }; \
            add rule inet svc pre ip daddr 10.96.0.1 tcp dport 80 dnat ip to 10.77.0.2:8080; \
            add chain inet svc post { type nat hook postrouting priority 100; }; \
            add rule inet svc post ct original ip daddr 10.96.0.1 masquerade",
            ],
        );
        node.policy(
            "p",
            Some(json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})),
        );
        let listener = node.pods[0].listen(node.pods[0].v4, 8080);
        node.pods[0].tries("10.96.0.1:80", true);
        node.pods[1].tries("10.96.0.1:80", false);
        let target = listener.local_addr().unwrap();
        let probe = node
            .namespace
            .inside(|| std::net::TcpStream::connect_timeout(&target, std::time::Duration::from_secs(20)));
        probe.expect("the node reaches its pods");
    });
}

#[test]
fn link_local_addresses_are_no_way_around_policies() {
    on_both(&["a", "b"], |node| {
        let (near, far) = (node.pods[0].link_local("fe80::a"), node.pods[1].link_local("fe80::b"));
        let scope = near.scope_id();
        let listener = node.pods[1].listen_on(SocketAddrV6::new(*far.ip(), 80, 0, far.scope_id()));
        let target = format!("[{}%{scope}]:80", far.ip());
        let receiver = node.pods[1].receive(node.pods[1].v6, 53);
        let from = |node: &Node| node.pods[0].send_from(near.into(), &receiver);
        // Without the table, both come through.
        node.kernel.remove().unwrap();
        node.pods[0].tries(&target, true);
        from(node);
        receiver.recv(&mut [0; 8]).unwrap();
        node.kernel.replace(&node.world.whole()).unwrap();
        node.policy("p", Some(json!({"podSelector": {}, "policyTypes": ["Ingress"]})));
        node.pods[0].tries(&target, false);
        node.policy("p", Some(json!({"podSelector": of("a"), "policyTypes": ["Egress"]})));
        node.pods[0].tries(&target, false);
        from(node);
        nothing_comes(&receiver);
        drop(listener);
    });
}

#[test]
fn a_frame_to_all_carries_no_packet_to_a_pod_around_policies() {
    on_both(&["a", "b"], |node| {
        let sender = &node.pods[0].namespace;
        for addr in node.pods[1].addresses() {
            let to_all = ["neigh", "replace", &addr.to_string(), "lladdr", "ff:ff:ff:ff:ff:ff"];
            sender.ip(&[&to_all[..], &["dev", "eth0", "nud", "permanent"]].concat());
        }
        let receivers = node.pods[1].addresses().map(|addr| node.pods[1].receive(addr, 53));
        node.kernel.remove().unwrap();
        for receiver in &receivers {
            node.pods[0].send(receiver, b"open");
            receiver.recv(&mut [0; 8]).unwrap();
        }
        node.kernel.replace(&node.world.whole()).unwrap();
        node.policy("p", Some(json!({"podSelector": {}, "policyTypes": ["Ingress"]})));
        for receiver in &receivers {
            node.pods[0].send(receiver, b"denied");
            nothing_comes(receiver);
        }
    });
}

#[test]
fn packets_for_several_do_not_pass_from_pod_to_pod() {
    let broadcast = "10.77.0.255".parse().unwrap();
    let groups: [IpAddr; 2] = ["224.0.0.251".parse().unwrap(), "ff02::1:3".parse().unwrap()];
    for bridging in [Bridging::Shown, Bridging::Hidden] {
        let mut node = Node::new(bridging, &["a", "b"]);
        node.policy(
            "deny",
            Some(json!({"podSelector": {"matchLabels": {"name": "b"}}, "policyTypes": ["Ingress"]})),
        );
        let receiver = |any: &str, port| node.pods[1].receive(any.parse().unwrap(), port);
        let (v4, v6) = (receiver("0.0.0.0", 5353), receiver("::", 5354));
        let (mut all, index) = (vec![(&v4, broadcast)], node.pods[1].interface());
        for (receiver, group) in [&v4, &v6].into_iter().zip(groups) {
            match group {
                IpAddr::V4(group) => receiver
                    .join_multicast_v4(&group, &"10.77.0.3".parse().unwrap())
                    .unwrap(),
                IpAddr::V6(group) => receiver.join_multicast_v6(&group, index).unwrap(),
            }
            all.push((receiver, group));
        }
        for (receiver, target) in &all {
            node.pods[0].send_to_several(*target);
            nothing_comes(receiver);
        }
        // The same way, once there is no table: what did not come was not lost on its own.
        node.kernel.remove().unwrap();
        for (receiver, target) in all {
            node.pods[0].send_to_several(target);
            receiver.set_read_timeout(Some(PATIENCE)).unwrap();
            receiver
                .recv(&mut [0; 8])
                .unwrap_or_else(|error| panic!("{bridging:?} {target}: {error}"));
        }
    }
}

#[test]
fn a_chain_that_was_emptied_is_noticed() {
    on_both(&["a", "b"], |node| {
        let chains = node.namespace.run("nft", &["list", "chains"]);
        assert!(chains.contains("denied"), "{chains}");
        let mut of_ours = vec![
            ("inet", "forward"),
            ("inet", "neighbours"),
            ("inet", "loose"),
            ("inet", "denied"),
        ];
        if chains.contains("table bridge") {
            of_ours.extend([
                ("bridge", "prerouting"),
                ("bridge", "forward"),
                ("bridge", "neighbours"),
            ]);
        }
        for (family, chain) in of_ours {
            assert!(node.kernel.is_intact().unwrap(), "before {family} {chain}");
            node.namespace
                .run("nft", &["flush", "chain", family, "skiff_policy", chain]);
            assert!(!node.kernel.is_intact().unwrap(), "{family} {chain}");
            node.kernel.replace(&node.world.whole()).unwrap();
        }
    });
}

#[test]
fn the_kernel_bears_as_many_ranges_as_a_rule_may_have() {
    let mut node = Node::new(Bridging::Shown, &["a", "b"]);
    // Gaps of all sizes: each range between two of these is many prefixes.
    let holes = (1..1000u32).map(|at| at.wrapping_mul(2_654_435_761));
    let v4: Vec<String> = holes
        .clone()
        .map(|at| format!("{}/32", std::net::Ipv4Addr::from(at)))
        .collect();
    let v6: Vec<String> = holes
        .map(|at| u128::from(at) << 96 | u128::from(at.reverse_bits()))
        .map(|at| format!("{}/128", std::net::Ipv6Addr::from(at)))
        .collect();
    let all = json!([{"ipBlock": {"cidr": "0.0.0.0/0", "except": v4}}, {"ipBlock": {"cidr": "::/0", "except": v6}}]);
    node.policy("p", Some(json!({"podSelector": of("b"), "ingress": [{"from": all}]})));
    for addr in node.pods[1].addresses() {
        let listener = node.pods[1].listen(addr, 80);
        node.pods[0].reaches(&listener);
    }
}

#[test]
fn sets_that_stay_are_emptied_and_filled_again() {
    let mut node = Node::new(Bridging::Shown, &["a", "b"]);
    // So many that they are in sets; each pod's address is in one of them.
    let v4 = ["10.0.0.0/8", "128.0.0.0/2", "32.0.0.0/5", "200.0.0.0/8"];
    let v6 = ["::/4", "8000::/3", "fc00::/7", "4000::/4"];
    let blocks: Vec<Value> = v4
        .iter()
        .chain(&v6)
        .map(|cidr| json!({"ipBlock": {"cidr": cidr}}))
        .collect();
    let addresses = node.pods[1].addresses();
    for ports in [
        json!([{"port": 80}, {"port": 90}]),
        json!([{"port": 70, "endPort": 80}, {"port": 90}]),
    ] {
        let rule = json!({"from": blocks, "ports": ports});
        node.policy("p", Some(json!({"podSelector": of("b"), "ingress": [rule]})));
        for is_of_kind in [
            |content: &Content| matches!(content, Content::Ranges(_)),
            |content: &Content| matches!(content, Content::Ports(_)),
        ] {
            let sets = node
                .world
                .whole()
                .new_sets
                .into_iter()
                .filter(|set| is_of_kind(&set.content));
            let sets: Vec<_> = sets.collect();
            assert!(!sets.is_empty());
            for is_in in [false, true] {
                let refills = sets.iter().map(|set| Refill {
                    id: set.id,
                    content: set.content.clone(),
                    is_in,
                });
                let change = Change {
                    refills: refills.collect(),
                    ..Change::default()
                };
                node.kernel.apply(&change).unwrap();
                for addr in addresses {
                    let listener = node.pods[1].listen(addr, 80);
                    match is_in {
                        true => drop(node.pods[0].reaches(&listener)),
                        false => node.pods[0].misses(&listener),
                    }
                }
            }
        }
    }
}
