//! The outside: the bridge, its port and its addresses (contract §2.2, steps 2 to 4, 9 and 12).

use std::time::{Duration, Instant};

use super::config::Config;
use super::plan::{AddressAction, bridge_address};
use crate::plugin::pair;
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::result::Interface;
use netlink::address;
use netlink::cidr::Cidr;
use netlink::codec::Message;
use netlink::link::{self, Link, Target, VethEnd, VlanEntry};
use netlink::netns::Netns;
use netlink::sysctl;
use netlink::wire::{IF_OPER_UP, IFF_PROMISC, IFF_UP, IFLA_ADDRESS, IFLA_MTU};
use netlink::{Error as NetlinkError, Socket};

/// How long a port may take to come up.
const UP_DEADLINE: Duration = Duration::from_millis(2550);
/// Between two looks at a port that is not up yet.
const UP_INTERVAL: Duration = Duration::from_millis(5);

fn wrap(text: impl std::fmt::Display) -> impl FnOnce(NetlinkError) -> Error {
    move |error| Error::internal(format!("{text}: {}", chain(&error)))
}

/// Makes the bridge if needed and brings it up. Returns it as it is, and whether it was made.
pub fn ensure_bridge(outside: &mut Socket, config: &Config) -> Result<(Link, bool), Error> {
    let bridge = find_or_make_bridge(outside, config);
    bridge.map_err(|error| error.context(format_args!("failed to create bridge {:?}", config.bridge)))
}

fn find_or_make_bridge(outside: &mut Socket, config: &Config) -> Result<(Link, bool), Error> {
    let name = config.bridge.as_str();
    let lookup = || wrap(format!("could not lookup {name:?}"));
    let mut found = outside.link(Target::Name(name)).map_err(lookup())?;
    let mut is_new = false;
    if found.is_none() {
        match outside.request(link::create_bridge(name, config.uses_vlans())) {
            // Somebody else was faster.
            Err(error) if error.is_exists() => {}
            outcome => {
                outcome.map_err(wrap(format_args!("could not add {name:?}")))?;
                is_new = true;
                pin_mtu(outside, config)?;
            }
        }
        found = outside.link(Target::Name(name)).map_err(lookup())?;
    }
    let bridge = found.ok_or_else(|| Error::internal(format!("could not lookup {name:?}: Link not found")))?;
    if bridge.kind != "bridge" {
        return Err(Error::internal(format!("{name:?} already exists but is not a bridge")));
    }
    pin_address(outside, &bridge)?;
    let wanted = if config.promisc { IFF_UP | IFF_PROMISC } else { IFF_UP };
    if bridge.flags & wanted != wanted {
        // A rogue router advertisement must not reconfigure the host; without IPv6 there is no such switch.
        let _ = sysctl::set(&format!("ipv6/conf/{name}/accept_ra"), "0");
        let up = link::set_flags(Target::Index(bridge.index), wanted, wanted);
        outside
            .request(up)
            .map_err(wrap(format_args!("could not set {name:?} up")))?;
    }
    Ok((bridge, is_new))
}

/// Has the bridge keep the hardware address it has: one that nobody has set becomes the lowest of its ports' and changes as
/// they come and go. Given when a bridge is made, an address would leave it without a carrier, and so without a link-local
/// address, until a port of it is up.
fn pin_address(outside: &mut Socket, bridge: &Link) -> Result<(), Error> {
    let Some(mac) = bridge.mac.filter(|_| !is_address_set(&bridge.name)) else {
        return Ok(());
    };
    let pin = link::set(Target::Index(bridge.index)).attr(IFLA_ADDRESS, &mac);
    let pinned = outside.request(pin).map(drop);
    pinned.map_err(wrap("could not set bridge's mac"))
}

/// Whether somebody has set the hardware address of an interface. No netlink message tells. An address that is set once
/// more has all neighbours forgotten, so it is not done each time.
fn is_address_set(name: &str) -> bool {
    const NET_ADDR_SET: &str = "3";
    let assigned = std::fs::read_to_string(format!("/sys/class/net/{name}/addr_assign_type"));
    assigned.is_ok_and(|text| text.trim() == NET_ADDR_SET)
}

/// Sets the MTU of a new bridge. Given at creation, it would only be a start, and the bridge would follow its ports.
fn pin_mtu(outside: &mut Socket, config: &Config) -> Result<(), Error> {
    let name = config.bridge.as_str();
    if config.mtu == 0 {
        return Ok(());
    }
    let message = link::set(Target::Name(name)).attr_u32(IFLA_MTU, config.mtu);
    outside.request(message).map(drop).map_err(|error| {
        // A bridge with another MTU than the wanted one must not stay; nothing can be attached to it yet.
        let _ = outside.request(link::delete(Target::Name(name)));
        wrap(format_args!("could not add {name:?}"))(error)
    })
}

