//! Packets between pods of one bridge, where the kernel does not show bridged packets to the tables of routed ones.
//!
//! With br_netfilter switched on for a family they pass our forward chain as they are, and nothing is done here. Else each
//! frame from one pod to another gets the bridge's own address as its destination, so that it is routed through this
//! machine, and comes out of the same bridge. What cannot be routed (link-local addresses, frames to all or several with a
//! packet to one pod) is dropped on its way from port to port. (A table of the bridge family could not judge them itself: it
//! knows no connections without nf_conntrack_bridge, and it does not see translated addresses.)

use netlink::address::Address;
use netlink::cidr::Cidr;
use netlink::nft::expression::{Comparison, Header, Verdict};
use netlink::nft::judge::Judge;
use netlink::nft::step::{Step, Word};
use netlink::nft::{BaseChain, Batch, Chain, Family};
use netlink::{Error, Socket, sysctl};

use super::encode::{
    FIRST, ICMPV6, NEIGHBOUR_TYPES, NEIGHBOURS, TABLE, add_neighbours, equals, link_local, masked, step,
};

const PREROUTING: Chain<'_> = Chain {
    family: Family::Bridge,
    table: TABLE,
    name: "prerouting",
};
/// Before br_netfilter and all others that look at where a frame goes.
const BASE: BaseChain<'_> = BaseChain {
    kind: "filter",
    hook: 0,
    priority: -300,
};
const FORWARD: Chain<'_> = Chain {
    name: "forward",
    ..PREROUTING
};
const FORWARD_BASE: BaseChain<'_> = BaseChain {
    kind: "filter",
    hook: 2,
    priority: 0,
};
const IPV6_HEADER_BYTES: u32 = 40;
/// For whom the link layer took a frame: this machine, another one (`linux/if_packet.h`).
pub(super) const PACKET_HOST: [u8; 1] = [0];
const PACKET_OTHERHOST: [u8; 1] = [3];

/// A bridge pods are on: their range, and the bridge's own hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detour {
    /// Addresses behind the bridge.
    pub(super) network: Cidr,
    /// The bridge's.
    pub(super) mac: [u8; 6],
}

/// What of the traffic between pods of one bridge our forward chain is not shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hidden {
    /// Ranges whose packets are to be routed.
    pub(super) detours: Vec<Detour>,
    /// There are pods on a bridge, and IPv6 is hidden: their link-local addresses are, too, whatever the ranges.
    pub(super) has_link_local: bool,
}

