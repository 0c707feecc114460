//! What upstream refuses of a completed configuration, in its words (`pkg/proxy/apis/config/validation`). Pure.

use super::tree::Tree;
use crate::duration;
use netlink::cidr::Cidr;
use serde_json::Value;
use std::net::IpAddr;

/// Modes upstream knows on Linux, as its message lists them.
const MODES: [&str; 3] = ["iptables", "ipvs", "nftables"];
const LOCAL_MODES: [&str; 5] = ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", ""];
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const POSITIVE: &str = "must be greater than 0";
const DUAL: &str =
    "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]";
/// What the release before the one we report may still hide.
const HIDDEN_FOR: &str = "1.35";
/// Whole numbers: field, upstream's path, the least, the most, and what is said otherwise.
const RANGES: &[(&str, &str, i64, i64, &str)] = &[
    (
        "iptables.masqueradeBit",
        "KubeProxyIPTablesConfiguration.MasqueradeBit",
        0,
        31,
        "must be within the range [0, 31]",
    ),
    (
        "conntrack.maxPerCore",
        "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.MaxPerCore",
        0,
        i64::MAX,
        NOT_NEGATIVE,
    ),
    (
        "conntrack.min",
        "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.Min",
        0,
        i64::MAX,
        NOT_NEGATIVE,
    ),
    (
        "oomScoreAdj",
        "KubeProxyLinuxConfiguration.OOMScoreAdj",
        -1000,
        1000,
        "must be within the range [-1000, 1000]",
    ),
    (
        "clientConnection.burst",
        "ClientConnection.Burst",
        0,
        i64::MAX,
        NOT_NEGATIVE,
    ),
];
/// Times that may not be negative: field and upstream's path.
const TIMES: &[(&str, &str)] = &[
    (
        "conntrack.tcpEstablishedTimeout",
        "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.TCPEstablishedTimeout",
    ),
    (
        "conntrack.tcpCloseWaitTimeout",
        "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.TCPCloseWaitTimeout",
    ),
    (
        "conntrack.udpTimeout",
        "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.UDPTimeout",
    ),
    (
        "conntrack.udpStreamTimeout",
        "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.UDPStreamTimeout",
    ),
];

/// Where mistakes are collected.
struct Found(Vec<String>);

impl Found {
    fn invalid(&mut self, path: &str, value: &str, why: &str) {
        self.0
            .push(format!("KubeProxyConfiguration.{path}: Invalid value: {value}: {why}"));
    }

    fn text(&mut self, path: &str, value: &str, why: &str) {
        self.invalid(path, &format!("{value:?}"), why);
    }

    fn time_if(&mut self, wrong: bool, path: &str, nanos: i64, why: &str) {
        if wrong {
            self.invalid(path, &duration::text(nanos), why);
        }
    }

    fn range(&mut self, tree: &Tree, row: &(&str, &str, i64, i64, &str)) {
        let (field, path, least, most, why) = row;
        let value = tree.int(field);
        if !(*least..=*most).contains(&value) {
            self.invalid(path, &value.to_string(), why);
        }
    }
}

