//! The pair of virtual Ethernet devices between a container and the host: making and deleting it, and the sockets on both
//! sides.

use crate::protocol::dispatch::Request;
use crate::protocol::error::{Error, chain, internal};
use crate::protocol::result::Interface;
use netlink::link::{self, Link, Target, VethEnd, delete};
use netlink::netns::{self, Netns};
use netlink::{Protocol, Socket};

/// How many random names are tried for the host's end.
const MAX_NAME_ATTEMPTS: usize = 10;

/// The container's namespace.
pub fn open_netns(request: &Request) -> Result<Netns, Error> {
    let path = &request.env.netns;
    Netns::open(path).map_err(|error| Error::internal(format!("failed to open netns {path:?}: {}", chain(&error))))
}

/// A route socket in the calling thread's namespace.
pub fn open_socket() -> Result<Socket, Error> {
    Socket::open(Protocol::Route).map_err(|error| internal(&error))
}

/// A route socket inside a namespace.
pub fn open_socket_in(netns: &Netns) -> Result<Socket, Error> {
    netns.run(open_socket).map_err(|error| internal(&error))?
}

/// Refuses an interface that is there already.
pub fn refuse_existing(inside: &mut Socket, ifname: &str) -> Result<(), Error> {
    match inside.link(Target::Name(ifname)).map_err(|error| internal(&error))? {
        Some(_) => Err(Error::internal(format!(
            "container veth name provided ({ifname}) already exists"
        ))),
        None => Ok(()),
    }
}

/// Makes a pair: `far` where it says, the other end here with a random name, a port of `master` from the start. Returns
/// the end here.
pub fn create(outside: &mut Socket, far: VethEnd<'_>, master: Option<u32>, mtu: u32) -> Result<Link, Error> {
    for _ in 0..MAX_NAME_ATTEMPTS {
        let name = format!("veth{:08x}", rand::random::<u32>());
        let near = VethEnd {
            name: &name,
            mac: None,
            netns: None,
            master,
        };
        let requests = [link::create_veth(near, far, mtu), link::get(Target::Name(&name))];
        let mut outcomes = outside.batch(&requests).map_err(|error| internal(&error))?.into_iter();
        let (created, read) = (outcomes.next(), outcomes.next());
        match created {
            Some(Err(error)) if error.is_exists() => {
                // Either name may be the taken one; if it is the container's, no other name will help.
                if outside
                    .link(Target::Name(&name))
                    .map_err(|error| internal(&error))?
                    .is_none()
                {
                    let text = format!("container veth name provided ({}) already exists", far.name);
                    return Err(Error::internal(text));
                }
            }
            Some(Err(error)) => {
                return Err(Error::internal(format!("failed to make veth pair: {}", chain(&error))));
            }
            _ => {
                let end = read.and_then(Result::ok).and_then(|replies| link::first_link(&replies));
                return end.ok_or_else(|| Error::internal(format!("failed to lookup {name:?}: Link not found")));
            }
        }
    }
    Err(Error::internal("failed to find a unique veth name"))
}

/// Deletes the container's end, and with it the pair. A namespace or link that is gone is success.
pub fn delete_from(request: &Request) -> Result<(), Error> {
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

/// A link as a result names it; `sandbox` is the path of its namespace, empty for the host's.
pub fn describe(link: &Link, sandbox: &str) -> Interface {
    Interface {
        name: link.name.clone(),
        mac: link.mac_text(),
        sandbox: sandbox.to_owned(),
        ..Interface::default()
    }
}
