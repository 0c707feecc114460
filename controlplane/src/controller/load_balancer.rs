//! Services of type LoadBalancer get the addresses of nodes, whose proxies lead them to pods. Off unless `--controllers` names it, as
//! upstream's is without a cloud.
//!
//! Source: control-plane contract §12 (upstream's service-lb-controller: finalizer, events). Ours alone: a port of a node's address is one
//! Service's ([`claims`]), and those that nodes need themselves are nobody's: a Service takes every node's traffic to it.
//! A Service is planned when its own claim changes or that of one it shares ports with, one at a time, so that each sees what the last took.
//! Who has what is kept ([`claims::Holdings`]) and brought up to date by the claims that changed: a new Service costs its own ports, however many
//! others there are.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{self, Plan, Write};
use crate::held::Node;
use crate::resource::service::NodePorts;
use claims::{Claim, Clash, Port, Rivals};
use client::Key;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, PortStatus, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub mod claims;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// What is wrong with a port of an address that the Service does not get. The API wants a prefix before what is not one of its own names.
const IN_USE: &str = "service-lb-controller/PortInUse";
/// Addresses that one Service wants.
const MOST: usize = 32;
/// Ports that nodes and the control plane are reached at: SSH, DNS, the store's, the API server's, kubelets', proxies', controllers' and the scheduler's, and
/// the overlay's. No Service takes them.
const KEPT: [i32; 13] = [
    22, 53, 2379, 2380, 4789, 6443, 8472, 10248, 10249, 10250, 10256, 10257, 10259,
];

/// The controller. Its keys are Services.
pub struct LoadBalancers {
    /// The shared informers.
    pub informers: Informers,
    /// Who shares ports with whom, as changes tell it, and who has what.
    pub rivals: Arc<Mutex<Rivals>>,
    /// Ports that Services have already, one way or the other.
    pub node_ports: NodePorts,
}

fn spec(service: &Service) -> Option<&ServiceSpec> {
    service.spec.as_ref()
}

/// Whether the Service is to have addresses of ours.
pub fn is_wanted(service: &Service) -> bool {
    let of_us = |spec: &ServiceSpec| {
        spec.type_.as_deref() == Some("LoadBalancer")
            && spec.load_balancer_class.as_deref().unwrap_or_default().is_empty()
    };
    spec(service).is_some_and(of_us) && service.metadata.deletion_timestamp.is_none()
}

fn is_held(service: &Service) -> bool {
    service.finalizers().iter().any(|name| name == FINALIZER)
}

fn concerns_us(service: &Service) -> bool {
    is_wanted(service) || is_held(service)
}

fn ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A node as balancers see it: its addresses, those for outside first; none if it takes no traffic.
pub fn addresses(node: &Node) -> Vec<IpAddr> {
    let is_out = node.labels().contains_key(EXCLUDED) || node.metadata.deletion_timestamp.is_some() || !ready(node);
    let all = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let of = |kind: &str| -> Vec<IpAddr> {
        let all = all.into_iter().flatten().filter(|address| address.type_ == kind);
        all.filter_map(|address| address.address.parse().ok()).collect()
    };
    match is_out {
        true => Vec::new(),
        false => of("ExternalIP").into_iter().chain(of("InternalIP")).collect(),
    }
}

/// What of a Service bears on others.
#[derive(PartialEq)]
struct Stake<'a> {
    /// The ports it has a say in.
    ports: BTreeSet<Port>,
    shown: &'a [LoadBalancerIngress],
    is_wanted: bool,
    is_local: bool,
    families: &'a [String],
    created: Option<Timestamp>,
}

fn stake(service: &Service) -> Option<Stake<'_>> {
    concerns_us(service).then(|| Stake {
        ports: held(service).into_values().flatten().chain(ports(service)).collect(),
        shown: shown(service),
        is_wanted: is_wanted(service),
        is_local: is_local(service),
        families: families(service),
        created: created(service),
    })
}

fn families(service: &Service) -> &[String] {
    let families = spec(service).and_then(|spec| spec.ip_families.as_deref());
    families.unwrap_or_default()
}

