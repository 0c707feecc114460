//! What the sets and maps of one family are to hold for a port. Pure: a port with its chosen endpoints in, elements out.
//!
//! The number of sets is fixed. Every address a Service is reached by (address, protocol, port: its *front*) is one element of
//! `services`, which says how traffic is treated and how many endpoints there are ([`Class`]); NodePorts stand there under the
//! unspecified address. Endpoints are elements of shared maps, under front and number. With session affinity a number leads to
//! the endpoint's name first, a hash of its address, and front and name to the endpoint: so what the kernel remembers of a
//! client stays true over changes and restarts, and leads nowhere when the endpoint is gone.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use netlink::cidr::{self, Cidr};
use sha2::{Digest, Sha256};

use crate::model::{Choice, Chosen, PortName, Served, ServicePort};

/// How many endpoints of a port are used at most: what [`Class`] has room for.
const ENDPOINTS_MAX: usize = (1 << COUNT_BITS) - 1;
const COUNT_BITS: u32 = 12;
const AFFINITY_BITS: u32 = 17;

/// The sets and maps whose elements come from Services. Those with `true` are for external traffic under policy Local.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// front : class.
    Services(bool),
    /// front . number : address . port.
    Endpoints(bool),
    /// front . number : endpoint's name, with session affinity.
    Numbers(bool),
    /// front . endpoint's name : address . port, with session affinity.
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
    pub const FRONTED: [Self; 12] = [
        Self::Services(false),
        Self::Services(true),
        Self::Endpoints(false),
        Self::Endpoints(true),
        Self::Numbers(false),
        Self::Numbers(true),
        Self::Members(false),
        Self::Members(true),
        Self::Rejected,
        Self::Dropped,
        Self::Guarded,
        Self::Allowed,
    ];

    /// The sets in which every port that claims a front has exactly one element, whose key is the front.
    pub const CLAIMING: [Self; 3] = [Self::Services(false), Self::Rejected, Self::Dropped];

    /// The front in a key, in sets that have one.
    pub fn front(self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Self::ClusterIps | Self::Hairpin => None,
            Self::Services(_) | Self::Rejected | Self::Dropped | Self::Guarded => Some(key),
            Self::Endpoints(_) | Self::Numbers(_) | Self::Members(_) => key.get(..key.len().checked_sub(4)?),
            // Twice a front, which is an address and two words, with one more address behind.
            Self::Allowed => key.get(..key.len() / 4 + 4),
        }
    }
}

/// Tells the ports of Services apart, in an order of no meaning.
pub type Owner = u64;

/// How traffic to an address is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// An endpoint is picked from the pool.
    Pick = 0,
    /// The same, and the source is masqueraded.
    Mark = 1,
    /// External traffic of policy Local: pods and this node are served from the whole cluster, others from `local-services`.
    Short = 2,
    /// An endpoint is picked from the pool of this node.
    Local = 3,
}

/// A kind of treatment: one chain each, whatever the number of Services of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// The treatment.
    pub route: Route,
    /// Number of endpoints in the pool.
    pub count: u32,
    /// Seconds of session affinity, or 0.
    pub affinity: u32,
}

impl Class {
    /// One number for the whole of it.
    pub fn number(self) -> u32 {
        let affinity = self.affinity.min((1 << AFFINITY_BITS) - 1);
        (self.route as u32) << (COUNT_BITS + AFFINITY_BITS) | affinity << COUNT_BITS | self.count
    }

    /// The same class with another treatment.
    pub fn with(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// The name of its chain.
    pub fn chain(self) -> String {
        let route = match self.route {
            Route::Pick => "pick",
            Route::Mark => "mark",
            Route::Short => "short",
            Route::Local => "local",
        };
        match self.affinity {
            0 => format!("{route}-{}", self.count),
            seconds => format!("{route}-{}-for-{seconds}s", self.count),
        }
    }

    /// The classes its chain goes to.
    pub fn needs(self) -> &'static [Route] {
        match self.route {
            Route::Pick | Route::Local => &[],
            Route::Mark => &[Route::Pick],
            Route::Short => &[Route::Pick, Route::Mark],
        }
    }
}

