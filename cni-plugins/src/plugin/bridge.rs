//! The `bridge` plugin (contract §2): a container on a bridge of the host.
//!
//! [`config`] reads, [`plan`] decides what the addresses mean, [`host`] prepares the bridge and its port, [`spoof`] the frame filter; [`attach`] is ADD, [`verify`] CHECK; the other verbs are here.

use crate::ipam::delegate;
use crate::plugin::masquerade::{self, Attachment};
use crate::plugin::pair;
use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::version::ALL;

pub mod attach;
pub mod config;
pub mod host;
pub mod plan;
pub mod spoof;
pub mod verify;

use config::Config;

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

fn release_address(request: &Request, config: &Config) -> Result<(), Error> {
    if config.ipam.is_empty() {
        Ok(())
    } else {
        delegate::del(request, &config.ipam)
    }
}

/// Removes masquerading, made by whichever backend, and the frame filter; goes on past errors and reports the first.
fn remove_rules(request: &Request, config: &Config) -> Result<(), Error> {
    let attachment = Attachment::of(request);
    let mut outcomes = Vec::new();
    if config.ip_masq {
        outcomes.push(masquerade::tear_down(&attachment, config.ip_masq_backend));
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
    let link = pair::delete_from(request);
    let address = release_address(request, &config);
    let rules = remove_rules(request, &config);
    link.and(address).and(rules)
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
    let rules = masquerade::collect(
        &request.network,
        &valid,
        config.ip_masq.then_some(config.ip_masq_backend),
    );
    let rules = rules.map_err(|text| Error::internal(format!("failed to remove masquerading: {text}")));
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
