//! Our plugins beside the reference ones, as Debian's package containernetworking-plugins installs them: the same calls in
//! two equal worlds, and everything a user can see compared: exit status, result or error, links, addresses, routes, files.
//!
//! The package is of version 1.1.1, which knows neither 1.1.0 of the specification nor nftables: masquerading and port
//! mappings are compared by what they do, in the modules of those plugins. Where the contract departs from 1.1.1, the
//! normalisation below says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::fixture::{Container, Host, call_in, files, merge};

const REFERENCE: &str = "/usr/lib/cni";

/// What a call left, without what is random.
struct Seen {
    printed: String,
    kernel: String,
    stored: String,
}

/// One of the two worlds.
struct World {
    host: Host,
    bin_dir: PathBuf,
    container: Container,
}

impl World {
    fn new(bin_dir: Option<&str>) -> Self {
        let host = Host::new();
        let bin_dir = bin_dir.map_or_else(|| host.bin_dir.clone(), PathBuf::from);
        Self {
            host,
            bin_dir,
            container: Container::new(),
        }
    }

    fn variables(&self, command: &str, more: &BTreeMap<&'static str, String>) -> BTreeMap<&'static str, String> {
        let mut variables = self.host.variables(command, &self.container);
        variables.insert("CNI_CONTAINERID", "container-1".into());
        variables.insert("CNI_PATH", self.bin_dir.display().to_string());
        variables.extend(more.clone());
        variables
    }

    /// Makes a call; returns what it printed, and everything that can be seen afterwards, without what is random.
    fn step(&self, command: &str, config: &Value, more: &BTreeMap<&'static str, String>) -> (Value, Seen) {
        let text = config.to_string().replace("DATA", &self.host.data_dir());
        let config: Value = serde_json::from_str(&text).unwrap();
        let output = call_in(
            &self.host.namespace,
            &self.bin_dir,
            &self.variables(command, more),
            &config,
        );
        let printed = String::from_utf8(output.stdout).unwrap();
        let parsed: Value = serde_json::from_str(&printed).unwrap_or(Value::String(printed));
        let printed = format!("{command}: {}\n{parsed:#}\n", output.status.success());
        let mut seen = String::new();
        for (place, namespace) in [("host", &self.host.namespace), ("container", &self.container.namespace)] {
            for arguments in [&["link"][..], &["addr"], &["route"], &["-6", "route"]] {
                let shown = namespace.ip(&[&["-o"], arguments].concat());
                let mut lines: Vec<&str> = shown.lines().collect();
                lines.sort_unstable();
                seen.push_str(&format!("{place} {arguments:?}\n{}\n", lines.join("\n")));
            }
        }
        let data_dir = self.host.data_dir();
        let mut stored = String::new();
        for (path, content) in files(Path::new(&data_dir)) {
            let name = path.strip_prefix(&data_dir).unwrap();
            if !name.starts_with(".index") {
                stored.push_str(&format!("{} {content:?}\n", name.display()));
            }
        }
        let [printed, kernel, stored] = [printed, seen, stored].map(|text| self.normalise(&text));
        (
            parsed,
            Seen {
                printed,
                kernel,
                stored,
            },
        )
    }

    fn normalise(&self, text: &str) -> String {
        let text = text
            .replace(&self.host.data_dir(), "DATA")
            .replace(&self.bin_dir.display().to_string(), "BIN")
            .replace(&self.container.namespace.name, "CONTAINER")
            .replace(&self.host.namespace.name, "HOST");
        let lines = text.lines().filter(|line| {
            // 1.1.1 prints an empty dns in 1.0.0, 1.9 does not. Link-local addresses and their routes follow the random
            // hardware address and appear when they like.
            !line.contains("\"dns\": {}") && !line.contains("fe80:") && !line.contains("ff00::/8")
        });
        lines.map(normalise_line).collect::<Vec<_>>().join("\n")
    }
}

/// Replaces random names and hardware addresses, and drops what is a matter of timing.
fn normalise_line(line: &str) -> String {
    let words = line.split_inclusive([' ', '"', '@', ':', '\\']);
    let mut out = String::new();
    let mut skip = 0;
    for word in words {
        let bare = word.trim_end_matches([' ', '"', '@', ':', '\\']);
        let is_veth =
            bare.len() == 12 && bare.starts_with("veth") && bare[4..].bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_byte = bare.len() == 2 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        if skip > 0 {
            skip -= 1;
        } else if is_veth {
            out.push_str(&word.replace(bare, "vethX"));
        } else if is_byte && word.ends_with(':') {
            // Six bytes of a hardware address; the last is closed by another delimiter.
            out.push_str("MAC ");
            skip = 5;
        } else {
            out.push_str(word);
        }
    }
    // The trailing comma of JSON before a dropped line, tentative flags, and the queue length, which 1.1.1 sets to none and
    // 1.9 leaves to the kernel.
    let out = out.trim_end_matches([',', ' ']).to_owned();
    let out = out.replace('\\', " ");
    let mut words = out.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "qlen" => drop(words.next()),
            // Whether a link without traffic has been noticed to be up or down yet.
            "tentative" | "linkdown" => {}
            "state" => drop(words.next()),
            word => kept.push(word.replace("NO-CARRIER,", "").replace(",LOWER_UP", "")),
        }
    }
    kept.join(" ")
}

