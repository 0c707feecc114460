//! Addresses and node ports of Services. The choice is `resource::service`'s; which are taken is read from the window.
//!
//! Two requests at once never share one because Services are written one at a time ([`super::super::write_locks`]): what is chosen here
//! is stored, or refused and free again, before the next request looks. What holds an address is a Service, or an IPAddress object of
//! somebody else's; what holds a node port is a Service.

use super::{Attributes, Operation};
use crate::apiserver::reader::{self, Reader};
use crate::apiserver::status::ApiError;
use crate::resource::field::{at, list, text};
use crate::resource::service::{
    AllocateError, CLUSTER_DNS, NodePorts, Pool, Range, Ranges, Reserved, allocate, allocate_node_ports, fill_families,
    held_addresses, held_ports,
};
use crate::store::window::Stored;
use counted::{Asked, Counted};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

mod counted;

/// The group of ServiceCIDRs and IPAddresses.
const NETWORKING: &str = "networking.k8s.io";
/// The ServiceCIDR made of the configured ranges.
const DEFAULT_RANGES: &str = "kubernetes";

type Objects = OrdMap<Arc<str>, Arc<Stored>>;

/// Gives addresses and ports, and remembers what Services hold.
pub(super) struct Allocator {
    ranges: Ranges,
    node_ports: NodePorts,
    counted: Counted,
    reserved: Vec<Reserved>,
    holders: Mutex<Holders>,
}

impl Allocator {
    /// Gives addresses out of `ranges` and the ServiceCIDRs there are, ports out of `node_ports`.
    pub(super) fn new(ranges: Ranges, node_ports: NodePorts) -> Self {
        let kept = |offset, namespace, name| {
            let address = ranges.nth(offset)?;
            Some(Reserved {
                address,
                namespace,
                name,
            })
        };
        // Whoever has these is trusted by every pod: nobody else may have them, also while their Services are gone.
        let reserved = [
            kept(1, "default", Some("kubernetes")),
            kept(CLUSTER_DNS, "kube-system", None),
        ];
        Self {
            reserved: reserved.into_iter().flatten().collect(),
            ranges,
            node_ports,
            counted: Counted::default(),
            holders: Mutex::default(),
        }
    }

    /// Fills in what the Service's type has and it does not name. `start` spreads the choice.
    pub(super) fn assign(
        &self,
        attributes: &Attributes<'_>,
        service: &mut Value,
        old: Option<&Value>,
        reader: &Reader,
        start: u64,
    ) -> Result<(), ApiError> {
        let old = old.filter(|_| attributes.operation == Operation::Update);
        if let Some(old) = old {
            // What the old object holds and the new one leaves out stays.
            attributes.kind.strategy.prepare_update(service, old, "");
        } else {
            // As the strategy will, but before anything is chosen.
            crate::resource::service::pair_addresses(service);
        }
        let refused = |error| match error {
            AllocateError::Invalid(errors) => ApiError::invalid("", "Service", attributes.name, errors),
            other => ApiError::internal(other),
        };
        let families = self.ranges.families();
        fill_families(&families, service, old).map_err(|errors| refused(AllocateError::Invalid(errors)))?;
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(objects) = reader.objects("", "services") {
            holders.follow(objects);
        }
        let prefix = reader::prefix(attributes.kind);
        let own = reader::key(&prefix, attributes.namespace, attributes.name);
        let ranges = ranges(&self.ranges, &reader.list(NETWORKING, "servicecidrs", ""));
        let pool = Pool {
            families: &families,
            ranges: &ranges,
            reserved: &self.reserved,
            is_taken: &|ip| holders.addresses.is_taken(&ip, &own) || is_noted(reader, ip, attributes),
        };
        let asked = Asked::of(service, old);
        let given = allocate(&pool, start, service, old);
        if !attributes.dry_run {
            self.counted.addresses(&asked, service, &ranges, &given);
        }
        given.map_err(refused)?;
        let is_taken = |port: u16| holders.ports.is_taken(&port, &own);
        let given = allocate_node_ports(self.node_ports, &is_taken, start, old.is_none(), service);
        if !attributes.dry_run {
            self.counted.ports(&asked, service, &given);
        }
        given.map_err(refused)
    }

