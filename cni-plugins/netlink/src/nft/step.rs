//! The steps of rules that keep several values at once: like [`super::expression`], with registers named by who writes the
//! rule. Pure.
//!
//! The machine has sixteen words of four bytes. Values that form one key stand in neighbouring words, each beginning at a word.
//! The kernel refuses a rule that reads a word the same rule has not written.

use super::batch::{Batch, Chain, named_rule};
use super::expression::{Comparison, Header, MetaKey, Verdict, encode_verdict};
use super::wire::*;
use crate::codec::Attributes;
use crate::wire::{NLM_F_APPEND, NLM_F_CREATE};

const NFT_REG32_00: u32 = 8;
const NFTA_LOOKUP_SET: u16 = 1;
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_LOOKUP_DREG: u16 = 3;
const NFTA_LOOKUP_FLAGS: u16 = 5;
const NFT_LOOKUP_F_INV: u32 = 1;
const NFTA_NG_DREG: u16 = 1;
const NFTA_NG_MODULUS: u16 = 2;
const NFTA_NG_TYPE: u16 = 3;
const NFT_NG_RANDOM: u32 = 1;
const NFTA_DYNSET_SET_NAME: u16 = 1;
const NFTA_DYNSET_OP: u16 = 3;
const NFTA_DYNSET_SREG_KEY: u16 = 4;
const NFTA_DYNSET_SREG_DATA: u16 = 5;
const NFTA_DYNSET_TIMEOUT: u16 = 6;
const NFTA_REJECT_TYPE: u16 = 1;
const NFTA_REJECT_ICMP_CODE: u16 = 2;
const NFT_REJECT_ICMP_UNREACH: u32 = 0;
const NFT_NAT_DNAT: u32 = 1;
const NFTA_FIB_F_SADDR: u32 = 1;

/// A word of the machine, 0 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u8);

impl Word {
    fn number(self) -> u32 {
        NFT_REG32_00 + u32::from(self.0)
    }
}

/// What a rule does to a dynamic set or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds the element; one that is there gets its whole time again and keeps its data.
    Update = 1,
    /// Removes the element.
    Delete = 2,
}

/// What is asked of a packet's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKey {
    /// Its state, as a bit.
    State = 0,
    /// Its status bits.
    Status = 2,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Load bytes of the packet: from which header, how many to skip, how many to load.
    Payload(Header, u32, u32, Word),
    /// Load a property.
    Meta(MetaKey, Word),
    /// Set the packet's mark.
    SetMark(Word),
    /// Load a property of the connection.
    Connection(ConnectionKey, Word),
    /// Load the type of the packet's source (`true`) or destination address.
    AddressType(bool, Word),
    /// Put bytes into words.
    Load(Word, Vec<u8>),
    /// Keep the bits of the first list and flip those of the second.
    Mask(Word, Vec<u8>, Vec<u8>),
    /// Stop here unless the words compare so.
    Compare(Word, Comparison, Vec<u8>),
    /// Stop here unless the key beginning at the word is (`true`) or is not in the set.
    In(String, Word, bool),
    /// Stop here unless the map has the key beginning at the first word; its data goes to the second.
    Map(String, Word, Word),
    /// Do what the map of verdicts says of the key; nothing when it does not have it.
    Dispatch(String, Word),
    /// Load a number below the modulus, each as likely.
    Random(u32, Word),
    /// Change a dynamic map: key, data and seconds an element lives. A full map stops the rule here.
    Remember(Change, String, Word, Word, u32),
    /// Translate the destination to the address beginning at the first word and the port in the second.
    DestinationNat(Family, Word, Word),
    /// Translate the source to the outgoing interface's address, with a random port.
    Masquerade,
    /// Answer that the port is unreachable.
    Reject(Family),
    /// Decide.
    Verdict(Verdict),
}

impl Step {
    /// Encodes one as the content of a list element.
    pub fn encode(&self) -> Attributes {
        let (name, data) = self.encode_data();
        Attributes::new()
            .attr_str(NFTA_EXPR_NAME, name)
            .nested(NFTA_EXPR_DATA, data)
    }

