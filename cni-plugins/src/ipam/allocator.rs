//! The order in which addresses are tried (contract §3.2): round robin from the last one handed out. Pure.

use std::net::IpAddr;

use super::range::RangeSet;
use netlink::cidr::{self, Cidr};

/// An address that may be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address with its subnet's prefix.
    pub address: Cidr,
    /// The subnet's gateway.
    pub gateway: IpAddr,
}

/// Walks every address of a set once, gateways excepted, beginning behind `last`, which comes last itself.
#[derive(Clone, Debug)]
pub struct Candidates<'a> {
    set: &'a RangeSet,
    /// Position of the address to try next; `None` when all were tried.
    next: Option<(usize, IpAddr)>,
    /// Where the walk ends: the position tried first.
    first: (usize, IpAddr),
    started: bool,
}

impl<'a> Candidates<'a> {
    /// Starts behind `last`, or at the first range when there is none or it belongs to no range.
    pub fn new(set: &'a RangeSet, last: Option<IpAddr>) -> Self {
        let ranges = set.ranges();
        let found = last.and_then(|last| {
            ranges
                .iter()
                .position(|range| range.contains(&last))
                .map(|index| (index, last))
        });
        let first = match found {
            Some((index, last)) => Self::following(set, index, last),
            None => (0, ranges[0].start),
        };
        Self {
            set,
            next: Some(first),
            first,
            started: false,
        }
    }

    fn following(set: &RangeSet, index: usize, addr: IpAddr) -> (usize, IpAddr) {
        let ranges = set.ranges();
        if addr != ranges[index].end {
            return (index, cidr::next(&addr));
        }
        let index = (index + 1) % ranges.len();
        (index, ranges[index].start)
    }
}

impl Iterator for Candidates<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        loop {
            let (index, addr) = self.next?;
            if self.started && (index, addr) == self.first {
                self.next = None;
                return None;
            }
            self.started = true;
            self.next = Some(Self::following(self.set, index, addr));
            let range = &self.set.ranges()[index];
            if addr != range.gateway {
                let address = Cidr {
                    addr,
                    prefix: range.subnet.prefix,
                };
                return Some(Candidate {
                    address,
                    gateway: range.gateway,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::ipam::range::RangeSpec;

    fn set(ranges: &[(&str, &str, &str)]) -> RangeSet {
        let ip = |text: &str| text.parse().ok();
        let specs: Vec<RangeSpec> = ranges
            .iter()
            .map(|(subnet, start, end)| RangeSpec {
                subnet: Cidr::parse(subnet).ok(),
                start: ip(start),
                end: ip(end),
                gateway: None,
            })
            .collect();
        RangeSet::canonical(&specs).unwrap()
    }

    fn walk(set: &RangeSet, last: &str) -> Vec<String> {
        Candidates::new(set, last.parse().ok())
            .map(|candidate| candidate.address.addr.to_string())
            .collect()
    }

    #[test]
    fn round_robin() {
        let small = set(&[("10.0.0.0/29", "", "")]);
        assert_eq!(
            walk(&small, ""),
            ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
        );
        assert_eq!(
            walk(&small, "10.0.0.3"),
            ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.3"]
        );
        assert_eq!(
            walk(&small, "10.0.0.6"),
            ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
        );
        assert_eq!(walk(&small, "10.9.0.6")[0], "10.0.0.2");
        let two = set(&[("10.0.0.0/30", "", ""), ("10.0.1.0/30", "", "")]);
        assert_eq!(walk(&two, ""), ["10.0.0.2", "10.0.1.2"]);
        assert_eq!(walk(&two, "10.0.0.2"), ["10.0.1.2", "10.0.0.2"]);
        assert_eq!(walk(&two, "10.0.1.2"), ["10.0.0.2", "10.0.1.2"]);
        let single = set(&[("10.0.0.0/24", "10.0.0.9", "10.0.0.9")]);
        assert_eq!(walk(&single, ""), ["10.0.0.9"]);
        assert_eq!(walk(&single, "10.0.0.9"), ["10.0.0.9"]);
    }

    #[test]
    fn the_end_of_the_family_does_not_overflow() {
        let top = set(&[("255.255.255.252/30", "", "")]);
        assert_eq!(walk(&top, ""), ["255.255.255.254"]);
        let top = set(&[(
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe",
            "",
        )]);
        assert_eq!(walk(&top, "").len(), 2);
    }

    proptest! {
        #[test]
        fn every_usable_address_comes_exactly_once(
            prefix in 24u8..=30, second in proptest::option::of(26u8..=30), last in proptest::option::of(0u32..700),
        ) {
            let mut ranges = vec![(format!("10.0.0.0/{prefix}"), "", "")];
            ranges.extend(second.map(|prefix| (format!("10.0.1.0/{prefix}"), "", "")));
            let borrowed: Vec<_> = ranges.iter().map(|(subnet, start, end)| (subnet.as_str(), *start, *end)).collect();
            let set = set(&borrowed);
            let last = last.map(|offset| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + offset)));
            let walked: Vec<IpAddr> = Candidates::new(&set, last).map(|candidate| candidate.address.addr).collect();
            let expected: BTreeSet<IpAddr> = (0..768u32)
                .map(|offset| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + offset)))
                .filter(|addr| set.range_of(addr).is_some_and(|range| range.gateway != *addr))
                .collect();
            prop_assert_eq!(walked.len(), expected.len());
            prop_assert_eq!(walked.iter().copied().collect::<BTreeSet<_>>(), expected);
            if let Some(last) = last.filter(|last| walked.contains(last)) {
                prop_assert_eq!(walked.last(), Some(&last));
            }
        }
    }
}
