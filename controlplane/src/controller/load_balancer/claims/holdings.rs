//! Who has each port of each address, brought up to date claim by claim. Pure.
//!
//! Addresses do not bear on each other, nor do ports at an address that nobody claims together. So one claim costs its own ports, but where
//! it takes something from others, or gives something back: then those are judged anew that it bears on, there and by way of others.

use super::{Claim, Clash, Port};
use client::Key;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// In this order Services get what nobody has.
type Turn = (Option<Timestamp>, Key);

/// One address.
#[derive(Debug, Default)]
struct At {
    /// Who shows or wants each port there, in order.
    claimants: BTreeMap<Port, BTreeSet<Turn>>,
    taken: BTreeMap<Port, Key>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Holdings {
    claims: BTreeMap<Key, Claim>,
    at: BTreeMap<IpAddr, At>,
    /// How many claims were judged anew because of others.
    #[cfg(test)]
    pub(super) judged: usize,
}

fn turn(claim: &Claim) -> Turn {
    (claim.created, claim.key.clone())
}

impl Claim {
    fn shows(&self, address: &IpAddr) -> impl Iterator<Item = &Port> {
        self.has.get(address).into_iter().flatten()
    }

    /// Every port it has a say in at an address.
    fn ports_at(&self, address: &IpAddr) -> BTreeSet<Port> {
        let wanted = self.wants.contains(address).then_some(&self.ports);
        self.shows(address)
            .chain(wanted.into_iter().flatten())
            .cloned()
            .collect()
    }
}

impl Holdings {
    /// What a Service has and wants now; `None` is one that has no say any more.
    pub fn set(&mut self, key: &Key, new: Option<Claim>) {
        let old = self.claims.get(key).cloned();
        if old == new {
            return;
        }
        match &new {
            Some(new) => drop(self.claims.insert(key.clone(), new.clone())),
            None => drop(self.claims.remove(key)),
        }
        let sides = [old.as_ref(), new.as_ref()];
        let addresses = |claim: &Claim| -> Vec<IpAddr> { claim.has.keys().chain(&claim.wants).copied().collect() };
        let addresses: BTreeSet<IpAddr> = sides.into_iter().flatten().flat_map(addresses).collect();
        for address in addresses {
            self.set_at(address, key, sides);
        }
    }

    fn set_at(&mut self, address: IpAddr, key: &Key, [old, new]: [Option<&Claim>; 2]) {
        let at = self.at.entry(address).or_default();
        let mut bears_on = BTreeSet::new();
        for (claim, is_new) in [(old, false), (new, true)] {
            let Some(claim) = claim else { continue };
            for port in claim.ports_at(&address) {
                at.note(&port, turn(claim), is_new);
                bears_on.insert(port);
            }
        }
        let has_taken = bears_on.iter().filter(|port| at.taken.get(*port) == Some(key));
        let has_taken: BTreeSet<Port> = has_taken.cloned().collect();
        // One that was made anew by its name has another turn.
        let moves = matches!((old, new), (Some(old), Some(new)) if old.created != new.created);
        let judged = match moves {
            true => Judged::Bears,
            false => at.judge(&address, new, &has_taken, &self.claims),
        };
        match judged {
            Judged::Same => {}
            Judged::Takes(ports) => at.taken.extend(ports.into_iter().map(|port| (port, key.clone()))),
            Judged::Bears => {
                let judged = at.settle(&address, bears_on, &self.claims);
                #[cfg(test)]
                {
                    self.judged += judged;
                }
                #[cfg(not(test))]
                let _ = judged;
            }
        }
        if at.claimants.is_empty() {
            self.at.remove(&address);
        }
    }

