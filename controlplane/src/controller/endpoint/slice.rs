//! EndpointSlices: at most 100 endpoints each, changed as little as can be.

use super::concern::{self, selecting};
use super::topology::{self, Ratios, ZONE};
use super::trigger::{Triggers, annotated};
use super::{Backend, Port, backends, is_headless, leave_out_homeless, publishes_not_ready, selected, selector};
use crate::controller::harness::{Controller, Wiring};
use crate::controller::informers::Informers;
use crate::controller::owner::controller_reference;
use crate::controller::write::{self, EventText, Failure, Plan, Verb, Write};
use crate::held::Node;
use crate::metrics::controllers::Controllers as Counters;
use client::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod group;

use group::{by_group, named};

/// Label that names the Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
const MOST: usize = 100;
/// When pods without a Node are looked at again.
const HOMELESS: Duration = Duration::from_secs(5);

/// The controller. Its keys are Services.
pub struct EndpointSlices {
    /// The shared informers.
    pub informers: Informers,
    /// Services whose endpoints have hints by the zones' CPUs: what was told of them.
    pub hinted: Mutex<BTreeSet<Key>>,
    /// When what changes endpoints happened.
    pub triggers: Triggers,
}

/// Wakes the Services whose endpoints a pod's change concerns.
pub fn wire_pods(informers: &Informers, wiring: &mut Wiring) {
    let services = informers.services.clone();
    wiring.on(&informers.pods, move |change| {
        let services = services.list_namespace(&change.key.namespace);
        concern::of(&services, change.old.as_deref(), change.new.as_deref())
    });
}

impl Controller for EndpointSlices {
    const NAME: &'static str = "endpointslice-controller";

    fn wire(&self, wiring: &mut Wiring) {
        wiring.on_self(&self.informers.services);
        wire_pods(&self.informers, wiring);
        let (services, pods) = (self.informers.services.clone(), self.informers.pods.clone());
        // A node's zone stands on its pods' endpoints, and none of them stands there without it.
        wiring.on(&self.informers.nodes, move |change| {
            let zone = |node: &Option<Arc<Node>>| node.as_ref().and_then(|n| n.labels().get(ZONE).cloned());
            if change.new.is_some() && zone(&change.old) == zone(&change.new) {
                return Vec::new();
            }
            pods.at(&change.key.name)
                .into_iter()
                .flat_map(|p| selecting(&services.list_namespace(&p.namespace().unwrap_or_default()), &p))
                .collect()
        });
        // Shares of zones bear on all Services that go by them.
        let services = self.informers.services.clone();
        wiring.on(&self.informers.nodes, move |change| {
            let share = |node: &Option<Arc<Node>>| node.as_deref().and_then(topology::share);
            if share(&change.old) == share(&change.new) {
                return Vec::new();
            }
            let services = services.list().into_iter();
            let of_zones = services.filter(|service| topology::is_auto(service));
            of_zones.map(|service| Key::of(&*service)).collect()
        });
        wiring.on(&self.informers.endpoint_slices, |change| {
            let sides = [change.old.as_deref(), change.new.as_deref()];
            let ours = sides
                .into_iter()
                .flatten()
                .filter(|s| s.labels().get(MANAGED_BY).is_some_and(|m| m == MANAGER));
            let name = |s: &EndpointSlice| s.labels().get(SERVICE_NAME).cloned();
            ours.filter_map(name)
                .map(|name| Key::new(change.key.namespace.clone(), name))
                .collect()
        });
    }

    fn wrote(&self, counters: &Counters, _key: &Key, write: &Write, failure: Option<&Failure>, _now: Timestamp) {
        if failure.is_none() {
            counters.slice_changed(match write.verb {
                Verb::Create(_) => "create",
                Verb::Delete { .. } => "delete",
                _ => "update",
            });
        }
    }

    fn reconciled(
        &self,
        counters: &Counters,
        _key: &Key,
        _writes: &[Write],
        failure: Option<&Failure>,
        _took: Duration,
    ) {
        counters.slices_synced(failure.is_none());
    }

