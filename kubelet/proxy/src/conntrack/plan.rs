//! Which UDP flows are stale: those sent to a Service's address, or to a node port, that go to no endpoint of it. Pure.

use crate::desired::{Owner, owner};
use crate::model::{Protocol, Served, ServicePort, Snapshot};
use client::ordered::CollectOrdered;
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
    /// This port of any address of the node of IPv4 (`true`), or of IPv6.
    NodePort(bool, u16),
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
        matches!(self.0.last_key_value(), Some((Frontend::NodePort(..), _)))
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
            Frontend::NodePort(of, _) => *of == v4,
        };
        let mut exact: Vec<FlowFilter> = Vec::new();
        for frontend in self.0.keys().filter(of_family) {
            if exact.len() == EXACT_MAX {
                return vec![filter(None, None)];
            }
            exact.push(match frontend {
                Frontend::Address(address) => filter(Some(address.ip()), Some(address.port())),
                Frontend::NodePort(_, port) => filter(None, Some(*port)),
            });
        }
        exact
    }

    /// Whether a flow goes where it should not. `local` are the node's addresses. Where there is an endpoint to go to, a flow that goes
    /// to none is stale; where there is none, only one that went to some is: others wait for nobody.
    pub fn is_stale(&self, flow: &Flow, local: &[IpAddr]) -> bool {
        let is_local = || local.contains(&flow.target.ip());
        let endpoints = self.0.get(&Frontend::Address(flow.target)).or_else(|| {
            let port = Frontend::NodePort(flow.target.is_ipv4(), flow.target.port());
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

/// Where a port's traffic comes to, with its right to each place.
fn frontends(port: &ServicePort) -> impl Iterator<Item = (Frontend, u8)> {
    [true, false].into_iter().flat_map(|v4| {
        port.fronts(v4)
            .into_iter()
            .map(move |(at, right)| match at.ip().is_unspecified() {
                true => (Frontend::NodePort(v4, at.port()), right),
                false => (Frontend::Address(at), right),
            })
    })
}

fn udp(ports: &[Served]) -> impl Iterator<Item = &Served> {
    ports.iter().filter(|served| served.port.name.protocol == Protocol::Udp)
}

/// Who has a place, and the endpoints of it that still serve: whatever policies and topology say, flows that exist stay with them, as
/// TCP's do.
struct Held<'a> {
    right: (u8, Owner),
    serving: &'a Arc<[SocketAddr]>,
}

/// Who has these places: of several who ask for one, the same as in the rules.
fn held<'a>(snapshot: &'a Snapshot, places: &BTreeSet<Frontend>) -> BTreeMap<Frontend, Held<'a>> {
    let mut all: BTreeMap<Frontend, Held<'a>> = BTreeMap::new();
    for served in snapshot.services.values().flat_map(|ports| udp(ports)) {
        let mut name = None;
        for (place, right) in frontends(&served.port).filter(|(place, _)| places.contains(place)) {
            let right = (right, *name.get_or_insert_with(|| owner(&served.port.name)));
            if all.get(&place).is_none_or(|held| right < held.right) {
                let serving = &served.serving;
                all.insert(place, Held { right, serving });
            }
        }
    }
    all
}

/// What to look at once `after` is served in the place of `before`; of a first state everything.
pub fn stale_after(before: Option<&Snapshot>, after: &Snapshot) -> Stale {
    let nothing = Snapshot::default();
    let before = before.unwrap_or(&nothing);
    let mut places = BTreeSet::new();
    for (these, others) in [(before, after), (after, before)] {
        for (name, ports) in &these.services {
            let is_same = |other: &Arc<[Served]>| Arc::ptr_eq(other, ports);
            if !others.services.get(name).is_some_and(is_same) {
                places.extend(
                    udp(ports)
                        .flat_map(|served| frontends(&served.port))
                        .map(|(place, _)| place),
                );
            }
        }
    }
    if places.is_empty() {
        return Stale::default();
    }
    let (was, mut is) = (held(before, &places), held(after, &places));
    let none: Arc<[SocketAddr]> = Arc::default();
    let changed = places.into_iter().filter_map(|place| {
        let now = is.remove(&place).map_or(&none, |held| held.serving);
        let same = was.get(&place).is_some_and(|held| held.serving == now);
        // Another may have it now, whom its flows do not belong to.
        (!same).then(|| (place, now.clone()))
    });
    Stale(changed.collect_ordered())
}
