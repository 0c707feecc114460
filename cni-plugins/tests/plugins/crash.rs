//! kill -9 before every system call of an ADD and of a DEL that can change anything (between two of those, nothing differs),
//! by strace's fault injection; and how much work a call does when many addresses are held, counted in system calls.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::fixture::{Container, Host, bridge_config, files, merge};

/// The system calls our plugins change files and the kernel with, and the last one.
const CHANGING: [&str; 13] = [
    "openat",
    "write",
    "rename",
    "linkat",
    "link",
    "unlink",
    "mkdir",
    "fsync",
    "flock",
    "sendto",
    "sendmsg",
    "setns",
    "exit_group",
];

fn has_strace(test: &str) -> bool {
    let found = Command::new("strace").arg("-V").output().is_ok();
    if !found {
        eprintln!("SKIPPED {test}: strace is not installed");
    }
    found
}

/// Calls a plugin under strace.
fn trace(host: &Host, variables: &BTreeMap<&'static str, String>, config: &Value, options: &[&str]) -> Output {
    let mut child = Command::new("ip")
        .args(["netns", "exec", &host.namespace.name, "strace", "-f", "-qq"])
        .args(options)
        .arg(host.bin_dir.join(config["type"].as_str().unwrap()))
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(config.to_string().as_bytes());
    child.wait_with_output().unwrap()
}

/// A place to kill at: the n-th call of a name.
type Place = (String, usize);

