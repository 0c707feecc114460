//! Endpoints: one object per Service, of its name, for clients that know nothing newer.

use super::slice::wire_pods;
use super::trigger::{Triggers, annotated};
use super::{Backend, Port, backends, is_headless, publishes_not_ready, selected, selector, wanted_ports};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::write::{self, Plan, Write};
use client::Key;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const HEADLESS: &str = "service.kubernetes.io/headless";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MOST: usize = 1000;

/// The controller. Its keys are Services.
pub struct LegacyEndpoints {
    /// The shared informers.
    pub informers: Informers,
    /// When what changes endpoints happened.
    pub triggers: Triggers,
}

impl Controller for LegacyEndpoints {
    const NAME: &'static str = "endpoint-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.services);
        wiring.on_self(&self.informers.endpoints);
        wire_pods(&self.informers, wiring);
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let existing = self.informers.endpoints.get_key(key);
        let writes = match self.informers.services.get_key(key) {
            // Endpoints that somebody else made have no label of ours.
            None => {
                self.triggers.forget(key);
                existing
                    .filter(|e| e.labels().contains_key(MANAGED_BY))
                    .map(|e| Write::delete(write::ENDPOINTS, &*e))
            }
            Some(service) if selector(&service).is_some() && self.informers.takes_new(&key.namespace) => {
                let pods = self.informers.pods.list_namespace(&key.namespace);
                let trigger = self.triggers.of(key, &service, selected(&service, &pods));
                plan(&service, &backends(&service, &pods), existing.as_deref(), trigger)
            }
            Some(_) => None,
        };
        Plan {
            writes: writes.into_iter().collect(),
            ..Plan::default()
        }
    }
}

fn ports(ports: &[Port]) -> Option<Vec<EndpointPort>> {
    let port = |p: &Port| EndpointPort {
        name: Some(p.name.clone()).filter(|n| !n.is_empty()),
        protocol: Some(p.protocol.clone()),
        port: p.number,
        app_protocol: p.app.clone(),
    };
    (!ports.is_empty()).then(|| ports.iter().map(port).collect())
}

/// Who is shown, and whether there were more: those that are ready first, where there is no room for all. Pods on their way out are shown
/// only where not-ready ones are published, and one that has none of the named ports offers nothing.
fn shown<'b>(service: &Service, backends: &'b [Backend]) -> (Vec<(&'b Backend, IpAddr)>, bool) {
    let v6 = service
        .spec
        .as_ref()
        .and_then(|s| s.ip_families.as_ref())
        .and_then(|f| f.first())
        .is_some_and(|f| f == "IPv6");
    let publish = publishes_not_ready(service);
    let has_ports = !wanted_ports(service).is_empty();
    let is_shown = |b: &&Backend| (publish || !b.terminating) && (!has_ports || !b.ports.is_empty());
    let address = |b: &'b Backend| Some((b, *b.addresses.iter().find(|a| a.is_ipv6() == v6)?));
    let all = backends.iter().filter(is_shown).filter_map(address);
    let (mut shown, waiting): (Vec<_>, Vec<_>) = all.partition(|(b, _)| publish || b.serving);
    shown.extend(waiting);
    let truncated = shown.len() > MOST;
    shown.truncate(MOST);
    (shown, truncated)
}

fn subsets(service: &Service, backends: &[(&Backend, IpAddr)]) -> Vec<EndpointSubset> {
    let mut groups: BTreeMap<Vec<Port>, (Vec<EndpointAddress>, Vec<EndpointAddress>)> = BTreeMap::new();
    let publish = publishes_not_ready(service);
    for (backend, address) in backends {
        let (ready, waiting) = groups.entry(backend.ports.clone()).or_default();
        let side = if publish || backend.serving { ready } else { waiting };
        side.push(EndpointAddress {
            ip: address.to_string(),
            hostname: backend.hostname.clone(),
            node_name: Some(backend.node.clone()).filter(|n| !n.is_empty()),
            target_ref: Some(backend.target.clone()),
        });
    }
    let some = |mut list: Vec<EndpointAddress>| {
        list.sort_by(|a, b| a.ip.cmp(&b.ip));
        (!list.is_empty()).then_some(list)
    };
    let subset = |(group, (ready, waiting)): (Vec<Port>, (Vec<_>, Vec<_>))| EndpointSubset {
        addresses: some(ready),
        not_ready_addresses: some(waiting),
        ports: ports(&group),
    };
    groups.into_iter().map(subset).collect()
}

/// The write that makes the object show the backends, if any; `trigger` is when what changes them happened.
pub fn plan(
    service: &Service,
    backends: &[Backend],
    existing: Option<&Endpoints>,
    trigger: Option<Timestamp>,
) -> Option<Write> {
    let (shown, truncated) = shown(service, backends);
    let subsets = subsets(service, &shown);
    let mut labels = service.labels().clone();
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    // Whose label of that name the Service has is no matter: it says what is so.
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    let Some(old) = existing else {
        let over = truncated.then(|| BTreeMap::from([(OVER_CAPACITY.to_owned(), "truncated".to_owned())]));
        let new = Endpoints {
            metadata: ObjectMeta {
                name: service.metadata.name.clone(),
                namespace: service.namespace(),
                labels: Some(labels),
                annotations: annotated(over, trigger),
                ..ObjectMeta::default()
            },
            subsets: Some(subsets),
        };
        let about = format!("Failed to create endpoint for service {}: {{}}", Key::of(service));
        let told = write::event(&write::ENDPOINTS, &new, "Warning", "FailedToCreateEndpoint", about);
        return Some(Write::create(write::ENDPOINTS, &new).failure(told));
    };
    let marked = old.annotations().contains_key(OVER_CAPACITY);
    if old.subsets.as_deref().unwrap_or_default() == subsets && *old.labels() == labels && marked == truncated {
        return None;
    }
    let mut new = old.clone();
    new.subsets = Some(subsets);
    new.metadata.labels = Some(labels);
    let mut annotations = new.metadata.annotations.unwrap_or_default();
    if truncated {
        annotations.insert(OVER_CAPACITY.into(), "truncated".into());
    } else {
        annotations.remove(OVER_CAPACITY);
    }
    new.metadata.annotations = annotated(Some(annotations), trigger);
    let about = format!("Failed to update endpoint {}: {{}}", Key::of(service));
    let told = write::event(&write::ENDPOINTS, &new, "Warning", "FailedToUpdateEndpoint", about);
    Some(Write::replace(write::ENDPOINTS, &new).failure(told))
}
