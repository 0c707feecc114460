//! What the cluster's names are, as the informers tell: an index that is changed object by object and looked up by a part of the
//! question's own bytes. Owns no Kubernetes object, only what answers need of them. Pure: never asks anybody, never waits.
//!
//! A service is found by its two labels (`\5nginx\7default`), an address by itself. Endpoints stand with their slice, sorted, so that
//! an endpoint's name costs one binary search a slice. What an address belongs to is a multiset: the same endpoint may stand in two
//! slices for a while, and the first to go must not take the other's name with it. (Within a slice it counts once.) Whose own an address is stands apart from whose
//! endpoints it is: the API server gives the one, anybody writes the other, as often as they like.

use crate::wire::Name;
use crate::wire::name::{key, label};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use netlink::cidr::Cidr;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

mod service;

pub use service::{Endpoint, Port, Protocol, Slice, Spec, dashed, undashed};

/// The label that names a slice's service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Up to how many of a kind no place is kept for more: most addresses have one owner, most services one slice. Beyond, places double.
const EXACT_MAX: usize = 4;

/// What names pods have by their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodNames {
    /// None.
    Disabled,
    /// Every address has one in every namespace, whether there is such a pod or not.
    #[default]
    Insecure,
    /// Addresses of pods that exist, in their namespaces.
    Verified,
}

/// What of the settings decides answers.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The cluster's domain, in small letters.
    pub zone: Name,
    /// What names pods have.
    pub pods: PodNames,
    /// How long answers hold, in seconds.
    pub ttl: u32,
    /// Where we are reached.
    pub addresses: Vec<IpAddr>,
    /// Addresses that are the cluster's: what is unknown in them is unknown, and asked of nobody.
    pub ranges: Vec<Cidr>,
}

/// A service with what stands behind it. Either may be known before the other.
#[derive(Debug, Default)]
pub struct Entry {
    /// The service, if it is known and has an address or a target.
    pub spec: Option<Spec>,
    /// Its slices, by name.
    pub slices: Vec<Slice>,
}

/// Whose addresses are, each as often as it is said.
type Owners = HashMap<IpAddr, Vec<Arc<[u8]>>>;

/// The index.
#[derive(Debug)]
pub struct Index {
    /// What of the settings decides answers.
    pub shape: Shape,
    /// Whether all there was at the start is in it.
    pub synced: bool,
    /// When it last changed, in seconds since 1970: the zone's serial number.
    pub serial: u32,
    services: HashMap<Arc<[u8]>, Entry>,
    namespaces: HashMap<Arc<[u8]>, usize>,
    /// Of services' own addresses.
    holders: Owners,
    /// Of headless services' endpoints.
    owners: Owners,
    pods: Owners,
}

