//! The cluster as far as policies go, and what this node's kernel must hold because of it. Pure: values in, a [`Change`] out.
//!
//! Only what traffic of this node's pods depends on is kept as sets: one set for each different group of peers, one chain
//! for each different set of rules a local pod has. A change of a pod elsewhere is a look at each set; a change of a policy
//! is a look at the local pods it is about.

mod chains;
mod sets;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use client::Key;

use crate::change::{Allow, Chain, ChainId, Change, Dispatch};
use crate::facts::{Facts, PodId};
use crate::range::{merge_ports, split_ports};
use crate::selector::Labels;
use crate::spec::{Direction, Policy, Rule};
use chains::Chains;
use sets::{SetKey, Sets};

/// A pod by what two sources say of it.
#[derive(Default)]
struct Entry {
    /// The API server.
    api: Option<Facts>,
    /// This node, which knows addresses first.
    node: Option<Facts>,
    /// Both together.
    facts: Facts,
}

impl Entry {
    /// The addresses are the node's where it told any, all else is the API server's where it told.
    fn merged(&self) -> Option<Facts> {
        match (&self.api, &self.node) {
            (None, None) => None,
            (Some(api), None) => Some(api.clone()),
            (None, Some(node)) => Some(node.clone()),
            (Some(api), Some(node)) => {
                let mut facts = api.clone();
                facts.is_local = true;
                if !node.addresses.is_empty() {
                    facts.addresses = node.addresses.clone();
                }
                Some(facts)
            }
        }
    }
}

/// The chains of a local pod: of each direction, IPv4 and IPv6.
type Slots = [[Option<ChainId>; 2]; 2];

/// See the module.
pub struct World {
    namespaces: BTreeMap<String, Labels>,
    pods: BTreeMap<PodId, Entry>,
    policies: BTreeMap<Key, Policy>,
    sets: Sets,
    chains: Chains,
    /// Chains of the local pods.
    slots: BTreeMap<PodId, Slots>,
    /// Local pods that have an address. More than one only while one ends and another begins.
    owners: BTreeMap<IpAddr, BTreeSet<PodId>>,
    dispatch: BTreeMap<(Direction, IpAddr), ChainId>,
    /// Of what the kernel has not heard of: what it has.
    pending: BTreeMap<(Direction, IpAddr), Option<ChainId>>,
    unsettled_pods: BTreeSet<PodId>,
    unsettled_addresses: BTreeSet<IpAddr>,
}

impl Default for World {
    fn default() -> Self {
        let mut sets = Sets::default();
        for v4 in [true, false] {
            sets.use_or_make(SetKey::Known(v4), |_| std::iter::empty());
        }
        Self {
            namespaces: BTreeMap::new(),
            pods: BTreeMap::new(),
            policies: BTreeMap::new(),
            sets,
            chains: Chains::default(),
            slots: BTreeMap::new(),
            owners: BTreeMap::new(),
            dispatch: BTreeMap::new(),
            pending: BTreeMap::new(),
            unsettled_pods: BTreeSet::new(),
            unsettled_addresses: BTreeSet::new(),
        }
    }
}

static NO_LABELS: Labels = Labels::new();

fn is_held(facts: &Facts) -> bool {
    facts.is_local && facts.is_subject
}

impl World {
    /// An empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is any policy.
    pub fn has_policies(&self) -> bool {
        !self.policies.is_empty()
    }

    /// A policy is new, other, or gone.
    pub fn set_policy(&mut self, key: Key, policy: Option<Policy>) {
        let old = self.policies.remove(&key);
        if old == policy {
            if let Some(policy) = old {
                self.policies.insert(key, policy);
            }
            return;
        }
        let concerned = |facts: &Facts| {
            let mut both = [&old, &policy].into_iter().flatten();
            is_held(facts) && both.any(|policy| policy.concerns(&facts.labels))
        };
        let dirty: Vec<PodId> = self
            .pods_of(&key.namespace)
            .filter(|(_, entry)| concerned(&entry.facts))
            .map(|(id, _)| id.clone())
            .collect();
        self.unsettled_pods.extend(dirty);
        if let Some(policy) = policy {
            self.policies.insert(key, policy);
        }
    }

