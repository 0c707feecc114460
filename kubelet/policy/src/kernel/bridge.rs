//! Packets between pods of one bridge, where the kernel does not show bridged packets to the tables of routed ones.
//!
//! With br_netfilter switched on for a family they pass our forward chain as they are, and nothing is done here. Else each
//! frame from one pod to another gets the bridge's own address as its destination, so that it is routed through this
//! machine, and comes out of the same bridge. (A table of the bridge family could not judge them itself: it knows no
//! connections without nf_conntrack_bridge, and it does not see translated addresses.)

use netlink::address::Address;
use netlink::cidr::Cidr;
use netlink::nft::expression::{Header, Verdict};
use netlink::nft::judge::Judge;
use netlink::nft::step::{Step, Word};
use netlink::nft::{BaseChain, Batch, Chain, Family};
use netlink::{Error, Socket, sysctl};

use super::encode::{FIRST, ICMPV6, NEIGHBOURS, TABLE, add_neighbours, equals, masked, step};

pub(super) const PREROUTING: Chain<'_> = Chain {
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
const IPV6_HEADER_BYTES: u32 = 40;
/// For whom the link layer took a frame: this machine, another one (`linux/if_packet.h`).
const PACKET_HOST: [u8; 1] = [0];
const PACKET_OTHERHOST: [u8; 1] = [3];

/// A bridge pods are on: their range, and the bridge's own hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detour {
    /// Addresses behind the bridge.
    pub(super) network: Cidr,
    /// The bridge's.
    pub(super) mac: [u8; 6],
}

/// The bridges that carry an address in one of the ranges, as far as bridged packets of its family are not shown anyway.
pub(super) fn detours(links: &mut Socket, ranges: &[Cidr]) -> Result<Vec<Detour>, Error> {
    let is_shown = |network: &Cidr| {
        let switch = if network.is_v4() {
            "bridge/bridge-nf-call-iptables"
        } else {
            "bridge/bridge-nf-call-ip6tables"
        };
        sysctl::get(switch).is_some_and(|value| value == "1")
    };
    let hidden: Vec<Cidr> = ranges.iter().copied().filter(|range| !is_shown(range)).collect();
    let mut found = Vec::new();
    if hidden.is_empty() {
        return Ok(found);
    }
    for bridge in links.links()?.into_iter().filter(|link| link.kind == "bridge") {
        let addresses = links.addresses(bridge.index, None)?;
        found.extend(
            bridge
                .mac
                .into_iter()
                .flat_map(|mac| of_bridge(mac, &addresses, &hidden)),
        );
    }
    Ok(found)
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

/// Replaces the table by one for these bridges; for none, by nothing.
pub(super) fn replace(detours: &[Detour]) -> Batch {
    let mut batch = Batch::new();
    batch.add_table(Family::Bridge, TABLE, None);
    batch.delete_table(Family::Bridge, TABLE);
    if detours.is_empty() {
        return batch;
    }
    batch.add_table(Family::Bridge, TABLE, None);
    let neighbours = Chain {
        name: NEIGHBOURS,
        ..PREROUTING
    };
    batch.add_chain(neighbours, None, None);
    add_neighbours(&mut batch, neighbours, Header::Network, IPV6_HEADER_BYTES);
    batch.add_chain(PREROUTING, Some(BASE), None);
    batch.add_judgement(PREROUTING, &discovery());
    for detour in detours {
        batch.add_judgement(PREROUTING, &rule(detour));
    }
    batch
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
    let v4 = detour.network.is_v4();
    let (offset, length) = if v4 { (16, 4) } else { (24, 16) };
    let mut rule = ether_type(v4).to_vec();
    // Not to all or several.
    rule.extend([Judge::Addressee(FIRST), equals(&PACKET_OTHERHOST)]);
    rule.push(step(Step::Payload(Header::Network, offset, length, FIRST)));
    rule.extend(masked(detour.network));
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
}