impl Index {
    /// An index that knows nothing.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            synced: false,
            serial: 0,
            services: HashMap::new(),
            namespaces: HashMap::new(),
            holders: HashMap::new(),
            owners: HashMap::new(),
            pods: HashMap::new(),
        }
    }

    /// The service of these two labels (its name and its namespace, each behind its length).
    pub fn service(&self, key: &[u8]) -> Option<&Entry> {
        self.services.get(key)
    }

    /// Whether there is a namespace of this label.
    pub fn has_namespace(&self, label: &[u8]) -> bool {
        self.namespaces.contains_key(label)
    }

    /// Whether a pod of the namespace of this label has this address.
    pub fn has_pod(&self, address: &IpAddr, namespace: &[u8]) -> bool {
        let namespaces = self.pods.get(address);
        namespaces.is_some_and(|namespaces| namespaces.iter().any(|label| **label == *namespace))
    }

    /// How many endpoints stand behind a service, ready or not.
    pub fn endpoints(&self, namespace: &str, name: &str) -> usize {
        let entry = key(&[name, namespace]).and_then(|key| self.services.get(&key[..]));
        let slices = entry.into_iter().flat_map(|entry| &entry.slices);
        slices.map(|slice| slice.endpoints.len()).sum()
    }

    /// The services whose own an address is: one, or for a moment another beside it.
    pub fn holders(&self, address: &IpAddr) -> &[Arc<[u8]>] {
        self.holders.get(address).map_or(&[], Vec::as_slice)
    }

    /// The headless services an address stands behind. A service is named once for each of its slices that says so.
    pub fn owners(&self, address: &IpAddr) -> &[Arc<[u8]>] {
        self.owners.get(address).map_or(&[], Vec::as_slice)
    }

    /// How many services there are.
    pub fn services(&self) -> usize {
        self.services.len()
    }

    /// Takes a namespace in or out.
    pub fn set_namespace(&mut self, name: &str, exists: bool) {
        let Some(label) = label(name) else { return };
        match exists {
            true => drop(self.namespaces.insert(label.into(), 1)),
            false => drop(self.namespaces.remove(&label[..])),
        }
    }

    /// Takes a service as it is now, or out.
    pub fn set_service(&mut self, namespace: &str, name: &str, now: Option<&Service>) {
        let Some(wire) = key(&[name, namespace]) else { return };
        let spec = now.and_then(Spec::of);
        let Some(key) = self.entry(&wire, spec.is_some()) else {
            return;
        };
        // Most changes of a service are none of what it is here, and what follows from it follows for all its endpoints.
        if self.services.get(&key).is_some_and(|entry| entry.spec == spec) {
            self.forget_empty(&key);
            return;
        }
        self.link_service(&key, false);
        if let Some(entry) = self.services.get_mut(&key) {
            entry.spec = spec;
        }
        self.link_service(&key, true);
        self.forget_empty(&key);
    }

    /// Takes a slice as it is now, in place of what it was; either may be nothing.
    pub fn set_slice(&mut self, was: Option<&EndpointSlice>, now: Option<&EndpointSlice>) {
        let (from, to) = (was.and_then(service_of), now.and_then(service_of));
        if let Some(key) = from.filter(|from| to.as_ref() != Some(from)) {
            self.put_slice(&key, was, None);
        }
        if let Some(key) = to {
            self.put_slice(&key, now, now.and_then(Slice::of));
        }
    }

    /// Takes a pod as it is now, in place of what it was; either may be nothing.
    pub fn set_pod(&mut self, was: Option<&Pod>, now: Option<&Pod>) {
        for (pod, add) in [(was, false), (now, true)] {
            let Some(pod) = pod else { continue };
            let Some(label) = pod.metadata.namespace.as_deref().and_then(label) else {
                continue;
            };
            let label: Arc<[u8]> = label.into();
            for address in service::pod_addresses(pod) {
                match add {
                    true => give(&mut self.pods, address, label.clone()),
                    false => take_one(&mut self.pods, &address, &label),
                }
            }
        }
    }

    /// Gives back what growth left over.
    pub fn shrink(&mut self) {
        self.services.shrink_to_fit();
        self.holders.shrink_to_fit();
        self.owners.shrink_to_fit();
        self.namespaces.shrink_to_fit();
        self.pods.shrink_to_fit();
    }

    fn put_slice(&mut self, wire: &[u8], named: Option<&EndpointSlice>, now: Option<Slice>) {
        let Some(name) = named.and_then(|slice| slice.metadata.name.as_deref()) else {
            return;
        };
        let Some(key) = self.entry(wire, now.is_some()) else {
            return;
        };
        let Some(entry) = self.services.get_mut(&key) else {
            return;
        };
        let place = entry.slices.binary_search_by(|slice| (*slice.name).cmp(name));
        let old = match (place, now) {
            (Ok(at), Some(now)) => Some(std::mem::replace(&mut entry.slices[at], now)),
            (Ok(at), None) => Some(entry.slices.remove(at)),
            (Err(at), Some(now)) => {
                // Most services have one slice.
                if entry.slices.len() < EXACT_MAX {
                    entry.slices.reserve_exact(1);
                }
                entry.slices.insert(at, now);
                None
            }
            (Err(_), None) => None,
        };
        let Some(Spec::Headless { published }) = entry.spec else {
            self.forget_empty(&key);
            return;
        };
        let new = entry.slices.iter().find(|slice| *slice.name == *name);
        let [old, new] =
            [old.as_ref(), new].map(|slice| slice.map_or_else(Vec::new, |slice| slice.distinct(published)));
        for address in old.iter().filter(|address| new.binary_search(address).is_err()) {
            take_one(&mut self.owners, address, &key);
        }
        for address in new.iter().filter(|address| old.binary_search(address).is_err()) {
            give(&mut self.owners, *address, key.clone());
        }
        self.forget_empty(&key);
    }

    /// The shared key of an entry, which is made if it is wanted.
    fn entry(&mut self, wire: &[u8], make: bool) -> Option<Arc<[u8]>> {
        if let Some((key, _)) = self.services.get_key_value(wire) {
            return Some(key.clone());
        }
        make.then(|| {
            let key: Arc<[u8]> = wire.into();
            self.services.insert(key.clone(), Entry::default());
            key
        })
    }

    fn forget_empty(&mut self, key: &Arc<[u8]>) {
        let is_empty = |entry: &Entry| entry.spec.is_none() && entry.slices.is_empty();
        if self.services.get(key).is_some_and(is_empty) {
            self.services.remove(key);
        }
    }

    /// Says, or no longer says, of every address of a service that it is the service's.
    fn link_service(&mut self, key: &Arc<[u8]>, add: bool) {
        let Some(entry) = self.services.get(key) else { return };
        let (owners, addresses): (_, Vec<IpAddr>) = match &entry.spec {
            Some(Spec::Cluster { addresses, .. }) => (&mut self.holders, addresses.to_vec()),
            Some(Spec::Headless { published }) => {
                let slices = entry.slices.iter();
                let addresses = slices.flat_map(|slice| slice.distinct(*published));
                (&mut self.owners, addresses.collect())
            }
            _ => return,
        };
        for address in addresses {
            match add {
                true => give(owners, address, key.clone()),
                false => take_one(owners, &address, key),
            }
        }
    }
}

/// Puts one of the owners in; most addresses have one.
fn give(owners: &mut Owners, address: IpAddr, owner: Arc<[u8]>) {
    let there = owners.entry(address).or_default();
    if there.len() < EXACT_MAX {
        there.reserve_exact(1);
    }
    there.push(owner);
}

/// Takes one of the owners out, and the address with the last.
fn take_one(owners: &mut Owners, address: &IpAddr, owner: &Arc<[u8]>) {
    let Some(there) = owners.get_mut(address) else { return };
    if let Some(at) = there.iter().position(|there| there == owner) {
        there.swap_remove(at);
    }
    if there.is_empty() {
        owners.remove(address);
    }
}

fn service_of(slice: &EndpointSlice) -> Option<Box<[u8]>> {
    let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    key(&[service, slice.metadata.namespace.as_deref()?])
}

#[cfg(test)]
pub(crate) mod tests;
