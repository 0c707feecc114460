//! Traffic control: token buckets, and the redirection of what arrives on an interface to another.

use super::codec::{Attributes, Message, attribute, read_text, read_u32};
use super::socket::{Error, Socket};
use super::wire::{NLM_F_CREATE, NLM_F_EXCL};

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TCA_U32_CLASSID: u16 = 1;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_INGRESS: u32 = 0xffff_fff1;
/// `ffff:`, the handle of an ingress discipline.
const INGRESS_HANDLE: u32 = 0xffff_0000;
/// `1:`, the handle of our token buckets.
const ROOT_HANDLE: u32 = 0x0001_0000;
const TC_ACT_STOLEN: i32 = 4;
const TCA_EGRESS_REDIR: i32 = 1;
const TC_U32_TERMINAL: u8 = 1;
const ETH_P_ALL: u16 = 3;

/// How long a packet may wait, in milliseconds (contract §4.3).
const LATENCY_MS: u64 = 25;

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Rate in bytes per second.
    pub rate: u64,
    /// Burst in bytes.
    pub burst: u32,
}

impl TokenBucket {
    /// Bytes that may wait: what passes within the latency, and a burst.
    pub fn limit(&self) -> u32 {
        let waiting = u128::from(self.rate) * u128::from(LATENCY_MS) / 1000 + u128::from(self.burst);
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// The burst as time, in the kernel's ticks of 64 ns.
    fn buffer_ticks(&self) -> u32 {
        let nanoseconds = u128::from(self.burst) * 1_000_000_000 / u128::from(self.rate.max(1));
        u32::try_from(nanoseconds >> 6).unwrap_or(u32::MAX)
    }
}

/// `struct tcmsg`.
fn fixed(index: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut bytes = [0u8; 20];
    for (position, value) in [(4, index), (8, handle), (12, parent), (16, info)] {
        bytes[position..position + 4].copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// Makes a token bucket the discipline of what leaves by an interface.
pub fn add_token_bucket(index: u32, bucket: TokenBucket) -> Message {
    let rate = u32::try_from(bucket.rate).unwrap_or(u32::MAX);
    // struct tc_tbf_qopt: two struct tc_ratespec, whose last four bytes are the rate, then limit, buffer, mtu.
    let mut parameters = [0u8; 36];
    parameters[8..12].copy_from_slice(&rate.to_ne_bytes());
    parameters[24..28].copy_from_slice(&bucket.limit().to_ne_bytes());
    parameters[28..32].copy_from_slice(&bucket.buffer_ticks().to_ne_bytes());
    let mut options = Attributes::new()
        .attr(TCA_TBF_PARMS, &parameters)
        .attr(TCA_TBF_BURST, &bucket.burst.to_ne_bytes());
    if bucket.rate > u64::from(u32::MAX) {
        options = options.attr(TCA_TBF_RATE64, &bucket.rate.to_ne_bytes());
    }
    Message::new(
        RTM_NEWQDISC,
        NLM_F_CREATE | NLM_F_EXCL,
        &fixed(index, ROOT_HANDLE, TC_H_ROOT, 0),
    )
    .attr_str(TCA_KIND, "tbf")
    .nested(TCA_OPTIONS, options)
}

/// Makes what arrives on an interface pass through filters.
pub fn add_ingress(index: u32) -> Message {
    Message::new(
        RTM_NEWQDISC,
        NLM_F_CREATE | NLM_F_EXCL,
        &fixed(index, INGRESS_HANDLE, TC_H_INGRESS, 0),
    )
    .attr_str(TCA_KIND, "ingress")
}

/// Sends everything that arrives on an interface out by another.
pub fn redirect_all(index: u32, to: u32) -> Message {
    // struct tc_u32_sel with one struct tc_u32_key that masks everything away.
    let mut selector = [0u8; 32];
    selector[0] = TC_U32_TERMINAL;
    selector[2] = 1;
    // struct tc_mirred: index, capabilities, action, two counts, what to do, and the interface.
    let mut parameters = [0u8; 28];
    for (position, value) in [(8, TC_ACT_STOLEN), (20, TCA_EGRESS_REDIR), (24, to as i32)] {
        parameters[position..position + 4].copy_from_slice(&value.to_ne_bytes());
    }
    let action = Attributes::new()
        .attr_str(TCA_ACT_KIND, "mirred")
        .nested(TCA_ACT_OPTIONS, Attributes::new().attr(TCA_MIRRED_PARMS, &parameters));
    let options = Attributes::new()
        .attr(TCA_U32_CLASSID, &(ROOT_HANDLE | 1).to_ne_bytes())
        .attr(TCA_U32_SEL, &selector)
        .nested(TCA_U32_ACT, Attributes::new().nested(1, action));
    let info = (1 << 16) | u32::from(ETH_P_ALL.to_be());
    Message::new(
        RTM_NEWTFILTER,
        NLM_F_CREATE | NLM_F_EXCL,
        &fixed(index, 0, INGRESS_HANDLE, info),
    )
    .attr_str(TCA_KIND, "u32")
    .nested(TCA_OPTIONS, options)
}

/// The rate of the token bucket in the body of an `RTM_NEWQDISC` message.
fn read_rate(body: &[u8]) -> Option<u64> {
    let attributes = body.get(20..)?;
    if read_text(attribute(attributes, TCA_KIND)?) != "tbf" {
        return None;
    }
    let options = attribute(attributes, TCA_OPTIONS)?;
    let large = attribute(options, TCA_TBF_RATE64)
        .and_then(|value| value.try_into().ok())
        .map(u64::from_ne_bytes);
    large.or_else(|| read_u32(attribute(options, TCA_TBF_PARMS)?, 8).map(u64::from))
}

impl Socket {
    /// The rate in bytes per second of the token bucket on an interface, if it has one.
    pub fn token_bucket_rate(&mut self, index: u32) -> Result<Option<u64>, Error> {
        let replies = self.dump(&Message::new(RTM_GETQDISC, 0, &fixed(index, 0, 0, 0)))?;
        let own = replies.iter().filter(|reply| read_u32(&reply.body, 4) == Some(index));
        Ok(own.filter_map(|reply| read_rate(&reply.body)).next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_upstreams() {
        // 8 Mbit/s and 800 kbit: 1 MB/s, 100 kB; 25 ms of that and the burst wait.
        let bucket = TokenBucket {
            rate: 1_000_000,
            burst: 100_000,
        };
        assert_eq!(bucket.limit(), 125_000);
        assert_eq!(bucket.buffer_ticks(), 1_562_500);
        let huge = TokenBucket {
            rate: u64::MAX,
            burst: u32::MAX,
        };
        assert_eq!((huge.limit(), huge.buffer_ticks()), (u32::MAX, 0));
    }

    #[test]
    fn rates_read_back() {
        for rate in [1, 1_000_000, u64::from(u32::MAX) + 1] {
            let bytes = add_token_bucket(7, TokenBucket { rate, burst: 1 }).encode(0, 0);
            assert_eq!(read_rate(&bytes[16..]), Some(rate));
        }
        assert_eq!(read_rate(&add_ingress(7).encode(0, 0)[16..]), None);
    }
}
