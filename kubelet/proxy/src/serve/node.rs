//! What the node says, and what follows from it for the rules. Pure.

use crate::config::{Config, LocalTraffic, NodePorts};
use crate::settings::{DetectLocal, NodePortAddresses, Settings};
use k8s_openapi::api::core::v1::Node;
use netlink::cidr::Cidr;
use std::net::{IpAddr, Ipv4Addr};

/// The label that names a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// What the proxy must know of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its addresses, the first of each family.
    pub addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<Cidr>,
    /// Its zone, or empty.
    pub zone: String,
}

impl Facts {
    /// Reads a node's object.
    ///
    /// # Errors
    /// What is missing: the node, its addresses, or its ranges where the configuration needs them.
    pub fn read(node: Option<&Node>, name: &str, config: &Config) -> Result<Self, String> {
        let Some(node) = node else {
            return Err(format!("node {name:?} not found"));
        };
        let addresses = addresses(node);
        if addresses.is_empty() {
            return Err(format!("host IP unknown; node {name:?} has no address"));
        }
        let ranges = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_ref());
        let ranges = ranges.into_iter().flatten().filter_map(|text| Cidr::parse(text).ok());
        let pod_cidrs: Vec<Cidr> = ranges.collect();
        if pod_cidrs.is_empty() && config.local == LocalTraffic::NodeCidr {
            return Err(format!("node {name:?} does not have any PodCIDR allocated"));
        }
        let labels = node.metadata.labels.as_ref();
        Ok(Self {
            addresses,
            pod_cidrs,
            zone: labels.and_then(|labels| labels.get(ZONE)).cloned().unwrap_or_default(),
        })
    }
}

/// The node's own addresses: the first internal one, else the first external one, and the first of the other family after it.
fn addresses(node: &Node) -> Vec<IpAddr> {
    let listed = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let of_type = |kind: &'static str| {
        let listed = listed
            .into_iter()
            .flatten()
            .filter(move |address| address.type_ == kind);
        listed.filter_map(|address| address.address.parse::<IpAddr>().ok())
    };
    let mut all = of_type("InternalIP").chain(of_type("ExternalIP"));
    let Some(first) = all.next() else { return Vec::new() };
    let other = all.find(|address| address.is_ipv4() != first.is_ipv4());
    std::iter::once(first).chain(other).collect()
}

/// What holds for the rules.
pub fn settings(config: &Config, node_name: &str, facts: &Facts, ipv6: bool) -> Settings {
    let mut node_ips = facts.addresses.clone();
    if let Some(own) = config.node_ip {
        node_ips.retain(|address| address.is_ipv4() != own.is_ipv4());
        node_ips.insert(0, own);
    }
    Settings {
        node_name: node_name.to_owned(),
        node_ips,
        zone: facts.zone.clone(),
        ipv4: true,
        ipv6,
        detect_local: match &config.local {
            LocalTraffic::ClusterCidr(ranges) => networks(ranges),
            LocalTraffic::NodeCidr => networks(&facts.pod_cidrs),
            LocalTraffic::Bridge(name) => DetectLocal::Interface(name.clone()),
            LocalTraffic::InterfacePrefix(prefix) => DetectLocal::InterfacePrefix(prefix.clone()),
        },
        masquerade_bit: config.masquerade.bit.into(),
        masquerade_all: config.masquerade.all,
        node_port_addresses: match &config.node_ports {
            NodePorts::All => NodePortAddresses::All,
            NodePorts::Primary => NodePortAddresses::Primary,
            NodePorts::Ranges(ranges) => node_ports(ranges),
        },
        localhost_node_ports: config.localhost_node_ports,
        min_sync_period: config.min_sync_period,
        ..Settings::default()
    }
}

fn networks(ranges: &[Cidr]) -> DetectLocal {
    match ranges.is_empty() {
        true => DetectLocal::Nothing,
        false => DetectLocal::Networks(ranges.to_vec()),
    }
}

/// Ranges of node ports. Of a family without any, every address has them, as upstream has it.
fn node_ports(ranges: &[Cidr]) -> NodePortAddresses {
    let mut all = ranges.to_vec();
    for every in [
        Cidr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        Cidr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), 0),
    ] {
        all.extend(every.filter(|every| ranges.iter().all(|range| range.is_v4() != every.is_v4())));
    }
    NodePortAddresses::Networks(all)
}
