//! What is wrong between Services and IPAddresses, and what mends it. Texts are upstream's. Pure.

use crate::controller::write::EventText;
use crate::resource::field::{list, text};
use crate::resource::service::{ALLOCATOR, IP_FAMILY, MANAGED_BY, Range, Ranges, address_object, family};
use crate::store::Revision;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// How long an IPAddress may be there without its Service, which is about to be made.
const GRACE: SignedDuration = SignedDuration::from_secs(60);
const PATH: &str = "/apis/networking.k8s.io/v1/ipaddresses";

/// What a Service holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Held {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) ports: BTreeSet<u16>,
}

/// What an IPAddress says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Address {
    pub(super) ip: IpAddr,
    pub(super) uid: String,
    pub(super) revision: Revision,
    /// Whether it is the allocator's.
    pub(super) is_managed: bool,
    /// Whether its family stands on it.
    pub(super) is_labelled: bool,
    /// Namespace and name, if its parent is a Service.
    pub(super) parent: Option<(String, String)>,
    pub(super) created: Option<Timestamp>,
}

impl Address {
    /// Of a stored object; `None` for one whose name is no address.
    pub(super) fn read(object: &Value, revision: Revision) -> Option<Self> {
        let ip: IpAddr = text(object, &["metadata", "name"]).parse().ok()?;
        let label = |key| text(object, &["metadata", "labels", key]);
        let parent = |key| text(object, &["spec", "parentRef", key]);
        let is_service = parent("group").is_empty() && parent("resource") == "services";
        Some(Self {
            ip,
            uid: text(object, &["metadata", "uid"]).to_owned(),
            revision,
            is_managed: label(MANAGED_BY) == ALLOCATOR,
            is_labelled: label(IP_FAMILY) == family(ip),
            parent: is_service.then(|| (parent("namespace").to_owned(), parent("name").to_owned())),
            created: text(object, &["metadata", "creationTimestamp"]).parse().ok(),
        })
    }
}

/// One thing to mend.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Make the IPAddress of a Service.
    Note(IpAddr, String, String),
    /// Make it anew: what is there says something else.
    Renote(IpAddr, Revision, String, String),
    /// Remove what leads to no Service.
    Remove(IpAddr, Revision),
}

type Request = (Method, String, Value);

impl Action {
    /// The requests that do it, in order.
    pub(super) fn requests(&self) -> (Request, Option<Request>) {
        let make = |ip: &IpAddr, namespace: &str, name: &str| {
            let mut object = address_object(*ip, namespace, name);
            object["apiVersion"] = json!("networking.k8s.io/v1");
            object["kind"] = json!("IPAddress");
            (Method::POST, PATH.to_owned(), object)
        };
        let remove = |ip: &IpAddr, revision: &Revision| {
            let options = json!({"preconditions": {"resourceVersion": revision.to_string()}});
            (Method::DELETE, format!("{PATH}/{ip}"), options)
        };
        match self {
            Self::Note(ip, namespace, name) => (make(ip, namespace, name), None),
            Self::Renote(ip, revision, namespace, name) => (remove(ip, revision), Some(make(ip, namespace, name))),
            Self::Remove(ip, revision) => (remove(ip, revision), None),
        }
    }
}

/// What a look found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) events: Vec<EventText>,
    /// When what nothing changes has to be looked at again.
    pub(super) again_at: Option<Timestamp>,
}

impl Plan {
    fn of_service(&mut self, service: &Held, reason: &'static str, message: String) {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(service.namespace.clone()),
            name: Some(service.name.clone()),
            uid: Some(service.uid.clone()),
            ..ObjectReference::default()
        };
        self.say(regarding, reason, message);
    }

    fn of_address(&mut self, address: &Address, reason: &'static str, message: String) {
        let regarding = ObjectReference {
            api_version: Some("networking.k8s.io/v1".to_owned()),
            kind: Some("IPAddress".to_owned()),
            name: Some(address.ip.to_string()),
            uid: Some(address.uid.clone()),
            ..ObjectReference::default()
        };
        self.say(regarding, reason, message);
    }

    fn say(&mut self, regarding: ObjectReference, reason: &'static str, message: String) {
        self.events.push(EventText {
            regarding,
            kind: "Warning",
            reason,
            message,
        });
    }
}

/// All ranges there are, ready or not: what lies in one of them is in its place.
pub(super) fn ranges(configured: &Ranges, cidrs: &[Arc<Value>]) -> Vec<Range> {
    let texts = cidrs.iter().flat_map(|cidr| list(cidr, &["spec", "cidrs"]));
    let stored = texts.filter_map(|text| text.as_str()?.parse().ok());
    configured.all().iter().copied().chain(stored).collect()
}