    /// A namespace is new, has other labels, or is gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let new = labels.clone().unwrap_or_default();
        let old = match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        let old = old.unwrap_or_default();
        if old == new {
            return;
        }
        let pods = pods_of(&self.pods, name);
        for (_, entry) in pods {
            let side = |labels| Some((labels, &entry.facts));
            self.sets.follow(name, side(&old), side(&new));
        }
    }

    /// What the API server says of a pod.
    pub fn set_pod(&mut self, id: PodId, facts: Option<Facts>) {
        self.set_entry(id, |entry| entry.api = facts);
    }

    /// What this node says of one of its pods.
    pub fn set_local_pod(&mut self, id: PodId, facts: Option<Facts>) {
        self.set_entry(id, |entry| entry.node = facts);
    }

    fn set_entry(&mut self, id: PodId, write: impl FnOnce(&mut Entry)) {
        let mut entry = self.pods.remove(&id).unwrap_or_default();
        let existed = entry.api.is_some() || entry.node.is_some();
        write(&mut entry);
        let new = entry.merged();
        let old = existed.then(|| std::mem::take(&mut entry.facts));
        if old != new {
            let namespace = id.key.namespace.as_str();
            let labels = self.namespaces.get(namespace).unwrap_or(&NO_LABELS);
            fn side<'a>(labels: &'a Labels, facts: &'a Option<Facts>) -> Option<(&'a Labels, &'a Facts)> {
                facts.as_ref().map(|facts| (labels, facts))
            }
            self.sets.follow(namespace, side(labels, &old), side(labels, &new));
            self.own(&id, old.as_ref(), new.as_ref());
        }
        if let Some(facts) = new {
            entry.facts = facts;
            self.pods.insert(id, entry);
        }
    }

    /// Notes whose the addresses are.
    fn own(&mut self, id: &PodId, old: Option<&Facts>, new: Option<&Facts>) {
        let old = old.filter(|facts| is_held(facts));
        let new = new.filter(|facts| is_held(facts));
        if old.is_none() && new.is_none() {
            return;
        }
        self.unsettled_pods.insert(id.clone());
        for addr in old.iter().flat_map(|facts| &facts.addresses) {
            if let Some(owners) = self.owners.get_mut(addr) {
                owners.remove(id);
                if owners.is_empty() {
                    self.owners.remove(addr);
                }
            }
            self.unsettled_addresses.insert(*addr);
        }
        for addr in new.iter().flat_map(|facts| &facts.addresses) {
            self.owners.entry(*addr).or_default().insert(id.clone());
            self.unsettled_addresses.insert(*addr);
        }
    }

    fn pods_of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a PodId, &'a Entry)> {
        pods_of(&self.pods, namespace)
    }

    /// What the kernel has not heard of. It is taken for told: if it refuses, tell it [`World::whole`].
    pub fn take_change(&mut self) -> Change {
        self.settle();
        let (new_sets, revisions, gone_sets) = self.sets.take_news();
        let (new_chains, gone_chains) = self.chains.take_news();
        let pending = std::mem::take(&mut self.pending);
        let dispatches = pending.into_iter().filter_map(|((direction, addr), old)| {
            let new = self.dispatch.get(&(direction, addr)).copied();
            (old != new).then_some(Dispatch {
                direction,
                addr,
                old,
                new,
            })
        });
        Change {
            new_sets,
            new_chains,
            revisions,
            dispatches: dispatches.collect(),
            gone_chains,
            gone_sets,
        }
    }

    /// Everything, for a kernel that holds nothing of it.
    pub fn whole(&mut self) -> Change {
        self.settle();
        self.pending.clear();
        let dispatches = self.dispatch.iter().map(|((direction, addr), chain)| Dispatch {
            direction: *direction,
            addr: *addr,
            old: None,
            new: Some(*chain),
        });
        Change {
            new_sets: self.sets.whole(),
            new_chains: self.chains.whole(),
            dispatches: dispatches.collect(),
            ..Change::default()
        }
    }

    /// Brings chains and addresses up to what has been told.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.unsettled_pods) {
            let new = self.chains_for(&id);
            let old = match new {
                Some(slots) => self.slots.insert(id.clone(), slots),
                None => self.slots.remove(&id),
            };
            // Released last: what old and new share stays.
            for chain in old.into_iter().flatten().flatten().flatten() {
                for set in self.chains.release(chain) {
                    self.sets.release(set);
                }
            }
            let addresses = self.pods.get(&id).map(|entry| entry.facts.addresses.clone());
            self.unsettled_addresses.extend(addresses.into_iter().flatten());
        }
        for addr in std::mem::take(&mut self.unsettled_addresses) {
            let slots = self.owner(&addr).and_then(|owner| self.slots.get(owner)).copied();
            for direction in Direction::ALL {
                let chain = slots.and_then(|slots| slots[direction as usize][usize::from(!addr.is_ipv4())]);
                self.lead(direction, addr, chain);
            }
            self.sets.know(addr, self.owners.contains_key(&addr));
        }
    }

    /// Whose an address is: the pod this node told it of before others, else the last in order.
    fn owner(&self, addr: &IpAddr) -> Option<&PodId> {
        let is_told = |id: &&PodId| self.pods.get(*id).is_some_and(|entry| entry.node.is_some());
        self.owners.get(addr)?.iter().max_by_key(|id| (is_told(id), *id))
    }

    fn lead(&mut self, direction: Direction, addr: IpAddr, chain: Option<ChainId>) {
        let place = (direction, addr);
        let old = match chain {
            Some(chain) => self.dispatch.insert(place, chain),
            None => self.dispatch.remove(&place),
        };
        if old != chain {
            self.pending.entry(place).or_insert(old);
        }
    }

    /// The chains of a pod, which gain a user each. Absent: it is no local pod policies concern.
    fn chains_for(&mut self, id: &PodId) -> Option<Slots> {
        let entry = self.pods.get(id).filter(|entry| is_held(&entry.facts))?;
        let facts = &entry.facts;
        let first = Key::new(id.key.namespace.clone(), "");
        let policies: Vec<&Policy> = self
            .policies
            .range(first..)
            .take_while(|(key, _)| key.namespace == id.key.namespace)
            .map(|(_, policy)| policy)
            .filter(|policy| policy.concerns(&facts.labels))
            .collect();
        let mut slots = Slots::default();
        for direction in Direction::ALL {
            let of_policies = policies.iter().filter_map(|policy| policy.rules(direction));
            let mut rules: Vec<&Rule> = Vec::new();
            let mut is_isolated = false;
            for of_policy in of_policies {
                is_isolated = true;
                rules.extend(of_policy);
            }
            for (family, v4) in [true, false].into_iter().enumerate() {
                if !is_isolated || !facts.addresses.iter().any(|addr| addr.is_ipv4() == v4) {
                    continue;
                }
                let mut maker = Maker {
                    sets: &mut self.sets,
                    pods: &self.pods,
                    namespaces: &self.namespaces,
                    direction,
                    v4,
                };
                let allows = maker.allows(&rules, facts);
                let held: Vec<_> = allows.iter().flat_map(Allow::sets).collect();
                let chain = Chain { direction, v4, allows };
                let (chain, is_new) = self.chains.use_or_make(chain);
                if !is_new {
                    // The chain uses them already.
                    held.into_iter().for_each(|set| self.sets.release(set));
                }
                slots[direction as usize][family] = Some(chain);
            }
        }
        Some(slots)
    }
}

