//! portmap behind bridge: connections really made, from outside, from the host, from the container itself.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{Container, Host, Namespace, address, bridge_config, connect_to, files, merge, run};

/// A host with one container on a bridge, and another machine that reaches only the host.
struct Network {
    host: Host,
    beyond: Namespace,
    config: Value,
}

impl Network {
    fn new() -> Self {
        let host = Host::new();
        let beyond = Namespace::new("b");
        let peer = ["type", "veth", "peer", "name", "tohost", "netns", &beyond.name];
        run(
            "ip",
            &[&["-n", &host.namespace.name, "link", "add", "toworld"][..], &peer].concat(),
        );
        for (namespace, link, v4, v6) in [
            (&host.namespace, "toworld", "192.0.2.1/24", "fd00:99::1/64"),
            (&beyond, "tohost", "192.0.2.2/24", "fd00:99::2/64"),
        ] {
            namespace.ip(&["addr", "add", v4, "dev", link]);
            namespace.ip(&["addr", "add", v6, "dev", link, "nodad"]);
            namespace.ip(&["link", "set", link, "up"]);
        }
        let mut config = bridge_config(
            &host,
            "10.3.0.0/24",
            json!({"isDefaultGateway": true, "hairpinMode": true}),
        );
        config["ipam"]["ranges"] = json!([[{"subnet": "10.3.0.0/24"}], [{"subnet": "fd00:3::/64"}]]);
        config["ipam"]["routes"] = json!([]);
        Self { host, beyond, config }
    }

    fn portmap(&self, mappings: Value, more: Value) -> Value {
        let mut config = json!({
            "cniVersion": "1.1.0", "name": "testnet", "type": "portmap", "capabilities": {"portMappings": true},
            "runtimeConfig": {"portMappings": mappings},
        });
        merge(&mut config, more);
        config
    }

    /// Attaches a container by both plugins; returns its IPv4 address.
    fn add(&self, container: &Container, portmap: &Value) -> (IpAddr, Value) {
        let result = self.host.add(container, &self.config);
        let mut chained = portmap.clone();
        chained["prevResult"] = result.clone();
        assert_eq!(
            self.host.add(container, &chained),
            result,
            "the result is passed through"
        );
        self.host.succeed("CHECK", container, &chained);
        (address(&result), chained)
    }

    fn del(&self, container: &Container, portmap: &Value) {
        self.host.del(container, portmap);
        self.host.del(container, &self.config);
    }

    fn mapped_rules(&self, container: &Container) -> usize {
        self.host
            .namespace
            .rules()
            .matches(&format!("comment \"{}\"", container.id))
            .count()
    }
}

fn listen(container: &Container, port: u16) -> TcpListener {
    container.namespace.inside(|| TcpListener::bind(("::", port)).unwrap())
}