/// One element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    /// Where it goes.
    pub set: Set,
    /// Its key, parts filled up to whole words; in [`Set::Allowed`] the first and the last key behind one another.
    pub key: Vec<u8>,
    /// Who goes first when Services ask for the same front: ClusterIPs (0), which the API gives to one only; NodePorts and
    /// addresses of load balancers (1), which a controller gives; `externalIPs` (2), which anybody may write.
    pub rank: u8,
    /// Its data; empty in sets.
    pub data: Vec<u8>,
    /// The class in its data.
    pub class: Option<Class>,
}

/// The owner of a port's elements.
pub fn owner(name: &PortName) -> Owner {
    let mut hash = Sha256::new();
    for part in [&name.namespace, &name.service, &name.port] {
        hash.update(part.as_bytes());
        // No part of a name holds it.
        hash.update([0]);
    }
    hash.update([name.protocol as u8]);
    let mut owner = [0; 8];
    owner.copy_from_slice(&hash.finalize()[..8]);
    u64::from_be_bytes(owner)
}

/// The names of a port's endpoints, in their order: a hash of the address. When two have the same, the later one takes the next
/// free.
fn names(chosen: &[Chosen]) -> Vec<u32> {
    let mut taken = BTreeMap::new();
    let name = |address: &SocketAddr| {
        let hash = Sha256::digest([&octets(&address.ip())[..], &address.port().to_be_bytes()].concat());
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    };
    chosen
        .iter()
        .map(|endpoint| {
            let mut free = name(&endpoint.address);
            while taken.insert(free, ()).is_some() {
                free = free.wrapping_add(1);
            }
            free
        })
        .collect()
}

/// The elements of one family for a port.
pub fn elements(served: &Served, node_ips: &[IpAddr], v4: bool) -> Vec<Element> {
    let mut made = Made {
        port: &served.port,
        choice: served.choice(v4),
        v4,
        list: Vec::new(),
    };
    // A Service is served in the families it has a ClusterIP of.
    if made.of_family(&served.port.cluster_ips).is_empty() {
        return Vec::new();
    }
    made.internal();
    if served.port.is_external() {
        made.external();
    }
    made.guard(node_ips);
    made.list
}

struct Made<'a> {
    port: &'a ServicePort,
    choice: &'a Choice,
    v4: bool,
    list: Vec<Element>,
}

