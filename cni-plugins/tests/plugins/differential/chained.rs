//! Plugins that are chained behind others, and ptp, beside the reference ones.

use std::path::Path;

use serde_json::{Value, json};

use super::harness::{Case, TWICE, World, bridge, run_all};
use crate::fixture::{merge, run};

const ADD_DEL: &[&str] = &["ADD", "DEL", "DEL"];
const ADD_CHECK: &[&str] = &["ADD", "CHECK"];
/// Switches the cases touch.
const SWITCHES: [&str; 3] = [
    "ipv4/conf/eth0/arp_filter",
    "ipv4/conf/all/log_martians",
    "ipv6/conf/eth0/forwarding",
];

/// What else can be seen of plugins of a type.
pub(super) fn seen(world: &World, kind: &str) -> String {
    let host = &world.host.namespace;
    match kind {
        // 1.1.1 does not know the policy `isolated`, which newer comments name.
        "firewall" => host.iptables("filter").replace("same-bridge|isolated", "same-bridge"),
        "bridge" => run("bridge", &["-n", &host.name, "vlan", "show"]) + &tables(&host.rules()),
        "ptp" => tables(&host.rules()),
        "bandwidth" => run("tc", &["-n", &host.name, "qdisc", "show"]),
        "portmap" => host.iptables("nat") + &tables(&host.rules()) + &host.switch("ipv4/conf/cnid0/route_localnet"),
        "tuning" => {
            let value = |name: &&str| format!("{name} {}\n", world.container.namespace.switch(name));
            SWITCHES.iter().map(value).collect()
        }
        _ => String::new(),
    }
}

/// The tables of a rule set that plugins share with the reference.
fn tables(rules: &str) -> String {
    let shared = [
        "table ip cni_hostport ",
        "table ip6 cni_hostport ",
        "table inet cni_plugins_masquerade ",
        "table bridge nat ",
    ];
    let mut wanted = false;
    let mut kept = String::new();
    for line in rules.lines() {
        if line.starts_with("table ") {
            wanted = shared.iter().any(|start| line.starts_with(start));
        }
        if wanted {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// A stored file without what only we write, and without its layout if it is JSON.
pub(super) fn stored(path: &Path, content: String) -> String {
    if path.extension().is_none_or(|extension| extension != "json") {
        return content;
    }
    let Ok(Value::Object(mut map)) = serde_json::from_str(&content) else {
        return content;
    };
    map.remove("network");
    Value::Object(map).to_string()
}

fn chained(name: &'static str, kind: &str, more: Value) -> Case {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "diffnet", "type": kind,
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "cnid0"}, {"name": "vethX"}, {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/x"}],
            "ips": [{"address": "10.50.0.2/24", "interface": 2}],
        },
    });
    merge(&mut config, more);
    Case::new(name, config)
}

/// A previous result with addresses of both families.
fn dual() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "cnid0"}, {"name": "vethX"}, {"name": "eth0", "sandbox": "/x"}],
        "ips": [{"address": "10.50.0.2/24", "interface": 2}, {"address": "fd00:50::2/64", "interface": 2}],
    })
}

fn tuning(name: &'static str, more: Value) -> Case {
    let mut config = json!({"dataDir": "DATA/tuning"});
    merge(&mut config, more);
    Case {
        prepare: |world| {
            let inside = &world.container.namespace;
            let peer = ["peer", "name", "peer0", "address", "02:00:00:00:00:02"];
            let link = ["link", "add", "eth0", "address", "02:00:00:00:00:01", "type", "veth"];
            inside.ip(&[&link[..], &peer].concat());
        },
        ..chained(name, "tuning", config)
    }
}

/// A case 1.1.1 does not know, or answers otherwise.
fn newer(case: Case) -> Case {
    Case {
        newer_only: true,
        ..case
    }
}

