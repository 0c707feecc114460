//! The `bridge` plugin (contract §2): a container on a bridge of the host.
//!
//! [`config`] reads, [`plan`] decides what the addresses mean, [`host`] prepares the bridge and its port, [`container`] the
//! inside, [`spoof`] the frame filter; [`attach`] is ADD, [`verify`] CHECK; the other verbs are here.

use crate::ipam::delegate;
use crate::netlink::link::{Target, delete};
use crate::netlink::{Protocol, Socket};
use crate::netns::{self, Netns};
use crate::plugin::iptables;
use crate::plugin::masquerade::{self, Attachment};
use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::version::ALL;

pub mod attach;
pub mod config;
pub mod container;
pub mod host;
pub mod plan;
pub mod spoof;
pub mod verify;

use config::{Backend, Config};

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "bridge",
    versions: &ALL,
    add: attach::add,
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

fn release_address(request: &Request, config: &Config) -> Result<(), Error> {
    if config.ipam.is_empty() {
        Ok(())
    } else {
        delegate::del(request, &config.ipam)
    }
}

/// Removes masquerading, made by whichever backend, and the frame filter; goes on past errors and reports the first.
fn remove_rules(request: &Request, config: &Config) -> Result<(), Error> {
    let attachment = attachment(request);
    let mut outcomes = Vec::new();
    if config.ip_masq {
        outcomes.push(masquerade::remove(&attachment).map_err(|error| chain(error.as_ref())));
        if config.ip_masq_backend == Backend::Iptables {
            let chain_name = iptables::chain_name("", attachment.network, attachment.container_id);
            outcomes.push(iptables::remove_legacy_chain(&chain_name).map_err(|error| chain(&error)));
        }
    }
    if config.mac_spoof_check {
        outcomes.push(spoof::remove(&attachment).map_err(|error| chain(&error)));
    }
    let wrap = |text| Error::internal(format!("failed to remove masquerading or spoof check: {text}"));
    outcomes.into_iter().collect::<Result<(), String>>().map_err(wrap)
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

/// GC: the reservations, masquerading rules and frame filters of attachments that are no more.
fn gc(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    let valid = request.valid_attachments()?;
    let addresses = if config.ipam.is_empty() {
        Ok(())
    } else {
        delegate::gc(request, &config.ipam)
    };
    let rules = masquerade::collect(&request.network, &valid).map_err(|error| internal(&error));
    let filters = spoof::collect(&request.network, &valid).map_err(|error| internal(&error));
    addresses.and(rules).and(filters)
}

fn status(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    if config.ipam.is_empty() {
        Ok(())
    } else {
        delegate::status(request, &config.ipam)
    }
}
