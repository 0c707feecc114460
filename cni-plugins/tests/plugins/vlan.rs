//! VLANs of bridge ports. They need a kernel whose bridges know VLANs (`CONFIG_BRIDGE_VLAN_FILTERING`); on another these
//! tests say so by name and end. `hack/vm` has such a kernel:
//!
//! ```text
//! hack/vm up
//! hack/vm run 'cat >/root/cni-plugins' <target/x86_64-unknown-linux-gnu/static/cni-plugins
//! hack/vm run 'cat >/root/tests' <target/debug/deps/plugins-...      # as cargo test --no-run names it
//! hack/vm run 'chmod +x /root/tests /root/cni-plugins && SKIFF_CNI_PLUGINS=/root/cni-plugins /root/tests vlan'
//! ```

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::fixture::{Container, Host, Namespace, address, bridge_config, connect, run};

/// Whether this kernel's bridges know VLANs.
pub(crate) fn is_known(test: &str) -> bool {
    let namespace = Namespace::new("v");
    let made = std::process::Command::new("ip")
        .args([
            "-n",
            &namespace.name,
            "link",
            "add",
            "br0",
            "type",
            "bridge",
            "vlan_filtering",
            "1",
        ])
        .output()
        .unwrap();
    if !made.status.success() {
        eprintln!("SKIPPED {test}: this kernel has no CONFIG_BRIDGE_VLAN_FILTERING (see hack/vm)");
    }
    made.status.success()
}

/// The VLANs of a link: number, whether untagged frames that arrive belong to it, whether its frames leave untagged.
fn vlans(host: &Host, link: &str) -> Vec<(u64, bool, bool)> {
    let text = run(
        "bridge",
        &["-n", &host.namespace.name, "-json", "vlan", "show", "dev", link],
    );
    let shown: Value = serde_json::from_str(&text).unwrap();
    let mut found = Vec::new();
    for entry in shown[0]["vlans"].as_array().cloned().unwrap_or_default() {
        let flags = entry["flags"].as_array().cloned().unwrap_or_default();
        let has = |flag: &str| flags.iter().any(|found| found == flag);
        let first = entry["vlan"].as_u64().unwrap();
        let last = entry["vlanEnd"].as_u64().unwrap_or(first);
        found.extend((first..=last).map(|id| (id, has("PVID"), has("Egress Untagged"))));
    }
    found
}

fn port(result: &Value) -> String {
    result["interfaces"][1]["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_port_carries_the_vlans_of_its_configuration() {
    if !is_known("a_port_carries_the_vlans_of_its_configuration") {
        return;
    }
    let own = (100, true, true);
    let default = (1, true, true);
    for (more, expected) in [
        (json!({"vlan": 100}), vec![own]),
        (
            json!({"vlan": 100, "preserveDefaultVlan": true}),
            vec![(1, false, true), own],
        ),
        (
            json!({"vlanTrunk": [{"id": 101}, {"minID": 200, "maxID": 202}]}),
            vec![
                default,
                (101, false, false),
                (200, false, false),
                (201, false, false),
                (202, false, false),
            ],
        ),
        (
            json!({"vlan": 100, "vlanTrunk": [{"id": 101}]}),
            vec![own, (101, false, false)],
        ),
    ] {
        let (host, container) = (Host::new(), Container::new());
        let mut config = bridge_config(&host, "10.11.0.0/24", more.clone());
        config["isGateway"] = json!(false);
        let result = host.add(&container, &config);
        assert_eq!(vlans(&host, &port(&result)), expected, "{more}");
        let mut checked = config.clone();
        checked["prevResult"] = result;
        host.succeed("CHECK", &container, &checked);
        host.del(&container, &config);
    }
}

#[test]
fn containers_of_one_vlan_reach_each_other_and_their_gateway_alone() {
    if !is_known("containers_of_one_vlan_reach_each_other_and_their_gateway_alone") {
        return;
    }
    let host = Host::new();
    let config = |vlan: u16, subnet: &str| {
        bridge_config(
            &host,
            subnet,
            json!({"name": format!("net{vlan}"), "vlan": vlan, "ipMasq": false}),
        )
    };
    let [red, blue] = [config(100, "10.11.1.0/24"), config(200, "10.11.1.0/24")];
    let [one, two, other] = [Container::new(), Container::new(), Container::new()];
    let results = [host.add(&one, &red), host.add(&two, &red), host.add(&other, &blue)];
    assert_eq!(results[0]["interfaces"][3]["name"], "cni0.100");
    assert_eq!(host.namespace.addresses("cni0.100"), ["10.11.1.1/24"]);
    let reach = |from: &Container, to: &Namespace, addr: std::net::IpAddr| {
        connect(&from.namespace, to, SocketAddr::new(addr, 80)).is_ok()
    };
    assert!(reach(&one, &two.namespace, address(&results[1])));
    assert!(reach(&one, &host.namespace, "10.11.1.1".parse().unwrap()));
    // The other VLAN's container has an address of the same network, and frames do not cross over.
    assert_eq!(address(&results[2]), address(&results[0]));
    let before = vlans(&host, &port(&results[2]));
    assert_eq!(before, [(200, true, true)]);
    for (container, config) in [(&one, &red), (&two, &red), (&other, &blue)] {
        host.del(container, config);
    }
}
