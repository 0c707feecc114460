//! The expressions a rule is made of. Pure.

use std::net::IpAddr;

use super::wire::*;
use crate::cidr::{self, Cidr};
use crate::codec::{Attributes, attribute, attributes, read_text};

/// A general register of the kernel's rule machine; 16 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// The first.
    One = 1,
    /// The second.
    Two = 2,
}

/// What a packet comparison wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Equal = 0,
    /// Not equal.
    NotEqual = 1,
    /// As bytes, the same or before.
    AtMost = 3,
    /// As bytes, the same or behind.
    AtLeast = 5,
}

/// Where in a packet data is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Link layer.
    Link = 0,
    /// Network layer.
    Network = 1,
    /// Transport layer.
    Transport = 2,
}

/// What is known about a packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    /// The mark.
    Mark = 3,
    /// The name of the interface it came by.
    InputName = 6,
    /// The name of the interface it leaves by.
    OutputName = 7,
    /// The network protocol's family.
    NetworkProtocol = 15,
    /// The transport protocol.
    TransportProtocol = 16,
}

/// What happens to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accept.
    Accept,
    /// Drop.
    Drop,
    /// Leave this chain.
    Return,
    /// Continue in another chain and come back.
    Jump(String),
    /// Continue in another chain.
    Goto(String),
}

/// One step of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Load bytes of the packet into register one.
    Payload {
        /// From which header.
        header: Header,
        /// Bytes to skip.
        offset: u32,
        /// Bytes to load.
        length: u32,
    },
    /// Load a property into register one.
    Meta(MetaKey),
    /// Load the type of the destination address (local, broadcast, ...) into register one.
    DestinationType,
    /// Load the status bits of the packet's connection into register one.
    ConnectionStatus,
    /// Load the state bit of the packet's connection into register one.
    ConnectionState,
    /// Ask an extension of iptables, as iptables does through nf_tables.
    Match {
        /// The extension's name.
        name: &'static str,
        /// The revision of its data.
        revision: u32,
        /// Its data, in the kernel's layout.
        info: Vec<u8>,
    },
    /// Count packets and bytes.
    Counter,
    /// Keep only the masked bits of register one, and flip those of `xor`.
    Mask {
        /// Bits to keep.
        mask: Vec<u8>,
        /// Bits to flip.
        xor: Vec<u8>,
    },
    /// Stop here unless register one compares so.
    Compare(Comparison, Vec<u8>),
    /// Put bytes into a register.
    Load(Register, Vec<u8>),
    /// Set the packet's mark from register one.
    SetMark,
    /// Decide.
    Verdict(Verdict),
    /// Translate the source to the outgoing interface's address.
    Masquerade,
    /// The same, with a random port: two connections at once do not choose one, and lose each other's packets.
    MasqueradeRandomly,
    /// Keep connection tracking, and so translation, off the packet. Only before tracking begins: priority -300 (`raw`).
    NoTrack,
    /// Translate the destination to the address in register one and the port in register two.
    DestinationNat(Family),
}