fn created(service: &Service) -> Option<Timestamp> {
    service.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn lock(rivals: &Mutex<Rivals>) -> MutexGuard<'_, Rivals> {
    rivals.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controller for LoadBalancers {
    const NAME: &'static str = "service-controller";
    const AT_ONCE: usize = 1;

    fn wire(&self, wiring: &mut Wiring) {
        let rivals = Arc::clone(&self.rivals);
        wiring.on(&self.informers.services, move |change| {
            let [old, new] = [&change.old, &change.new].map(|side| side.as_deref().and_then(stake));
            if old.is_none() && new.is_none() {
                return Vec::new();
            }
            let mut rivals = lock(&rivals);
            // A port that the Service gives back another may wait for, and one that it takes another may lose.
            let mut keys = BTreeSet::from([change.key.clone()]);
            if old != new {
                // One that is new and shows nothing takes nothing from anybody that was planned: who comes later sees its claim.
                let is_newcomer = old.is_none() && new.as_ref().is_some_and(|stake| stake.shown.is_empty());
                if !is_newcomer {
                    keys.extend(rivals.of(&change.key));
                }
                rivals.note(&change.key, new.map(|stake| stake.ports));
                if !is_newcomer {
                    keys.extend(rivals.of(&change.key));
                }
            }
            keys.into_iter().collect()
        });
        let rivals = Arc::clone(&self.rivals);
        wiring.on(&self.informers.nodes, move |change| {
            let of = |node: &Option<Arc<Node>>| node.as_deref().map(addresses).unwrap_or_default();
            match of(&change.old) == of(&change.new) {
                true => Vec::new(),
                false => {
                    let mut rivals = lock(&rivals);
                    rivals.forget_all();
                    rivals.all()
                }
            }
        });
        let (services, rivals) = (self.informers.services.clone(), Arc::clone(&self.rivals));
        wiring.on(&self.informers.endpoint_slices, move |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let [before, after] = sides.map(|slice| slice.map(local_nodes));
            if before == after {
                return Vec::new();
            }
            let slices = sides.into_iter().flatten();
            let names = slices.filter_map(|slice| slice.labels().get(SERVICE_NAME).cloned());
            let keys = names.map(|name| Key::new(change.key.namespace.clone(), name));
            let is_concerned = |key: &Key| {
                let service = services.get_key(key);
                service.is_some_and(|service| is_local(&service) && concerns_us(&service))
            };
            let keys = keys.filter(is_concerned);
            let rivals_of = |key| {
                let mut rivals = lock(&rivals);
                rivals.forget(&key);
                rivals.of(&key)
            };
            keys.flat_map(rivals_of).collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(service) = self.balanced(key) else {
            return Plan::default();
        };
        let nodes = self.informers.nodes.list();
        let wants = wanted(&service, &nodes, &self.slices(&service));
        let own = claim(&service, &wants, self.node_ports);
        let kept_from = self.kept_from(&own, &nodes);
        let plan = plan(&service, &wants, &kept_from, self.node_ports);
        // What it takes, or gives back, the next plan must see, whenever the change is told.
        if !plan.writes.is_empty() {
            lock(&self.rivals).forget(key);
        }
        plan
    }
}

impl LoadBalancers {
    /// What keeps a Service with this claim from addresses it wants. Looks again at the claims that may not be so any more.
    fn kept_from(&self, own: &Claim, nodes: &[Arc<Node>]) -> BTreeMap<IpAddr, Vec<Clash>> {
        let mut stale = lock(&self.rivals).take_stale();
        stale.remove(&own.key);
        let claim = |service: Arc<Service>| {
            let wants = wanted(&service, nodes, &self.slices(&service));
            claim(&service, &wants, self.node_ports)
        };
        let looked_at = stale.into_iter().map(|key| {
            let claim = self.balanced(&key).map(claim);
            (key, claim)
        });
        let looked_at: Vec<(Key, Option<Claim>)> = looked_at.collect();
        let mut rivals = lock(&self.rivals);
        for (key, claim) in looked_at {
            rivals.enter(&key, claim);
        }
        rivals.enter(&own.key, Some(own.clone()));
        rivals.clashes(&own.key)
    }

    fn balanced(&self, key: &Key) -> Option<Arc<Service>> {
        let found = self.informers.services.get_key(key);
        found.filter(|service| concerns_us(service))
    }

    /// The slices a Service's addresses depend on.
    fn slices(&self, service: &Service) -> Vec<Arc<EndpointSlice>> {
        if !is_local(service) {
            return Vec::new();
        }
        let key = Key::of(service);
        let mut slices = self.informers.endpoint_slices.list_namespace(&key.namespace);
        slices.retain(|slice| slice.labels().get(SERVICE_NAME) == Some(&key.name));
        slices
    }
}

/// Nodes with ready endpoints of a slice.
fn local_nodes(slice: &EndpointSlice) -> BTreeSet<&str> {
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    });
    ready.filter_map(|endpoint| endpoint.node_name.as_deref()).collect()
}

