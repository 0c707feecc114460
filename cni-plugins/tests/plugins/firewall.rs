//! firewall behind bridge, on a host that forwards nothing by itself.

use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::fixture::{Container, Host, address, bridge_config, merge, reaches, run};

/// Two containers on two bridges of a host whose policy is to drop what it should forward.
struct World {
    host: Host,
    one: Container,
    two: Container,
    configs: [Value; 2],
    results: [Value; 2],
}

impl World {
    fn new() -> Self {
        let (host, one, two) = (Host::new(), Container::new(), Container::new());
        run(
            "ip",
            &[
                "netns",
                "exec",
                &host.namespace.name,
                "iptables",
                "-P",
                "FORWARD",
                "DROP",
            ],
        );
        let config = |name: &str, bridge: &str, subnet: &str| {
            bridge_config(&host, subnet, json!({"name": name, "bridge": bridge, "ipMasq": false}))
        };
        let configs = [
            config("onenet", "br1", "10.10.1.0/24"),
            config("twonet", "br2", "10.10.2.0/24"),
        ];
        let results = [host.add(&one, &configs[0]), host.add(&two, &configs[1])];
        Self {
            host,
            one,
            two,
            configs,
            results,
        }
    }

    fn firewall(&self, which: usize, more: Value) -> Value {
        let mut config = json!({
            "cniVersion": "1.1.0", "name": self.configs[which]["name"], "type": "firewall", "prevResult": self.results[which],
        });
        merge(&mut config, more);
        config
    }

    fn one_reaches_two(&self) -> bool {
        let target = SocketAddr::new(address(&self.results[1]), 80);
        let listener = self.two.namespace.inside(|| TcpListener::bind(target).unwrap());
        reaches(&self.one.namespace, &listener, target)
    }

    fn own_rules(&self, which: usize) -> usize {
        let addr = format!("{}/32", address(&self.results[which]));
        self.host.namespace.iptables("filter").matches(&addr).count()
    }
}

#[test]
fn what_a_container_sends_is_forwarded_by_either_backend() {
    for backend in ["", "iptables"] {
        let world = World::new();
        let config = world.firewall(0, json!({"backend": backend}));
        assert_eq!(world.host.add(&world.one, &config), world.results[0]);
        assert!(world.one_reaches_two(), "{backend:?}");
        world.host.succeed("CHECK", &world.one, &config);
        world.host.del(&world.one, &config);
        world.host.del(&world.one, &config);
        assert_eq!(world.own_rules(0), 0);
        assert!(world.host.fail("CHECK", &world.one, &config).1.contains("not found"));
        // iptables reads the whole table: nothing in it is foreign to it.
        run("ip", &["netns", "exec", &world.host.namespace.name, "iptables", "-S"]);
    }
}

#[test]
fn bridges_are_kept_apart_when_asked() {
    let world = World::new();
    run(
        "ip",
        &[
            "netns",
            "exec",
            &world.host.namespace.name,
            "iptables",
            "-P",
            "FORWARD",
            "ACCEPT",
        ],
    );
    for which in [0, 1] {
        let container = [&world.one, &world.two][which];
        let config = world.firewall(which, json!({"ingressPolicy": "same-bridge"}));
        world.host.add(container, &config);
        world.host.succeed("CHECK", container, &config);
    }
    assert!(!world.one_reaches_two());
}

#[test]
fn one_backend_removes_what_the_other_made() {
    let world = World::new();
    for (adds, dels) in [("", "iptables"), ("iptables", "")] {
        world.host.add(&world.one, &world.firewall(0, json!({"backend": adds})));
        assert_eq!(world.own_rules(0), 2);
        world.host.del(&world.one, &world.firewall(0, json!({"backend": dels})));
        assert_eq!(world.own_rules(0), 0, "{adds:?} {dels:?}");
    }
}

/// Rules say whose they are: DEL needs no previous result, GC no notes, and neither touches another container's.
#[test]
fn leftovers_go_without_a_previous_result() {
    let world = World::new();
    let configs = [world.firewall(0, json!({})), world.firewall(1, json!({}))];
    world.host.add(&world.one, &configs[0]);
    world.host.add(&world.two, &configs[1]);
    let mut blind = configs[0].clone();
    blind["prevResult"] = Value::Null;
    world.host.del(&world.one, &blind);
    assert_eq!((world.own_rules(0), world.own_rules(1)), (0, 2));
    world.host.add(&world.one, &configs[0]);
    let mut collected = blind.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": world.one.id, "ifname": "eth0"}]);
    world.host.succeed("GC", &world.one, &collected);
    assert_eq!((world.own_rules(0), world.own_rules(1)), (2, 2));
    collected["cni.dev/valid-attachments"] = json!([]);
    world.host.succeed("GC", &world.one, &collected);
    assert_eq!((world.own_rules(0), world.own_rules(1)), (0, 2));
}
