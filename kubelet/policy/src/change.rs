//! What is to become of the kernel's table: sets, chains and which pod's traffic goes through which chain, as plain values.
//! Pure; the bytes are [`crate::kernel`]'s.

use std::net::IpAddr;

use crate::range::{PortRange, Range};
use crate::spec::Direction;

/// A set of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetId {
    /// Addresses of this node's pods, IPv4 or not.
    Known(bool),
    /// Any other, by number.
    Numbered(u32),
}

/// What a set holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Addresses.
    Addresses,
    /// Ranges of addresses.
    AddressRanges,
    /// Protocols with single ports.
    Ports,
    /// Protocols with ranges of ports.
    PortRanges,
    /// Addresses with protocol and port.
    AddressPorts,
}

/// A member of a set that follows pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// A pod's address.
    pub addr: IpAddr,
    /// Protocol and port, in sets that have them.
    pub port: Option<(u8, u16)>,
}

impl Member {
    /// An address alone.
    pub fn address(addr: IpAddr) -> Self {
        Self { addr, port: None }
    }
}

/// What is in a new set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Follows pods.
    Members(Vec<Member>),
    /// Stays: disjoint ranges.
    Ranges(Vec<Range>),
    /// Stays: disjoint ranges.
    Ports(Vec<PortRange>),
}

/// A set to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSet {
    /// Which.
    pub id: SetId,
    /// Whether its addresses are IPv4.
    pub v4: bool,
    /// What it holds.
    pub kind: SetKind,
    /// What is in it.
    pub content: Content,
}

/// A chain, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub u32);

/// Lets through what matches everything that is given; without anything given, all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allow {
    /// The other side's address is in this set.
    pub peers: Option<SetId>,
    /// The other side's address is in one of this set's ranges.
    pub blocks: Option<SetId>,
    /// The other side's address is in this range: few of them need no set.
    pub within: Option<Range>,
    /// Protocol and port of the responder are in this set.
    pub ports: Option<SetId>,
    /// Address, protocol and port of the responder are in this set.
    pub places: Option<SetId>,
}

impl Allow {
    /// The sets it looks into.
    pub fn sets(&self) -> impl Iterator<Item = SetId> {
        [self.peers, self.blocks, self.ports, self.places].into_iter().flatten()
    }
}

/// What is let through, one way and in one family; everything else is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Seen from the pods whose chain it is.
    pub direction: Direction,
    /// IPv4 or not.
    pub v4: bool,
    /// Any of these.
    pub allows: Vec<Allow>,
}

/// Which chain an address's traffic goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Seen from the address.
    pub direction: Direction,
    /// A pod's.
    pub addr: IpAddr,
    /// What the kernel has; absent: all is let through.
    pub old: Option<ChainId>,
    /// What it is to have.
    pub new: Option<ChainId>,
}

/// What a set gains and loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Which set.
    pub id: SetId,
    /// What is new in it.
    pub added: Vec<Member>,
    /// What is no longer.
    pub removed: Vec<Member>,
}

/// A set whose content stays, but for the times when there is no room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Which set.
    pub id: SetId,
    /// All that is in it when there is room.
    pub content: Content,
    /// Whether it comes, or goes.
    pub is_in: bool,
}

/// Everything that changes, to be applied in this order and at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Sets to make.
    pub new_sets: Vec<NewSet>,
    /// Chains to make.
    pub new_chains: Vec<(ChainId, Chain)>,
    /// Sets that differ.
    pub revisions: Vec<Revision>,
    /// Sets that are emptied, or filled again.
    pub refills: Vec<Refill>,
    /// Addresses whose chain changes.
    pub dispatches: Vec<Dispatch>,
    /// Chains nothing leads to any more.
    pub gone_chains: Vec<ChainId>,
    /// Sets nothing looks into any more.
    pub gone_sets: Vec<SetId>,
}

impl Change {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
