//! bridge: what it makes, what it refuses, and that nothing stays.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::fixture::{Container, Host, Namespace, address, bridge_config, connect, merge, run};

fn assert_nothing_left(host: &Host, containers: &[&Container]) {
    let links: Vec<String> = host
        .namespace
        .ip_json(&["link"])
        .iter()
        .map(|link| link["ifname"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        links.iter().all(|name| name == "lo" || name.starts_with("cni0")),
        "{links:?}"
    );
    for container in containers {
        assert!(container.namespace.link("eth0").is_none());
    }
    assert!(host.reserved("testnet").is_empty(), "{:?}", host.reserved("testnet"));
    assert!(
        !host.namespace.rules().contains("masquerade comment"),
        "{}",
        host.namespace.rules()
    );
}

#[test]
fn a_container_is_attached_and_leaves_nothing() {
    let (host, container) = (Host::new(), Container::new());
    let config = bridge_config(&host, "10.1.2.0/24", json!({"mtu": 1400, "hairpinMode": true}));
    let result = host.add(&container, &config);

    let interfaces = result["interfaces"].as_array().unwrap();
    let names: Vec<&str> = interfaces
        .iter()
        .map(|interface| interface["name"].as_str().unwrap())
        .collect();
    assert_eq!((names[0], names[2]), ("cni0", "eth0"));
    assert!(names[1].starts_with("veth") && names[1].len() == 12, "{names:?}");
    assert_eq!(interfaces[2]["sandbox"], container.namespace.path());
    assert!(interfaces[0].get("sandbox").is_none());
    assert_eq!(
        result["ips"],
        json!([{"address": "10.1.2.2/24", "gateway": "10.1.2.1", "interface": 2}])
    );
    assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0"}]));

    let bridge = host.namespace.link("cni0").unwrap();
    let port = host.namespace.link(names[1]).unwrap();
    let inner = container.namespace.link("eth0").unwrap();
    assert_eq!(bridge["linkinfo"]["info_kind"], "bridge");
    assert_eq!(bridge["mtu"], 1400);
    assert_eq!(port["master"], "cni0");
    assert_eq!(port["operstate"], "UP");
    assert_eq!(port["linkinfo"]["info_slave_data"]["hairpin"], true);
    assert_eq!(inner["mtu"], 1400);
    for (link, interface) in [(&bridge, 0), (&port, 1), (&inner, 2)] {
        assert_eq!(link["address"], interfaces[interface]["mac"]);
    }
    assert_eq!(host.namespace.addresses("cni0"), ["10.1.2.1/24"]);
    assert_eq!(container.namespace.addresses("eth0"), ["10.1.2.2/24"]);
    let routes = container.namespace.ip(&["route", "show"]);
    assert!(routes.contains("default via 10.1.2.1 dev eth0"), "{routes}");
    let forward = host
        .namespace
        .inside(|| std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap());
    assert_eq!(forward.trim(), "1");
    let rules = host.namespace.rules();
    assert!(
        rules.contains("ip saddr 10.1.2.2 ip daddr != 10.1.2.0/24 masquerade comment"),
        "{rules}"
    );
    assert!(
        rules.contains(&format!("net: testnet, if: eth0, id: {}", container.id)),
        "{rules}"
    );

    let mut checked = config.clone();
    checked["prevResult"] = result;
    host.succeed("CHECK", &container, &checked);
    host.del(&container, &config);
    assert_nothing_left(&host, &[&container]);
    assert_eq!(
        host.namespace.link("cni0").unwrap()["mtu"],
        1400,
        "the bridge keeps its MTU without ports"
    );
    host.del(&container, &config);
}

#[test]
fn containers_reach_each_other_their_host_and_beyond() {
    let host = Host::new();
    let (one, two) = (Container::new(), Container::new());
    let config = bridge_config(
        &host,
        "10.1.3.0/24",
        json!({"isDefaultGateway": true, "hairpinMode": true}),
    );
    let first = address(&host.add(&one, &config));
    let second = address(&host.add(&two, &config));
    assert_ne!(first, second);
    let seen = connect(&one.namespace, &two.namespace, SocketAddr::new(second, 80)).unwrap();
    assert_eq!(seen, first, "not masqueraded inside the network");
    let gateway = "10.1.3.1".parse().unwrap();
    assert_eq!(
        connect(&one.namespace, &host.namespace, SocketAddr::new(gateway, 81)).unwrap(),
        first
    );

    // Beyond: another machine that knows no route to the containers.
    let beyond = Namespace::new("b");
    let (near, far) = ("toworld", "tohost");
    run(
        "ip",
        &[
            "-n",
            &host.namespace.name,
            "link",
            "add",
            near,
            "type",
            "veth",
            "peer",
            "name",
            far,
            "netns",
            &beyond.name,
        ],
    );
    host.namespace.ip(&["addr", "add", "192.0.2.1/24", "dev", near]);
    host.namespace.ip(&["link", "set", near, "up"]);
    beyond.ip(&["addr", "add", "192.0.2.2/24", "dev", far]);
    beyond.ip(&["link", "set", far, "up"]);
    let seen = connect(
        &one.namespace,
        &beyond,
        SocketAddr::new("192.0.2.2".parse().unwrap(), 82),
    )
    .unwrap();
    assert_eq!(seen.to_string(), "192.0.2.1", "masqueraded to the host's address");
    host.del(&one, &config);
    host.del(&two, &config);
    host.namespace.ip(&["link", "del", near]);
    assert_nothing_left(&host, &[&one, &two]);
}

#[test]
fn every_version_has_its_result() {
    let host = Host::new();
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let container = Container::new();
        let config = bridge_config(&host, "10.1.4.0/24", json!({"cniVersion": version}));
        let result = host.add(&container, &config);
        let shown = if version.is_empty() { "0.1.0" } else { version };
        assert_eq!(result["cniVersion"], shown);
        match shown {
            "0.1.0" | "0.2.0" => {
                assert!(result["ip4"]["ip"].is_string() && result.get("interfaces").is_none());
                assert_eq!(result["dns"], json!({}));
            }
            "1.0.0" | "1.1.0" => assert!(result["ips"][0].get("version").is_none() && result.get("dns").is_none()),
            _ => assert_eq!(result["ips"][0]["version"], "4"),
        }
        host.del(&container, &config);
        assert_nothing_left(&host, &[&container]);
    }
}

