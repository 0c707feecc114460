//! What stands behind a service, as addresses, as services of ports, and as names of addresses. Pure.

use super::{Missing, SVC, Turn, kind_of};
use crate::index::{Endpoint, Entry, Port, Protocol, Spec, dashed};
use crate::wire::{Name, Section, kind};
use std::net::IpAddr;
use std::sync::Arc;

/// The most names one address is said to have.
const POINTERS_MAX: usize = 64;
/// The most addresses, or pairs of port and endpoint, that are considered for one answer: no answer has room for more (64 KiB, and
/// 16 bytes for the smallest record).
const FOUND_MAX: usize = 4096;
/// The most entries of an address's owners that are looked through for its names, and the most endpoints with names of their own.
/// (Those without are found by their address.)
const LOOKED_MAX: usize = 8192;

/// A port that was asked for.
pub(super) type Wanted<'a> = Option<(&'a [u8], Protocol)>;

fn is_wanted(port: &Port, wanted: Wanted<'_>) -> bool {
    wanted.is_none_or(|(name, protocol)| *port.name == *name && port.protocol == protocol)
}

fn is_published(entry: &Entry) -> bool {
    matches!(entry.spec, Some(Spec::Headless { published: true }))
}

fn usable(entry: &Entry) -> impl Iterator<Item = &Endpoint> {
    let published = is_published(entry);
    entry.slices.iter().flat_map(move |slice| slice.usable(published))
}

/// The label of an endpoint, behind its length.
fn label_of(endpoint: &Endpoint, label: &mut Vec<u8>) {
    label.clear();
    label.push(0);
    match &endpoint.hostname {
        Some(hostname) => label.extend_from_slice(hostname),
        None => label.extend_from_slice(&dashed(&endpoint.address)),
    }
    label[0] = (label.len() - 1) as u8;
}

