//! The rules around the DNS addresses: whose packets are tracked, and what is let in. Pure.
//!
//! | chain | where | what |
//! |---|---|---|
//! | `prerouting`, `output` | before tracking | questions to the addresses and answers from them are not tracked |
//! | `led` | behind translation | remembers who asks by a Service whose endpoint is an address of ours: such a question came tracked |
//! | `input` | at delivery | only DNS and ICMP reach the addresses; whatever else listens on the node does not answer there |
//!
//! The answer to a question that some proxy led here must be translated back, so it must be tracked: `output` lets out first what
//! answers those who are remembered, by protocol and address: ports would be as many entries as one pod likes, and those for which
//! there is no room get no answers. Nobody else is remembered, and who asks both ways gets tracked answers for a while, which costs
//! entries and changes nothing.

use netlink::cidr::{Cidr, octets};
use netlink::nft::expression::{self, Compared, Comparison, Header, MetaKey, Side, Verdict};
use netlink::nft::set::{Data, Kind, NewSet, Part};
use netlink::nft::step::{Change, ConnectionKey, Step, Word};
use netlink::nft::{BaseChain, Batch, Chain, Expression, Family};
use std::net::IpAddr;

use super::{PORT, TABLE};

/// Before connection tracking.
const RAW: i32 = -300;
/// Behind the translation of destinations.
const LED: i32 = -99;
const UDP: u8 = 17;
const TCP: u8 = 6;
/// A connection whose destination is translated (`IPS_DST_NAT`).
const TRANSLATED: u32 = 1 << 5;
/// How many who were led here are remembered, of each family.
const LED_MAX: u32 = 16384;
/// For how long after their last packet, in seconds: longer than a question may take and a connection may idle.
const LED_SECONDS: u32 = 30;
/// Where the parts of a key stand: protocol, address (one word or four), and what the map says of it.
const KEY: Word = Word(0);

/// One rule.
pub(super) enum Rule {
    /// Of expressions.
    Plain(Vec<Expression>),
    /// Of steps.
    Steps(Vec<Step>),
}

impl Rule {
    /// What a listed rule compares, if it is this one.
    pub(super) fn compared(&self) -> Vec<Compared> {
        match self {
            Self::Plain(expressions) => expression::comparisons(expressions),
            Self::Steps(steps) => expression::comparisons_of(steps.iter().map(Step::encode)),
        }
    }
}

/// A chain with its rules.
pub(super) struct Base {
    pub(super) name: &'static str,
    hook: u32,
    priority: i32,
    pub(super) rules: Vec<Rule>,
}

/// All chains of the table.
pub(super) fn chains(addresses: &[IpAddr]) -> [Base; 4] {
    let untracked = || addresses.iter().flat_map(|address| untracked(*address));
    let of = |rule: fn(IpAddr) -> Vec<Step>| addresses.iter().map(move |address| Rule::Steps(rule(*address)));
    let base = |name, hook, priority, rules| Base {
        name,
        hook,
        priority,
        rules,
    };
    [
        base("prerouting", 0, RAW, untracked().collect()),
        base("output", 3, RAW, of(let_out).chain(untracked()).collect()),
        base("led", 0, LED, of(remember).collect()),
        base(
            "input",
            1,
            0,
            addresses.iter().flat_map(|address| let_in(*address)).collect(),
        ),
    ]
}

/// Makes the table anew, whatever it was.
pub(super) fn make(batch: &mut Batch, chains: &[Base]) {
    batch.add_table(Family::Inet, TABLE, None);
    batch.delete_table(Family::Inet, TABLE);
    batch.add_table(
        Family::Inet,
        TABLE,
        Some("cluster DNS: untracked, and nothing else at its addresses"),
    );
    for (id, is_v4) in [(1, true), (2, false)] {
        let address = if is_v4 { Part::Ipv4 } else { Part::Ipv6 };
        let map = NewSet {
            name: map(is_v4),
            id,
            key: &[Part::Protocol, address],
            data: Data::Parts(&[Part::Word]),
            kind: Kind::Dynamic(LED_MAX),
        };
        batch.add_set(Family::Inet, TABLE, &map);
    }
    for base in chains {
        let hooked = BaseChain {
            kind: "filter",
            hook: base.hook,
            priority: base.priority,
        };
        batch.add_chain(chain(base.name), Some(hooked), None);
        for rule in &base.rules {
            match rule {
                Rule::Plain(expressions) => batch.add_rule(chain(base.name), expressions, None),
                Rule::Steps(steps) => batch.add_steps(chain(base.name), steps),
            }
        }
    }
}

pub(super) fn chain(name: &str) -> Chain<'_> {
    Chain {
        family: Family::Inet,
        table: TABLE,
        name,
    }
}

fn map(is_v4: bool) -> &'static str {
    if is_v4 { "led4" } else { "led6" }
}

