//! Which endpoints traffic of a port goes to from this node (contract controlplane.md §13, upstream's topology rules). Pure.

use client::ordered::CollectOrdered;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::desired::ENDPOINTS_MAX;
use crate::model::{Choice, Chosen, Endpoint, Protocol, Served, ServicePort};

/// How many endpoints of one Service are used at most: its ports times their endpoints, of one family and policy.
const SERVICE_ENDPOINTS_MAX: usize = 50_000;

/// Where this proxy stands.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Its zone, or empty.
    pub zone: &'a str,
}

/// Which of the ready endpoints are meant for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    Everywhere,
    SameNode,
    SameZone,
}

/// An endpoint at one port of it.
#[derive(Clone, Copy)]
struct At<'a> {
    address: SocketAddr,
    endpoint: &'a Endpoint,
}

impl std::ops::Deref for At<'_> {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        self.endpoint
    }
}

/// Chooses endpoints of both families for a port. The same address told by several slices counts once, the best state of it.
pub fn choose<'a>(port: ServicePort, endpoints: impl Iterator<Item = &'a Endpoint>, here: Here<'_>) -> Served {
    choose_at(
        port,
        endpoints.map(|endpoint| (endpoint.address.port(), endpoint)),
        ENDPOINTS_MAX,
        here,
    )
}

/// How many endpoints of each port of a Service are used, of one family and policy: one with a great many ports may not have a
/// great many endpoints at each of them, for its author decides on both.
pub fn endpoints_max(ports: usize) -> usize {
    (SERVICE_ENDPOINTS_MAX / ports.max(1)).clamp(1, ENDPOINTS_MAX)
}

/// The same of endpoints that have many ports: each comes with the one that counts, whatever its own address says. At most
/// `most` are used, the first by address.
pub fn choose_at<'a>(
    port: ServicePort,
    endpoints: impl Iterator<Item = (u16, &'a Endpoint)>,
    most: usize,
    here: Here<'_>,
) -> Served {
    let mut by_address: BTreeMap<SocketAddr, At<'_>> = BTreeMap::new();
    let state = |endpoint: &Endpoint| (endpoint.ready, endpoint.serving, endpoint.local);
    for (number, endpoint) in endpoints {
        let address = SocketAddr::new(endpoint.address.ip(), number);
        let kept = by_address.entry(address).or_insert(At { address, endpoint });
        if state(endpoint) > state(kept) {
            kept.endpoint = endpoint;
        }
    }
    let of_family = |v4: bool| {
        let list: Vec<At<'_>> = by_address
            .values()
            .copied()
            .filter(|endpoint| endpoint.address.is_ipv4() == v4)
            .collect();
        choose_family(&port, &list, here)
    };
    let (mut v4, mut v6) = (of_family(true), of_family(false));
    let lists = [&mut v4.cluster, &mut v4.local, &mut v6.cluster, &mut v6.local];
    let beyond = lists.into_iter().map(|list| bound(list, most)).max().unwrap_or(0);
    let local_endpoints = local_ready(&by_address, !port.cluster_ips.first().is_some_and(IpAddr::is_ipv6));
    let mut served = Served {
        port,
        v4,
        v6,
        serving: Arc::default(),
        local_endpoints,
        beyond,
    };
    if served.port.name.protocol == Protocol::Udp {
        served.serving = serving(&by_address, &served, most);
    }
    served
}

/// How many endpoints of a family are ready here, each once whatever its ports. Those that end are led what still comes, and are not
/// counted: balancers are to send to other nodes before the last one here is gone.
fn local_ready(by_address: &BTreeMap<SocketAddr, At<'_>>, v4: bool) -> usize {
    let ready = by_address.iter().filter(|(_, at)| at.local && at.ready);
    let of_family = ready.map(|(address, _)| address.ip()).filter(|ip| ip.is_ipv4() == v4);
    of_family.collect_ordered::<BTreeSet<IpAddr>>().len()
}

/// Shortens a list; returns by how much.
fn bound(list: &mut Vec<Chosen>, most: usize) -> usize {
    let beyond = list.len().saturating_sub(most);
    list.truncate(most);
    list.shrink_to_fit();
    beyond
}

/// Those that serve: where there are more than are used, those that are chosen among them.
fn serving(by_address: &BTreeMap<SocketAddr, At<'_>>, served: &Served, most: usize) -> Arc<[SocketAddr]> {
    let serving = by_address
        .values()
        .filter(|endpoint| endpoint.ready || endpoint.serving);
    let all = || serving.clone().map(|endpoint| endpoint.address);
    match all().nth(4 * most) {
        None => all().collect(),
        Some(_) => served.endpoints().into(),
    }
}

fn choose_family(port: &ServicePort, endpoints: &[At<'_>], here: Here<'_>) -> Choice {
    let mut choice = Choice {
        has_any: endpoints.iter().any(|endpoint| endpoint.ready || is_ending(endpoint)),
        ..Choice::default()
    };
    if port.uses_cluster() {
        let topology = topology(endpoints, here);
        choice.cluster = usable(endpoints, |endpoint| meant_for(endpoint, topology, here));
    }
    if port.uses_local() {
        let local: Vec<At<'_>> = endpoints.iter().copied().filter(|endpoint| endpoint.local).collect();
        choice.local = usable(&local, |_| true);
    }
    choice
}

/// Ready endpoints that are meant for this node; when there are none, those that still serve while they end.
fn usable(endpoints: &[At<'_>], meant: impl Fn(&Endpoint) -> bool) -> Vec<Chosen> {
    let chosen = |wanted: &dyn Fn(&Endpoint) -> bool| -> Vec<Chosen> {
        let wanted = endpoints.iter().filter(|endpoint| wanted(endpoint));
        wanted
            .map(|endpoint| Chosen {
                address: endpoint.address,
                local: endpoint.local,
            })
            .collect()
    };
    let ready = chosen(&|endpoint| endpoint.ready && meant(endpoint));
    if ready.is_empty() { chosen(&is_ending) } else { ready }
}

fn is_ending(endpoint: &Endpoint) -> bool {
    endpoint.serving && endpoint.terminating
}

/// Hints count only when every ready endpoint has some and at least one is meant for here; those for nodes go before those
/// for zones.
fn topology(endpoints: &[At<'_>], here: Here<'_>) -> Topology {
    let ready = || endpoints.iter().filter(|endpoint| endpoint.ready);
    let hinted = |topology| {
        let all = ready().all(|endpoint| match topology {
            Topology::SameNode => !endpoint.node_hints.is_empty(),
            _ => !endpoint.zone_hints.is_empty(),
        });
        all && ready().any(|endpoint| meant_for(endpoint, topology, here))
    };
    let known = [Topology::SameNode, Topology::SameZone];
    known
        .into_iter()
        .find(|topology| hinted(*topology))
        .unwrap_or(Topology::Everywhere)
}

fn meant_for(endpoint: &Endpoint, topology: Topology, here: Here<'_>) -> bool {
    match topology {
        Topology::Everywhere => true,
        Topology::SameNode => endpoint.node_hints.iter().any(|node| node == here.node),
        Topology::SameZone => endpoint.zone_hints.iter().any(|zone| zone == here.zone),
    }
}

#[cfg(test)]
mod tests;
