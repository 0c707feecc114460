//! What the kernel is to hold so that this node's pods reach the others', and which nodes cannot be reached and why. Pure.
//!
//! A node that claims what another has (a range, a hardware address) loses to the older one, and to this node; one that claims to
//! be where pods are loses to whoever has their range. The others are not harmed.

use crate::peer::{End, Peer};
use crate::settings::{Backend, Settings};
use crate::state::{Device, Each, Family, Hop, Port, State};
use client::ordered::Arrange;
use netlink::cidr::Cidr;
use netlink::link::Mac;
use netlink::vxlan::Vxlan;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The interface that has this node's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underlay {
    /// This node's address.
    pub address: IpAddr,
    /// The interface's index.
    pub index: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The networks it is in.
    pub networks: Vec<Cidr>,
}

/// This node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// What its Node says.
    pub peer: Peer,
    /// Where its addresses are, as far as they are found.
    pub underlay: Each<Option<Underlay>>,
    /// The hardware addresses its tunnels are to have.
    pub macs: Each<Mac>,
    /// Addresses this node has itself, on whichever interface, but for those its pods' range is for.
    pub addresses: BTreeSet<IpAddr>,
}

/// Why a node, or a range of one, is not in the network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    /// It has no range yet.
    #[error("it has no pod range (spec.podCIDRs)")]
    NoRange,
    /// A range that is none.
    #[error("its pod range {0:?} is no address range")]
    Unreadable(String),
    /// Not in the cluster's.
    #[error("its pod range {0} is outside of the cluster's pod ranges")]
    Outside(Cidr),
    /// Somebody else's.
    #[error("its pod range {range} overlaps {other_range} of node {other:?}")]
    Overlap {
        /// Its range.
        range: Cidr,
        /// The older claim.
        other_range: Cidr,
        /// Whose that is.
        other: String,
    },
    /// A node's own address would be led away.
    #[error("its pod range {range} contains the node address {address}")]
    Swallows {
        /// Its range.
        range: Cidr,
        /// The address.
        address: IpAddr,
    },
    /// What is no pods' would be led away.
    #[error("its pod range {range} overlaps {reserved}, where the cluster's own addresses are")]
    Reserved {
        /// Its range.
        range: Cidr,
        /// What is not to be led away.
        reserved: Cidr,
    },
    /// It claims to be where pods are.
    #[error("its address {address} is in the pod range {range} of node {other:?}")]
    AmongPods {
        /// Its address.
        address: IpAddr,
        /// Where pods are.
        range: Cidr,
        /// Whose that is.
        other: String,
    },
    /// It did not say where it is.
    #[error("it has no address for pod range {0}: neither an annotation public-ip nor an InternalIP of that family")]
    NoAddress(Cidr),
    /// It claims to be where this node is.
    #[error("its address {0} is this node's")]
    OwnAddress(IpAddr),
    /// It sends by other means.
    #[error("its backend is {0:?}, this node's is {1:?}")]
    Backend(String, &'static str),
    /// It is in another tunnel network.
    #[error("its VXLAN network is {0}, this node's is {1}")]
    Vni(u32, u32),
    /// It has not made its tunnel.
    #[error("it has not published the hardware address of its tunnel for pod range {0}")]
    NoMac(Cidr),
    /// Its tunnel cannot be told from another's.
    #[error("the hardware address {mac} of its tunnel is that of node {other:?}")]
    SameMac {
        /// Its hardware address.
        mac: String,
        /// Who has it too.
        other: String,
    },
    /// Not on one link with this node.
    #[error("its address {0} is not on a network of this node's interface: backend host-gw needs one link")]
    NotDirect(IpAddr),
    /// This node's address is on no interface.
    #[error("no interface of this node has its address for pod range {0}")]
    NoUnderlay(Cidr),
    /// A route of somebody else leads there.
    #[error("a route to {0} exists that is not this network's: it stays")]
    ForeignRoute(Cidr),
}