    fn encode_data(&self) -> (&'static str, Attributes) {
        let list = Attributes::new();
        let value = |bytes: &[u8]| Attributes::new().attr(NFTA_DATA_VALUE, bytes);
        match self {
            Self::Payload(header, offset, length, to) => (
                "payload",
                list.attr_be32(NFTA_PAYLOAD_DREG, to.number())
                    .attr_be32(NFTA_PAYLOAD_BASE, *header as u32)
                    .attr_be32(NFTA_PAYLOAD_OFFSET, *offset)
                    .attr_be32(NFTA_PAYLOAD_LEN, *length),
            ),
            Self::Meta(key, to) => (
                "meta",
                list.attr_be32(NFTA_META_DREG, to.number())
                    .attr_be32(NFTA_META_KEY, *key as u32),
            ),
            Self::SetMark(from) => (
                "meta",
                list.attr_be32(NFTA_META_KEY, MetaKey::Mark as u32)
                    .attr_be32(NFTA_META_SREG, from.number()),
            ),
            Self::Connection(key, to) => (
                "ct",
                list.attr_be32(NFTA_CT_DREG, to.number())
                    .attr_be32(NFTA_CT_KEY, *key as u32),
            ),
            Self::AddressType(source, to) => {
                let flag = if *source { NFTA_FIB_F_SADDR } else { NFTA_FIB_F_DADDR };
                let data = list
                    .attr_be32(NFTA_FIB_DREG, to.number())
                    .attr_be32(NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
                ("fib", data.attr_be32(NFTA_FIB_FLAGS, flag))
            }
            Self::Load(to, bytes) => (
                "immediate",
                list.attr_be32(NFTA_IMMEDIATE_DREG, to.number())
                    .nested(NFTA_IMMEDIATE_DATA, value(bytes)),
            ),
            Self::Mask(word, mask, xor) => (
                "bitwise",
                list.attr_be32(NFTA_BITWISE_SREG, word.number())
                    .attr_be32(NFTA_BITWISE_DREG, word.number())
                    .attr_be32(NFTA_BITWISE_LEN, mask.len() as u32)
                    .nested(NFTA_BITWISE_MASK, value(mask))
                    .nested(NFTA_BITWISE_XOR, value(xor)),
            ),
            Self::Compare(word, comparison, bytes) => (
                "cmp",
                list.attr_be32(NFTA_CMP_SREG, word.number())
                    .attr_be32(NFTA_CMP_OP, *comparison as u32)
                    .nested(NFTA_CMP_DATA, value(bytes)),
            ),
            Self::In(..) | Self::Map(..) | Self::Dispatch(..) => ("lookup", self.encode_lookup()),
            Self::Random(modulus, to) => (
                "numgen",
                list.attr_be32(NFTA_NG_DREG, to.number())
                    .attr_be32(NFTA_NG_MODULUS, *modulus)
                    .attr_be32(NFTA_NG_TYPE, NFT_NG_RANDOM),
            ),
            Self::Remember(change, set, key, data, seconds) => (
                "dynset",
                list.attr_str(NFTA_DYNSET_SET_NAME, set)
                    .attr_be32(NFTA_DYNSET_OP, *change as u32)
                    .attr_be32(NFTA_DYNSET_SREG_KEY, key.number())
                    .attr_be32(NFTA_DYNSET_SREG_DATA, data.number())
                    .attr(NFTA_DYNSET_TIMEOUT, &(u64::from(*seconds) * 1000).to_be_bytes()),
            ),
            Self::DestinationNat(family, address, port) => (
                "nat",
                list.attr_be32(NFTA_NAT_TYPE, NFT_NAT_DNAT)
                    .attr_be32(NFTA_NAT_FAMILY, *family as u32)
                    .attr_be32(NFTA_NAT_REG_ADDR_MIN, address.number())
                    .attr_be32(NFTA_NAT_REG_PROTO_MIN, port.number()),
            ),
            Self::Masquerade => ("masq", list.attr_be32(NFTA_MASQ_FLAGS, NF_NAT_RANGE_PROTO_RANDOM_FULLY)),
            Self::Reject(family) => {
                // Port unreachable: code 3 of ICMP, code 4 of ICMPv6.
                let code = if *family == Family::Ipv6 { 4 } else { 3 };
                let data = list.attr_be32(NFTA_REJECT_TYPE, NFT_REJECT_ICMP_UNREACH);
                ("reject", data.attr(NFTA_REJECT_ICMP_CODE, &[code]))
            }
            Self::Verdict(verdict) => (
                "immediate",
                list.attr_be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT)
                    .nested(NFTA_IMMEDIATE_DATA, encode_verdict(verdict)),
            ),
        }
    }

    fn encode_lookup(&self) -> Attributes {
        let lookup = |set: &str, key: &Word| {
            Attributes::new()
                .attr_str(NFTA_LOOKUP_SET, set)
                .attr_be32(NFTA_LOOKUP_SREG, key.number())
        };
        match self {
            Self::In(set, key, true) => lookup(set, key),
            Self::In(set, key, false) => lookup(set, key).attr_be32(NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV),
            Self::Map(set, key, to) => lookup(set, key).attr_be32(NFTA_LOOKUP_DREG, to.number()),
            Self::Dispatch(set, key) => lookup(set, key).attr_be32(NFTA_LOOKUP_DREG, NFT_REG_VERDICT),
            _ => Attributes::new(),
        }
    }
}

impl Batch {
    /// Appends a rule made of steps.
    pub fn add_steps(&mut self, chain: Chain<'_>, steps: &[Step]) {
        let list = steps.iter().fold(Attributes::new(), |list, step| {
            list.nested(NFTA_LIST_ELEM, step.encode())
        });
        let message = named_rule(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, chain);
        self.push(message.nested(NFTA_RULE_EXPRESSIONS, list));
    }
}