/// A table of wrong calls: the contract's texts, and host, container and disk as before.
#[test]
fn refusals_change_nothing() {
    let (host, container) = (Host::new(), Container::new());
    let base = bridge_config(&host, "10.1.5.0/24", json!({"bridge": "cni0x"}));
    let changed = |more: Value| {
        let mut config = base.clone();
        merge(&mut config, more);
        config
    };
    host.namespace
        .ip(&["link", "add", "notabridge", "type", "veth", "peer", "name", "other"]);
    let before = host.state(&[&container]);
    for (config, code, text) in [
        (
            changed(json!({"hairpinMode": true, "promiscMode": true})),
            999,
            "cannot set hairpin mode and promiscuous mode at the same time",
        ),
        (
            changed(json!({"vlan": 5000})),
            999,
            "invalid VLAN ID 5000 (must be between 0 and 4094)",
        ),
        (
            changed(json!({"bridge": "notabridge"})),
            999,
            "failed to create bridge \"notabridge\": \"notabridge\" already exists but is not a bridge",
        ),
        (
            changed(json!({"name": "../x"})),
            7,
            "invalid characters found in network name",
        ),
        (changed(json!({"cniVersion": "2.0.0"})), 1, "incompatible CNI versions"),
        (
            changed(json!({"mtu": "big"})),
            999,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.mtu of type int",
        ),
    ] {
        assert_eq!(host.fail("ADD", &container, &config), (code, text.to_owned()));
        assert_eq!(host.state(&[&container]), before, "{text}");
    }
    let mut variables = host.variables("ADD", &container);
    variables.insert("CNI_NETNS", "/run/netns/sk-none".into());
    let (code, text) = crate::fixture::failure(&host.call(&variables, &base));
    assert_eq!(code, 999);
    assert_eq!(
        text,
        "failed to open netns \"/run/netns/sk-none\": failed to Statfs \"/run/netns/sk-none\": no such file or directory"
    );
    variables.insert("CNI_NETNS", host.namespace.path());
    let (code, text) = crate::fixture::failure(&host.call(&variables, &base));
    assert_eq!(
        (code, text.as_str()),
        (8, "plugin's netns and netns from CNI_NETNS should not be the same")
    );
    assert_eq!(host.state(&[&container]), before);
}