#[test]
fn tuning_like_the_reference() {
    let arp = |value: &str| json!({"sysctl": {"net.ipv4.conf.eth0.arp_filter": value}});
    run_all(
        "tuning_like_the_reference",
        vec![
            tuning("nothing", json!({})),
            tuning("mtu", json!({"mtu": 1400})),
            tuning("promisc", json!({"promisc": true})),
            tuning("allmulti", json!({"allmulti": true})),
            tuning("no allmulti", json!({"allmulti": false})),
            tuning("mac", json!({"mac": "02:00:00:00:00:77"})),
            tuning(
                "everything",
                json!({"mac": "02:00:00:00:00:77", "mtu": 1300, "promisc": true, "allmulti": true}),
            ),
            tuning("mac by arguments", json!({})).with("CNI_ARGS", "IgnoreUnknown=1;MAC=02:00:00:00:00:78"),
            tuning("mac by runtime", json!({"runtimeConfig": {"mac": "02:00:00:00:00:79"}})),
            tuning(
                "args overrule",
                json!({"mtu": 1400, "promisc": true, "args": {"cni": {"mtu": 1300, "promisc": false}}}),
            ),
            tuning("switch", arp("1")),
            tuning(
                "two switches",
                json!({"sysctl": {
                    "net.ipv4.conf.eth0.arp_filter": "1", "net/ipv4/conf/all/log_martians": "1",
                }}),
            ),
            // The reference's CHECK does not know IFNAME.
            tuning(
                "switch of the interface",
                json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}),
            )
            .steps(ADD_DEL),
            // 1.1.1 names the key as it was written.
            newer(tuning("switch of the kernel", json!({"sysctl": {"kernel.panic": "1"}}))).steps(&["ADD"]),
            tuning("no such switch", json!({"sysctl": {"net.ipv4.nonesuch": "1"}})),
            tuning("wrong value", arp("x")),
            newer(tuning(
                "switch is a number",
                json!({"sysctl": {"net.ipv4.conf.eth0.arp_filter": 1}}),
            ))
            .steps(&["ADD"]),
            tuning("wrong type", json!({"mtu": "x"})),
            tuning("no such interface", json!({"mtu": 1400})).with("CNI_IFNAME", "eth7"),
            tuning("no namespace", json!({"mtu": 1400})).with("CNI_NETNS", "/nowhere"),
            tuning("no previous result", json!({"prevResult": null})),
            tuning("unknown arguments", json!({})).with("CNI_ARGS", "FOO=bar"),
            tuning(
                "0.4.0",
                json!({"cniVersion": "0.4.0", "mtu": 1400, "prevResult": {"cniVersion": "0.4.0", "ips": []}}),
            ),
            tuning(
                "0.2.0",
                json!({"cniVersion": "0.2.0", "mtu": 1400, "prevResult": {
                    "cniVersion": "0.2.0", "ip4": {"ip": "10.50.0.2/24"},
                }}),
            )
            .steps(ADD_DEL),
        ],
    );
}

#[test]
fn firewall_like_the_reference() {
    let firewall = |name, more| chained(name, "firewall", more);
    let same_bridge = |backend: &str| json!({"ingressPolicy": "same-bridge", "backend": backend, "prevResult": dual()});
    let isolated = |backend: &str| {
        let keys = json!({"ingressPolicy": "isolated", "backend": backend, "prevResult": dual()});
        newer(firewall("isolated", keys))
    };
    let mut cases = vec![
        isolated(""),
        isolated("iptables"),
        firewall("plain", json!({})),
        firewall("twice", json!({})).steps(TWICE),
        firewall("dual stack", json!({"prevResult": dual()})),
        firewall("admin chain", json!({"iptablesAdminChainName": "MY-ADMIN"})),
        firewall("open", json!({"ingressPolicy": "open"})),
        firewall("same bridge", same_bridge("")),
        firewall("same bridge twice", same_bridge("")).steps(TWICE),
        firewall("unknown policy", json!({"ingressPolicy": "x"})).steps(&["ADD"]),
        firewall("no previous result", json!({"prevResult": null})),
        firewall(
            "no interfaces",
            json!({"ingressPolicy": "same-bridge", "prevResult": {
                "cniVersion": "1.0.0", "ips": [{"address": "10.50.0.2/24"}],
            }}),
        )
        .steps(ADD_DEL),
        firewall("wrong type", json!({"backend": 1})),
        firewall(
            "0.4.0",
            json!({"cniVersion": "0.4.0", "prevResult": {"cniVersion": "0.4.0", "ips": [
                {"version": "4", "address": "10.50.0.2/24"},
            ]}}),
        ),
        firewall("no addresses", json!({"prevResult": {"cniVersion": "1.0.0"}})),
    ];
    cases.extend([
        firewall("by iptables", json!({"backend": "iptables"})),
        firewall("by iptables twice", json!({"backend": "iptables"})).steps(TWICE),
        firewall(
            "by iptables, dual stack",
            json!({"backend": "iptables", "prevResult": dual()}),
        ),
        firewall("by iptables, same bridge", same_bridge("iptables")),
    ]);
    run_all("firewall_like_the_reference", cases);
}

