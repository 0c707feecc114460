//! Neighbours an administrator set: who has which hardware address on a link, and behind which host a tunnel finds it.

use std::net::IpAddr;

use super::codec::{Message, attributes, read_u16, read_u32};
use super::link::Mac;
use super::socket::{Error, Socket};
use super::wire::*;
use crate::cidr;

/// A permanent entry of a link's neighbour table, or of a tunnel's forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The link.
    pub index: u32,
    /// Hardware address.
    pub mac: Mac,
    /// Whose address it is; in a forwarding table the tunnel's far end.
    pub addr: IpAddr,
}

/// Which table an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Addresses of this family and their hardware addresses.
    Neighbours {
        /// IPv4, or IPv6.
        v4: bool,
    },
    /// A tunnel's own: hardware addresses and the hosts behind which they are.
    Forwarding,
}

impl Table {
    fn family(self) -> u8 {
        match self {
            Self::Neighbours { v4: true } => AF_INET,
            Self::Neighbours { v4: false } => AF_INET6,
            Self::Forwarding => AF_BRIDGE,
        }
    }

    fn of(entry: &Neighbour) -> Self {
        Self::Neighbours {
            v4: entry.addr.is_ipv4(),
        }
    }
}

impl Neighbour {
    /// Reads the body of an `RTM_NEWNEIGH` message; `None` unless it is a permanent entry with both addresses.
    pub fn read(body: &[u8]) -> Option<Self> {
        let (index, state) = (read_u32(body, 4)?, read_u16(body, 8)?);
        let (mut mac, mut addr) = (None, None);
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                NDA_DST => addr = cidr::from_octets(value),
                NDA_LLADDR => mac = value.try_into().ok().map(Mac),
                _ => {}
            }
        }
        let (mac, addr) = (mac?, addr?);
        (state & NUD_PERMANENT != 0).then_some(Self { index, mac, addr })
    }
}

/// `struct ndmsg`.
fn fixed(table: Table, index: u32, state: u16) -> [u8; 12] {
    let mut bytes = [0u8; 12];
    bytes[0] = table.family();
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..10].copy_from_slice(&state.to_ne_bytes());
    bytes[10] = match table {
        Table::Neighbours { .. } => 0,
        Table::Forwarding => NTF_SELF,
    };
    bytes
}

/// Sets the hardware address of an address on a link, whatever it was before.
pub fn set(entry: &Neighbour) -> Message {
    build(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, Table::of(entry), entry)
}

/// Deletes an address's entry.
pub fn delete(entry: &Neighbour) -> Message {
    build(RTM_DELNEIGH, 0, Table::of(entry), entry)
}

/// Sets the host behind which a tunnel finds a hardware address; if it knew another, that one is replaced.
pub fn set_forwarding(entry: &Neighbour) -> Message {
    build(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, Table::Forwarding, entry)
}

/// Deletes such a host.
pub fn delete_forwarding(entry: &Neighbour) -> Message {
    build(RTM_DELNEIGH, 0, Table::Forwarding, entry)
}

fn build(kind: u16, flags: u16, table: Table, entry: &Neighbour) -> Message {
    let state = if kind == RTM_NEWNEIGH { NUD_PERMANENT } else { 0 };
    Message::new(kind, flags, &fixed(table, entry.index, state))
        .attr(NDA_DST, &cidr::octets(&entry.addr))
        .attr(NDA_LLADDR, &entry.mac.0)
}

impl Socket {
    /// The permanent entries of one link in one of its tables.
    pub fn neighbours(&mut self, table: Table, index: u32) -> Result<Vec<Neighbour>, Error> {
        // The header must be empty: flags and states are no filter of a dump.
        let mut header = fixed(table, 0, 0);
        header[10] = 0;
        let message = Message::new(RTM_GETNEIGH, 0, &header).attr_u32(NDA_IFINDEX, index);
        let replies = self.dump(&message)?;
        let read = replies.iter().filter(|reply| reply.kind == RTM_NEWNEIGH);
        let read = read.filter_map(|reply| Neighbour::read(&reply.body));
        Ok(read.filter(|entry| entry.index == index).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn golden_bytes_of_a_forwarding_entry() {
        let entry = Neighbour {
            index: 5,
            mac: Mac([2, 0, 0, 0, 0, 9]),
            addr: "192.0.2.7".parse().unwrap(),
        };
        let bytes = set_forwarding(&entry).encode(1, 0);
        assert_eq!(
            bytes[16..],
            [
                7, 0, 0, 0, 5, 0, 0, 0, 0x80, 0, 2, 0, // struct ndmsg: AF_BRIDGE, permanent, self
                8, 0, 1, 0, 192, 0, 2, 7, // NDA_DST
                10, 0, 2, 0, 2, 0, 0, 0, 0, 9, 0, 0, // NDA_LLADDR, padded
            ]
        );
        assert_eq!(Neighbour::read(&bytes[16..]), Some(entry));
        // What is not permanent is the kernel's own.
        assert_eq!(Neighbour::read(&delete_forwarding(&entry).encode(1, 0)[16..]), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = Neighbour::read(&bytes);
        }
    }
}
