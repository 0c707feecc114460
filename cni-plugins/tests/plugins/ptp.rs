//! ptp: connections really made, and nothing left.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::fixture::{Container, Host, address, connect, merge};

fn config(host: &Host, more: Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "testnet", "type": "ptp", "ipMasq": true, "ipMasqBackend": "nftables",
        "ipam": {
            "type": "host-local", "dataDir": host.data_dir(), "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]],
        },
    });
    merge(&mut config, more);
    config
}

#[test]
fn containers_reach_each_other_by_the_host() {
    let (host, one, two) = (Host::new(), Container::new(), Container::new());
    let before = host.namespace.ip(&["-o", "addr"]);
    let config = config(&host, json!({}));
    let results = [host.add(&one, &config), host.add(&two, &config)];
    for family in [0, 1] {
        let addr = |result: &Value| -> std::net::IpAddr {
            let text = result["ips"][family]["address"].as_str().unwrap();
            text.split('/').next().unwrap().parse().unwrap()
        };
        let target = SocketAddr::new(addr(&results[1]), 80);
        // A neighbour in the same network sees the true address, though every packet passes the host.
        assert_eq!(
            connect(&one.namespace, &two.namespace, target).unwrap(),
            addr(&results[0])
        );
        let gateway: std::net::IpAddr = results[0]["ips"][family]["gateway"].as_str().unwrap().parse().unwrap();
        let target = SocketAddr::new(gateway, 81);
        connect(&one.namespace, &host.namespace, target).unwrap();
    }
    let mut checked = config.clone();
    checked["prevResult"] = results[0].clone();
    host.succeed("CHECK", &one, &checked);
    one.namespace.ip(&[
        "addr",
        "del",
        results[0]["ips"][0]["address"].as_str().unwrap(),
        "dev",
        "eth0",
    ]);
    assert!(host.fail("CHECK", &one, &checked).1.contains("Failed to match addr"));
    for container in [&one, &two] {
        host.del(container, &config);
        host.del(container, &config);
    }
    assert_eq!(host.namespace.ip(&["-o", "addr"]), before);
    assert!(host.reserved("testnet").is_empty());
    assert!(!host.namespace.rules().contains("testnet"));
}

#[test]
fn a_failed_add_leaves_everything_as_it_was() {
    let (host, container) = (Host::new(), Container::new());
    let first = config(&host, json!({}));
    let other = Container::new();
    host.add(&other, &first);
    // An address was given and taken back; the pointer to the last one moves on, as upstream's does.
    let state = || (host.kernel_state(&[&container]), host.reserved("testnet"));
    let before = state();
    let with_ipam = |ipam: Value| config(&host, json!({"ipam": ipam}));
    for (broken, text) in [
        (config(&host, json!({"mtu": 3})), "veth pair"),
        (with_ipam(json!({"type": "nonesuch"})), "failed to find plugin"),
        (
            with_ipam(json!({"type": "static", "addresses": []})),
            "missing IP config",
        ),
        (
            with_ipam(json!({"type": "static", "addresses": [{"address": "10.9.9.9/24"}]})),
            "no gateway",
        ),
        (
            with_ipam(
                json!({"type": "static", "routes": [{"dst": "10.7.0.0/16", "gw": "192.0.2.1"}],
                          "addresses": [{"address": "10.9.9.9/24", "gateway": "10.9.9.1"}]}),
            ),
            "failed to add route",
        ),
    ] {
        let (_, message) = host.fail("ADD", &container, &broken);
        assert!(message.contains(text), "{message}");
        assert_eq!(state(), before, "{text}");
    }
    container.namespace.ip(&["link", "add", "eth0", "type", "bridge"]);
    let before = state();
    assert!(host.fail("ADD", &container, &first).1.contains("already exists"));
    assert_eq!(state(), before);
}

#[test]
fn garbage_collection_frees_what_is_not_valid() {
    let (host, container) = (Host::new(), Container::new());
    let config = config(&host, json!({}));
    let result = host.add(&container, &config);
    let mut collected = config.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": container.id, "ifname": "eth0"}]);
    host.succeed("GC", &container, &collected);
    assert!(host.reserved("testnet").contains(&address(&result).to_string()));
    collected["cni.dev/valid-attachments"] = json!([]);
    host.succeed("GC", &container, &collected);
    assert!(host.reserved("testnet").is_empty());
    assert!(!host.namespace.rules().contains(&container.id));
    host.succeed("STATUS", &container, &config);
    host.del(&container, &config);
}

/// Addresses without a network, as some clusters give them.
#[test]
fn single_addresses_are_reached_by_the_gateway() {
    let (host, container) = (Host::new(), Container::new());
    let config = config(
        &host,
        json!({"ipam": {
            "type": "static", "routes": [{"dst": "10.9.7.0/24"}],
            "addresses": [{"address": "10.9.8.2/32", "gateway": "10.9.8.1"}],
        }}),
    );
    let (_, text) = host.fail("ADD", &container, &config);
    assert!(
        text.contains("failed to add route '10.9.7.0/24 via 10.9.8.1 dev eth0'"),
        "{text}"
    );
    let mut bare = config.clone();
    bare["ipam"]["routes"] = json!([]);
    let result = host.add(&container, &bare);
    let gateway = SocketAddr::new("10.9.8.1".parse().unwrap(), 80);
    assert_eq!(
        connect(&container.namespace, &host.namespace, gateway).unwrap(),
        address(&result)
    );
    host.del(&container, &bare);
}