fn is_local(service: &Service) -> bool {
    spec(service).and_then(|spec| spec.external_traffic_policy.as_deref()) == Some("Local")
}

fn ports(service: &Service) -> BTreeSet<Port> {
    let ports = spec(service).into_iter().flat_map(|spec| spec.ports.iter().flatten());
    let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    ports.map(|port| (port.port, protocol(&port.protocol))).collect()
}

/// The addresses a Service shows, with their ports; all of its own where it shows none.
fn held(service: &Service) -> BTreeMap<IpAddr, BTreeSet<Port>> {
    let of = |ingress: &LoadBalancerIngress| {
        let address = ingress.ip.as_ref()?.parse().ok()?;
        let listed = ingress.ports.as_ref().filter(|ports| !ports.is_empty());
        let listed = listed.map(|ports| ports.iter().map(|port| (port.port, port.protocol.clone())).collect());
        Some((address, listed.unwrap_or_else(|| ports(service))))
    };
    shown(service).iter().filter_map(of).collect()
}

/// What a Service has and wants, where it is to be served at `wants`.
pub fn claim(service: &Service, wants: &[IpAddr], node_ports: NodePorts) -> Claim {
    let is_out = !is_wanted(service) || kept(service, node_ports).is_some();
    Claim {
        key: Key::of(service),
        created: created(service),
        ports: ports(service),
        wants: wants.iter().copied().filter(|_| !is_out).collect(),
        has: held(service),
    }
}

/// A port of the Service that nodes need themselves.
fn kept(service: &Service, node_ports: NodePorts) -> Option<Port> {
    let is_node_port = |port: i32| u16::try_from(port).is_ok_and(|port| node_ports.contains(port));
    let is_kept = |(port, _): &Port| KEPT.contains(port) || is_node_port(*port);
    ports(service).into_iter().find(is_kept)
}

/// The addresses a Service is to be served at: one of each of its families of each node that takes its traffic, by the nodes' names.
pub fn wanted(service: &Service, nodes: &[Arc<Node>], slices: &[Arc<EndpointSlice>]) -> Vec<IpAddr> {
    let families = families(service);
    let local: BTreeSet<&str> = slices.iter().flat_map(|slice| local_nodes(slice)).collect();
    let mut nodes: Vec<&Arc<Node>> = nodes
        .iter()
        .filter(|node| !is_local(service) || local.contains(node.name_any().as_str()))
        .collect();
    nodes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut all = Vec::new();
    for node in nodes {
        let own = addresses(node);
        let of_family = |family: &String| own.iter().find(|ip| ip.is_ipv6() == (family == "IPv6")).copied();
        all.extend(families.iter().filter_map(of_family));
        if all.len() >= MOST {
            break;
        }
    }
    all.truncate(MOST);
    all
}

fn port_status(ports: &BTreeSet<Port>, wrong: &BTreeSet<&Port>) -> Option<Vec<PortStatus>> {
    let status = |port: &Port| PortStatus {
        port: port.0,
        protocol: port.1.clone(),
        error: wrong.contains(port).then(|| IN_USE.to_owned()),
    };
    Some(ports.iter().map(status).collect())
}