    /// What keeps the Service `key` from addresses it wants: every port that somebody else has, by address.
    pub fn clashes(&self, key: &Key) -> BTreeMap<IpAddr, Vec<Clash>> {
        let Some(own) = self.claims.get(key) else {
            return BTreeMap::new();
        };
        let of_address = |address: &IpAddr| {
            let taken = &self.at.get(address)?.taken;
            let others = own.ports.iter().filter_map(|port| {
                let holder = taken.get(port).filter(|holder| *holder != key)?;
                Some(Clash {
                    port: port.clone(),
                    holder: holder.clone(),
                })
            });
            let others: Vec<Clash> = others.collect();
            (!others.is_empty()).then_some((*address, others))
        };
        own.wants.iter().filter_map(of_address).collect()
    }

    /// Every Service with a claim.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.keys()
    }
}

/// What a claim that is new, other or gone means at an address.
enum Judged {
    /// Everybody has what they had.
    Same,
    /// It takes these ports, which nobody has.
    Takes(BTreeSet<Port>),
    /// Others may lose or win.
    Bears,
}

impl At {
    fn note(&mut self, port: &Port, turn: Turn, is_there: bool) {
        let turns = self.claimants.entry(port.clone()).or_default();
        match is_there {
            true => drop(turns.insert(turn)),
            false => drop(turns.remove(&turn)),
        }
        if turns.is_empty() {
            self.claimants.remove(port);
        }
    }

    /// `has_taken` are the ports the Service has by its claim before.
    fn judge(
        &self,
        address: &IpAddr,
        new: Option<&Claim>,
        has_taken: &BTreeSet<Port>,
        claims: &BTreeMap<Key, Claim>,
    ) -> Judged {
        let Some(new) = new else {
            return if has_taken.is_empty() {
                Judged::Same
            } else {
                Judged::Bears
            };
        };
        let wants = new.wants.contains(address).then_some(&new.ports);
        let shows: BTreeSet<&Port> = new.shows(address).collect();
        if !has_taken.is_empty() || !shows.is_empty() {
            // It shows what it was given, or goes on with what it has.
            let is_same = shows.iter().copied().eq(has_taken.iter());
            return match is_same && wants.is_none_or(|ports| ports.is_subset(has_taken)) {
                true => Judged::Same,
                false => Judged::Bears,
            };
        }
        let Some(ports) = wants else {
            return Judged::Same;
        };
        let own_turn = turn(new);
        let mut is_free = true;
        for (port, holder) in ports.iter().filter_map(|port| Some((port, self.taken.get(port)?))) {
            is_free = false;
            let Some(claim) = claims.get(holder) else { continue };
            // Who shows it, or comes first, keeps it: an address is had whole, or not at all.
            if turn(claim) < own_turn || claim.shows(address).any(|shown| shown == port) {
                return Judged::Same;
            }
        }
        match is_free {
            true => Judged::Takes(ports.clone()),
            false => Judged::Bears,
        }
    }

    /// Judges anew all that claim these ports, and what they claim with them; how many there are.
    fn settle(&mut self, address: &IpAddr, ports: BTreeSet<Port>, claims: &BTreeMap<Key, Claim>) -> usize {
        let mut turns: BTreeSet<&Turn> = BTreeSet::new();
        let mut next: Vec<Port> = ports.iter().cloned().collect();
        let mut seen = ports;
        while let Some(port) = next.pop() {
            self.taken.remove(&port);
            for turn in self.claimants.get(&port).into_iter().flatten() {
                if !turns.insert(turn) {
                    continue;
                }
                let all = claims.get(&turn.1).map(|claim| claim.ports_at(address));
                next.extend(all.into_iter().flatten().filter(|port| seen.insert(port.clone())));
            }
        }
        let in_turn = || turns.iter().filter_map(|turn| claims.get(&turn.1));
        for claim in in_turn() {
            for port in claim.shows(address) {
                let holder = self.taken.entry(port.clone());
                holder.or_insert_with(|| claim.key.clone());
            }
        }
        for claim in in_turn().filter(|claim| claim.wants.contains(address)) {
            let is_free = |port: &Port| self.taken.get(port).is_none_or(|holder| *holder == claim.key);
            if claim.ports.iter().all(is_free) {
                let own = claim.ports.iter().map(|port| (port.clone(), claim.key.clone()));
                self.taken.extend(own);
            }
        }
        turns.len()
    }
}
