//! Sets and maps, and their elements. Pure.

use super::batch::{Batch, start};
use super::expression::{Verdict, encode_verdict};
use super::wire::*;
use crate::codec::{Attributes, attribute, attributes, read_be64};
use crate::wire::NLM_F_CREATE;

pub(super) const NFT_MSG_NEWSET: u16 = 9;
pub(super) const NFT_MSG_NEWSETELEM: u16 = 12;
pub(super) const NFT_MSG_GETSETELEM: u16 = 13;
pub(super) const NFT_MSG_DELSETELEM: u16 = 14;
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DATA_TYPE: u16 = 6;
const NFTA_SET_DATA_LEN: u16 = 7;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_DESC_SIZE: u16 = 1;
const NFTA_SET_DESC_CONCAT: u16 = 2;
const NFTA_SET_FIELD_LEN: u16 = 1;
const NFT_SET_INTERVAL: u32 = 4;
const NFT_SET_MAP: u32 = 8;
const NFT_SET_TIMEOUT: u32 = 0x10;
const NFT_SET_EVAL: u32 = 0x20;
const NFT_SET_CONCAT: u32 = 0x80;
const NFT_DATA_VERDICT: u32 = 0xffff_ff00;
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
const NFTA_SET_ELEM_EXPIRATION: u16 = 5;
const NFTA_SET_ELEM_KEY_END: u16 = 10;

/// Bytes of elements in one message: a netlink attribute holds less than 64 KiB.
const LIST_BYTES_MAX: usize = 56 << 10;

/// What one part of a key or of data is; the value is nft's number of the type, by which it shows elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An IPv4 address.
    Ipv4 = 7,
    /// An IPv6 address.
    Ipv6 = 8,
    /// A transport protocol.
    Protocol = 12,
    /// A port.
    Port = 13,
    /// Four bytes.
    Word = 19,
}

impl Part {
    /// Bytes it means; in a key each part is filled up to whole words.
    fn length(self) -> u32 {
        match self {
            Self::Ipv4 | Self::Word => 4,
            Self::Ipv6 => 16,
            Self::Protocol => 1,
            Self::Port => 2,
        }
    }

    fn padded(self) -> u32 {
        self.length().next_multiple_of(4)
    }
}

/// What elements carry beside their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Nothing: a set.
    Nothing,
    /// A value: a map.
    Parts(&'a [Part]),
    /// A verdict: a map of verdicts.
    Verdict,
}

/// How a set comes by its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Written by us; each key is one value.
    Exact,
    /// Written by us; the last part of a key may be a range.
    Ranges,
    /// Written by rules, with a time to live; at most so many.
    Dynamic(u32),
}

/// A set or map to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSet<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its number in the batch, not 0.
    pub id: u32,
    /// The parts of its key.
    pub key: &'a [Part],
    /// What its elements carry.
    pub data: Data<'a>,
    /// How it comes by elements.
    pub kind: Kind,
}

/// What an element carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Nothing,
    /// Bytes, parts filled up to whole words.
    Bytes(Vec<u8>),
    /// A verdict.
    Verdict(Verdict),
}

/// An element with a time to live, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Its key.
    pub key: Vec<u8>,
    /// Its data.
    pub data: Vec<u8>,
    /// How long it lives, in milliseconds.
    pub timeout_ms: u64,
    /// How long it lives from now on, in milliseconds.
    pub left_ms: u64,
}

/// An encoded element, to be gathered in lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element(Attributes);

fn value(bytes: &[u8]) -> Attributes {
    Attributes::new().attr(NFTA_DATA_VALUE, bytes)
}

impl Element {
    /// A key with what it carries.
    pub fn new(key: &[u8], carried: &Value) -> Self {
        let element = Attributes::new().nested(NFTA_SET_ELEM_KEY, value(key));
        Self(match carried {
            Value::Nothing => element,
            Value::Bytes(bytes) => element.nested(NFTA_SET_ELEM_DATA, value(bytes)),
            Value::Verdict(verdict) => element.nested(NFTA_SET_ELEM_DATA, encode_verdict(verdict)),
        })
    }

