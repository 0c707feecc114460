//! Which Service has which port of which address of a node. Pure.
//!
//! A Service has an address whole or not at all: proxies lead every port of a Service at every address it shows. Who shows a port of
//! an address has it, until its status says otherwise; what nobody has goes to the oldest Service that finds all its ports free.

use client::Key;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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

/// What keeps the Service `key` from addresses it wants: every port that somebody else has, by address.
pub fn clashes(key: &Key, claims: &[Claim]) -> BTreeMap<IpAddr, Vec<Clash>> {
    let mut claims: Vec<&Claim> = claims.iter().collect();
    claims.sort_by_key(|claim| (claim.created, &claim.key));
    let own = claims.iter().find(|claim| claim.key == *key);
    let mut found = BTreeMap::new();
    for address in own.into_iter().flat_map(|claim| &claim.wants) {
        let taken = settle(*address, &claims);
        let ports = own.into_iter().flat_map(|claim| &claim.ports);
        let others = ports.filter_map(|port| {
            let holder = *taken.get(port)?;
            (holder != key).then(|| Clash {
                port: port.clone(),
                holder: holder.clone(),
            })
        });
        let others: Vec<Clash> = others.collect();
        if !others.is_empty() {
            found.insert(*address, others);
        }
    }
    found
}

/// Who has each port of one address; `claims` are sorted by age.
fn settle<'a>(address: IpAddr, claims: &[&'a Claim]) -> BTreeMap<&'a Port, &'a Key> {
    let mut taken: BTreeMap<&Port, &Key> = BTreeMap::new();
    for claim in claims {
        for port in claim.has.get(&address).into_iter().flatten() {
            taken.entry(port).or_insert(&claim.key);
        }
    }
    for claim in claims.iter().filter(|claim| claim.wants.contains(&address)) {
        let is_free = |port: &Port| taken.get(port).is_none_or(|holder| **holder == claim.key);
        if claim.ports.iter().all(is_free) {
            taken.extend(claim.ports.iter().map(|port| (port, &claim.key)));
        }
    }
    taken
}

/// Which Services have a say in which port.
#[derive(Default)]
pub struct Rivals {
    ports: BTreeMap<Key, BTreeSet<Port>>,
    keys: BTreeMap<Port, BTreeSet<Key>>,
}

impl Rivals {
    /// Notes which ports a Service has or wants; `None` is one that has no say any more.
    pub fn note(&mut self, key: &Key, ports: Option<BTreeSet<Port>>) {
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

    /// Every Service with a say.
    pub fn all(&self) -> Vec<Key> {
        self.ports.keys().cloned().collect()
    }

    /// The Service itself and all whose claims bear on its own: those that share a port with it, or with one of those.
    pub fn of(&self, key: &Key) -> BTreeSet<Key> {
        let mut found = BTreeSet::from([key.clone()]);
        let mut next = vec![key.clone()];
        while let Some(key) = next.pop() {
            let ports = self.ports.get(&key).into_iter().flatten();
            for other in ports.filter_map(|port| self.keys.get(port)).flatten() {
                if found.insert(other.clone()) {
                    next.push(other.clone());
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
