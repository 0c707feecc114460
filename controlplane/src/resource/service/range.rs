//! Ranges of Service addresses: what lies in them, and which of it is given to whom did not ask for one. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::AllocateError;

/// A range of Service addresses: a CIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    base: IpAddr,
    prefix: u8,
}

impl FromStr for Range {
    type Err = AllocateError;

    fn from_str(text: &str) -> Result<Self, AllocateError> {
        let bad = || AllocateError::NotCidr(text.to_owned());
        if !crate::resource::node::is_cidr(text) {
            return Err(bad());
        }
        let (base, prefix) = text.split_once('/').ok_or_else(bad)?;
        let (base, prefix) = (base.parse().map_err(|_| bad())?, prefix.parse().map_err(|_| bad())?);
        Ok(Self { base, prefix })
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip(self.network()), self.prefix)
    }
}

/// An address as a number of its family.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// The family of an address, in the API's words.
pub fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}

impl Range {
    /// Its family, in the API's words.
    pub fn family(self) -> &'static str {
        family(self.base)
    }

    fn host_bits(self) -> u8 {
        (if self.base.is_ipv4() { 32u8 } else { 128 }).saturating_sub(self.prefix)
    }

    fn network(self) -> u128 {
        let mask = u128::MAX.checked_shl(u32::from(self.host_bits())).unwrap_or(0);
        bits(self.base) & mask
    }

    /// How many addresses beside the first are counted: 2^64 at most, as upstream.
    fn size(self) -> u128 {
        1 << self.host_bits().min(64)
    }

    fn ip(self, bits: u128) -> IpAddr {
        match self.base {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(bits).unwrap_or(u32::MAX))),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(bits)),
        }
    }

    /// The usable address at `offset` (1 is the first, which the `kubernetes` Service has).
    pub fn nth(self, offset: u128) -> Option<IpAddr> {
        (offset > 0 && offset < self.size()).then(|| self.ip(self.network() + offset))
    }

    /// Whether the address lies in the range, usable or not.
    pub fn spans(self, ip: IpAddr) -> bool {
        let inside = self.host_bits() >= 128 || (bits(ip) ^ self.network()) >> self.host_bits() == 0;
        ip.is_ipv4() == self.base.is_ipv4() && inside
    }

    /// Whether all of the other range lies in this one.
    pub fn covers(self, other: Self) -> bool {
        self.host_bits() >= other.host_bits() && self.spans(other.ip(other.network()))
    }

    /// Offsets of the usable addresses: neither the network's nor (IPv4) the broadcast address.
    fn usable(self) -> std::ops::Range<u128> {
        let size = self.size();
        1..size - u128::from(self.base.is_ipv4() && size > 2)
    }

    /// How many addresses may be given out.
    pub fn usable_count(self) -> u128 {
        let usable = self.usable();
        usable.end.saturating_sub(usable.start)
    }

    /// Whether the address may be given out: in the range, and neither its network nor (for IPv4) its broadcast address.
    pub fn contains(self, ip: IpAddr) -> bool {
        let offset = bits(ip).checked_sub(self.network());
        self.spans(ip) && offset.is_some_and(|offset| self.usable().contains(&offset))
    }

    /// The addresses at the beginning that are left to those who choose their own, as long as there are others (contract §12: a
    /// sixteenth, 16 to 256; none of 16 and fewer).
    fn band(self) -> u128 {
        match self.size() {
            0..=16 => 0,
            size => (size / 16).clamp(16, 256),
        }
    }

    /// A free address, looked for from `start` (any number; a random one spreads them) behind the band first. It takes as many steps as
    /// there are taken addresses, at most.
    pub(super) fn free(self, is_taken: &dyn Fn(IpAddr) -> bool, start: u64) -> Option<IpAddr> {
        let usable = self.usable();
        let border = self.band().max(usable.start);
        [border..usable.end, usable.start..border].into_iter().find_map(|part| {
            let length = part.end.checked_sub(part.start).filter(|length| *length > 0)?;
            let shift = u128::from(start) % length;
            let candidates = (0..length).map(|i| self.ip(self.network() + part.start + (i + shift) % length));
            let mut candidates = candidates;
            candidates.find(|ip| !is_taken(*ip))
        })
    }
}

/// The ranges of `--service-cluster-ip-range`: one, or one of each family, the primary first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

impl FromStr for Ranges {
    type Err = AllocateError;

    fn from_str(text: &str) -> Result<Self, AllocateError> {
        let ranges: Vec<Range> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        match ranges.as_slice() {
            [_] => Ok(Self(ranges)),
            [one, other] if one.family() != other.family() => Ok(Self(ranges)),
            _ => Err(AllocateError::NotCidr(text.to_owned())),
        }
    }
}

impl Ranges {
    /// The ranges, the primary first.
    pub fn all(&self) -> &[Range] {
        &self.0
    }

    /// The families Services may have, the default first.
    pub fn families(&self) -> Vec<&'static str> {
        self.0.iter().map(|range| range.family()).collect()
    }

    /// The address at an offset of the primary range.
    pub fn nth(&self, offset: u128) -> Option<IpAddr> {
        self.0.first().and_then(|range| range.nth(offset))
    }
}
