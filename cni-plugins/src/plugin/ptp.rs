//! The `ptp` plugin: a pair of devices between a container and the host, without a bridge. Every packet goes to the host
//! as a router, even to a neighbour in the container's own network.
//!
//! The host's end carries the gateway's address for this container alone, and a route leads to the container.

use crate::ipam::delegate;
use crate::plugin::container_end::verify::{check_addresses, check_routes};
use crate::plugin::container_end::{self, Duplicates};
use crate::plugin::masquerade::{self, Attachment, Backend};
use crate::plugin::pair;
use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::json::DecodeError;
use crate::protocol::result::{CniResult, Dns, IpConfig};
use crate::protocol::version::ALL;
use netlink::cidr::{self, Cidr};
use netlink::link::{Link, Target, VethEnd, delete, set_flags};
use netlink::netns::Netns;
use netlink::route::{self, Route};
use netlink::sysctl;
use netlink::wire::{IFF_UP, RT_SCOPE_HOST, RT_SCOPE_LINK};
use netlink::{Socket, address};

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "ptp",
    versions: &ALL,
    add,
    del,
    check,
    gc,
    status,
};

/// Position of the container's interface in the result.
const CONTAINER: i64 = 1;

/// A read configuration.
struct Config {
    /// Masquerade what leaves the container's network, and by what.
    masquerade: Option<Backend>,
    /// MTU in bytes of both ends; 0 is the kernel's choice.
    mtu: u32,
    /// Replaces what the IPAM plugin says about name resolution.
    dns: Option<Dns>,
    /// `ipam.type`.
    ipam: String,
}

impl Config {
    fn read(request: &Request) -> Result<Self, Error> {
        let load = |error: DecodeError| Error::internal(format!("failed to load netconf: {error}"));
        let fields = request.fields();
        let dns = fields
            .object("dns", "DNS")
            .and_then(|dns| Dns::read(&dns))
            .map_err(load)?;
        let backend = Backend::read(&fields).map_err(load)?;
        Ok(Self {
            masquerade: fields.bool("ipMasq").map_err(load)?.then_some(backend),
            mtu: u32::try_from(fields.int("mtu").map_err(load)?).unwrap_or(0),
            dns: Some(dns).filter(|dns| !dns.is_empty()),
            ipam: delegate::kind(request)?.to_owned(),
        })
    }
}

fn add(request: &Request) -> Result<CniResult, Error> {
    let config = Config::read(request)?;
    let netns = pair::open_netns(request)?;
    let mut inside = pair::open_socket_in(&netns)?;
    pair::refuse_existing(&mut inside, &request.env.ifname)?;
    let given = delegate::add(request, &config.ipam)?;
    let mut outside = pair::open_socket()?;
    attach(request, &config, &netns, [&mut outside, &mut inside], given).inspect_err(|_| {
        // The first error is the one to report; DEL, which follows a failed ADD, tries again.
        let _ = detach(request, &config);
    })
}

fn attach(
    request: &Request,
    config: &Config,
    netns: &Netns,
    [outside, inside]: [&mut Socket; 2],
    mut result: CniResult,
) -> Result<CniResult, Error> {
    if result.ips.is_empty() {
        return Err(Error::internal("IPAM plugin returned missing IP config"));
    }
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(CONTAINER));
    for switch in forwarding_switches(&result.ips) {
        sysctl::ensure(switch, "1")
            .map_err(|error| Error::internal(format!("Could not enable IP forwarding: {}", chain(&error))))?;
    }
    let far = VethEnd {
        name: &request.env.ifname,
        mac: None,
        netns: Some(netns.descriptor()),
        master: None,
    };
    let host = pair::create(outside, far, None, config.mtu)?;
    let done = settle(request, config, netns, [outside, inside], &host, &mut result);
    done.inspect_err(|_| {
        let _ = outside.request(delete(Target::Index(host.index)));
    })?;
    if let Some(dns) = &config.dns {
        result.dns = dns.clone();
    }
    Ok(result)
}

/// Configures both ends and masquerades.
fn settle(
    request: &Request,
    config: &Config,
    netns: &Netns,
    [outside, inside]: [&mut Socket; 2],
    host: &Link,
    result: &mut CniResult,
) -> Result<(), Error> {
    // A rogue router advertisement must not reconfigure the host; without IPv6 there is no such switch.
    let _ = sysctl::set(&format!("ipv6/conf/{}/accept_ra", host.name), "0");
    // The host asks for the container's hardware address from this end's own link-local address, and not before that is known to
    // be nobody else's: for the first one to two seconds nothing forwarded would arrive. There is one neighbour here, and it is ours.
    let _ = sysctl::set(&format!("ipv6/conf/{}/accept_dad", host.name), "0");
    let up = set_flags(Target::Index(host.index), IFF_UP, IFF_UP);
    outside
        .request(up)
        .map_err(|error| Error::internal(format!("failed to set {:?} up: {}", host.name, chain(&error))))?;
    let container = container_end::find(inside, &request.env.ifname)?;
    container_end::configure(netns, inside, &container, Duplicates::Trust, result)?;
    for ip in &result.ips {
        route_inside(inside, container.index, ip)?;
    }
    for ip in &result.ips {
        route_outside(outside, host, ip)?;
    }
    if let Some(backend) = config.masquerade {
        let addresses: Vec<Cidr> = result.ips.iter().map(|ip| ip.address).collect();
        masquerade::set_up(&Attachment::of(request), backend, &addresses)?;
    }
    result.interfaces = vec![pair::describe(host, ""), pair::describe(&container, netns.path())];
    Ok(())
}

