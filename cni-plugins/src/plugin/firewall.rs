//! The `firewall` plugin (contract §4.4): the host forwards what a container sends and what answers it. Chained.
//!
//! [`config`] reads, [`rule`] says what the rules are, [`native`] makes them over netlink in the chains iptables shows,
//! [`program`] makes them with the iptables programs where a configuration names that backend. firewalld is not served.

use crate::plugin::masquerade::Attachment;
use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::json::Fields;
use crate::protocol::result::CniResult;
use crate::protocol::version::{ALL, Version};
use netlink::cidr::Cidr;

pub mod config;
pub mod native;
pub mod program;
pub mod rule;

use config::{Backend, Config};
use rule::{Family, FilterRule};

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "firewall",
    versions: ALL.split_at(4).1,
    add,
    del,
    check,
    gc,
    status: |_| Ok(()),
};

const _: () = assert!(matches!(ALL[4], Version::V0_4_0));

/// The rules of a previous result's addresses; `bridge` is the one to isolate, if any.
fn families(config: &Config, previous: &CniResult, bridge: Option<&str>) -> Vec<Family> {
    let mut families = Vec::new();
    for v4 in [true, false] {
        let addresses = previous.ips.iter().map(|ip| Cidr::host(ip.address.addr));
        let own: Vec<FilterRule> = addresses
            .filter(|address| address.is_v4() == v4)
            .flat_map(rule::of_address)
            .collect();
        if own.is_empty() {
            continue;
        }
        let mut shared = rule::forwarding(&config.admin_chain);
        if let Some(bridge) = bridge {
            shared.extend(rule::isolation(bridge, config.ingress));
        }
        families.push(Family { v4, shared, own });
    }
    families
}

fn read(request: &Request) -> Result<Config, Error> {
    Config::read(&Fields::new(&request.config, "FirewallNetConf"))
}

fn previous(request: &Request) -> Result<CniResult, Error> {
    request
        .prev_result()?
        .ok_or_else(|| Error::internal("missing prevResult from earlier plugin"))
}

fn failed(what: &str) -> impl Fn(&(dyn std::error::Error + 'static)) -> Error + '_ {
    move |error| Error::internal(format!("failed to {what} firewall rules: {}", chain(error)))
}

fn add(request: &Request) -> Result<CniResult, Error> {
    let config = read(request)?;
    let previous = previous(request)?;
    let bridge = config.isolated_bridge(&previous)?;
    let families = families(&config, &previous, bridge.as_deref());
    let key = Attachment::of(request).key();
    match config.backend {
        Backend::Nftables => native::add(&families, &key).map_err(|error| failed("set up")(&error))?,
        Backend::Iptables => program::add(&families).map_err(|error| failed("set up")(&error))?,
    }
    Ok(previous)
}

/// DEL removes what either backend made. Without a previous result, that is what carries the container's label. The rules
/// that isolate a bridge stay, for its other containers.
fn del(request: &Request) -> Result<(), Error> {
    let config = read(request)?;
    let previous = request.prev_result()?.unwrap_or_default();
    let families = families(&config, &previous, None);
    let native = native::remove(&families, &Attachment::of(request).key());
    let by_program = match config.backend {
        Backend::Nftables => Ok(()),
        Backend::Iptables => program::remove(&families),
    };
    native.map_err(|error| failed("remove")(&error))?;
    by_program.map_err(|error| failed("remove")(&error))
}

fn check(request: &Request) -> Result<(), Error> {
    let config = read(request)?;
    let previous = previous(request)?;
    let bridge = config.isolated_bridge(&previous)?;
    let families = families(&config, &previous, bridge.as_deref());
    let missing = match config.backend {
        Backend::Nftables => native::missing(&families).map_err(|error| internal(&error))?,
        Backend::Iptables => program::missing(&families).map_err(|error| internal(&error))?,
    };
    match missing {
        None => Ok(()),
        Some(rule) => Err(Error::internal(format!(
            "expected {} rule {} not found",
            rule.chain,
            rule.arguments()
        ))),
    }
}

/// GC: rules labelled as of this network whose attachment is not valid.
fn gc(request: &Request) -> Result<(), Error> {
    let valid = request.valid_attachments()?;
    native::collect(&request.network, &valid).map_err(|error| internal(&error))
}
