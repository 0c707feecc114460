//! Our plugins beside the reference ones, as Debian's package containernetworking-plugins installs them: the same calls in
//! two equal worlds, and everything a user can see compared: exit status, result or error, links, addresses, routes, files.
//!
//! The package is of version 1.1.1, which knows neither 1.1.0 of the specification nor nftables: masquerading and port
//! mappings are compared by what they do, in the modules of those plugins. A newer suite, which `hack/reference-plugins`
//! fetches and the variable `SKIFF_REFERENCE_PLUGINS` names, is compared too. Where the contract departs from 1.1.1, the
//! normalisation below says so.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::fixture::{call_in, merge};

mod chained;
mod harness;
mod simple;

use harness::{Case, REFERENCE, TWICE, World, bridge, host_local, references, run_all};

#[test]
fn bridge_like_the_reference() {
    let dual = json!({"ipam": {
        "type": "host-local", "dataDir": "DATA", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        "ranges": [[{"subnet": "10.50.0.0/24"}], [{"subnet": "fd00:50::/64"}]],
    }});
    let no_routes = json!({"type": "host-local", "dataDir": "DATA", "subnet": "10.50.0.0/24"});
    let gateway_given =
        json!({"type": "host-local", "dataDir": "DATA", "subnet": "10.50.0.0/24", "gateway": "10.50.0.200"});
    run_all(
        "bridge_like_the_reference",
        vec![
            bridge("plain", json!({})),
            bridge("twice", json!({})).steps(TWICE),
            bridge("no gateway", json!({"isGateway": false})),
            bridge("default gateway", json!({"isDefaultGateway": true, "ipam": no_routes})),
            bridge(
                "other gateway",
                json!({"isDefaultGateway": true, "ipam": gateway_given}),
            ),
            bridge("dual stack", dual),
            bridge("hairpin", json!({"hairpinMode": true})),
            bridge("promisc", json!({"promiscMode": true})),
            bridge(
                "dns",
                json!({"dns": {"nameservers": ["192.0.2.53"], "search": ["example.com"]}}),
            ),
            bridge("no addresses", json!({"ipam": {}})).steps(TWICE), // 1.1.1 cannot CHECK this
            bridge("mac", json!({})).with("CNI_ARGS", "IgnoreUnknown=1;MAC=c2:11:22:33:44:55"),
            bridge("wanted address", json!({})).with("CNI_ARGS", "IgnoreUnknown=1;IP=10.50.0.77"),
            bridge("malformed arguments", json!({})).with("CNI_ARGS", "none"),
            bridge("unknown arguments", json!({})).with("CNI_ARGS", "FOO=bar"),
            bridge("wrong vlan", json!({"vlan": 5000})),
            bridge("wrong type", json!({"isGateway": "x"})),
            bridge("wrong number", json!({"mtu": 1.5})),
            bridge("tiny mtu", json!({"mtu": 10})),
            bridge("ipam is text", json!({"ipam": "x"})),
            bridge("no such ipam", json!({"ipam": {"type": "nonesuch"}})),
            bridge("not a bridge", json!({"bridge": "lo"})),
            bridge("long bridge name", json!({"bridge": "bbbbbbbbbbbbbbbbbbbb"})),
            bridge("no namespace", json!({})).with("CNI_NETNS", "/nowhere"),
            bridge("empty namespace", json!({})).with("CNI_NETNS", ""),
            bridge("bad interface", json!({})).with("CNI_IFNAME", "a/b"),
            bridge("long interface", json!({})).with("CNI_IFNAME", "aaaaaaaaaaaaaaaa"),
            bridge("bad id", json!({})).with("CNI_CONTAINERID", ".."),
            bridge("no name", json!({"name": ""})),
            bridge("bad name", json!({"name": "a/b"})),
            bridge("odd case", json!({"ISGATEWAY": false, "Bridge": "cnid1"})),
        ],
    );
}

#[test]
fn vlans_like_the_reference() {
    if !crate::vlan::is_known("vlans_like_the_reference") {
        return;
    }
    let mut cases = Vec::new();
    for (name, keys) in [
        ("vlan", json!({"vlan": 100})),
        (
            "trunk",
            json!({"vlanTrunk": [{"id": 101}, {"minID": 200, "maxID": 202}]}),
        ),
        ("both", json!({"vlan": 100, "vlanTrunk": [{"id": 101}]})),
        ("default kept", json!({"vlan": 100, "preserveDefaultVlan": true})),
    ] {
        let mut keys = keys;
        merge(&mut keys, json!({"isGateway": false}));
        cases.push(Case {
            newer_only: true,
            ..bridge(name, keys)
        });
    }
    cases.push(bridge("vlan with a gateway", json!({"vlan": 100})));
    run_all("vlans_like_the_reference", cases);
}