fn forwarding_switches(ips: &[IpConfig]) -> Vec<&'static str> {
    let any = |v4: bool| ips.iter().any(|ip| ip.address.is_v4() == v4);
    let mut switches = Vec::new();
    switches.extend(any(true).then_some("ipv4/ip_forward"));
    switches.extend(any(false).then_some("ipv6/conf/all/forwarding"));
    switches
}

fn gateway(ip: &IpConfig) -> Result<std::net::IpAddr, Error> {
    let missing = || Error::internal(format!("IPAM plugin returned no gateway for {}", ip.address));
    ip.gateway.ok_or_else(missing)
}

/// Inside, only the gateway is a neighbour: the network itself is reached by it.
fn route_inside(inside: &mut Socket, index: u32, ip: &IpConfig) -> Result<(), Error> {
    let gateway = gateway(ip)?;
    let network = ip.address.network();
    let source = Some(ip.address.addr);
    let to_gateway = Route {
        scope: Some(RT_SCOPE_LINK),
        source,
        ..Route::new(Cidr::host(gateway), None, index)
    };
    let to_network = Route {
        source,
        ..Route::new(network, Some(gateway), index)
    };
    let fail = |what: &str, route: &dyn std::fmt::Display, error: netlink::Error| {
        Error::internal(format!("failed to {what} route {route}: {}", chain(&error)))
    };
    match inside.request(route::delete(network, index)) {
        // A single address makes no network, so nothing was added for one.
        Err(error) if !error.is_missing() => return Err(fail("delete", &network, error)),
        _ => {}
    }
    let is_network = network.prefix < cidr::bits(&network.addr);
    for route in [Some(to_gateway), is_network.then_some(to_network)]
        .into_iter()
        .flatten()
    {
        inside
            .request(route::add(&route))
            .map_err(|error| fail("add", &route.dst, error))?;
    }
    Ok(())
}

/// Outside, the host's end is the gateway, and the container is behind it.
fn route_outside(outside: &mut Socket, host: &Link, ip: &IpConfig) -> Result<(), Error> {
    let gateway = Cidr::host(gateway(ip)?);
    let added = outside.request(address::add(host.index, gateway, false));
    added.map_err(|error| Error::internal(format!("failed to add IP addr ({gateway}) to veth: {}", chain(&error))))?;
    let route = Route {
        scope: Some(RT_SCOPE_HOST),
        ..Route::new(Cidr::host(ip.address.addr), None, host.index)
    };
    match outside.request(route::add(&route)) {
        Err(error) if !error.is_exists() => Err(Error::internal(format!(
            "failed to add route on host: {}",
            chain(&error)
        ))),
        _ => Ok(()),
    }
}

/// Takes back everything; goes on past errors and returns the first. The address is freed only after the link is gone.
fn detach(request: &Request, config: &Config) -> Result<(), Error> {
    let link = pair::delete_from(request);
    let address = delegate::del(request, &config.ipam);
    let rules = match config.masquerade {
        None => Ok(()),
        Some(backend) => masquerade::tear_down(&Attachment::of(request), backend)
            .map_err(|text| Error::internal(format!("failed to remove masquerading: {text}"))),
    };
    link.and(address).and(rules)
}

fn del(request: &Request) -> Result<(), Error> {
    detach(request, &Config::read(request)?)
}

fn check(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    let netns = pair::open_netns(request)?;
    delegate::check(request, &config.ipam)?;
    let missing = || Error::internal("ptp: Required prevResult missing");
    let previous = request.prev_result()?.ok_or_else(missing)?;
    let (ifname, path) = (&request.env.ifname, &request.env.netns);
    let own = previous
        .interfaces
        .iter()
        .find(|own| own.name == *ifname && own.sandbox == *path);
    let own =
        own.ok_or_else(|| Error::internal(format!("Sandbox in prevResult  doesn't match configured netns: {path}")))?;
    let mut inside = pair::open_socket_in(&netns)?;
    let link = inside.link(Target::Name(ifname)).map_err(|error| internal(&error))?;
    let link = link.ok_or_else(|| {
        Error::internal(format!(
            "ptp: Container Interface name in prevResult: {ifname} not found"
        ))
    })?;
    if link.kind != "veth" {
        return Err(Error::internal(format!(
            "Error: Container interface {ifname} not of type veth/p2p"
        )));
    }
    if !own.mac.is_empty() && !own.mac.eq_ignore_ascii_case(&link.mac_text()) {
        return Err(Error::internal(format!(
            "ptp: Interface {ifname} Mac {} doesn't match container Mac: {}",
            own.mac,
            link.mac_text()
        )));
    }
    check_addresses(&mut inside, &previous, &link)?;
    check_routes(&mut inside, &previous)
}

/// GC: the reservations and masquerading rules of attachments that are no more.
fn gc(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    let valid = request.valid_attachments()?;
    let addresses = delegate::gc(request, &config.ipam);
    let rules = masquerade::collect(&request.network, &valid, config.masquerade);
    let rules = rules.map_err(|text| Error::internal(format!("failed to remove masquerading: {text}")));
    addresses.and(rules)
}

fn status(request: &Request) -> Result<(), Error> {
    delegate::status(request, &Config::read(request)?.ipam)
}
