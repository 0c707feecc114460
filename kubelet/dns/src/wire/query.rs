//! Reading what a client asks. Pure.

use super::name::Name;
use super::{DNSSEC_OK, HEADER_BYTES, flag, kind, rcode, u16_at, u32_at};

/// What a client says of itself (RFC 6891).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// The largest datagram it takes, in bytes.
    pub size: u16,
    /// Its version; we know 0.
    pub version: u8,
    /// Whether it wants what DNSSEC needs.
    pub dnssec_ok: bool,
}

/// One question.
#[derive(Clone, Debug)]
pub struct Query {
    /// What the client knows its question by.
    pub id: u16,
    /// The flags of its header.
    pub flags: u16,
    /// The name as asked.
    pub name: Name,
    /// The name with small letters.
    pub lower: Name,
    /// The type asked for.
    pub kind: u16,
    /// The class asked for.
    pub class: u16,
    /// What the client says of itself.
    pub edns: Option<Edns>,
}

/// What is no question we can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Nothing is to be said: less than a header, or an answer. (Answering answers is how loops begin.)
    Silent,
    /// A header with this code is the answer.
    Code {
        /// Of the question.
        id: u16,
        /// Of the question.
        flags: u16,
        /// What is wrong.
        rcode: u16,
    },
}

impl Query {
    /// Reads a message.
    pub fn read(message: &[u8]) -> Result<Self, Problem> {
        let header = message.get(..HEADER_BYTES).ok_or(Problem::Silent)?;
        let (id, flags) = (
            u16::from_be_bytes([header[0], header[1]]),
            u16::from_be_bytes([header[2], header[3]]),
        );
        if flags & flag::RESPONSE != 0 {
            return Err(Problem::Silent);
        }
        let problem = |rcode| Problem::Code { id, flags, rcode };
        if flags & flag::OPCODE != 0 {
            return Err(problem(rcode::NOT_IMP));
        }
        Self::read_body(message, id, flags).ok_or(problem(rcode::FORM_ERR))
    }

    fn read_body(message: &[u8], id: u16, flags: u16) -> Option<Self> {
        let counts = [
            u16_at(message, 4)?,
            u16_at(message, 6)?,
            u16_at(message, 8)?,
            u16_at(message, 10)?,
        ];
        // One question; beside it what NOTIFY and IXFR bring, and OPT with a signature: CoreDNS's bounds. Reading hundreds of records,
        // each owner a chain of pointers, would cost twenty times what an answer does.
        if counts[0] != 1 || counts[1] > 1 || counts[2] > 1 || counts[3] > 2 {
            return None;
        }
        let (name, at) = Name::read(message, HEADER_BYTES)?;
        let mut query = Self {
            id,
            flags,
            lower: name.lower(),
            name,
            kind: u16_at(message, at)?,
            class: u16_at(message, at + 2)?,
            edns: None,
        };
        let mut at = at + 4;
        let before = counts[1] + counts[2];
        let all = before + counts[3];
        for number in 0..all {
            let (owner, fixed) = Name::read(message, at)?;
            let length = usize::from(u16_at(message, fixed + 8)?);
            at = fixed + 10 + length;
            message.get(..at)?;
            if u16_at(message, fixed)? != kind::OPT || number < before {
                continue;
            }
            // There is one at most, and it is the root's.
            if query.edns.is_some() || owner.wire() != [0] {
                return None;
            }
            let bits = u32_at(message, fixed + 4)?;
            query.edns = Some(Edns {
                size: u16_at(message, fixed + 2)?,
                version: (bits >> 16) as u8,
                dnssec_ok: bits & DNSSEC_OK != 0,
            });
        }
        Some(query)
    }

    /// The largest answer by UDP, in bytes: what the client takes, and no more than `most`; 512 for who does not say.
    pub fn datagram_bytes(&self, most: u16) -> usize {
        usize::from(self.edns.map_or(512, |edns| edns.size.clamp(512, most.max(512))))
    }

    /// Whether the client wants what DNSSEC needs.
    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }
}
