//! Comparing the container's end with what ADD said. Never changes anything.

use super::route_gateway;
use crate::protocol::error::{Error, internal};
use crate::protocol::result::CniResult;
use netlink::Socket;
use netlink::link::Link;
use netlink::route::Route;

/// Every address of the result is on the container's end, and its network is reached by it.
pub fn check_addresses(inside: &mut Socket, previous: &CniResult, container: &Link) -> Result<(), Error> {
    let present = inside
        .addresses(container.index, None)
        .map_err(|error| internal(&error))?;
    for ip in previous
        .ips
        .iter()
        .filter(|ip| names_container(previous, ip.interface, container))
    {
        if !present.iter().any(|address| address.cidr == ip.address) {
            return Err(Error::internal(format!(
                "Failed to match addr {} on interface {}",
                ip.address, container.name
            )));
        }
        let network = ip.address.network();
        if network.prefix == netlink::cidr::bits(&network.addr) {
            continue;
        }
        let routes = inside.routes(ip.address.is_v4()).map_err(|error| internal(&error))?;
        if !routes
            .iter()
            .any(|route| route.dst == network && route.index == container.index)
        {
            return Err(Error::internal(format!(
                "Failed to find route {network} for addr {}",
                ip.address
            )));
        }
    }
    Ok(())
}

fn names_container(previous: &CniResult, index: Option<i64>, container: &Link) -> bool {
    let interface = index
        .and_then(|index| usize::try_from(index).ok())
        .and_then(|index| previous.interfaces.get(index));
    interface.is_some_and(|interface| interface.name == container.name && !interface.sandbox.is_empty())
}

/// Every route of the result is there.
pub fn check_routes(inside: &mut Socket, previous: &CniResult) -> Result<(), Error> {
    for wanted in &previous.routes {
        let routes = inside.routes(wanted.dst.is_v4()).map_err(|error| internal(&error))?;
        let gateway = route_gateway(previous, wanted);
        let matches = |route: &&Route| {
            route.dst == wanted.dst && (wanted.dst.is_default() || gateway.is_none() || route.gateway == gateway)
        };
        if !routes.iter().any(|route| matches(&route)) {
            let via = gateway.map_or("<nil>".to_owned(), |gateway| gateway.to_string());
            return Err(Error::internal(format!(
                "Failed to find route {} via {via}",
                wanted.dst
            )));
        }
    }
    Ok(())
}