/// All mistakes, in upstream's order of fields.
pub(super) fn validate(tree: &Tree) -> Vec<String> {
    let mut found = Found(Vec::new());
    for row in RANGES {
        found.range(tree, row);
    }
    let mode = tree.text("mode");
    match mode {
        "ipvs" => ipvs(&mut found, tree),
        "nftables" => found.range(
            tree,
            &(
                "nftables.masqueradeBit",
                "KubeProxyNFTablesConfiguration.MasqueradeBit",
                0,
                31,
                "must be within the range [0, 31]",
            ),
        ),
        _ => {}
    }
    for (field, path) in TIMES {
        let nanos = tree.nanos(field);
        found.time_if(nanos < 0, path, nanos, NOT_NEGATIVE);
    }
    if !mode.is_empty() && !MODES.contains(&mode) {
        let why = format!(
            "must be {} or blank (blank means the best-available proxy [currently iptables])",
            MODES.join(", ")
        );
        found.text("Mode.ProxyMode", mode, &why);
    }
    periods(&mut found, tree);
    addresses(&mut found, tree);
    if !is_port_range(tree.text("portRange")) {
        let why = "must be a valid port range (e.g. 300-2000)";
        found.text("PortRange", tree.text("portRange"), why);
    }
    node_ports(&mut found, &tree.list("nodePortAddresses"));
    let hidden = tree.text("showHiddenMetricsForVersion");
    if !hidden.is_empty() && hidden != HIDDEN_FOR {
        let why = format!(
            "--show-hidden-metrics-for-version must be omitted or have the value '{HIDDEN_FOR}'. Only the previous minor version is allowed"
        );
        found.text("ShowHiddenMetricsForVersion", hidden, &why);
    }
    local(&mut found, tree);
    logging(&mut found, tree);
    found.0
}

/// The section whose periods the mode reads.
pub(super) fn section(mode: &str) -> &'static str {
    match mode {
        "ipvs" => "ipvs",
        "nftables" => "nftables",
        _ => "iptables",
    }
}

fn periods(found: &mut Found, tree: &Tree) {
    let section = section(tree.text("mode"));
    let resync = tree.nanos("configSyncPeriod");
    found.time_if(resync <= 0, "ConfigSyncPeriod", resync, POSITIVE);
    let sync = tree.nanos(&format!("{section}.syncPeriod"));
    let least = tree.nanos(&format!("{section}.minSyncPeriod"));
    found.time_if(sync <= 0, "SyncPeriod", sync, POSITIVE);
    found.time_if(least < 0, "MinSyncPeriod", least, NOT_NEGATIVE);
    let why = "must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod";
    found.time_if(least > sync, "SyncPeriod", least, why);
}

fn ipvs(found: &mut Found, tree: &Tree) {
    for (field, path) in [
        ("ipvs.tcpTimeout", "TCPTimeout"),
        ("ipvs.tcpFinTimeout", "TCPFinTimeout"),
        ("ipvs.udpTimeout", "UDPTimeout"),
    ] {
        let nanos = tree.nanos(field);
        let path = format!("KubeProxyIPVSConfiguration.{path}");
        found.time_if(nanos < 0, &path, nanos, NOT_NEGATIVE);
    }
    for (index, range) in tree.list("ipvs.excludeCIDRs").into_iter().enumerate() {
        if Cidr::parse(range).is_err() {
            let path = format!("KubeProxyIPVSConfiguration.ExcludeCidrs[{index}]");
            found.text(&path, range, "must be a valid CIDR");
        }
    }
}

fn addresses(found: &mut Found, tree: &Tree) {
    let bind = tree.text("bindAddress");
    if bind.parse::<IpAddr>().is_err() {
        found.text(
            "BindAddress",
            bind,
            "not a valid textual representation of an IP address",
        );
    }
    for (field, path) in [
        ("healthzBindAddress", "HealthzBindAddress"),
        ("metricsBindAddress", "MetricsBindAddress"),
    ] {
        host_port(found, path, tree.text(field));
    }
}

/// `address:port`; an empty text is no server.
fn host_port(found: &mut Found, path: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    let Some((host, port)) = split_host_port(text) else {
        return found.text(path, text, "must be IP:port");
    };
    if host.parse::<IpAddr>().is_err() {
        found.text(path, host, "must be a valid IP");
    }
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        found.text(path, port, "must be a valid port");
    }
}

/// Host and port, as Go's `net.SplitHostPort` takes them apart.
pub(super) fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').map(|host| (host, port)),
        None => (!host.contains([':', '[', ']'])).then_some((host, port)),
    }
}