impl Hidden {
    /// Whether nothing is.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The bridges that carry an address in one of the ranges, as far as bridged packets of its family are not shown anyway.
pub(super) fn hidden(links: &mut Socket, ranges: &[Cidr]) -> Result<Hidden, Error> {
    let is_shown = |v4: bool| {
        let switch = if v4 {
            "bridge/bridge-nf-call-iptables"
        } else {
            "bridge/bridge-nf-call-ip6tables"
        };
        sysctl::get(switch).is_some_and(|value| value == "1")
    };
    let shown = [is_shown(true), is_shown(false)];
    let mut found = Hidden::default();
    if shown == [true, true] {
        return Ok(found);
    }
    for bridge in links.links()?.into_iter().filter(|link| link.kind == "bridge") {
        let addresses = links.addresses(bridge.index, None)?;
        if let Some(mac) = bridge.mac {
            add_bridge(&mut found, &of_bridge(mac, &addresses, ranges), shown);
        }
    }
    Ok(found)
}

/// Adds what of a bridge's ranges is hidden; `shown` tells it of IPv4 and of IPv6. Pure.
fn add_bridge(found: &mut Hidden, of_bridge: &[Detour], shown: [bool; 2]) {
    let is_hidden = |detour: &&Detour| !shown[usize::from(!detour.network.is_v4())];
    found.has_link_local |= !of_bridge.is_empty() && !shown[1];
    found.detours.extend(of_bridge.iter().filter(is_hidden));
}

/// What a bridge with these addresses has to take over of the ranges. Pure.
fn of_bridge(mac: [u8; 6], addresses: &[Address], ranges: &[Cidr]) -> Vec<Detour> {
    let has_address = |range: &&Cidr| addresses.iter().any(|address| range.contains(&address.cidr.addr));
    ranges
        .iter()
        .filter(has_address)
        .map(|range| Detour { network: *range, mac })
        .collect()
}

/// Replaces the table by one for what is hidden; for nothing, by nothing.
pub(super) fn replace(hidden: &Hidden) -> Batch {
    let mut batch = Batch::new();
    batch.add_table(Family::Bridge, TABLE, None);
    batch.delete_table(Family::Bridge, TABLE);
    if hidden.is_empty() {
        return batch;
    }
    batch.add_table(Family::Bridge, TABLE, None);
    let neighbours = Chain {
        name: NEIGHBOURS,
        ..PREROUTING
    };
    batch.add_chain(neighbours, None, None);
    add_neighbours(&mut batch, neighbours, Header::Network, IPV6_HEADER_BYTES);
    for (chain, base, rules) in [
        (PREROUTING, BASE, prerouting_rules(hidden)),
        (FORWARD, FORWARD_BASE, forward_rules(hidden)),
    ] {
        batch.add_chain(chain, Some(base), None);
        for rule in rules {
            batch.add_judgement(chain, &rule);
        }
    }
    batch
}

/// The chains of the table, with how many rules each has.
pub(super) fn counts(hidden: &Hidden) -> [(Chain<'static>, usize); 3] {
    let neighbours = Chain {
        name: NEIGHBOURS,
        ..PREROUTING
    };
    [
        (PREROUTING, prerouting_rules(hidden).len()),
        (FORWARD, forward_rules(hidden).len()),
        (neighbours, NEIGHBOUR_TYPES.len()),
    ]
}

fn prerouting_rules(hidden: &Hidden) -> Vec<Vec<Judge>> {
    std::iter::once(discovery())
        .chain(hidden.detours.iter().map(rule))
        .collect()
}

/// Frames still on their way from port to port after the detours are judged by nobody: those between link-local addresses,
/// those to all or several that carry a packet to one pod, and packets for all or several.
fn forward_rules(hidden: &Hidden) -> Vec<Vec<Judge>> {
    let mut rules = vec![discovery()];
    if hidden.has_link_local {
        rules.extend(link_local().map(|drop| [ether_type(false).to_vec(), drop].concat()));
    }
    rules.extend(hidden.detours.iter().map(|detour| {
        let mut rule = to_network(detour.network);
        rule.push(step(Step::Verdict(Verdict::Drop)));
        rule
    }));
    rules.extend(hidden.detours.iter().map(|detour| {
        let network = detour.network;
        let mut rule = ether_type(network.is_v4()).to_vec();
        rule.extend(for_several(network, &PACKET_OTHERHOST));
        rule
    }));
    rules
}

/// Drops what pods of the network send to all or several. `to_one` is what the link layer says of a packet for one.
pub(super) fn for_several(network: Cidr, to_one: &[u8]) -> Vec<Judge> {
    let (offset, length) = if network.is_v4() { (12, 4) } else { (8, 16) };
    let mut rule = vec![
        Judge::Addressee(FIRST),
        step(Step::Compare(FIRST, Comparison::NotEqual, to_one.to_vec())),
        step(Step::Payload(Header::Network, offset, length, FIRST)),
    ];
    rule.extend(masked(network));
    rule.push(step(Step::Verdict(Verdict::Drop)));
    rule
}

/// The packet is for an address of the network.
fn to_network(network: Cidr) -> Vec<Judge> {
    let (offset, length) = if network.is_v4() { (16, 4) } else { (24, 16) };
    let mut rule = ether_type(network.is_v4()).to_vec();
    rule.push(step(Step::Payload(Header::Network, offset, length, FIRST)));
    rule.extend(masked(network));
    rule
}

fn ether_type(v4: bool) -> [Judge; 2] {
    let number: u16 = if v4 { 0x0800 } else { 0x86dd };
    [
        step(Step::Payload(Header::Link, 12, 2, FIRST)),
        equals(&number.to_be_bytes()),
    ]
}

/// Neighbours' questions and answers must not be routed: their hop limit proves that they were not.
fn discovery() -> Vec<Judge> {
    let mut rule = ether_type(false).to_vec();
    rule.extend([
        step(Step::Payload(Header::Network, 6, 1, FIRST)),
        equals(&[ICMPV6]),
        step(Step::Verdict(Verdict::Jump(NEIGHBOURS.to_owned()))),
    ]);
    rule
}

fn rule(detour: &Detour) -> Vec<Judge> {
    let mut rule = to_network(detour.network);
    // Not to all or several.
    rule.extend([Judge::Addressee(FIRST), equals(&PACKET_OTHERHOST)]);
    let mut mac = detour.mac.to_vec();
    mac.resize(8, 0);
    rule.extend([
        step(Step::Load(Word(0), mac)),
        Judge::SetHardwareDestination(Word(0)),
        step(Step::Load(FIRST, PACKET_HOST.to_vec())),
        Judge::SetAddressee(FIRST),
    ]);
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_takes_over_the_ranges_it_has_an_address_of() {
        let cidr = |text| Cidr::parse(text).unwrap();
        let address = |text| Address {
            index: 1,
            cidr: cidr(text),
            flags: 0,
            scope: 0,
        };
        let ranges = [cidr("10.1.0.0/24"), cidr("fd01::/64")];
        let networks = |addresses: &[Address]| -> Vec<Cidr> {
            let found = of_bridge([2; 6], addresses, &ranges);
            found.iter().map(|detour| detour.network).collect()
        };
        assert_eq!(networks(&[address("10.1.0.1/24"), address("fe80::1/64")]), [ranges[0]]);
        assert_eq!(networks(&[address("10.1.0.1/24"), address("fd01::1/64")]), ranges);
        assert_eq!(networks(&[address("10.2.0.1/24")]), []);
    }

    #[test]
    fn link_local_addresses_are_hidden_wherever_ipv6_is() {
        let cidr = |text| Cidr::parse(text).unwrap();
        let of = |text| Detour {
            network: cidr(text),
            mac: [2; 6],
        };
        for (bridge, shown, detours, has_link_local) in [
            (vec![of("10.1.0.0/24")], [true, false], 0, true),
            (vec![of("10.1.0.0/24")], [false, true], 1, false),
            (vec![of("10.1.0.0/24"), of("fd01::/64")], [false, false], 2, true),
            (vec![], [false, false], 0, false),
        ] {
            let mut found = Hidden::default();
            add_bridge(&mut found, &bridge, shown);
            assert_eq!(
                (found.detours.len(), found.has_link_local),
                (detours, has_link_local),
                "{bridge:?} {shown:?}"
            );
        }
    }
}