/// A node, or a range of one, that is not in the network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The node's name.
    pub node: String,
    /// Why.
    pub reason: Reason,
}

/// What is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the kernel.
    pub state: State,
    /// Who is left out, in order of names.
    pub problems: BTreeSet<Problem>,
    /// Families in which this node has a range and cannot decide: what is there stays as it is.
    pub held: BTreeSet<Family>,
    /// Whose route it is, for what is found only when routes are set.
    pub owners: BTreeMap<Cidr, String>,
}

impl Plan {
    /// The largest packet a pod may send anywhere, in bytes: what tunnels leave of the interface's.
    pub fn pod_mtu(&self, own: &Own) -> Option<u32> {
        let tunnels = self.state.devices.values().map(|device| device.mtu);
        let links = Family::ALL
            .into_iter()
            .filter_map(|family| own.underlay.of(family).as_ref());
        tunnels.min().or(links.map(|underlay| underlay.mtu).min())
    }
}

/// Decides what the kernel is to hold.
pub fn plan<'p>(settings: &Settings, own: &Own, peers: impl IntoIterator<Item = &'p Peer>) -> Plan {
    let mut peers: Vec<&Peer> = peers.into_iter().filter(|peer| peer.name != own.peer.name).collect();
    peers.arrange_by_key(|peer| (peer.created, &peer.name));
    let mut draft = Draft {
        settings,
        own,
        plan: Plan::default(),
    };
    draft.ranges_of(&own.peer);
    for peer in &peers {
        draft.ranges_of(peer);
    }
    for family in Family::ALL {
        draft.family(family, &peers);
    }
    draft.plan
}

/// The hardware address a tunnel is to have. Of two nodes with one the younger takes another (machines that were copied have
/// what the first had been given), and so does who has not been told the others yet. `told` is what the others know of this
/// node, `present` what its device has; without either, or if they are taken, it is `spare` or the next that is free. A node that
/// `gave_way` before keeps what it has and has told: who takes that, too, does so on purpose, and is the one left out here.
pub fn mac(
    peers: &BTreeMap<String, Peer>,
    own: &Peer,
    family: Family,
    present: Option<Mac>,
    spare: Mac,
    gave_way: bool,
) -> Mac {
    let age = |peer: &Peer| (peer.created, peer.name.clone());
    let others = || peers.values().filter(|peer| peer.name != own.name);
    let has = |mac: Mac| others().filter(move |peer| peer.ends.of(family).mac == Some(mac));
    let told = own.ends.of(family).mac;
    if let Some(told) = told.filter(|_| gave_way && told == present) {
        return told;
    }
    if let Some(told) = told.filter(|mac| has(*mac).all(|other| age(other) > age(own))) {
        return told;
    }
    let is_free = |mac: &Mac| has(*mac).next().is_none();
    if let Some(present) = present.filter(is_free) {
        return present;
    }
    let mut number = u32::from_be_bytes([spare.0[2], spare.0[3], spare.0[4], spare.0[5]]);
    // Each of the others takes one away at most.
    for _ in 0..=peers.len() {
        let [a, b, c, d] = number.to_be_bytes();
        let mac = Mac([spare.0[0], spare.0[1], a, b, c, d]);
        if is_free(&mac) {
            return mac;
        }
        number = number.wrapping_add(1);
    }
    spare
}

struct Draft<'d> {
    settings: &'d Settings,
    own: &'d Own,
    plan: Plan,
}

/// What is taken already, and by whom.
#[derive(Default)]
struct Claims {
    ranges: Ranges,
    macs: BTreeMap<[u8; 6], String>,
}

