//! Services of type LoadBalancer get the addresses of nodes, whose proxies lead them to pods. Off unless `--controllers` names it, as
//! upstream's is without a cloud.
//!
//! Source: control-plane contract §12 (upstream's service-lb-controller: finalizer, events). Ours alone: a port of a node is one Service's, the older's, and
//! those that nodes need themselves are nobody's: a Service takes every node's traffic to it.

use super::harness::{Controller, Wiring};
use super::informers::Informers;
use super::write::{self, Plan, Write};
use client::Key;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Addresses that one Service shows.
const MOST: usize = 32;
/// Ports that nodes and the control plane are reached at: SSH, DNS, the store's, the API server's, kubelets', proxies', controllers' and the scheduler's, and
/// the overlay's. No Service takes them.
const KEPT: [i32; 13] = [
    22, 53, 2379, 2380, 4789, 6443, 8472, 10248, 10249, 10250, 10256, 10257, 10259,
];
/// Node ports, which Services have already.
const NODE_PORTS: std::ops::RangeInclusive<i32> = 30_000..=32_767;

/// The controller. Its keys are Services.
pub struct LoadBalancers {
    /// The shared informers.
    pub informers: Informers,
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

impl Controller for LoadBalancers {
    const NAME: &'static str = "service-controller";

    fn wire(&self, wiring: &mut Wiring) {
        let all = {
            let services = self.informers.services.clone();
            move || -> Vec<Key> {
                let concerned = services.list().into_iter().filter(|service| concerns_us(service));
                concerned.map(|service| Key::of(&*service)).collect()
            }
        };
        let others = all.clone();
        // A port that one Service gives back another may wait for.
        wiring.on(&self.informers.services, move |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            match sides.into_iter().flatten().any(concerns_us) {
                true => others().into_iter().chain([change.key.clone()]).collect(),
                false => Vec::new(),
            }
        });
        wiring.on(&self.informers.nodes, move |change| {
            let of = |node: &Option<Arc<Node>>| node.as_deref().map(addresses).unwrap_or_default();
            match of(&change.old) == of(&change.new) {
                true => Vec::new(),
                false => all(),
            }
        });
        let services = self.informers.services.clone();
        wiring.on(&self.informers.endpoint_slices, move |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let names = sides
                .into_iter()
                .flatten()
                .filter_map(|slice| slice.labels().get(SERVICE_NAME).cloned());
            let keys = names.map(|name| Key::new(change.key.namespace.clone(), name));
            keys.filter(|key| {
                services
                    .get_key(key)
                    .is_some_and(|service| is_local(&service) && concerns_us(&service))
            })
            .collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(service) = self
            .informers
            .services
            .get_key(key)
            .filter(|service| concerns_us(service))
        else {
            return Plan::default();
        };
        let mut others = self.informers.services.list();
        others.retain(|other| is_wanted(other) && Key::of(&**other) != *key);
        let mut slices = self.informers.endpoint_slices.list_namespace(&key.namespace);
        slices.retain(|slice| slice.labels().get(SERVICE_NAME) == Some(&key.name));
        plan(&service, &others, &self.informers.nodes.list(), &slices)
    }
}

fn is_local(service: &Service) -> bool {
    spec(service).and_then(|spec| spec.external_traffic_policy.as_deref()) == Some("Local")
}

fn ports(service: &Service) -> BTreeSet<(i32, String)> {
    let ports = spec(service).into_iter().flat_map(|spec| spec.ports.iter().flatten());
    let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    ports.map(|port| (port.port, protocol(&port.protocol))).collect()
}

/// Who of two Services came first.
fn age(service: &Service) -> (Option<Timestamp>, String, String) {
    let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, service.namespace().unwrap_or_default(), service.name_any())
}

/// Why the Service can have no address of a node.
pub fn refusal(service: &Service, others: &[Arc<Service>]) -> Option<String> {
    let own = ports(service);
    if let Some((port, protocol)) = own
        .iter()
        .find(|(port, _)| KEPT.contains(port) || NODE_PORTS.contains(port))
    {
        return Some(format!("port {port}/{protocol} is kept for nodes"));
    }
    let older = others.iter().filter(|other| age(other) < age(service));
    let mut clashes = older.filter_map(|other| {
        let theirs = ports(other);
        let (port, protocol) = own.intersection(&theirs).next()?;
        let key = Key::of(&**other);
        Some(format!(
            "port {port}/{protocol} of the nodes' addresses is in use by Service {key}"
        ))
    });
    clashes.next()
}

/// The addresses a Service shows: one of each of its families of each node that takes its traffic, by the nodes' names.
pub fn ingress(service: &Service, nodes: &[Arc<Node>], slices: &[Arc<EndpointSlice>]) -> Vec<LoadBalancerIngress> {
    let families = spec(service)
        .and_then(|spec| spec.ip_families.clone())
        .unwrap_or_default();
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints.filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    });
    let local: BTreeSet<&str> = ready.filter_map(|endpoint| endpoint.node_name.as_deref()).collect();
    let mut nodes: Vec<&Arc<Node>> = nodes
        .iter()
        .filter(|node| !is_local(service) || local.contains(node.name_any().as_str()))
        .collect();
    nodes.sort_by_key(|node| node.name_any());
    let mut all = Vec::new();
    for node in nodes {
        let own = addresses(node);
        for family in &families {
            let of_family = own.iter().find(|ip| ip.is_ipv6() == (family == "IPv6"));
            all.extend(of_family.map(|ip| LoadBalancerIngress {
                ip: Some(ip.to_string()),
                ip_mode: Some("VIP".to_owned()),
                ..LoadBalancerIngress::default()
            }));
        }
    }
    all.truncate(MOST);
    all
}

fn shown(service: &Service) -> &[LoadBalancerIngress] {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

/// What a Service wants that is balanced, or was.
pub fn plan(service: &Service, others: &[Arc<Service>], nodes: &[Arc<Node>], slices: &[Arc<EndpointSlice>]) -> Plan {
    let event = |kind, reason, text: &str| write::event(&write::SERVICES, service, kind, reason, text);
    if !is_wanted(service) {
        let gone = event("Normal", "DeletedLoadBalancer", "Deleted load balancer");
        return Plan::of(vec![change(service, Vec::new(), false).success(gone)]);
    }
    let why = refusal(service, others);
    let wanted = match why {
        None => ingress(service, nodes, slices),
        Some(_) => Vec::new(),
    };
    let mut plan = Plan::default();
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