#[test]
fn every_version_like_the_reference() {
    let mut cases = Vec::new();
    for (bridge_name, pool_name, version) in [
        ("bridge none", "pool none", ""),
        ("bridge 0.1.0", "pool 0.1.0", "0.1.0"),
        ("bridge 0.2.0", "pool 0.2.0", "0.2.0"),
        ("bridge 0.3.0", "pool 0.3.0", "0.3.0"),
        ("bridge 0.3.1", "pool 0.3.1", "0.3.1"),
        ("bridge 0.4.0", "pool 0.4.0", "0.4.0"),
        ("bridge 1.0.0", "pool 1.0.0", "1.0.0"),
    ] {
        cases.push(bridge(bridge_name, json!({"cniVersion": version})));
        let ipam = json!({"subnet": "10.0.0.0/24", "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.9"}]});
        cases.push(host_local(pool_name, ipam).top(json!({"cniVersion": version})));
    }
    run_all("every_version_like_the_reference", cases);
}

#[test]
fn host_local_like_the_reference() {
    let subnet = || json!({"subnet": "10.0.0.0/24"});
    let two = json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.1.0/24"}], [{"subnet": "fd00::/64"}]]});
    let mut cases = vec![
        host_local("twice", subnet()).steps(TWICE),
        host_local("two sets", two),
        host_local(
            "range",
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.9"}),
        )
        .steps(TWICE),
        host_local("gateway", json!({"subnet": "10.0.0.0/24", "gateway": "10.0.0.2"})),
        host_local("wanted", subnet()).with("CNI_ARGS", "IP=10.0.0.77/8"),
        host_local("wanted gateway", subnet()).with("CNI_ARGS", "IP=10.0.0.1"),
        host_local("wanted elsewhere", subnet()).with("CNI_ARGS", "IP=10.9.0.1"),
        host_local("wanted nonsense", subnet()).with("CNI_ARGS", "IP=x"),
        // Of two addresses in the range the reference takes one by chance, and names the other: one is outside.
        host_local("wanted too many", subnet()).top(json!({"args": {"cni": {"ips": ["10.0.0.5", "10.9.0.6"]}}})),
        host_local("runtime ranges", subnet())
            .top(json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.8.0.0/24"}]]}})),
        host_local(
            "no such resolv.conf",
            json!({"subnet": "10.0.0.0/24", "resolvConf": "/nowhere"}),
        ),
        host_local(
            "impossible folder",
            json!({"subnet": "10.0.0.0/24", "dataDir": "/proc/x"}),
        ),
        host_local(
            "folder is a file",
            json!({"subnet": "10.0.0.0/24", "dataDir": "/etc/passwd"}),
        ),
    ];
    for (name, ipam) in [
        ("nothing", json!({})),
        ("empty set", json!({"ranges": [[]]})),
        ("not a list", json!({"ranges": [{"subnet": "10.0.0.0/8"}]})),
        ("nonsense", json!({"subnet": "x"})),
        ("too small", json!({"subnet": "10.0.0.0/31"})),
        ("host bits", json!({"subnet": "10.0.0.5/24"})),
        (
            "start outside",
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.1.0.1"}),
        ),
        ("end outside", json!({"subnet": "10.0.0.0/24", "rangeEnd": "10.1.0.1"})),
        (
            "other family",
            json!({"subnet": "10.0.0.0/24", "rangeStart": "fd00::1"}),
        ),
        (
            "backwards",
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.3"}),
        ),
        (
            "overlap in a set",
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/16"}]]}),
        ),
        (
            "overlap of sets",
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.0.0/16"}]]}),
        ),
        (
            "mixed",
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]}),
        ),
        ("no subnet", json!({"ranges": [[{"rangeStart": "10.0.0.1"}]]})),
        ("bad route", json!({"subnet": "10.0.0.0/24", "routes": [{"dst": "x"}]})),
    ] {
        cases.push(host_local(name, ipam));
    }
    run_all("host_local_like_the_reference", cases);
}

