//! Which Service has which port of which address of a node. Pure.
//!
//! A Service has an address whole or not at all: proxies lead every port of a Service at every address it shows. Who shows a port of
//! an address has it, until its status says otherwise; what nobody has goes to the oldest Service that finds all its ports free.

mod holdings;

use client::Key;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use holdings::Holdings;

/// A port's number and protocol.
pub type Port = (i32, String);

/// What one Service has of the nodes' addresses, and wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The Service.
    pub key: Key,
    /// When it was made: the older goes first where neither has anything.
    pub created: Option<Timestamp>,
    /// The ports it serves.
    pub ports: BTreeSet<Port>,
    /// Addresses it is to be served at; none for one that is balanced no longer.
    pub wants: BTreeSet<IpAddr>,
    /// Addresses its status shows, each with the ports it shows there.
    pub has: BTreeMap<IpAddr, BTreeSet<Port>>,
}

/// A port of an address that another Service has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clash {
    /// The port.
    pub port: Port,
    /// Who has it.
    pub holder: Key,
}

/// Which Services have a say in which port, who has what, and whose claim is to be looked at again.
#[derive(Default)]
pub struct Rivals {
    ports: BTreeMap<Key, BTreeSet<Port>>,
    keys: BTreeMap<Port, BTreeSet<Key>>,
    holdings: Holdings,
    stale: BTreeSet<Key>,
}

impl Rivals {
    /// Notes which ports a Service has or wants; `None` is one that has no say any more.
    pub fn note(&mut self, key: &Key, ports: Option<BTreeSet<Port>>) {
        self.forget(key);
        for port in self.ports.remove(key).into_iter().flatten() {
            if let Some(keys) = self.keys.get_mut(&port) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&port);
                }
            }
        }
        let Some(ports) = ports else { return };
        for port in &ports {
            self.keys.entry(port.clone()).or_default().insert(key.clone());
        }
        self.ports.insert(key.clone(), ports);
    }

    /// What is known of this Service's claim may not be so any more.
    pub fn forget(&mut self, key: &Key) {
        self.stale.insert(key.clone());
    }

    /// Nor what is known of any.
    pub fn forget_all(&mut self) {
        let known = self.holdings.keys().chain(self.ports.keys());
        self.stale.extend(known.cloned());
    }

    /// The Services whose claims are to be looked at, and entered, before anybody is planned.
    pub fn take_stale(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.stale)
    }

    /// Enters what a Service has and wants now.
    pub fn enter(&mut self, key: &Key, claim: Option<Claim>) {
        self.holdings.set(key, claim);
    }

    /// See [`Holdings::clashes`].
    pub fn clashes(&self, key: &Key) -> BTreeMap<IpAddr, Vec<Clash>> {
        self.holdings.clashes(key)
    }

    /// Every Service with a say.
    pub fn all(&self) -> Vec<Key> {
        self.ports.keys().cloned().collect()
    }

    /// The Service itself and all whose claims bear on its own: those that share a port with it, or with one of those.
    pub fn of(&self, key: &Key) -> BTreeSet<Key> {
        let mut found = BTreeSet::from([key.clone()]);
        let mut next = vec![key];
        // Each port is looked at once, however many Services share it.
        let mut seen: BTreeSet<&Port> = BTreeSet::new();
        while let Some(key) = next.pop() {
            for port in self.ports.get(key).into_iter().flatten() {
                if !seen.insert(port) {
                    continue;
                }
                let others = self.keys.get(port).into_iter().flatten();
                next.extend(others.filter(|other| found.insert((*other).clone())));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