#[test]
fn an_existing_interface_is_refused_and_untouched() {
    let (host, container) = (Host::new(), Container::new());
    let config = bridge_config(&host, "10.1.6.0/24", json!({}));
    host.add(&container, &config);
    let before = host.state(&[&container]);
    let (code, text) = host.fail("ADD", &container, &config);
    assert_eq!(code, 999);
    assert!(text.contains("eth0") && text.contains("already exists"), "{text}");
    assert_eq!(host.state(&[&container]), before);
    host.del(&container, &config);
    assert_nothing_left(&host, &[&container]);
}

#[test]
fn a_full_pool_takes_back_everything() {
    let host = Host::new();
    let (one, two) = (Container::new(), Container::new());
    let config = bridge_config(&host, "10.1.7.0/30", json!({}));
    host.add(&one, &config);
    let before = host.state(&[&one, &two]);
    let (code, text) = host.fail("ADD", &two, &config);
    assert_eq!(code, 999);
    assert_eq!(
        text,
        "failed to allocate for range 0: no IP addresses available in range set: 10.1.7.1-10.1.7.2"
    );
    assert_eq!(host.state(&[&one, &two]), before);
    host.del(&one, &config);
    host.add(&two, &config);
    host.del(&two, &config);
    assert_nothing_left(&host, &[&one, &two]);
}

#[test]
fn a_failure_after_the_address_is_undone() {
    let (host, container) = (Host::new(), Container::new());
    let config = bridge_config(&host, "10.1.8.0/24", json!({}));
    // Another address on the bridge makes the gateway fail, after the pair and the address exist.
    host.namespace.ip(&["link", "add", "cni0", "type", "bridge"]);
    host.namespace.ip(&["addr", "add", "10.9.9.1/24", "dev", "cni0"]);
    let (_, text) = host.fail("ADD", &container, &config);
    assert_eq!(
        text,
        "failed to set bridge addr: \"cni0\" already has an IP address different from 10.1.8.1/24"
    );
    assert_nothing_left(&host, &[&container]);
    let mut forced = config.clone();
    forced["forceAddress"] = json!(true);
    host.add(&container, &forced);
    assert_eq!(host.namespace.addresses("cni0"), ["10.1.8.1/24"]);
    host.del(&container, &config);
    assert_nothing_left(&host, &[&container]);
}

#[test]
fn del_works_without_the_namespace() {
    let host = Host::new();
    for gone in [false, true] {
        let container = Container::new();
        let config = bridge_config(&host, "10.1.9.0/24", json!({}));
        host.add(&container, &config);
        let mut variables = host.variables("DEL", &container);
        if gone {
            variables.insert("CNI_NETNS", "/run/netns/sk-gone".into());
        } else {
            variables.insert("CNI_NETNS", String::new());
        }
        drop(container);
        assert!(host.call(&variables, &config).status.success());
        assert!(host.reserved("testnet").is_empty());
        assert!(!host.namespace.rules().contains("masquerade comment"));
    }
}

