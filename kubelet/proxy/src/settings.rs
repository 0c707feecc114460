//! What the node and its configuration decide about the rules. Values only; who reads files and flags makes them.

use std::net::IpAddr;
use std::time::Duration;

use netlink::cidr::Cidr;

/// Bit 14, upstream's `masqueradeBit` (contract cni.md §7.1).
pub const MASQUERADE_BIT: u32 = 14;
/// Upstream's shortest time between two syncs in nftables mode (contract cni.md §7.1).
pub const MIN_SYNC_PERIOD: Duration = Duration::from_secs(1);

/// How traffic of this cluster's pods is told apart from other traffic (`detectLocalMode`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DetectLocal {
    /// Not at all: nothing is taken for a pod's, and only hairpin connections and external traffic are masqueraded.
    #[default]
    Nothing,
    /// By source address (`ClusterCIDR`, `NodeCIDR`).
    Networks(Vec<Cidr>),
    /// By the interface it comes from (`BridgeInterface`).
    Interface(String),
    /// By the first letters of the interface it comes from (`InterfaceNamePrefix`).
    InterfacePrefix(String),
}

/// Which addresses of the node serve NodePorts (`nodePortAddresses`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// Every local address.
    #[default]
    All,
    /// The node's own addresses, [`Settings::node_ips`] (`primary`).
    Primary,
    /// Local addresses inside these networks.
    Networks(Vec<Cidr>),
}

/// Settings of one proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This node's name; endpoints and hints are compared with it.
    pub node_name: String,
    /// This node's addresses, at most one of each family.
    pub node_ips: Vec<IpAddr>,
    /// The node's `topology.kubernetes.io/zone`, or empty.
    pub zone: String,
    /// Rules for IPv4 are made.
    pub ipv4: bool,
    /// Rules for IPv6 are made.
    pub ipv6: bool,
    /// What is a pod's traffic.
    pub detect_local: DetectLocal,
    /// Ranges ClusterIPs are taken from, where known: unused addresses in them are dropped.
    pub service_cidrs: Vec<Cidr>,
    /// The bit of the packet mark that asks for masquerading, 0 to 31.
    pub masquerade_bit: u32,
    /// All traffic to ClusterIPs is masqueraded (`masqueradeAll`).
    pub masquerade_all: bool,
    /// Which addresses serve NodePorts.
    pub node_port_addresses: NodePortAddresses,
    /// NodePorts are served on 127.0.0.1 too. Packets to 127.0.0.0/8 from other machines are dropped then.
    pub localhost_node_ports: bool,
    /// The shortest time between two writes.
    pub min_sync_period: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            node_ips: Vec::new(),
            zone: String::new(),
            ipv4: true,
            ipv6: true,
            detect_local: DetectLocal::Nothing,
            service_cidrs: Vec::new(),
            masquerade_bit: MASQUERADE_BIT,
            masquerade_all: false,
            node_port_addresses: NodePortAddresses::All,
            localhost_node_ports: false,
            min_sync_period: MIN_SYNC_PERIOD,
        }
    }
}

impl Settings {
    /// The packet mark that asks for masquerading.
    pub fn masquerade_mark(&self) -> u32 {
        1u32.checked_shl(self.masquerade_bit).unwrap_or(0)
    }
}
