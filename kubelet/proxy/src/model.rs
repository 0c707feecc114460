//! Services as the proxy sees them: ports with their addresses and policies, endpoints with their conditions, and the
//! endpoints chosen for this node. Values only: nothing here asks the API or the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netlink::cidr::Cidr;

mod read;

pub use read::{Read, ReadSlice, look_at_slice, read_service, read_slice};

/// A transport protocol; the value is its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
    /// SCTP.
    Sctp = 132,
}

impl Protocol {
    /// Reads the API's name; an empty one is TCP.
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "" | "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }

    /// The API's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// Names one port of one Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub service: String,
    /// The port's name, or empty.
    pub port: String,
    /// Its protocol: one name may stand for TCP and UDP.
    pub protocol: Protocol,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service)?;
        if !self.port.is_empty() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// One port of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name.
    pub name: PortName,
    /// ClusterIPs, at most one of each family.
    pub cluster_ips: Vec<IpAddr>,
    /// The port at ClusterIPs, external and load balancer addresses.
    pub port: u16,
    /// The NodePort, or 0.
    pub node_port: u16,
    /// `externalIPs`.
    pub external_ips: Arc<[IpAddr]>,
    /// Addresses of the load balancer whose ipMode is VIP.
    pub load_balancer_ips: Arc<[IpAddr]>,
    /// `loadBalancerSourceRanges`; `None` allows all, an empty list nobody, and one without any of a family all of that family.
    pub source_ranges: Option<Arc<[Cidr]>>,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`.
    pub external_local: bool,
    /// Seconds of `sessionAffinity: ClientIP`, or 0 for none.
    pub affinity_seconds: u32,
    /// `healthCheckNodePort`, or 0.
    pub health_check_node_port: u16,
}

/// Who goes first when Services ask for the same front: ClusterIPs, which the API gives to one only.
pub const BY_CLUSTER_IP: u8 = 0;
/// NodePorts and addresses of load balancers, which a controller gives.
pub const BY_CONTROLLER: u8 = 1;
/// `externalIPs`, which anybody may write.
pub const BY_ANYBODY: u8 = 2;

impl ServicePort {
    /// Where traffic for it comes to in one family, each place with the best right the port has to it; a NodePort stands under the
    /// unspecified address. None in a family it has no ClusterIP of: a Service is not served there.
    pub fn fronts(&self, v4: bool) -> BTreeMap<SocketAddr, u8> {
        let mut fronts = BTreeMap::new();
        // The better right last: it stays.
        let lists: [(u8, &[IpAddr]); 3] = [
            (BY_ANYBODY, &self.external_ips),
            (BY_CONTROLLER, &self.load_balancer_ips),
            (BY_CLUSTER_IP, &self.cluster_ips),
        ];
        if !self.cluster_ips.iter().any(|ip| ip.is_ipv4() == v4) {
            return fronts;
        }
        for (right, ips) in lists {
            let ours = ips.iter().filter(|ip| ip.is_ipv4() == v4);
            fronts.extend(ours.map(|ip| (SocketAddr::new(*ip, self.port), right)));
        }
        if self.node_port != 0 {
            let any = if v4 { [0; 4].into() } else { [0; 16].into() };
            fronts.insert(SocketAddr::new(any, self.node_port), BY_CONTROLLER);
        }
        fronts
    }

    /// Whether it can be reached by another way than its ClusterIP.
    pub fn is_external(&self) -> bool {
        self.node_port != 0 || !self.external_ips.is_empty() || !self.load_balancer_ips.is_empty()
    }

    /// Whether any traffic goes to endpoints of the whole cluster. External traffic of policy Local does when it comes from
    /// a pod or from this node.
    pub fn uses_cluster(&self) -> bool {
        !self.internal_local || self.is_external()
    }

    /// Whether any traffic goes to endpoints of this node only.
    pub fn uses_local(&self) -> bool {
        self.internal_local || (self.external_local && self.is_external())
    }
}

/// One endpoint of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// It takes new connections.
    pub ready: bool,
    /// It still answers, which it may do while it ends.
    pub serving: bool,
    /// It is ending.
    pub terminating: bool,
    /// It is on this node.
    pub local: bool,
    /// Zones it is meant for.
    pub zone_hints: Vec<String>,
    /// Nodes it is meant for.
    pub node_hints: Vec<String>,
}

/// The endpoints of one family that traffic of one port goes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// For policy Cluster, ordered by address.
    pub cluster: Vec<Chosen>,
    /// For policy Local, ordered by address.
    pub local: Vec<Chosen>,
    /// Whether any endpoint anywhere could serve: without, traffic is rejected, with one elsewhere it is dropped.
    pub has_any: bool,
}

/// A chosen endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chosen {
    /// Where it listens.
    pub address: SocketAddr,
    /// It is on this node.
    pub local: bool,
}

/// A port with what was chosen for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The port.
    pub port: ServicePort,
    /// Its endpoints of IPv4.
    pub v4: Choice,
    /// Its endpoints of IPv6.
    pub v6: Choice,
    /// Every endpoint that serves, ready or ending, wherever it is and whatever topology says: flows that exist stay with them. Of UDP
    /// alone, whose flows have no end of their own.
    pub serving: Arc<[SocketAddr]>,
    /// How many endpoints on this node are ready (`healthCheckNodePort`); those that serve while they end are not counted.
    pub local_endpoints: usize,
    /// How many endpoints were not chosen because there are more than are used of one Service.
    pub beyond: usize,
}

impl Served {
    /// The choice of a family.
    pub fn choice(&self, v4: bool) -> &Choice {
        if v4 { &self.v4 } else { &self.v6 }
    }

    /// Everything that was chosen, of both families and policies, each once.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        let lists = [&self.v4.cluster, &self.v4.local, &self.v6.cluster, &self.v6.local];
        let mut all: Vec<SocketAddr> = lists.into_iter().flatten().map(|chosen| chosen.address).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Namespace and name of a Service.
pub type ServiceName = client::informer::Key;

/// All Services and what was chosen for them: one state of the rules. Parts that did not change are shared with the state before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Ports by Service, in the order of their names.
    pub services: BTreeMap<Arc<ServiceName>, Arc<[Served]>>,
}

impl Snapshot {
    /// Every port of every Service.
    pub fn ports(&self) -> impl Iterator<Item = &Served> {
        self.services.values().flat_map(|ports| ports.iter())
    }

    /// One port by its name.
    pub fn port(&self, name: &PortName) -> Option<&Served> {
        let service = ServiceName::new(name.namespace.clone(), name.service.clone());
        let ports = self.services.get(&service)?;
        ports.iter().find(|served| served.port.name == *name)
    }
}

/// Something in an object that is not used, told once in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The field, such as `spec.externalIPs`.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// Why it is not used.
    pub reason: &'static str,
}

/// What of one object is not used: the first of it by name, the rest by number. An object may have a great many flaws.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flaws {
    /// The first.
    pub first: Vec<LeftOut>,
    /// How many there are besides.
    pub more: usize,
}

impl Flaws {
    const FIRST_MAX: usize = 16;
    const VALUE_CHARS_MAX: usize = 128;

    /// One more.
    pub fn add(&mut self, field: &'static str, value: &str, reason: &'static str) {
        if self.first.len() == Self::FIRST_MAX {
            self.more += 1;
            return;
        }
        self.first.push(LeftOut {
            field,
            value: value.chars().take(Self::VALUE_CHARS_MAX).collect(),
            reason,
        });
    }
}

#[cfg(test)]
mod tests;