    fn plan(&self, key: &Key, _now: Timestamp) -> Plan {
        let all = self.informers.endpoint_slices.list_namespace(&key.namespace);
        let ours = |s: &Arc<EndpointSlice>| {
            s.labels().get(SERVICE_NAME) == Some(&key.name) && s.labels().get(MANAGED_BY).is_some_and(|m| m == MANAGER)
        };
        let slices: Vec<_> = all.into_iter().filter(ours).collect();
        let service = self
            .informers
            .services
            .get_key(key)
            .filter(|s| s.metadata.deletion_timestamp.is_none());
        let Some(service) = service else {
            self.told(|hinted| hinted.remove(key));
            self.triggers.forget(key);
            // The collector removes what a deleted Service owned.
            return Plan::default();
        };
        if selector(&service).is_none() || !self.informers.takes_new(&key.namespace) {
            return Plan::default();
        }
        let pods = self.informers.pods.list_namespace(&key.namespace);
        let trigger = self.triggers.of(key, &service, selected(&service, &pods));
        let mut backends = backends(&service, &pods);
        let node = |name: &str| -> Option<Arc<Node>> { self.informers.nodes.get("", name) };
        let has_homeless = leave_out_homeless(&service, &mut backends, |name| node(name).is_some());
        let zone = |name: &str| node(name).and_then(|n| n.labels().get(ZONE).cloned());
        let is_auto = topology::is_auto(&service);
        let ratios = is_auto
            .then(|| topology::ratios(&self.informers.nodes.list()))
            .flatten();
        let (writes, hints) = plan(&service, &backends, &slices, zone, ratios.as_ref(), trigger);
        Plan {
            writes,
            events: self.events(key, &service, hints),
            again_in: has_homeless.then_some(HOMELESS),
        }
    }
}

impl EndpointSlices {
    fn told<T>(&self, change: impl FnOnce(&mut BTreeSet<Key>) -> T) -> T {
        change(&mut self.hinted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is told of hints by zones: that there are some now, why there are none, that they are not asked for any more.
    fn events(&self, key: &Key, service: &Service, hints: Vec<Hints>) -> Vec<EventText> {
        let is_auto = topology::is_auto(service);
        let had = self.told(|hinted| match is_auto && hints.iter().all(|(_, given)| given.is_ok()) {
            true => !hinted.insert(key.clone()),
            false => hinted.remove(key),
        });
        let told = hints.into_iter().filter_map(|(kind, given)| match given {
            Err(why) => Some((("Warning", "TopologyAwareHintsDisabled"), why, kind)),
            Ok(()) if had => None,
            Ok(()) => Some((("Normal", "TopologyAwareHintsEnabled"), ENABLED.to_owned(), kind)),
        });
        let disabled = |v6| {
            (
                ("Warning", "TopologyAwareHintsDisabled"),
                DISABLED.to_owned(),
                family(v6),
            )
        };
        let ended = families(service).into_iter().filter(|_| had && !is_auto).map(disabled);
        let event = |((kind, reason), text, family)| {
            let text = format!("{text}, addressType: {family}");
            write::event(&write::SERVICES, service, kind, reason, text)
        };
        told.chain(ended).map(event).collect()
    }
}

const ENABLED: &str = "Topology Aware Hints has been enabled";
const DISABLED: &str = "Topology Aware Hints has been disabled";

fn family(v6: bool) -> &'static str {
    if v6 { "IPv6" } else { "IPv4" }
}

fn families(service: &Service) -> Vec<bool> {
    let listed = service
        .spec
        .as_ref()
        .and_then(|s| s.ip_families.clone())
        .unwrap_or_default();
    if listed.is_empty() {
        vec![false]
    } else {
        listed.iter().map(|f| f == "IPv6").collect()
    }
}

fn endpoint(
    service: &Service,
    backend: &Backend,
    v6: bool,
    zone: &impl Fn(&str) -> Option<String>,
) -> Option<Endpoint> {
    let address = backend.addresses.iter().find(|a| a.is_ipv6() == v6)?;
    let ready = publishes_not_ready(service) || (backend.serving && !backend.terminating);
    let node_name = Some(backend.node.clone()).filter(|n| !n.is_empty());
    let zone = zone(&backend.node);
    Some(Endpoint {
        hints: hints(service, zone.as_deref(), node_name.as_deref()).filter(|_| ready),
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(backend.serving),
            terminating: Some(backend.terminating),
        }),
        hostname: backend.hostname.clone(),
        node_name,
        target_ref: Some(backend.target.clone()),
        zone,
        ..Endpoint::default()
    })
}