impl Made<'_> {
    fn internal(&mut self) {
        let ips: Vec<IpAddr> = self.of_family(&self.port.cluster_ips);
        let local = self.port.internal_local;
        let chosen = if local {
            &self.choice.local
        } else {
            &self.choice.cluster
        };
        for ip in &ips {
            self.push(Set::ClusterIps, 0, octets(ip), Vec::new());
            let front = self.front(ip, self.port.port);
            match (chosen.len(), local && self.choice.has_any) {
                (0, false) => self.push(Set::Rejected, 0, front, Vec::new()),
                (0, true) => self.push(Set::Dropped, 0, front, Vec::new()),
                _ => self.serve(false, 0, &front, Route::Pick, chosen),
            }
        }
    }

    fn external(&mut self) {
        let mut fronts: BTreeMap<Vec<u8>, u8> = BTreeMap::new();
        // The better rank last: it stays.
        for (rank, ips) in [(2, &self.port.external_ips), (1, &self.port.load_balancer_ips)] {
            let ours = ips.iter().filter(|ip| ip.is_ipv4() == self.v4);
            fronts.extend(ours.map(|ip| (self.front(ip, self.port.port), rank)));
        }
        if self.port.node_port != 0 {
            fronts.insert(self.front(&unspecified(self.v4), self.port.node_port), 1);
        }
        let choice = self.choice;
        let policy_local = self.port.external_local;
        let route = if policy_local { Route::Short } else { Route::Mark };
        for (front, rank) in fronts {
            if choice.cluster.is_empty() {
                self.push(Set::Rejected, rank, front, Vec::new());
                continue;
            }
            self.serve(false, rank, &front, route, &choice.cluster);
            if policy_local && !choice.local.is_empty() {
                self.serve(true, rank, &front, Route::Local, &choice.local);
            }
        }
    }

    /// Source ranges of load balancers. Where the node's own address is allowed, so is the load balancer's, which is the
    /// source of what a node sends to an address it has itself.
    fn guard(&mut self, node_ips: &[IpAddr]) {
        let ips = self.of_family(&self.port.load_balancer_ips);
        let Some(ranges) = self.port.source_ranges.as_ref().filter(|_| !ips.is_empty()) else {
            return;
        };
        let ranges = ranges.iter().filter(|range| range.is_v4() == self.v4);
        let mut ranges: Vec<Cidr> = ranges.copied().collect();
        if ranges.iter().any(|range| node_ips.iter().any(|ip| range.contains(ip))) {
            ranges.extend(ips.iter().map(|ip| Cidr::host(*ip)));
        }
        let ranges = disjoint(ranges);
        for ip in &ips {
            let front = self.front(ip, self.port.port);
            for range in &ranges {
                let first = [&front[..], &range.network().octets()].concat();
                let last = [&front[..], &octets(&range.last())].concat();
                self.push(Set::Allowed, 1, [first, last].concat(), Vec::new());
            }
            self.push(Set::Guarded, 1, front, Vec::new());
        }
    }

    /// A front with its endpoints.
    fn serve(&mut self, local: bool, rank: u8, front: &[u8], route: Route, chosen: &[Chosen]) {
        let chosen = &chosen[..chosen.len().min(ENDPOINTS_MAX)];
        let class = self.class(route, chosen.len());
        self.push(
            Set::Services(local),
            rank,
            front.to_vec(),
            class.number().to_ne_bytes().to_vec(),
        );
        if let Some(element) = self.list.last_mut() {
            element.class = Some(class);
        }
        // The kernel's random numbers are words in its own byte order, and so are classes and names.
        let under = |word: u32| [front, &word.to_ne_bytes()].concat();
        let sticky = self.port.affinity_seconds > 0;
        let names = if sticky { names(chosen) } else { Vec::new() };
        for (number, endpoint) in (0u32..).zip(chosen) {
            let address = octets(&endpoint.address.ip());
            let target = [&address[..], &padded_port(endpoint.address.port())].concat();
            match names.get(number as usize) {
                Some(name) => {
                    self.push(Set::Numbers(local), rank, under(number), name.to_ne_bytes().to_vec());
                    self.push(Set::Members(local), rank, under(*name), target);
                }
                None => self.push(Set::Endpoints(local), rank, under(number), target),
            }
            if endpoint.local {
                self.push(Set::Hairpin, 0, [&address[..], &address].concat(), Vec::new());
            }
        }
    }

    fn class(&self, route: Route, count: usize) -> Class {
        Class {
            route,
            count: count as u32,
            affinity: self.port.affinity_seconds,
        }
    }

    fn push(&mut self, set: Set, rank: u8, key: Vec<u8>, data: Vec<u8>) {
        self.list.push(Element {
            set,
            key,
            rank,
            data,
            class: None,
        });
    }

    fn front(&self, ip: &IpAddr, port: u16) -> Vec<u8> {
        let protocol = [self.port.name.protocol as u8, 0, 0, 0];
        [&octets(ip)[..], &protocol, &padded_port(port)].concat()
    }

    fn of_family(&self, ips: &[IpAddr]) -> Vec<IpAddr> {
        ips.iter().copied().filter(|ip| ip.is_ipv4() == self.v4).collect()
    }
}

fn octets(ip: &IpAddr) -> Vec<u8> {
    cidr::octets(ip)
}

fn unspecified(v4: bool) -> IpAddr {
    if v4 {
        IpAddr::from([0; 4])
    } else {
        IpAddr::from([0; 16])
    }
}

fn padded_port(port: u16) -> [u8; 4] {
    let [high, low] = port.to_be_bytes();
    [high, low, 0, 0]
}

/// The networks that are not inside another of the list: a set of ranges takes no overlapping ones.
fn disjoint(mut ranges: Vec<Cidr>) -> Vec<Cidr> {
    // Networks lie inside one another or apart: in this order whatever holds a network comes before it, with nothing between
    // them that it does not hold too.
    ranges.sort_by_key(|range| (range.network().octets(), range.prefix));
    let mut kept: Vec<Cidr> = Vec::new();
    for range in ranges {
        if !kept.last().is_some_and(|last| last.contains(&range.addr)) {
            kept.push(range);
        }
    }
    kept
}
