//! Which UDP flows are stale: those sent to a Service's address, or to a node port, that go to no endpoint of it. Pure.

use crate::model::{Protocol, Served, Snapshot};
use netlink::conntrack::{Flow, FlowFilter, UDP};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// More places than that are looked for in one listing of the family's flows; each of fewer is asked for by itself.
const EXACT_MAX: usize = 8;

/// Where clients send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frontend {
    /// An address of a Service.
    Address(SocketAddr),
    /// This port of any address of the node.
    NodePort(u16),
}

/// The places whose flows are to be looked at, each with the endpoints its flows may go to. By the newest state of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale(BTreeMap<Frontend, Arc<[SocketAddr]>>);

impl Stale {
    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the node's own addresses matter.
    pub fn has_node_ports(&self) -> bool {
        // Ordered: those come last.
        matches!(self.0.last_key_value(), Some((Frontend::NodePort(_), _)))
    }

    /// Adds what is newer.
    pub fn extend(&mut self, newer: Self) {
        self.0.extend(newer.0);
    }

    /// What the kernel is asked to list, for one family.
    pub fn filters(&self, v4: bool) -> Vec<FlowFilter> {
        let filter = |address, port| FlowFilter {
            v4,
            protocol: UDP,
            port,
            address,
        };
        let of_family = |frontend: &&Frontend| match frontend {
            Frontend::Address(address) => address.is_ipv4() == v4,
            Frontend::NodePort(_) => true,
        };
        let mut exact: Vec<FlowFilter> = Vec::new();
        for frontend in self.0.keys().filter(of_family) {
            if exact.len() == EXACT_MAX {
                return vec![filter(None, None)];
            }
            exact.push(match frontend {
                Frontend::Address(address) => filter(Some(address.ip()), Some(address.port())),
                Frontend::NodePort(port) => filter(None, Some(*port)),
            });
        }
        exact
    }

    /// Whether a flow goes where it should not. `local` are the node's addresses. Where there is an endpoint to go to, a flow that goes
    /// to none is stale; where there is none, only one that went to some is: others wait for nobody.
    pub fn is_stale(&self, flow: &Flow, local: &[IpAddr]) -> bool {
        let is_local = || local.contains(&flow.target.ip());
        let endpoints = self.0.get(&Frontend::Address(flow.target)).or_else(|| {
            let port = Frontend::NodePort(flow.target.port());
            self.0.get(&port).filter(|_| is_local())
        });
        let Some(endpoints) = endpoints else { return false };
        let mut of_family = endpoints
            .iter()
            .filter(|endpoint| endpoint.is_ipv4() == flow.target.is_ipv4());
        let Some(first) = of_family.next() else {
            return flow.is_translated();
        };
        *first != flow.reply_source && !of_family.any(|endpoint| *endpoint == flow.reply_source)
    }
}

fn frontends(served: &Served) -> impl Iterator<Item = Frontend> {
    let port = &served.port;
    let addresses: [&[IpAddr]; 3] = [&port.cluster_ips, &port.external_ips, &port.load_balancer_ips];
    let addresses = addresses.into_iter().flatten();
    let addresses = addresses.map(|address| Frontend::Address(SocketAddr::new(*address, port.port)));
    addresses.chain((port.node_port != 0).then_some(Frontend::NodePort(port.node_port)))
}

fn udp(ports: &[Served]) -> impl Iterator<Item = &Served> {
    ports.iter().filter(|served| served.port.name.protocol == Protocol::Udp)
}

/// Where one Service is reached by UDP, with the endpoints that still serve: whatever policies and topology say, flows that exist
/// stay with them, as TCP's do.
fn places(ports: &[Served]) -> BTreeMap<Frontend, Arc<[SocketAddr]>> {
    let places = udp(ports).flat_map(|served| {
        let serving: Arc<[SocketAddr]> = served.serving.clone();
        frontends(served).map(move |frontend| (frontend, serving.clone()))
    });
    places.collect()
}

/// What to look at once `after` is served in the place of `before`; of a first state everything.
pub fn stale_after(before: Option<&Snapshot>, after: &Snapshot) -> Stale {
    let nothing = Snapshot::default();
    let old = before.unwrap_or(&nothing);
    let (mut found, mut gone) = (Stale::default(), BTreeSet::new());
    for (name, ports) in &after.services {
        let before = old.services.get(name);
        if before.is_some_and(|before| Arc::ptr_eq(before, ports)) {
            continue;
        }
        let (was, mut is) = (before.map(|ports| places(ports)).unwrap_or_default(), places(ports));
        gone.extend(was.keys().filter(|frontend| !is.contains_key(frontend)).copied());
        is.retain(|frontend, endpoints| was.get(frontend) != Some(endpoints));
        found.0.extend(is);
    }
    let ended = old
        .services
        .iter()
        .filter(|(name, _)| !after.services.contains_key(*name));
    gone.extend(ended.flat_map(|(_, ports)| udp(ports)).flat_map(frontends));
    if !gone.is_empty() {
        // Another Service may be there now, or may have been there all along.
        let held: BTreeSet<Frontend> = after
            .services
            .values()
            .flat_map(|ports| udp(ports))
            .flat_map(frontends)
            .collect();
        let none: Arc<[SocketAddr]> = Arc::new([]);
        found
            .0
            .extend(gone.difference(&held).map(|frontend| (*frontend, none.clone())));
    }
    found
}