impl Turn<'_, '_> {
    /// The addresses of a service's usable endpoints, or of those of one name.
    pub(super) fn endpoints(
        &mut self,
        name: &Name,
        entry: &Entry,
        label: Option<&[u8]>,
    ) -> Result<Option<Name>, Missing> {
        let mut addresses = std::mem::take(&mut self.room.addresses);
        addresses.clear();
        let published = is_published(entry);
        let mut any = false;
        // Of the family that was asked for: those of the other must not take up the bound.
        let wanted = self.query.kind;
        let mut is_wanted = |address: &IpAddr| {
            any = true;
            kind_of(address) == wanted
        };
        for slice in &entry.slices {
            let left = FOUND_MAX - addresses.len();
            match label {
                Some(label) => {
                    let named = slice.named(label, published).map(|endpoint| endpoint.address);
                    addresses.extend(named.filter(&mut is_wanted).take(left));
                }
                None => addresses.extend(slice.addresses(published).filter(&mut is_wanted).take(left)),
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        let outcome = match any {
            true => self.addresses(name, &addresses),
            false => Err(Missing::Name),
        };
        self.room.addresses = addresses;
        outcome
    }

    /// A service without named ports: there, unless it is headless and nothing stands behind it.
    pub(super) fn nothing_of(&self, entry: &Entry) -> Result<Option<Name>, Missing> {
        match entry.spec {
            Some(Spec::Headless { .. }) if usable(entry).next().is_none() => Err(Missing::Name),
            _ => Err(Missing::Data),
        }
    }

    /// `_tcp` before a service: nothing is there, but something is below it if a port of that protocol has a name.
    pub(super) fn protocol(&mut self, name: &Name, entry: &Entry, label: &[u8]) -> Result<Option<Name>, Missing> {
        let protocol = Protocol::of_label(label).ok_or(Missing::Name)?;
        match named_ports(entry).any(|port| port.protocol == protocol) {
            true => self.existing(name),
            false => Err(Missing::Name),
        }
    }

    /// `_http._tcp` before a service.
    pub(super) fn port(
        &mut self,
        name: &Name,
        (key, entry): (&[u8], &Entry),
        port: &[u8],
        protocol: &[u8],
    ) -> Result<Option<Name>, Missing> {
        let port = port.strip_prefix(b"_").ok_or(Missing::Name)?;
        let protocol = Protocol::of_label(protocol).ok_or(Missing::Name)?;
        let wanted = Some((port, protocol));
        if !named_ports(entry).any(|port| is_wanted(port, wanted)) {
            return Err(Missing::Name);
        }
        match self.query.kind {
            kind::SRV => self.ports(name, (key, entry), wanted),
            _ => self.existing(name),
        }
    }

    /// SRV records of a service: one for each port, or for each port of each endpoint.
    pub(super) fn ports(
        &mut self,
        name: &Name,
        (key, entry): (&[u8], &Entry),
        wanted: Wanted<'_>,
    ) -> Result<Option<Name>, Missing> {
        let zone = self.index.shape.zone.wire();
        if let Some(Spec::Cluster { addresses, ports }) = &entry.spec {
            let target = Name::of(&[key, SVC, zone]).ok_or(Missing::Name)?;
            let ports: Vec<u16> = ports
                .iter()
                .filter(|port| is_wanted(port, wanted))
                .map(|port| port.number)
                .take(FOUND_MAX)
                .collect();
            for port in &ports {
                if !self.service_record(name, *port, ports.len(), &target) {
                    break;
                }
            }
            if !ports.is_empty() {
                for address in addresses {
                    self.address(Section::Additional, target.wire(), *address);
                }
            }
            return if ports.is_empty() { Err(Missing::Name) } else { Ok(None) };
        }
        let published = is_published(entry);
        let mut found: Vec<(&Endpoint, u16)> = Vec::new();
        for slice in &entry.slices {
            let ports = slice.ports.iter().filter(|port| is_wanted(port, wanted));
            let ports: Vec<u16> = ports.map(|port| port.number).take(FOUND_MAX).collect();
            if ports.is_empty() {
                continue;
            }
            let pairs = slice
                .usable(published)
                .flat_map(|endpoint| ports.iter().map(move |port| (endpoint, *port)));
            found.extend(pairs.take(FOUND_MAX - found.len()));
        }
        // By name and port, and then the addresses of each: an endpoint of two families is one.
        found.sort_unstable_by(|one, other| (named(one), one.0.address).cmp(&(named(other), other.0.address)));
        let is_first = |at: usize| at == 0 || named(&found[at - 1]) != named(&found[at]);
        let count = (0..found.len()).filter(|at| is_first(*at)).count();
        let mut label = Vec::new();
        let mut target_of = |endpoint: &Endpoint| {
            label_of(endpoint, &mut label);
            Name::of(&[&label, key, SVC, zone])
        };
        for at in (0..found.len()).filter(|at| is_first(*at)) {
            let Some(target) = target_of(found[at].0) else {
                continue;
            };
            if !self.service_record(name, found[at].1, count, &target) {
                return Ok(None);
            }
        }
        // Beside them each address once, whatever the ports.
        let mut port = 0;
        for (at, (endpoint, own)) in found.iter().enumerate() {
            if at == 0 || named(&found[at - 1]).0 != named(&found[at]).0 {
                port = *own;
            }
            let is_twice = at > 0 && found[at - 1].1 == *own && found[at - 1].0 == *endpoint;
            let Some(target) = target_of(endpoint).filter(|_| *own == port && !is_twice) else {
                continue;
            };
            if !self.address(Section::Additional, target.wire(), endpoint.address) {
                break;
            }
        }
        if found.is_empty() { Err(Missing::Name) } else { Ok(None) }
    }

    fn service_record(&mut self, name: &Name, port: u16, count: usize, target: &Name) -> bool {
        let weight = (100 / count).max(1) as u16;
        let mut data = Vec::with_capacity(6 + target.wire().len());
        for number in [0, weight, port] {
            data.extend_from_slice(&number.to_be_bytes());
        }
        data.extend_from_slice(target.wire());
        self.record(Section::Answer, name.wire(), kind::SRV, &data)
    }

    /// The headless services an address stands behind, each once though it is named once for each of its endpoints.
    fn owners(&self, address: &IpAddr) -> impl Iterator<Item = (&[u8], &Entry)> {
        let index = self.index;
        let mut seen: Vec<&Arc<[u8]>> = Vec::new();
        let owners = index.owners(address).iter().take(LOOKED_MAX);
        let owners = owners.filter(move |key| {
            // A service's endpoints come one after another, so the last seen is the likely one.
            let is_new = !seen.iter().rev().any(|there| Arc::ptr_eq(there, key));
            if is_new && seen.len() < POINTERS_MAX {
                seen.push(key);
            }
            is_new
        });
        owners.filter_map(move |key| Some((&**key, index.service(key)?)))
    }

    /// The names of an address: its service's, or, if wanted, its endpoints', those with names of their own first. Beside the service
    /// whose own it is nobody's endpoints name it.
    pub(super) fn targets(&self, address: IpAddr, by_endpoints: bool) -> Vec<Name> {
        let zone = self.index.shape.zone.wire();
        let holders = self.index.holders(&address);
        if !holders.is_empty() {
            let mut names: Vec<Name> = holders.iter().filter_map(|key| Name::of(&[key, SVC, zone])).collect();
            names.sort_unstable_by(|one, other| one.wire().cmp(other.wire()));
            return names;
        }
        if !by_endpoints {
            return Vec::new();
        }
        let mut targets: Vec<(bool, Name)> = Vec::new();
        let mut label = Vec::new();
        let mut put = |is_unnamed: bool, name: Option<Name>| {
            let Some(name) = name else { return };
            let order = |there: &(bool, Name)| (there.0, there.1.wire()).cmp(&(is_unnamed, name.wire()));
            if let Err(at) = targets.binary_search_by(order)
                && targets.len() < POINTERS_MAX
            {
                targets.insert(at, (is_unnamed, name));
            }
        };
        let mut left = LOOKED_MAX;
        let own = dashed(&address);
        for (key, entry) in self.owners(&address).take(POINTERS_MAX) {
            let published = is_published(entry);
            for slice in &entry.slices {
                let given = &slice.given()[..left.min(slice.given().len())];
                left -= given.len();
                let given = given.iter().filter(|endpoint| published || endpoint.ready);
                let unnamed = slice.named(&own, published);
                let unnamed = unnamed.filter(|endpoint| endpoint.hostname.is_none()).take(1);
                for endpoint in given.chain(unnamed).filter(|endpoint| endpoint.address == address) {
                    label_of(endpoint, &mut label);
                    put(endpoint.hostname.is_none(), Name::of(&[&label, key, SVC, zone]));
                }
            }
        }
        targets.into_iter().map(|(_, name)| name).collect()
    }
}

/// What an SRV record says of an endpoint: its name, or its address where it has none, and the port.
fn named<'a>((endpoint, port): &(&'a Endpoint, u16)) -> ((Option<&'a [u8]>, Option<IpAddr>), u16) {
    let address = endpoint.hostname.is_none().then_some(endpoint.address);
    ((endpoint.hostname.as_deref(), address), *port)
}

/// The named ports of a service that are there: its own, or those of slices with a usable endpoint.
fn named_ports(entry: &Entry) -> impl Iterator<Item = &Port> {
    let own: &[Port] = match &entry.spec {
        Some(Spec::Cluster { ports, .. }) => ports,
        _ => &[],
    };
    let published = is_published(entry);
    let is_headless = matches!(entry.spec, Some(Spec::Headless { .. }));
    let slices = entry.slices.iter().filter(move |_| is_headless);
    let slices = slices.filter(move |slice| slice.usable(published).next().is_some());
    own.iter().chain(slices.flat_map(|slice| slice.ports.iter()))
}
