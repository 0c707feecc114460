//! Ranges of addresses and of ports: disjoint, sorted, with no gap that is none. Pure.

use client::ordered::Arrange;
use std::net::IpAddr;

use netlink::cidr::{Cidr, bits, octets};

use crate::spec::{Port, PortChoice};

/// First and last address as numbers, of IPv4 or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// Whether they are IPv4 addresses.
    pub v4: bool,
    /// The first.
    pub first: u128,
    /// The last, included.
    pub last: u128,
}

/// An address as a number.
pub fn number(addr: &IpAddr) -> u128 {
    octets(addr)
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// All addresses of a network.
pub fn of_network(network: Cidr) -> Range {
    debug_assert!(network.prefix <= bits(&network.addr));
    Range {
        v4: network.is_v4(),
        first: number(&network.network().addr),
        last: number(&network.last()),
    }
}

/// A set of addresses, as few ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ranges(Vec<Range>);

impl FromIterator<Range> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut all: Vec<Range> = ranges.into_iter().collect();
        all.arrange();
        let mut merged: Vec<Range> = Vec::new();
        for range in all {
            match merged.last_mut() {
                Some(last) if last.v4 == range.v4 && range.first <= last.last.saturating_add(1) => {
                    last.last = last.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

impl Ranges {
    /// The ranges of one family.
    pub fn of_family(&self, v4: bool) -> impl Iterator<Item = &Range> {
        self.0.iter().filter(move |range| range.v4 == v4)
    }

    /// Whether an address is in it.
    pub fn contains(&self, addr: &IpAddr) -> bool {
        let (v4, wanted) = (addr.is_ipv4(), number(addr));
        // They are sorted: only the last one that does not begin behind it can hold it.
        let behind = self.0.partition_point(|range| (range.v4, range.first) <= (v4, wanted));
        let last = behind.checked_sub(1).map(|at| &self.0[at]);
        last.is_some_and(|range| range.v4 == v4 && wanted <= range.last)
    }

    /// Its ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.0.iter().copied()
    }

    /// What of a range is in none of the holes.
    pub fn around(whole: Range, holes: &Self) -> Self {
        let mut left = Vec::new();
        let mut next = Some(whole.first);
        for hole in holes.of_family(whole.v4).filter(|hole| hole.last >= whole.first) {
            let Some(first) = next.filter(|first| *first <= whole.last && hole.first <= whole.last) else {
                break;
            };
            if first < hole.first {
                left.push(Range {
                    first,
                    last: hole.first - 1,
                    ..whole
                });
            }
            next = hole.last.checked_add(1);
        }
        left.extend(
            next.filter(|first| *first <= whole.last)
                .map(|first| Range { first, ..whole }),
        );
        Self(left)
    }
}

/// Ports of a protocol: protocol number, first and last port.
pub type PortRange = (u8, u16, u16);

/// Numeric ports, merged, and names with their protocols.
pub type SplitPorts = (Vec<PortRange>, Vec<(u8, String)>);

/// The numeric ports among these, and the names.
pub fn split_ports(ports: &[Port]) -> SplitPorts {
    let mut numbers = Vec::new();
    let mut names = Vec::new();
    for port in ports {
        match &port.choice {
            PortChoice::Range(first, last) => numbers.push((port.protocol, *first, *last)),
            PortChoice::Named(name) => names.push((port.protocol, name.clone())),
        }
    }
    (merge_ports(numbers), names)
}

/// Sorted and disjoint.
pub fn merge_ports(mut ports: Vec<PortRange>) -> Vec<PortRange> {
    ports.arrange();
    let mut merged: Vec<PortRange> = Vec::new();
    for (protocol, first, last) in ports {
        match merged.last_mut() {
            Some((same, _, end)) if *same == protocol && first <= end.saturating_add(1) => *end = last.max(*end),
            _ => merged.push((protocol, first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        of_network(Cidr::parse(text).unwrap())
    }

    fn shown(ranges: &Ranges) -> Vec<(u128, u128)> {
        ranges.0.iter().map(|range| (range.first, range.last)).collect()
    }

    #[test]
    fn holes_and_unions() {
        let whole = range("0.0.0.16/28");
        for (holes, left) in [
            (&[][..], &[(16, 31)][..]),
            (&["0.0.0.20/30"], &[(16, 19), (24, 31)]),
            (&["0.0.0.16/29"], &[(24, 31)]),
            (&["0.0.0.24/29"], &[(16, 23)]),
            (&["0.0.0.0/0"], &[]),
            (&["::/0"], &[(16, 31)]),
            (&["0.0.0.0/29", "0.0.0.32/30"], &[(16, 31)]),
            (
                &["0.0.0.28/31", "0.0.0.17/32", "0.0.0.20/31", "0.0.0.20/32"],
                &[(16, 16), (18, 19), (22, 27), (30, 31)],
            ),
        ] {
            let ranges = holes.iter().map(|hole| range(hole)).collect();
            assert_eq!(shown(&Ranges::around(whole, &ranges)), left, "{holes:?}");
        }
        let last = Ranges::around(range("::/0"), &Ranges::from_iter([range("8000::/1")]));
        assert_eq!(shown(&last), [(0, u128::MAX >> 1)]);
        let joined = Ranges::from_iter([range("0.0.0.32/31"), whole]);
        assert_eq!(shown(&joined), [(16, 33)]);
        let all = Ranges::from_iter([range("::/0"), range("0.0.0.0/0")]);
        assert_eq!(shown(&all), [(0, u128::MAX), (0, u128::from(u32::MAX))]);
        assert!(all.contains(&"255.255.255.255".parse().unwrap()) && all.contains(&"::".parse().unwrap()));
        assert!(!joined.contains(&"::10".parse().unwrap()));
    }

    #[test]
    fn ports_are_merged_within_a_protocol() {
        let merged = merge_ports(vec![
            (17, 5, 5),
            (6, 80, 90),
            (6, 91, 91),
            (6, 85, 87),
            (6, 93, 93),
            (6, 0, 65535),
        ]);
        assert_eq!(merged, [(6, 0, 65535), (17, 5, 5)]);
        let merged = merge_ports(vec![(6, 80, 90), (6, 91, 91), (6, 93, 93)]);
        assert_eq!(merged, [(6, 80, 91), (6, 93, 93)]);
    }
}