/// Questions to an address and answers from it, by UDP and TCP. Both chains have all: what stays on the node passes both, and what a
/// pod sends enters by the one and is answered by the other.
fn untracked(address: IpAddr) -> impl Iterator<Item = Rule> {
    let ends = [(Side::Destination, 2), (Side::Source, 0)];
    let all = [UDP, TCP]
        .into_iter()
        .flat_map(move |protocol| ends.map(|end| (protocol, end)));
    all.map(move |(protocol, (side, port_offset))| {
        let mut rule = expression::only_family(address.is_ipv4());
        rule.push(Expression::Meta(MetaKey::TransportProtocol));
        rule.push(Expression::Compare(Comparison::Equal, vec![protocol]));
        rule.extend(expression::address_in(side, Comparison::Equal, Cidr::host(address)));
        rule.push(Expression::Payload {
            header: Header::Transport,
            offset: port_offset,
            length: 2,
        });
        rule.push(Expression::Compare(Comparison::Equal, PORT.to_be_bytes().to_vec()));
        rule.push(Expression::NoTrack);
        Rule::Plain(rule)
    })
}

/// Where an address stands in a packet, and how many bytes it has.
fn place(is_v4: bool, is_source: bool) -> (u32, u32) {
    match (is_v4, is_source) {
        (true, true) => (12, 4),
        (true, false) => (16, 4),
        (false, true) => (8, 16),
        (false, false) => (24, 16),
    }
}

fn equal(bytes: Vec<u8>) -> Step {
    Step::Compare(KEY, Comparison::Equal, bytes)
}

/// Only packets of the address's family that it sends (`is_source`) or gets.
fn only(address: IpAddr, is_source: bool) -> Vec<Step> {
    let is_v4 = address.is_ipv4();
    let family = if is_v4 { Family::Ipv4 } else { Family::Ipv6 };
    let (offset, length) = place(is_v4, is_source);
    vec![
        Step::Meta(MetaKey::NetworkProtocol, KEY),
        equal(vec![family as u8]),
        Step::Payload(Header::Network, offset, length, KEY),
        equal(octets(&address)),
    ]
}

/// Only the port of DNS, as the source (`is_source`) or the destination; what has no ports is stopped by its length or its rule.
fn only_port(is_source: bool) -> [Step; 2] {
    let offset = if is_source { 0 } else { 2 };
    [
        Step::Payload(Header::Transport, offset, 2, KEY),
        equal(PORT.to_be_bytes().to_vec()),
    ]
}

/// Loads who is at the other end: protocol and address. Returns the word behind.
fn other_end(is_v4: bool, is_source: bool, steps: &mut Vec<Step>) -> Word {
    let (offset, length) = place(is_v4, is_source);
    steps.extend([
        Step::Meta(MetaKey::TransportProtocol, KEY),
        Step::Payload(Header::Network, offset, length, Word(1)),
    ]);
    Word(1 + (length / 4) as u8)
}

/// Who comes tracked and translated is remembered.
fn remember(address: IpAddr) -> Vec<Step> {
    let mut steps = only(address, false);
    steps.extend(only_port(false));
    let bits = TRANSLATED.to_ne_bytes().to_vec();
    steps.extend([
        Step::Connection(ConnectionKey::Status, KEY),
        Step::Mask(KEY, bits, vec![0; 4]),
        Step::Compare(KEY, Comparison::NotEqual, vec![0; 4]),
    ]);
    let said = other_end(address.is_ipv4(), true, &mut steps);
    steps.extend([
        Step::Load(said, vec![0; 4]),
        Step::Remember(
            Change::Update,
            map(address.is_ipv4()).to_owned(),
            KEY,
            said,
            LED_SECONDS,
        ),
    ]);
    steps
}

/// Answers to who is remembered go on, tracked.
fn let_out(address: IpAddr) -> Vec<Step> {
    let mut steps = only(address, true);
    steps.extend(only_port(true));
    let said = other_end(address.is_ipv4(), false, &mut steps);
    steps.extend([
        Step::Map(map(address.is_ipv4()).to_owned(), KEY, said),
        Step::Verdict(Verdict::Return),
    ]);
    steps
}

/// DNS, the node's own answers to itself (who asks an address of its own asks from that address), and ICMP, which carries what a path
/// says of its packets; the rest is refused.
fn let_in(address: IpAddr) -> Vec<Rule> {
    let icmp = if address.is_ipv4() { 1 } else { 58 };
    let mut rules = Vec::new();
    let mut pass = |protocol: u8, ends: &[Step]| {
        let mut steps = only(address, false);
        steps.extend([Step::Meta(MetaKey::TransportProtocol, KEY), equal(vec![protocol])]);
        steps.extend_from_slice(ends);
        steps.push(Step::Verdict(Verdict::Return));
        rules.push(Rule::Steps(steps));
    };
    for protocol in [UDP, TCP] {
        pass(protocol, &only_port(false));
        let mut from_itself = only(address, true);
        from_itself.extend(only_port(true));
        pass(protocol, &from_itself);
    }
    pass(icmp, &[]);
    let mut refused = only(address, false);
    let family = if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
    refused.push(Step::Reject(family));
    rules.push(Rule::Steps(refused));
    rules
}