#[test]
fn check_sees_what_changed() {
    let (host, container) = (Host::new(), Container::new());
    let config = bridge_config(&host, "10.1.10.0/24", json!({}));
    let result = host.add(&container, &config);
    assert_eq!(host.fail("CHECK", &container, &config).1, "Required prevResult missing");
    let mut checked = config.clone();
    checked["prevResult"] = result;
    host.succeed("CHECK", &container, &checked);
    container.namespace.ip(&["route", "del", "default"]);
    assert!(host.fail("CHECK", &container, &checked).1.contains("0.0.0.0/0"));
    container.namespace.ip(&["addr", "del", "10.1.10.2/24", "dev", "eth0"]);
    assert!(host.fail("CHECK", &container, &checked).1.contains("10.1.10.2/24"));
    container.namespace.ip(&["link", "set", "eth0", "down"]);
    container
        .namespace
        .ip(&["link", "set", "eth0", "address", "02:00:00:00:00:99"]);
    assert!(host.fail("CHECK", &container, &checked).1.contains("02:00:00:00:00:99"));
    host.del(&container, &config);
    assert!(
        host.fail("CHECK", &container, &checked)
            .1
            .contains("Failed to find address")
    );
}

#[test]
fn garbage_collection_frees_what_is_no_longer_valid() {
    let host = Host::new();
    let (one, two) = (Container::new(), Container::new());
    let config = bridge_config(&host, "10.1.11.0/24", json!({}));
    let kept = address(&host.add(&one, &config)).to_string();
    let freed = address(&host.add(&two, &config)).to_string();
    let mut collected = config.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": one.id, "ifname": "eth0"}]);
    host.succeed("GC", &one, &collected);
    assert_eq!(host.reserved("testnet"), std::slice::from_ref(&kept));
    let rules = host.namespace.rules();
    assert!(
        rules.contains(&format!("saddr {kept} ")) && !rules.contains(&format!("saddr {freed} ")),
        "{rules}"
    );
    host.succeed("STATUS", &one, &config);
    host.del(&one, &config);
    host.del(&two, &config);
    assert_nothing_left(&host, &[&one, &two]);
}

#[test]
fn dual_stack_and_version_six_alone() {
    let host = Host::new();
    let dual = Container::new();
    let mut config = bridge_config(&host, "10.1.12.0/24", json!({"isDefaultGateway": true}));
    config["ipam"]["ranges"] = json!([[{"subnet": "10.1.12.0/24"}], [{"subnet": "fd00:1:12::/64"}]]);
    config["ipam"]["routes"] = json!([]);
    let result = host.add(&dual, &config);
    assert_eq!(result["ips"][1]["address"], "fd00:1:12::2/64");
    assert_eq!(dual.namespace.addresses("eth0"), ["10.1.12.2/24", "fd00:1:12::2/64"]);
    assert!(dual.namespace.ip(&["-6", "route"]).contains("default via fd00:1:12::1"));
    assert_eq!(host.namespace.addresses("cni0"), ["10.1.12.1/24", "fd00:1:12::1/64"]);
    assert!(
        host.namespace
            .rules()
            .contains("ip6 saddr fd00:1:12::2 ip6 daddr != fd00:1:12::/64 masquerade")
    );

    let alone = Container::new();
    config["ipam"]["ranges"] = json!([[{"subnet": "fd00:1:12::/64"}]]);
    let second = address(&host.add(&alone, &config));
    assert_eq!(alone.namespace.addresses("eth0"), [format!("{second}/64")]);
    let seen = connect(&dual.namespace, &alone.namespace, SocketAddr::new(second, 80)).unwrap();
    assert_eq!(seen.to_string(), "fd00:1:12::2", "no duplicate detection delays it");
    let mut checked = config.clone();
    checked["prevResult"] = host.succeed("ADD", &Container::new(), &config);
    host.del(&dual, &config);
    host.del(&alone, &config);
    assert!(!dual.namespace.ip(&["-6", "addr"]).contains("fd00"));
}

