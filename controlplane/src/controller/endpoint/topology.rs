//! Hints by the zones' share of the nodes' CPUs, for Services that say `service.kubernetes.io/topology-mode: Auto`. Pure.
//!
//! Source: KEP-2433 and upstream's topologycache (bounds, reasons, messages). Hints that are there stay while every zone has neither too
//! few endpoints nor too many; otherwise all are given anew: each endpoint to its own zone first, then from zones with more than their share
//! to those with less.

use crate::held::Node;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForZone};
use kube::ResourceExt;
use proto::api::quantity::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Label that names a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The annotation, and the one before it, which goes first.
const MODES: [&str; 2] = [
    "service.kubernetes.io/topology-aware-hints",
    "service.kubernetes.io/topology-mode",
];
/// Nodes that take no part.
const EXCLUDED: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
/// How much more than its share an endpoint may get.
const OVERLOAD: f64 = 0.2;

/// What part of the CPUs each zone has; they add up to 1.
pub type Ratios = BTreeMap<String, f64>;

/// Whether the Service asks for such hints.
pub fn is_auto(service: &Service) -> bool {
    let said = MODES.iter().find_map(|mode| service.annotations().get(*mode));
    said.is_some_and(|mode| mode == "Auto" || mode == "auto")
}

/// What of a node bears on hints: its zone and its CPUs in thousandths; `None` for one that takes no part.
pub fn share(node: &Node) -> Option<(String, i128)> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let takes_part = ready.is_some_and(|ready| ready.status == "True")
        && !EXCLUDED.iter().any(|label| node.labels().contains_key(*label));
    let cpu = status.and_then(|status| status.allocatable.as_ref()?.get("cpu"));
    let zone = node.labels().get(ZONE).cloned().unwrap_or_default();
    takes_part.then(|| (zone, cpu.map_or(0, |cpu| i128::from(Quantity::of(cpu).milli_value()))))
}

/// The zones' parts. `None` where they cannot be told: a node without zone or CPUs, or fewer than two zones.
pub fn ratios(nodes: &[Arc<Node>]) -> Option<Ratios> {
    let mut by_zone: BTreeMap<String, i128> = BTreeMap::new();
    for (zone, cpu) in nodes.iter().filter_map(|node| share(node)) {
        if zone.is_empty() || cpu <= 0 {
            return None;
        }
        *by_zone.entry(zone).or_default() += cpu;
    }
    let all: i128 = by_zone.values().sum();
    let part = |(zone, cpu): (String, i128)| (zone, cpu as f64 / all as f64);
    (by_zone.len() > 1).then(|| by_zone.into_iter().map(part).collect())
}

/// How many endpoints a zone is to have.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Allocation {
    least: usize,
    most: usize,
    desired: f64,
}

fn allocations(ratios: Option<&Ratios>, endpoints: usize) -> Result<BTreeMap<&str, Allocation>, String> {
    let Some(ratios) = ratios else {
        let why = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
        return Err(why.to_owned());
    };
    let counts = format!("({endpoints} endpoints, {} zones)", ratios.len());
    if ratios.len() > endpoints {
        return Err(format!("Insufficient number of endpoints {counts}"));
    }
    let least = |ratio: f64| (ratio * endpoints as f64 / (1.0 + OVERLOAD)).ceil() as usize;
    let Some(spare) = endpoints.checked_sub(ratios.values().map(|ratio| least(*ratio)).sum()) else {
        let why = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
        return Err(format!("{why} {counts}"));
    };
    let of = |ratio: f64| Allocation {
        least: least(ratio),
        most: least(ratio) + spare,
        desired: (ratio * endpoints as f64).max(least(ratio) as f64),
    };
    Ok(ratios.iter().map(|(zone, ratio)| (zone.as_str(), of(*ratio))).collect())
}

fn is_ready(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|conditions| conditions.ready) == Some(true)
}

fn hinted(endpoint: &Endpoint) -> Option<&str> {
    let zones = endpoint.hints.as_ref()?.for_zones.as_deref()?;
    zones
        .first()
        .filter(|_| zones.len() == 1)
        .map(|zone| zone.name.as_str())
}

