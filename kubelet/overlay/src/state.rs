//! What the kernel holds, or is to hold. Values only.

use netlink::cidr::Cidr;
use netlink::link::Mac;
use netlink::vxlan::Vxlan;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The number our routes carry, by which they are known again (`ip route` shows it behind `proto`). No routing daemon's in
/// iproute2's table.
pub const PROTOCOL: u8 = 115;

/// What our devices say of themselves (`ip link` shows it behind `alias`).
pub const ALIAS: &str = "skiff pod network";

/// A family of addresses, and the tunnel device of that family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4; `flannel.1`.
    V4,
    /// IPv6; `flannel-v6.1`.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// An address's.
    pub fn of(addr: &IpAddr) -> Self {
        if addr.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Whether this is IPv4.
    pub fn is_v4(self) -> bool {
        self == Self::V4
    }

    /// The name of its tunnel device, flannel's.
    pub fn device(self, vni: u32) -> String {
        match self {
            Self::V4 => format!("flannel.{vni}"),
            Self::V6 => format!("flannel-v6.{vni}"),
        }
    }

    /// What a tunnel takes of each packet: outer header, UDP, VXLAN and the inner Ethernet header.
    pub fn overhead(self) -> u32 {
        match self {
            Self::V4 => 50,
            Self::V6 => 70,
        }
    }
}

/// One value of each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Each<T> {
    /// IPv4's.
    pub v4: T,
    /// IPv6's.
    pub v6: T,
}

impl<T> Each<T> {
    /// One family's.
    pub fn of(&self, family: Family) -> &T {
        if family.is_v4() { &self.v4 } else { &self.v6 }
    }

    /// One family's, to change.
    pub fn of_mut(&mut self, family: Family) -> &mut T {
        if family.is_v4() { &mut self.v4 } else { &mut self.v6 }
    }
}

/// A tunnel device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// What cannot be changed while it is there.
    pub vxlan: Vxlan,
    /// Hardware address.
    pub mac: Mac,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether it leaves checksums to others.
    pub offload: bool,
    /// Whether it is up.
    pub up: bool,
    /// Whether it says that it is ours ([`ALIAS`]): then [`crate::remove`] removes it.
    pub ours: bool,
}

/// Where a route leads out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// Through the tunnel device of a family.
    Tunnel(Family),
    /// By the interface of this index.
    Link(u32),
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// The way out.
    pub port: Port,
    /// Whether the gateway counts as reachable there in any case.
    pub onlink: bool,
}

/// Everything that is the overlay's, and those routes of others that stand where one of ours might.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Tunnel devices.
    pub devices: BTreeMap<Family, Device>,
    /// Global addresses of tunnel devices.
    pub addresses: BTreeSet<(Family, Cidr)>,
    /// Hardware addresses of the far ends, on tunnel devices.
    pub neighbours: BTreeMap<(Family, IpAddr), Mac>,
    /// The hosts behind which hardware addresses are.
    pub forwarding: BTreeMap<(Family, [u8; 6]), BTreeSet<IpAddr>>,
    /// Our routes by destination.
    pub routes: BTreeMap<Cidr, Hop>,
    /// Others' routes by destination, with the metric ours have.
    pub foreign: BTreeMap<Cidr, Hop>,
}

impl State {
    /// Makes this state hold of a family just what `other` holds.
    pub fn adopt(&mut self, family: Family, other: &Self) {
        self.devices.remove(&family);
        self.devices
            .extend(other.devices.get(&family).map(|device| (family, *device)));
        self.addresses.retain(|(of, _)| *of != family);
        self.addresses
            .extend(other.addresses.iter().filter(|(of, _)| *of == family));
        self.neighbours.retain(|(of, _), _| *of != family);
        let neighbours = other.neighbours.iter().filter(|((of, _), _)| *of == family);
        self.neighbours.extend(neighbours.map(|(key, mac)| (*key, *mac)));
        self.forwarding.retain(|(of, _), _| *of != family);
        let forwarding = other.forwarding.iter().filter(|((of, _), _)| *of == family);
        self.forwarding
            .extend(forwarding.map(|(key, hosts)| (*key, hosts.clone())));
        self.routes.retain(|range, _| range.is_v4() != family.is_v4());
        let routes = other.routes.iter().filter(|(range, _)| range.is_v4() == family.is_v4());
        self.routes.extend(routes.map(|(range, hop)| (*range, *hop)));
    }
}
