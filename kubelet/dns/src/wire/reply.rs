//! Asking a resolver, and reading what it answers into records without pointers, which can be kept, counted and written into
//! another message. Pure.

use super::name::Name;
use super::query::Query;
use super::writer::{Section, Writer};
use super::{CLASS_IN, DNSSEC_OK, HEADER_BYTES, flag, kind, rcode, u16_at, u32_at};

/// The most bytes the records of an answer may have without pointers. (Pointers could blow 64 KiB up to megabytes.)
const RECORDS_BYTES_MAX: usize = 128 << 10;
/// Type, class, TTL and length of data.
const FIXED_BYTES: usize = 10;

/// A question to a resolver.
#[derive(Clone, Debug)]
pub struct Question {
    /// With small letters.
    pub name: Name,
    /// The type asked for.
    pub kind: u16,
    /// Whether signatures are wanted.
    pub dnssec_ok: bool,
    /// Whether answers whose signatures are wrong are wanted.
    pub checking_disabled: bool,
}

impl Question {
    /// What another question must equal to have the same answer.
    pub fn key(&self) -> Box<[u8]> {
        let [high, low] = self.kind.to_be_bytes();
        let bits = u8::from(self.dnssec_ok) << 1 | u8::from(self.checking_disabled);
        [self.name.wire(), &[high, low, bits]].concat().into()
    }

    /// The message that asks, with the datagram we take unless the resolver knows no EDNS. The bits of `case` say which letters of the
    /// name are large: an answer repeats them, and who has to guess the answer must guess them, too.
    pub fn ask(&self, id: u16, size: Option<u16>, case: u64) -> Vec<u8> {
        let mut flags = flag::RECURSION_DESIRED;
        if self.checking_disabled {
            flags |= flag::CHECKING_DISABLED;
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + self.name.wire().len() + 15);
        for word in [id, flags, 1, 0, 0, u16::from(size.is_some())] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend(cased(self.name.wire(), case));
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&CLASS_IN.to_be_bytes());
        if let Some(size) = size {
            out.push(0);
            out.extend_from_slice(&kind::OPT.to_be_bytes());
            out.extend_from_slice(&size.to_be_bytes());
            let bits = if self.dnssec_ok { DNSSEC_OK } else { 0 };
            out.extend_from_slice(&bits.to_be_bytes());
            out.extend_from_slice(&[0; 2]);
        }
        out
    }

    /// Writes the question in a message with small letters, so that names that point to it have them, and says whether its letters
    /// were those it was asked with. Whether it is this question at all [`Reply::read`] finds out.
    pub fn settle(&self, message: &mut [u8], case: u64) -> bool {
        let name = self.name.wire();
        let there = message.get_mut(HEADER_BYTES..HEADER_BYTES + name.len());
        let Some(there) = there.filter(|there| there.eq_ignore_ascii_case(name)) else {
            return true;
        };
        let is_same = there.iter().copied().eq(cased(name, case));
        there.copy_from_slice(name);
        is_same
    }
}

/// What a resolver answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its code.
    pub rcode: u16,
    /// Whether it says that it checked signatures.
    pub authentic: bool,
    /// How many records each section has.
    pub counts: [u16; 3],
    /// The records: owner, type, class, TTL, length and data, in order.
    pub records: Box<[u8]>,
}

/// Why a message is no answer to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It answers something else: whoever sent it, the answer may still come.
    Foreign,
    /// It cannot be read.
    Malformed,
    /// There is more by TCP.
    Truncated,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Whose it is, in wire form.
    pub owner: &'a [u8],
    /// Its type.
    pub kind: u16,
    /// Its class.
    pub class: u16,
    /// How long it holds, in seconds.
    pub ttl: u32,
    /// Its data, without pointers.
    pub data: &'a [u8],
}