fn hint(endpoint: &mut Endpoint, zone: &str) {
    let for_zones = Some(vec![ForZone { name: zone.to_owned() }]);
    endpoint.hints = Some(EndpointHints {
        for_zones,
        ..EndpointHints::default()
    });
}

/// Gives the endpoints of one family their hints; those that have some come with them.
///
/// # Errors
/// Why there are no hints, in upstream's words; then there are none.
pub fn assign(endpoints: &mut [&mut Endpoint], ratios: Option<&Ratios>) -> Result<(), String> {
    let given = try_assign(endpoints, ratios);
    if given.is_err() {
        endpoints.iter_mut().for_each(|endpoint| endpoint.hints = None);
    }
    given
}

fn try_assign(endpoints: &mut [&mut Endpoint], ratios: Option<&Ratios>) -> Result<(), String> {
    let (mut ready, mut others): (Vec<_>, Vec<_>) = endpoints.iter_mut().partition(|endpoint| is_ready(endpoint));
    others.iter_mut().for_each(|endpoint| endpoint.hints = None);
    let allocations = allocations(ratios, ready.len())?;
    let zones = ready
        .iter()
        .map(|endpoint| endpoint.zone.clone().filter(|zone| !zone.is_empty()));
    let zones: Option<Vec<String>> = zones.collect();
    let zones = zones.ok_or("One or more endpoints do not have a zone specified")?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (endpoint, own) in ready.iter_mut().zip(&zones) {
        let kept = hinted(endpoint).filter(|zone| allocations.contains_key(zone));
        let zone = kept.unwrap_or(own).to_owned();
        hint(endpoint, &zone);
        *counts.entry(zone).or_default() += 1;
    }
    let has = |zone: &str| counts.get(zone).copied().unwrap_or(0);
    let fits = |(zone, wanted): (&&str, &Allocation)| (wanted.least..=wanted.most).contains(&has(zone));
    if !allocations.iter().all(fits) {
        redistribute(&mut ready, &zones, &allocations);
    }
    Ok(())
}

/// Own zones for all, then as many to other zones as the shares want.
fn redistribute(ready: &mut [&mut &mut Endpoint], zones: &[String], allocations: &BTreeMap<&str, Allocation>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (endpoint, own) in ready.iter_mut().zip(zones) {
        hint(endpoint, own);
        *counts.entry(own).or_default() += 1;
    }
    let mut moves = moves(&counts, allocations);
    for (endpoint, own) in ready.iter_mut().zip(zones) {
        if let Some(to) = moves.get_mut(own.as_str()).and_then(Vec::pop) {
            hint(endpoint, to);
        }
    }
}

/// The zones that each zone gives endpoints to.
fn moves<'a>(
    counts: &BTreeMap<&'a str, usize>,
    allocations: &BTreeMap<&'a str, Allocation>,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let surplus = |(zone, wanted): (&&'a str, &Allocation)| {
        let has = counts.get(zone).copied().unwrap_or(0);
        (*zone, has as f64 - wanted.desired)
    };
    let mut surplus: BTreeMap<&str, f64> = allocations.iter().map(surplus).collect();
    let mut moves: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    loop {
        let by_amount = |one: &(&&str, &f64), other: &(&&str, &f64)| one.1.total_cmp(other.1);
        let most = surplus.iter().max_by(by_amount).map(|(zone, more)| (*zone, *more));
        let least = surplus.iter().min_by(by_amount).map(|(zone, more)| (*zone, -*more));
        let (Some((from, gives)), Some((to, takes))) = (most, least) else {
            return moves;
        };
        if gives < 0.5 || takes < 0.5 || (gives < 1.0 && takes < 1.0) {
            return moves;
        }
        surplus.insert(from, gives - 1.0);
        surplus.insert(to, 1.0 - takes);
        moves.entry(from).or_default().push(to);
    }
}

#[cfg(test)]
mod tests;