fn portmap(name: &'static str, mappings: Value, more: Value) -> Case {
    let mut config = json!({"backend": "iptables", "runtimeConfig": {"portMappings": mappings}});
    merge(&mut config, more);
    Case {
        prepare: |world| {
            let host = &world.host.namespace;
            host.ip(&["link", "add", "cnid0", "address", "02:00:00:00:00:02", "type", "bridge"]);
            host.ip(&["addr", "add", "10.50.0.1/24", "dev", "cnid0"]);
            host.ip(&["link", "set", "cnid0", "up"]);
        },
        // The reference's CHECK does not find what its ADD made.
        ..chained(name, "portmap", config).steps(ADD_DEL)
    }
}

#[test]
fn port_mappings_by_iptables_like_the_reference() {
    let one = || json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let many: Vec<Value> = (1..=17)
        .map(|port| json!({"hostPort": 8000 + port, "containerPort": port, "protocol": if port == 9 { "udp" } else { "tcp" }}))
        .collect();
    let addressed = json!([
        {"hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1"},
        {"hostPort": 81, "containerPort": 81, "protocol": "tcp", "hostIP": "0.0.0.0"},
    ]);
    run_all(
        "port_mappings_by_iptables_like_the_reference",
        vec![
            portmap("none", json!([]), json!({})),
            portmap("one", one(), json!({})),
            portmap("twice", one(), json!({})).steps(TWICE),
            portmap("dual stack", one(), json!({"prevResult": dual()})),
            portmap("many", json!(many), json!({})),
            portmap("host addresses", addressed, json!({})),
            portmap("without masquerading", one(), json!({"snat": false})),
            portmap("other mark", one(), json!({"markMasqBit": 5})),
            portmap(
                "conditions",
                one(),
                json!({"conditionsV4": ["!", "-s", "192.0.2.0/24"]}),
            ),
            portmap(
                "two mark options",
                one(),
                json!({"markMasqBit": 5, "externalSetMarkChain": "X"}),
            )
            .steps(&["ADD"]),
            portmap("mark too large", one(), json!({"markMasqBit": 32})).steps(&["ADD"]),
            portmap("no previous result", one(), json!({"prevResult": null})).steps(&["ADD"]),
        ],
    );
}

#[test]
fn bandwidth_like_the_reference() {
    let bandwidth = |name, limits: Value| {
        let keys = json!({"runtimeConfig": {"bandwidth": limits}, "prevResult": {
            "cniVersion": "1.0.0", "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": "/x"}],
            "ips": [{"address": "10.50.0.2/24", "interface": 1}],
        }});
        Case {
            prepare: |world| {
                let (host, inside) = (&world.host.namespace, &world.container.namespace);
                let near = [
                    "link",
                    "add",
                    "host0",
                    "address",
                    "02:00:00:00:00:01",
                    "mtu",
                    "1400",
                    "type",
                    "veth",
                ];
                let far = [
                    "peer",
                    "name",
                    "eth0",
                    "address",
                    "02:00:00:00:00:02",
                    "netns",
                    &inside.name,
                ];
                host.ip(&[&near[..], &far].concat());
                host.ip(&["link", "set", "host0", "up"]);
                inside.ip(&["link", "set", "eth0", "up"]);
            },
            ..chained(name, "bandwidth", keys).steps(ADD_DEL)
        }
    };
    let ingress = || json!({"ingressRate": 8_000_000, "ingressBurst": 800_000});
    let both = json!({
        "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 16_000_000, "egressBurst": 1_600_000,
    });
    run_all(
        "bandwidth_like_the_reference",
        vec![
            bandwidth("none", json!({})),
            bandwidth("ingress", ingress()),
            bandwidth("both", both),
            bandwidth("rate alone", json!({"egressRate": 8})).steps(&["ADD"]),
            bandwidth("burst alone", json!({"ingressBurst": 8})).steps(&["ADD"]),
            bandwidth("no previous result", ingress())
                .top(json!({"prevResult": null}))
                .steps(&["ADD"]),
        ],
    );
}

