//! The cluster as far as policies go, and what this node's kernel must hold because of it. Pure: values in, a [`Change`] out.
//!
//! Only what traffic of this node's pods depends on is kept as sets: one set for each different group of peers, one chain
//! for each different set of rules a local pod has. A change of a pod elsewhere is a look at each set; a change of a policy
//! is a look at the local pods it is about.

mod chains;
mod concern;
mod maker;
mod sets;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use client::Key;

use crate::change::{Allow, Chain, ChainId, Change, Dispatch};
use crate::facts::{Facts, NamedPort, PodId};
use crate::selector::{Labels, Selector};
use crate::spec::{Direction, Policy, Rule};
use chains::Chains;
use concern::Concerning;
use maker::Maker;
pub(crate) use sets::MOST_MEMBERS;
use sets::{SetKey, Sets};

/// A pod by what two sources say of it.
#[derive(Default)]
struct Entry {
    /// The API server.
    api: Option<Facts>,
    /// This node, which knows addresses first.
    node: Option<Facts>,
    /// Addresses this node has told another pod of since.
    lost: Vec<IpAddr>,
    /// Both together, without what it lost.
    facts: Facts,
}

impl Entry {
    /// The addresses are the node's where it told any, all else is the API server's where it told.
    fn merged(&self) -> Option<Facts> {
        let mut facts = match (&self.api, &self.node) {
            (None, None) => return None,
            (Some(api), None) => api.clone(),
            (None, Some(node)) => node.clone(),
            (Some(api), Some(node)) => {
                let mut facts = api.clone();
                facts.is_local = true;
                if !node.addresses.is_empty() {
                    facts.addresses = node.addresses.clone();
                }
                facts
            }
        };
        facts.addresses.retain(|addr| !self.lost.contains(addr));
        Some(facts)
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
    /// Local pods that policies concern.
    local: BTreeSet<PodId>,
    /// Their chains, as far as they have any.
    slots: BTreeMap<PodId, Slots>,
    /// Local pods that have an address. More than one only while one ends and another begins.
    owners: BTreeMap<IpAddr, BTreeSet<PodId>>,
    dispatch: BTreeMap<(Direction, IpAddr), ChainId>,
    /// Of what the kernel has not heard of: what it has.
    pending: BTreeMap<(Direction, IpAddr), Option<ChainId>>,
    /// By namespace, whom policies that changed are or were about.
    unsettled_policies: BTreeMap<String, Vec<Selector>>,
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
            local: BTreeSet::new(),
            slots: BTreeMap::new(),
            owners: BTreeMap::new(),
            dispatch: BTreeMap::new(),
            pending: BTreeMap::new(),
            unsettled_policies: BTreeMap::new(),
            unsettled_pods: BTreeSet::new(),
            unsettled_addresses: BTreeSet::new(),
        }
    }
}