#[test]
fn hardware_address_layer_two_and_isolation() {
    let (host, container) = (Host::new(), Container::new());
    let config = bridge_config(
        &host,
        "10.1.13.0/24",
        json!({"portIsolation": true, "RuntimeConfig": {"mac": "02:11:22:33:44:55"}}),
    );
    let result = host.add(&container, &config);
    assert_eq!(
        container.namespace.link("eth0").unwrap()["address"],
        "02:11:22:33:44:55"
    );
    let port = host
        .namespace
        .link(result["interfaces"][1]["name"].as_str().unwrap())
        .unwrap();
    assert_eq!(port["linkinfo"]["info_slave_data"]["isolated"], true);
    host.del(&container, &config);

    let mut layer_two = config.clone();
    layer_two["ipam"] = json!({});
    let result = host.add(&container, &layer_two);
    assert!(result.get("ips").is_none());
    assert_eq!(container.namespace.link("eth0").unwrap()["operstate"], "UP");
    host.del(&container, &layer_two);

    layer_two["disableContainerInterface"] = json!(true);
    host.add(&container, &layer_two);
    assert_eq!(container.namespace.link("eth0").unwrap()["operstate"], "DOWN");
    host.del(&container, &layer_two);
    assert_nothing_left(&host, &[&container]);
}

