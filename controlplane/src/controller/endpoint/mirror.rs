//! EndpointSlices of Endpoints that somebody else made, for Services without selector: who reads slices alone sees them too.
//!
//! Source: control-plane contract §12, KEP-0752. One slice for each set of ports and family, a bounded number of addresses
//! of a subset; what is left out is told by event and counted. The collector removes slices with their Endpoints.

use super::slice::SERVICE_NAME;
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::owner::controller_reference;
use crate::controller::write::{self, EventText, Plan, Verb, Write};
use client::Key;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Endpoints that only tell who leads.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that say something of the Endpoints alone.
const OWN: [&str; 2] = [
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
];
/// The controller. Its keys are Endpoints.
pub struct Mirror {
    /// The shared informers.
    pub informers: Informers,
    /// Addresses of one subset, and of one slice, that are mirrored.
    pub most: usize,
    /// Counts the addresses that each plan left out.
    pub skipped: Histogram,
}

fn is_ours(slice: &EndpointSlice) -> bool {
    slice.labels().get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
}

/// Whether Endpoints are to be mirrored, as far as they and their Service say.
pub fn is_mirrored(endpoints: &Endpoints, service: Option<&Service>) -> bool {
    let skips = endpoints.labels().get(SKIP).is_some_and(|skip| skip == "true");
    let leads = endpoints.annotations().contains_key(LEADER);
    let spec = service.and_then(|service| service.spec.as_ref());
    let selects = spec.is_none_or(|spec| spec.selector.as_ref().is_some_and(|pairs| !pairs.is_empty()));
    !skips && !leads && !selects && endpoints.metadata.deletion_timestamp.is_none()
}

impl Controller for Mirror {
    const NAME: &'static str = "endpointslicemirroring-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.endpoints);
        wiring.on_self(&self.informers.services);
        wiring.on(&self.informers.endpoint_slices, |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let ours = sides.into_iter().flatten().filter(|slice| is_ours(slice));
            let names = ours.filter_map(|slice| slice.labels().get(SERVICE_NAME).cloned());
            names.map(|name| Key::new(change.key.namespace.clone(), name)).collect()
        });
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let endpoints = self.informers.endpoints.get_key(key);
        let service = self.informers.services.get_key(key);
        let wanted = endpoints
            .as_ref()
            .filter(|endpoints| is_mirrored(endpoints, service.as_deref()));
        let of_it = |slice: &Arc<EndpointSlice>| is_ours(slice) && slice.labels().get(SERVICE_NAME) == Some(&key.name);
        let mut slices = self.informers.endpoint_slices.list_namespace(&key.namespace);
        slices.retain(of_it);
        match wanted {
            Some(endpoints) if self.informers.takes_new(&key.namespace) => {
                let (plan, skipped) = plan(endpoints, &slices, self.most);
                self.skipped.observe(skipped as f64);
                plan
            }
            Some(_) => Plan::default(),
            None => {
                let writes = remove(&slices);
                let told = |write| match &endpoints {
                    Some(endpoints) => told_of(endpoints, write),
                    None => write,
                };
                Plan::of(writes.into_iter().map(told).collect())
            }
        }
    }
}

fn remove<'a>(slices: impl IntoIterator<Item = &'a Arc<EndpointSlice>>) -> Vec<Write> {
    let slices = slices.into_iter();
    slices
        .map(|slice| Write::delete(write::ENDPOINT_SLICES, &**slice))
        .collect()
}

/// Address types of slices.
const KINDS: [&str; 2] = ["IPv4", "IPv6"];

/// Name, protocol, number and application protocol.
type Port = (String, String, i32, Option<String>);
/// What slices are told apart by: address type and ports.
type Group = (&'static str, BTreeSet<Port>);

/// What is to be mirrored: endpoints by their addresses and pods, and what was left out.
#[derive(Default)]
struct Wanted {
    groups: BTreeMap<Group, BTreeMap<(IpAddr, String), Endpoint>>,
    invalid: usize,
    skipped: usize,
}

impl Wanted {
    fn add(&mut self, subset: &EndpointSubset, most: usize) {
        let ports: BTreeSet<Port> = subset
            .ports
            .iter()
            .flatten()
            .map(|port| {
                let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
                let name = port.name.clone().unwrap_or_default();
                (name, protocol, port.port, port.app_protocol.clone())
            })
            .collect();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let waiting = subset.not_ready_addresses.iter().flatten();
        let waiting = waiting.map(|address| (address, false));
        let mut added = 0;
        for (address, is_ready) in ready.chain(waiting) {
            if added == most {
                self.skipped += 1;
            } else if let Ok(ip) = address.ip.parse::<IpAddr>() {
                let kind = KINDS[usize::from(ip.is_ipv6())];
                let group = self.groups.entry((kind, ports.clone())).or_default();
                let pod = address.target_ref.as_ref().and_then(|pod| pod.uid.clone());
                group
                    .entry((ip, pod.unwrap_or_default()))
                    .or_insert_with(|| endpoint(ip, address, is_ready));
                added += 1;
            } else {
                self.invalid += 1;
            }
        }
    }

    /// Cuts the groups, of which several subsets may be one, to `most`: as within a subset, who is ready comes first.
    fn cut(&mut self, most: usize) {
        for content in self.groups.values_mut().filter(|content| content.len() > most) {
            self.skipped += content.len() - most;
            let mut ready = content.values().filter(|endpoint| is_ready(endpoint)).count().min(most);
            let mut waiting = most - ready;
            content.retain(|_, endpoint| {
                let room = if is_ready(endpoint) { &mut ready } else { &mut waiting };
                let is_kept = *room > 0;
                *room -= usize::from(is_kept);
                is_kept
            });
        }
    }

    /// All that is not mirrored.
    fn left_out(&self) -> usize {
        self.invalid + self.skipped
    }

    fn events(&self, endpoints: &Endpoints, most: usize) -> Vec<EventText> {
        let event = |reason, text| write::event(&write::ENDPOINTS, endpoints, "Warning", reason, text);
        let mut events = Vec::new();
        if self.invalid > 0 {
            let text = format!(
                "Skipped {} invalid IP addresses when mirroring to EndpointSlices",
                self.invalid
            );
            events.push(event("InvalidIPAddress", text));
        }
        if self.skipped > 0 {
            let text = format!(
                "A max of {most} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
                self.left_out()
            );
            events.push(event("TooManyAddressesToMirror", text));
        }
        events
    }
}

fn is_ready(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|conditions| conditions.ready) == Some(true)
}

