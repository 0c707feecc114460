//! An address with the length of its network prefix. Pure; never resolves or touches an interface.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address and its prefix length, such as `10.1.0.5/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    /// The address, host bits included.
    pub addr: IpAddr,
    /// Prefix length in bits; never more than the family's width.
    pub prefix: u8,
}

/// The text is no `address/length`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid CIDR address: {0}")]
pub struct ParseCidr(pub String);

impl Cidr {
    /// Builds one; `None` when the prefix is longer than the address.
    pub fn new(addr: IpAddr, prefix: u8) -> Option<Self> {
        (prefix <= bits(&addr)).then_some(Self { addr, prefix })
    }

    /// The single address as a network of its own (`/32` or `/128`).
    pub fn host(addr: IpAddr) -> Self {
        Self {
            addr,
            prefix: bits(&addr),
        }
    }

    /// Reads `address/length`; an IPv4-mapped IPv6 address becomes IPv4, as Go's `net.ParseCIDR` gives.
    pub fn parse(text: &str) -> Result<Self, ParseCidr> {
        let fail = || ParseCidr(text.to_owned());
        let (addr, prefix) = text.split_once('/').ok_or_else(fail)?;
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(fail());
        }
        let addr: IpAddr = addr.parse().map_err(|_| fail())?;
        let prefix: u8 = prefix.parse().map_err(|_| fail())?;
        Self::new(addr, prefix).ok_or_else(fail)
    }

    /// The network: host bits cleared.
    pub fn network(&self) -> Self {
        let host_bits = bits(&self.addr) - self.prefix;
        let value = number(&self.addr);
        let masked = if host_bits >= 128 {
            0
        } else {
            (value >> host_bits) << host_bits
        };
        Self {
            addr: address(masked, self.is_v4()),
            prefix: self.prefix,
        }
    }

    /// The last address of the network (the broadcast address in IPv4).
    pub fn last(&self) -> IpAddr {
        let host_bits = bits(&self.addr) - self.prefix;
        let ones = if host_bits >= 128 {
            u128::MAX
        } else {
            (1u128 << host_bits) - 1
        };
        address(number(&self.network().addr) | ones, self.is_v4())
    }

    /// Whether `addr` is of the same family and inside the network.
    pub fn contains(&self, addr: &IpAddr) -> bool {
        addr.is_ipv4() == self.is_v4()
            && Self {
                addr: *addr,
                prefix: self.prefix,
            }
            .network()
                == self.network()
    }

    /// Whether two networks share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(&other.addr) || other.contains(&self.addr)
    }

    /// Whether this is an IPv4 network.
    pub fn is_v4(&self) -> bool {
        self.addr.is_ipv4()
    }

    /// Whether this is `0.0.0.0/0` or `::/0`.
    pub fn is_default(&self) -> bool {
        self.prefix == 0 && self.addr.is_unspecified()
    }

    /// The address in network byte order: 4 or 16 bytes.
    pub fn octets(&self) -> Vec<u8> {
        octets(&self.addr)
    }

    /// The netmask in network byte order: 4 or 16 bytes.
    pub fn mask(&self) -> Vec<u8> {
        let mut mask = vec![0u8; usize::from(bits(&self.addr) / 8)];
        for bit in 0..usize::from(self.prefix) {
            mask[bit / 8] |= 0x80 >> (bit % 8);
        }
        mask
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.addr, self.prefix)
    }
}

/// Width of the address in bits: 32 or 128.
pub fn bits(addr: &IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

/// The address in network byte order.
pub fn octets(addr: &IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address from 4 or 16 bytes in network byte order.
pub fn from_octets(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    <[u8; 16]>::try_from(bytes)
        .ok()
        .map(|v6| IpAddr::V6(Ipv6Addr::from(v6)))
}

/// The following address; the last of the family is followed by the first.
pub fn next(addr: &IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from(u32::from(*v4).wrapping_add(1))),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(*v6).wrapping_add(1))),
    }
}

/// The preceding address; the first of the family is preceded by the last.
pub fn previous(addr: &IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from(u32::from(*v4).wrapping_sub(1))),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(*v6).wrapping_sub(1))),
    }
}

fn number(addr: &IpAddr) -> u128 {
    match addr {
        IpAddr::V4(v4) => u128::from(u32::from(*v4)),
        IpAddr::V6(v6) => u128::from(*v6),
    }
}

fn address(value: u128, v4: bool) -> IpAddr {
    if v4 {
        IpAddr::V4(Ipv4Addr::from(value as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_last_addresses() {
        for (text, network, last) in [
            ("10.1.2.3/24", "10.1.2.0/24", "10.1.2.255"),
            ("10.1.2.3/0", "0.0.0.0/0", "255.255.255.255"),
            ("10.1.2.3/32", "10.1.2.3/32", "10.1.2.3"),
            ("fd00::5:1/112", "fd00::5:0/112", "fd00::5:ffff"),
            ("fd00::1/0", "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let cidr = Cidr::parse(text).unwrap();
            assert_eq!(cidr.network().to_string(), network);
            assert_eq!(cidr.last().to_string(), last);
            assert!(cidr.contains(&cidr.addr));
        }
    }

    #[test]
    fn masks_follow_the_prefix() {
        assert_eq!(Cidr::parse("10.0.0.0/20").unwrap().mask(), [255, 255, 240, 0]);
        assert_eq!(Cidr::parse("fd00::/9").unwrap().mask()[..2], [255, 128]);
    }

    #[test]
    fn broken_text_is_refused() {
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1/33",
            "10.0.0.1/",
            "10.0.0.1/+4",
            "fd00::/129",
            "a/24",
            "10.0.0/24",
        ] {
            assert_eq!(Cidr::parse(text), Err(ParseCidr(text.to_owned())));
        }
    }

    #[test]
    fn families_do_not_mix() {
        assert!(!Cidr::parse("::/0").unwrap().contains(&"10.0.0.1".parse().unwrap()));
        assert!(
            Cidr::parse("10.0.0.0/8")
                .unwrap()
                .overlaps(&Cidr::parse("10.9.0.0/16").unwrap())
        );
        assert!(
            !Cidr::parse("10.0.0.0/16")
                .unwrap()
                .overlaps(&Cidr::parse("10.9.0.0/16").unwrap())
        );
    }
}
