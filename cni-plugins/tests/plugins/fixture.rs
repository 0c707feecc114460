//! A host and its containers, as network namespaces that end with the test.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use netlink::netns::Netns;
use serde_json::{Value, json};

/// Plugins the binary is linked as.
const NAMES: [&str; 9] = [
    "bandwidth",
    "bridge",
    "firewall",
    "host-local",
    "loopback",
    "portmap",
    "ptp",
    "static",
    "tuning",
];

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A name nobody else on this machine has, with our prefix and short enough for an interface.
pub(crate) fn unique(what: &str) -> String {
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("sk-{what}{:x}-{number:x}", std::process::id())
}

/// Runs a program and returns its standard output; panics with its error output when it fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace of our own.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) fn new(what: &str) -> Self {
        let name = unique(what);
        run("ip", &["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    /// `ip` inside, as text.
    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        run("ip", &[&["-n", self.name.as_str()], arguments].concat())
    }

    /// `ip -json` inside.
    pub(crate) fn ip_json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = run(
            "ip",
            &[&["-n", self.name.as_str(), "-json", "-details"], arguments].concat(),
        );
        if text.trim().is_empty() {
            Vec::new()
        } else {
            serde_json::from_str(&text).unwrap()
        }
    }

    /// One link by name, as `ip` describes it.
    pub(crate) fn link(&self, name: &str) -> Option<Value> {
        self.ip_json(&["link", "show"])
            .into_iter()
            .find(|link| link["ifname"] == name)
    }

    /// The global addresses of a link, as `address/prefix`.
    pub(crate) fn addresses(&self, name: &str) -> Vec<String> {
        let links = self.ip_json(&["addr", "show", "dev", name]);
        let infos = links
            .iter()
            .flat_map(|link| link["addr_info"].as_array().cloned().unwrap_or_default());
        let global = infos.filter(|info| info["scope"] == "global");
        global
            .map(|info| format!("{}/{}", info["local"].as_str().unwrap(), info["prefixlen"]))
            .collect()
    }

    /// The rule set inside, or empty.
    pub(crate) fn rules(&self) -> String {
        run("ip", &["netns", "exec", &self.name, "nft", "list", "ruleset"])
    }

    /// What iptables shows of a table in both families, without its notes and counters.
    pub(crate) fn iptables(&self, table: &str) -> String {
        let save = |program| run("ip", &["netns", "exec", &self.name, program, "-t", table]);
        let saved = save("iptables-save") + &save("ip6tables-save");
        let lines = saved.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.to_owned() + "\n").collect()
    }

    /// A kernel switch of the network, by its path below `/proc/sys/net`.
    pub(crate) fn switch(&self, name: &str) -> String {
        self.inside(|| netlink::sysctl::get(name)).unwrap_or_default()
    }

    /// Runs `work` on a thread inside.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        Netns::open(&self.path()).unwrap().run(work).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// A TCP connection from one namespace to another; returns the client's address as the server sees it.
pub(crate) fn connect(from: &Namespace, to: &Namespace, target: SocketAddr) -> std::io::Result<IpAddr> {
    let listener = to.inside(|| TcpListener::bind(SocketAddr::new(target.ip(), target.port())).unwrap());
    connect_to(from, &listener, target)
}

/// A TCP connection to a listener that waits already, by an address that may be translated on the way. On a loaded machine the
/// kernel takes seconds to tell a new link from one without a carrier, and each lost first packet is tried again after a second or two.
pub(crate) fn connect_to(from: &Namespace, listener: &TcpListener, target: SocketAddr) -> std::io::Result<IpAddr> {
    connect_within(Duration::from_secs(20), from, listener, target)
}

/// Whether a connection comes about, where none may: what is dropped answers nothing, and is waited for a shorter while.
pub(crate) fn reaches(from: &Namespace, listener: &TcpListener, target: SocketAddr) -> bool {
    connect_within(Duration::from_secs(3), from, listener, target).is_ok()
}

fn connect_within(
    patience: Duration,
    from: &Namespace,
    listener: &TcpListener,
    target: SocketAddr,
) -> std::io::Result<IpAddr> {
    let client = from.inside(|| TcpStream::connect_timeout(&target, patience))?;
    let own = client.local_addr()?;
    loop {
        let (_, peer) = listener.accept()?;
        if peer.port() == own.port() || peer.ip() != own.ip() {
            return Ok(peer.ip());
        }
    }
}

/// A host with our plugins.
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) bin_dir: PathBuf,
}

