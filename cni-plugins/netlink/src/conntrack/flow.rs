//! Connections one by one: looked at while the kernel lists them, and those that are found stale deleted by their exact tuple.

use std::net::{IpAddr, SocketAddr};

use super::super::codec::{Attributes, Message, attribute};
use super::super::socket::{Error, Protocol, Socket};
use super::super::wire::{AF_INET, AF_INET6};
use super::{
    CTA_FILTER, CTA_FILTER_ORIG_FLAGS, CTA_FILTER_REPLY_FLAGS, CTA_IP_V4_DST, CTA_IP_V6_DST, CTA_PROTO_DST_PORT,
    CTA_PROTO_NUM, CTA_TUPLE_IP, CTA_TUPLE_ORIG, CTA_TUPLE_PROTO, CTA_ZONE, IPCTNL_MSG_CT_DELETE, IPCTNL_MSG_CT_GET,
    NFNL_SUBSYS_CTNETLINK,
};
use crate::cidr;

const CTA_TUPLE_REPLY: u16 = 2;
const CTA_ID: u16 = 12;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_PROTO_SRC_PORT: u16 = 2;
/// What the kernel compares of the original direction (`CTA_FILTER_F_*`).
const FILTER_DST: u32 = 1 << 1;
const FILTER_PROTO: u32 = 1 << 3;
const FILTER_DST_PORT: u32 = 1 << 5;
/// Deletions sent together.
const BATCH: usize = 64;

/// A connection, by what tells whether it goes where it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What its first packet was sent to.
    pub target: SocketAddr,
    /// Who answers: something else than `target` where the destination was translated.
    pub reply_source: SocketAddr,
}

impl Flow {
    /// Whether its packets go elsewhere than they are sent.
    pub fn is_translated(&self) -> bool {
        self.target != self.reply_source
    }

    /// Reads a listed entry of a protocol with ports; `None` for any other.
    fn read(body: &[u8], protocol: u8) -> Option<Self> {
        let attributes = body.get(4..)?;
        let original = attribute(attributes, CTA_TUPLE_ORIG)?;
        let number = attribute(attribute(original, CTA_TUPLE_PROTO)?, CTA_PROTO_NUM)?;
        if number != [protocol] {
            return None;
        }
        let reply = attribute(attributes, CTA_TUPLE_REPLY)?;
        Some(Self {
            target: end(original, [CTA_IP_V4_DST, CTA_IP_V6_DST], CTA_PROTO_DST_PORT)?,
            reply_source: end(reply, [CTA_IP_V4_SRC, CTA_IP_V6_SRC], CTA_PROTO_SRC_PORT)?,
        })
    }
}

/// One end of a tuple.
fn end(tuple: &[u8], addresses: [u16; 2], port: u16) -> Option<SocketAddr> {
    let ip = attribute(tuple, CTA_TUPLE_IP)?;
    let address = addresses.into_iter().find_map(|kind| attribute(ip, kind))?;
    let port = attribute(attribute(tuple, CTA_TUPLE_PROTO)?, port)?;
    let port = u16::from_be_bytes(port.try_into().ok()?);
    Some(SocketAddr::new(cidr::from_octets(address)?, port))
}

/// Which connections the kernel is asked for, by what their first packet was sent to. Kernels before 5.8 list everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFilter {
    /// IPv4 or IPv6.
    pub v4: bool,
    /// Protocol number: one that has ports.
    pub protocol: u8,
    /// Destination port; absent is any.
    pub port: Option<u16>,
    /// Destination address, of the family above; absent is any.
    pub address: Option<IpAddr>,
}

impl FlowFilter {
    fn message(&self, kind: u16) -> Message {
        let family = if self.v4 { AF_INET } else { AF_INET6 };
        Message::new((NFNL_SUBSYS_CTNETLINK << 8) | kind, 0, &[family, 0, 0, 0])
    }

    fn list(&self) -> Message {
        let mut flags = FILTER_PROTO;
        let mut tuple = Attributes::new();
        if let Some(address) = self.address {
            flags |= FILTER_DST;
            let kind = if self.v4 { CTA_IP_V4_DST } else { CTA_IP_V6_DST };
            tuple = tuple.nested(CTA_TUPLE_IP, Attributes::new().attr(kind, &cidr::octets(&address)));
        }
        let mut protocol = Attributes::new().attr(CTA_PROTO_NUM, &[self.protocol]);
        if let Some(port) = self.port {
            flags |= FILTER_DST_PORT;
            protocol = protocol.attr(CTA_PROTO_DST_PORT, &port.to_be_bytes());
        }
        let filter = Attributes::new()
            .attr(CTA_FILTER_ORIG_FLAGS, &flags.to_ne_bytes())
            .attr(CTA_FILTER_REPLY_FLAGS, &0u32.to_ne_bytes());
        self.message(IPCTNL_MSG_CT_GET)
            .nested(CTA_TUPLE_ORIG, tuple.nested(CTA_TUPLE_PROTO, protocol))
            .nested(CTA_FILTER, filter)
    }

    /// Deletes the entry a listing described; a later one of the same tuple only if the kernel numbers it alike.
    fn delete(&self, body: &[u8]) -> Option<Message> {
        let attributes = body.get(4..)?;
        let tuple = attribute(attributes, CTA_TUPLE_ORIG)?;
        let mut message = self
            .message(IPCTNL_MSG_CT_DELETE)
            .nested(CTA_TUPLE_ORIG, Attributes::with_fixed(tuple));
        for kind in [CTA_ZONE, CTA_ID] {
            if let Some(value) = attribute(attributes, kind) {
                message = message.attr(kind, value);
            }
        }
        Some(message)
    }
}

/// Deletes every connection of `filter` that `stale` says is; returns how many there were. Holds no more than a batch of them in memory,
/// however many there are.
///
/// # Errors
/// The kernel cannot list connections, or refuses to delete one; those found before are deleted.
pub fn delete_stale(filter: &FlowFilter, stale: &dyn Fn(&Flow) -> bool) -> Result<usize, Error> {
    let mut list = Socket::open(Protocol::Netfilter)?;
    let mut delete = Socket::open(Protocol::Netfilter)?;
    let (mut waiting, mut deleted, mut failed) = (Vec::with_capacity(BATCH), 0, None);
    list.visit(&filter.list(), &mut |_, body| {
        let found = Flow::read(body, filter.protocol).filter(|flow| stale(flow));
        waiting.extend(found.and_then(|_| filter.delete(body)));
        if waiting.len() == BATCH {
            flush(&mut delete, &mut waiting, &mut deleted, &mut failed);
        }
    })?;
    flush(&mut delete, &mut waiting, &mut deleted, &mut failed);
    failed.map_or(Ok(deleted), Err)
}

fn flush(socket: &mut Socket, waiting: &mut Vec<Message>, deleted: &mut usize, failed: &mut Option<Error>) {
    if waiting.is_empty() {
        return;
    }
    let outcomes = match socket.batch(waiting) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            *failed = Some(error);
            Vec::new()
        }
    };
    waiting.clear();
    for outcome in outcomes {
        match outcome {
            Ok(_) => *deleted += 1,
            // It ended by itself meanwhile.
            Err(error) if error.is_missing() => {}
            Err(error) => *failed = Some(error),
        }
    }
}

#[cfg(test)]
mod tests;
