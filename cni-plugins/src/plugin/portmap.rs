//! The `portmap` plugin (contract §4.2): ports of the host lead to ports of a container. Chained after another plugin.
//!
//! [`config`] reads and checks, [`condition`] translates conditions, [`rules`] holds the nftables rules, [`program`] the
//! iptables ones; this file puts them in order. nftables is spoken natively; connection tracking entries of mapped UDP ports are deleted on ADD and on DEL, so
//! that a flow to an old container does not go on to nowhere.

use crate::plugin::{iptables, rule_note};
use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::result::CniResult;
use crate::protocol::version::ALL;
use netlink::conntrack::{OriginalTarget, UDP};
use netlink::link::Target;
use netlink::sysctl;
use netlink::{Protocol, Socket};

pub mod condition;
pub mod config;
pub mod program;
pub mod rules;

use config::{Backend, Config, Mapping};
use program::Owner;

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "portmap",
    versions: &ALL,
    add,
    del,
    check,
    gc,
    status: |_| Ok(()),
};

fn rules_error(error: netlink::nft::Error) -> Error {
    Error::internal(format!("unable to set up port mappings: {}", chain(&error)))
}

fn previous(request: &Request) -> Result<Option<CniResult>, Error> {
    request
        .prev_result()
        .map_err(|error| error.context("failed to parse config: could not parse prevResult"))
}

fn add(request: &Request) -> Result<CniResult, Error> {
    let config = Config::read(request)?;
    let previous = previous(request)?.ok_or_else(|| Error::internal("must be called as chained plugin"))?;
    if config.mappings.is_empty() {
        return Ok(previous);
    }
    let targets = config::container_addresses(&previous, &request.env.ifname);
    if config.snat
        && targets
            .v4
            .is_some_and(|v4| config.mappings.iter().any(|mapping| mapping.leads_to(&v4.addr)))
    {
        enable_localhost(&targets)?;
    }
    match config.backend {
        Backend::Nftables => rules::add(request, &config, &targets).map_err(rules_error)?,
        Backend::Iptables => program::add(owner(request), &config, &targets)
            .map_err(|error| Error::internal(format!("unable to set up port mappings: {}", chain(&error))))?,
    }
    flush_udp(&config.mappings, &targets)?;
    Ok(previous)
}

fn owner(request: &Request) -> Owner<'_> {
    Owner {
        network: &request.network,
        container_id: &request.env.container_id,
    }
}

/// Lets packets from 127.0.0.1 leave by the interface that leads to the container.
fn enable_localhost(targets: &config::Targets) -> Result<(), Error> {
    let Some(v4) = targets.v4 else { return Ok(()) };
    let mut socket = Socket::open(Protocol::Route).map_err(|error| internal(&error))?;
    let index = socket.interface_towards(v4.addr).map_err(|error| internal(&error))?;
    let Some(index) = index else { return Ok(()) };
    let link = socket.link(Target::Index(index)).map_err(|error| internal(&error))?;
    let Some(link) = link else { return Ok(()) };
    sysctl::ensure(&format!("ipv4/conf/{}/route_localnet", link.name), "1")
        .map_err(|error| Error::internal(format!("unable to enable route_localnet: {}", chain(&error))))
}

/// Deletes what connection tracking remembers about the mapped UDP ports.
fn flush_udp(mappings: &[Mapping], targets: &config::Targets) -> Result<(), Error> {
    let udp: Vec<&Mapping> = mappings
        .iter()
        .filter(|mapping| mapping.protocol.number() == UDP)
        .collect();
    if udp.is_empty() {
        return Ok(());
    }
    let fail = |error: netlink::Error| Error::internal(format!("failed to flush conntrack: {}", chain(&error)));
    let mut socket = Socket::open(Protocol::Netfilter).map_err(fail)?;
    for mapping in udp {
        for v4 in targets.families() {
            let of_family = mapping.host_ip.is_none_or(|addr| addr.is_ipv4() == v4);
            if of_family {
                let addr = mapping.host_ip.filter(|addr| !addr.is_unspecified());
                let target = OriginalTarget {
                    v4,
                    protocol: UDP,
                    port: mapping.host_port,
                    addr,
                };
                socket.flush_connections(&target).map_err(fail)?;
            }
        }
    }
    socket.close_later();
    Ok(())
}

/// DEL needs neither the previous result nor the namespace nor, unlike upstream's, the mappings.
fn del(request: &Request) -> Result<(), Error> {
    let removed = rules::remove(request)
        .map_err(|error| Error::internal(format!("unable to remove port mappings: {}", chain(error.as_ref()))));
    // A configuration that ADD would refuse has left nothing to flush.
    let Ok(config) = Config::read(request) else {
        return removed;
    };
    let legacy = match config.backend {
        Backend::Nftables => Ok(()),
        Backend::Iptables => {
            let name = iptables::chain_name("DN-", &request.network, &request.env.container_id);
            iptables::remove_legacy_chain(&name).map_err(|error| internal(&error))
        }
    };
    removed
        .and(legacy)
        .and(flush_udp(&config.mappings, &config::Targets::any()))
}

fn check(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    let previous = previous(request)?.ok_or_else(|| Error::internal("Required prevResult missing"))?;
    if config.mappings.is_empty() {
        return Ok(());
    }
    let targets = config::container_addresses(&previous, &request.env.ifname);
    match config.backend {
        Backend::Nftables => rules::check(request, &config, &targets),
        Backend::Iptables => match program::missing(owner(request), &config, &targets) {
            Ok(None) => Ok(()),
            Ok(Some(rule)) => Err(Error::internal(format!("port mapping rule not found: {rule}"))),
            Err(error) => Err(internal(&error)),
        },
    }
}

fn gc(request: &Request) -> Result<(), Error> {
    let valid = request.valid_attachments()?;
    rule_note::sweep();
    rules::collect(request, &valid).map_err(|error| internal(&error))?;
    match Config::read(request).map(|config| config.backend) {
        Ok(Backend::Iptables) => program::collect(&request.network, &valid).map_err(|error| internal(&error)),
        _ => Ok(()),
    }
}