/// A node can change plugins while containers run: each releases what the other reserved, and gives nothing away twice.
#[test]
fn either_way_round_on_one_node() {
    if !Path::new(REFERENCE).join("host-local").exists() {
        eprintln!(
            "SKIPPED either_way_round_on_one_node: Debian's package containernetworking-plugins is not installed"
        );
        return;
    }
    let world = World::new(None);
    let config = host_local("", json!({"subnet": "10.0.0.0/24", "dataDir": world.host.data_dir()})).config;
    let call = |bin_dir: &Path, command: &str, id: &str| {
        let variables = world.variables(command, &BTreeMap::from([("CNI_CONTAINERID", id.to_owned())]));
        let output = call_in(&world.host.namespace, bin_dir, &variables, &config);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or(Value::Object(Map::new()))["ips"][0]["address"]
            .clone()
    };
    let (theirs, ours) = (Path::new(REFERENCE), world.bin_dir.as_path());
    let given: Vec<Value> = [theirs, ours, theirs, ours]
        .into_iter()
        .enumerate()
        .map(|(number, bin_dir)| call(bin_dir, "ADD", &format!("c{number}")))
        .collect();
    assert_eq!(
        json!(given),
        json!(["10.0.0.2/24", "10.0.0.3/24", "10.0.0.4/24", "10.0.0.5/24"])
    );
    for (number, bin_dir) in [ours, theirs, ours, theirs].into_iter().enumerate() {
        call(bin_dir, "DEL", &format!("c{number}"));
        assert_eq!(world.host.reserved("diffnet").len(), 3 - number);
    }
}

/// Containers the reference attached, with masquerading and a port by iptables, are detached by us: nothing stays.
#[test]
fn what_the_reference_made_is_removed() {
    if !Path::new(REFERENCE).join("portmap").exists() {
        eprintln!("SKIPPED what_the_reference_made_is_removed: containernetworking-plugins is not installed");
        return;
    }
    let world = World::new(None);
    let mut config = bridge("", json!({"ipMasq": true})).config;
    config["ipam"]["dataDir"] = json!(world.host.data_dir());
    let mut portmap = json!({
        "cniVersion": "1.0.0", "name": "diffnet", "type": "portmap",
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
    });
    let call = |bin_dir: &Path, command: &str, config: &Value| {
        let output = call_in(
            &world.host.namespace,
            bin_dir,
            &world.variables(command, &BTreeMap::new()),
            config,
        );
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        output.stdout
    };
    let (theirs, ours) = (Path::new(REFERENCE), world.bin_dir.as_path());
    let result: Value = serde_json::from_slice(&call(theirs, "ADD", &config)).unwrap();
    portmap["prevResult"] = result;
    call(theirs, "ADD", &portmap);
    let own_chains = |rules: &str| {
        let names = rules.lines().filter_map(|line| line.trim().strip_prefix("chain CNI-"));
        names.filter(|name| !name.starts_with("HOSTPORT")).count()
    };
    assert_eq!(
        own_chains(&world.host.namespace.rules()),
        2,
        "{}",
        world.host.namespace.rules()
    );
    call(ours, "DEL", &portmap);
    call(ours, "DEL", &config);
    let rules = world.host.namespace.rules();
    assert_eq!(own_chains(&rules), 0, "{rules}");
    assert!(!rules.contains("container-1"), "{rules}");
    assert!(world.host.reserved("diffnet").is_empty());
}

/// The other way round: a node goes back to the reference while our containers run.
#[test]
fn what_we_masquerade_is_removed_by_the_reference() {
    for reference in references("what_we_masquerade_is_removed_by_the_reference") {
        let world = World::new(None);
        let ranges = json!([[{"subnet": "10.50.0.0/24"}], [{"subnet": "fd00:50::/64"}]]);
        let mut config = bridge("", json!({"ipMasq": true})).config;
        config["ipam"] = json!({"type": "host-local", "dataDir": world.host.data_dir(), "ranges": ranges});
        let call = |bin_dir: &Path, command: &str, config: &Value| {
            let variables = world.variables(command, &BTreeMap::new());
            let output = call_in(&world.host.namespace, bin_dir, &variables, config);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            output.stdout
        };
        let result: Value = serde_json::from_slice(&call(&world.bin_dir, "ADD", &config)).unwrap();
        let made = world.host.namespace.iptables("nat");
        assert_eq!(made.matches("-A POSTROUTING").count(), 2, "{made}");
        config["prevResult"] = result;
        call(Path::new(&reference.bin_dir), "DEL", &config);
        let left = world.host.namespace.iptables("nat");
        assert!(!left.contains("CNI-") && !left.contains("container-1"), "{left}");
        assert!(world.host.reserved("diffnet").is_empty());
    }
}