/// The bridge as it is now: without a pinned hardware address it takes one of its ports'.
pub fn reread(outside: &mut Socket, bridge: &Link) -> Result<Link, Error> {
    let name = &bridge.name;
    let found = outside
        .link(Target::Index(bridge.index))
        .map_err(wrap(format_args!("could not lookup {name:?}")))?;
    found.ok_or_else(|| Error::internal(format!("could not lookup {name:?}: Link not found")))
}

/// Makes the pair: the container's end in its namespace, the host's end a port of the bridge. Returns the host's end. The
/// bridge is made again if a parallel call, which had made it and failed, has just deleted it.
pub fn make_port(
    outside: &mut Socket,
    netns: &Netns,
    config: &Config,
    bridge: &mut (Link, bool),
    ifname: &str,
) -> Result<Link, Error> {
    let mac = config.mac()?;
    let far = VethEnd {
        name: ifname,
        mac,
        netns: Some(netns.descriptor()),
        master: None,
    };
    match pair::create(outside, far, Some(bridge.0.index), config.mtu) {
        Err(error)
            if outside
                .link(Target::Index(bridge.0.index))
                .is_ok_and(|link| link.is_some()) =>
        {
            Err(error)
        }
        Err(_) => {
            *bridge = ensure_bridge(outside, config)?;
            pair::create(outside, far, Some(bridge.0.index), config.mtu)
        }
        made => made,
    }
}

/// Sets the VLANs and flags of a port, and brings it up.
pub fn settle_port(outside: &mut Socket, port: &Link, config: &Config, hairpin: bool) -> Result<(), Error> {
    let name = &port.name;
    let _ = sysctl::set(&format!("ipv6/conf/{name}/accept_ra"), "0");
    let mut requests = Vec::new();
    let mut failures = Vec::new();
    if config.uses_vlans() {
        for message in vlan_changes(port.index, config) {
            requests.push(message);
            failures.push(format!("failed to setup vlan tag on interface {name:?}"));
        }
    }
    requests.push(link::set_bridge_port(
        Target::Index(port.index),
        hairpin,
        config.port_isolation,
    ));
    failures.push(format!("failed to setup hairpin mode for {name}"));
    let outcomes = outside.batch(&requests).map_err(|error| internal(&error))?;
    for (outcome, failure) in outcomes.into_iter().zip(failures) {
        outcome.map_err(wrap(failure))?;
    }
    Ok(())
}

/// The VLANs of a port: its own untagged, the trunk's tagged; VLAN 1 goes unless it is to stay.
fn vlan_changes(index: u32, config: &Config) -> Vec<Message> {
    let mut changes = Vec::new();
    if !config.preserve_default_vlan {
        let default = VlanEntry {
            id: 1,
            pvid: false,
            untagged: false,
        };
        changes.push(link::change_vlans(false, index, false, &[default]));
    }
    if config.vlan != 0 {
        let own = VlanEntry {
            id: config.vlan,
            pvid: true,
            untagged: true,
        };
        changes.push(link::change_vlans(true, index, false, &[own]));
    } else {
        let default = VlanEntry {
            id: 1,
            pvid: true,
            untagged: true,
        };
        changes.push(link::change_vlans(true, index, false, &[default]));
    }
    let trunk = config.trunk.iter().map(|id| VlanEntry {
        id: *id,
        pvid: false,
        untagged: false,
    });
    changes.extend(trunk.map(|entry| link::change_vlans(true, index, false, &[entry])));
    changes
}

/// Puts the gateway addresses on the bridge, or on a helper interface of its VLAN, which is returned, and switches
/// forwarding on.
pub fn ensure_gateways(
    outside: &mut Socket,
    config: &Config,
    bridge: &Link,
    gateways: &[Cidr],
) -> Result<Option<Interface>, Error> {
    let helper = match config.vlan {
        0 => None,
        _ => Some(ensure_vlan_interface(outside, config, bridge)?),
    };
    let carrier = helper.as_ref().unwrap_or(bridge);
    for v4 in [true, false] {
        let of_family: Vec<Cidr> = gateways
            .iter()
            .copied()
            .filter(|gateway| gateway.is_v4() == v4)
            .collect();
        if of_family.is_empty() {
            continue;
        }
        for gateway in of_family {
            ensure_address(outside, carrier, gateway, config.force_address)
                .map_err(|error| error.context("failed to set bridge addr"))?;
        }
        let switch = if v4 {
            "ipv4/ip_forward"
        } else {
            "ipv6/conf/all/forwarding"
        };
        sysctl::ensure(switch, "1")
            .map_err(|error| Error::internal(format!("failed to enable forwarding: {}", chain(&error))))?;
    }
    Ok(helper.map(|link| Interface {
        mac: link.mac_text(),
        name: link.name,
        ..Interface::default()
    }))
}