    /// The keys from `first` to `last`, part by part.
    pub fn range(first: &[u8], last: &[u8]) -> Self {
        Self(
            Attributes::new()
                .nested(NFTA_SET_ELEM_KEY, value(first))
                .nested(NFTA_SET_ELEM_KEY_END, value(last)),
        )
    }

    /// An element of a dynamic map with the time it has left.
    pub fn timed(timed: &Timed) -> Self {
        Self(
            Self::new(&timed.key, &Value::Bytes(timed.data.clone()))
                .0
                .attr(NFTA_SET_ELEM_TIMEOUT, &timed.timeout_ms.to_be_bytes())
                .attr(NFTA_SET_ELEM_EXPIRATION, &timed.left_ms.to_be_bytes()),
        )
    }
}

/// Reads the elements of one listing message.
pub fn read_timed(body: &[u8]) -> Vec<Timed> {
    let read = |element: &[u8]| {
        let bytes = |kind| attribute(attribute(element, kind)?, NFTA_DATA_VALUE).map(<[u8]>::to_vec);
        let number = |kind| attribute(element, kind).and_then(read_be64);
        Some(Timed {
            key: bytes(NFTA_SET_ELEM_KEY)?,
            data: bytes(NFTA_SET_ELEM_DATA)?,
            timeout_ms: number(NFTA_SET_ELEM_TIMEOUT)?,
            left_ms: number(NFTA_SET_ELEM_EXPIRATION)?,
        })
    };
    let list = body
        .get(4..)
        .and_then(|body| attribute(body, NFTA_SET_ELEM_LIST_ELEMENTS));
    let elements = attributes(list.unwrap_or_default()).filter(|(kind, _)| *kind == NFTA_LIST_ELEM);
    elements.filter_map(|(_, element)| read(element)).collect()
}

impl Batch {
    /// Makes a set or map unless it exists.
    pub fn add_set(&mut self, family: Family, table: &str, set: &NewSet<'_>) {
        let length = |parts: &[Part]| parts.iter().map(|part| part.padded()).sum();
        let (mut flags, mut desc) = (0, Attributes::new());
        match set.kind {
            Kind::Exact => {}
            Kind::Ranges => {
                flags |= NFT_SET_INTERVAL | NFT_SET_CONCAT;
                let fields = set.key.iter().fold(Attributes::new(), |list, part| {
                    let field = Attributes::new().attr_be32(NFTA_SET_FIELD_LEN, part.length());
                    list.nested(NFTA_LIST_ELEM, field)
                });
                desc = desc.nested(NFTA_SET_DESC_CONCAT, fields);
            }
            Kind::Dynamic(size) => {
                flags |= NFT_SET_TIMEOUT | NFT_SET_EVAL;
                desc = desc.attr_be32(NFTA_SET_DESC_SIZE, size);
            }
        }
        let mut message = start(NFT_MSG_NEWSET, NLM_F_CREATE, family)
            .attr_str(NFTA_SET_TABLE, table)
            .attr_str(NFTA_SET_NAME, set.name)
            .attr(NFTA_SET_ID, &set.id.to_be_bytes())
            .attr(NFTA_SET_KEY_TYPE, &type_number(set.key).to_be_bytes())
            .attr(NFTA_SET_KEY_LEN, &u32::to_be_bytes(length(set.key)));
        match set.data {
            Data::Nothing => {}
            Data::Parts(parts) => {
                flags |= NFT_SET_MAP;
                message = message
                    .attr(NFTA_SET_DATA_TYPE, &type_number(parts).to_be_bytes())
                    .attr(NFTA_SET_DATA_LEN, &u32::to_be_bytes(length(parts)));
            }
            Data::Verdict => {
                flags |= NFT_SET_MAP;
                message = message.attr(NFTA_SET_DATA_TYPE, &NFT_DATA_VERDICT.to_be_bytes());
            }
        }
        message = message.attr(NFTA_SET_FLAGS, &flags.to_be_bytes());
        if !desc.bytes().is_empty() {
            message = message.nested(NFTA_SET_DESC, desc);
        }
        self.push(message);
    }