/// Where names stand in the data of a type: bytes before them, and how many. What came later than RFC 3597 has no pointers.
pub(super) fn names_in(kind: u16) -> Option<(usize, usize)> {
    match kind {
        // NS, MD, MF, CNAME, MB, MG, MR, PTR, DNAME
        2..=5 | 7..=9 | 12 | kind::DNAME => Some((0, 1)),
        // SOA, MINFO, RP
        6 | 14 | 17 => Some((0, 2)),
        // MX, AFSDB, RT, KX
        15 | 18 | 21 | 36 => Some((2, 1)),
        // PX
        26 => Some((2, 2)),
        kind::SRV => Some((6, 1)),
        _ => None,
    }
}

impl Reply {
    /// The answer that nobody could give.
    pub fn failure() -> Self {
        Self {
            rcode: rcode::SERV_FAIL,
            authentic: false,
            counts: [0; 3],
            records: Box::default(),
        }
    }

    /// Reads the answer to `question`, asked with this id.
    pub fn read(message: &[u8], id: u16, question: &Question) -> Result<Self, Unfit> {
        let flags = u16_at(message, 2).ok_or(Unfit::Foreign)?;
        if u16_at(message, 0) != Some(id) || flags & flag::RESPONSE == 0 {
            return Err(Unfit::Foreign);
        }
        let code = flags & flag::RCODE;
        // Who did not understand need not repeat what.
        if u16_at(message, 4) == Some(0) && matches!(code, rcode::FORM_ERR | rcode::NOT_IMP | rcode::REFUSED) {
            return Ok(Self {
                rcode: code,
                ..Self::failure()
            });
        }
        let at = repeats(message, question).ok_or(Unfit::Foreign)?;
        if flags & flag::TRUNCATED != 0 {
            return Err(Unfit::Truncated);
        }
        Self::read_records(message, at, flags).ok_or(Unfit::Malformed)
    }

    fn read_records(message: &[u8], mut at: usize, flags: u16) -> Option<Self> {
        let mut counts = [0; 3];
        let mut records = Vec::new();
        let mut rcode = flags & flag::RCODE;
        for (section, count) in counts.iter_mut().enumerate() {
            for _ in 0..u16_at(message, 6 + 2 * section)? {
                let (owner, fixed) = Name::read(message, at)?;
                let length = usize::from(u16_at(message, fixed + 8)?);
                at = fixed + FIXED_BYTES + length;
                let data = message.get(fixed + FIXED_BYTES..at)?;
                let kind = u16_at(message, fixed)?;
                if kind == kind::OPT {
                    rcode |= u16::from(message[fixed + 4]) << 4;
                    continue;
                }
                records.extend_from_slice(owner.wire());
                records.extend_from_slice(&message[fixed..fixed + 4]);
                // What is above 2^31 is nothing (RFC 2181 §8).
                let ttl = u32_at(message, fixed + 4).filter(|ttl| *ttl < 1 << 31).unwrap_or(0);
                records.extend_from_slice(&ttl.to_be_bytes());
                push_data(&mut records, message, at - length, data, kind)?;
                *count += 1;
                if records.len() > RECORDS_BYTES_MAX {
                    return None;
                }
            }
        }
        records.shrink_to_fit();
        Some(Self {
            rcode,
            authentic: flags & flag::AUTHENTIC != 0,
            counts,
            records: records.into(),
        })
    }

    /// Its records, each with its section.
    pub fn records(&self) -> impl Iterator<Item = (Section, Record<'_>)> {
        let [answers, authorities, _] = self.counts.map(usize::from);
        Records(&self.records).enumerate().map(move |(number, record)| {
            let section = match number {
                number if number < answers => Section::Answer,
                number if number < answers + authorities => Section::Authority,
                _ => Section::Additional,
            };
            (section, record)
        })
    }

    /// Writes it, `age` seconds old.
    pub fn write(&self, writer: &mut Writer<'_>, age: u32) {
        writer.code(self.rcode);
        if self.authentic {
            writer.flag(flag::AUTHENTIC);
        }
        for (section, record) in self.records() {
            let class = (record.kind, record.class);
            let ttl = record.ttl.saturating_sub(age);
            if !writer.record_of_class(section, record.owner, class, ttl, record.data) {
                break;
            }
        }
    }