fn is_port_range(text: &str) -> bool {
    let number = |text: &str| text.trim().parse::<u16>().ok();
    let pair = |(low, more): (&str, &str), plus: bool| match (number(low), number(more)) {
        (Some(low), Some(more)) if plus => low.checked_add(more).is_some(),
        (Some(low), Some(high)) => low <= high,
        _ => false,
    };
    let text = text.trim();
    match (text.split_once('-'), text.split_once('+')) {
        (Some(ends), _) => pair(ends, false),
        (None, Some(parts)) => pair(parts, true),
        (None, None) => text.is_empty() || number(text).is_some(),
    }
}

fn node_ports(found: &mut Found, ranges: &[&str]) {
    for (index, range) in ranges.iter().enumerate() {
        let path = format!("NodePortAddresses[{index}]");
        if *range == "primary" {
            if ranges.len() != 1 {
                found.text(&path, range, "can't use both 'primary' and CIDRs");
            }
            break;
        }
        if Cidr::parse(range).is_err() {
            found.text(&path, range, "must be a valid CIDR");
        }
    }
}

fn local(found: &mut Found, tree: &Tree) {
    let mode = tree.text("detectLocalMode");
    if !LOCAL_MODES.contains(&mode) {
        let known: Vec<String> = LOCAL_MODES.iter().map(|mode| format!("{mode:?}")).collect();
        found.0.push(format!(
            "KubeProxyConfiguration.DetectLocalMode: Unsupported value: {mode:?}: supported values: {}",
            known.join(", ")
        ));
    }
    let empty = "must not be empty";
    match mode {
        "BridgeInterface" if tree.text("detectLocal.bridgeInterface").is_empty() => {
            found.text("DetectLocalConfiguration.InterfaceName", "", empty);
        }
        "InterfaceNamePrefix" if tree.text("detectLocal.interfaceNamePrefix").is_empty() => {
            found.text("DetectLocalConfiguration.InterfacePrefix", "", empty);
        }
        "ClusterCIDR" | "" if !tree.text("clusterCIDR").is_empty() => {
            cluster_ranges(found, &tree.text("clusterCIDR").split(',').collect::<Vec<_>>());
        }
        _ => {}
    }
}

fn cluster_ranges(found: &mut Found, ranges: &[&str]) {
    let path = "DetectLocalConfiguration.ClusterCIDRs";
    let all = Value::from(ranges).to_string();
    if ranges.len() > 2 {
        return found.invalid(path, &all, DUAL);
    }
    let parsed: Vec<Option<Cidr>> = ranges.iter().map(|range| Cidr::parse(range).ok()).collect();
    for (index, range) in ranges.iter().enumerate().filter(|(index, _)| parsed[*index].is_none()) {
        let why = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)";
        found.text(&format!("{path}[{index}]"), range, why);
    }
    if let [Some(one), Some(other)] = parsed[..]
        && one.is_v4() == other.is_v4()
    {
        found.invalid(path, &all, DUAL);
    }
}

fn logging(found: &mut Found, tree: &Tree) {
    let format = tree.text("logging.format");
    if !["text", "json"].contains(&format) {
        found.text("logging.format", format, "Unsupported log format");
    }
    let verbosity = tree.int("logging.verbosity");
    if verbosity < 0 {
        found.invalid("logging.verbosity", &verbosity.to_string(), NOT_NEGATIVE);
    }
    let modules = tree.value("logging.vmodule").as_array();
    for (index, item) in modules.into_iter().flatten().enumerate() {
        let path = format!("logging.vmodule[{index}]");
        match item.get("filePattern").and_then(Value::as_str) {
            None | Some("") => found.text(&path, "", "File pattern must not be empty"),
            Some(pattern) if pattern.contains(['=', ',']) => {
                found.text(&path, pattern, "File pattern must not contain equal sign or comma");
            }
            Some(_) => {}
        }
        if item
            .get("verbosity")
            .and_then(Value::as_i64)
            .is_none_or(|verbosity| verbosity < 0)
        {
            found.invalid(&path, &item.to_string(), "Verbosity must not be negative");
        }
    }
}