impl Expression {
    /// Encodes one as the content of a list element.
    pub fn encode(&self) -> Attributes {
        let one = Register::One as u32;
        let (name, data) = match self {
            Self::Payload { header, offset, length } => {
                let data = Attributes::new()
                    .attr_be32(NFTA_PAYLOAD_DREG, one)
                    .attr_be32(NFTA_PAYLOAD_BASE, *header as u32)
                    .attr_be32(NFTA_PAYLOAD_OFFSET, *offset)
                    .attr_be32(NFTA_PAYLOAD_LEN, *length);
                ("payload", data)
            }
            Self::Meta(key) => (
                "meta",
                Attributes::new()
                    .attr_be32(NFTA_META_DREG, one)
                    .attr_be32(NFTA_META_KEY, *key as u32),
            ),
            Self::SetMark => {
                let key = MetaKey::Mark as u32;
                (
                    "meta",
                    Attributes::new()
                        .attr_be32(NFTA_META_KEY, key)
                        .attr_be32(NFTA_META_SREG, one),
                )
            }
            Self::DestinationType => {
                let data = Attributes::new()
                    .attr_be32(NFTA_FIB_DREG, one)
                    .attr_be32(NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE)
                    .attr_be32(NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR);
                ("fib", data)
            }
            Self::ConnectionStatus => ("ct", encode_connection(NFT_CT_STATUS)),
            Self::ConnectionState => ("ct", encode_connection(NFT_CT_STATE)),
            Self::Match { name, revision, info } => {
                let data = Attributes::new()
                    .attr_str(NFTA_MATCH_NAME, name)
                    .attr_be32(NFTA_MATCH_REV, *revision)
                    .attr(NFTA_MATCH_INFO, info);
                ("match", data)
            }
            Self::Counter => {
                let zero = [0; 8];
                let data = Attributes::new().attr(NFTA_COUNTER_BYTES, &zero);
                ("counter", data.attr(NFTA_COUNTER_PACKETS, &zero))
            }
            Self::Mask { mask, xor } => ("bitwise", encode_mask(mask, xor)),
            Self::Compare(comparison, value) => {
                let data = Attributes::new()
                    .attr_be32(NFTA_CMP_SREG, one)
                    .attr_be32(NFTA_CMP_OP, *comparison as u32)
                    .nested(NFTA_CMP_DATA, encode_value(value));
                ("cmp", data)
            }
            Self::Load(register, value) => ("immediate", encode_immediate(*register as u32, encode_value(value))),
            Self::Verdict(verdict) => ("immediate", encode_immediate(NFT_REG_VERDICT, encode_verdict(verdict))),
            Self::Masquerade => ("masq", Attributes::new()),
            Self::MasqueradeRandomly => (
                "masq",
                Attributes::new().attr_be32(NFTA_MASQ_FLAGS, NF_NAT_RANGE_PROTO_RANDOM_FULLY),
            ),
            Self::NoTrack => ("notrack", Attributes::new()),
            Self::DestinationNat(family) => {
                let data = Attributes::new()
                    .attr_be32(NFTA_NAT_TYPE, 1)
                    .attr_be32(NFTA_NAT_FAMILY, *family as u32)
                    .attr_be32(NFTA_NAT_REG_ADDR_MIN, one)
                    .attr_be32(NFTA_NAT_REG_PROTO_MIN, Register::Two as u32);
                ("nat", data)
            }
        };
        Attributes::new()
            .attr_str(NFTA_EXPR_NAME, name)
            .nested(NFTA_EXPR_DATA, data)
    }
}

fn encode_connection(key: u32) -> Attributes {
    Attributes::new()
        .attr_be32(NFTA_CT_DREG, Register::One as u32)
        .attr_be32(NFTA_CT_KEY, key)
}

fn encode_value(value: &[u8]) -> Attributes {
    Attributes::new().attr(NFTA_DATA_VALUE, value)
}

fn encode_immediate(register: u32, data: Attributes) -> Attributes {
    Attributes::new()
        .attr_be32(NFTA_IMMEDIATE_DREG, register)
        .nested(NFTA_IMMEDIATE_DATA, data)
}

fn encode_mask(mask: &[u8], xor: &[u8]) -> Attributes {
    let one = Register::One as u32;
    Attributes::new()
        .attr_be32(NFTA_BITWISE_SREG, one)
        .attr_be32(NFTA_BITWISE_DREG, one)
        .attr_be32(NFTA_BITWISE_LEN, mask.len() as u32)
        .nested(NFTA_BITWISE_MASK, encode_value(mask))
        .nested(NFTA_BITWISE_XOR, encode_value(xor))
}

pub(super) fn encode_verdict(verdict: &Verdict) -> Attributes {
    let (code, chain) = match verdict {
        Verdict::Accept => (NF_ACCEPT, None),
        Verdict::Drop => (NF_DROP, None),
        Verdict::Return => (NFT_RETURN, None),
        Verdict::Jump(chain) => (NFT_JUMP, Some(chain)),
        Verdict::Goto(chain) => (NFT_GOTO, Some(chain)),
    };
    let mut data = Attributes::new().attr_be32(NFTA_VERDICT_CODE, code as u32);
    if let Some(chain) = chain {
        data = data.attr_str(NFTA_VERDICT_CHAIN, chain);
    }
    Attributes::new().nested(NFTA_DATA_VERDICT, data)
}