fn endpoint(ip: IpAddr, address: &EndpointAddress, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(is_ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn ports(group: &BTreeSet<Port>) -> Vec<EndpointPort> {
    let port = |(name, protocol, number, app): &Port| EndpointPort {
        name: Some(name.clone()),
        protocol: Some(protocol.clone()),
        port: Some(*number),
        app_protocol: app.clone(),
    };
    group.iter().map(port).collect()
}

/// What a slice shows; nothing for one of a type that is not mirrored.
fn group_of(slice: &EndpointSlice) -> Option<Group> {
    let kind = KINDS.into_iter().find(|kind| *kind == slice.address_type)?;
    let ports = slice.ports.iter().flatten().map(|port| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let name = port.name.clone().unwrap_or_default();
        (name, protocol, port.port.unwrap_or_default(), port.app_protocol.clone())
    });
    Some((kind, ports.collect()))
}

fn labels(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut labels = endpoints.labels().clone();
    labels.insert(SERVICE_NAME.to_owned(), endpoints.name_any());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let all = endpoints.annotations().iter();
    let kept = all.filter(|(key, _)| !OWN.contains(&key.as_str()));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Writes that make the slices show the Endpoints, what is told of addresses they do not show, and how many those are. `most` addresses of
/// a subset are shown.
pub fn plan(endpoints: &Endpoints, slices: &[Arc<EndpointSlice>], most: usize) -> (Plan, usize) {
    let mut wanted = Wanted::default();
    endpoints
        .subsets
        .iter()
        .flatten()
        .for_each(|subset| wanted.add(subset, most));
    wanted.cut(most);
    let (events, left_out) = (wanted.events(endpoints, most), wanted.left_out());
    let mut writes = Vec::new();
    let mut kept = BTreeSet::new();
    // Of those that show the same the first is kept. Looked for by what they show: who writes Endpoints decides how many there are.
    let mut there: BTreeMap<Group, &Arc<EndpointSlice>> = BTreeMap::new();
    for slice in slices {
        if let Some(group) = group_of(slice) {
            there.entry(group).or_insert(slice);
        }
    }
    for (group, content) in wanted.groups {
        let content: Vec<Endpoint> = content.into_values().collect();
        match there.get(&group) {
            Some(old) => {
                kept.insert(old.name_any());
                writes.extend(update(endpoints, old, content));
            }
            None => writes.push(create(endpoints, &group, content)),
        }
    }
    writes.extend(remove(slices.iter().filter(|slice| !kept.contains(&slice.name_any()))));
    let plan = Plan {
        writes: writes.into_iter().map(|write| told_of(endpoints, write)).collect(),
        events,
        again_in: None,
    };
    (plan, left_out)
}

/// With an event for where it fails: what upstream's controller gives back as its error, under the reason that it has for that.
fn told_of(endpoints: &Endpoints, write: Write) -> Write {
    let (of, slice) = (Key::of(endpoints), &write.key.name);
    let what = match &write.verb {
        Verb::Create(_) => format!("failed to create EndpointSlice for Endpoints {of}"),
        Verb::Delete { .. } => format!("failed to delete {slice} EndpointSlice for Endpoints {of}"),
        _ => format!("failed to update {slice} EndpointSlice for Endpoints {of}"),
    };
    let (reason, message) = ("FailedToUpdateEndpointSlices", format!("{what}: {{}}"));
    write.failure(write::event(&write::ENDPOINTS, endpoints, "Warning", reason, message))
}

fn update(endpoints: &Endpoints, old: &EndpointSlice, content: Vec<Endpoint>) -> Option<Write> {
    let (labels, annotations) = (labels(endpoints), annotations(endpoints));
    let is_same = old.endpoints.as_deref().unwrap_or_default() == content
        && *old.labels() == labels
        && *old.annotations() == annotations;
    if is_same {
        return None;
    }
    let mut new = old.clone();
    new.endpoints = Some(content);
    new.metadata.labels = Some(labels);
    new.metadata.annotations = Some(annotations);
    Some(Write::replace(write::ENDPOINT_SLICES, &new))
}

fn create(endpoints: &Endpoints, (kind, group): &Group, content: Vec<Endpoint>) -> Write {
    let slice = EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", endpoints.name_any())),
            namespace: endpoints.namespace(),
            labels: Some(labels(endpoints)),
            annotations: Some(annotations(endpoints)),
            owner_references: Some(vec![controller_reference(&write::ENDPOINTS, endpoints)]),
            ..ObjectMeta::default()
        },
        address_type: (*kind).to_owned(),
        endpoints: Some(content),
        ports: Some(ports(group)),
    };
    Write::create(write::ENDPOINT_SLICES, &slice)
}

#[cfg(test)]
mod tests;