fn target(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The client's address as an IPv4 address if it is one.
fn seen(from: &Namespace, listener: &TcpListener, to: &str) -> std::io::Result<String> {
    connect_to(from, listener, target(to)).map(|addr| addr.to_canonical().to_string())
}

#[test]
fn a_port_is_reached_from_everywhere() {
    let (network, container) = (Network::new(), Container::new());
    let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let (own, portmap) = network.add(&container, &network.portmap(mapping, json!({})));
    let listener = listen(&container, 80);
    assert_eq!(
        seen(&network.beyond, &listener, "192.0.2.1:8080").unwrap(),
        "192.0.2.2",
        "the client is seen"
    );
    assert_eq!(
        seen(&network.beyond, &listener, "[fd00:99::1]:8080").unwrap(),
        "fd00:99::2"
    );
    assert_eq!(
        seen(&network.host.namespace, &listener, "127.0.0.1:8080").unwrap(),
        "10.3.0.1",
        "localhost is masqueraded"
    );
    seen(&network.host.namespace, &listener, "192.0.2.1:8080").unwrap();
    assert_eq!(
        seen(&container.namespace, &listener, "192.0.2.1:8080").unwrap(),
        "10.3.0.1",
        "hairpin"
    );
    let neighbour = Container::new();
    network.host.add(&neighbour, &network.config);
    assert_ne!(
        seen(&neighbour.namespace, &listener, "10.3.0.1:8080").unwrap(),
        own.to_string()
    );
    network.del(&container, &portmap);
    assert!(seen(&network.beyond, &listener, "192.0.2.1:8080").is_err());
    assert_eq!(network.mapped_rules(&container), 0);
    network.host.del(&neighbour, &network.config);
    network.del(&container, &portmap);
}

#[test]
fn many_ports_protocols_and_host_addresses() {
    let (network, container) = (Network::new(), Container::new());
    network
        .host
        .namespace
        .ip(&["addr", "add", "192.0.2.7/24", "dev", "toworld"]);
    let mut mappings: Vec<Value> = (0..20)
        .map(|port| json!({"hostPort": 7000 + port, "containerPort": 80, "protocol": "tcp"}))
        .collect();
    mappings.push(json!({"hostPort": 7100, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.7"}));
    mappings.push(json!({"hostPort": 7101, "containerPort": 80, "protocol": "tcp", "hostIP": "0.0.0.0"}));
    mappings.push(json!({"hostPort": 7102, "containerPort": 80, "protocol": "sctp"}));
    let (_, portmap) = network.add(&container, &network.portmap(json!(mappings), json!({})));
    let listener = listen(&container, 80);
    for port in [7000, 7019, 7101] {
        seen(&network.beyond, &listener, &format!("192.0.2.1:{port}")).unwrap();
    }
    seen(&network.beyond, &listener, "192.0.2.7:7100").unwrap();
    assert!(
        seen(&network.beyond, &listener, "192.0.2.1:7100").is_err(),
        "only the named address"
    );
    assert!(
        seen(&network.beyond, &listener, "[fd00:99::1]:7101").is_err(),
        "0.0.0.0 is IPv4 alone"
    );
    let rules = network.host.namespace.rules();
    assert!(rules.contains("sctp dport 7102 dnat to 10.3.0.2:80"), "{rules}");
    network.del(&container, &portmap);
    assert_eq!(network.mapped_rules(&container), 0);
}

#[test]
fn conditions_keep_others_out() {
    let network = Network::new();
    for conditions in [json!(["ip saddr != 192.0.2.2"]), json!(["!", "-s", "192.0.2.2"])] {
        let container = Container::new();
        let mapping = json!([{"hostPort": 8081, "containerPort": 80, "protocol": "tcp"}]);
        let (_, portmap) = network.add(
            &container,
            &network.portmap(mapping, json!({"conditionsV4": conditions})),
        );
        let listener = listen(&container, 80);
        assert!(seen(&network.beyond, &listener, "192.0.2.1:8081").is_err());
        network.beyond.ip(&["addr", "add", "192.0.2.3/24", "dev", "tohost"]);
        network.beyond.ip(&["addr", "del", "192.0.2.2/24", "dev", "tohost"]);
        network.beyond.ip(&["addr", "replace", "192.0.2.3/24", "dev", "tohost"]);
        assert_eq!(seen(&network.beyond, &listener, "192.0.2.1:8081").unwrap(), "192.0.2.3");
        network.beyond.ip(&["addr", "replace", "192.0.2.2/24", "dev", "tohost"]);
        network.beyond.ip(&["addr", "del", "192.0.2.3/24", "dev", "tohost"]);
        network.beyond.ip(&["addr", "replace", "192.0.2.2/24", "dev", "tohost"]);
        network.del(&container, &portmap);
    }
}

#[test]
fn a_live_udp_flow_moves_to_the_new_container() {
    let (network, other) = (Network::new(), Container::new());
    // Somebody else's mapping: without any, the kernel tracks no connection.
    let others = json!([{"hostPort": 8001, "containerPort": 80, "protocol": "tcp"}]);
    let (_, others) = network.add(&other, &network.portmap(others, json!({})));
    let mapping = json!([{"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]);
    let server = |container: &Container| {
        let socket = container.namespace.inside(|| UdpSocket::bind("0.0.0.0:53").unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        socket
    };
    let client = network.beyond.inside(|| UdpSocket::bind("192.0.2.2:4444").unwrap());
    let mut buffer = [0; 8];
    for round in 0..3u8 {
        let container = Container::new();
        // The client speaks before the port is mapped, so the host remembers a flow that leads to itself.
        client.send_to(&[99], "192.0.2.1:5353").unwrap();
        let (_, portmap) = network.add(&container, &network.portmap(mapping.clone(), json!({})));
        let server = server(&container);
        client.send_to(&[round], "192.0.2.1:5353").unwrap();
        let (_, peer) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((buffer[0], peer.ip().to_string().as_str()), (round, "192.0.2.2"));
        network.del(&container, &portmap);
        assert_eq!(
            tracked(&network.host.namespace),
            0,
            "no flow to the old container is remembered"
        );
    }
    network.del(&other, &others);
}

/// How many connections to the test's UDP port the kernel remembers.
fn tracked(namespace: &Namespace) -> usize {
    let table = namespace.inside(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap());
    table
        .lines()
        .filter(|line| line.contains("udp") && line.contains("dport=5353"))
        .count()
}

#[test]
fn del_needs_no_mappings_no_result_and_no_namespace() {
    let (network, other) = (Network::new(), Container::new());
    let mapping = |port: u16| json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]);
    let (_, kept) = network.add(&other, &network.portmap(mapping(8001), json!({})));
    for lost_note in [false, true] {
        let container = Container::new();
        network.add(&container, &network.portmap(mapping(8002), json!({})));
        assert!(network.mapped_rules(&container) > 0);
        let mut variables = network.host.variables("DEL", &container);
        if lost_note {
            // As if another implementation had made the rules.
            let own = format!("/run/cni/rules/{}", network.host.namespace.inside(own_namespace));
            for (path, text) in files(Path::new(&own)) {
                if text.starts_with(&container.id) {
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
        variables.insert("CNI_NETNS", String::new());
        let bare = json!({"cniVersion": "1.1.0", "name": "testnet", "type": "portmap"});
        assert!(network.host.call(&variables, &bare).status.success());
        assert_eq!(network.mapped_rules(&container), 0);
        network.host.del(&container, &network.config);
    }
    assert!(network.mapped_rules(&other) > 0, "another container's rules stay");
    network.del(&other, &kept);
}

/// The number of the calling thread's network namespace.
fn own_namespace() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino()
}

/// Garbage collection finds the rules of vanished containers without any note, and sweeps notes of vanished hosts.
#[test]
fn garbage_collection_needs_no_notes() {
    // As of a namespace that is gone. The kernel gives the numbers of namespaces that are gone to new ones, also those of other
    // tests, so that this one is none it ever gives.
    let gone = Path::new("/run/cni/rules/7");
    for backend in ["nftables", "iptables"] {
        let network = Network::new();
        let [kept, lost] = [Container::new(), Container::new()];
        for (container, port) in [(&kept, 8001), (&lost, 8002)] {
            let mapping = json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]);
            network.add(container, &network.portmap(mapping, json!({"backend": backend})));
        }
        std::fs::create_dir_all(gone).unwrap();
        let notes = format!("/run/cni/rules/{}", network.host.namespace.inside(own_namespace));
        std::fs::remove_dir_all(&notes).unwrap();
        let rules = |container: &Container| {
            let host = &network.host.namespace;
            network.mapped_rules(container) + host.iptables("nat").matches(&container.id).count()
        };
        let all = rules(&kept);
        assert!(all > 0 && rules(&lost) == all);
        let mut collected = network.portmap(json!([]), json!({"backend": backend}));
        collected["cni.dev/valid-attachments"] = json!([{"containerID": kept.id, "ifname": "eth0"}]);
        network.host.succeed("GC", &kept, &collected);
        assert_eq!((rules(&kept), rules(&lost)), (all, 0), "{backend}");
        assert!(!gone.exists(), "notes of a vanished namespace are swept");
    }
}

/// The same connections as with nftables, by the backend a configuration names.
#[test]
fn iptables_maps_ports_where_it_is_named() {
    let (network, container) = (Network::new(), Container::new());
    let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let portmap = network.portmap(mapping, json!({"backend": "iptables"}));
    let (_, portmap) = network.add(&container, &portmap);
    let listener = container.namespace.inside(|| TcpListener::bind("0.0.0.0:80").unwrap());
    let reach = |from: &Namespace, target: &str| connect_to(from, &listener, target.parse().unwrap()).unwrap();
    assert_eq!(reach(&network.beyond, "192.0.2.1:8080").to_string(), "192.0.2.2");
    reach(&network.host.namespace, "127.0.0.1:8080");
    reach(&container.namespace, "192.0.2.1:8080");
    let state = network.host.namespace.iptables("nat");
    network.host.add(&container, &portmap);
    assert_eq!(
        network.host.namespace.iptables("nat"),
        state,
        "ADD again changes nothing"
    );
    network.del(&container, &portmap);
    let left = network.host.namespace.iptables("nat");
    assert!(!left.contains("CNI-DN-") && !left.contains(&container.id), "{left}");
    assert!(
        network
            .host
            .fail("CHECK", &container, &portmap)
            .1
            .contains("port mapping rule not found")
    );
}

#[test]
fn refusals_change_nothing() {
    let (network, container) = (Network::new(), Container::new());
    let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let result = network.host.add(&container, &network.config);
    let before = network.host.state(&[&container]);
    let portmap = network.portmap(mapping.clone(), json!({}));
    assert_eq!(
        network.host.fail("ADD", &container, &portmap).1,
        "must be called as chained plugin"
    );
    let with_result = |more: Value| {
        let mut config = network.portmap(mapping.clone(), json!({"prevResult": result.clone()}));
        merge(&mut config, more);
        config
    };
    for (more, text) in [
        (
            json!({"runtimeConfig": {"portMappings": [{"hostPort": -1, "containerPort": 80}]}}),
            "failed to parse config: Invalid host port number: -1",
        ),
        (
            json!({"runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 0}]}}),
            "failed to parse config: Invalid container port number: 0",
        ),
        (
            json!({"conditionsV4": ["-m", "nonsense"]}),
            "failed to parse config: unsupported port mapping condition at \"-m\"",
        ),
        (
            json!({"backend": "magic"}),
            "failed to parse config: unrecognized backend \"magic\"",
        ),
    ] {
        assert_eq!(network.host.fail("ADD", &container, &with_result(more)).1, text);
    }
    let none = with_result(json!({"runtimeConfig": {}}));
    assert_eq!(network.host.add(&container, &none), result);
    assert_eq!(network.host.state(&[&container]), before);
    network.host.del(&container, &network.config);
}

#[test]
fn garbage_collection_and_repetition() {
    let network = Network::new();
    let (one, two) = (Container::new(), Container::new());
    let mapping = |port: u16| json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]);
    let (_, first) = network.add(&one, &network.portmap(mapping(8001), json!({})));
    network.add(&two, &network.portmap(mapping(8002), json!({})));
    let count = network.mapped_rules(&one);
    network.host.add(&one, &first);
    assert_eq!(network.mapped_rules(&one), count, "a repeated ADD replaces its rules");
    let mut collected = first.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": one.id, "ifname": "eth0"}]);
    network.host.succeed("GC", &one, &collected);
    assert_eq!((network.mapped_rules(&one), network.mapped_rules(&two)), (count, 0));
    let mut checked = first.clone();
    run(
        "ip",
        &[
            "netns",
            "exec",
            &network.host.namespace.name,
            "nft",
            "flush",
            "chain",
            "ip",
            "cni_hostport",
            "hostports",
        ],
    );
    checked["prevResult"] = first["prevResult"].clone();
    assert!(network.host.fail("CHECK", &one, &checked).1.contains("found 0 of 1"));
    network.del(&one, &first);
    network.host.del(&two, &network.config);
}