fn pods_of<'a>(
    pods: &'a BTreeMap<PodId, Entry>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a PodId, &'a Entry)> + use<'a> {
    let first = PodId {
        key: Key::new(namespace, ""),
        uid: String::new(),
    };
    pods.range(first..)
        .take_while(move |(id, _)| id.key.namespace == namespace)
}

/// Makes rules into what the kernel asks.
struct Maker<'a> {
    sets: &'a mut Sets,
    pods: &'a BTreeMap<PodId, Entry>,
    namespaces: &'a BTreeMap<String, Labels>,
    direction: Direction,
    v4: bool,
}

impl Maker<'_> {
    /// What these rules let a pod have, sorted, each once; every set in it has one more user.
    fn allows(&mut self, rules: &[&Rule], facts: &Facts) -> Vec<Allow> {
        if rules.iter().any(|rule| rule.peers.is_none() && rule.ports.is_none()) {
            return vec![Allow::default()];
        }
        let mut allows = Vec::new();
        for rule in rules {
            self.rule(rule, facts, &mut allows);
        }
        allows.sort();
        let mut last = None;
        allows.retain(|allow| {
            let is_first = last != Some(*allow);
            if !is_first {
                allow.sets().for_each(|set| self.sets.release(set));
            }
            last = Some(*allow);
            is_first
        });
        allows
    }

    fn rule(&mut self, rule: &Rule, facts: &Facts, allows: &mut Vec<Allow>) {
        let ports = match &rule.ports {
            None => None,
            Some(ports) => {
                let (mut numbers, names) = split_ports(ports);
                if self.direction == Direction::Ingress {
                    // A name is the destination pod's, which is this one.
                    for (protocol, name) in &names {
                        let own = facts.numbers(*protocol, name);
                        numbers.extend(own.map(|number| (*protocol, number, number)));
                    }
                    numbers = merge_ports(numbers);
                } else if !names.is_empty() {
                    let places = self.set(SetKey::Places(rule.peers.clone(), names, self.v4));
                    allows.push(Allow {
                        places: Some(places),
                        ..Allow::default()
                    });
                }
                if numbers.is_empty() {
                    return;
                }
                Some(numbers)
            }
        };
        for peers in self.peers(rule) {
            let ports = ports.clone().map(|numbers| self.set(SetKey::Ports(numbers)));
            let mut allow = Allow {
                ports,
                ..Allow::default()
            };
            match peers {
                Some(SetKey::Blocks(blocks, v4)) => allow.blocks = Some(self.set(SetKey::Blocks(blocks, v4))),
                Some(pods) => allow.peers = Some(self.set(pods)),
                None => {}
            }
            allows.push(allow);
        }
    }

    /// The sets any of which the other side must be in; one absent one: it need be in none.
    fn peers(&self, rule: &Rule) -> Vec<Option<SetKey>> {
        let Some(peers) = &rule.peers else {
            return vec![None];
        };
        let mut keys = Vec::new();
        if !peers.selections.is_empty() {
            keys.push(Some(SetKey::Pods(peers.selections.clone(), self.v4)));
        }
        if peers.blocks.of_family(self.v4).next().is_some() {
            keys.push(Some(SetKey::Blocks(peers.blocks.clone(), self.v4)));
        }
        keys
    }

    fn set(&mut self, key: SetKey) -> crate::change::SetId {
        let (pods, namespaces) = (self.pods, self.namespaces);
        self.sets.use_or_make(key, |key| {
            let only = key.only_namespace().map(str::to_owned);
            let first = PodId {
                key: Key::new(only.clone().unwrap_or_default(), ""),
                uid: String::new(),
            };
            pods.range(first..)
                .take_while(move |(id, _)| only.as_deref().is_none_or(|only| id.key.namespace == only))
                .map(move |(id, entry)| {
                    let labels = namespaces.get(&id.key.namespace).unwrap_or(&NO_LABELS);
                    (id.key.namespace.as_str(), labels, &entry.facts)
                })
        })
    }
}

#[cfg(test)]
mod tests;