    /// Adds what was counted, and what is given and free now, to `registry`.
    pub(super) fn register(&self, reader: &Reader, registry: &mut Registry) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(objects) = reader.objects("", "services") {
            holders.follow(objects);
        }
        let ranges = ranges(&self.ranges, &reader.list(NETWORKING, "servicecidrs", ""));
        let ports = holders.ports.0.keys().filter(|port| self.node_ports.contains(**port));
        let addresses = holders.addresses.0.keys().copied();
        self.counted
            .register(registry, addresses, &ranges, (ports.count(), self.node_ports.size()));
    }
}

/// Whether an IPAddress says that somebody else has the address.
fn is_noted(reader: &Reader, ip: IpAddr, attributes: &Attributes<'_>) -> bool {
    let found = reader.get(NETWORKING, "ipaddresses", "", &ip.to_string());
    found.is_some_and(|address| {
        let parent = |key| text(&address, &["spec", "parentRef", key]);
        (parent("resource"), parent("namespace"), parent("name")) != ("services", attributes.namespace, attributes.name)
    })
}

/// The ranges addresses are given of: the configured one first, then those of ServiceCIDRs that are ready and stay.
fn ranges(configured: &Ranges, cidrs: &[Arc<Value>]) -> Vec<Range> {
    let is_default = |cidr: &Value| text(cidr, &["metadata", "name"]) == DEFAULT_RANGES;
    let mut all = Vec::new();
    if !cidrs.iter().any(|cidr| is_default(cidr)) {
        all.extend(configured.all());
    }
    let (default, others): (Vec<_>, Vec<_>) = cidrs.iter().partition(|cidr| is_default(cidr));
    for cidr in default.into_iter().chain(others).filter(|cidr| is_usable(cidr)) {
        let texts = list(cidr, &["spec", "cidrs"]).iter().filter_map(Value::as_str);
        all.extend(texts.filter_map(|text| text.parse::<Range>().ok()));
    }
    all
}

/// A range nobody has judged yet is taken to be ready, as upstream.
fn is_usable(cidr: &Value) -> bool {
    let conditions = list(cidr, &["status", "conditions"]);
    let ready = conditions
        .iter()
        .find(|condition| text(condition, &["type"]) == "Ready");
    ready.is_none_or(|ready| text(ready, &["status"]) == "True")
        && at(cidr, &["metadata", "deletionTimestamp"]).is_null()
}

/// Who has what, by the Services' keys.
#[derive(Default)]
struct Holders {
    seen: Objects,
    held: HashMap<Arc<str>, (Vec<IpAddr>, Vec<u16>)>,
    addresses: Index<IpAddr>,
    ports: Index<u16>,
}

impl Holders {
    /// Takes in what has changed: as much work as there are changes.
    fn follow(&mut self, now: Objects) {
        if self.seen.ptr_eq(&now) {
            return;
        }
        let changes: Vec<_> = self
            .seen
            .diff(&now)
            .map(|item| match item {
                DiffItem::Add(key, stored) | DiffItem::Update { new: (key, stored), .. } => {
                    (Arc::clone(key), Some(Arc::clone(stored)))
                }
                DiffItem::Remove(key, _) => (Arc::clone(key), None),
            })
            .collect();
        for (key, stored) in changes {
            let (addresses, ports) = self.held.remove(&key).unwrap_or_default();
            addresses.iter().for_each(|ip| self.addresses.remove(ip, &key));
            ports.iter().for_each(|port| self.ports.remove(port, &key));
            let Some(stored) = stored else { continue };
            let service = stored.tree();
            let addresses: Vec<IpAddr> = held_addresses(&service).into_iter().collect();
            let ports: Vec<u16> = held_ports(&service).into_iter().collect();
            addresses.iter().for_each(|ip| self.addresses.add(*ip, &key));
            ports.iter().for_each(|port| self.ports.add(*port, &key));
            self.held.insert(key, (addresses, ports));
        }
        self.seen = now;
    }
}

/// Who holds a thing; more than one only by a store that is damaged.
struct Index<T>(BTreeMap<T, Vec<Arc<str>>>);

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Index<T> {
    fn add(&mut self, thing: T, key: &Arc<str>) {
        self.0.entry(thing).or_default().push(Arc::clone(key));
    }

    fn remove(&mut self, thing: &T, key: &Arc<str>) {
        if let Some(holders) = self.0.get_mut(thing) {
            holders.retain(|holder| holder != key);
            if holders.is_empty() {
                self.0.remove(thing);
            }
        }
    }

    fn is_taken(&self, thing: &T, own: &str) -> bool {
        let holders = self.0.get(thing).into_iter().flatten();
        holders.into_iter().any(|holder| **holder != *own)
    }
}
