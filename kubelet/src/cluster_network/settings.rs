//! What each part is told, of what the kubelet is told. Pure.

use crate::certificate::credentials::server_address;
use crate::config::{Backend, Config};
use netlink::cidr::Cidr;
use std::net::IpAddr;
use std::path::PathBuf;

/// Flannel's network, which ours is part of (contract cni.md §6.2).
pub(super) const VNI: u32 = 1;

/// Between two writes of the Service proxy. Upstream's second is for what a write costs there; ours is the elements that changed.
const MIN_SYNC: &str = "50ms";

/// An error with what caused it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", chain(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}

/// A proxy's configuration: upstream's defaults, and pods told by the cluster's ranges or, without any, by the node's.
pub(super) fn proxy(config: &Config) -> Result<proxy::config::Config, String> {
    let ranges: Vec<String> = config.cluster_network.ranges.iter().map(Cidr::to_string).collect();
    let mode = if ranges.is_empty() { "NodeCIDR" } else { "ClusterCIDR" };
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n\
         nftables: {{minSyncPeriod: {MIN_SYNC}}}\ndetectLocalMode: {mode}\nclusterCIDR: {:?}\n",
        ranges.join(",")
    );
    let flags = proxy::flags::parse(std::iter::empty()).map_err(|_| "its own flags are wrong".to_owned())?;
    let resolved = proxy::config::resolve(Some(&text), &flags).map_err(|error| chain(&error))?;
    Ok(proxy::config::Config {
        reserve_node_ports: config.cluster_network.reserve_node_ports.clone(),
        ..resolved
    })
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
