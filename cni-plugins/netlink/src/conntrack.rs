//! Connection tracking entries, over ctnetlink: finding those of a port and deleting them.

mod flow;

pub use flow::{Flow, FlowFilter, delete_stale};

use std::net::IpAddr;

use super::codec::{Attributes, Message, attribute};
use super::socket::{Error, Reply, Socket};
use super::wire::{AF_INET, AF_INET6};
use crate::cidr;

const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_ZONE: u16 = 18;
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;
/// Compare protocol number and destination port of the original direction.
const FILTER_PROTO_AND_DST_PORT: u32 = 1 << 3 | 1 << 5;

/// UDP's protocol number.
pub const UDP: u8 = 17;

/// Which connections: by what their first packet was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginalTarget {
    /// IPv4 or IPv6.
    pub v4: bool,
    /// Protocol number.
    pub protocol: u8,
    /// Destination port.
    pub port: u16,
    /// Destination address; absent is any.
    pub addr: Option<IpAddr>,
}

impl OriginalTarget {
    fn matches(&self, tuple: &[u8]) -> bool {
        let protocol = attribute(tuple, CTA_TUPLE_PROTO).unwrap_or_default();
        let number = attribute(protocol, CTA_PROTO_NUM).and_then(|value| value.first().copied());
        let port = attribute(protocol, CTA_PROTO_DST_PORT).unwrap_or_default();
        let ip = attribute(tuple, CTA_TUPLE_IP).unwrap_or_default();
        let kind = if self.v4 { CTA_IP_V4_DST } else { CTA_IP_V6_DST };
        let addr = attribute(ip, kind).and_then(cidr::from_octets);
        number == Some(self.protocol)
            && port == self.port.to_be_bytes()
            && addr.is_some()
            && self.addr.is_none_or(|wanted| addr == Some(wanted))
    }

    fn message(&self, kind: u16) -> Message {
        let family = if self.v4 { AF_INET } else { AF_INET6 };
        Message::new((NFNL_SUBSYS_CTNETLINK << 8) | kind, 0, &[family, 0, 0, 0])
    }

    /// Asks for matching entries. Kernels before 5.8 do not know the filter and list everything.
    fn list(&self) -> Message {
        let protocol = Attributes::new()
            .attr(CTA_PROTO_NUM, &[self.protocol])
            .attr(CTA_PROTO_DST_PORT, &self.port.to_be_bytes());
        let filter = Attributes::new()
            .attr(CTA_FILTER_ORIG_FLAGS, &FILTER_PROTO_AND_DST_PORT.to_ne_bytes())
            .attr(CTA_FILTER_REPLY_FLAGS, &0u32.to_ne_bytes());
        self.message(IPCTNL_MSG_CT_GET)
            .nested(CTA_TUPLE_ORIG, Attributes::new().nested(CTA_TUPLE_PROTO, protocol))
            .nested(CTA_FILTER, filter)
    }

    /// Deletes the entry a listing described.
    fn delete(&self, entry: &Reply) -> Option<Message> {
        let attributes = entry.body.get(4..)?;
        let tuple = attribute(attributes, CTA_TUPLE_ORIG).filter(|tuple| self.matches(tuple))?;
        let message = self
            .message(IPCTNL_MSG_CT_DELETE)
            .nested(CTA_TUPLE_ORIG, Attributes::with_fixed(tuple));
        Some(match attribute(attributes, CTA_ZONE) {
            Some(zone) => message.attr(CTA_ZONE, zone),
            None => message,
        })
    }
}

impl Socket {
    /// Deletes every connection whose first packet was sent to `target`; returns how many there were.
    pub fn flush_connections(&mut self, target: &OriginalTarget) -> Result<usize, Error> {
        let entries = self.dump(&target.list())?;
        let requests: Vec<Message> = entries.iter().filter_map(|entry| target.delete(entry)).collect();
        for chunk in requests.chunks(64) {
            for outcome in self.batch(chunk)? {
                match outcome {
                    // It ended by itself meanwhile.
                    Err(error) if error.is_missing() => {}
                    other => drop(other?),
                }
            }
        }
        Ok(requests.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(protocol: u8, port: u16, dst: [u8; 4]) -> Attributes {
        Attributes::new()
            .nested(
                CTA_TUPLE_IP,
                Attributes::new().attr(1, &[10, 0, 0, 1]).attr(CTA_IP_V4_DST, &dst),
            )
            .nested(
                CTA_TUPLE_PROTO,
                Attributes::new()
                    .attr(CTA_PROTO_NUM, &[protocol])
                    .attr(2, &[1, 1])
                    .attr(CTA_PROTO_DST_PORT, &port.to_be_bytes()),
            )
    }

    fn entry(tuple: Attributes) -> Reply {
        let bytes = Message::new(0, 0, &[2, 0, 0, 0])
            .nested(CTA_TUPLE_ORIG, tuple)
            .encode(0, 0);
        Reply {
            kind: 0,
            body: bytes[16..].to_vec(),
        }
    }

    #[test]
    fn only_matching_entries_are_deleted_even_if_the_kernel_lists_all() {
        let any = OriginalTarget {
            v4: true,
            protocol: UDP,
            port: 53,
            addr: None,
        };
        let one = OriginalTarget {
            addr: Some("192.0.2.1".parse().unwrap()),
            ..any
        };
        for (protocol, port, dst, by_any, by_one) in [
            (17, 53, [192, 0, 2, 1], true, true),
            (17, 53, [192, 0, 2, 2], true, false),
            (17, 54, [192, 0, 2, 1], false, false),
            (6, 53, [192, 0, 2, 1], false, false),
        ] {
            let entry = entry(tuple(protocol, port, dst));
            assert_eq!(any.delete(&entry).is_some(), by_any);
            assert_eq!(one.delete(&entry).is_some(), by_one);
        }
        assert!(
            any.delete(&Reply {
                kind: 0,
                body: vec![2, 0, 0, 0]
            })
            .is_none()
        );
    }
}
