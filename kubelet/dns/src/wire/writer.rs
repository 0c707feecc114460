//! Writing an answer. Names are compressed; what does not fit is left out whole, and the answer says so. Pure.

use super::name::Name;
use super::query::Query;
use super::reply::names_in;
use super::{CLASS_IN, DNSSEC_OK, HEADER_BYTES, flag, kind};

/// How many places names may point to.
const PLACES: usize = 32;
/// Bytes of an OPT record without options.
const OPT_BYTES: usize = 11;
/// What a pointer can reach.
const POINTER_REACH: usize = 0x4000;

/// The parts of an answer that hold records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// What was asked.
    Answer = 0,
    /// Who says so.
    Authority = 1,
    /// What will be asked next.
    Additional = 2,
}

/// An answer under construction.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
    flags: u16,
    rcode: u16,
    counts: [u16; 3],
    places: [u16; PLACES],
    placed: usize,
    edns: Option<(u16, bool)>,
}

impl<'a> Writer<'a> {
    /// Begins the answer to a question in `out`, whose capacity is kept. `limit` bounds the whole message, in bytes; `own_size` is
    /// the largest datagram we take.
    pub fn begin(out: &'a mut Vec<u8>, query: &Query, limit: usize, own_size: u16) -> Self {
        out.clear();
        out.extend_from_slice(&query.id.to_be_bytes());
        out.extend_from_slice(&[0; HEADER_BYTES - 2]);
        let edns = query.edns.map(|edns| (own_size, edns.dnssec_ok));
        let mut writer = Self {
            limit: limit.min(usize::from(u16::MAX)) - if edns.is_some() { OPT_BYTES } else { 0 },
            out,
            flags: flag::RESPONSE
                | flag::RECURSION_AVAILABLE
                | query.flags & (flag::RECURSION_DESIRED | flag::CHECKING_DISABLED),
            rcode: 0,
            counts: [0; 3],
            places: [0; PLACES],
            placed: 0,
            edns,
        };
        writer.name(query.name.wire());
        writer.out.extend_from_slice(&query.kind.to_be_bytes());
        writer.out.extend_from_slice(&query.class.to_be_bytes());
        writer
    }

    /// The code of the answer.
    pub fn code(&mut self, rcode: u16) {
        self.rcode = rcode;
    }

    /// Flags beside those every answer has.
    pub fn flag(&mut self, flags: u16) {
        self.flags |= flags;
    }

    /// Takes flags back.
    pub fn unflag(&mut self, flags: u16) {
        self.flags &= !flags;
    }

    /// Adds a record of the Internet's class. Names in the data of old types are compressed. False when it does not fit: then
    /// nothing of it is there, and unless it was an additional one the answer says that it is not whole.
    pub fn record(&mut self, section: Section, owner: &[u8], kind: u16, ttl: u32, data: &[u8]) -> bool {
        self.record_of_class(section, owner, (kind, CLASS_IN), ttl, data)
    }

