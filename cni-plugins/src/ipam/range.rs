//! Ranges of addresses and their canonical form (contract §3.1). Pure.

use std::fmt;
use std::net::IpAddr;

use crate::protocol::json::{DecodeError, Fields, parse_ip};
use netlink::cidr::{self, Cidr};

/// A range as configured: a subnet and, optionally, its bounds and gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSpec {
    /// The subnet; a range without one is refused when it is made canonical.
    pub subnet: Option<Cidr>,
    /// First address.
    pub start: Option<IpAddr>,
    /// Last address.
    pub end: Option<IpAddr>,
    /// Gateway, never handed out.
    pub gateway: Option<IpAddr>,
}

impl RangeSpec {
    /// Reads `{subnet, rangeStart, rangeEnd, gateway}`.
    pub fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            subnet: fields.parsed("subnet", Cidr::parse)?,
            start: fields.parsed("rangeStart", parse_ip)?,
            end: fields.parsed("rangeEnd", parse_ip)?,
            gateway: fields.parsed("gateway", parse_ip)?,
        })
    }
}

/// A usable range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The subnet, without host bits.
    pub subnet: Cidr,
    /// First address.
    pub start: IpAddr,
    /// Last address.
    pub end: IpAddr,
    /// Gateway, never handed out.
    pub gateway: IpAddr,
}

/// Why ranges cannot be used; upstream's sentences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RangeError {
    #[error("IP <nil> not v4 nor v6")]
    NoSubnet,
    #[error("Network {0} too small to allocate from")]
    TooSmall(Cidr),
    #[error("Network has host bits set. For a subnet mask of length {} the network address is {}", .0.prefix, .0.addr)]
    HostBits(Cidr),
    #[error("RangeStart {0} not in network {1}")]
    Start(IpAddr, Cidr),
    #[error("RangeEnd {0} not in network {1}")]
    End(IpAddr, Cidr),
    #[error("empty range set")]
    Empty,
    #[error("mixed address families")]
    Mixed,
    #[error("subnets {0} and {1} overlap")]
    Overlap(String, String),
}

impl Range {
    /// Checks a configured range and fills in what it leaves open.
    pub fn canonical(spec: &RangeSpec) -> Result<Self, RangeError> {
        let subnet = spec.subnet.ok_or(RangeError::NoSubnet)?;
        if subnet.prefix > cidr::bits(&subnet.addr) - 2 {
            return Err(RangeError::TooSmall(subnet));
        }
        let network = subnet.network();
        if network != subnet {
            return Err(RangeError::HostBits(network));
        }
        let first = cidr::next(&subnet.addr);
        let last = if subnet.is_v4() {
            cidr::previous(&subnet.last())
        } else {
            subnet.last()
        };
        let below_end = |start: &IpAddr| spec.end.is_none_or(|end| *start <= end);
        if let Some(start) = spec.start.filter(|start| !subnet.contains(start) || !below_end(start)) {
            return Err(RangeError::Start(start, subnet));
        }
        let start = spec.start.unwrap_or(first);
        if let Some(end) = spec.end.filter(|end| !subnet.contains(end) || *end < start) {
            return Err(RangeError::End(end, subnet));
        }
        Ok(Self {
            subnet,
            start,
            end: spec.end.unwrap_or(last),
            gateway: spec.gateway.unwrap_or(first),
        })
    }

    /// Whether an address may come from this range.
    pub fn contains(&self, addr: &IpAddr) -> bool {
        self.subnet.contains(addr) && self.start <= *addr && *addr <= self.end
    }

    /// Whether two ranges share addresses.
    pub fn overlaps(&self, other: &Self) -> bool {
        let touches = |one: &Self, two: &Self| one.contains(&two.start) || one.contains(&two.end);
        self.subnet.is_v4() == other.subnet.is_v4() && (touches(self, other) || touches(other, self))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.start, self.end)
    }
}

/// Ranges of one family, of which a container gets one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

