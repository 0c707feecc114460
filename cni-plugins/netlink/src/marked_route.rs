//! Routes that say whose they are, by the number of the protocol that set them, and that may lead to a gateway no network of
//! their link contains (`onlink`). [`crate::route`] has the plain ones.

use std::net::IpAddr;

use super::codec::{Message, attributes, read_u32};
use super::socket::{Error, Socket};
use super::wire::*;
use crate::cidr::{self, Cidr};

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedRoute {
    /// Destination.
    pub dst: Cidr,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Outgoing interface; 0 for a route of several.
    pub index: u32,
    /// Whether the gateway counts as reachable there whatever the link's networks are.
    pub onlink: bool,
    /// `RTPROT_*`, or a number of one's own.
    pub protocol: u8,
    /// Metric; the kernel's default is 0 in IPv4 and 1024 in IPv6.
    pub priority: u32,
}

impl MarkedRoute {
    /// Reads the body of an `RTM_NEWROUTE` or `RTM_DELROUTE` message; `None` for other tables and kinds of routes.
    pub fn read(body: &[u8]) -> Option<Self> {
        let (family, prefix) = (*body.first()?, *body.get(1)?);
        let (mut table, protocol, kind) = (u32::from(*body.get(4)?), *body.get(5)?, *body.get(7)?);
        let zero: IpAddr = match family {
            AF_INET => [0u8; 4].into(),
            AF_INET6 => [0u8; 16].into(),
            _ => return None,
        };
        let mut route = Self {
            dst: Cidr::new(zero, prefix)?,
            gateway: None,
            index: 0,
            onlink: read_u32(body, 8)? & RTNH_F_ONLINK != 0,
            protocol,
            priority: 0,
        };
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                RTA_DST => route.dst = Cidr::new(cidr::from_octets(value)?, prefix)?,
                RTA_GATEWAY => route.gateway = cidr::from_octets(value),
                RTA_OIF => route.index = read_u32(value, 0)?,
                RTA_PRIORITY => route.priority = read_u32(value, 0)?,
                RTA_TABLE => table = read_u32(value, 0)?,
                _ => {}
            }
        }
        (table == u32::from(RT_TABLE_MAIN) && kind == RTN_UNICAST).then_some(route)
    }

    /// Whether its metric is what the kernel gives routes that name none.
    pub fn has_default_priority(&self) -> bool {
        self.priority == if self.dst.is_v4() { 0 } else { 1024 }
    }
}

fn build(kind: u16, flags: u16, route: &MarkedRoute) -> Message {
    let family = if route.dst.is_v4() { AF_INET } else { AF_INET6 };
    let scope = match route.gateway {
        None if route.dst.is_v4() => RT_SCOPE_LINK,
        _ => 0,
    };
    let mut fixed = [0u8; 12];
    fixed[..2].copy_from_slice(&[family, route.dst.prefix]);
    fixed[4..8].copy_from_slice(&[RT_TABLE_MAIN, route.protocol, scope, RTN_UNICAST]);
    if route.onlink {
        fixed[8..].copy_from_slice(&RTNH_F_ONLINK.to_ne_bytes());
    }
    let mut message = Message::new(kind, flags, &fixed).attr(RTA_DST, &route.dst.network().octets());
    if let Some(gateway) = route.gateway {
        message = message.attr(RTA_GATEWAY, &cidr::octets(&gateway));
    }
    message = message.attr_u32(RTA_OIF, route.index);
    match route.priority {
        0 => message,
        priority => message.attr_u32(RTA_PRIORITY, priority),
    }
}

/// Adds a route; one of the same destination and metric is replaced, or (`replace` is false) is a refusal.
pub fn set(route: &MarkedRoute, replace: bool) -> Message {
    let more = if replace { NLM_F_REPLACE } else { NLM_F_EXCL };
    build(RTM_NEWROUTE, NLM_F_CREATE | more, route)
}

/// Deletes a route: only one that agrees in destination, gateway, interface and protocol.
pub fn delete(route: &MarkedRoute) -> Message {
    build(RTM_DELROUTE, 0, route)
}

impl Socket {
    /// The unicast routes of a family in the main table.
    pub fn marked_routes(&mut self, v4: bool) -> Result<Vec<MarkedRoute>, Error> {
        let mut fixed = [0u8; 12];
        fixed[0] = if v4 { AF_INET } else { AF_INET6 };
        let replies = self.dump(&Message::new(RTM_GETROUTE, 0, &fixed))?;
        let read = replies.iter().filter(|reply| reply.kind == RTM_NEWROUTE);
        Ok(read.filter_map(|reply| MarkedRoute::read(&reply.body)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_reads_back_as_it_was_sent() {
        for (dst, gateway, onlink) in [
            ("10.9.1.0/24", Some("10.9.1.0"), true),
            ("10.9.0.0/16", None, false),
            ("fd00:1::/64", Some("fd00:1::"), true),
        ] {
            let route = MarkedRoute {
                dst: Cidr::parse(dst).unwrap(),
                gateway: gateway.map(|text| text.parse().unwrap()),
                index: 4,
                onlink,
                protocol: 77,
                priority: 0,
            };
            assert_eq!(MarkedRoute::read(&set(&route, true).encode(1, 0)[16..]), Some(route));
        }
    }

    #[test]
    fn other_tables_are_not_read() {
        let route = crate::route::Route {
            table: 100,
            ..crate::route::Route::new(Cidr::parse("10.0.0.0/8").unwrap(), None, 3)
        };
        assert_eq!(MarkedRoute::read(&crate::route::add(&route).encode(1, 0)[16..]), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = MarkedRoute::read(&bytes);
        }
    }
}
