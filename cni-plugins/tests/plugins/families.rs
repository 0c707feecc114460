//! The whole chain (bridge or ptp with host-local, then tuning, bandwidth, firewall and portmap) in IPv4, IPv6 and both:
//! ports are reached, what goes out is forwarded and masqueraded, CHECK agrees, and nothing is left.

use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::fixture::{Container, Host, Namespace, connect_to, merge, run};

/// What one family needs: the pool, the default route, the host as others see it, and another machine.
#[derive(Clone, Copy, Debug)]
struct Family {
    pool: &'static str,
    everything: &'static str,
    host: &'static str,
    beyond: &'static str,
    filter: &'static str,
}

const FOUR: Family = Family {
    pool: "10.11.0.0/24",
    everything: "0.0.0.0/0",
    host: "192.0.2.1",
    beyond: "192.0.2.2",
    filter: "iptables",
};
const SIX: Family = Family {
    pool: "fd00:11::/64",
    everything: "::/0",
    host: "fd00:99::1",
    beyond: "fd00:99::2",
    filter: "ip6tables",
};
const CASES: [&[Family]; 3] = [&[FOUR], &[SIX], &[FOUR, SIX]];

/// A machine that reaches only the host.
fn beyond(host: &Host) -> Namespace {
    let beyond = Namespace::new("b");
    let pair = [
        "link",
        "add",
        "toworld",
        "type",
        "veth",
        "peer",
        "name",
        "tohost",
        "netns",
        &beyond.name,
    ];
    host.namespace.ip(&pair);
    for (namespace, link, own) in [
        (&host.namespace, "toworld", [FOUR.host, SIX.host]),
        (&beyond, "tohost", [FOUR.beyond, SIX.beyond]),
    ] {
        namespace.ip(&["addr", "add", &format!("{}/24", own[0]), "dev", link]);
        namespace.ip(&["addr", "add", &format!("{}/64", own[1]), "dev", link, "nodad"]);
        namespace.ip(&["link", "set", link, "up"]);
    }
    beyond
}

/// The configurations of the chain, in the order of ADD.
fn chain(host: &Host, main: &str, families: &[Family], backend: &str) -> Vec<Value> {
    let ranges: Vec<Value> = families.iter().map(|family| json!([{"subnet": family.pool}])).collect();
    let routes: Vec<Value> = families
        .iter()
        .map(|family| json!({"dst": family.everything}))
        .collect();
    let plugins = [
        json!({
            "type": main, "isGateway": true, "ipMasq": true, "ipMasqBackend": backend,
            "ipam": {"type": "host-local", "dataDir": host.data_dir(), "ranges": ranges, "routes": routes},
        }),
        json!({"type": "tuning", "mtu": 1400, "dataDir": host.folder.path().join("tuning")}),
        json!({
            "type": "bandwidth", "ingressRate": 800_000_000, "ingressBurst": 8_000_000,
            "egressRate": 800_000_000, "egressBurst": 8_000_000,
        }),
        json!({"type": "firewall", "backend": backend}),
        json!({
            "type": "portmap", "backend": backend, "capabilities": {"portMappings": true},
            "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
        }),
    ];
    let named = plugins.map(|plugin| {
        let mut config = json!({"cniVersion": "1.1.0", "name": "families"});
        merge(&mut config, plugin);
        config
    });
    named.to_vec()
}

fn socket(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn run_case(main: &str, families: &[Family], backend: &str) {
    let case = format!("{main}, {families:?}, {backend}");
    let (host, container) = (Host::new(), Container::new());
    let beyond = beyond(&host);
    let mut configs = chain(&host, main, families, backend);
    let mut result = Value::Null;
    for config in &mut configs {
        if !result.is_null() {
            config["prevResult"] = result;
        }
        result = host.add(&container, config);
    }
    assert_eq!(
        result["ips"].as_array().unwrap().len(),
        families.len(),
        "{case}: {result}"
    );
    let mut checked = configs.clone();
    for config in &mut checked {
        config["prevResult"] = result.clone();
        host.succeed("CHECK", &container, config);
    }
    let inside = container.namespace.inside(|| TcpListener::bind("[::]:80").unwrap());
    for family in families {
        let seen =
            connect_to(&beyond, &inside, socket(family.host, 8080)).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(seen.to_canonical().to_string(), family.beyond, "{case}");
        // From here on the host forwards only what firewall lets pass.
        run(
            "ip",
            &[
                "netns",
                "exec",
                &host.namespace.name,
                family.filter,
                "-P",
                "FORWARD",
                "DROP",
            ],
        );
        let outside = beyond.inside(|| TcpListener::bind(socket(family.beyond, 81)).unwrap());
        let seen = connect_to(&container.namespace, &outside, socket(family.beyond, 81));
        let seen = seen.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(seen.to_string(), family.host, "{case}: masqueraded");
    }
    for _ in 0..2 {
        for config in checked.iter().rev() {
            host.del(&container, config);
        }
    }
    let links = host.namespace.ip_json(&["link"]);
    let links: Vec<&str> = links.iter().filter_map(|link| link["ifname"].as_str()).collect();
    assert!(
        links.iter().all(|name| ["lo", "toworld", "cni0"].contains(name)),
        "{case}: {links:?}"
    );
    assert!(container.namespace.link("eth0").is_none(), "{case}");
    assert!(host.reserved("families").is_empty(), "{case}");
    let rules = host.namespace.rules();
    let own = ["10.11.0.2", "fd00:11::2", container.id.as_str()];
    assert!(!own.iter().any(|text| rules.contains(text)), "{case}: {rules}");
}

#[test]
fn a_bridge_in_every_family() {
    for families in CASES {
        for backend in ["nftables", "iptables"] {
            run_case("bridge", families, backend);
        }
    }
}

#[test]
fn a_pair_in_every_family() {
    for families in CASES {
        for backend in ["nftables", "iptables"] {
            run_case("ptp", families, backend);
        }
    }
}
