//! Taking the steps. Goes on past what is refused, and tells it.

use crate::diff::Change;
use crate::state::{ALIAS, Device, Family, Hop, PROTOCOL, Port};
use netlink::codec::Message;
use netlink::link::{self, Mac, Target};
use netlink::marked_route::{self, MarkedRoute};
use netlink::neighbour::{self, Neighbour};
use netlink::wire::{IFF_UP, IFLA_ADDRESS, IFLA_IFALIAS, IFLA_MTU};
use netlink::{Error, Socket, address, sysctl, vxlan};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// How many steps are sent at once: their answers must fit into the socket.
const BATCH: usize = 64;
/// How many failures are told in words.
const TOLD_MAX: usize = 8;

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// Takes the steps in order; what was refused, in words. `devices` are the tunnel devices' indices, kept up to date.
pub(crate) fn apply(
    socket: &mut Socket,
    vni: u32,
    devices: &mut BTreeMap<Family, u32>,
    changes: &[Change],
) -> Vec<String> {
    let mut work = Work {
        socket,
        vni,
        devices,
        waiting: Vec::new(),
        failures: Vec::new(),
        refused: 0,
    };
    for change in changes {
        match work.message(change) {
            Some(message) => work.waiting.push((change, message)),
            None => {
                work.flush();
                work.device(change);
            }
        }
        if work.waiting.len() >= BATCH {
            work.flush();
        }
    }
    work.flush();
    if work.refused > work.failures.len() {
        work.failures
            .push(format!("and {} more", work.refused - work.failures.len()));
    }
    work.failures
}

struct Work<'w> {
    socket: &'w mut Socket,
    vni: u32,
    devices: &'w mut BTreeMap<Family, u32>,
    waiting: Vec<(&'w Change, Message)>,
    failures: Vec<String>,
    refused: usize,
}

impl<'w> Work<'w> {
    fn refuse(&mut self, what: String) {
        self.refused += 1;
        if self.failures.len() < TOLD_MAX {
            self.failures.push(what);
        }
    }

    fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return;
        }
        let messages: Vec<Message> = waiting.iter().map(|(_, message)| message.clone()).collect();
        match self.socket.batch(&messages) {
            Ok(outcomes) => {
                for ((change, _), outcome) in waiting.iter().zip(outcomes) {
                    if let Err(error) = outcome.map(drop)
                        && !is_done(change, &error)
                    {
                        self.refuse(format!("{}: {}", words(change), chain(&error)));
                    }
                }
            }
            Err(error) => self.refuse(chain(&error)),
        }
    }

    fn index(&self, family: Family) -> u32 {
        // No device: the kernel refuses index 0, and the step is told as failed.
        self.devices.get(&family).copied().unwrap_or(0)
    }

    fn entry(&self, family: Family, addr: IpAddr, mac: Mac) -> Neighbour {
        let index = self.index(family);
        Neighbour { index, mac, addr }
    }

    fn route(&self, dst: netlink::cidr::Cidr, hop: &Hop) -> MarkedRoute {
        MarkedRoute {
            dst,
            gateway: hop.gateway,
            index: match hop.port {
                Port::Tunnel(family) => self.index(family),
                Port::Link(index) => index,
            },
            onlink: hop.onlink,
            protocol: PROTOCOL,
            priority: 0,
        }
    }

    /// The one message of a step; `None` for steps of a device, which take several.
    fn message(&self, change: &Change) -> Option<Message> {
        Some(match change {
            Change::CreateDevice(..) | Change::DeleteDevice(..) | Change::ChangeDevice(..) => return None,
            Change::AddAddress(family, cidr) => address::add(self.index(*family), *cidr, false),
            Change::DeleteAddress(family, cidr) => address::delete(self.index(*family), *cidr),
            Change::SetNeighbour(family, addr, mac) => neighbour::set(&self.entry(*family, *addr, *mac)),
            Change::DeleteNeighbour(family, addr, mac) => neighbour::delete(&self.entry(*family, *addr, *mac)),
            Change::SetForwarding(family, mac, host) => neighbour::set_forwarding(&self.entry(*family, *host, *mac)),
            Change::DeleteForwarding(family, mac, host) => {
                neighbour::delete_forwarding(&self.entry(*family, *host, *mac))
            }
            Change::SetRoute { range, hop, replace } => marked_route::set(&self.route(*range, hop), *replace),
            Change::DeleteRoute(range, hop) => {
                let mut route = self.route(*range, hop);
                // Flannel's routes through our device carry another number: any will do.
                if matches!(hop.port, Port::Tunnel(_)) {
                    route.protocol = 0;
                }
                marked_route::delete(&route)
            }
        })
    }

    fn device(&mut self, change: &Change) {
        let outcome = match change {
            Change::DeleteDevice(family) => self.delete(*family),
            Change::CreateDevice(family, device) => self.create(*family, device),
            Change::ChangeDevice(family, device) => self.change(*family, device),
            _ => Ok(()),
        };
        if let Err(text) = outcome {
            self.refuse(format!("{}: {text}", words(change)));
        }
    }

    fn delete(&mut self, family: Family) -> Result<(), String> {
        let name = family.device(self.vni);
        match self.socket.request(link::delete(Target::Name(&name))) {
            Err(error) if !error.is_missing() => Err(chain(&error)),
            _ => {
                self.devices.remove(&family);
                Ok(())
            }
        }
    }

    fn create(&mut self, family: Family, device: &Device) -> Result<(), String> {
        let name = family.device(self.vni);
        match self
            .socket
            .request(vxlan::create(&name, device.mac, device.mtu, &device.vxlan))
        {
            Ok(_) => {}
            // Made since we looked, or of another kind, which the next look tells apart.
            Err(error) if error.is_exists() => {
                return Err(format!(
                    "a link {name}, or a tunnel of this VNI and port, exists already"
                ));
            }
            Err(error) => return Err(chain(&error)),
        }
        let made = self.socket.link(Target::Name(&name)).map_err(|error| chain(&error))?;
        let made = made.ok_or("it went away while it was made")?;
        self.devices.insert(family, made.index);
        self.change(family, device)
    }

    fn change(&mut self, family: Family, device: &Device) -> Result<(), String> {
        let name = family.device(self.vni);
        let target = Target::Name(&name);
        let said = |error: Error| chain(&error);
        let change = link::set(target)
            .attr(IFLA_ADDRESS, &device.mac.0)
            .attr_u32(IFLA_MTU, device.mtu)
            .attr(IFLA_IFALIAS, ALIAS.as_bytes());
        self.socket.request(change).map_err(said)?;
        // Routers announced inside a tunnel are nobody's of ours. A kernel without IPv6 has no such switch.
        let switch = format!("ipv6/conf/{name}/accept_ra");
        if sysctl::get(&switch).is_some() {
            sysctl::ensure(&switch, "0").map_err(|error| chain(&error))?;
        }
        let has = self.socket.transmit_checksum_offload(&name).unwrap_or(false);
        if has != device.offload {
            let switched = self.socket.set_transmit_checksum_offload(&name, device.offload);
            switched.map_err(|error| format!("switch checksum offload: {error}"))?;
        }
        let up = link::set_flags(target, IFF_UP, IFF_UP);
        self.socket.request(up).map(drop).map_err(said)
    }
}

/// Whether a refusal says that the step is taken already.
fn is_done(change: &Change, error: &Error) -> bool {
    match change {
        Change::AddAddress(..) => error.is_exists(),
        Change::DeleteAddress(..) => error.errno() == Some(nix::errno::Errno::EADDRNOTAVAIL) || error.is_missing(),
        Change::DeleteNeighbour(..) | Change::DeleteForwarding(..) | Change::DeleteRoute(..) => error.is_missing(),
        _ => false,
    }
}

/// A step in words.
fn words(change: &Change) -> String {
    match change {
        Change::CreateDevice(family, _) => format!("make the {family:?} tunnel"),
        Change::DeleteDevice(family) => format!("delete the {family:?} tunnel"),
        Change::ChangeDevice(family, _) => format!("change the {family:?} tunnel"),
        Change::AddAddress(_, cidr) => format!("add address {cidr}"),
        Change::DeleteAddress(_, cidr) => format!("delete address {cidr}"),
        Change::SetNeighbour(_, addr, mac) => format!("set neighbour {addr} to {mac}"),
        Change::DeleteNeighbour(_, addr, _) => format!("delete neighbour {addr}"),
        Change::SetForwarding(_, mac, host) => format!("lead {mac} to {host}"),
        Change::DeleteForwarding(_, mac, host) => format!("lead {mac} to {host} no more"),
        Change::SetRoute { range, .. } => format!("set the route to {range}"),
        Change::DeleteRoute(range, _) => format!("delete the route to {range}"),
    }
}