impl Host {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin_dir = folder.path().join("bin");
        std::fs::create_dir(&bin_dir).unwrap();
        for name in NAMES {
            // On another machine than the one that built the tests, the binary lies elsewhere.
            let binary = std::env::var("SKIFF_CNI_PLUGINS");
            let binary = binary.unwrap_or_else(|_| env!("CARGO_BIN_EXE_cni-plugins").to_owned());
            std::os::unix::fs::symlink(binary, bin_dir.join(name)).unwrap();
        }
        Self {
            namespace: Namespace::new("h"),
            folder,
            bin_dir,
        }
    }

    pub(crate) fn data_dir(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    /// The environment of a call.
    pub(crate) fn variables(&self, command: &str, container: &Container) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", container.id.clone()),
            ("CNI_NETNS", container.namespace.path()),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_PATH", self.bin_dir.display().to_string()),
        ])
    }

    /// Calls the plugin a configuration names, with exactly these variables.
    pub(crate) fn call(&self, variables: &BTreeMap<&'static str, String>, config: &Value) -> Output {
        call_in(&self.namespace, &self.bin_dir, variables, config)
    }

    /// A call that must succeed; returns what it printed, if anything.
    pub(crate) fn succeed(&self, command: &str, container: &Container, config: &Value) -> Value {
        let output = self.call(&self.variables(command, container), config);
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{command}: {stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        if stdout.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&stdout).unwrap()
        }
    }

    pub(crate) fn add(&self, container: &Container, config: &Value) -> Value {
        self.succeed("ADD", container, config)
    }

    pub(crate) fn del(&self, container: &Container, config: &Value) {
        assert_eq!(self.succeed("DEL", container, config), Value::Null);
    }

    /// A call that must fail; returns code and message.
    pub(crate) fn fail(&self, command: &str, container: &Container, config: &Value) -> (u64, String) {
        failure(&self.call(&self.variables(command, container), config))
    }

    /// Names of the addresses reserved in `network`.
    pub(crate) fn reserved(&self, network: &str) -> Vec<String> {
        reserved(Path::new(&self.data_dir()), network)
    }

    /// Everything a call may change: links, addresses, routes, rules and files.
    pub(crate) fn state(&self, containers: &[&Container]) -> String {
        format!(
            "{}{:?}",
            self.kernel_state(containers),
            files(Path::new(&self.data_dir()))
        )
    }

    /// Links, addresses, routes and rules.
    pub(crate) fn kernel_state(&self, containers: &[&Container]) -> String {
        let mut state = String::new();
        let all = containers
            .iter()
            .map(|container| &container.namespace)
            .chain([&self.namespace]);
        for namespace in all {
            let links = namespace.ip(&["-json", "addr", "show"]);
            let links: Vec<Value> = serde_json::from_str(&links).unwrap();
            links.into_iter().for_each(|link| state.push_str(&settled(link)));
            state.push_str(&namespace.ip(&["route", "show"]));
        }
        state.push_str(&self.namespace.rules());
        state
    }
}

/// What somebody set of a link and its addresses. The kernel itself says a moment later that a cable is there, and checks and
/// gives link-local addresses.
fn settled(mut link: Value) -> String {
    let is_up = link["flags"].as_array().unwrap().iter().any(|flag| flag == "UP");
    link["flags"] = json!(is_up);
    link["operstate"].take();
    if let Some(addresses) = link["addr_info"].as_array_mut() {
        addresses.retain(|address| address["scope"] != "link");
    }
    format!("{link}\n")
}

/// Every file below a folder with its content.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return found;
    };
    for entry in entries.map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.path(), std::fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
    found
}

/// Names of the addresses reserved in a network of a data folder.
pub(crate) fn reserved(data_dir: &Path, network: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(data_dir.join(network)) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut addresses: Vec<String> = names.filter(|name| name.parse::<IpAddr>().is_ok()).collect();
    addresses.sort();
    addresses
}

/// Calls a plugin inside a namespace.
pub(crate) fn call_in(
    namespace: &Namespace,
    bin_dir: &Path,
    variables: &BTreeMap<&'static str, String>,
    config: &Value,
) -> Output {
    let plugin = bin_dir.join(config["type"].as_str().unwrap());
    let mut child = Command::new("ip")
        .args(["netns", "exec", &namespace.name])
        .arg(plugin)
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The plugin may end without reading, as VERSION does.
    let _ = child.stdin.take().unwrap().write_all(config.to_string().as_bytes());
    child.wait_with_output().unwrap()
}

/// Code and message of a failed call.
pub(crate) fn failure(output: &Output) -> (u64, String) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "unexpected success: {stdout}");
    let error: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    (
        error["code"].as_u64().unwrap(),
        error["msg"].as_str().unwrap().to_owned(),
    )
}

/// A container.
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) namespace: Namespace,
}

impl Container {
    pub(crate) fn new() -> Self {
        Self {
            id: unique("id"),
            namespace: Namespace::new("c"),
        }
    }
}

/// A bridge configuration with addresses from `subnet`; `more` is merged over it.
pub(crate) fn bridge_config(host: &Host, subnet: &str, more: Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "testnet", "type": "bridge", "bridge": "cni0",
        "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
        "ipam": {
            "type": "host-local", "dataDir": host.data_dir(),
            "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}],
        },
    });
    merge(&mut config, more);
    config
}

/// Puts the keys of one object into another.
pub(crate) fn merge(into: &mut Value, from: Value) {
    let Value::Object(from) = from else {
        panic!("an object is needed")
    };
    for (key, value) in from {
        into[key] = value;
    }
}

/// The address an ADD gave.
pub(crate) fn address(result: &Value) -> IpAddr {
    result["ips"][0]["address"]
        .as_str()
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}