impl Claims {
    /// Whether a node is where no pods are. Each says itself where it is: an address in a range costs the node with the address,
    /// however old it is, and never the one with the range.
    fn place(&self, peer: &Peer, family: Family) -> Result<(), Reason> {
        let end = peer.ends.of(family);
        for address in [end.internal, end.public].into_iter().flatten() {
            match self.ranges.overlapping(Cidr::host(address)) {
                None => {}
                Some((range, other)) if other == peer.name => return Err(Reason::Swallows { range, address }),
                Some((range, other)) => {
                    let other = other.to_owned();
                    return Err(Reason::AmongPods { address, range, other });
                }
            }
        }
        Ok(())
    }
}

/// Disjoint ranges by their first address, with whose they are.
#[derive(Default)]
struct Ranges(BTreeMap<IpAddr, (Cidr, String)>);

impl Ranges {
    fn add(&mut self, range: Cidr, name: &str) {
        self.0.insert(range.addr, (range, name.to_owned()));
    }

    /// One that shares an address with this. As all are disjoint, the last that begins before its end is one if any is.
    fn overlapping(&self, range: Cidr) -> Option<(Cidr, &str)> {
        let (_, (other, name)) = self.0.range(..=range.last()).next_back()?;
        other.overlaps(&range).then_some((*other, name.as_str()))
    }
}