    /// The same for any class.
    pub fn record_of_class(
        &mut self,
        section: Section,
        owner: &[u8],
        (kind, class): (u16, u16),
        ttl: u32,
        data: &[u8],
    ) -> bool {
        let (start, placed) = (self.out.len(), self.placed);
        self.name(owner);
        self.out.extend_from_slice(&kind.to_be_bytes());
        self.out.extend_from_slice(&class.to_be_bytes());
        self.out.extend_from_slice(&ttl.to_be_bytes());
        let length_at = self.out.len();
        self.out.extend_from_slice(&[0; 2]);
        self.data(kind, data);
        let length = self.out.len() - length_at - 2;
        if self.out.len() > self.limit {
            self.out.truncate(start);
            self.placed = placed;
            if section != Section::Additional {
                self.flags |= flag::TRUNCATED;
            }
            return false;
        }
        self.out[length_at..length_at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        self.counts[section as usize] += 1;
        true
    }

    /// Takes every record back.
    pub fn clear(&mut self, query: &Query) {
        self.out.truncate(HEADER_BYTES + query.name.wire().len() + 4);
        let end = self.out.len();
        self.placed = self.places[..self.placed].partition_point(|place| usize::from(*place) < end);
        self.counts = [0; 3];
        self.flags &= !(flag::TRUNCATED | flag::AUTHORITATIVE);
    }

    /// How many records of a section there are.
    pub fn count(&self, section: Section) -> u16 {
        self.counts[section as usize]
    }

    /// Whether records were left out that the client needs.
    pub fn is_truncated(&self) -> bool {
        self.flags & flag::TRUNCATED != 0
    }

    /// Writes what stands in front and behind. Returns the code.
    pub fn finish(self) -> u16 {
        let extended = (self.rcode >> 4) as u8;
        let mut additional = self.counts[2];
        if let Some((size, dnssec_ok)) = self.edns {
            additional += 1;
            let bits = u32::from(extended) << 24 | if dnssec_ok { DNSSEC_OK } else { 0 };
            self.out.push(0);
            self.out.extend_from_slice(&kind::OPT.to_be_bytes());
            self.out.extend_from_slice(&size.to_be_bytes());
            self.out.extend_from_slice(&bits.to_be_bytes());
            self.out.extend_from_slice(&[0; 2]);
        }
        let flags = self.flags | self.rcode & flag::RCODE;
        let words = [flags, 1, self.counts[0], self.counts[1], additional];
        for (word, place) in words.iter().zip(self.out[2..HEADER_BYTES].chunks_exact_mut(2)) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        self.rcode
    }

    fn data(&mut self, kind: u16, data: &[u8]) {
        // What compression may touch (RFC 3597 §4): types of RFC 1035, and no newer ones.
        let Some((skipped, names)) = names_in(kind).filter(|_| kind <= kind::MX) else {
            self.out.extend_from_slice(data);
            return;
        };
        let mut at = skipped;
        self.out.extend_from_slice(&data[..skipped.min(data.len())]);
        for _ in 0..names {
            let Some((name, end)) = Name::read(data, at) else { break };
            self.name(name.wire());
            at = end;
        }
        self.out.extend_from_slice(data.get(at..).unwrap_or_default());
    }

    fn name(&mut self, wire: &[u8]) {
        let mut rest = wire;
        while let Some(&length) = rest.first().filter(|length| **length != 0) {
            let known = self.places[..self.placed]
                .iter()
                .find(|place| is_at(self.out, usize::from(**place), rest));
            if let Some(place) = known {
                self.out.extend_from_slice(&(0xc000 | place).to_be_bytes());
                return;
            }
            let at = self.out.len();
            if at < POINTER_REACH && self.placed < PLACES {
                self.places[self.placed] = at as u16;
                self.placed += 1;
            }
            let (label, behind) = rest.split_at((usize::from(length) + 1).min(rest.len()));
            self.out.extend_from_slice(label);
            rest = behind;
        }
        self.out.push(0);
    }
}

/// Whether the name at `at` of a message we wrote is this one, whatever the case of its letters.
fn is_at(message: &[u8], mut at: usize, mut wire: &[u8]) -> bool {
    loop {
        let Some(&head) = message.get(at) else { return false };
        if head >= 0xc0 {
            at = usize::from(head & 0x3f) << 8 | usize::from(message[at + 1]);
            continue;
        }
        let length = usize::from(head) + 1;
        let (Some(there), Some(here)) = (message.get(at..at + length), wire.get(..length)) else {
            return false;
        };
        if !there.eq_ignore_ascii_case(here) {
            return false;
        }
        if head == 0 {
            return true;
        }
        at += length;
        wire = &wire[length..];
    }
}

/// The answer to what could not be read: a header.
pub fn refuse(out: &mut Vec<u8>, id: u16, flags: u16, rcode: u16) {
    out.clear();
    let kept = flag::OPCODE | flag::RECURSION_DESIRED;
    let flags = flag::RESPONSE | flag::RECURSION_AVAILABLE | flags & kept | rcode;
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
}
