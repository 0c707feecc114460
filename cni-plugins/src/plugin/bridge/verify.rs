//! CHECK (contract §2.5): compares what ADD said with what is there. Never changes anything.

use crate::ipam::delegate;
use crate::plugin::container_end::verify::{check_addresses, check_routes};
use crate::plugin::pair::{open_netns, open_socket, open_socket_in};
use crate::protocol::dispatch::Request;
use crate::protocol::error::{Error, internal};
use crate::protocol::result::{CniResult, Interface};
use netlink::Socket;
use netlink::link::{Link, Target};
use netlink::wire::IFF_PROMISC;

use super::config::Config;

/// CHECK.
pub fn check(request: &Request) -> Result<(), Error> {
    let config = Config::read(request)?;
    let netns = open_netns(request)?;
    if !config.ipam.is_empty() {
        delegate::check(request, &config.ipam)?;
    }
    let previous = request
        .prev_result()?
        .ok_or_else(|| Error::internal("Required prevResult missing"))?;
    let mut outside = open_socket()?;
    let mut inside = open_socket_in(&netns)?;
    let expected = Expected::find(&previous, &config, request)?;
    let bridge = check_bridge(&mut outside, &expected, &config)?;
    let container = check_container(&mut inside, expected.container)?;
    check_port(&mut outside, &expected, &bridge, &container)?;
    check_addresses(&mut inside, &previous, &container)?;
    check_routes(&mut inside, &previous)
}

/// The interfaces of the previous result, by role.
struct Expected<'a> {
    bridge: &'a Interface,
    container: &'a Interface,
    ports: Vec<&'a Interface>,
}

impl<'a> Expected<'a> {
    fn find(previous: &'a CniResult, config: &Config, request: &Request) -> Result<Self, Error> {
        let missing =
            |what: &str, name: &str| Error::internal(format!("{what} interface {name:?} missing from prevResult"));
        let interfaces = &previous.interfaces;
        let bridge = interfaces
            .iter()
            .find(|interface| interface.name == config.bridge && interface.sandbox.is_empty());
        let container = interfaces
            .iter()
            .find(|interface| interface.name == request.env.ifname && !interface.sandbox.is_empty());
        let container = container.ok_or_else(|| missing("container", &request.env.ifname))?;
        if container.sandbox != request.env.netns {
            return Err(Error::internal(format!(
                "Sandbox in prevResult {} doesn't match configured netns: {}",
                container.sandbox, request.env.netns
            )));
        }
        let ports = interfaces
            .iter()
            .filter(|interface| interface.sandbox.is_empty())
            .collect();
        Ok(Self {
            bridge: bridge.ok_or_else(|| missing("bridge", &config.bridge))?,
            container,
            ports,
        })
    }
}

fn check_mac(link: &Link, expected: &Interface) -> Result<(), Error> {
    if expected.mac.is_empty() || expected.mac.eq_ignore_ascii_case(&link.mac_text()) {
        return Ok(());
    }
    let text = format!(
        "Interface {} Mac {} doesn't match container mac: {}",
        link.name,
        link.mac_text(),
        expected.mac
    );
    Err(Error::internal(text))
}

fn lookup(socket: &mut Socket, target: Target<'_>, what: &str) -> Result<Link, Error> {
    let found = socket.link(target).map_err(|error| internal(&error))?;
    found.ok_or_else(|| Error::internal(format!("{what}: Link not found")))
}

fn check_bridge(outside: &mut Socket, expected: &Expected<'_>, config: &Config) -> Result<Link, Error> {
    let name = &expected.bridge.name;
    let bridge = lookup(outside, Target::Name(name), &format!("could not lookup {name:?}"))?;
    if bridge.kind != "bridge" {
        return Err(Error::internal(format!(
            "Interface {name} does not have link type of bridge"
        )));
    }
    check_mac(&bridge, expected.bridge)?;
    let promisc = bridge.flags & IFF_PROMISC != 0 || bridge.promiscuity > 0;
    if config.promisc && !promisc {
        return Err(Error::internal(format!(
            "Bridge interface {name} configured promisc Mode is true but it is not set"
        )));
    }
    Ok(bridge)
}

fn check_container(inside: &mut Socket, expected: &Interface) -> Result<Link, Error> {
    let name = &expected.name;
    let link = lookup(
        inside,
        Target::Name(name),
        &format!("Container Interface name in prevResult: {name} not found"),
    )?;
    if link.kind != "veth" {
        return Err(Error::internal(format!(
            "Error: Container interface {name} not of type veth"
        )));
    }
    check_mac(&link, expected)?;
    Ok(link)
}

/// The host's end: found by the container's peer index, pointing back, on the bridge, named in the result.
fn check_port(outside: &mut Socket, expected: &Expected<'_>, bridge: &Link, container: &Link) -> Result<(), Error> {
    let peer = container.peer.unwrap_or(0);
    let what = format!("host side of {} (index {peer}) is missing", container.name);
    let port = lookup(outside, Target::Index(peer), &what)?;
    if port.kind != "veth" || port.peer != Some(container.index) {
        return Err(Error::internal(format!(
            "interface {} is not the peer of {}",
            port.name, container.name
        )));
    }
    if port.master != Some(bridge.index) {
        return Err(Error::internal(format!(
            "interface {} is not a port of {}",
            port.name, bridge.name
        )));
    }
    let named = expected.ports.iter().find(|interface| interface.name == port.name);
    let named = named.ok_or_else(|| Error::internal(format!("interface {} missing from prevResult", port.name)))?;
    check_mac(&port, named)
}
