//! The whole chain (bridge or ptp with host-local, then tuning, bandwidth, firewall and portmap) in IPv4, IPv6 and both:
//! ports are reached, what goes out is forwarded and masqueraded, CHECK agrees, and nothing is left. And of single plugins what
//! depends on the family: garbage collection, the check of hardware addresses, interfaces that stay down.

use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::fixture::{Container, Host, Namespace, connect_to, merge, reaches, run};

/// What one family needs: the pool, the default route, the host as others see it, and another machine.
#[derive(Clone, Copy, Debug)]
struct Family {
    pool: &'static str,
    everything: &'static str,
    gateway: &'static str,
    host: &'static str,
    beyond: &'static str,
    filter: &'static str,
}

const FOUR: Family = Family {
    pool: "10.11.0.0/24",
    everything: "0.0.0.0/0",
    gateway: "10.11.0.1",
    host: "192.0.2.1",
    beyond: "192.0.2.2",
    filter: "iptables",
};
const SIX: Family = Family {
    pool: "fd00:11::/64",
    everything: "::/0",
    gateway: "fd00:11::1",
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

/// The addresses an ADD gave.
fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    let full = ips.map(|ip| ip["address"].as_str().unwrap());
    full.map(|address| address.split('/').next().unwrap().to_owned())
        .collect()
}

/// How often the host's rules name one of the addresses.
fn mentions(host: &Host, addresses: &[String]) -> usize {
    let rules = host.namespace.rules();
    let words = rules.split_whitespace();
    words.filter(|word| addresses.iter().any(|own| own == word)).count()
}

/// What is collected of a container that is gone, and kept of one that is not; `backend` is empty where none is named.
fn collect_case(main: &str, families: &[Family], backend: &str) {
    let case = format!("{main}, {families:?}, {backend:?}");
    let host = Host::new();
    let [kept, lost, elsewhere] = [Container::new(), Container::new(), Container::new()];
    let mut config = chain(&host, main, families, backend).remove(0);
    if backend.is_empty() {
        config.as_object_mut().unwrap().remove("ipMasqBackend");
    }
    let mut other = config.clone();
    other["name"] = json!("elsewhere");
    let [of_kept, of_lost] = [&kept, &lost].map(|container| addresses(&host.add(container, &config)));
    let each = mentions(&host, &of_kept);
    assert!(each >= families.len() && mentions(&host, &of_lost) == each, "{case}");
    let ranges: Vec<Value> = ["10.12.0.0/24", "fd00:12::/64"]
        .iter()
        .map(|subnet| json!([{"subnet": subnet}]))
        .collect();
    other["ipam"]["ranges"] = json!(ranges);
    other["bridge"] = json!("cni1");
    let of_elsewhere = addresses(&host.add(&elsewhere, &other));
    let before = mentions(&host, &of_elsewhere);

    let mut collected = config.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": kept.id, "ifname": "eth0"}]);
    for _ in 0..2 {
        host.succeed("GC", &kept, &collected);
        let mut reserved = of_kept.clone();
        reserved.sort();
        assert_eq!(host.reserved("families"), reserved, "{case}");
        let left = [&of_kept, &of_lost, &of_elsewhere].map(|own| mentions(&host, own));
        assert_eq!(left, [each, 0, before], "{case}: {}", host.namespace.rules());
    }
    for (container, config) in [(&kept, &config), (&lost, &config), (&elsewhere, &other)] {
        host.del(container, config);
    }
    let rules = host.namespace.rules();
    assert!(!rules.contains("chain CNI-"), "{case}: {rules}");
    assert_eq!(mentions(&host, &[of_kept, of_elsewhere].concat()), 0, "{case}: {rules}");
}

#[test]
fn garbage_collection_in_every_family() {
    for families in CASES {
        for backend in ["nftables", "iptables", ""] {
            collect_case("bridge", families, backend);
            collect_case("ptp", families, backend);
        }
    }
}

/// Whether a connection to the bridge's address comes about.
fn reaches_gateway(host: &Host, container: &Container, family: &Family, port: u16) -> bool {
    let listener = host
        .namespace
        .inside(|| TcpListener::bind(socket(family.gateway, port)).unwrap());
    reaches(&container.namespace, &listener, socket(family.gateway, port))
}

#[test]
fn frames_with_a_foreign_address_are_dropped_in_every_family() {
    for families in CASES {
        let (host, container) = (Host::new(), Container::new());
        let open = chain(&host, "bridge", families, "nftables").remove(0);
        let mut checked = open.clone();
        checked["macspoofchk"] = json!(true);
        for (config, is_checked) in [(&checked, true), (&open, false)] {
            host.add(&container, config);
            for (port, family) in (81..).zip(families) {
                assert!(reaches_gateway(&host, &container, family, port), "{family:?}");
            }
            let foreign = ["link", "set", "eth0", "address", "02:5b:00:00:00:01"];
            container.namespace.ip(&foreign);
            // What the host knows of the container's own address would mislead its answers.
            host.namespace.ip(&["neigh", "flush", "dev", "cni0"]);
            for (port, family) in (91..).zip(families) {
                let reaches = reaches_gateway(&host, &container, family, port);
                assert_eq!(reaches, !is_checked, "{family:?}");
            }
            host.del(&container, config);
            let rules = host.namespace.rules();
            assert!(!rules.contains("cni-br-iface"), "{rules}");
        }
    }
}

/// Who leaves the interface down gives it its addresses later, of whichever family; a pool is refused for all of them.
#[test]
fn an_interface_that_stays_down_carries_every_family_once_it_is_up() {
    for families in CASES {
        let (host, container) = (Host::new(), Container::new());
        let with_pool = {
            let mut config = chain(&host, "bridge", families, "nftables").remove(0);
            config["disableContainerInterface"] = json!(true);
            config
        };
        let (_, message) = host.fail("ADD", &container, &with_pool);
        assert!(
            message.contains("cannot use IPAM when DisableContainerInterface flag is set"),
            "{message}"
        );
        let mut config = with_pool;
        merge(&mut config, json!({"ipam": {}, "isGateway": false, "ipMasq": false}));
        host.add(&container, &config);
        assert_eq!(container.namespace.link("eth0").unwrap()["operstate"], "DOWN");
        assert!(container.namespace.addresses("eth0").is_empty());
        container.namespace.ip(&["link", "set", "eth0", "up"]);
        for (port, family) in (81..).zip(families) {
            let length = if family.pool.contains(':') { 64 } else { 24 };
            for (namespace, link, own) in [
                (&host.namespace, "cni0", family.gateway.to_owned()),
                (&container.namespace, "eth0", family.gateway.to_owned() + "7"),
            ] {
                let address = format!("{own}/{length}");
                let quick: &[&str] = if length == 64 { &["nodad"] } else { &[] };
                namespace.ip(&[&["addr", "add", &address, "dev", link], quick].concat());
            }
            assert!(reaches_gateway(&host, &container, family, port), "{family:?}");
        }
        host.del(&container, &config);
        assert!(container.namespace.link("eth0").is_none());
    }
}
