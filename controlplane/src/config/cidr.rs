//! Address ranges in CIDR form. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address range: a network address and a prefix length. Host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// `0.0.0.0/0`.
    pub const V4_ANY: Self = Self {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        prefix: 0,
    };

    /// Number of host bits.
    pub fn host_bits(&self) -> u8 {
        (if self.is_ipv4() { 32 } else { 128 }) - self.prefix
    }

    /// Whether the range is of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The network address.
    pub fn network(&self) -> IpAddr {
        self.address
    }

    /// The prefix length.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The `index`th address, counted from the network address; `None` outside the range.
    pub fn nth(&self, index: u128) -> Option<IpAddr> {
        if self.host_bits() < 128 && index >> self.host_bits() != 0 {
            return None;
        }
        Some(match self.address {
            IpAddr::V4(base) => IpAddr::V4(Ipv4Addr::from(u32::from(base) + u32::try_from(index).ok()?)),
            IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from(u128::from(base) + index)),
        })
    }

    /// Whether `address` lies in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.is_ipv4() && masked(address, self.prefix) == self.address
    }

    /// Whether the two ranges share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(',') {
            return Err("two ranges (dual stack) are not supported yet".to_owned());
        }
        let (address, prefix) = text
            .split_once('/')
            .ok_or_else(|| "must be ADDRESS/PREFIX, such as 10.96.0.0/16".to_owned())?;
        let address: IpAddr = address.parse().map_err(|error| format!("{error}"))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix
            .parse()
            .ok()
            .filter(|prefix| *prefix <= width)
            .ok_or_else(|| format!("the prefix length must be a number up to {width}"))?;
        Ok(Self {
            address: masked(address, prefix),
            prefix,
        })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_dropped_and_addresses_counted() {
        let cidr: Cidr = "10.96.3.4/16".parse().unwrap();
        assert_eq!(cidr.to_string(), "10.96.0.0/16");
        assert_eq!(cidr.nth(1), Some("10.96.0.1".parse().unwrap()));
        assert_eq!(cidr.nth(65535), Some("10.96.255.255".parse().unwrap()));
        assert_eq!(cidr.nth(65536), None);
    }

    #[test]
    fn containment_respects_family_and_prefix() {
        let cidr: Cidr = "fd00::/64".parse().unwrap();
        assert!(cidr.contains("fd00::1".parse().unwrap()));
        assert!(!cidr.contains("fd01::1".parse().unwrap()));
        assert!(!cidr.contains("10.0.0.1".parse().unwrap()));
        let all: Cidr = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("8.8.8.8".parse().unwrap()));
        assert!(all.overlaps(&"10.0.0.0/8".parse().unwrap()));
    }
}
