//! Addresses of interfaces.

use super::codec::{Message, attributes, read_u32};
use super::socket::{Error, Socket};
use super::wire::*;
use crate::cidr::{self, Cidr};

/// An address on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Interface index.
    pub index: u32,
    /// The address and its prefix.
    pub cidr: Cidr,
    /// `IFA_F_*`.
    pub flags: u32,
    /// Scope: 0 is global, 253 link, 254 host.
    pub scope: u8,
}

impl Address {
    /// Reads the body of an `RTM_NEWADDR` message.
    pub fn read(body: &[u8]) -> Option<Self> {
        let (prefix, flags, scope) = (*body.get(1)?, *body.get(2)?, *body.get(3)?);
        let mut address = None;
        let mut local = None;
        let mut flags = u32::from(flags);
        for (kind, value) in attributes(body.get(8..)?) {
            match kind {
                IFA_ADDRESS => address = cidr::from_octets(value),
                IFA_LOCAL => local = cidr::from_octets(value),
                IFA_FLAGS => flags = read_u32(value, 0)?,
                _ => {}
            }
        }
        Some(Self {
            index: read_u32(body, 4)?,
            cidr: Cidr::new(local.or(address)?, prefix)?,
            flags,
            scope,
        })
    }
}

/// Adds an address; an existing one is refused. IPv6 addresses skip duplicate detection unless `detect_duplicates`.
pub fn add(index: u32, cidr: Cidr, detect_duplicates: bool) -> Message {
    let octets = cidr.octets();
    let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &fixed(index, cidr))
        .attr(IFA_LOCAL, &octets)
        .attr(IFA_ADDRESS, &octets);
    if cidr.is_v4() && cidr.prefix < 31 {
        message = message.attr(IFA_BROADCAST, &cidr::octets(&cidr.last()));
    }
    if !cidr.is_v4() && !detect_duplicates {
        message = message.attr_u32(IFA_FLAGS, IFA_F_NODAD);
    }
    message
}

/// Deletes an address.
pub fn delete(index: u32, cidr: Cidr) -> Message {
    let octets = cidr.octets();
    Message::new(RTM_DELADDR, 0, &fixed(index, cidr))
        .attr(IFA_LOCAL, &octets)
        .attr(IFA_ADDRESS, &octets)
}

/// `struct ifaddrmsg`.
fn fixed(index: u32, cidr: Cidr) -> [u8; 8] {
    let family = if cidr.is_v4() { AF_INET } else { AF_INET6 };
    let mut bytes = [family, cidr.prefix, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&index.to_ne_bytes());
    bytes
}

impl Socket {
    /// The addresses of one interface, of one family or of both.
    pub fn addresses(&mut self, index: u32, v4: Option<bool>) -> Result<Vec<Address>, Error> {
        let family = match v4 {
            None => AF_UNSPEC,
            Some(true) => AF_INET,
            Some(false) => AF_INET6,
        };
        let mut fixed = [family, 0, 0, 0, 0, 0, 0, 0];
        fixed[4..].copy_from_slice(&index.to_ne_bytes());
        let replies = self.dump(&Message::new(RTM_GETADDR, 0, &fixed))?;
        let read = replies
            .iter()
            .filter(|reply| reply.kind == RTM_NEWADDR)
            .filter_map(|reply| Address::read(&reply.body));
        Ok(read.filter(|address| address.index == index).collect())
    }

    /// The addresses of all interfaces, of both families.
    pub fn all_addresses(&mut self) -> Result<Vec<Address>, Error> {
        let replies = self.dump(&Message::new(RTM_GETADDR, 0, &[AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0]))?;
        let read = replies.iter().filter(|reply| reply.kind == RTM_NEWADDR);
        Ok(read.filter_map(|reply| Address::read(&reply.body)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn golden_bytes_of_an_address() {
        let bytes = add(3, Cidr::parse("10.1.0.5/24").unwrap(), false).encode(1, 0);
        assert_eq!(
            bytes[16..],
            [
                2, 24, 0, 0, 3, 0, 0, 0, // struct ifaddrmsg
                8, 0, 2, 0, 10, 1, 0, 5, // IFA_LOCAL
                8, 0, 1, 0, 10, 1, 0, 5, // IFA_ADDRESS
                8, 0, 4, 0, 10, 1, 0, 255, // IFA_BROADCAST
            ]
        );
        let read = Address::read(&bytes[16..]).unwrap();
        assert_eq!((read.index, read.cidr.to_string()), (3, "10.1.0.5/24".into()));
    }

    #[test]
    fn only_version_six_skips_duplicate_detection() {
        let flags = |cidr: &str, detect| {
            let bytes = add(1, Cidr::parse(cidr).unwrap(), detect).encode(1, 0);
            Address::read(&bytes[16..]).unwrap().flags
        };
        assert_eq!(flags("fd00::1/64", false), IFA_F_NODAD);
        assert_eq!(flags("fd00::1/64", true), 0);
        assert_eq!(flags("10.0.0.1/8", false), 0);
    }
}