/// Kills the call at `place`. False: it ended before.
fn killed_at(host: &Host, variables: &BTreeMap<&'static str, String>, config: &Value, place: &Place) -> bool {
    let inject = format!("inject={}:signal=SIGKILL:when={}", place.0, place.1);
    let output = trace(host, variables, config, &["-o", "/dev/null", "-e", &inject]);
    // strace ends as its child does, and `ip netns exec` becomes strace.
    let killed = output.status.signal() == Some(9) || output.status.code() == Some(137);
    assert!(
        killed || output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    killed
}

/// Makes a call that is not killed and returns the names of its system calls in order.
fn calls(host: &Host, variables: &BTreeMap<&'static str, String>, config: &Value) -> Vec<String> {
    let path = host.folder.path().join("trace");
    let output = trace(host, variables, config, &["-o", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = std::fs::read_to_string(path).unwrap();
    let name = |line: &str| {
        line.split_whitespace()
            .nth(1)?
            .split_once('(')
            .map(|(name, _)| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Every place of such a call where a kill makes a difference.
fn places(calls: &[String]) -> Vec<Place> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut places = Vec::new();
    for name in calls {
        let count = counts.entry(name).or_default();
        *count += 1;
        if CHANGING.contains(&name.as_str()) {
            places.push((name.clone(), *count));
        }
    }
    places
}

/// What another reader of the folder may see at any moment: complete reservations only.
fn assert_complete_files(host: &Host, container: &Container) {
    for address in host.reserved("testnet") {
        let path = std::path::Path::new(&host.data_dir()).join("testnet").join(&address);
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            format!("{}\r\neth0", container.id),
            "{address}"
        );
    }
}

fn assert_nothing_left(host: &Host, container: &Container, when: &str) {
    assert!(
        host.reserved("testnet").is_empty(),
        "{when}: {:?}",
        host.reserved("testnet")
    );
    assert!(container.namespace.link("eth0").is_none(), "{when}");
    let links = host.namespace.ip(&["-o", "link"]);
    assert!(!links.contains("veth"), "{when}: {links}");
    let rules = host.namespace.rules();
    assert!(!rules.contains(&container.id), "{when}: {rules}");
    assert!(!rules.contains("10.5.0."), "{when}: {rules}");
    assert!(
        files(&tuning_dir(host)).is_empty(),
        "{when}: {:?}",
        files(&tuning_dir(host))
    );
}

/// The configuration of a plugin in the chain of the network under test.
fn config(host: &Host, plugin: &str) -> Value {
    let ipam = json!({
        "type": "host-local", "dataDir": host.data_dir(),
        "ranges": [[{"subnet": "10.5.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}],
    });
    let more = match plugin {
        "bridge" => return bridge_config(host, "10.5.0.0/24", json!({"macspoofchk": true})),
        "ptp" => json!({"ipMasq": true, "ipMasqBackend": "nftables", "ipam": ipam}),
        "portmap" => {
            json!({"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "udp"}]}})
        }
        "firewall" => json!({"ingressPolicy": "same-bridge"}),
        "tuning" => json!({
            "dataDir": tuning_dir(host), "mtu": 1400, "promisc": true, "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"},
        }),
        other => panic!("{other} is not in the chain"),
    };
    let mut config = json!({"cniVersion": "1.1.0", "name": "testnet", "type": plugin});
    merge(&mut config, more);
    config
}

fn tuning_dir(host: &Host) -> std::path::PathBuf {
    host.folder.path().join("tuning")
}

/// A call to kill: the verb, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Victim {
    command: &'static str,
    plugin: &'static str,
}

impl Victim {
    fn add(plugin: &'static str) -> Self {
        Self { command: "ADD", plugin }
    }

    fn del(plugin: &'static str) -> Self {
        Self { command: "DEL", plugin }
    }

    /// The plugin that makes the interface.
    fn base(self) -> &'static str {
        if self.plugin == "ptp" { "ptp" } else { "bridge" }
    }

    fn is_chained(self) -> bool {
        self.plugin != self.base()
    }

    /// Does what comes before the call; returns its configuration.
    fn prepare(self, host: &Host, container: &Container) -> Value {
        let mut own = config(host, self.plugin);
        if self.is_chained() || self.command == "DEL" {
            let result = host.add(container, &config(host, self.base()));
            merge(&mut own, json!({"prevResult": result}));
        }
        if self.is_chained() && self.command == "DEL" {
            host.add(container, &own);
        }
        own
    }

    fn heal(self, host: &Host, container: &Container) {
        if self.is_chained() {
            host.del(container, &config(host, self.plugin));
        }
        host.del(container, &config(host, self.base()));
    }

    /// Runs the call unharmed and returns where it can be killed.
    fn rehearse(self, host: &Host, container: &Container) -> Vec<Place> {
        let config = self.prepare(host, container);
        let places = places(&calls(host, &host.variables(self.command, container), &config));
        self.heal(host, container);
        places
    }

    /// Kills the call at a place and heals with DEL; returns whether the kill struck.
    fn kill(self, host: &Host, container: &Container, place: &Place) -> bool {
        let config = self.prepare(host, container);
        let struck = killed_at(host, &host.variables(self.command, container), &config, place);
        assert_complete_files(host, container);
        self.heal(host, container);
        assert_nothing_left(host, container, &format!("{self:?} killed at {place:?}"));
        struck
    }

    /// Kills the call everywhere. `fresh`: each time on a host where nothing has been made yet.
    fn kill_everywhere(self, fresh: bool) {
        if !has_strace(&format!("{self:?}")) {
            return;
        }
        let (mut host, mut container) = (Host::new(), Container::new());
        let mut places = self.rehearse(&host, &container);
        if !fresh {
            places = self.rehearse(&host, &container);
        }
        assert!(places.len() >= 9, "{places:?}");
        let mut missed = 0;
        for place in &places {
            if fresh {
                (host, container) = (Host::new(), Container::new());
            }
            missed += usize::from(!self.kill(&host, &container, place));
        }
        // The first call on a host sweeps notes of vanished ones, of which there are more or fewer each time.
        let most = if fresh { places.len() / 2 } else { 0 };
        assert!(missed <= most, "{self:?}: {missed} kills at {places:?} missed");
    }
}

#[test]
fn an_add_killed_anywhere_is_healed_by_del() {
    Victim::add("bridge").kill_everywhere(false);
}

#[test]
fn the_first_add_of_a_host_killed_anywhere_is_healed_by_del() {
    Victim::add("bridge").kill_everywhere(true);
}

#[test]
fn a_del_killed_anywhere_is_healed_by_del() {
    Victim::del("bridge").kill_everywhere(false);
}

#[test]
fn a_port_mapping_killed_anywhere_is_healed_by_del() {
    Victim::add("portmap").kill_everywhere(false);
}

#[test]
fn the_removal_of_a_port_mapping_killed_anywhere_is_healed_by_del() {
    Victim::del("portmap").kill_everywhere(false);
}

#[test]
fn calls_of_ptp_killed_anywhere_are_healed_by_del() {
    Victim::add("ptp").kill_everywhere(false);
    Victim::del("ptp").kill_everywhere(false);
}

#[test]
fn calls_of_firewall_killed_anywhere_are_healed_by_del() {
    Victim::add("firewall").kill_everywhere(true);
    Victim::add("firewall").kill_everywhere(false);
    Victim::del("firewall").kill_everywhere(false);
}

#[test]
fn calls_of_tuning_killed_anywhere_are_healed_by_del() {
    Victim::add("tuning").kill_everywhere(false);
    Victim::del("tuning").kill_everywhere(false);
}

/// GC heals too, without the container's DEL: what a killed ADD left is of no valid attachment.
#[test]
fn an_add_killed_anywhere_is_healed_by_gc() {
    if !has_strace("an_add_killed_anywhere_is_healed_by_gc") {
        return;
    }
    let host = Host::new();
    let bridge = config(&host, "bridge");
    let mut collected = bridge.clone();
    merge(
        &mut collected,
        json!({"macspoofchk": false, "cni.dev/valid-attachments": []}),
    );
    let container = Container::new();
    let config = bridge;
    let places = places(&calls(&host, &host.variables("ADD", &container), &config));
    host.del(&container, &config);
    for place in places {
        // Each time another container: this one's runtime has forgotten it.
        let container = Container::new();
        killed_at(&host, &host.variables("ADD", &container), &config, &place);
        host.succeed("GC", &container, &collected);
        assert!(host.reserved("testnet").is_empty(), "killed at {place:?}");
        assert!(!host.namespace.rules().contains(&container.id), "killed at {place:?}");
    }
}

/// Whoever holds an address costs others nothing: the same number of system calls with one address held as with 5,000.
#[test]
fn the_cost_does_not_grow_with_the_addresses_held() {
    if !has_strace("the_cost_does_not_grow_with_the_addresses_held") {
        return;
    }
    let (host, container) = (Host::new(), Container::new());
    let config = json!({
        "cniVersion": "1.0.0", "name": "pool", "type": "host-local",
        "ipam": {"type": "host-local", "dataDir": host.data_dir(), "subnet": "10.6.0.0/16"},
    });
    let cycle = |id: &str| {
        let mut costs = Vec::new();
        for command in ["ADD", "CHECK", "DEL", "DEL"] {
            let mut variables = host.variables(command, &container);
            variables.insert("CNI_CONTAINERID", id.into());
            costs.push(if command == "CHECK" {
                let mut checked = config.clone();
                checked["prevResult"] = json!({"cniVersion": "1.0.0"});
                calls(&host, &variables, &checked).len()
            } else {
                calls(&host, &variables, &config).len()
            });
        }
        costs
    };
    cycle("first");
    let with_one = cycle("one");
    let folder = std::path::Path::new(&host.data_dir()).join("pool");
    for number in 0..5000u32 {
        let address = std::net::Ipv4Addr::from(u32::from(std::net::Ipv4Addr::new(10, 6, 100, 0)) + number);
        std::fs::write(folder.join(address.to_string()), format!("other{number}\r\neth0")).unwrap();
    }
    // The first call sees that others changed the folder, and reads it all once.
    cycle("reads");
    let with_many = cycle("many");
    for (few, many) in with_one.iter().zip(&with_many) {
        assert!(
            many.abs_diff(*few) <= 10,
            "system calls of ADD, CHECK, DEL, DEL: {with_one:?}, then {with_many:?}"
        );
    }
}
