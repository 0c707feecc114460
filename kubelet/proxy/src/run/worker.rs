//! The part of the loop that works: reads objects, enters them in the ledger, writes to the kernel. Runs on a thread that may
//! block.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::informer::{Change, Key};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use netlink::nft::Error;

use super::Sources;
use super::budget::{Budget, cost, strip};
use super::remembered::Remembered;
use crate::apply::Kernel;
use crate::choose::{Here, choose_at, endpoints_max};
use crate::conntrack::switches;
use crate::diff::Delta;
use crate::ledger::{Changes, Deltas, Ledger};
use crate::model::{
    Flaws, Protocol, Read, ReadSlice, Served, ServiceName, ServicePort, Snapshot, look_at_slice, read_service,
    read_slice,
};
use crate::node_ports;
use crate::rules::Writer;
use crate::settings::Settings;

/// One write.
pub(super) struct Written {
    pub(super) snapshot: Arc<Snapshot>,
    /// `None` before the first write.
    pub(super) previous: Option<Arc<Snapshot>>,
    pub(super) full: bool,
    /// Services that have more endpoints than are used, and had not before; how many more.
    pub(super) crowded: Vec<(ServiceName, usize)>,
    /// Services that go without addresses from outside, and did not before.
    pub(super) without: Vec<ServiceName>,
    /// Services with ports of SCTP, and without before, where the kernel does not follow it.
    pub(super) unfollowed: Vec<ServiceName>,
}

pub(super) struct Worker {
    kernel: Kernel,
    sources: Sources,
    ledger: Ledger,
    /// The settings the tables were written by.
    settings: Option<Settings>,
    /// Slices by Service.
    slices: BTreeMap<ServiceName, BTreeSet<Key>>,
    /// Services to read again.
    dirty: BTreeSet<ServiceName>,
    /// Who asks for more than there is of addresses from outside, and who of them was told so.
    budget: Budget,
    told_without: BTreeSet<ServiceName>,
    /// What was last told to be served.
    told: Option<Arc<Snapshot>>,
    /// The tables are to be written anew.
    anew: bool,
    /// What keeps node ports out of the kernel's choice goes with the rule set, too.
    reserved: node_ports::Memory,
    room: switches::Room,
    remembered: Remembered,
}

impl Worker {
    pub(super) fn new(kernel: Kernel, sources: Sources) -> Self {
        Self {
            kernel,
            sources,
            ledger: Ledger::default(),
            settings: None,
            slices: BTreeMap::new(),
            dirty: BTreeSet::new(),
            budget: Budget::default(),
            told_without: BTreeSet::new(),
            told: None,
            anew: true,
            reserved: node_ports::Memory::default(),
            room: switches::Room::default(),
            remembered: Remembered::default(),
        }
    }

    pub(super) fn start_anew(&mut self) {
        self.anew = true;
    }

    pub(super) fn note_services(&mut self, changes: &[Change<Service>]) {
        for change in changes {
            let read = |service: &Option<Arc<Service>>| service.as_ref().map(|service| read_service(service));
            let (old, new) = (read(&change.old), read(&change.new));
            let made = change
                .new
                .as_ref()
                .and_then(|new| new.metadata.creation_timestamp.as_ref());
            let asked = new.as_ref().map_or(0, |new| cost(&new.ports));
            self.budget.ask(&change.key, made.map(|time| time.0), asked);
            let left_out = |read: Option<Read>| read.map(|read| read.left_out);
            warn("Service", &change.key, left_out(old), left_out(new));
            self.dirty.insert(change.key.clone());
        }
        self.dirty.extend(self.budget.settle());
    }

    pub(super) fn note_slices(&mut self, changes: &[Change<EndpointSlice>]) {
        for change in changes {
            let look = |slice: &Option<Arc<EndpointSlice>>| slice.as_ref().map(|slice| look_at_slice(slice)).unzip();
            let ((old_service, old), (new_service, new)) = (look(&change.old), look(&change.new));
            if let Some(service) = old_service.flatten() {
                if let Some(slices) = self.slices.get_mut(&service) {
                    slices.remove(&change.key);
                    if slices.is_empty() {
                        self.slices.remove(&service);
                    }
                }
                self.dirty.insert(service);
            }
            if let Some(service) = new_service.flatten() {
                self.slices
                    .entry(service.clone())
                    .or_default()
                    .insert(change.key.clone());
                self.dirty.insert(service);
            }
            warn("EndpointSlice", &change.key, old, new);
        }
    }

