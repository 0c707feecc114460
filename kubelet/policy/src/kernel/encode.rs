//! The table's bytes. Pure.
//!
//! ```text
//! forward (filter, forward, 0)          every packet that is routed from or to a pod
//!   neighbour discovery -> accept            (chain neighbours)
//!   from or to fe80::/10 -> drop
//!   to all or several from this node's range -> drop
//!   no connection -> goto loose         by the packet's own addresses
//!   initiator vmap egress4/egress6      jump c<n>, for pods whose egress is isolated
//!   responder vmap ingress4/ingress6    jump c<n>, for pods whose ingress is isolated
//!   either end in this node's range, in none of known4/known6 -> drop
//! c<n>    one or more rules "in s<n> [and in s<m>] -> return", then goto denied
//! denied  from itself to itself (self4, self6) -> accept; drop
//! ```
//!
//! Both ways of a connection are judged by its ends (the source of the first packet, and that of the replies, which is the
//! address behind a Service's translation), so an answer passes while its question would, and not longer.

mod allow;

use std::net::{IpAddr, Ipv6Addr};

use netlink::cidr::{Cidr, octets};
use netlink::nft::expression::{Comparison, Header, MetaKey, Verdict};
use netlink::nft::judge::{End, Judge, Known};
use netlink::nft::set::{Data, Element, Kind, NewSet as KernelSet, Part, Value};
use netlink::nft::step::{ConnectionKey, Step, Word};
use netlink::nft::{BaseChain, Batch, Chain as KernelChain, Family};

use super::bridge::{PACKET_HOST, for_several};
use crate::change::{ChainId, Change, Content, Dispatch, Member, NewSet, Revision, SetId, SetKind};
use crate::range::{PortRange, Range};
use crate::spec::Direction;
use allow::add_chain_rules;

/// Our table's name, in the families inet and bridge.
pub const TABLE: &str = "skiff_policy";
/// The chain packets enter by.
const FORWARD: &str = "forward";
const LOOSE: &str = "loose";
const DENIED: &str = "denied";
pub(super) const NEIGHBOURS: &str = "neighbours";
/// Filter, as iptables' and others' forward chains: behind the translation of destinations, before that of sources.
const FORWARD_BASE: BaseChain<'_> = BaseChain {
    kind: "filter",
    hook: 2,
    priority: 0,
};
/// Bits of a connection's state: invalid, and not tracked.
const STATELESS: u32 = 1 | 1 << 6;
/// Neighbour and router discovery, redirects; multicast listeners.
pub(super) const NEIGHBOUR_TYPES: [u8; 9] = [130, 131, 132, 133, 134, 135, 136, 137, 143];
/// ICMPv6's protocol number.
pub(super) const ICMPV6: u8 = 58;
const LINK_LOCAL: Cidr = Cidr {
    addr: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)),
    prefix: 10,
};
pub(super) const FIRST: Word = Word(0);
/// Of each family and direction one.
const LOOSE_RULES: usize = 4;
/// Of each family one, and the last.
const DENIED_RULES: usize = 3;
/// What the sets of a batch are numbered by: ours alone, then those by number.
const OWN_SETS: u32 = 16;

fn chain(name: &str) -> KernelChain<'_> {
    KernelChain {
        family: Family::Inet,
        table: TABLE,
        name,
    }
}

fn set_name(id: SetId) -> String {
    match id {
        SetId::Known(v4) => format!("known{}", digit(v4)),
        SetId::Numbered(number) => format!("s{number}"),
    }
}

fn chain_name(id: ChainId) -> String {
    format!("c{}", id.0)
}

fn map_name(direction: Direction, v4: bool) -> String {
    let direction = match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    };
    format!("{direction}{}", digit(v4))
}

fn digit(v4: bool) -> char {
    if v4 { '4' } else { '6' }
}

fn address_part(v4: bool) -> Part {
    if v4 { Part::Ipv4 } else { Part::Ipv6 }
}