fn ensure_address(outside: &mut Socket, carrier: &Link, wanted: Cidr, force: bool) -> Result<(), Error> {
    let name = &carrier.name;
    let present = outside
        .addresses(carrier.index, Some(wanted.is_v4()))
        .map_err(wrap(format_args!("could not get list of IP addresses for {name:?}")))?;
    let present: Vec<Cidr> = present
        .iter()
        .filter(|address| address.scope == 0)
        .map(|address| address.cidr)
        .collect();
    match bridge_address(&present, wanted) {
        AddressAction::Nothing => return Ok(()),
        AddressAction::Add => {}
        AddressAction::Conflict(other) if force => {
            let outcome = outside.request(address::delete(carrier.index, other));
            outcome.map_err(wrap(format_args!("could not remove IP address from {name:?}")))?;
        }
        AddressAction::Conflict(_) => {
            return Err(Error::internal(format!(
                "{name:?} already has an IP address different from {wanted}"
            )));
        }
    }
    match outside.request(address::add(carrier.index, wanted, false)) {
        // A parallel ADD was faster.
        Err(error) if error.is_exists() => Ok(()),
        outcome => outcome
            .map(drop)
            .map_err(wrap(format_args!("could not add IP address to {name:?}"))),
    }
}

/// The interface that carries the gateway of a VLAN: one end of a pair whose other end is a port in that VLAN.
fn ensure_vlan_interface(outside: &mut Socket, config: &Config, bridge: &Link) -> Result<Link, Error> {
    let name = format!("{}.{}", bridge.name, config.vlan);
    let lookup = |outside: &mut Socket| {
        outside
            .link(Target::Name(&name))
            .map_err(wrap(format_args!("failed to find interface {name:?}")))
    };
    if let Some(existing) = lookup(outside)? {
        return Ok(existing);
    }
    let far = VethEnd {
        name: &name,
        mac: None,
        netns: None,
        master: None,
    };
    let port = match pair::create(outside, far, Some(bridge.index), bridge.mtu) {
        Ok(port) => port,
        // A parallel ADD was faster.
        Err(error) => return lookup(outside)?.ok_or(error),
    };
    let own = Config {
        trunk: Vec::new(),
        port_isolation: false,
        ..config.clone()
    };
    settle_port(outside, &port, &own, false)?;
    let up = link::set_flags(Target::Name(&name), IFF_UP, IFF_UP);
    outside
        .request(up)
        .map_err(wrap(format_args!("failed to set {name:?} up")))?;
    lookup(outside)?.ok_or_else(|| Error::internal(format!("failed to find interface {name:?}: Link not found")))
}

/// Waits until the port forwards.
pub fn wait_until_up(outside: &mut Socket, bridge: &Link, port: &Link) -> Result<(), Error> {
    let (index, name) = (port.index, port.name.as_str());
    let begin = Instant::now();
    loop {
        let link = outside.link(Target::Index(index)).map_err(|error| internal(&error))?;
        let state = link.map_or(0, |link| link.operstate);
        if state == IF_OPER_UP {
            // The bridge's own state follows its ports', as late; nobody has to wait for it.
            let _ = outside.carrier(&bridge.name);
            return Ok(());
        }
        if begin.elapsed() > UP_DEADLINE {
            return Err(Error::internal(format!(
                "bridge port in error state: {}",
                operstate(state)
            )));
        }
        // The kernel reports a new carrier late, from a timer; asking for the carrier makes it do so now.
        match outside.carrier(name) {
            Ok(true) => {}
            _ => std::thread::sleep(UP_INTERVAL),
        }
    }
}

/// An operational state by RFC 2863's name.
fn operstate(state: u8) -> &'static str {
    match state {
        1 => "not-present",
        2 => "down",
        3 => "lower-layer-down",
        4 => "testing",
        5 => "dormant",
        6 => "up",
        _ => "unknown",
    }
}