    /// Whether the tables are as written; `false` also begins to write them anew.
    pub(super) fn is_intact(&mut self) -> bool {
        let intact = self.kernel.is_intact().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot tell whether the rules of Services are intact");
            false
        });
        self.anew |= !intact;
        intact
    }

    /// How many connections the kernel follows, if it has no room for more now and had before.
    pub(super) fn fills(&mut self) -> Option<u64> {
        self.room.fills()
    }

    /// Whether there is no more room for clients of Services with session affinity, of IPv4 or of IPv6: see [`Remembered::fills`].
    pub(super) fn forgets(&mut self) -> Vec<(bool, usize)> {
        let (kernel, ledger) = (&mut self.kernel, &self.ledger);
        let is_served = |v4: bool| {
            self.settings
                .as_ref()
                .is_some_and(|of| if v4 { of.ipv4 } else { of.ipv6 })
        };
        self.remembered.fills(|v4| {
            let has_affinity = ledger.snapshot().ports().any(|served| served.port.affinity_seconds > 0);
            // Clients of a Service that is gone are forgotten with the time.
            (has_affinity && is_served(v4)).then(|| kernel.clients(v4).ok())?
        })
    }

    /// Writes what was noted.
    pub(super) fn write(&mut self, settings: Settings) -> Result<Written, Error> {
        self.anew |= self.settings.as_ref() != Some(&settings);
        if !self.anew && !self.write_changes(&settings)? {
            self.anew = true;
        }
        let full = self.anew;
        if full {
            self.write_all(settings)?;
        }
        let snapshot = self.ledger.snapshot().clone();
        let previous = self.told.replace(snapshot.clone());
        // Asked once the tables are there: they bring connection tracking with them, where it is a module.
        let mut unfollowed = with_sctp(previous.as_deref(), &snapshot);
        unfollowed.retain(|_| !switches::follows_sctp());
        let without = self.budget.without().difference(&self.told_without).cloned().collect();
        self.told_without.clone_from(self.budget.without());
        Ok(Written {
            unfollowed,
            without,
            crowded: crowded(previous.as_deref(), &snapshot),
            previous,
            snapshot,
            full,
        })
    }

    fn write_changes(&mut self, settings: &Settings) -> Result<bool, Error> {
        let dirty = std::mem::take(&mut self.dirty);
        let changes: Changes = dirty.into_iter().map(|name| self.choose(name, settings)).collect();
        let deltas = self.ledger.enter(changes, settings);
        // Until the kernel has it, what it has is not what the ledger says.
        self.anew = true;
        let done = self.kernel.change(&by_writer(deltas, settings))?;
        self.anew = !done;
        Ok(done)
    }

    fn write_all(&mut self, settings: Settings) -> Result<(), Error> {
        if settings.localhost_node_ports && settings.ipv4 {
            // Without it the kernel takes no packet to or from 127.0.0.0/8 out of the loopback interface.
            if let Err(error) = netlink::sysctl::set("ipv4/conf/all/route_localnet", "1") {
                tracing::warn!(%error, "NodePorts on 127.0.0.1 will not work");
            }
        }
        if let Err(why) = self.reserved.refresh() {
            tracing::warn!("what was added to net.ipv4.ip_local_reserved_ports may be forgotten: {why}");
        }
        self.dirty.clear();
        // What the tables had goes with them: both at once would be twice the memory.
        self.ledger = Ledger::new(&settings);
        self.settings = None;
        let names = self
            .sources
            .services
            .list()
            .into_iter()
            .map(|service| Key::of(&*service));
        let changes: Changes = names.map(|name| self.choose(name, &settings)).collect();
        let deltas = self.ledger.enter(changes, &settings);
        self.kernel.replace(by_writer(deltas, &settings))?;
        self.settings = Some(settings);
        self.anew = false;
        Ok(())
    }

    fn choose(&self, name: ServiceName, settings: &Settings) -> (ServiceName, Option<Arc<[Served]>>) {
        let ports = self
            .sources
            .services
            .get_key(&name)
            .map(|service| read_service(&service).ports);
        let Some(mut ports) = ports.filter(|ports| !ports.is_empty()) else {
            return (name, None);
        };
        if self.budget.is_without(&name) {
            strip(&mut ports);
        }
        let here = Here {
            node: &settings.node_name,
            zone: &settings.zone,
        };
        let keys = self.slices.get(&name).into_iter().flatten();
        let slices = keys.filter_map(|key| self.sources.slices.get_key(key));
        let slices: Vec<ReadSlice> = slices.map(|slice| read_slice(&slice, here.node)).collect();
        (name, Some(serve(ports, &slices, here)))
    }
}

