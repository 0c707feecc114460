//! The sets and maps of a table whose elements come from Services.

/// The sets and maps whose elements come from Services. Those with `true` are of endpoints on this node alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// front : class; with `true` for external traffic under policy Local.
    Services(bool),
    /// front : pool.
    Pools,
    /// pool . number : address . port.
    Endpoints(bool),
    /// pool . number : endpoint's name, with session affinity.
    Numbers(bool),
    /// pool . endpoint's name : address . port, with session affinity.
    Members(bool),
    /// ClusterIPs.
    ClusterIps,
    /// Fronts without any endpoint: rejected.
    Rejected,
    /// Fronts without an endpoint on this node, which their policy asks for: dropped.
    Dropped,
    /// Fronts of load balancers with source ranges.
    Guarded,
    /// front . source range.
    Allowed,
    /// source . destination, both the same endpoint of this node.
    Hairpin,
}

impl Set {
    /// Its name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Services(false) => "services",
            Self::Services(true) => "local-services",
            Self::Pools => "pools",
            Self::Endpoints(false) => "endpoints",
            Self::Endpoints(true) => "local-endpoints",
            Self::Numbers(false) => "numbers",
            Self::Numbers(true) => "local-numbers",
            Self::Members(false) => "members",
            Self::Members(true) => "local-members",
            Self::ClusterIps => "cluster-ips",
            Self::Rejected => "rejected",
            Self::Dropped => "dropped",
            Self::Guarded => "guarded",
            Self::Allowed => "allowed",
            Self::Hairpin => "hairpin",
        }
    }

    /// The sets whose keys begin with a front: what is under a front is all of one port of one Service, its owner.
    pub const FRONTED: [Self; 7] = [
        Self::Services(false),
        Self::Services(true),
        Self::Pools,
        Self::Rejected,
        Self::Dropped,
        Self::Guarded,
        Self::Allowed,
    ];

    /// The sets in which every port that claims a front has exactly one element, whose key is the front.
    pub const CLAIMING: [Self; 3] = [Self::Services(false), Self::Rejected, Self::Dropped];

    /// Whether its keys begin with a pool: they are of the pool's port alone, and nobody else can ask for them.
    pub fn is_pooled(self) -> bool {
        matches!(self, Self::Endpoints(_) | Self::Numbers(_) | Self::Members(_))
    }

    /// The front in a key, in sets that have one.
    pub fn front(self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Self::ClusterIps | Self::Hairpin | Self::Endpoints(_) | Self::Numbers(_) | Self::Members(_) => None,
            Self::Services(_) | Self::Pools | Self::Rejected | Self::Dropped | Self::Guarded => Some(key),
            // Twice a front, which is an address and two words, with one more address behind.
            Self::Allowed => key.get(..key.len() / 4 + 4),
        }
    }
}
