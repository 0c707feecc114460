//! What the sets and maps of one family are to hold for a port. Pure: a port with its chosen endpoints in, elements out.
//!
//! The number of sets is fixed. Every address a Service is reached by (address, protocol, port: its *front*) is one element of
//! `services`, which says how traffic is treated and how many endpoints there are ([`Class`]), and one of `pools`, which says
//! whose endpoints they are; NodePorts stand there under the unspecified address. Endpoints are elements of shared maps, under
//! their port's *pool* and a number, once however many fronts lead to them. With session affinity a number leads to the
//! endpoint's name first, a hash of its address, and pool and name to the endpoint: so what the kernel remembers of a client
//! stays true over changes and restarts, holds for all fronts of the port as upstream's does, and leads nowhere when the
//! endpoint is gone.

use client::ordered::Arrange;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use netlink::cidr::{self, Cidr};
use sha2::{Digest, Sha256};

use crate::model::{BY_CLUSTER_IP, BY_CONTROLLER, Choice, Chosen, PortName, Served, ServicePort};

mod bytes;
mod class;
mod set;

pub use bytes::Bytes;
pub use class::{Class, Route};
pub use set::Set;

/// How many endpoints of a port and a family are used at most: what [`Class`] has room for.
pub const ENDPOINTS_MAX: usize = (1 << class::COUNT_BITS) - 1;

/// Tells the ports of Services apart, in an order of no meaning. Names are their authors': a hash this wide has no two of one value
/// that somebody could look for.
pub type Owner = u128;

/// Names the endpoints of a port in the kernel.
pub type Pool = u32;

/// One element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// Where it goes.
    pub set: Set,
    /// Its key, parts filled up to whole words; in [`Set::Allowed`] the first and the last key behind one another.
    pub key: Bytes,
    /// Who goes first when Services ask for the same front: see [`ServicePort::fronts`].
    pub rank: u8,
    /// Its data; empty in sets.
    pub data: Bytes,
    /// The class in its data.
    pub class: Option<Class>,
}

/// The owner of a port's elements.
pub fn owner(name: &PortName) -> Owner {
    let mut hash = Sha256::new();
    for part in [&name.namespace, &name.service, &name.port] {
        hash.update(part.as_bytes());
        // No part of a name holds it.
        hash.update([0]);
    }
    hash.update([name.protocol as u8]);
    let mut owner = [0; 16];
    owner.copy_from_slice(&hash.finalize()[..16]);
    u128::from_be_bytes(owner)
}

/// Which part of an owner its pool is. Another one forgets the clients of all Services with session affinity.
pub(crate) const POOL_SHIFT: u32 = 64;

/// The pool an owner has, as long as no other has it.
pub fn pool(owner: Owner) -> Pool {
    (owner >> POOL_SHIFT) as Pool
}

/// The names of a port's endpoints, in their order: a hash of the address. When two have the same, the later one takes the next
/// free.
fn names(chosen: &[Chosen]) -> Vec<u32> {
    let mut taken = BTreeMap::new();
    let name = |address: &SocketAddr| {
        let hash = Sha256::digest([&octets(&address.ip())[..], &address.port().to_be_bytes()].concat());
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    };
    chosen
        .iter()
        .map(|endpoint| {
            let mut free = name(&endpoint.address);
            while taken.insert(free, ()).is_some() {
                free = free.wrapping_add(1);
            }
            free
        })
        .collect()
}

/// The elements of one family for a port.
pub fn elements(served: &Served, pool: Pool, node_ips: &[IpAddr], v4: bool) -> Vec<Element> {
    let mut made = Made {
        port: &served.port,
        choice: served.choice(v4),
        pool,
        v4,
        list: Vec::new(),
    };
    let fronts = served.port.fronts(v4);
    // A Service is served in the families it has a ClusterIP of.
    if fronts.is_empty() {
        return Vec::new();
    }
    made.pools();
    for ip in made.of_family(&served.port.cluster_ips) {
        made.push(Set::ClusterIps, 0, &[&octets(&ip)], &[]);
    }
    for (front, rank) in fronts {
        match rank {
            BY_CLUSTER_IP => made.internal(&made.front(&front)),
            _ => made.external(&made.front(&front), rank),
        }
    }
    made.guard(node_ips);
    made.list
}

struct Made<'a> {
    port: &'a ServicePort,
    choice: &'a Choice,
    pool: Pool,
    v4: bool,
    list: Vec<Element>,
}