/// A key: each part filled up to whole words.
fn key(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    for part in parts {
        bytes.extend_from_slice(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn plain(key: &[u8]) -> Element {
    Element::new(key, &Value::Nothing)
}

fn member_key(member: &Member) -> Vec<u8> {
    let addr = octets(&member.addr);
    match member.port {
        None => key(&[&addr]),
        Some((protocol, port)) => key(&[&addr, &[protocol], &port.to_be_bytes()]),
    }
}

/// The address of this number, as packets have it.
fn address_bytes(v4: bool, number: u128) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    bytes[if v4 { 12 } else { 0 }..].to_vec()
}

fn range_element(range: &Range) -> Element {
    let bytes = |number| address_bytes(range.v4, number);
    // Ranges of addresses of every protocol: the kernel's set of ranges with more than one part is looked up without a lock.
    Element::range(
        &key(&[&bytes(range.first), &[0]]),
        &key(&[&bytes(range.last), &[u8::MAX]]),
    )
}

fn is_one_port((_, first, last): &PortRange) -> bool {
    first == last
}

fn elements_of(content: &Content) -> Vec<Element> {
    match content {
        Content::Members(members) => members.iter().map(|member| plain(&member_key(member))).collect(),
        Content::Ranges(ranges) => ranges.iter().map(range_element).collect(),
        Content::Ports(ports) if ports.iter().all(is_one_port) => {
            let keys = ports
                .iter()
                .map(|(protocol, port, _)| plain(&key(&[&[*protocol], &port.to_be_bytes()])));
            keys.collect()
        }
        Content::Ports(ports) => {
            let ends = ports.iter().map(|(protocol, first, last)| {
                let end = |port: &u16| key(&[&[*protocol], &port.to_be_bytes()]);
                Element::range(&end(first), &end(last))
            });
            ends.collect()
        }
    }
}

/// A pod's address twice: where traffic from itself to itself is looked up.
fn itself(member: &Member) -> Element {
    let addr = octets(&member.addr);
    plain(&key(&[&addr, &addr]))
}

pub(super) fn step(step: Step) -> Judge {
    Judge::Step(step)
}

fn verdict(verdict: Verdict) -> Judge {
    step(Step::Verdict(verdict))
}

pub(super) fn equals(bytes: &[u8]) -> Judge {
    step(Step::Compare(FIRST, Comparison::Equal, bytes.to_vec()))
}

fn is_in(set: &str) -> Judge {
    step(Step::In(set.to_owned(), FIRST, true))
}

fn end(end: End, v4: bool, word: Word) -> Judge {
    Judge::Known(if v4 { Known::Ipv4(end) } else { Known::Ipv6(end) }, word)
}

/// The word behind an address that begins at the first.
fn behind(v4: bool) -> u8 {
    if v4 { 1 } else { 4 }
}

/// Everything that is always there, then `whole`. A table that is there is replaced, at once.
pub(super) fn replace(whole: &Change, held: &[Cidr]) -> Batch {
    let mut batch = Batch::new();
    batch.add_table(Family::Inet, TABLE, None);
    batch.delete_table(Family::Inet, TABLE);
    batch.add_table(Family::Inet, TABLE, None);
    add_own_sets(&mut batch);
    for name in [NEIGHBOURS, LOOSE, DENIED] {
        batch.add_chain(chain(name), None, None);
    }
    batch.add_chain(chain(FORWARD), Some(FORWARD_BASE), None);
    add_neighbours(&mut batch, chain(NEIGHBOURS), Header::Transport, 0);
    add_denied(&mut batch);
    fill(&mut batch, whole);
    add_loose(&mut batch);
    for rule in forward_rules(held) {
        batch.add_judgement(chain(FORWARD), &rule);
    }
    batch
}

/// What differs.
pub(super) fn apply(change: &Change) -> Batch {
    let mut batch = Batch::new();
    fill(&mut batch, change);
    batch
}

/// The chains that are always there, with how many rules each has.
pub(super) fn counts(held: &[Cidr]) -> [(KernelChain<'static>, usize); 4] {
    [
        (chain(FORWARD), forward_rules(held).len()),
        (chain(NEIGHBOURS), NEIGHBOUR_TYPES.len()),
        (chain(LOOSE), LOOSE_RULES),
        (chain(DENIED), DENIED_RULES),
    ]
}

fn add_own_sets(batch: &mut Batch) {
    let mut id = 0;
    let mut add = |name: &str, key: &[Part], data: Data<'_>| {
        id += 1;
        let set = KernelSet {
            name,
            id,
            key,
            data,
            kind: Kind::Exact,
        };
        batch.add_set(Family::Inet, TABLE, &set);
    };
    for v4 in [true, false] {
        let part = address_part(v4);
        add(&format!("self{}", digit(v4)), &[part, part], Data::Nothing);
        for direction in Direction::ALL {
            add(&map_name(direction, v4), &[part], Data::Verdict);
        }
    }
}

/// Lets neighbours' questions and answers pass; the type of ICMPv6 is at this place.
pub(super) fn add_neighbours(batch: &mut Batch, chain: KernelChain<'_>, header: Header, offset: u32) {
    for kind in NEIGHBOUR_TYPES {
        let rule = [
            step(Step::Payload(header, offset, 1, FIRST)),
            equals(&[kind]),
            verdict(Verdict::Accept),
        ];
        batch.add_judgement(chain, &rule);
    }
}

fn add_denied(batch: &mut Batch) {
    for v4 in [true, false] {
        let rule = [
            end(End::Initiator, v4, FIRST),
            end(End::Responder, v4, Word(behind(v4))),
            is_in(&format!("self{}", digit(v4))),
            verdict(Verdict::Accept),
        ];
        batch.add_judgement(chain(DENIED), &rule);
    }
    batch.add_judgement(chain(DENIED), &[verdict(Verdict::Drop)]);
}

/// Packets without a connection are judged by their own addresses, as far as that goes: rules about ports or peers let none
/// of them through.
fn add_loose(batch: &mut Batch) {
    for v4 in [true, false] {
        for direction in [Direction::Egress, Direction::Ingress] {
            let family = if v4 { Family::Ipv4 } else { Family::Ipv6 };
            let (offset, length) = match (v4, direction) {
                (true, Direction::Egress) => (12, 4),
                (true, Direction::Ingress) => (16, 4),
                (false, Direction::Egress) => (8, 16),
                (false, Direction::Ingress) => (24, 16),
            };
            let rule = [
                step(Step::Meta(MetaKey::NetworkProtocol, FIRST)),
                equals(&[family as u8]),
                step(Step::Payload(Header::Network, offset, length, FIRST)),
                step(Step::Dispatch(map_name(direction, v4), FIRST)),
            ];
            batch.add_judgement(chain(LOOSE), &rule);
        }
    }
}

/// Drops IPv6 packets from and to link-local addresses, which are nobody's by name: no policy could judge them. Routers do
/// not forward such packets, so those that come here go from pod to pod of one bridge.
pub(super) fn link_local() -> [Vec<Judge>; 2] {
    [8, 24].map(|offset| {
        let mut rule = vec![step(Step::Payload(Header::Network, offset, 16, FIRST))];
        rule.extend(masked(LINK_LOCAL));
        rule.push(verdict(Verdict::Drop));
        rule
    })
}

fn forward_rules(held: &[Cidr]) -> Vec<Vec<Judge>> {
    let mut rules = vec![vec![
        step(Step::Meta(MetaKey::NetworkProtocol, FIRST)),
        equals(&[Family::Ipv6 as u8]),
        step(Step::Meta(MetaKey::TransportProtocol, FIRST)),
        equals(&[ICMPV6]),
        verdict(Verdict::Jump(NEIGHBOURS.to_owned())),
    ]];
    rules.extend(link_local().map(|drop| {
        let family = vec![
            step(Step::Meta(MetaKey::NetworkProtocol, FIRST)),
            equals(&[Family::Ipv6 as u8]),
        ];
        [family, drop].concat()
    }));
    // Bridged ones that br_netfilter shows here, and routed ones.
    rules.extend(held.iter().map(|network| {
        let family = if network.is_v4() { Family::Ipv4 } else { Family::Ipv6 };
        let family = [
            step(Step::Meta(MetaKey::NetworkProtocol, FIRST)),
            equals(&[family as u8]),
        ];
        [&family[..], &for_several(*network, &PACKET_HOST)].concat()
    }));
    rules.push(vec![
        step(Step::Connection(ConnectionKey::State, FIRST)),
        step(Step::Mask(FIRST, STATELESS.to_ne_bytes().to_vec(), vec![0; 4])),
        step(Step::Compare(FIRST, Comparison::NotEqual, vec![0; 4])),
        verdict(Verdict::Goto(LOOSE.to_owned())),
    ]);
    for v4 in [true, false] {
        for (direction, side) in [
            (Direction::Egress, End::Initiator),
            (Direction::Ingress, End::Responder),
        ] {
            rules.push(vec![
                end(side, v4, FIRST),
                step(Step::Dispatch(map_name(direction, v4), FIRST)),
            ]);
        }
    }
    for network in held {
        let v4 = network.is_v4();
        for side in [End::Initiator, End::Responder] {
            let mut rule = vec![end(side, v4, FIRST)];
            rule.extend(masked(*network));
            rule.extend([
                end(side, v4, FIRST),
                step(Step::In(set_name(SetId::Known(v4)), FIRST, false)),
                verdict(Verdict::Drop),
            ]);
            rules.push(rule);
        }
    }
    rules
}

/// Stops unless the address that begins at the first word is in the network.
pub(super) fn masked(network: Cidr) -> [Judge; 2] {
    let zeros = vec![0; network.octets().len()];
    [
        step(Step::Mask(FIRST, network.mask(), zeros)),
        equals(&network.network().octets()),
    ]
}

fn fill(batch: &mut Batch, change: &Change) {
    for set in &change.new_sets {
        add_set(batch, set);
    }
    for (id, _) in &change.new_chains {
        batch.add_chain(chain(&chain_name(*id)), None, None);
    }
    for (id, content) in &change.new_chains {
        add_chain_rules(batch, &chain_name(*id), content);
    }
    for revision in &change.revisions {
        revise(batch, revision);
    }
    for refill in &change.refills {
        let (name, elements) = (set_name(refill.id), elements_of(&refill.content).into_iter());
        match refill.is_in {
            true => batch.add_elements(Family::Inet, TABLE, &name, elements),
            false => batch.delete_elements(Family::Inet, TABLE, &name, elements),
        }
    }
    lead(batch, &change.dispatches);
    for id in &change.gone_chains {
        batch.delete_chain(chain(&chain_name(*id)));
    }
    for id in &change.gone_sets {
        batch.delete_set(Family::Inet, TABLE, &set_name(*id));
    }
}

fn add_set(batch: &mut Batch, set: &NewSet) {
    let addr = address_part(set.v4);
    let parts: &[Part] = match set.kind {
        SetKind::Addresses => &[addr],
        SetKind::AddressRanges => &[addr, Part::Protocol],
        SetKind::Ports | SetKind::PortRanges => &[Part::Protocol, Part::Port],
        SetKind::AddressPorts => &[addr, Part::Protocol, Part::Port],
    };
    let kind = match set.kind {
        SetKind::Addresses | SetKind::AddressPorts | SetKind::Ports => Kind::Exact,
        SetKind::AddressRanges | SetKind::PortRanges => Kind::Ranges,
    };
    let name = set_name(set.id);
    let id = match set.id {
        SetId::Known(v4) => OWN_SETS - 1 - u32::from(v4),
        SetId::Numbered(number) => number.wrapping_add(OWN_SETS),
    };
    let made = KernelSet {
        name: &name,
        id,
        key: parts,
        data: Data::Nothing,
        kind,
    };
    batch.add_set(Family::Inet, TABLE, &made);
    batch.add_elements(Family::Inet, TABLE, &name, elements_of(&set.content).into_iter());
    if let (SetId::Known(v4), Content::Members(members)) = (set.id, &set.content) {
        let name = format!("self{}", digit(v4));
        batch.add_elements(Family::Inet, TABLE, &name, members.iter().map(itself));
    }
}

fn revise(batch: &mut Batch, revision: &Revision) {
    let mut each = |name: &str, element: fn(&Member) -> Element| {
        let (removed, added) = (revision.removed.iter(), revision.added.iter());
        batch.delete_elements(Family::Inet, TABLE, name, removed.map(element));
        batch.add_elements(Family::Inet, TABLE, name, added.map(element));
    };
    each(&set_name(revision.id), |member| plain(&member_key(member)));
    if let SetId::Known(v4) = revision.id {
        each(&format!("self{}", digit(v4)), itself);
    }
}

fn lead(batch: &mut Batch, dispatches: &[Dispatch]) {
    let element = |dispatch: &Dispatch, id: ChainId| {
        let jump = Value::Verdict(Verdict::Jump(chain_name(id)));
        Element::new(&key(&[&octets(&dispatch.addr)]), &jump)
    };
    for direction in Direction::ALL {
        for v4 in [true, false] {
            let name = map_name(direction, v4);
            let of_map = |dispatch: &&Dispatch| dispatch.direction == direction && is_of(dispatch.addr, v4);
            let all = || dispatches.iter().filter(of_map);
            let old = all().filter_map(|dispatch| Some(element(dispatch, dispatch.old?)));
            batch.delete_elements(Family::Inet, TABLE, &name, old);
            let new = all().filter_map(|dispatch| Some(element(dispatch, dispatch.new?)));
            batch.add_elements(Family::Inet, TABLE, &name, new);
        }
    }
}

fn is_of(addr: IpAddr, v4: bool) -> bool {
    addr.is_ipv4() == v4
}
