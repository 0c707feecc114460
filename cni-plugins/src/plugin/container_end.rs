//! The container's end of a pair: its addresses and routes (contract §2.2, step 8). [`verify`] compares them for CHECK.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use crate::protocol::error::{Error, chain, internal};
use crate::protocol::result::{CniResult, Route};
use netlink::link::{Link, Target, set_up_announcing};
use netlink::netns::Netns;
use netlink::sysctl;
use netlink::wire::{IFA_F_DADFAILED, IFA_F_TENTATIVE};
use netlink::{Socket, address, route};

pub mod verify;

/// How often tentative IPv6 addresses are looked at, and how many times.
const DAD_INTERVAL: Duration = Duration::from_millis(50);
const DAD_ATTEMPTS: usize = 100;

/// The container's end.
pub fn find(inside: &mut Socket, ifname: &str) -> Result<Link, Error> {
    let link = inside.link(Target::Name(ifname)).map_err(|error| internal(&error))?;
    link.ok_or_else(|| Error::internal(format!("failed to find interface {ifname:?}: Link not found")))
}

/// Brings an end without addresses up.
pub fn bring_up(inside: &mut Socket, index: u32, ifname: &str) -> Result<(), Error> {
    let up = inside.request(set_up_announcing(Target::Index(index)));
    up.map(drop)
        .map_err(|error| Error::internal(format!("failed to set {ifname:?} UP: {}", chain(&error))))
}

/// What IPv6 does about an address another host may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// Look for it before the address is used, which takes a second.
    Detect,
    /// Trust the address management.
    Trust,
}

/// The gateway a route without one goes by: the first of its family.
pub fn route_gateway(result: &CniResult, route: &Route) -> Option<IpAddr> {
    let v4 = route.dst.is_v4();
    route.gw.or_else(|| {
        result
            .ips
            .iter()
            .filter_map(|ip| ip.gateway)
            .find(|gateway| gateway.is_ipv4() == v4)
    })
}

/// Gives the end its addresses, brings it up and adds the routes.
pub fn configure(
    netns: &Netns,
    inside: &mut Socket,
    link: &Link,
    duplicates: Duplicates,
    result: &CniResult,
) -> Result<(), Error> {
    let dad = duplicates == Duplicates::Detect;
    let any_v6 = result.ips.iter().any(|ip| !ip.address.is_v4());
    if any_v6 || sysctl::get("ipv6/conf/all/disable_ipv6").is_some() {
        netns
            .run(|| prepare_v6(&link.name, dad, any_v6))
            .map_err(|error| internal(&error))??;
    }
    let mut requests = Vec::new();
    let mut failures = Vec::new();
    for ip in &result.ips {
        requests.push(address::add(link.index, ip.address, dad));
        failures.push(format!("failed to add IP addr {} to {:?}", ip.address, link.name));
    }
    requests.push(set_up_announcing(Target::Index(link.index)));
    failures.push(format!("failed to set {:?} UP", link.name));
    for wanted in &result.routes {
        let gateway = route_gateway(result, wanted);
        requests.push(route::add(&route::Route {
            dst: wanted.dst,
            gateway,
            index: link.index,
            priority: u32::try_from(wanted.priority).unwrap_or(0),
            table: wanted.table.and_then(|table| u32::try_from(table).ok()).unwrap_or(0),
            scope: wanted.scope.and_then(|scope| u8::try_from(scope).ok()),
            source: None,
        }));
        let gateway = gateway.map_or("<nil>".to_owned(), |gateway| gateway.to_string());
        failures.push(format!(
            "failed to add route '{} via {gateway} dev {}'",
            wanted.dst, link.name
        ));
    }
    let routes_from = failures.len() - result.routes.len();
    let waits = dad && any_v6;
    let first_half = if waits { &requests[..routes_from] } else { &requests[..] };
    apply(inside, first_half, &failures)?;
    if waits {
        wait_for_dad(inside, link)?;
        apply(inside, &requests[routes_from..], &failures[routes_from..])?;
    }
    Ok(())
}

fn apply(inside: &mut Socket, requests: &[netlink::codec::Message], failures: &[String]) -> Result<(), Error> {
    let outcomes = inside.batch(requests).map_err(|error| internal(&error))?;
    for (outcome, failure) in outcomes.into_iter().zip(failures) {
        outcome.map_err(|error| Error::internal(format!("{failure}: {}", chain(&error))))?;
    }
    Ok(())
}

/// The switches of IPv6, which have no netlink form. Runs inside the namespace.
fn prepare_v6(ifname: &str, dad: bool, any_v6: bool) -> Result<(), Error> {
    let of_interface = |switch: &str| format!("ipv6/conf/{ifname}/{switch}");
    let fail = |error: sysctl::Error| internal(&error);
    // Without IPv6 in the kernel there is nothing to switch.
    if sysctl::get(&of_interface("accept_dad")).is_none() && !any_v6 {
        return Ok(());
    }
    if any_v6 {
        sysctl::ensure("ipv6/conf/lo/disable_ipv6", "0").map_err(fail)?;
        sysctl::ensure(&of_interface("disable_ipv6"), "0").map_err(fail)?;
        sysctl::set(&of_interface("keep_addr_on_down"), "1").map_err(fail)?;
    }
    if dad {
        sysctl::set(&of_interface("enhanced_dad"), "1").map_err(fail)?;
    }
    sysctl::set(&of_interface("accept_dad"), if dad { "1" } else { "0" }).map_err(fail)
}

/// Waits until no address is tentative. The kernel sends no event for the end of detection on every version, so this looks.
fn wait_for_dad(inside: &mut Socket, link: &Link) -> Result<(), Error> {
    for _ in 0..DAD_ATTEMPTS {
        let addresses = inside
            .addresses(link.index, Some(false))
            .map_err(|error| internal(&error))?;
        if let Some(failed) = addresses.iter().find(|address| address.flags & IFA_F_DADFAILED != 0) {
            return Err(Error::internal(format!(
                "IPv6 duplicate address detection failed for {}",
                failed.cidr.addr
            )));
        }
        if addresses.iter().all(|address| address.flags & IFA_F_TENTATIVE == 0) {
            return Ok(());
        }
        thread::sleep(DAD_INTERVAL);
    }
    Err(Error::internal(format!(
        "could not configure interface {:?}: addresses stayed tentative",
        link.name
    )))
}