impl Made<'_> {
    fn internal(&mut self, front: &[u8]) {
        let local = self.port.internal_local;
        let (route, chosen) = match local {
            true => (Route::Inner, &self.choice.local),
            false => (Route::Pick, &self.choice.cluster),
        };
        match (chosen.len(), local && self.choice.has_any) {
            (0, false) => self.push(Set::Rejected, BY_CLUSTER_IP, &[front], &[]),
            (0, true) => self.push(Set::Dropped, BY_CLUSTER_IP, &[front], &[]),
            (count, _) => self.serve(front, BY_CLUSTER_IP, route, count),
        }
    }

    fn external(&mut self, front: &[u8], rank: u8) {
        let choice = self.choice;
        let policy_local = self.port.external_local;
        if choice.cluster.is_empty() {
            return self.push(Set::Rejected, rank, &[front], &[]);
        }
        let route = if policy_local { Route::Short } else { Route::Mark };
        self.serve(front, rank, route, choice.cluster.len());
        if policy_local && !choice.local.is_empty() {
            self.lead(Set::Services(true), front, rank, Route::Local, choice.local.len());
        }
    }

    /// The endpoints, once, whichever and however many fronts lead to them.
    fn pools(&mut self) {
        let choice = self.choice;
        let mut hairpin = BTreeMap::new();
        for (local, is_used, chosen) in [
            (false, self.port.uses_cluster(), &choice.cluster),
            (true, self.port.uses_local(), &choice.local),
        ] {
            let chosen = chosen.get(..bounded(chosen.len())).unwrap_or_default();
            for (number, endpoint) in (0u32..).zip(chosen).filter(|_| is_used) {
                if endpoint.local {
                    hairpin.insert(endpoint.address.ip(), ());
                }
                if self.port.affinity_seconds == 0 {
                    self.endpoint(Set::Endpoints(local), number, &endpoint.address);
                }
            }
            if is_used && self.port.affinity_seconds > 0 {
                for (number, (name, endpoint)) in (0u32..).zip(names(chosen).into_iter().zip(chosen)) {
                    // The kernel's random numbers are words in its own byte order, and so are classes, pools and names.
                    let key = [self.pool.to_ne_bytes(), number.to_ne_bytes()];
                    self.push(Set::Numbers(local), 0, &[&key[0], &key[1]], &[&name.to_ne_bytes()]);
                    self.endpoint(Set::Members(local), name, &endpoint.address);
                }
            }
        }
        for ip in hairpin.into_keys() {
            self.push(Set::Hairpin, 0, &[&octets(&ip), &octets(&ip)], &[]);
        }
    }

    /// Where an endpoint listens, under a number or a name.
    fn endpoint(&mut self, set: Set, under: u32, address: &SocketAddr) {
        let key = [self.pool.to_ne_bytes(), under.to_ne_bytes()];
        let port = padded_port(address.port());
        self.push(set, 0, &[&key[0], &key[1]], &[&octets(&address.ip()), &port]);
    }

    /// Source ranges of load balancers. Those of one family say nothing of the other, which is open then, as upstream has it. Where the node's own address is allowed, so is the load balancer's, which is the
    /// source of what a node sends to an address it has itself.
    fn guard(&mut self, node_ips: &[IpAddr]) {
        let ips = self.of_family(&self.port.load_balancer_ips);
        let Some(ranges) = self.port.source_ranges.as_ref().filter(|_| !ips.is_empty()) else {
            return;
        };
        let own = ranges.iter().filter(|range| range.is_v4() == self.v4);
        let is_of_the_other = !ranges.is_empty() && own.clone().next().is_none();
        if is_of_the_other {
            return;
        }
        let mut ranges: Vec<Cidr> = own.copied().collect();
        if ranges.iter().any(|range| node_ips.iter().any(|ip| range.contains(ip))) {
            ranges.extend(ips.iter().map(|ip| Cidr::host(*ip)));
        }
        let ranges = disjoint(ranges);
        for ip in &ips {
            let front = self.front(&SocketAddr::new(*ip, self.port.port));
            for range in &ranges {
                let (first, last) = (range.network().octets(), octets(&range.last()));
                self.push(Set::Allowed, BY_CONTROLLER, &[&front, &first, &front, &last], &[]);
            }
            self.push(Set::Guarded, BY_CONTROLLER, &[&front], &[]);
        }
    }

    /// A front that is served, from the port's pool.
    fn serve(&mut self, front: &[u8], rank: u8, route: Route, count: usize) {
        self.lead(Set::Services(false), front, rank, route, count);
        let pool = self.pool.to_ne_bytes();
        self.push(Set::Pools, rank, &[front], &[&pool]);
    }

    /// Says how a front's traffic is treated.
    fn lead(&mut self, set: Set, front: &[u8], rank: u8, route: Route, count: usize) {
        let class = Class {
            route,
            count: bounded(count) as u32,
            affinity: self.port.affinity_seconds,
        };
        self.push(set, rank, &[front], &[&class.number().to_ne_bytes()]);
        if let Some(element) = self.list.last_mut() {
            element.class = Some(class);
        }
    }

    fn push(&mut self, set: Set, rank: u8, key: &[&[u8]], data: &[&[u8]]) {
        self.list.push(Element {
            set,
            key: Bytes::joined(key),
            rank,
            data: Bytes::joined(data),
            class: None,
        });
    }

    fn front(&self, at: &SocketAddr) -> Vec<u8> {
        let protocol = [self.port.name.protocol as u8, 0, 0, 0];
        [&octets(&at.ip())[..], &protocol, &padded_port(at.port())].concat()
    }

    fn of_family(&self, ips: &[IpAddr]) -> Vec<IpAddr> {
        ips.iter().copied().filter(|ip| ip.is_ipv4() == self.v4).collect()
    }
}

fn octets(ip: &IpAddr) -> Vec<u8> {
    cidr::octets(ip)
}

/// How many of so many endpoints there is room for.
fn bounded(count: usize) -> usize {
    count.min(ENDPOINTS_MAX)
}

fn padded_port(port: u16) -> [u8; 4] {
    let [high, low] = port.to_be_bytes();
    [high, low, 0, 0]
}

/// The networks that are not inside another of the list: a set of ranges takes no overlapping ones.
pub(crate) fn disjoint(mut ranges: Vec<Cidr>) -> Vec<Cidr> {
    // Networks lie inside one another or apart: in this order whatever holds a network comes before it, with nothing between
    // them that it does not hold too.
    ranges.arrange_by_key(|range| (range.network().octets(), range.prefix));
    let mut kept: Vec<Cidr> = Vec::new();
    for range in ranges {
        if !kept.last().is_some_and(|last| last.contains(&range.addr)) {
            kept.push(range);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