impl Draft<'_> {
    fn problem(&mut self, peer: &Peer, reason: Reason) {
        self.plan.problems.insert(Problem {
            node: peer.name.clone(),
            reason,
        });
    }

    /// What is wrong with a node's ranges as such.
    fn ranges_of(&mut self, peer: &Peer) {
        for text in &peer.unreadable {
            self.problem(peer, Reason::Unreadable(text.clone()));
        }
        if peer.ranges.is_empty() && peer.unreadable.is_empty() {
            self.problem(peer, Reason::NoRange);
        }
    }

    fn family(&mut self, family: Family, peers: &[&Peer]) {
        let own = self.own;
        let Some(range) = own.peer.range(family) else { return };
        self.plan.held.insert(family);
        if !self.is_inside(range) {
            return self.problem(&own.peer, Reason::Outside(range));
        }
        let Some(underlay) = own.underlay.of(family) else {
            return self.problem(&own.peer, Reason::NoUnderlay(range));
        };
        if range.contains(&underlay.address) {
            let address = underlay.address;
            return self.problem(&own.peer, Reason::Swallows { range, address });
        }
        self.plan.held.remove(&family);
        let mut claims = Claims::default();
        let name = &own.peer.name;
        claims.ranges.add(range, name);
        claims.macs.insert(own.macs.of(family).0, name.clone());
        if self.settings.backend == Backend::Vxlan {
            self.tunnel(family, range, underlay);
        }
        // All ranges first, then who is in one: else it would depend on who is older.
        let mut claimed = Vec::new();
        for peer in peers {
            let Some(range) = peer.range(family) else { continue };
            match self.claim(&mut claims, peer, range, underlay) {
                Ok(()) => claimed.push((*peer, range)),
                Err(reason) => self.problem(peer, reason),
            }
        }
        for (peer, range) in claimed {
            let place = claims.place(peer, family);
            let outcome = place.and_then(|()| self.end(peer, range, underlay));
            let outcome = outcome.and_then(|end| match self.settings.backend {
                Backend::Vxlan => self.through_tunnel(family, &mut claims, peer, range, end),
                Backend::HostGw => self.straight(range, end, underlay),
            });
            match outcome {
                Ok(()) => drop(self.plan.owners.insert(range, peer.name.clone())),
                Err(reason) => self.problem(peer, reason),
            }
        }
    }

    fn is_inside(&self, range: Cidr) -> bool {
        let mut cluster = self.settings.cluster(range.is_v4());
        cluster.any(|cidr| cidr.prefix <= range.prefix && cidr.contains(&range.addr))
    }

    /// This node's end.
    fn tunnel(&mut self, family: Family, range: Cidr, underlay: &Underlay) {
        let device = Device {
            vxlan: Vxlan {
                vni: self.settings.vni,
                port: self.settings.port,
                local: Some(underlay.address),
                underlay: underlay.index,
                extras: false,
            },
            mac: *self.own.macs.of(family),
            mtu: underlay.mtu.saturating_sub(family.overhead()),
            offload: self.settings.checksum_offload.unwrap_or(false),
            up: true,
            ours: true,
        };
        self.plan.state.devices.insert(family, device);
        self.plan.state.addresses.insert((family, Cidr::host(range.addr)));
    }

    /// A node's range becomes its own, unless it may not have it.
    fn claim(&self, claims: &mut Claims, peer: &Peer, range: Cidr, underlay: &Underlay) -> Result<(), Reason> {
        if !self.is_inside(range) {
            return Err(Reason::Outside(range));
        }
        if let Some((other_range, other)) = claims.ranges.overlapping(range) {
            let other = other.to_owned();
            return Err(Reason::Overlap {
                range,
                other_range,
                other,
            });
        }
        self.leads_nothing_away(range, underlay)?;
        claims.ranges.add(range, &peer.name);
        Ok(())
    }

    /// A range that holds more than pods would lead to its node what is meant for this one, or for the cluster.
    fn leads_nothing_away(&self, range: Cidr, underlay: &Underlay) -> Result<(), Reason> {
        let mut reserved = self.settings.reserved.iter();
        if let Some(reserved) = reserved.find(|reserved| reserved.overlaps(&range)) {
            let reserved = *reserved;
            return Err(Reason::Reserved { range, reserved });
        }
        let mut own = self.own.addresses.range(range.addr..=range.last());
        let underlay = Some(&underlay.address).filter(|address| range.contains(address));
        match own.next().or(underlay) {
            Some(address) => Err(Reason::Swallows {
                range,
                address: *address,
            }),
            None => Ok(()),
        }
    }

    /// The end behind which a range is.
    fn end<'p>(&self, peer: &'p Peer, range: Cidr, underlay: &Underlay) -> Result<(&'p End, IpAddr), Reason> {
        let end = peer.ends.of(Family::of(&range.addr));
        let address = end.address().ok_or(Reason::NoAddress(range))?;
        if address == underlay.address {
            return Err(Reason::OwnAddress(address));
        }
        let wanted = self.settings.backend.name();
        match peer.backend.as_deref() {
            Some(other) if other != wanted => Err(Reason::Backend(other.chars().take(64).collect(), wanted)),
            _ => Ok((end, address)),
        }
    }

    fn through_tunnel(
        &mut self,
        family: Family,
        claims: &mut Claims,
        peer: &Peer,
        range: Cidr,
        (end, address): (&End, IpAddr),
    ) -> Result<(), Reason> {
        let mac = end.mac.ok_or(Reason::NoMac(range))?;
        if let Some(vni) = end.vni.filter(|vni| *vni != self.settings.vni) {
            return Err(Reason::Vni(vni, self.settings.vni));
        }
        if let Some(other) = claims.macs.get(&mac.0) {
            return Err(Reason::SameMac {
                mac: mac.to_string(),
                other: other.clone(),
            });
        }
        claims.macs.insert(mac.0, peer.name.clone());
        let state = &mut self.plan.state;
        let hop = Hop {
            gateway: Some(range.addr),
            port: Port::Tunnel(family),
            onlink: true,
        };
        state.neighbours.insert((family, range.addr), mac);
        state.forwarding.insert((family, mac.0), BTreeSet::from([address]));
        state.routes.insert(range, hop);
        Ok(())
    }

    fn straight(&mut self, range: Cidr, (_, address): (&End, IpAddr), underlay: &Underlay) -> Result<(), Reason> {
        if !underlay.networks.iter().any(|network| network.contains(&address)) {
            return Err(Reason::NotDirect(address));
        }
        let hop = Hop {
            gateway: Some(address),
            port: Port::Link(underlay.index),
            onlink: false,
        };
        self.plan.state.routes.insert(range, hop);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