impl RangeSet {
    /// Checks and completes a configured set.
    pub fn canonical(specs: &[RangeSpec]) -> Result<Self, RangeError> {
        let mut ranges: Vec<Range> = Vec::with_capacity(specs.len());
        for spec in specs {
            let range = Range::canonical(spec)?;
            if ranges
                .first()
                .is_some_and(|first| first.subnet.is_v4() != range.subnet.is_v4())
            {
                return Err(RangeError::Mixed);
            }
            ranges.push(range);
        }
        for (position, range) in ranges.iter().enumerate() {
            if let Some(other) = ranges[position + 1..].iter().find(|other| range.overlaps(other)) {
                return Err(RangeError::Overlap(range.to_string(), other.to_string()));
            }
        }
        if ranges.is_empty() {
            Err(RangeError::Empty)
        } else {
            Ok(Self(ranges))
        }
    }

    /// The ranges, at least one.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// Whether the set is of IPv4.
    pub fn is_v4(&self) -> bool {
        self.0.first().is_some_and(|range| range.subnet.is_v4())
    }

    /// The range an address may come from.
    pub fn range_of(&self, addr: &IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(addr))
    }

    /// Whether two sets share addresses.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|one| other.0.iter().any(|two| one.overlaps(two)))
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, range) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(formatter, "{comma}{range}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(subnet: &str, start: &str, end: &str, gateway: &str) -> RangeSpec {
        let ip = |text: &str| text.parse().ok();
        RangeSpec {
            subnet: Cidr::parse(subnet).ok(),
            start: ip(start),
            end: ip(end),
            gateway: ip(gateway),
        }
    }

    #[test]
    fn canonical_forms() {
        for (subnet, start, end, expected, gateway) in [
            ("192.0.2.0/24", "", "", "192.0.2.1-192.0.2.254", "192.0.2.1"),
            (
                "2001:db8:1::/64",
                "",
                "",
                "2001:db8:1::1-2001:db8:1:0:ffff:ffff:ffff:ffff",
                "2001:db8:1::1",
            ),
            ("192.0.2.0/24", "192.0.2.40", "", "192.0.2.40-192.0.2.254", "192.0.2.1"),
            ("192.0.2.0/24", "", "192.0.2.50", "192.0.2.1-192.0.2.50", "192.0.2.1"),
            ("192.0.2.0/30", "", "", "192.0.2.1-192.0.2.2", "192.0.2.1"),
        ] {
            let range = Range::canonical(&spec(subnet, start, end, "")).unwrap();
            assert_eq!(
                (range.to_string(), range.gateway.to_string()),
                (expected.to_owned(), gateway.to_owned())
            );
        }
    }

    #[test]
    fn refusals_in_upstreams_words() {
        for (subnet, start, end, text) in [
            ("", "", "", "IP <nil> not v4 nor v6"),
            (
                "192.0.2.0/31",
                "",
                "",
                "Network 192.0.2.0/31 too small to allocate from",
            ),
            (
                "2001:db8::/127",
                "",
                "",
                "Network 2001:db8::/127 too small to allocate from",
            ),
            (
                "192.0.2.12/24",
                "",
                "",
                "Network has host bits set. For a subnet mask of length 24 the network address is 192.0.2.0",
            ),
            (
                "192.0.2.0/24",
                "192.0.3.0",
                "",
                "RangeStart 192.0.3.0 not in network 192.0.2.0/24",
            ),
            (
                "192.0.2.0/24",
                "",
                "192.0.4.0",
                "RangeEnd 192.0.4.0 not in network 192.0.2.0/24",
            ),
            (
                "192.0.2.0/24",
                "192.0.2.50",
                "192.0.2.40",
                "RangeStart 192.0.2.50 not in network 192.0.2.0/24",
            ),
        ] {
            assert_eq!(
                Range::canonical(&spec(subnet, start, end, "")).unwrap_err().to_string(),
                text
            );
        }
    }

    #[test]
    fn sets() {
        let four = spec("10.0.0.0/24", "", "", "");
        assert_eq!(RangeSet::canonical(&[]), Err(RangeError::Empty));
        assert_eq!(
            RangeSet::canonical(&[four.clone(), spec("fd00::/64", "", "", "")]),
            Err(RangeError::Mixed)
        );
        let error = RangeSet::canonical(&[four.clone(), spec("10.0.0.0/16", "", "", "")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "subnets 10.0.0.1-10.0.0.254 and 10.0.0.1-10.0.255.254 overlap"
        );
        let set = RangeSet::canonical(&[four, spec("10.0.1.0/24", "", "", "")]).unwrap();
        assert_eq!(set.to_string(), "10.0.0.1-10.0.0.254,10.0.1.1-10.0.1.254");
    }
}