    /// Adds elements, as many to a message as fit.
    pub fn add_elements(&mut self, family: Family, table: &str, set: &str, elements: impl Iterator<Item = Element>) {
        self.push_elements(NFT_MSG_NEWSETELEM, NLM_F_CREATE, (family, table, set), elements);
    }

    /// Deletes elements, which must be there.
    pub fn delete_elements(&mut self, family: Family, table: &str, set: &str, elements: impl Iterator<Item = Element>) {
        self.push_elements(NFT_MSG_DELSETELEM, 0, (family, table, set), elements);
    }

    fn push_elements(
        &mut self,
        kind: u16,
        flags: u16,
        (family, table, set): (Family, &str, &str),
        elements: impl Iterator<Item = Element>,
    ) {
        let mut list = Attributes::new();
        let mut push = |list: Attributes| {
            let message = elements_of(kind, flags, family, table, set);
            self.push(message.nested(NFTA_SET_ELEM_LIST_ELEMENTS, list));
        };
        for element in elements {
            if list.bytes().len() + element.0.bytes().len() > LIST_BYTES_MAX {
                push(std::mem::take(&mut list));
            }
            list = list.nested(NFTA_LIST_ELEM, element.0);
        }
        if !list.bytes().is_empty() {
            push(list);
        }
    }
}

/// A message about the elements of a set.
pub(super) fn elements_of(kind: u16, flags: u16, family: Family, table: &str, set: &str) -> crate::codec::Message {
    start(kind, flags, family)
        .attr_str(NFTA_SET_ELEM_LIST_TABLE, table)
        .attr_str(NFTA_SET_ELEM_LIST_SET, set)
}

/// nft's number of a type of several parts: six bits each.
fn type_number(parts: &[Part]) -> u32 {
    parts.iter().fold(0, |number, part| (number << 6) | *part as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn golden_bytes_of_an_element() {
        let mut batch = Batch::new();
        let element = Element::new(&[10, 0, 0, 1], &Value::Bytes(vec![0, 80, 0, 0]));
        batch.add_elements(Family::Ipv4, "t", "s", std::iter::once(element));
        assert_eq!(
            batch.messages()[0].encode(1, 0),
            [
                &[68, 0, 0, 0, 12, 10, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0][..], // NEWSETELEM, create
                &[2, 0, 0, 0],                                            // ip, version 0
                &[6, 0, 1, 0, b't', 0, 0, 0],
                &[6, 0, 2, 0, b's', 0, 0, 0],
                &[32, 0, 3, 0x80, 28, 0, 1, 0x80],          // elements, the first
                &[12, 0, 1, 0x80, 8, 0, 1, 0, 10, 0, 0, 1], // its key
                &[12, 0, 2, 0x80, 8, 0, 1, 0, 0, 80, 0, 0], // its data
            ]
            .concat()
        );
    }

    #[test]
    fn many_elements_are_several_messages_that_fit() {
        let mut batch = Batch::new();
        let elements = (0u32..5_000).map(|number| Element::new(&number.to_be_bytes(), &Value::Nothing));
        batch.add_elements(Family::Ipv4, "t", "s", elements);
        let sizes: Vec<usize> = batch
            .messages()
            .iter()
            .map(|message| message.encode(0, 0).len())
            .collect();
        assert!(
            sizes.len() > 1 && sizes.iter().all(|size| *size < 64 << 10),
            "{sizes:?}"
        );
        assert_eq!(sizes.iter().map(|size| (size - 40) / 16).sum::<usize>(), 5_000);
    }

    #[test]
    fn timed_elements_read_back() {
        let timed = Timed {
            key: vec![1, 2, 3, 4],
            data: vec![5, 6, 7, 8],
            timeout_ms: 10_000,
            left_ms: 9_000,
        };
        let mut batch = Batch::new();
        batch.add_elements(Family::Ipv4, "t", "s", std::iter::once(Element::timed(&timed)));
        let bytes = batch.messages()[0].encode(0, 0);
        assert_eq!(read_timed(&bytes[crate::codec::HEADER_BYTES..]), [timed]);
        assert_eq!(read_timed(&[]), []);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = read_timed(&bytes);
        }
    }
}
