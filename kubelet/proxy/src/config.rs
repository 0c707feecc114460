//! KubeProxyConfiguration v1alpha1 and flags, resolved.
//!
//! What the user wrote becomes a tree, is completed with upstream's defaults, checked with every mistake told at once, and read
//! into a [`Config`]. What has no effect here is named in a warning. Only [`load`] touches the file system.

mod rules;
mod table;
mod tree;
mod yaml;

use crate::duration;
use crate::flags::Flags;
use crate::node_ports::{self, Ports};
use netlink::cidr::Cidr;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tree::Tree;

/// The version this proxy reports.
pub const VERSION: &str = "v1.36.2";
/// Upstream's ports (`pkg/cluster/ports`).
const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;

/// Everything the program is told, ready to use.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `clientConnection.kubeconfig`; without one, and without `master`, the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: the API server's address, over the kubeconfig's.
    pub master: Option<String>,
    /// `hostnameOverride`; `None` takes the host name.
    pub hostname_override: Option<String>,
    /// `bindAddress`, unless it is unspecified: the node's first address.
    pub node_ip: Option<IpAddr>,
    /// `healthzBindAddress`; `None` is no server.
    pub healthz: Option<SocketAddr>,
    /// `metricsBindAddress`; `None` is no server.
    pub metrics: Option<SocketAddr>,
    /// `bindAddressHardFail`: a server that cannot be bound ends the program.
    pub bind_hard_fail: bool,
    /// The masquerade settings of the mode.
    pub masquerade: Masquerade,
    /// `syncPeriod` of the mode: how often everything is looked over.
    pub sync_period: Duration,
    /// `minSyncPeriod` of the mode: the least time between two changes of rules.
    pub min_sync_period: Duration,
    /// `detectLocalMode`, with what it needs.
    pub local: LocalTraffic,
    /// `nodePortAddresses`.
    pub node_ports: NodePorts,
    /// `iptables.localhostNodePorts`, in the modes that read it.
    pub localhost_node_ports: bool,
    /// `--reserve-node-ports`, ours alone: node ports that the kernel is kept from choosing; `None` leaves its choice.
    pub reserve_node_ports: Option<Ports>,
    /// `oomScoreAdj`.
    pub oom_score_adj: i64,
    /// `conntrack`.
    pub conntrack: Conntrack,
    /// What is logged, and how.
    pub logging: Logging,
    /// What to tell the user: fields and flags without effect.
    pub warnings: Vec<String>,
    /// The whole configuration, defaults included, as `/configz` shows it.
    pub effective: Value,
}

/// What is masqueraded, and how it is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masquerade {
    /// `masqueradeAll`: whatever goes to a cluster IP.
    pub all: bool,
    /// `masqueradeBit`, 0 to 31.
    pub bit: u8,
}

/// How traffic of this node's pods is told from other traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalTraffic {
    /// Its source is in one of these ranges; without any nothing is told apart.
    ClusterCidr(Vec<Cidr>),
    /// Its source is in the node's `podCIDRs`.
    NodeCidr,
    /// It comes from this bridge.
    Bridge(String),
    /// It comes from an interface whose name begins so.
    InterfacePrefix(String),
}

/// On which of the node's addresses node ports are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePorts {
    /// On all of them.
    All,
    /// On the node's own, first of each family.
    Primary,
    /// On those within these ranges.
    Ranges(Vec<Cidr>),
}

/// `conntrack`; zero leaves the kernel's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Entries for each processor.
    pub max_per_core: u32,
    /// Entries there are to be at least, if `max_per_core` is not zero.
    pub min: u32,
    /// Idle time of established TCP connections.
    pub tcp_established: Duration,
    /// Idle time of half closed ones.
    pub tcp_close_wait: Duration,
    /// Packets out of the window are not invalid.
    pub tcp_be_liberal: bool,
    /// Idle time of UDP flows without a reply.
    pub udp: Duration,
    /// Idle time of UDP flows with replies.
    pub udp_stream: Duration,
}

