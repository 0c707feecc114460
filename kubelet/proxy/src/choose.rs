//! Which endpoints traffic of a port goes to from this node (contract controlplane.md §13, upstream's topology rules). Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::model::{Choice, Chosen, Endpoint, Protocol, Served, ServicePort};

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
        here,
    )
}

/// The same of endpoints that have many ports: each comes with the one that counts, whatever its own address says.
pub fn choose_at<'a>(
    port: ServicePort,
    endpoints: impl Iterator<Item = (u16, &'a Endpoint)>,
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
    let (v4, v6) = (of_family(true), of_family(false));
    let local_endpoints = match port.cluster_ips.first() {
        Some(first) if first.is_ipv6() => v6.local.len(),
        _ => v4.local.len(),
    };
    let is_udp = port.name.protocol == Protocol::Udp;
    let serving = by_address
        .values()
        .filter(|endpoint| is_udp && (endpoint.ready || endpoint.serving));
    let serving = serving.map(|endpoint| endpoint.address).collect();
    Served {
        port,
        v4,
        v6,
        serving,
        local_endpoints,
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
