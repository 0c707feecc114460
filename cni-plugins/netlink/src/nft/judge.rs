//! What rules need that judge connections and not packets, beside [`super::step`]: both ends of a connection before and
//! behind a translation, and writing into frames. Pure.

use super::batch::{Batch, Chain, named_rule, start};
use super::step::{Step, Word};
use super::wire::*;
use crate::codec::Attributes;
use crate::wire::{NLM_F_APPEND, NLM_F_CREATE};

const NFT_MSG_DELSET: u16 = 11;
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_CT_DIRECTION: u16 = 3;
const NFTA_PAYLOAD_SREG: u16 = 5;
const NFT_META_PKTTYPE: u32 = 19;
/// The number of the first word.
const NFT_REG32_00: u32 = 8;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Who began it, before its source was translated.
    Initiator = 0,
    /// Who answers it, behind the translation of its destination.
    Responder = 1,
}

/// What is known of a packet's connection, whichever way the packet goes. A rule that asks stops where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Protocol number.
    Protocol,
    /// The responder's port.
    Port,
    /// An end's IPv4 address; the rule stops when it is no IPv4 connection.
    Ipv4(End),
    /// An end's IPv6 address; the rule stops when it is no IPv6 connection.
    Ipv6(End),
}

/// One step of a rule that judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judge {
    /// Any other.
    Step(Step),
    /// Load what is known of the connection.
    Known(Known, Word),
    /// Load for whom the link layer took the packet: 0 this machine, 3 another.
    Addressee(Word),
    /// Have the packet taken as the word says.
    SetAddressee(Word),
    /// Overwrite the frame's destination with the six bytes from the word on.
    SetHardwareDestination(Word),
}

fn number(word: Word) -> u32 {
    NFT_REG32_00 + u32::from(word.0)
}

impl Judge {
    /// Encodes one as the content of a list element.
    pub fn encode(&self) -> Attributes {
        let list = Attributes::new();
        let (name, data) = match self {
            Self::Step(step) => return step.encode(),
            Self::Known(known, to) => ("ct", known.encode(number(*to))),
            Self::Addressee(to) => (
                "meta",
                list.attr_be32(NFTA_META_DREG, number(*to))
                    .attr_be32(NFTA_META_KEY, NFT_META_PKTTYPE),
            ),
            Self::SetAddressee(from) => (
                "meta",
                list.attr_be32(NFTA_META_KEY, NFT_META_PKTTYPE)
                    .attr_be32(NFTA_META_SREG, number(*from)),
            ),
            Self::SetHardwareDestination(from) => (
                "payload",
                list.attr_be32(NFTA_PAYLOAD_SREG, number(*from))
                    .attr_be32(NFTA_PAYLOAD_BASE, 0)
                    .attr_be32(NFTA_PAYLOAD_OFFSET, 0)
                    .attr_be32(NFTA_PAYLOAD_LEN, 6),
            ),
        };
        Attributes::new()
            .attr_str(NFTA_EXPR_NAME, name)
            .nested(NFTA_EXPR_DATA, data)
    }
}

impl Known {
    fn encode(self, register: u32) -> Attributes {
        // The source of the replies is the responder: its address and port behind a translation.
        let (key, end) = match self {
            Self::Protocol => (10, None),
            Self::Port => (11, Some(End::Responder)),
            Self::Ipv4(end) => (19, Some(end)),
            Self::Ipv6(end) => (21, Some(end)),
        };
        let data = Attributes::new()
            .attr_be32(NFTA_CT_DREG, register)
            .attr_be32(NFTA_CT_KEY, key);
        match end {
            Some(end) => data.attr(NFTA_CT_DIRECTION, &[end as u8]),
            None => data,
        }
    }
}

impl Batch {
    /// Appends a rule that judges.
    pub fn add_judgement(&mut self, chain: Chain<'_>, steps: &[Judge]) {
        let list = steps.iter().fold(Attributes::new(), |list, step| {
            list.nested(NFTA_LIST_ELEM, step.encode())
        });
        let message = named_rule(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, chain);
        self.push(message.nested(NFTA_RULE_EXPRESSIONS, list));
    }

    /// Deletes a set, which nothing may look into any more.
    pub fn delete_set(&mut self, family: Family, table: &str, name: &str) {
        let message = start(NFT_MSG_DELSET, 0, family);
        self.push(message.attr_str(NFTA_SET_TABLE, table).attr_str(NFTA_SET_NAME, name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_the_responders_port() {
        let encoded = Judge::Known(Known::Port, Word(1)).encode();
        assert_eq!(
            encoded.bytes(),
            [
                &[7, 0, 1, 0, b'c', b't', 0, 0][..],
                &[28, 0, 2, 0x80],
                &[8, 0, 1, 0, 0, 0, 0, 9],  // into the second word
                &[8, 0, 2, 0, 0, 0, 0, 11], // source port
                &[5, 0, 3, 0, 1, 0, 0, 0],  // of the replies
            ]
            .concat()
        );
    }
}