/// What is logged, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logging {
    /// `logging.format` is `json`.
    pub json: bool,
    /// `logging.verbosity`; `None` says as much as is usual.
    pub verbosity: Option<i64>,
    /// `logging.vmodule`: a pattern of file names and the verbosity of those files.
    pub modules: Vec<(String, i64)>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("failed complete: read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What is written cannot be used: every mistake on a line of its own.
    #[error("{origin}:\n  {}", mistakes.join("\n  "))]
    Mistakes {
        /// Which step found them.
        origin: &'static str,
        /// All of them.
        mistakes: Vec<String>,
    },
}

/// Reads the configuration file the flags name, or the flags where they name none.
///
/// # Errors
/// The file cannot be read, or something in it or in the flags is wrong.
pub fn load(flags: &Flags) -> Result<Config, ConfigError> {
    let text = match flags.text("config").filter(|path| !path.is_empty()) {
        None => None,
        Some(path) => Some(std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?),
    };
    resolve(text.as_deref(), flags)
}

/// What a configuration file's text, if there is one, and flags mean. Pure.
///
/// # Errors
/// Everything that is wrong with them.
pub fn resolve(file: Option<&str>, flags: &Flags) -> Result<Config, ConfigError> {
    resolve_with(file, flags, &[])
}

/// The same, for a program whose `defaults` go before upstream's: dotted paths, and what holds where the file says nothing.
///
/// # Errors
/// Everything that is wrong with file and flags.
pub fn resolve_with(
    file: Option<&str>,
    flags: &Flags,
    defaults: &[(&'static str, Value)],
) -> Result<Config, ConfigError> {
    let mistakes = |origin| move |mistakes| ConfigError::Mistakes { origin, mistakes };
    let decoded = match file {
        None => tree::Decoded::default(),
        Some(text) => tree::decode(text).map_err(mistakes("failed complete: failed to decode"))?,
    };
    let (mut tree, mut warnings) = (decoded.tree, unknown(&decoded.unknown));
    tree.fill(defaults);
    complete(&mut tree);
    let mut ignored = Vec::new();
    for (path, value, flag) in &flags.fields {
        match (file, *path) {
            (Some(_), "logging.vmodule") => {
                let both = [value, tree.value(path)].into_iter().filter_map(Value::as_array);
                let both: Vec<Value> = both.flatten().cloned().collect();
                tree.set(path, both.into());
            }
            (Some(_), path) if !path.starts_with("logging.") => ignored.push(format!("--{flag}")),
            (_, path) => tree.set(path, value.clone()),
        }
    }
    if file.is_none() {
        flags_alone(&mut tree, flags);
    }
    let name = flags.text("hostname-override").unwrap_or_default();
    if !name.is_empty() {
        let name = name.trim().to_lowercase();
        if name.is_empty() {
            let empty = vec!["empty hostname-override is invalid".to_owned()];
            return Err(mistakes("failed complete")(empty));
        }
        tree.set("hostnameOverride", name.into());
    }
    let found = rules::validate(&tree);
    if !found.is_empty() {
        return Err(mistakes("failed validate")(found));
    }
    let reserve = flags.text("reserve-node-ports").filter(|text| !text.is_empty());
    let reserve = reserve.map(node_ports::parse).transpose();
    let wrong = |why| mistakes("failed validate")(vec![format!("--reserve-node-ports: {why}")]);
    let reserve_node_ports = reserve.map_err(wrong)?;
    if !ignored.is_empty() {
        warnings.push(format!("ignored because of --config: {}", ignored.join(", ")));
    }
    warnings.extend(without_effect(&tree, flags));
    Ok(Config {
        reserve_node_ports,
        ..read(&tree, flags, warnings)
    })
}

/// The configuration that was resolved as text for a file (`--write-config-to`).
pub fn written(config: &Config) -> String {
    yaml::text(&config.effective)
}

fn unknown(paths: &[String]) -> Vec<String> {
    if paths.is_empty() {
        return Vec::new();
    }
    let all: Vec<String> = paths.iter().map(|path| format!("unknown field {path:?}")).collect();
    vec![format!(
        "Using lenient decoding as strict decoding failed: {}",
        all.join(", ")
    )]
}

/// Upstream's defaults; the addresses of servers follow the family of `bindAddress`, and get a port if they have none.
fn complete(tree: &mut Tree) {
    let is_v6 = tree.text("bindAddress").parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    for (field, host, port) in [
        ("healthzBindAddress", ["0.0.0.0", "[::]"], HEALTHZ_PORT),
        ("metricsBindAddress", ["127.0.0.1", "[::1]"], METRICS_PORT),
    ] {
        let address = match tree.text(field) {
            "" => format!("{}:{port}", host[usize::from(is_v6)]),
            written => with_port(written, port),
        };
        tree.set(field, address.into());
    }
    tree.complete();
}

/// The address with a port, if it is an address without one.
fn with_port(text: &str, port: u16) -> String {
    match text.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => text.to_owned(),
    }
}

/// What flags mean where there is no configuration file: `--healthz-port=0` and `--metrics-port=0` are no server, and flags named after
/// iptables say what holds for nftables.
fn flags_alone(tree: &mut Tree, flags: &Flags) {
    for (flag, field, default) in [
        ("healthz-port", "healthzBindAddress", HEALTHZ_PORT),
        ("metrics-port", "metricsBindAddress", METRICS_PORT),
    ] {
        let port = flags.int(flag).map_or(Ok(default), u16::try_from);
        let address = match port {
            Ok(0) => String::new(),
            Ok(port) => with_port(tree.text(field), port),
            Err(_) => format!("{}:{}", tree.text(field), flags.int(flag).unwrap_or_default()),
        };
        tree.set(field, address.into());
    }
    if tree.text("mode") == "nftables" {
        for (from, to) in [
            ("iptables.masqueradeAll", "nftables.masqueradeAll"),
            ("iptables.syncPeriod", "nftables.syncPeriod"),
            ("iptables.minSyncPeriod", "nftables.minSyncPeriod"),
        ] {
            if flags.sets(from) {
                tree.set(to, tree.value(from).clone());
            }
        }
    }
}

fn without_effect(tree: &Tree, flags: &Flags) -> Vec<String> {
    let mut warnings = Vec::new();
    let mode = tree.text("mode");
    if ["iptables", "ipvs"].contains(&mode) {
        warnings.push(format!(
            "mode {mode:?}: this proxy has rules of nf_tables alone, and uses them in its place"
        ));
    }
    let inert = flags.inert.iter().map(|name| format!("--{name}"));
    let all: Vec<String> = tree.inert().into_iter().chain(inert).collect();
    if !all.is_empty() {
        warnings.push(format!("no effect in this proxy: {}", all.join(", ")));
    }
    warnings
}

/// Reads a tree that was found to be right.
fn read(tree: &Tree, flags: &Flags, warnings: Vec<String>) -> Config {
    let mode = tree.text("mode");
    let section = rules::section(mode);
    let time = |path: &str| duration::positive(tree.nanos(path));
    let given = |path: &str| Some(tree.text(path)).filter(|text| !text.is_empty()).map(str::to_owned);
    let masquerade = if mode == "nftables" { "nftables" } else { "iptables" };
    let mut effective = tree.clone();
    effective.set("apiVersion", "kubeproxy.config.k8s.io/v1alpha1".into());
    effective.set("kind", "KubeProxyConfiguration".into());
    Config {
        kubeconfig: given("clientConnection.kubeconfig").map(PathBuf::from),
        reserve_node_ports: None,
        master: flags.text("master").filter(|text| !text.is_empty()).map(str::to_owned),
        hostname_override: given("hostnameOverride").map(|name| name.trim().to_lowercase()),
        node_ip: tree
            .text("bindAddress")
            .parse()
            .ok()
            .filter(|ip: &IpAddr| !ip.is_unspecified()),
        healthz: tree.text("healthzBindAddress").parse().ok(),
        metrics: tree.text("metricsBindAddress").parse().ok(),
        bind_hard_fail: tree.bool("bindAddressHardFail"),
        masquerade: Masquerade {
            all: tree.bool(&format!("{masquerade}.masqueradeAll")),
            bit: u8::try_from(tree.int(&format!("{masquerade}.masqueradeBit"))).unwrap_or_default(),
        },
        sync_period: time(&format!("{section}.syncPeriod")),
        min_sync_period: time(&format!("{section}.minSyncPeriod")),
        local: local(tree),
        node_ports: node_ports(tree),
        localhost_node_ports: ["", "iptables"].contains(&mode) && tree.bool("iptables.localhostNodePorts"),
        oom_score_adj: tree.int("oomScoreAdj"),
        conntrack: conntrack(tree),
        logging: logging(tree, flags),
        warnings,
        effective: Value::Object(effective.0),
    }
}

fn cidrs<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<Cidr> {
    texts.into_iter().filter_map(|text| Cidr::parse(text).ok()).collect()
}

fn local(tree: &Tree) -> LocalTraffic {
    match tree.text("detectLocalMode") {
        "NodeCIDR" => LocalTraffic::NodeCidr,
        "BridgeInterface" => LocalTraffic::Bridge(tree.text("detectLocal.bridgeInterface").to_owned()),
        "InterfaceNamePrefix" => LocalTraffic::InterfacePrefix(tree.text("detectLocal.interfaceNamePrefix").to_owned()),
        _ => LocalTraffic::ClusterCidr(cidrs(tree.text("clusterCIDR").split(','))),
    }
}

fn node_ports(tree: &Tree) -> NodePorts {
    match tree.list("nodePortAddresses")[..] {
        [] if tree.text("mode") == "nftables" => NodePorts::Primary,
        [] => NodePorts::All,
        ["primary"] => NodePorts::Primary,
        ref ranges => NodePorts::Ranges(cidrs(ranges.iter().copied())),
    }
}

fn conntrack(tree: &Tree) -> Conntrack {
    let number = |path: &str| u32::try_from(tree.int(path)).unwrap_or_default();
    let time = |path: &str| duration::positive(tree.nanos(path));
    Conntrack {
        max_per_core: number("conntrack.maxPerCore"),
        min: number("conntrack.min"),
        tcp_established: time("conntrack.tcpEstablishedTimeout"),
        tcp_close_wait: time("conntrack.tcpCloseWaitTimeout"),
        tcp_be_liberal: tree.bool("conntrack.tcpBeLiberal"),
        udp: time("conntrack.udpTimeout"),
        udp_stream: time("conntrack.udpStreamTimeout"),
    }
}

fn logging(tree: &Tree, flags: &Flags) -> Logging {
    let items = tree.value("logging.vmodule").as_array();
    let module = |item: &Value| {
        Some((
            item.get("filePattern")?.as_str()?.to_owned(),
            item.get("verbosity")?.as_i64()?,
        ))
    };
    // A zero in a file is what tools write who mean nothing by it; on the command line somebody means it.
    let by_flag = flags.sets("logging.verbosity");
    Logging {
        json: tree.text("logging.format") == "json",
        verbosity: Some(tree.int("logging.verbosity")).filter(|verbosity| by_flag || *verbosity != 0),
        modules: items.into_iter().flatten().filter_map(module).collect(),
    }
}

/// Whether the configuration has a field of that path.
#[cfg(test)]
pub(crate) fn is_field(path: &str) -> bool {
    table::find(path).is_some()
}

#[cfg(test)]
mod tests;