/// A bridge somebody else made takes the lowest address of its ports, until it is told to keep its own.
#[test]
fn the_address_of_an_existing_bridge_stays() {
    let own = |host: &Host| {
        host.namespace.link("cni0").unwrap()["address"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let layer_two = json!({"isGateway": false, "ipMasq": false, "ipam": {}});
    for more in [json!({}), layer_two] {
        for subnet in ["10.1.9.0/24", "fd00:9::/64"] {
            let (host, container, other) = (Host::new(), Container::new(), Container::new());
            host.namespace.ip(&["link", "add", "cni0", "type", "bridge"]);
            let before = own(&host);
            let config = bridge_config(&host, subnet, more.clone());
            host.add(&container, &config);
            // Lower than any other.
            let port = host.namespace.ip_json(&["link", "show", "master", "cni0"])[0]["ifname"].clone();
            host.namespace
                .ip(&["link", "set", port.as_str().unwrap(), "address", "00:00:00:00:00:01"]);
            assert_eq!(own(&host), before, "{subnet}");
            host.add(&other, &config);
            host.del(&container, &config);
            assert_eq!(own(&host), before, "{subnet}");
            host.del(&other, &config);
            assert_eq!(own(&host), before, "{subnet}");
        }
    }
}

/// The container's interface is left down; the bridge, new or not, is up and has its link-local address all the same.
#[test]
fn a_container_interface_that_is_to_stay_down() {
    for cni_version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let (host, container) = (Host::new(), Container::new());
        let down = json!({
            "cniVersion": cni_version, "disableContainerInterface": true, "isGateway": false, "ipMasq": false, "ipam": {},
        });
        let config = bridge_config(&host, "10.1.8.0/24", down);
        let result = host.add(&container, &config);
        assert_eq!(result["interfaces"].as_array().unwrap().len(), 3, "{result}");
        assert_eq!(container.namespace.link("eth0").unwrap()["operstate"], "DOWN");
        assert!(container.namespace.addresses("eth0").is_empty());
        let bridge = host.namespace.ip(&["addr", "show", "dev", "cni0"]);
        assert!(bridge.contains("inet6 fe80:"), "{bridge}");
        host.del(&container, &config);
        assert!(container.namespace.link("eth0").is_none());
    }
}

#[test]
fn a_bridge_made_for_nothing_goes_again() {
    let (host, container) = (Host::new(), Container::new());
    let before = host.state(&[&container]);
    for more in [
        json!({"ipam": {"type": "nonesuch"}}),
        json!({"mtu": 10}),
        json!({"ipam": {"type": "host-local", "dataDir": "/proc/sys", "subnet": "10.1.15.0/24"}}),
    ] {
        host.fail("ADD", &container, &bridge_config(&host, "10.1.15.0/24", more));
        assert_eq!(host.state(&[&container]), before);
    }
}

#[test]
fn frames_with_a_foreign_address_are_dropped() {
    let (host, container) = (Host::new(), Container::new());
    let config = bridge_config(&host, "10.1.16.0/24", json!({"macspoofchk": true}));
    host.add(&container, &config);
    let rules = host.namespace.rules();
    let id = format!("{}-eth0", container.id);
    for text in [
        "type filter hook prerouting priority dstnat; policy accept;".to_owned(),
        format!("jump cni-br-iface-{id} comment \"macspoofchk-{id}\""),
        format!("jump cni-br-iface-{id}-mac comment \"macspoofchk-{id}\""),
        format!("drop comment \"macspoofchk-{id}\""),
    ] {
        assert!(rules.contains(&text), "{text}\n{rules}");
    }
    let mac = container.namespace.link("eth0").unwrap()["address"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(rules.contains(&format!("ether saddr {mac} return")), "{rules}");
    // The container takes another address; what it sends then must not arrive.
    let reaches_host = |port: u16| {
        container
            .namespace
            .ip(&["link", "set", "eth0", "address", "02:5b:00:00:00:01"]);
        connect(
            &container.namespace,
            &host.namespace,
            SocketAddr::new("10.1.16.1".parse().unwrap(), port),
        )
        .is_ok()
    };
    connect(
        &container.namespace,
        &host.namespace,
        SocketAddr::new("10.1.16.1".parse().unwrap(), 80),
    )
    .unwrap();
    assert!(!reaches_host(81));
    host.del(&container, &config);
    assert!(
        !host.namespace.rules().contains("cni-br-iface"),
        "{}",
        host.namespace.rules()
    );
    let open = bridge_config(&host, "10.1.16.0/24", json!({}));
    host.add(&container, &open);
    assert!(reaches_host(82), "without the check it arrives");
    host.del(&container, &open);
}

#[test]
fn parallel_adds_make_one_bridge_and_distinct_addresses() {
    let host = Host::new();
    let containers: Vec<Container> = (0..20).map(|_| Container::new()).collect();
    let config = bridge_config(&host, "10.1.14.0/24", json!({}));
    let results: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = containers
            .iter()
            .map(|container| scope.spawn(|| host.add(container, &config)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let addresses: std::collections::BTreeSet<_> = results.iter().map(address).collect();
    assert_eq!(addresses.len(), containers.len());
    assert_eq!(host.reserved("testnet").len(), containers.len());
    assert_eq!(
        host.namespace.rules().matches("masquerade comment").count(),
        containers.len()
    );
    std::thread::scope(|scope| {
        containers
            .iter()
            .for_each(|container| drop(scope.spawn(|| host.del(container, &config))))
    });
    assert_nothing_left(&host, &containers.iter().collect::<Vec<_>>());
}

#[test]
fn iptables_masquerades_where_it_is_named() {
    let (host, container) = (Host::new(), Container::new());
    let config = bridge_config(&host, "10.1.17.0/24", json!({"ipMasqBackend": "iptables"}));
    host.add(&container, &config);
    let rules = host.namespace.rules();
    assert!(
        !rules.contains("cni_plugins_masquerade") && rules.contains("chain CNI-"),
        "{rules}"
    );
    let saved = run(
        "ip",
        &["netns", "exec", &host.namespace.name, "iptables-save", "-t", "nat"],
    );
    let jump = format!(
        "-A POSTROUTING -s 10.1.17.2/32 -m comment --comment \"name: \\\"testnet\\\" id: \\\"{}\\\"\" -j CNI-",
        container.id
    );
    assert!(saved.contains(&jump), "{jump}\n{saved}");
    host.del(&container, &config);
    let rules = host.namespace.rules();
    assert!(
        !rules.contains("chain CNI-") && !rules.contains(&container.id),
        "{rules}"
    );
    let unknown = bridge_config(&host, "10.1.17.0/24", json!({"ipMasqBackend": "magic"}));
    assert_eq!(
        host.fail("ADD", &container, &unknown).1,
        "failed to load netconf: unknown ipmasq backend \"magic\""
    );
}

/// Nothing said: as upstream's, iptables where there is one, else nftables. DEL does not depend on which it is by then.
#[test]
fn where_no_backend_is_named_iptables_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let ip = run("sh", &["-c", "command -v ip"]);
    std::os::unix::fs::symlink(ip.trim(), folder.path().join("ip")).unwrap();
    let bare = folder.path().display().to_string();
    for (added_bare, deleted_bare) in [(true, true), (true, false), (false, true), (false, false)] {
        let (host, container) = (Host::new(), Container::new());
        let mut config = bridge_config(&host, "10.1.19.0/24", json!({}));
        config["ipam"]["ranges"] = json!([[{"subnet": "10.1.19.0/24"}], [{"subnet": "fd00:19::/64"}]]);
        config.as_object_mut().unwrap().remove("ipMasqBackend");
        let call = |command: &str, is_bare: bool| {
            let mut variables = host.variables(command, &container);
            if is_bare {
                variables.insert("PATH", bare.clone());
            }
            let output = host.call(&variables, &config);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        };
        call("ADD", added_bare);
        let rules = host.namespace.rules();
        let by_nftables = rules.matches(&format!("id: {}\"", container.id)).count();
        let by_iptables = rules.matches("jump CNI-").count();
        let expected = if added_bare { (2, 0) } else { (0, 2) };
        assert_eq!((by_nftables, by_iptables), expected, "{rules}");
        call("DEL", deleted_bare);
        let rules = host.namespace.rules();
        assert!(
            !rules.contains(&container.id) && !rules.contains("chain CNI-"),
            "{rules}"
        );
    }
}

#[test]
fn static_addresses() {
    let (host, container) = (Host::new(), Container::new());
    let ipam = json!({
        "type": "static", "routes": [{"dst": "0.0.0.0/0"}],
        "addresses": [{"address": "10.1.18.7/24", "gateway": "10.1.18.1"}, {"address": "fd00:18::7/64"}],
    });
    let config = bridge_config(&host, "10.1.18.0/24", json!({"ipam": ipam}));
    let result = host.add(&container, &config);
    assert_eq!(container.namespace.addresses("eth0"), ["10.1.18.7/24", "fd00:18::7/64"]);
    let mut checked = config.clone();
    checked["prevResult"] = result;
    host.succeed("CHECK", &container, &checked);
    host.del(&container, &config);
    let mut wanted = config.clone();
    wanted["runtimeConfig"] = json!({"ips": ["10.1.18.9/24"]});
    assert_eq!(address(&host.add(&container, &wanted)).to_string(), "10.1.18.9");
    assert_eq!(container.namespace.addresses("eth0"), ["10.1.18.9/24"]);
    host.del(&container, &wanted);
    assert_nothing_left(&host, &[&container]);
}

/// Upstream's own specs do this: the container is the namespace the plugin runs in.
#[test]
fn the_own_namespace_needs_the_override() {
    let host = Host::new();
    let container = Container::new();
    let config = bridge_config(&host, "10.1.19.0/24", json!({"isGateway": false, "ipMasq": true}));
    let mut variables = host.variables("ADD", &container);
    variables.insert("CNI_NETNS", host.namespace.path());
    assert_eq!(crate::fixture::failure(&host.call(&variables, &config)).0, 8);
    variables.insert("CNI_NETNS_OVERRIDE", "TRUE".into());
    let output = host.call(&variables, &config);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(host.namespace.addresses("eth0"), ["10.1.19.2/24"]);
    variables.insert("CNI_COMMAND", "DEL".into());
    assert!(host.call(&variables, &config).status.success());
    assert_nothing_left(&host, &[&container]);
}