/// What the Service shows: each address it is served at, with its ports. Where it is kept from others besides, one entry more tells which
/// ports were in use, without an address: proxies would lead all of its ports there, and names would be made to point there.
fn ingress(
    ports: &BTreeSet<Port>,
    wants: &[IpAddr],
    kept_from: &BTreeMap<IpAddr, Vec<Clash>>,
) -> Vec<LoadBalancerIngress> {
    let served = wants.iter().filter(|address| !kept_from.contains_key(address));
    let entry = |address: &IpAddr| LoadBalancerIngress {
        ip: Some(address.to_string()),
        ip_mode: Some("VIP".to_owned()),
        ports: port_status(ports, &BTreeSet::new()),
        ..LoadBalancerIngress::default()
    };
    let mut all: Vec<LoadBalancerIngress> = served.map(entry).collect();
    if !all.is_empty() && !kept_from.is_empty() {
        let wrong = kept_from.values().flatten().map(|clash| &clash.port).collect();
        all.push(LoadBalancerIngress {
            ports: port_status(ports, &wrong),
            ..LoadBalancerIngress::default()
        });
    }
    all
}

/// Why the Service is not served at each address it wants.
fn why(kept: Option<Port>, kept_from: &BTreeMap<IpAddr, Vec<Clash>>) -> Option<String> {
    if let Some((port, protocol)) = kept {
        return Some(format!("port {port}/{protocol} is kept for nodes"));
    }
    let mut where_: BTreeMap<&Clash, Vec<String>> = BTreeMap::new();
    for (address, clashes) in kept_from {
        for clash in clashes {
            where_.entry(clash).or_default().push(address.to_string());
        }
    }
    let told = where_.iter().map(|(Clash { port, holder }, addresses)| {
        let (number, protocol) = port;
        format!(
            "port {number}/{protocol} of {} is in use by Service {holder}",
            addresses.join(", ")
        )
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn shown(service: &Service) -> &[LoadBalancerIngress] {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

/// What a Service wants that is balanced, or was; others keep it from some addresses.
pub fn plan(
    service: &Service,
    wants: &[IpAddr],
    kept_from: &BTreeMap<IpAddr, Vec<Clash>>,
    node_ports: NodePorts,
) -> Plan {
    let event = |kind, reason, text: &str| write::event(&write::SERVICES, service, kind, reason, text);
    if !is_wanted(service) {
        let gone = event("Normal", "DeletedLoadBalancer", "Deleted load balancer");
        return Plan::of(vec![change(service, Vec::new(), false).success(gone)]);
    }
    let kept = kept(service, node_ports);
    let wanted = match kept {
        None => ingress(&ports(service), wants, kept_from),
        Some(_) => Vec::new(),
    };
    let mut plan = Plan::default();
    let why = why(kept, kept_from);
    if let Some(why) = &why {
        let text = format!("Error syncing load balancer: failed to ensure load balancer: {why}");
        plan.events.push(event("Warning", "SyncLoadBalancerFailed", &text));
    }
    if !is_held(service) || shown(service) != wanted {
        let write = change(service, wanted, true);
        plan.writes.push(match why {
            None => write.success(event("Normal", "EnsuredLoadBalancer", "Ensured load balancer")),
            Some(_) => write,
        });
    }
    plan
}

/// Finalizer and status go in one write of the status, which for Services takes both.
fn change(service: &Service, ingress: Vec<LoadBalancerIngress>, held: bool) -> Write {
    let mut new = service.clone();
    let mut finalizers = service.finalizers().to_vec();
    finalizers.retain(|name| name != FINALIZER);
    if held {
        finalizers.push(FINALIZER.to_owned());
    }
    new.metadata.finalizers = Some(finalizers).filter(|all| !all.is_empty());
    let mut status = new.status.take().unwrap_or_default();
    status.load_balancer = Some(LoadBalancerStatus {
        ingress: Some(ingress).filter(|all| !all.is_empty()),
    });
    new.status = Some(status);
    Write::replace_part(write::SERVICES, "status", &new)
}

#[cfg(test)]
mod tests;
