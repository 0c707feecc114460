//! The `bridge` plugin (contract §2): a container on a bridge of the host.
//!
//! [`config`] reads, [`plan`] decides what the addresses mean, [`host`] prepares the bridge and its port, [`container`] the
//! inside; [`verify`] is CHECK. This file puts them in order and undoes what a failed ADD began.

use crate::ipam::delegate;
use crate::netlink::link::{Target, delete};
use crate::netlink::{Protocol, Socket};
use crate::netns::{self, Netns};
use crate::plugin::masquerade::{self, Attachment};
use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::result::{CniResult, Interface};
use crate::protocol::version::ALL;

pub mod config;
pub mod container;
pub mod host;
pub mod plan;
pub mod verify;

use config::Config;

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "bridge",
    versions: &ALL,
    add,
    del,
    check: verify::check,
    gc,
    status,
};

pub(super) fn attachment(request: &Request) -> Attachment<'_> {
    Attachment {
        network: &request.network,
        container_id: &request.env.container_id,
        ifname: &request.env.ifname,
    }
}

pub(super) fn open_netns(request: &Request) -> Result<Netns, Error> {
    let path = &request.env.netns;
    Netns::open(path).map_err(|error| Error::internal(format!("failed to open netns {path:?}: {}", chain(&error))))
}

pub(super) fn open_socket() -> Result<Socket, Error> {
    Socket::open(Protocol::Route).map_err(|error| internal(&error))
}

/// A route socket inside a namespace.
pub(super) fn open_socket_in(netns: &Netns) -> Result<Socket, Error> {
    netns.run(open_socket).map_err(|error| internal(&error))?
}

fn add(request: &Request) -> Result<CniResult, Error> {
    let config = Config::read(request)?;
    config.refuse_contradictions()?;
    let netns = open_netns(request)?;
    let mut outside = open_socket()?;
    let mut inside = open_socket_in(&netns)?;
    refuse_existing(&mut inside, &request.env.ifname)?;
    let bridge = host::ensure_bridge(&mut outside, &config)?;
    let ipam = match config.ipam.as_str() {
        "" => None,
        kind => Some(delegate::add(request, kind)?),
    };
    let outcome = attach(request, &config, &netns, &mut outside, &mut inside, &bridge, ipam);
    if outcome.is_err() {
        undo(request, &config, &mut inside);
    }
    outcome
}

fn refuse_existing(inside: &mut Socket, ifname: &str) -> Result<(), Error> {
    match inside.link(Target::Name(ifname)).map_err(|error| internal(&error))? {
        Some(_) => Err(Error::internal(format!(
            "container veth name provided ({ifname}) already exists"
        ))),
        None => Ok(()),
    }
}

/// Everything after the address is known. Whatever it made, [`undo`] removes.
#[allow(clippy::too_many_arguments)]
fn attach(
    request: &Request,
    config: &Config,
    netns: &Netns,
    outside: &mut Socket,
    inside: &mut Socket,
    bridge: &crate::netlink::link::Link,
    ipam: Option<CniResult>,
) -> Result<CniResult, Error> {
    let mut result = ipam.unwrap_or_default();
    if !config.ipam.is_empty() && result.ips.is_empty() {
        return Err(Error::internal("IPAM plugin returned missing IP config"));
    }
    let gateways = plan::complete(&mut result, config);
    let port = host::add_port(outside, netns, config, bridge, &request.env.ifname)?;
    let bridge = host::reread(outside, bridge)?;
    let container = container::find(inside, &request.env.ifname)?;
    if config.ipam.is_empty() {
        if !config.disable_container_interface {
            container::bring_up(inside, container.index, &request.env.ifname)?;
        }
    } else {
        container::configure(netns, inside, &container, config, &result)?;
    }
    let mut extra = None;
    if config.is_gateway && !gateways.is_empty() {
        extra = host::ensure_gateways(outside, config, &bridge, &gateways)?;
    }
    if config.masquerades() {
        let addresses: Vec<_> = result.ips.iter().map(|ip| ip.address).collect();
        masquerade::add(&attachment(request), &addresses)
            .map_err(|error| Error::internal(format!("failed to set up masquerading: {}", chain(&error))))?;
    }
    if !config.disable_container_interface {
        host::wait_until_up(outside, port.index, &port.name)?;
    }
    result.interfaces = vec![
        Interface {
            name: bridge.name.clone(),
            mac: bridge.mac_text(),
            ..Interface::default()
        },
        Interface {
            name: port.name.clone(),
            mac: port.mac_text(),
            ..Interface::default()
        },
        Interface {
            name: container.name.clone(),
            mac: container.mac_text(),
            sandbox: request.env.netns.clone(),
            ..Interface::default()
        },
    ];
    result.interfaces.extend(extra);
    if let Some(dns) = &config.dns {
        result.dns = dns.clone();
    }
    Ok(result)
}

/// Takes back what a failed ADD began. Its own failures are not reported: the first error is what the user needs.
fn undo(request: &Request, config: &Config, inside: &mut Socket) {
    let _ = inside.request(delete(Target::Name(&request.env.ifname)));
    let _ = release_address(request, config);
    let _ = remove_rules(request, config);
}

fn release_address(request: &Request, config: &Config) -> Result<(), Error> {
    if config.ipam.is_empty() {
        Ok(())
    } else {
        delegate::del(request, &config.ipam)
    }
}

fn remove_rules(request: &Request, config: &Config) -> Result<(), Error> {
    if !config.ip_masq {
        return Ok(());
    }
    masquerade::remove(&attachment(request))
        .map_err(|error| Error::internal(format!("failed to remove masquerading: {}", chain(&error))))
}

/// DEL goes on past errors and reports the first. The address is freed only after the link that had it is gone.
fn del(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    let link = delete_link(request);
    let address = release_address(request, &config);
    let rules = remove_rules(request, &config);
    link.and(address).and(rules)
}

/// Deletes the container's link. A namespace or link that is gone is success.
fn delete_link(request: &Request) -> Result<(), Error> {
    if request.env.netns.is_empty() {
        return Ok(());
    }
    let netns = match Netns::open(&request.env.netns) {
        Ok(netns) => netns,
        Err(error) if error.is_gone() => return Ok(()),
        Err(error) => return Err(internal(&error)),
    };
    let ifname = &request.env.ifname;
    if netns::is_current(&request.env.netns) && ifname == "lo" {
        return Err(Error::internal("refusing to delete the host's loopback interface"));
    }
    match open_socket_in(&netns)?.request(delete(Target::Name(ifname))) {
        Err(error) if !error.is_missing() => Err(Error::internal(format!(
            "failed to delete {ifname:?}: {}",
            chain(&error)
        ))),
        _ => Ok(()),
    }
}

/// GC: the address plugin's reservations and the masquerading rules of attachments that are no more.
fn gc(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    let valid = request.valid_attachments()?;
    let addresses = if config.ipam.is_empty() {
        Ok(())
    } else {
        delegate::gc(request, &config.ipam)
    };
    let rules = masquerade::collect(&request.network, &valid).map_err(|error| internal(&error));
    addresses.and(rules)
}

fn status(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    if config.ipam.is_empty() {
        Ok(())
    } else {
        delegate::status(request, &config.ipam)
    }
}
