//! The `loopback` plugin (contract §4.1): brings `lo` up. It ignores the interface name and `CNI_ARGS`.

use crate::protocol::dispatch::{Plugin, Request};
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::result::{CniResult, Interface, IpConfig};
use crate::protocol::version::ALL;
use netlink::cidr::Cidr;
use netlink::link::{Link, Target, set_flags};
use netlink::netns::Netns;
use netlink::wire::{IFF_LOOPBACK, IFF_UP};
use netlink::{self, Protocol, Socket, address::Address};

const NAME: &str = "lo";

/// The plugin.
pub static PLUGIN: Plugin = Plugin {
    name: "loopback",
    versions: &ALL,
    add,
    del,
    check,
    gc: |_| Ok(()),
    status: |_| Ok(()),
};

fn socket(request: &Request) -> Result<Socket, Error> {
    let netns = Netns::open(&request.env.netns).map_err(|error| {
        Error::internal(format!(
            "failed to open netns {:?}: {}",
            request.env.netns,
            chain(&error)
        ))
    })?;
    netns
        .run(|| Socket::open(Protocol::Route))
        .map_err(|error| internal(&error))?
        .map_err(|error| internal(&error))
}

fn find(socket: &mut Socket) -> Result<Link, Error> {
    let found = socket.link(Target::Name(NAME)).map_err(|error| internal(&error))?;
    found.ok_or_else(|| Error::internal("Link not found"))
}

fn add(request: &Request) -> Result<CniResult, Error> {
    let previous = request.prev_result()?;
    let mut socket = socket(request)?;
    let link = find(&mut socket)?;
    let up = set_flags(Target::Index(link.index), IFF_UP, IFF_UP);
    socket.request(up).map_err(|error: netlink::Error| internal(&error))?;
    let addresses = socket.addresses(link.index, None).map_err(|error| internal(&error))?;
    if let Some(foreign) = addresses.iter().find(|address| !address.cidr.addr.is_loopback()) {
        return Err(Error::internal(format!(
            "loopback interface found with non-loopback address {}",
            foreign.cidr
        )));
    }
    Ok(previous.unwrap_or_else(|| result(&request.env.netns, &addresses)))
}

fn result(sandbox: &str, addresses: &[Address]) -> CniResult {
    let interface = Interface {
        name: NAME.into(),
        mac: "00:00:00:00:00:00".into(),
        sandbox: sandbox.to_owned(),
        ..Interface::default()
    };
    let localhost = [
        Cidr::host([127, 0, 0, 1].into()),
        Cidr::host(std::net::Ipv6Addr::LOCALHOST.into()),
    ];
    let present = |cidr: &&Cidr| cidr.is_v4() || addresses.iter().any(|address| address.cidr == **cidr);
    let ips = localhost.iter().filter(present).map(|cidr| IpConfig {
        interface: Some(0),
        address: if cidr.is_v4() {
            Cidr { prefix: 8, ..*cidr }
        } else {
            *cidr
        },
        gateway: None,
    });
    CniResult {
        ips: ips.collect(),
        interfaces: vec![interface],
        ..CniResult::default()
    }
}

fn del(request: &Request) -> Result<(), Error> {
    if request.env.netns.is_empty() {
        return Ok(());
    }
    match Netns::open(&request.env.netns) {
        Err(error) if error.is_gone() => Ok(()),
        _ => {
            let mut socket = socket(request)?;
            socket
                .request(set_flags(Target::Name(NAME), 0, IFF_UP))
                .map(drop)
                .map_err(|error| internal(&error))
        }
    }
}

fn check(request: &Request) -> Result<(), Error> {
    let link = find(&mut socket(request)?)?;
    let wanted = IFF_UP | IFF_LOOPBACK;
    if link.flags & wanted == wanted {
        Ok(())
    } else {
        Err(Error::internal("loopback interface is down"))
    }
}