/// A configuration, the versions it is tried with, further variables, and the calls.
struct Case {
    name: &'static str,
    config: Value,
    variables: BTreeMap<&'static str, String>,
    steps: &'static [&'static str],
}

const CYCLE: &[&str] = &["ADD", "CHECK", "DEL", "DEL"];
const TWICE: &[&str] = &["ADD", "ADD", "DEL", "DEL"];

fn bridge(name: &'static str, more: Value) -> Case {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "diffnet", "type": "bridge", "bridge": "cnid0", "isGateway": true,
        "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.50.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    });
    merge(&mut config, more);
    Case {
        name,
        config,
        variables: BTreeMap::new(),
        steps: CYCLE,
    }
}

fn host_local(name: &'static str, ipam: Value) -> Case {
    let mut config = json!({"type": "host-local", "dataDir": "DATA"});
    merge(&mut config, ipam);
    let config = json!({"cniVersion": "1.0.0", "name": "diffnet", "type": "host-local", "ipam": config});
    Case {
        name,
        config,
        variables: BTreeMap::new(),
        steps: CYCLE,
    }
}

impl Case {
    fn with(mut self, key: &'static str, value: &str) -> Self {
        self.variables.insert(key, value.into());
        self
    }

    fn steps(self, steps: &'static [&'static str]) -> Self {
        Self { steps, ..self }
    }

    fn top(mut self, more: Value) -> Self {
        merge(&mut self.config, more);
        self
    }
}

fn run(case: &Case) {
    let worlds = [World::new(Some(REFERENCE)), World::new(None)];
    let mut previous = [Value::Null, Value::Null];
    let mut failed = false;
    for (number, command) in case.steps.iter().enumerate() {
        let version = case.config["cniVersion"].as_str().unwrap_or_default().to_owned();
        let mut seen = Vec::new();
        for (world, previous) in worlds.iter().zip(&mut previous) {
            let mut config = case.config.clone();
            if *command != "ADD" && previous.is_object() && version.as_str() >= "0.4.0" {
                config["prevResult"] = previous.clone();
            }
            let (printed, state) = world.step(command, &config, &case.variables);
            if *command == "ADD" && printed.get("code").is_none() {
                *previous = printed;
            }
            seen.push(state);
        }
        failed |= number == 0 && seen[0].printed.starts_with("ADD: false");
        let mut pairs = vec![(&seen[0].printed, &seen[1].printed), (&seen[0].stored, &seen[1].stored)];
        // After an ADD that fails, the reference leaves a bridge and a half-made pair behind; we leave nothing.
        if !failed {
            pairs.push((&seen[0].kernel, &seen[1].kernel));
        }
        for (reference, ours) in pairs {
            if let Some((reference, ours)) = first_difference(reference, ours) {
                panic!(
                    "{} step {number} ({command})\n reference: {reference}\n ours:      {ours}",
                    case.name
                );
            }
        }
    }
}

/// The first pair of lines that differ.
fn first_difference<'a>(left: &'a str, right: &'a str) -> Option<(&'a str, &'a str)> {
    let (mut left, mut right) = (left.lines(), right.lines());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return None,
            (one, two) if one == two => {}
            (one, two) => return Some((one.unwrap_or("(nothing)"), two.unwrap_or("(nothing)"))),
        }
    }
}

/// Runs cases, four at a time, if the reference is installed.
fn run_all(test: &str, cases: Vec<Case>) {
    if !Path::new(REFERENCE).join("bridge").exists() {
        eprintln!("SKIPPED {test}: Debian's package containernetworking-plugins is not installed");
        return;
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            run(case);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
}

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
        host_local("wanted too many", subnet()).top(json!({"args": {"cni": {"ips": ["10.0.0.5", "10.0.0.6"]}}})),
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