/// Chooses the endpoints of each port of a Service.
fn serve(ports: Vec<ServicePort>, slices: &[ReadSlice], here: Here<'_>) -> Arc<[Served]> {
    let most = endpoints_max(ports.len());
    let mut by_port: BTreeMap<(&str, Protocol), Vec<(u16, &ReadSlice)>> = BTreeMap::new();
    for slice in slices {
        for (name, protocol, number) in &slice.ports {
            by_port.entry((name, *protocol)).or_default().push((*number, slice));
        }
    }
    let served = ports.into_iter().map(|port| {
        let name = port.name.port.clone();
        let found = by_port.get(&(name.as_str(), port.name.protocol));
        let endpoints = found.into_iter().flatten().flat_map(|(number, slice)| {
            let each = slice.endpoints.iter();
            each.map(|endpoint| (*number, endpoint))
        });
        choose_at(port, endpoints, most, here)
    });
    served.collect()
}

type Ports = Arc<[Served]>;

/// The Services of which this is so now and was not before, and what is so of their ports; zero is nothing.
fn newly(
    before: Option<&Snapshot>,
    after: &Snapshot,
    how_much: impl Fn(&Ports) -> usize,
) -> impl Iterator<Item = (ServiceName, usize)> {
    let old = move |name| before.and_then(|before| before.services.get(name));
    let changed = after
        .services
        .iter()
        .filter(move |(name, ports)| !old(*name).is_some_and(|old| Arc::ptr_eq(old, ports)));
    changed.filter_map(move |(name, ports)| {
        let now = how_much(ports);
        let is_new = now > 0 && old(name).is_none_or(|old| how_much(old) == 0);
        is_new.then(|| (ServiceName::clone(name), now))
    })
}

/// The Services that have more endpoints than are used, and had not before.
fn crowded(before: Option<&Snapshot>, after: &Snapshot) -> Vec<(ServiceName, usize)> {
    let beyond = |ports: &Ports| ports.iter().map(|served| served.beyond).max().unwrap_or(0);
    newly(before, after, beyond).collect()
}

/// The Services that have ports of SCTP, and had none before.
fn with_sctp(before: Option<&Snapshot>, after: &Snapshot) -> Vec<ServiceName> {
    let is_sctp = |served: &&Served| served.port.name.protocol == Protocol::Sctp;
    let count = |ports: &Ports| ports.iter().filter(is_sctp).count();
    newly(before, after, count).map(|(name, _)| name).collect()
}

fn by_writer(deltas: Deltas, settings: &Settings) -> Vec<(Writer<'_>, Delta)> {
    let with = |(v4, delta)| (Writer { v4, settings }, delta);
    deltas.into_iter().map(with).collect()
}

/// Names what is newly left out of an object.
fn warn(kind: &str, key: &Key, old: Option<Flaws>, new: Option<Flaws>) {
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    if new.more > old.more {
        tracing::warn!(kind, object = %key, more = new.more, "left out, besides what is named");
    }
    for left in new.first.iter().filter(|left| !old.first.contains(left)) {
        tracing::warn!(kind, object = %key, field = left.field, value = left.value, reason = left.reason, "left out");
    }
}

#[cfg(test)]
mod tests;
