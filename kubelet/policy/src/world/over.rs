//! Which policies there is no room for: asked of what was cut, since that was asked last. Pure.

use std::collections::{BTreeMap, BTreeSet};

use client::Key;

use super::sets::SetKey;
use super::shares::{Overfull, Shortage};
use super::{World, concern, maker};
use crate::range::split_ports;
use crate::spec::{Peers, Policy, PortChoice, Rule};

/// Up to so many sets that were cut in a namespace, its rules are asked which of them look into one. Of more it is told of every
/// policy that may be meant: to compare each rule with each set would take as long as its authors like.
const ASKED_SETS: usize = 64;

impl World {
    /// Policies there is no room for in what their namespace has of this node, and of what there is too little; each once.
    pub fn take_overfull(&mut self) -> BTreeSet<Overfull> {
        let (sets, pods) = (self.sets.take_over(), std::mem::take(&mut self.untold_cut));
        let limits = self.limits;
        let overfull = |key: &Key, shortage| Overfull {
            policy: key.clone(),
            shortage,
            limit: limits.of(shortage),
        };
        let mut groups: BTreeMap<(&str, Shortage), Vec<&SetKey>> = BTreeMap::new();
        for over in &sets {
            for namespace in &over.namespaces {
                groups.entry((namespace, over.shortage)).or_default().push(&over.key);
            }
        }
        let mut found = BTreeSet::new();
        for ((namespace, shortage), cut) in groups {
            let is_cut = |rule: &Rule| match cut.len() > ASKED_SETS {
                true => may_lack(rule, shortage),
                false => looks_into(rule, &cut),
            };
            let is_over = |policy: &Policy| policy.ingress.iter().chain(&policy.egress).flatten().any(is_cut);
            let policies = concern::all_of(&self.policies, namespace).filter(|(_, policy)| is_over(policy));
            found.extend(policies.map(|(key, _)| overfull(key, shortage)));
        }
        for (id, direction) in pods {
            let Some(entry) = self.pods.get(&id) else { continue };
            let is_about = |policy: &Policy| policy.rules(direction).is_some() && policy.concerns(&entry.facts.labels);
            let policies = concern::all_of(&self.policies, &id.key.namespace).filter(|(_, policy)| is_about(policy));
            found.extend(policies.map(|(key, _)| overfull(key, Shortage::Rules)));
        }
        found
    }
}

/// Whether a rule looks into one of these.
fn looks_into(rule: &Rule, cut: &[&SetKey]) -> bool {
    let has_ports = cut.iter().any(|key| matches!(key, SetKey::Ports(_)));
    let ports = rule.ports.as_deref().filter(|_| has_ports).map(split_ports);
    cut.iter().any(|key| key.is_of(rule, ports.as_ref()))
}

/// Whether a rule has what there is too little of.
fn may_lack(rule: &Rule, shortage: Shortage) -> bool {
    let of_peers = |has: fn(&Peers) -> bool| rule.peers.as_ref().is_some_and(has);
    let ports = || rule.ports.iter().flatten();
    match shortage {
        Shortage::Members | Shortage::Questions => {
            of_peers(|peers| !peers.selections.is_empty())
                || ports().any(|port| matches!(port.choice, PortChoice::Named(_)))
        }
        Shortage::Ranges => of_peers(|peers| maker::has_block_set(&peers.blocks)) || ports().next().is_some(),
        Shortage::Rules => true,
    }
}
