//! What each part is told, of what the kubelet is told. Pure.

use crate::certificate::credentials::server_address;
use crate::config::{Backend, ClusterNetwork, Config};
use netlink::cidr::Cidr;
use proxy::config::LocalTraffic;
use serde_json::json;
use std::net::IpAddr;
use std::path::PathBuf;

/// Flannel's network, which ours is part of (contract cni.md §6.2).
pub(super) const VNI: u32 = 1;

/// Between two writes of the Service proxy. Upstream's second is for what a write costs there; ours is the elements that changed.
const MIN_SYNC: &str = "50ms";

/// Upstream's default for a proxy of its own.
const PROXYS_OOM_SCORE: i64 = -999;

/// An error with what caused it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", chain(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}

/// A file that says nothing.
const NO_CONFIG: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/// A proxy's configuration: what its file says, if it has one. Besides, upstream's defaults, rules of nf_tables, and pods told by the
/// cluster's ranges or, without any, by the node's.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn proxy(network: &ClusterNetwork, file: Option<&str>) -> Result<proxy::config::Config, String> {
    let ranges: Vec<String> = network.ranges.iter().map(Cidr::to_string).collect();
    let mut defaults = vec![
        ("mode", json!("nftables")),
        ("nftables.minSyncPeriod", json!(MIN_SYNC)),
        ("clusterCIDR", json!(ranges.join(","))),
    ];
    let flags = proxy::flags::parse(std::iter::empty()).map_err(|_| "its own flags are wrong".to_owned())?;
    let resolve = |defaults: &[_]| {
        let resolved = proxy::config::resolve_with(Some(file.unwrap_or(NO_CONFIG)), &flags, defaults);
        resolved.map_err(|error| chain(&error))
    };
    let mut resolved = resolve(&defaults)?;
    if resolved.local == LocalTraffic::ClusterCidr(Vec::new()) {
        defaults.push(("detectLocalMode", json!("NodeCIDR")));
        resolved = resolve(&defaults)?;
    }
    resolved.warnings.extend(the_kubelets(&resolved));
    resolved.reserve_node_ports = network.reserve_node_ports.clone();
    Ok(resolved)
}

/// What of a proxy's file is the kubelet's own to say here.
fn the_kubelets(of: &proxy::config::Config) -> Option<String> {
    let said = [
        ("clientConnection.kubeconfig", of.kubeconfig.is_some()),
        ("hostnameOverride", of.hostname_override.is_some()),
        ("oomScoreAdj", of.effective["oomScoreAdj"] != PROXYS_OOM_SCORE),
        ("logging", of.logging != proxy::config::Logging::default()),
    ];
    let names: Vec<&str> = said
        .into_iter()
        .filter(|(_, is_said)| *is_said)
        .map(|(name, _)| name)
        .collect();
    (!names.is_empty()).then(|| format!("the kubelet's own hold in place of the proxy's: {}", names.join(", ")))
}

/// The responder's settings: the addresses pods are told to ask.
///
/// # Errors
/// An address of `clusterDNS` is none.
pub(super) fn dns(config: &Config) -> Result<dns::Settings, String> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for text in &config.dns.cluster_dns {
        addresses.push(
            text.parse()
                .map_err(|_| format!("clusterDNS: {text:?} is no address"))?,
        );
    }
    let default = dns::Settings::default();
    Ok(dns::Settings {
        zone: config.dns.cluster_domain.clone(),
        addresses,
        resolv_conf: config.dns.resolv_conf.clone().unwrap_or(PathBuf::from("/dev/null")),
        pods: dns::PodNames::Insecure,
        ranges: config.cluster_network.ranges.clone(),
        ..default
    })
}

/// The overlay's settings.
pub(super) fn overlay(config: &Config, node: &str) -> Option<overlay::Settings> {
    let backend = match config.cluster_network.backend? {
        Backend::Vxlan => overlay::Backend::Vxlan,
        Backend::HostGw => overlay::Backend::HostGw,
    };
    let ranges = config.cluster_network.ranges.clone();
    // What is known of the Services' range, and where the API server is: no Node may lead that away.
    let services = config.dns.cluster_dns.iter().filter_map(|text| text.parse().ok());
    let server = config.paths.kubeconfig.as_deref().and_then(server_address);
    Some(overlay::Settings {
        reserved: services.chain(server).map(Cidr::host).collect(),
        vni: VNI,
        underlay: config.node.ips.clone(),
        ..overlay::Settings::new(node, backend, ranges)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy::config::NodePorts;
    use std::time::Duration;

    fn network(ranges: &[&str]) -> ClusterNetwork {
        ClusterNetwork {
            ranges: ranges.iter().map(|text| Cidr::parse(text).unwrap()).collect(),
            ..ClusterNetwork::default()
        }
    }

    #[test]
    fn a_proxy_without_a_file_goes_by_the_kubelets_ranges() {
        let found = proxy(&network(&["10.1.0.0/16"]), None).unwrap();
        assert_eq!(
            found.local,
            LocalTraffic::ClusterCidr(vec![Cidr::parse("10.1.0.0/16").unwrap()])
        );
        assert_eq!(found.min_sync_period, Duration::from_millis(50));
        assert_eq!((found.node_ports, found.warnings), (NodePorts::Primary, vec![]));
        assert_eq!(proxy(&network(&[]), None).unwrap().local, LocalTraffic::NodeCidr);
    }

    #[test]
    fn a_file_says_what_is_to_be_otherwise() {
        let of = |text: &str| proxy(&network(&["10.1.0.0/16"]), Some(&format!("{NO_CONFIG}{text}")));
        let found =
            of("nodePortAddresses: [192.0.2.0/24]\nnftables: {masqueradeAll: true}\nmetricsBindAddress: 127.0.0.1:1\n")
                .unwrap();
        assert_eq!(
            found.node_ports,
            NodePorts::Ranges(vec![Cidr::parse("192.0.2.0/24").unwrap()])
        );
        assert!(found.masquerade.all);
        assert_eq!(found.metrics, "127.0.0.1:1".parse().ok());
        assert!(matches!(found.local, LocalTraffic::ClusterCidr(ranges) if ranges.len() == 1));
        // What the kubelet decides itself is told.
        let told = of(
            "hostnameOverride: other\noomScoreAdj: 5\nclientConnection: {kubeconfig: /k}\nlogging: {verbosity: 4}\n",
        );
        let told = told.unwrap().warnings.join("\n");
        for name in [
            "hostnameOverride",
            "oomScoreAdj",
            "clientConnection.kubeconfig",
            "logging",
        ] {
            assert!(told.contains(name), "{name}: {told}");
        }
        assert!(of("mode: odd\n").is_err());
    }
}