/// Whom an endpoint is meant for, where the Service prefers close ones (KEP-4444, KEP-3015): those of its zone, and of its node.
fn hints(service: &Service, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    if topology::is_auto(service) {
        return None;
    }
    let prefers = service.spec.as_ref()?.traffic_distribution.as_deref()?;
    let by_node = prefers == "PreferSameNode";
    if !by_node && !["PreferClose", "PreferSameZone"].contains(&prefers) {
        return None;
    }
    let for_zones = zone.map(|name| vec![ForZone { name: name.to_owned() }]);
    let for_nodes = node
        .filter(|_| by_node)
        .map(|name| vec![ForNode { name: name.to_owned() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_nodes, for_zones })
}

fn ports(ports: &[Port]) -> Vec<EndpointPort> {
    let port = |p: &Port| EndpointPort {
        name: Some(p.name.clone()),
        protocol: Some(p.protocol.clone()),
        port: Some(p.number),
        app_protocol: p.app.clone(),
    };
    ports.iter().map(port).collect()
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let reserved = |k: &String| [SERVICE_NAME, MANAGED_BY, HEADLESS].contains(&k.as_str());
    let mut labels: BTreeMap<_, _> = service
        .labels()
        .iter()
        .filter(|(k, _)| !reserved(k))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    labels.insert(SERVICE_NAME.into(), service.name_any());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    if is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels
}

/// The UID of an endpoint's pod: what tells endpoints apart.
fn identity(endpoint: &Endpoint) -> String {
    endpoint
        .target_ref
        .as_ref()
        .and_then(|t| t.uid.clone())
        .unwrap_or_default()
}

/// (address type, ports): endpoints share slices only when these agree.
type Group = (&'static str, Vec<Port>);

/// What became of a family's hints by zones.
pub type Hints = (&'static str, Result<(), String>);

/// What one group's slices are to hold: those that are there first.
struct Filled {
    kind: &'static str,
    ports: Vec<EndpointPort>,
    own: Vec<Arc<EndpointSlice>>,
    contents: Vec<Vec<Endpoint>>,
}

/// Whether a slice is this very Service's: one of its name before left others, which the collector removes soon.
fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let mut owners = slice.owner_references().iter();
    owners.any(|owner| owner.kind == "Service" && Some(&owner.uid) == service.metadata.uid.as_ref())
}

/// Writes that make the slices show the backends, and what became of hints by zones where the Service asks for them; `ratios` are the
/// zones' shares, if they can be told, and `trigger` is when what changes them happened.
pub fn plan(
    service: &Service,
    backends: &[Backend],
    slices: &[Arc<EndpointSlice>],
    zone: impl Fn(&str) -> Option<String>,
    ratios: Option<&Ratios>,
    trigger: Option<Timestamp>,
) -> (Vec<Write>, Vec<Hints>) {
    let mut groups: BTreeMap<Group, Vec<Endpoint>> = BTreeMap::new();
    for v6 in families(service) {
        for backend in backends {
            if let Some(endpoint) = endpoint(service, backend, v6, &zone) {
                let group = (family(v6), backend.ports.clone());
                groups.entry(group).or_default().push(endpoint);
            }
        }
    }
    if groups.is_empty() {
        // An empty slice says that there is nothing; without one nobody could tell from not yet.
        groups.extend(families(service).into_iter().map(|v6| ((family(v6), vec![]), vec![])));
    }
    let keeps_hints = topology::is_auto(service);
    let mut known = by_group(service, slices);
    let fill = |((kind, group), endpoints): (Group, Vec<Endpoint>)| {
        let ports = ports(&group);
        let own = known.remove(&named(kind, &ports)).unwrap_or_default();
        let contents = fill(endpoints, &own, keeps_hints);
        Filled {
            kind,
            ports,
            own,
            contents,
        }
    };
    let mut groups: Vec<Filled> = groups.into_iter().map(fill).collect();
    let mut hints = Vec::new();
    if keeps_hints {
        hints.extend(
            families(service)
                .into_iter()
                .map(|v6| hint(&mut groups, family(v6), ratios)),
        );
    }
    let kept: BTreeSet<String> = groups
        .iter()
        .flat_map(|group| &group.own)
        .map(|s| s.name_any())
        .collect();
    let groups = groups.into_iter();
    let mut writes: Vec<Write> = groups.flat_map(|group| group.writes(service, trigger)).collect();
    let stale = slices.iter().filter(|s| !kept.contains(&s.name_any()));
    writes.extend(stale.map(|s| Write::delete(write::ENDPOINT_SLICES, &**s)));
    (writes.into_iter().map(|write| told_of(service, write)).collect(), hints)
}

/// With upstream's event for where it fails.
fn told_of(service: &Service, write: Write) -> Write {
    let (of, slice) = (Key::of(service), &write.key.name);
    let what = match &write.verb {
        Verb::Create(_) => format!("failed to create EndpointSlice for Service {of}"),
        Verb::Delete { .. } => format!("failed to delete {slice} EndpointSlice for Service {of}"),
        _ => format!("failed to update {slice} EndpointSlice for Service {of}"),
    };
    let message = format!("Error updating Endpoint Slices for Service {of}: {what}: {{}}");
    let reason = "FailedToUpdateEndpointSlices";
    write.failure(write::event(&write::SERVICES, service, "Warning", reason, message))
}

/// Hints of all endpoints of a family, whatever their ports.
fn hint(groups: &mut [Filled], kind: &'static str, ratios: Option<&Ratios>) -> Hints {
    let of_kind = groups.iter_mut().filter(|group| group.kind == kind);
    let mut endpoints: Vec<&mut Endpoint> = of_kind.flat_map(|group| &mut group.contents).flatten().collect();
    (kind, topology::assign(&mut endpoints, ratios))
}

/// Puts one group's endpoints into its slices: those that are there stay where they are.
fn fill(endpoints: Vec<Endpoint>, own: &[Arc<EndpointSlice>], keeps_hints: bool) -> Vec<Vec<Endpoint>> {
    let mut wanted: BTreeMap<String, Endpoint> = endpoints.into_iter().map(|e| (identity(&e), e)).collect();
    let mut contents: Vec<Vec<Endpoint>> = Vec::new();
    for slice in own {
        let stays = |old: &Endpoint| {
            let mut new = wanted.remove(&identity(old))?;
            if keeps_hints {
                new.hints = old.hints.clone();
            }
            Some(new)
        };
        contents.push(slice.endpoints.iter().flatten().filter_map(stays).collect());
    }
    let mut rest = wanted.into_values().peekable();
    for content in &mut contents {
        while content.len() < MOST && rest.peek().is_some() {
            content.extend(rest.next());
        }
    }
    let rest: Vec<Endpoint> = rest.collect();
    contents.extend(rest.chunks(MOST).map(<[Endpoint]>::to_vec));
    if contents.is_empty() {
        contents.push(vec![]);
    }
    contents
}

impl Filled {
    fn writes(self, service: &Service, trigger: Option<Timestamp>) -> Vec<Write> {
        let empty_ones_go = self.contents.iter().any(|content| !content.is_empty());
        let mut writes = Vec::new();
        for (i, content) in self.contents.into_iter().enumerate() {
            match self.own.get(i) {
                Some(old) if content.is_empty() && (empty_ones_go || i > 0) => {
                    writes.push(Write::delete(write::ENDPOINT_SLICES, &**old));
                }
                Some(old) => writes.extend(update(service, old, content, trigger)),
                None => writes.push(create(service, self.kind, &self.ports, content, trigger)),
            }
        }
        writes
    }
}

fn update(service: &Service, old: &EndpointSlice, content: Vec<Endpoint>, trigger: Option<Timestamp>) -> Option<Write> {
    let labels = labels(service);
    if old.endpoints.as_deref().unwrap_or_default() == content && *old.labels() == labels {
        return None;
    }
    let mut new = old.clone();
    new.endpoints = Some(content);
    new.metadata.labels = Some(labels);
    new.metadata.annotations = annotated(new.metadata.annotations, trigger);
    Some(Write::replace(write::ENDPOINT_SLICES, &new))
}

fn create(
    service: &Service,
    kind: &str,
    ports: &[EndpointPort],
    content: Vec<Endpoint>,
    trigger: Option<Timestamp>,
) -> Write {
    let slice = EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", service.name_any())),
            namespace: service.namespace(),
            labels: Some(labels(service)),
            annotations: annotated(None, trigger),
            owner_references: Some(vec![controller_reference(&write::SERVICES, service)]),
            ..ObjectMeta::default()
        },
        address_type: kind.to_owned(),
        endpoints: Some(content),
        ports: Some(ports.to_vec()),
    };
    Write::create(write::ENDPOINT_SLICES, &slice)
}
