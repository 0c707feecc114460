//! A node as the others see it: its ranges, its addresses, and what flannel's annotations say (contract §6.4). Pure.

use crate::state::{Each, Family};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use netlink::cidr::Cidr;
use netlink::link::Mac;
use std::net::IpAddr;

/// What flannel's annotations begin with.
pub const PREFIX: &str = "flannel.alpha.coreos.com/";
/// How many ranges of a node are looked at: the API allows one of each family.
const RANGES_MAX: usize = 4;

/// What a node says about its end in one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The first `InternalIP`.
    pub internal: Option<IpAddr>,
    /// The address it published.
    pub public: Option<IpAddr>,
    /// The address it is to publish in place of its own.
    pub overwrite: Option<IpAddr>,
    /// Hardware address of its tunnel device.
    pub mac: Option<Mac>,
    /// The network its tunnel is of.
    pub vni: Option<u32>,
}

impl End {
    /// Where others send to.
    pub fn address(&self) -> Option<IpAddr> {
        self.public.or(self.internal)
    }
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// When it was made: of two that claim the same, the older keeps it.
    pub created: Option<Timestamp>,
    /// Its pods' ranges.
    pub ranges: Vec<Cidr>,
    /// Ranges that are none, as they are written.
    pub unreadable: Vec<String>,
    /// The backend it says it uses.
    pub backend: Option<String>,
    /// Its ends.
    pub ends: Each<End>,
}

impl Peer {
    /// Reads a Node.
    pub fn of(node: &Node) -> Self {
        let mut peer = Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
            backend: annotation(node, "backend-type").map(str::to_owned),
            ..Self::default()
        };
        for text in ranges(node).into_iter().take(RANGES_MAX) {
            match Cidr::parse(text) {
                Ok(cidr) => peer.ranges.push(cidr.network()),
                Err(_) => peer.unreadable.push(text.chars().take(64).collect()),
            }
        }
        for family in Family::ALL {
            *peer.ends.of_mut(family) = end(node, family);
        }
        peer
    }

    /// The range of a family; of several the first.
    pub fn range(&self, family: Family) -> Option<Cidr> {
        self.ranges
            .iter()
            .copied()
            .find(|range| range.is_v4() == family.is_v4())
    }
}

fn ranges(node: &Node) -> Vec<&str> {
    let Some(spec) = &node.spec else { return Vec::new() };
    match &spec.pod_cidrs {
        Some(cidrs) if !cidrs.is_empty() => cidrs.iter().map(String::as_str).collect(),
        _ => spec
            .pod_cidr
            .iter()
            .filter(|c| !c.is_empty())
            .map(String::as_str)
            .collect(),
    }
}

/// The value of one of flannel's annotations.
pub fn annotation<'n>(node: &'n Node, name: &str) -> Option<&'n str> {
    let all = node.metadata.annotations.as_ref()?;
    all.get(&format!("{PREFIX}{name}")).map(String::as_str)
}

fn end(node: &Node, family: Family) -> End {
    let v6 = if family.is_v4() { "" } else { "v6" };
    let address = |name: &str| usable(annotation(node, name)?, family);
    let data_name = if family.is_v4() {
        "backend-data"
    } else {
        "backend-v6-data"
    };
    let data = annotation(node, data_name).filter(|text| text.len() < 1024);
    let data: serde_json::Value = data
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let mut internal = addresses.into_iter().flatten().filter(|a| a.type_ == "InternalIP");
    End {
        internal: internal.find_map(|a| usable(&a.address, family)),
        public: address(&format!("public-ip{v6}")),
        overwrite: address(&format!("public-ip{v6}-overwrite")),
        mac: data["VtepMAC"].as_str().and_then(Mac::parse).filter(is_unicast),
        vni: data["VNI"].as_u64().and_then(|vni| u32::try_from(vni).ok()),
    }
}

/// Whether one device can have it.
fn is_unicast(mac: &Mac) -> bool {
    mac.0[0] & 1 == 0 && mac.0 != [0; 6]
}

/// An address of the family that a node can have.
fn usable(text: &str, family: Family) -> Option<IpAddr> {
    let addr: IpAddr = text.trim().parse().ok()?;
    let is_broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
    let is_mapped = matches!(addr, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() || v6.is_unicast_link_local());
    let is_one = !addr.is_unspecified() && !addr.is_loopback() && !addr.is_multicast() && !is_broadcast && !is_mapped;
    (is_one && Family::of(&addr) == family).then_some(addr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn peer(value: Value) -> Peer {
        Peer::of(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_node_with_flannel_is_understood() {
        let peer = peer(json!({
            "metadata": {"name": "b", "annotations": {
                "flannel.alpha.coreos.com/backend-data": "{\"VNI\":1,\"VtepMAC\":\"02:00:00:00:00:0b\"}",
                "flannel.alpha.coreos.com/backend-v6-data": "{\"VNI\":1,\"VtepMAC\":\"02:00:00:00:00:6b\"}",
                "flannel.alpha.coreos.com/backend-type": "vxlan",
                "flannel.alpha.coreos.com/public-ip": "192.0.2.2",
                "flannel.alpha.coreos.com/public-ipv6": "2001:db8::2",
            }},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1::/64"]},
            "status": {"addresses": [
                {"type": "Hostname", "address": "b"}, {"type": "InternalIP", "address": "198.51.100.2"},
            ]},
        }));
        assert_eq!(peer.backend.as_deref(), Some("vxlan"));
        assert_eq!(peer.ranges.len(), 2);
        assert_eq!(peer.range(Family::V6).unwrap().to_string(), "fd00:1::/64");
        assert_eq!(peer.ends.v4.address(), "192.0.2.2".parse().ok());
        assert_eq!(peer.ends.v4.internal, "198.51.100.2".parse().ok());
        assert_eq!(peer.ends.v4.mac, Mac::parse("02:00:00:00:00:0b"));
        assert_eq!(peer.ends.v6.mac, Mac::parse("02:00:00:00:00:6b"));
        assert_eq!(peer.ends.v6.vni, Some(1));
    }

    #[test]
    fn what_is_nonsense_is_not_taken() {
        let peer = peer(json!({
            "metadata": {"name": "b", "annotations": {
                "flannel.alpha.coreos.com/backend-data": "{\"VNI\":-1,\"VtepMAC\":\"ff:ff:ff:ff:ff:ff\"}",
                "flannel.alpha.coreos.com/backend-v6-data": "nul",
                "flannel.alpha.coreos.com/public-ip": "127.0.0.1",
                "flannel.alpha.coreos.com/public-ipv6": "192.0.2.2",
            }},
            "spec": {"podCIDRs": ["10.244.1.7/24", "10.244.300.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "0.0.0.0"}]},
        }));
        assert_eq!(peer.ends, Each::default());
        assert_eq!(peer.ranges[0].to_string(), "10.244.1.0/24");
        assert_eq!(peer.unreadable, ["10.244.300.0/24"]);
        assert_eq!(Peer::of(&Node::default()).ranges, []);
    }

    #[test]
    fn the_older_field_counts_where_it_is_alone() {
        let peer = peer(json!({"metadata": {"name": "b"}, "spec": {"podCIDR": "10.244.1.0/24"}}));
        assert_eq!(peer.ranges.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn no_annotation_makes_the_reader_panic(data in ".{0,200}", address in ".{0,50}", range in ".{0,50}") {
            peer(json!({
                "metadata": {"annotations": {
                    "flannel.alpha.coreos.com/backend-data": data, "flannel.alpha.coreos.com/public-ip": address,
                }},
                "spec": {"podCIDRs": [range]},
            }));
        }
    }
}
