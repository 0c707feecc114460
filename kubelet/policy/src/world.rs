//! The cluster as far as policies go, and what this node's kernel must hold because of it. Pure: values in, a [`Change`] out.
//!
//! Only what traffic of this node's pods depends on is kept as sets: one set for each different group of peers, one chain
//! for each different set of rules a local pod has. A change of a pod elsewhere is a look at each set; a change of a policy
//! is a look at the local pods it is about.

mod chains;
mod concern;
mod maker;
mod over;
mod sets;
mod settle;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::net::IpAddr;

use client::Key;

use crate::change::{ChainId, Change, Dispatch};
use crate::facts::{Facts, PodId};
use crate::selector::{Labels, Selector};
use crate::spec::{Direction, Policy};
use chains::Chains;
use sets::Sets;
use shares::{Cut, LIMITS, Limits};
pub use shares::{Overfull, Shortage};

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

/// All pods, to be asked what they are.
#[derive(Clone, Copy)]
struct Everybody<'a> {
    pods: &'a BTreeMap<PodId, Entry>,
    namespaces: &'a BTreeMap<String, Labels>,
}

impl<'a> Everybody<'a> {
    /// Those of one namespace or of all, with its name and labels.
    fn of(self, only: Option<&str>) -> impl Iterator<Item = (&'a str, &'a Labels, &'a Facts)> + use<'a> {
        let first = first_of(only.unwrap_or_default());
        let only = only.map(str::to_owned);
        self.pods
            .range(first..)
            .take_while(move |(id, _)| only.as_deref().is_none_or(|only| id.key.namespace == only))
            .map(move |(id, entry)| {
                let labels = self.namespaces.get(&id.key.namespace).unwrap_or(&NO_LABELS);
                (id.key.namespace.as_str(), labels, &entry.facts)
            })
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
    most: Limits,
    /// How often what there is at most was halved.
    halved: u32,
    /// What there is at most now.
    limits: Limits,
    /// Local pods that are let have nothing, as there is no room for their rules: what they lack of each direction.
    cut: BTreeMap<PodId, [Vec<Cut>; 2]>,
    /// By what pods' rules are told to be the same; nobody can look for others that seem so.
    likeness: RandomState,
    /// Those of them that are known to be.
    told_cut: BTreeSet<(PodId, Direction)>,
    /// Those nobody has heard of.
    untold_cut: BTreeSet<(PodId, Direction)>,
    /// What namespaces may have of rules, where there is not room for all.
    parts: BTreeMap<String, usize>,
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
        Self {
            namespaces: BTreeMap::new(),
            pods: BTreeMap::new(),
            policies: BTreeMap::new(),
            sets: Sets::default(),
            chains: Chains::default(),
            local: BTreeSet::new(),
            slots: BTreeMap::new(),
            most: LIMITS,
            halved: 0,
            limits: LIMITS,
            cut: BTreeMap::new(),
            likeness: RandomState::new(),
            told_cut: BTreeSet::new(),
            untold_cut: BTreeSet::new(),
            parts: BTreeMap::new(),
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

/// So often is halved what there is at most: what is left then any kernel has room for.
const MOST_HALVED: u32 = 6;

static NO_LABELS: Labels = Labels::new();

fn is_held(facts: &Facts) -> bool {
    facts.is_local && facts.is_subject
}

impl World {
    /// An empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has so much of each at most.
    #[cfg(test)]
    fn limit(&mut self, limits: Limits) {
        self.most = limits;
        self.loosen();
    }

    /// Holds half as much at most: for a kernel that has no room for what there is. Who has most has less then, not all.
    pub fn tighten(&mut self) {
        self.halved = (self.halved + 1).min(MOST_HALVED);
        self.limits = self.most.halved(self.halved);
        self.sets.limit(self.limits);
    }

    /// Holds as much as ever again.
    pub fn loosen(&mut self) {
        (self.limits, self.halved) = (self.most, 0);
        self.sets.limit(self.limits);
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
        let sets = self.sets.take_news();
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
            new_sets: sets.new,
            new_chains,
            revisions: sets.revisions,
            refills: sets.refills,
            dispatches: dispatches.collect(),
            gone_chains,
            gone_sets: sets.gone,
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
}

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