/// Which address of a packet is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Compares an address of the packet with a network. The caller makes sure that the packet is of that family.
pub fn address_in(side: Side, comparison: Comparison, network: Cidr) -> Vec<Expression> {
    let (offset, length) = match (network.is_v4(), side) {
        (true, Side::Source) => (12, 4),
        (true, Side::Destination) => (16, 4),
        (false, Side::Source) => (8, 16),
        (false, Side::Destination) => (24, 16),
    };
    let mut steps = vec![Expression::Payload {
        header: Header::Network,
        offset,
        length,
    }];
    if network.prefix < cidr::bits(&network.addr) {
        steps.push(Expression::Mask {
            mask: network.mask(),
            xor: vec![0; length as usize],
        });
    }
    steps.push(Expression::Compare(comparison, network.network().octets()));
    steps
}

/// Restricts a rule of an `inet` table to one family, as nft writes it.
pub fn only_family(v4: bool) -> Vec<Expression> {
    let family = if v4 { Family::Ipv4 } else { Family::Ipv6 };
    vec![
        Expression::Meta(MetaKey::NetworkProtocol),
        Expression::Compare(Comparison::Equal, vec![family as u8]),
    ]
}

/// Loads `addr` and `port` and translates the destination to them.
pub fn translate_destination(addr: IpAddr, port: u16) -> Vec<Expression> {
    let family = if addr.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
    vec![
        Expression::Load(Register::One, cidr::octets(&addr)),
        Expression::Load(Register::Two, port.to_be_bytes().to_vec()),
        Expression::DestinationNat(family),
    ]
}

/// The chains a listed rule jumps or goes to.
pub fn jump_targets(expressions: &[u8]) -> Vec<String> {
    let target = |element: &[u8]| {
        let data = attribute(element, NFTA_EXPR_DATA)?;
        let immediate = attribute(data, NFTA_IMMEDIATE_DATA)?;
        let verdict = attribute(immediate, NFTA_DATA_VERDICT)?;
        attribute(verdict, NFTA_VERDICT_CHAIN).map(read_text)
    };
    let is_immediate =
        |element: &[u8]| attribute(element, NFTA_EXPR_NAME).map(read_text).as_deref() == Some("immediate");
    attributes(expressions)
        .filter(|(kind, element)| *kind == NFTA_LIST_ELEM && is_immediate(element))
        .filter_map(|(_, element)| target(element))
        .collect()
}

/// One comparison of a listed rule: what was loaded before it (a packet's byte offset or a [`MetaKey`]), and the value.
pub type Compared = (u32, Vec<u8>);

/// The comparisons of packet bytes and properties in a listed rule, in order.
pub fn compared(expressions: &[u8]) -> Vec<Compared> {
    let number = |data: &[u8], kind| attribute(data, kind)?.try_into().ok().map(u32::from_be_bytes);
    let mut loaded = None;
    let mut found = Vec::new();
    for (_, element) in attributes(expressions).filter(|(kind, _)| *kind == NFTA_LIST_ELEM) {
        let data = attribute(element, NFTA_EXPR_DATA).unwrap_or_default();
        match attribute(element, NFTA_EXPR_NAME).map(read_text).as_deref() {
            Some("payload") => loaded = number(data, NFTA_PAYLOAD_OFFSET),
            Some("meta") => loaded = number(data, NFTA_META_KEY),
            Some("cmp") => {
                let value = attribute(data, NFTA_CMP_DATA).and_then(|data| attribute(data, NFTA_DATA_VALUE));
                found.extend(loaded.zip(value.map(<[u8]>::to_vec)));
            }
            Some("bitwise") => {}
            _ => loaded = None,
        }
    }
    found
}

/// What [`compared`] would find in a rule made of these.
pub fn comparisons(expressions: &[Expression]) -> Vec<Compared> {
    comparisons_of(expressions.iter().map(Expression::encode))
}

/// The same for encoded elements, such as [`super::step::Step`]s.
pub fn comparisons_of(elements: impl Iterator<Item = Attributes>) -> Vec<Compared> {
    let list = elements.fold(Attributes::new(), |list, element| list.nested(NFTA_LIST_ELEM, element));
    compared(list.bytes())
}
