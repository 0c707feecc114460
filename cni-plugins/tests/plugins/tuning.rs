//! tuning behind bridge.

use serde_json::{Value, json};

use crate::fixture::{Container, Host, bridge_config, files, merge};

fn config(host: &Host, result: &Value, more: Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "testnet", "type": "tuning", "prevResult": result,
        "dataDir": host.folder.path().join("tuning"),
    });
    merge(&mut config, more);
    config
}

#[test]
fn attributes_are_set_and_given_back() {
    let (host, container) = (Host::new(), Container::new());
    let bridge = bridge_config(&host, "10.8.0.0/24", json!({}));
    let result = host.add(&container, &bridge);
    let before = container.namespace.ip(&["-o", "link", "show", "eth0"]);
    let wanted = json!({
        "mac": "02:00:00:00:00:77", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 77,
        "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"},
    });
    let tuning = config(&host, &result, wanted);
    let tuned = host.add(&container, &tuning);
    assert_eq!(tuned["interfaces"][2]["mac"], "02:00:00:00:00:77");
    let link = container.namespace.link("eth0").unwrap();
    assert_eq!((link["mtu"].as_u64(), link["txqlen"].as_u64()), (Some(1400), Some(77)));
    assert_eq!(link["address"], "02:00:00:00:00:77");
    assert_eq!(
        (link["promiscuity"].as_u64(), link["allmulti"].as_u64()),
        (Some(1), Some(1))
    );
    assert_eq!(container.namespace.switch("ipv4/conf/eth0/arp_filter"), "1");
    host.succeed("CHECK", &container, &tuning);
    container.namespace.ip(&["link", "set", "eth0", "mtu", "1300"]);
    assert!(
        host.fail("CHECK", &container, &tuning)
            .1
            .contains("configured MTU of eth0 is 1400")
    );
    host.del(&container, &tuning);
    host.del(&container, &tuning);
    assert_eq!(container.namespace.ip(&["-o", "link", "show", "eth0"]), before);
    assert!(files(&host.folder.path().join("tuning")).is_empty());
    host.del(&container, &bridge);
}

/// A step that fails takes the earlier ones back, switches too.
#[test]
fn a_failed_add_leaves_everything_as_it_was() {
    let (host, container) = (Host::new(), Container::new());
    let bridge = bridge_config(&host, "10.8.1.0/24", json!({}));
    let result = host.add(&container, &bridge);
    let before = host.state(&[&container]);
    for more in [
        json!({"mtu": 1400, "mac": "nonsense"}),
        json!({"mac": "02:00:00:00:00:77", "mtu": 1}),
        json!({"sysctl": {"net.ipv4.conf.eth0.arp_filter": "1", "net.ipv4.nonesuch": "1"}}),
        json!({"sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"}, "mac": "01:00:00:00:00:00"}),
        json!({"sysctl": {"net.ipv4.conf.eth0.arp_filter": "1", "net/../kernel/panic": "1"}}),
    ] {
        host.fail("ADD", &container, &config(&host, &result, more.clone()));
        assert_eq!(host.state(&[&container]), before, "{more}");
        assert_eq!(container.namespace.switch("ipv4/conf/eth0/arp_filter"), "0", "{more}");
        assert!(files(&host.folder.path().join("tuning")).is_empty(), "{more}");
    }
    host.del(&container, &bridge);
}

#[test]
fn memories_of_vanished_containers_go() {
    let (host, container) = (Host::new(), Container::new());
    let bridge = bridge_config(&host, "10.8.2.0/24", json!({}));
    let result = host.add(&container, &bridge);
    let tuning = config(&host, &result, json!({"mtu": 1400}));
    let memories = || files(&host.folder.path().join("tuning")).len();
    host.add(&container, &tuning);
    let mut collected = tuning.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": container.id, "ifname": "eth0"}]);
    host.succeed("GC", &container, &collected);
    assert_eq!(memories(), 1);
    collected["cni.dev/valid-attachments"] = json!([]);
    host.succeed("GC", &container, &collected);
    assert_eq!(memories(), 0);
    host.add(&container, &tuning);
    let mut variables = host.variables("DEL", &container);
    variables.insert("CNI_NETNS", "/nowhere".into());
    assert!(host.call(&variables, &tuning).status.success());
    assert_eq!(memories(), 0);
    host.del(&container, &bridge);
}
