//! What the allocation of addresses and node ports counts, under upstream's names (`kube_apiserver_clusterip_allocator_*`,
//! `kube_apiserver_nodeport_allocator_*`). A request that stores nothing in the end (a refusal by validation, say) has counted all the same.
//!
//! Owns the counts. What ranges are no more is forgotten when the counts are asked for.

use crate::resource::service::{AllocateError, Range, held_addresses, held_ports};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Chosen by who asks.
const STATIC: &str = "static";
/// Chosen here.
const DYNAMIC: &str = "dynamic";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Cidr {
    cidr: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CidrScope {
    cidr: String,
    scope: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Scope {
    scope: &'static str,
}

/// What a Service had and asks for, before it is given the rest.
pub(super) struct Asked {
    addresses: BTreeSet<IpAddr>,
    had_addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
    had_ports: BTreeSet<u16>,
}

impl Asked {
    pub(super) fn of(service: &Value, old: Option<&Value>) -> Self {
        Self {
            addresses: held_addresses(service),
            had_addresses: old.map(held_addresses).unwrap_or_default(),
            ports: held_ports(service),
            had_ports: old.map(held_ports).unwrap_or_default(),
        }
    }
}

/// Allocations and errors.
#[derive(Default)]
struct Numbers {
    /// By range and scope.
    addresses: BTreeMap<(String, &'static str), [u64; 2]>,
    /// By scope.
    ports: BTreeMap<&'static str, [u64; 2]>,
}

/// The counts.
#[derive(Default)]
pub(super) struct Counted(Mutex<Numbers>);

fn scope(is_asked: bool) -> &'static str {
    if is_asked { STATIC } else { DYNAMIC }
}

impl Counted {
    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what became of a Service's addresses.
    pub(super) fn addresses(
        &self,
        asked: &Asked,
        service: &Value,
        ranges: &[Range],
        given: &Result<(), AllocateError>,
    ) {
        let mut numbers = self.lock();
        let mut count = |range: &Range, scope, which: usize| {
            let of_range = numbers.addresses.entry((range.to_string(), scope)).or_default();
            of_range[which] += 1;
        };
        match given {
            Ok(()) => {
                for ip in held_addresses(service).difference(&asked.had_addresses) {
                    if let Some(range) = ranges.iter().find(|range| range.spans(*ip)) {
                        count(range, scope(asked.addresses.contains(ip)), 0);
                    }
                }
            }
            Err(AllocateError::Exhausted(_)) => ranges.iter().for_each(|range| count(range, DYNAMIC, 1)),
            Err(_) => {
                let mut refused = asked.addresses.difference(&asked.had_addresses);
                if let Some(range) = refused.find_map(|ip| ranges.iter().find(|range| range.spans(*ip))) {
                    count(range, STATIC, 1);
                }
            }
        }
    }

    /// Counts what became of a Service's node ports.
    pub(super) fn ports(&self, asked: &Asked, service: &Value, given: &Result<(), AllocateError>) {
        let mut numbers = self.lock();
        let mut count = |scope, which: usize| numbers.ports.entry(scope).or_default()[which] += 1;
        match given {
            Ok(()) => {
                let ports = held_ports(service);
                let new = ports.difference(&asked.had_ports);
                new.for_each(|port| count(scope(asked.ports.contains(port)), 0));
            }
            Err(error) => count(scope(!matches!(error, AllocateError::Exhausted(_))), 1),
        }
    }

    /// Adds the counts to `registry`, with what is held now: `addresses` of all ranges, and how many node ports of how many.
    pub(super) fn register(
        &self,
        registry: &mut Registry,
        addresses: impl Iterator<Item = IpAddr>,
        ranges: &[Range],
        (ports, all_ports): (usize, usize),
    ) {
        let names: BTreeSet<String> = ranges.iter().map(ToString::to_string).collect();
        let mut numbers = self.lock();
        numbers.addresses.retain(|(cidr, _), _| names.contains(cidr));
        let mut held = vec![0u128; ranges.len()];
        for ip in addresses {
            if let Some(own) = ranges.iter().position(|range| range.spans(ip)) {
                held[own] += 1;
            }
        }
        let (allocated, available) = (Family::<Cidr, Gauge>::default(), Family::<Cidr, Gauge>::default());
        for (range, held) in ranges.iter().zip(held) {
            let cidr = Cidr {
                cidr: range.to_string(),
            };
            allocated.get_or_create(&cidr).set(whole(held));
            let free = range.usable_count().saturating_sub(held);
            available.get_or_create(&cidr).set(whole(free));
        }
        let counts = [Family::<CidrScope, Counter>::default(), Family::default()];
        for ((cidr, scope), both) in &numbers.addresses {
            let labels = CidrScope {
                cidr: cidr.clone(),
                scope,
            };
            for (family, count) in counts.iter().zip(both) {
                family.get_or_create(&labels).inc_by(*count);
            }
        }
        let [made, failed] = counts;
        let own = registry.sub_registry_with_prefix("kube_apiserver_clusterip_allocator");
        own.register(
            "allocated_ips",
            "Gauge measuring the number of allocated IPs for Services",
            allocated,
        );
        own.register(
            "available_ips",
            "Gauge measuring the number of available IPs for Services",
            available,
        );
        own.register("allocation", "Number of Cluster IPs allocations", made);
        own.register(
            "allocation_errors",
            "Number of errors trying to allocate Cluster IPs",
            failed,
        );
        let own = registry.sub_registry_with_prefix("kube_apiserver_nodeport_allocator");
        register_ports(own, &numbers.ports, ports, all_ports);
    }
}

fn register_ports(own: &mut Registry, numbers: &BTreeMap<&'static str, [u64; 2]>, held: usize, all: usize) {
    let gauge = |number: usize| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        gauge
    };
    let help = "Gauge measuring the number of allocated NodePorts for Services";
    own.register("allocated_ports", help, gauge(held));
    let help = "Gauge measuring the number of available NodePorts for Services";
    own.register("available_ports", help, gauge(all.saturating_sub(held)));
    let counts = [Family::<Scope, Counter>::default(), Family::default()];
    for (scope, both) in numbers {
        for (family, count) in counts.iter().zip(both) {
            family.get_or_create(&Scope { scope }).inc_by(*count);
        }
    }
    let [made, failed] = counts;
    own.register("allocation", "Number of NodePort allocations", made);
    own.register(
        "allocation_errors",
        "Number of errors trying to allocate NodePort",
        failed,
    );
}

fn whole(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