    /// How long it may be kept, in seconds: as long as every answer holds; without any, as long as the zone says
    /// (RFC 2308 §5: the SOA's own TTL, or its minimum, if that is less); 0 where nothing says so.
    pub fn seconds(&self) -> u32 {
        let is_negative = self.counts[0] == 0 || self.rcode == rcode::NX_DOMAIN;
        let answers = self.records().filter(|(section, _)| *section == Section::Answer);
        let least = answers.map(|(_, record)| record.ttl).min();
        if !is_negative {
            return least.unwrap_or(0);
        }
        let soa = self
            .records()
            .find(|(section, record)| *section == Section::Authority && record.kind == kind::SOA);
        let minimum = soa.and_then(|(_, soa)| {
            let minimum = soa.data.last_chunk::<4>()?;
            Some(soa.ttl.min(u32::from_be_bytes(*minimum)))
        });
        minimum.map_or(0, |minimum| minimum.min(least.unwrap_or(minimum)))
    }
}

/// A name whose letters are large where the bits say so, round and round. (Lengths of labels are no letters.)
fn cased(name: &[u8], case: u64) -> impl Iterator<Item = u8> {
    let bit = move |at: usize| case >> (at % 64) & 1 == 1;
    let cased = move |(at, byte): (usize, &u8)| if bit(at) { byte.to_ascii_uppercase() } else { *byte };
    name.iter().enumerate().map(cased)
}

/// Where the records of an answer begin, if it repeats the question, which never has pointers.
fn repeats(message: &[u8], question: &Question) -> Option<usize> {
    let (name, at) = Name::read(message, HEADER_BYTES).filter(|_| u16_at(message, 4) == Some(1))?;
    let same = name.wire().eq_ignore_ascii_case(question.name.wire())
        && at == HEADER_BYTES + name.wire().len()
        && u16_at(message, at)? == question.kind
        && u16_at(message, at + 2)? == CLASS_IN;
    same.then_some(at + 4)
}

fn push_data(records: &mut Vec<u8>, message: &[u8], start: usize, data: &[u8], kind: u16) -> Option<()> {
    let length_at = records.len();
    records.extend_from_slice(&[0; 2]);
    let end = start + data.len();
    match names_in(kind) {
        Some((skipped, names)) => {
            records.extend_from_slice(data.get(..skipped)?);
            let mut at = start + skipped;
            for _ in 0..names {
                let (name, next) = Name::read(message, at).filter(|(_, next)| *next <= end)?;
                records.extend_from_slice(name.wire());
                at = next;
            }
            records.extend_from_slice(message.get(at..end)?);
        }
        None => records.extend_from_slice(data),
    }
    let length = u16::try_from(records.len() - length_at - 2).ok()?;
    records[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    Some(())
}

/// The records of a [`Reply`].
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let mut owner = 0;
        while let Some(length) = self.0.get(owner).filter(|length| **length != 0) {
            owner += usize::from(*length) + 1;
        }
        let fixed = owner + 1;
        let length = usize::from(u16_at(self.0, fixed + 8)?);
        let end = fixed + FIXED_BYTES + length;
        let record = Record {
            owner: self.0.get(..fixed)?,
            kind: u16_at(self.0, fixed)?,
            class: u16_at(self.0, fixed + 2)?,
            ttl: u32_at(self.0, fixed + 4)?,
            data: self.0.get(fixed + FIXED_BYTES..end)?,
        };
        self.0 = &self.0[end..];
        Some(record)
    }
}

/// The question a client's query comes to, at this name.
pub fn question(query: &Query, name: Name) -> Question {
    Question {
        name,
        kind: query.kind,
        dnssec_ok: query.dnssec_ok(),
        checking_disabled: query.flags & flag::CHECKING_DISABLED != 0,
    }
}