/// Up to so many selectors of changed policies in a namespace, pods are asked whether they are concerned.
const ASKED_POLICIES: usize = 32;

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
        let changed = self.unsettled_policies.entry(key.namespace.clone()).or_default();
        // Of many it is not asked whom they are about: of all, then.
        if changed.len() < ASKED_POLICIES {
            changed.extend(
                [old, policy.clone()]
                    .into_iter()
                    .flatten()
                    .filter_map(|policy| policy.pods),
            );
        }
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

    /// What this node says of one of its pods. Its addresses are taken from local pods that had them.
    pub fn set_local_pod(&mut self, id: PodId, facts: Option<Facts>) {
        let addresses = facts.iter().flat_map(|facts| &facts.addresses).copied();
        for addr in addresses.collect::<Vec<_>>() {
            let others = self.owners.get(&addr).cloned().unwrap_or_default();
            for other in others.into_iter().filter(|other| *other != id) {
                self.set_entry(other, |entry| entry.lost.push(addr));
            }
        }
        self.set_entry(id, |entry| {
            let told = facts.as_ref().map_or(&[][..], |facts| &facts.addresses);
            entry.lost.retain(|addr| !told.contains(addr));
            entry.node = facts;
        });
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
        match new {
            Some(_) => self.local.insert(id.clone()),
            None => self.local.remove(id),
        };
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

    /// Policies with a rule whose peers have more addresses than there is room for (it allows none of them), each once.
    pub fn take_overfull(&mut self) -> Vec<Key> {
        let over = self.sets.take_over();
        let is_over = |policy: &Policy| {
            let mut rules = policy.ingress.iter().chain(&policy.egress).flatten();
            rules.any(|rule| over.iter().any(|key| key.is_of(rule)))
        };
        let policies = self.policies.iter().filter(|(_, policy)| is_over(policy));
        policies.map(|(key, _)| key.clone()).collect()
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
        self.find_concerned();
        let (mut made, mut released) = (Made::new(), Vec::new());
        let policies = std::mem::take(&mut self.policies);
        let mut concerning = Concerning::new(&policies);
        for id in std::mem::take(&mut self.unsettled_pods) {
            let old = match self.chains_for(&id, &mut concerning, &mut made) {
                Some(slots) => self.slots.insert(id.clone(), slots),
                None => self.slots.remove(&id),
            };
            released.extend(old.into_iter().flatten().flatten().flatten());
            let addresses = self.pods.get(&id).map(|entry| entry.facts.addresses.clone());
            self.unsettled_addresses.extend(addresses.into_iter().flatten());
        }
        self.policies = policies;
        // Last: what old and new share stays.
        for chain in released {
            for set in self.chains.release(chain) {
                self.sets.release(set);
            }
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

    /// The local pods that changed policies are, or were, about.
    fn find_concerned(&mut self) {
        for (namespace, selectors) in std::mem::take(&mut self.unsettled_policies) {
            let local = self.local.range(first_of(&namespace)..);
            let local = local.take_while(|id| id.key.namespace == namespace);
            let is_concerned = |id: &&PodId| {
                let labels = self.pods.get(*id).map_or(&NO_LABELS, |entry| &entry.facts.labels);
                selectors.len() >= ASKED_POLICIES || selectors.iter().any(|pods| pods.selects(labels))
            };
            self.unsettled_pods.extend(local.filter(is_concerned).cloned());
        }
    }

    /// Whose an address is: the pod this node told of it (only one has it, the one told last), else the last in order.
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
    fn chains_for(&mut self, id: &PodId, concerning: &mut Concerning<'_>, made: &mut Made) -> Option<Slots> {
        let facts = &self.pods.get(id).filter(|_| self.local.contains(id))?.facts;
        let policies = concerning.of(&id.key.namespace, &facts.labels);
        let mut slots = Slots::default();
        for direction in Direction::ALL {
            let isolating: Vec<&Policy> = policies
                .iter()
                .copied()
                .filter(|policy| policy.rules(direction).is_some())
                .collect();
            for (family, v4) in [true, false].into_iter().enumerate() {
                if isolating.is_empty() || !facts.addresses.iter().any(|addr| addr.is_ipv4() == v4) {
                    continue;
                }
                let alike = Alike {
                    direction,
                    v4,
                    policies: isolating
                        .iter()
                        .map(|policy| std::ptr::from_ref(*policy) as usize)
                        .collect(),
                    ports: facts.ports.clone(),
                };
                if let Some(chain) = made.get(&alike).copied() {
                    self.chains.use_again(chain);
                    slots[direction as usize][family] = Some(chain);
                    continue;
                }
                let rules: Vec<&Rule> = isolating
                    .iter()
                    .filter_map(|policy| policy.rules(direction))
                    .flatten()
                    .collect();
                let mut maker = Maker {
                    sets: &mut self.sets,
                    pods: &self.pods,
                    namespaces: &self.namespaces,
                    direction,
                    v4,
                };
                let allows = maker.allows(&rules, facts);
                let held: Vec<_> = allows.iter().flat_map(Allow::sets).collect();
                let (chain, is_new) = self.chains.use_or_make(Chain { direction, v4, allows });
                if !is_new {
                    // The chain uses them already.
                    held.into_iter().for_each(|set| self.sets.release(set));
                }
                made.insert(alike, chain);
                slots[direction as usize][family] = Some(chain);
            }
        }
        Some(slots)
    }
}

/// What pods have in common that get the same chain: found again without making its rules once more.
#[derive(PartialEq, Eq, Hash)]
struct Alike {
    direction: Direction,
    v4: bool,
    /// The policies that isolate them, by where they are kept; while this is used, none of them moves.
    policies: Vec<usize>,
    /// What the names of their ports mean.
    ports: Vec<NamedPort>,
}

/// Chains made in one go. Each is in use until it ends.
type Made = HashMap<Alike, ChainId>;

fn first_of(namespace: &str) -> PodId {
    PodId {
        key: Key::new(namespace, ""),
        uid: String::new(),
    }
}

fn pods_of<'a>(
    pods: &'a BTreeMap<PodId, Entry>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a PodId, &'a Entry)> + use<'a> {
    pods.range(first_of(namespace)..)
        .take_while(move |(id, _)| id.key.namespace == namespace)
}

#[cfg(test)]
mod tests;
