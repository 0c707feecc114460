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

/// One range, or one of each family: what a flag with a comma says. The first is the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cidrs {
    primary: Cidr,
    secondary: Option<Cidr>,
}

impl Cidrs {
    /// The ranges, the primary first.
    pub fn iter(&self) -> impl Iterator<Item = &Cidr> {
        std::iter::once(&self.primary).chain(&self.secondary)
    }

    /// The network address of the primary range.
    pub fn network(&self) -> IpAddr {
        self.primary.network()
    }

    /// The `index`th address of the primary range.
    pub fn nth(&self, index: u128) -> Option<IpAddr> {
        self.primary.nth(index)
    }

    /// Whether any two of the ranges share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.iter().any(|one| other.iter().any(|other| one.overlaps(other)))
    }
}

impl From<Cidr> for Cidrs {
    fn from(primary: Cidr) -> Self {
        Self {
            primary,
            secondary: None,
        }
    }
}

impl std::str::FromStr for Cidrs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all: Vec<Cidr> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        match all.as_slice() {
            [only] => Ok(Self::from(*only)),
            [primary, secondary] if primary.is_ipv4() != secondary.is_ipv4() => Ok(Self {
                primary: *primary,
                secondary: Some(*secondary),
            }),
            [_, _] => Err("two ranges must be one of IPv4 and one of IPv6".to_owned()),
            _ => Err("must not contain more than two entries".to_owned()),
        }
    }
}

impl std::fmt::Display for Cidrs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.primary)?;
        self.secondary.map_or(Ok(()), |secondary| write!(f, ",{secondary}"))
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

    #[test]
    fn two_ranges_are_of_two_families() {
        let both: Cidrs = "10.96.0.0/16,fd00:1::7/112".parse().unwrap();
        assert_eq!(both.to_string(), "10.96.0.0/16,fd00:1::/112");
        assert_eq!(both.nth(1), Some("10.96.0.1".parse().unwrap()));
        let within: Cidrs = "fd00:1::/120".parse().unwrap();
        assert!(both.overlaps(&within) && within.overlaps(&both));
        for wrong in [
            "10.0.0.0/16,10.1.0.0/16",
            "10.0.0.0/16,fd00::/64,fd01::/64",
            "10.0.0.0/16,",
            "",
        ] {
            assert!(wrong.parse::<Cidrs>().is_err(), "{wrong}");
        }
    }
}
