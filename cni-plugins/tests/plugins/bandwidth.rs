//! bandwidth behind bridge.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::fixture::{Container, Host, address, bridge_config, connect, merge, run};

fn disciplines(host: &Host) -> String {
    run("tc", &["-n", &host.namespace.name, "qdisc", "show"])
}

#[test]
fn both_directions_are_limited() {
    let (host, container) = (Host::new(), Container::new());
    let bridge = bridge_config(&host, "10.7.0.0/24", json!({"mtu": 1400}));
    let result = host.add(&container, &bridge);
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "testnet", "type": "bandwidth", "prevResult": result,
        "runtimeConfig": {"bandwidth": {
            "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 16_000_000, "egressBurst": 1_600_000,
        }},
    });
    config["prevResult"]["cniVersion"] = json!("1.0.0");
    let limited = host.add(&container, &config);
    let interfaces = limited["interfaces"].as_array().unwrap();
    assert_eq!(interfaces.len(), 4);
    let device = interfaces[3]["name"].as_str().unwrap().to_owned();
    let port = interfaces[1]["name"].as_str().unwrap();
    assert_eq!(host.namespace.link(&device).unwrap()["mtu"], 1400);
    let shown = disciplines(&host);
    for (start, end) in [
        (
            format!("qdisc tbf 1: dev {port} root"),
            "rate 8Mbit burst 100000b lat 25ms",
        ),
        (
            format!("qdisc tbf 1: dev {device} root"),
            "rate 16Mbit burst 200000b lat 25ms",
        ),
        (format!("qdisc ingress ffff: dev {port}"), ""),
    ] {
        let found = shown.lines().any(|line| line.starts_with(&start) && line.contains(end));
        assert!(found, "{start} {end}\n{shown}");
    }
    // What the container sends passes the device.
    let gateway = SocketAddr::new("10.7.0.1".parse().unwrap(), 80);
    assert_eq!(
        connect(&container.namespace, &host.namespace, gateway).unwrap(),
        address(&result)
    );
    let counted: Value =
        host.namespace.ip_json(&["-s", "link", "show", "dev", &device])[0]["stats64"]["tx"]["packets"].clone();
    assert!(counted.as_u64().unwrap() > 0, "{counted}");
    let mut checked = config.clone();
    checked["prevResult"] = limited;
    host.succeed("CHECK", &container, &checked);
    run(
        "tc",
        &["-n", &host.namespace.name, "qdisc", "del", "dev", &device, "root"],
    );
    assert!(
        host.fail("CHECK", &container, &checked)
            .1
            .contains("is not limited to 2000000 bytes per second")
    );
    host.del(&container, &config);
    host.del(&container, &config);
    assert!(host.namespace.link(&device).is_none());
    host.del(&container, &bridge);
}

/// The container's interface was made by somebody the previous plugins do not know.
#[test]
fn what_is_not_in_the_previous_result_is_not_limited() {
    let (host, container) = (Host::new(), Container::new());
    let bridge = bridge_config(&host, "10.7.2.0/24", json!({}));
    let mut result = host.add(&container, &bridge);
    result["cniVersion"] = json!("1.0.0");
    let config = |result: &Value| {
        json!({
            "cniVersion": "1.0.0", "name": "testnet", "type": "bandwidth", "prevResult": result,
            "ingressRate": 8_000_000, "ingressBurst": 800_000,
        })
    };
    let mut foreign = result.clone();
    foreign["interfaces"][1]["name"] = json!("another");
    for command in ["ADD", "CHECK"] {
        let (code, text) = host.fail(command, &container, &config(&foreign));
        assert_eq!(
            (code, text.as_str()),
            (999, "no veth peer of container interface found in host ns")
        );
    }
    assert!(!disciplines(&host).contains("tbf"));
    host.add(&container, &config(&result));
    assert!(disciplines(&host).contains("tbf"));
    host.del(&container, &config(&result));
    host.del(&container, &bridge);
}

#[test]
fn without_limits_nothing_happens() {
    let (host, container) = (Host::new(), Container::new());
    let bridge = bridge_config(&host, "10.7.1.0/24", json!({"cniVersion": "1.0.0"}));
    let result = host.add(&container, &bridge);
    let config = json!({"cniVersion": "1.0.0", "name": "testnet", "type": "bandwidth"});
    assert_eq!(
        host.fail("ADD", &container, &config).1,
        "must be called as chained plugin"
    );
    let with = |more: Value| {
        let mut config = config.clone();
        config["prevResult"] = result.clone();
        merge(&mut config, more);
        config
    };
    let before = disciplines(&host);
    assert_eq!(host.add(&container, &with(json!({}))), result);
    assert_eq!(
        host.fail("ADD", &container, &with(json!({"egressRate": 8}))).1,
        "if rate is set, burst must also be set"
    );
    let old = json!({"cniVersion": "0.2.0"});
    assert_eq!(
        host.fail("ADD", &container, &with(old)),
        (1, "incompatible CNI versions".into())
    );
    assert_eq!(disciplines(&host), before);
    host.del(&container, &bridge);
}

#[test]
fn garbage_collection_deletes_the_device() {
    let (host, container) = (Host::new(), Container::new());
    let bridge = bridge_config(&host, "10.7.2.0/24", json!({}));
    let result = host.add(&container, &bridge);
    let config = json!({
        "cniVersion": "1.1.0", "name": "testnet", "type": "bandwidth", "prevResult": result,
        "egressRate": 8_000_000, "egressBurst": 800_000,
    });
    let device = host.add(&container, &config)["interfaces"][3]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut collected = config.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": container.id, "ifname": "eth0"}]);
    host.succeed("GC", &container, &collected);
    assert!(host.namespace.link(&device).is_some());
    collected["cni.dev/valid-attachments"] = json!([]);
    host.succeed("GC", &container, &collected);
    assert!(host.namespace.link(&device).is_none());
    host.del(&container, &bridge);
}