/// What is to be done so that IPAddresses say what Services hold.
pub(super) fn plan(services: &[Arc<Held>], addresses: &[Arc<Address>], ranges: &[Range], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let by_name: HashMap<(&str, &str), &Held> = services
        .iter()
        .map(|service| ((service.namespace.as_str(), service.name.as_str()), &**service))
        .collect();
    let by_ip: BTreeMap<IpAddr, &Address> = addresses.iter().map(|address| (address.ip, &**address)).collect();
    let parent_of = |address: &Address| {
        let (namespace, name) = address.parent.as_ref()?;
        by_name.get(&(namespace.as_str(), name.as_str())).copied()
    };
    // What is made in this plan already: of two Services with one address the first has it.
    let mut noted = BTreeSet::new();
    for service in services {
        for ip in &service.addresses {
            let address = by_ip.get(ip).copied();
            judge(&mut plan, service, *ip, address, ranges, &parent_of, &mut noted);
        }
    }
    doubled_ports(&mut plan, services);
    for address in addresses.iter().filter(|address| address.is_managed) {
        judge_address(&mut plan, address, parent_of(address), &noted, now);
    }
    plan
}

fn judge<'a>(
    plan: &mut Plan,
    service: &Held,
    ip: IpAddr,
    address: Option<&'a Address>,
    ranges: &[Range],
    parent_of: &impl Fn(&'a Address) -> Option<&'a Held>,
    noted: &mut BTreeSet<IpAddr>,
) {
    let family = family(ip);
    let (namespace, name) = (&service.namespace, &service.name);
    if !ranges.iter().any(|range| range.spans(ip)) {
        let text =
            format!("Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service");
        plan.of_service(service, "ClusterIPOutOfRange", text);
        return;
    }
    let doubled = format!("Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service");
    if noted.contains(&ip) {
        plan.of_service(service, "ClusterIPAlreadyAllocated", doubled);
        return;
    }
    let Some(address) = address else {
        let text = format!("Cluster IP [{family}]: {ip} is not allocated; repairing");
        plan.of_service(service, "ClusterIPNotAllocated", text);
        plan.actions.push(Action::Note(ip, namespace.clone(), name.clone()));
        noted.insert(ip);
        return;
    };
    let is_own = address.parent.as_ref() == Some(&(namespace.clone(), name.clone()));
    if !is_own && parent_of(address).is_some_and(|other| other.addresses.contains(&ip)) {
        plan.of_service(service, "ClusterIPAlreadyAllocated", doubled);
        return;
    }
    if !is_own {
        let text =
            format!("the ClusterIP [{family}]: {ip} for Service {namespace}/{name} has a wrong reference; repairing");
        plan.of_service(service, "ClusterIPNotAllocated", text);
    }
    if !is_own || !address.is_managed || !address.is_labelled {
        plan.actions
            .push(Action::Renote(ip, address.revision, namespace.clone(), name.clone()));
        noted.insert(ip);
    }
}

fn doubled_ports(plan: &mut Plan, services: &[Arc<Held>]) {
    let mut seen = BTreeSet::new();
    for service in services {
        for port in service.ports.iter().filter(|port| !seen.insert(**port)) {
            let text = format!("Node port {port} was assigned to multiple services; please recreate service");
            plan.of_service(service, "PortAlreadyAllocated", text);
        }
    }
}

/// Of an IPAddress of the allocator's: whether it leads to a Service that holds it.
fn judge_address(plan: &mut Plan, address: &Address, parent: Option<&Held>, noted: &BTreeSet<IpAddr>, now: Timestamp) {
    let ip = address.ip;
    if noted.contains(&ip) || parent.is_some_and(|service| service.addresses.contains(&ip)) {
        return;
    }
    let remove = Action::Remove(ip, address.revision);
    let Some((namespace, name)) = &address.parent else {
        let text = format!("IPAddress {ip} appears to have been modified, not referencing a Service: cleaning up");
        plan.of_address(address, "IPAddressNotAllocated", text);
        plan.actions.push(remove);
        return;
    };
    if parent.is_some() {
        let text = format!("IPAddress: {ip} for Service {namespace}/{name} has a wrong reference; cleaning up");
        plan.of_address(address, "IPAddressWrongReference", text);
        plan.actions.push(remove);
        return;
    }
    let due = address.created.and_then(|created| created.checked_add(GRACE).ok());
    match due.filter(|due| *due > now) {
        Some(due) => plan.again_at = Some(plan.again_at.map_or(due, |at| at.min(due))),
        None => {
            let text = format!("IPAddress: {ip} for Service {namespace}/{name} appears to have leaked: cleaning up");
            plan.of_address(address, "IPAddressNotAllocated", text);
            plan.actions.push(remove);
        }
    }
}

#[cfg(test)]
mod tests;