/// What 1.1.1 does not know: nftables, and the newer keys of bridge.
#[test]
fn newer_keys_like_the_reference() {
    let two = json!([
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 5353, "containerPort": 53, "protocol": "udp"},
    ]);
    let masquerade = || json!({"ipMasq": true, "ipMasqBackend": "nftables"});
    let nftables = |more: Value| {
        let mut keys = json!({"backend": "nftables"});
        merge(&mut keys, more);
        keys
    };
    let ipam = json!({"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.50.0.0/24"}], [{"subnet": "fd00:50::/64"}]]});
    let mut both = masquerade();
    merge(&mut both, json!({"ipam": ipam}));
    // The reference's DEL cannot read what its ADD made with the nft program of Debian 12.
    let ptp = bridge("ptp masquerade", masquerade())
        .top(json!({"type": "ptp"}))
        .steps(ADD_CHECK);
    let cases = vec![
        bridge("masquerade", masquerade()).steps(ADD_CHECK),
        bridge("masquerade, dual stack", both).steps(ADD_CHECK),
        bridge("spoof check", json!({"macspoofchk": true})),
        bridge("isolated ports", json!({"portIsolation": true})),
        bridge("duplicate detection", json!({"enabledad": true})),
        bridge(
            "interface stays down",
            json!({"disableContainerInterface": true, "ipam": {}}),
        )
        .steps(ADD_DEL),
        bridge(
            "interface down with addresses",
            json!({"disableContainerInterface": true}),
        ),
        bridge("two modes", json!({"hairpinMode": true, "promiscMode": true})),
        bridge("1.1.0", json!({"cniVersion": "1.1.0"})),
        ptp,
        portmap("nftables", two.clone(), nftables(json!({}))),
        portmap("nftables, dual stack", two, nftables(json!({"prevResult": dual()}))),
        tuning("queue length", json!({"txQLen": 77})),
    ];
    run_all("newer_keys_like_the_reference", cases.into_iter().map(newer).collect());
}

#[test]
fn ptp_like_the_reference() {
    let ptp = |name: &'static str, more: Value| {
        let mut config = json!({
            "cniVersion": "1.0.0", "name": "diffnet", "type": "ptp",
            "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.50.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
        });
        merge(&mut config, more);
        Case::new(name, config)
    };
    let mut cases = vec![
        ptp("plain", json!({})),
        ptp("mtu", json!({"mtu": 1400})),
        ptp(
            "dns",
            json!({"dns": {"nameservers": ["192.0.2.53"], "search": ["example.com"]}}),
        ),
        ptp("wrong type", json!({"mtu": "x"})),
        ptp("no such ipam", json!({"ipam": {"type": "nonesuch"}})),
        ptp("empty namespace", json!({})).with("CNI_NETNS", ""),
        ptp(
            "two addresses",
            json!({"ipam": {
                "type": "host-local", "dataDir": "DATA",
                "ranges": [[{"subnet": "10.50.0.0/24"}], [{"subnet": "10.51.0.0/24"}]],
            }}),
        ),
    ];
    let dual = json!({"ipam": {
        "type": "host-local", "dataDir": "DATA", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        "ranges": [[{"subnet": "10.50.0.0/24"}], [{"subnet": "fd00:50::/64"}]],
    }});
    cases.push(ptp("dual stack", dual));
    for (name, version) in [("0.1.0", "0.1.0"), ("0.3.1", "0.3.1"), ("0.4.0", "0.4.0")] {
        cases.push(ptp(name, json!({"cniVersion": version})));
    }
    run_all("ptp_like_the_reference", cases);
}
