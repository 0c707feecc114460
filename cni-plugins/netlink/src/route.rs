//! Routes.

use std::net::IpAddr;

use super::codec::{Message, attributes, read_u32};
use super::socket::{Error, Socket};
use super::wire::*;
use crate::cidr::{self, Cidr};

/// A route of a routing table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub dst: Cidr,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Outgoing interface.
    pub index: u32,
    /// Metric, or 0.
    pub priority: u32,
    /// Table; 0 means main.
    pub table: u32,
    /// Scope; absent leaves the choice to [`add`].
    pub scope: Option<u8>,
    /// The source address of what is sent by it.
    pub source: Option<IpAddr>,
}

impl Route {
    /// A route in the main table.
    pub fn new(dst: Cidr, gateway: Option<IpAddr>, index: u32) -> Self {
        Self {
            dst,
            gateway,
            index,
            priority: 0,
            table: 0,
            scope: None,
            source: None,
        }
    }
}

impl Route {
    /// Reads the body of an `RTM_NEWROUTE` message.
    pub fn read(body: &[u8]) -> Option<Self> {
        let (family, prefix) = (*body.first()?, *body.get(1)?);
        let (table, scope) = (*body.get(4)?, *body.get(6)?);
        let zero: IpAddr = if family == AF_INET {
            [0u8; 4].into()
        } else {
            [0u8; 16].into()
        };
        let mut route = Self {
            dst: Cidr::new(zero, prefix)?,
            gateway: None,
            index: 0,
            priority: 0,
            table: u32::from(table),
            scope: Some(scope),
            source: None,
        };
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                RTA_DST => route.dst.addr = cidr::from_octets(value)?,
                RTA_PREFSRC => route.source = cidr::from_octets(value),
                RTA_GATEWAY => route.gateway = cidr::from_octets(value),
                RTA_OIF => route.index = read_u32(value, 0)?,
                RTA_PRIORITY => route.priority = read_u32(value, 0)?,
                RTA_TABLE => route.table = read_u32(value, 0)?,
                _ => {}
            }
        }
        Some(route)
    }
}

/// Adds a route, with the flags upstream uses: neither exclusive nor replacing (contract §2.2).
pub fn add(route: &Route) -> Message {
    let family = if route.dst.is_v4() { AF_INET } else { AF_INET6 };
    let table = match route.table {
        0 => RT_TABLE_MAIN,
        table => u8::try_from(table).unwrap_or(0),
    };
    let scope = route.scope.unwrap_or(if route.gateway.is_none() && route.dst.is_v4() {
        RT_SCOPE_LINK
    } else {
        0
    });
    let fixed = [
        family,
        route.dst.prefix,
        0,
        0,
        table,
        RTPROT_BOOT,
        scope,
        RTN_UNICAST,
        0,
        0,
        0,
        0,
    ];
    let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE, &fixed);
    if route.dst.prefix > 0 {
        message = message.attr(RTA_DST, &route.dst.network().octets());
    }
    if let Some(gateway) = route.gateway {
        message = message.attr(RTA_GATEWAY, &cidr::octets(&gateway));
    }
    message = message.attr_u32(RTA_OIF, route.index);
    if let Some(source) = route.source {
        message = message.attr(RTA_PREFSRC, &cidr::octets(&source));
    }
    if route.priority != 0 {
        message = message.attr_u32(RTA_PRIORITY, route.priority);
    }
    if route.table != 0 {
        message = message.attr_u32(RTA_TABLE, route.table);
    }
    message
}

/// Deletes the route to a network by an interface, whatever else it says.
pub fn delete(dst: Cidr, index: u32) -> Message {
    let family = if dst.is_v4() { AF_INET } else { AF_INET6 };
    let fixed = [
        family,
        dst.prefix,
        0,
        0,
        RT_TABLE_MAIN,
        0,
        RT_SCOPE_NOWHERE,
        0,
        0,
        0,
        0,
        0,
    ];
    Message::new(RTM_DELROUTE, 0, &fixed)
        .attr(RTA_DST, &dst.network().octets())
        .attr_u32(RTA_OIF, index)
}

impl Socket {
    /// The interface the kernel would send to `addr` by.
    pub fn interface_towards(&mut self, addr: IpAddr) -> Result<Option<u32>, Error> {
        let host = Cidr::host(addr);
        let family = if host.is_v4() { AF_INET } else { AF_INET6 };
        let fixed = [family, host.prefix, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        match self.request(Message::new(RTM_GETROUTE, 0, &fixed).attr(RTA_DST, &host.octets())) {
            Ok(replies) => Ok(replies
                .iter()
                .find_map(|reply| Route::read(&reply.body))
                .map(|route| route.index)),
            Err(error) if error.is_missing() || error.errno() == Some(nix::errno::Errno::ENETUNREACH) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every route of a family, in all tables.
    pub fn routes(&mut self, v4: bool) -> Result<Vec<Route>, Error> {
        let mut fixed = [0u8; 12];
        fixed[0] = if v4 { AF_INET } else { AF_INET6 };
        let replies = self.dump(&Message::new(RTM_GETROUTE, 0, &fixed))?;
        Ok(replies
            .iter()
            .filter(|reply| reply.kind == RTM_NEWROUTE)
            .filter_map(|reply| Route::read(&reply.body))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_reads_back_as_it_was_sent() {
        for (dst, gateway, table) in [
            ("0.0.0.0/0", Some("10.0.0.1"), 0),
            ("10.9.0.0/16", None, 1000),
            ("::/0", Some("fd00::1"), 7),
        ] {
            let route = Route {
                dst: Cidr::parse(dst).unwrap(),
                gateway: gateway.map(|text| text.parse().unwrap()),
                index: 4,
                priority: 9,
                table,
                scope: None,
                source: None,
            };
            let bytes = add(&route).encode(1, 0);
            let read = Route::read(&bytes[16..]).unwrap();
            assert_eq!(
                (read.dst, read.gateway, read.index, read.priority),
                (route.dst, route.gateway, 4, 9)
            );
            assert_eq!(read.table, if table == 0 { 254 } else { table });
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = Route::read(&bytes);
        }
    }
}
