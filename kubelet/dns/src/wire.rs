//! The messages of DNS (RFC 1035, 6891): what of them a responder and a forwarder need, by hand, because nothing on the path of an
//! answer may allocate and because a general library costs more of the kubelet's size than all of this crate. Pure. The tests hold
//! it against hickory-proto.
//!
//! | module | owns |
//! |---|---|
//! | [`name`] | names in wire form |
//! | [`query`] | reading what a client asks |
//! | [`writer`] | writing an answer: compression, sizes, truncation |
//! | [`reply`] | reading what a resolver answers into records without pointers, and asking it |

pub mod name;
pub mod query;
pub mod reply;
pub mod writer;

pub use name::Name;
pub use query::{Edns, Problem, Query};
pub use reply::{Reply, Unfit};
pub use writer::{Section, Writer};

/// Types of records.
#[allow(missing_docs)]
pub mod kind {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const HINFO: u16 = 13;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
}

/// Codes of answers.
#[allow(missing_docs)]
pub mod rcode {
    pub const NO_ERROR: u16 = 0;
    pub const FORM_ERR: u16 = 1;
    pub const SERV_FAIL: u16 = 2;
    pub const NX_DOMAIN: u16 = 3;
    pub const NOT_IMP: u16 = 4;
    pub const REFUSED: u16 = 5;
    pub const BAD_VERS: u16 = 16;
}

/// The Internet's class.
pub const CLASS_IN: u16 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// Bits of a header's flags.
#[allow(missing_docs)]
pub mod flag {
    pub const RESPONSE: u16 = 0x8000;
    pub const OPCODE: u16 = 0x7800;
    pub const AUTHORITATIVE: u16 = 0x0400;
    pub const TRUNCATED: u16 = 0x0200;
    pub const RECURSION_DESIRED: u16 = 0x0100;
    pub const RECURSION_AVAILABLE: u16 = 0x0080;
    pub const AUTHENTIC: u16 = 0x0020;
    pub const CHECKING_DISABLED: u16 = 0x0010;
    pub const RCODE: u16 = 0x000f;
}
/// The bit of an OPT record's TTL that asks for DNSSEC.
pub const DNSSEC_OK: u32 = 0x8000;

/// Two bytes in network order.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Four bytes in network order.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
