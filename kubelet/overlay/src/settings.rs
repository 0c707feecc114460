//! What an operator may choose. Pure.

use netlink::cidr::Cidr;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// How packets for another node's pods get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// In UDP packets of RFC 7348: through any network between the nodes.
    Vxlan,
    /// As they are, with the other node for a gateway: all nodes must be on one link.
    HostGw,
}

impl Backend {
    /// The name in settings and in flannel's annotations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::HostGw => "host-gw",
        }
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Vxlan, Self::HostGw]
            .into_iter()
            .find(|backend| backend.name() == text)
            .ok_or_else(|| format!("invalid backend {text:?}: must be \"vxlan\" or \"host-gw\""))
    }
}

/// The largest network identifier.
const VNI_MAX: u32 = (1 << 24) - 1;
/// How many cluster ranges there may be.
const CLUSTER_CIDRS_MAX: usize = 16;

/// The settings of one node's overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This node's name.
    pub node_name: String,
    /// How packets travel.
    pub backend: Backend,
    /// The cluster's pod ranges: what goes from one to another keeps its address. A node's range must lie within one.
    pub cluster_cidrs: Vec<Cidr>,
    /// This node's addresses on the network the nodes share, at most one of a family; of a family without one the first
    /// `InternalIP` of the Node is taken, and followed when it changes.
    pub underlay: Vec<IpAddr>,
    /// VXLAN network identifier; also the number in the devices' names.
    pub vni: u32,
    /// VXLAN UDP port.
    pub port: u16,
    /// Whether checksums of tunnelled packets are left to the network card. Cards and kernels that get them wrong make every
    /// connection of a tunnel hang for 63 seconds (network.md §3), so when it is left open they are made by the processor
    /// until a test with another node has shown that they arrive ([`crate::probe`]).
    pub checksum_offload: Option<bool>,
    /// How long after a test by which something did not arrive a tunnel is tested again.
    pub test_again: Duration,
    /// What no pod range may overlap: the Services' range, the API server's address.
    pub reserved: Vec<Cidr>,
}

impl Settings {
    /// Flannel's defaults.
    pub fn new(node_name: impl Into<String>, backend: Backend, cluster_cidrs: Vec<Cidr>) -> Self {
        Self {
            node_name: node_name.into(),
            backend,
            cluster_cidrs,
            underlay: Vec::new(),
            vni: 1,
            port: 8472,
            checksum_offload: None,
            test_again: Duration::from_secs(120),
            reserved: Vec::new(),
        }
    }

    /// What is wrong, naming the field.
    ///
    /// # Errors
    /// The first thing that is.
    pub fn validate(&self) -> Result<(), String> {
        if self.node_name.is_empty() {
            return Err("nodeName: must not be empty".into());
        }
        if self.cluster_cidrs.is_empty() {
            return Err("clusterCIDRs: at least one is needed to know what leaves the cluster".into());
        }
        if self.cluster_cidrs.len() > CLUSTER_CIDRS_MAX {
            return Err(format!("clusterCIDRs: at most {CLUSTER_CIDRS_MAX} may be given"));
        }
        for (i, cidr) in self.cluster_cidrs.iter().enumerate() {
            if cidr.prefix == 0 {
                return Err(format!(
                    "clusterCIDRs[{i}]: {cidr}: nothing would be outside the cluster"
                ));
            }
            if let Some(other) = self.cluster_cidrs[..i].iter().find(|other| other.overlaps(cidr)) {
                return Err(format!("clusterCIDRs[{i}]: {cidr} overlaps {other}"));
            }
        }
        for (i, addr) in self.underlay.iter().enumerate() {
            let is_second = self.underlay[..i].iter().any(|a| a.is_ipv4() == addr.is_ipv4());
            if is_second || addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() {
                return Err(format!(
                    "underlay[{i}]: {addr} must be one address of its family, of an interface"
                ));
            }
        }
        if self.vni == 0 || self.vni > VNI_MAX {
            return Err(format!("vni: {} must be between 1 and {VNI_MAX}", self.vni));
        }
        if self.port == 0 {
            return Err("port: must be between 1 and 65535".into());
        }
        Ok(())
    }

    /// The cluster's ranges of one family.
    pub fn cluster(&self, v4: bool) -> impl Iterator<Item = &Cidr> {
        self.cluster_cidrs.iter().filter(move |cidr| cidr.is_v4() == v4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidrs(texts: &[&str]) -> Vec<Cidr> {
        texts.iter().map(|text| Cidr::parse(text).unwrap()).collect()
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        let good = Settings::new("a", Backend::Vxlan, cidrs(&["10.244.0.0/16", "fd00::/48"]));
        assert_eq!(good.validate(), Ok(()));
        type Spoil = fn(&mut Settings);
        let cases: &[(Spoil, &str)] = &[
            (|s| s.node_name.clear(), "nodeName"),
            (|s| s.cluster_cidrs.clear(), "clusterCIDRs:"),
            (|s| s.cluster_cidrs = cidrs(&["0.0.0.0/0"]), "clusterCIDRs[0]"),
            (
                |s| s.cluster_cidrs = cidrs(&["10.0.0.0/8", "10.1.0.0/16"]),
                "clusterCIDRs[1]",
            ),
            (|s| s.underlay = vec!["127.0.0.1".parse().unwrap()], "underlay[0]"),
            (
                |s| s.underlay = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()],
                "underlay[1]",
            ),
            (|s| s.vni = 1 << 24, "vni"),
            (|s| s.vni = 0, "vni"),
            (|s| s.port = 0, "port"),
        ];
        for (spoil, field) in cases {
            let mut settings = good.clone();
            spoil(&mut settings);
            let error = settings.validate().unwrap_err();
            assert!(error.starts_with(field), "{error}");
        }
    }

    #[test]
    fn backends_go_by_flannels_names() {
        assert_eq!("vxlan".parse(), Ok(Backend::Vxlan));
        assert_eq!("host-gw".parse(), Ok(Backend::HostGw));
        assert!("VXLAN".parse::<Backend>().unwrap_err().contains("\"host-gw\""));
    }
}
