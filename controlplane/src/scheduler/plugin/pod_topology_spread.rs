//! PodTopologySpread: pods of one kind lie evenly over the domains of a label.
//!
//! Constraints that must hold refuse domains which would have too many more than the emptiest; wishes score. Which nodes count is
//! decided by the pod's own node selector and, if asked, by taints. Pods that are being deleted do not count.

use super::{Plugin, Rejection, State, node_affinity, taint_toleration};
use crate::scheduler::cluster::{Cluster, Column, NO_DOMAIN, NodeInfo};
use crate::scheduler::event::Event;
use crate::scheduler::pod::PodInfo;
use crate::scheduler::profile::{Profile, SpreadDefaults};
use crate::scheduler::spread::SpreadConstraint;
use proto::api::selector::Selector;
use std::borrow::Cow;
use std::collections::BTreeMap;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Labels that constraints of this profile may name though no pod does.
pub fn default_keys(profile: &Profile) -> Vec<&str> {
    match &profile.args.spread {
        SpreadDefaults::System => vec![HOSTNAME, ZONE],
        SpreadDefaults::List(list) => list.iter().map(|(key, ..)| key.as_str()).collect(),
    }
}

/// The pod's constraints of one strength: its own, or the defaults if it has none at all.
fn constraints<'c>(state: &State<'c>, hard: bool) -> Vec<Cow<'c, SpreadConstraint>> {
    let own = &state.pod.spread;
    if !own.is_empty() {
        let wanted = own.iter().filter(|constraint| constraint.hard == hard);
        return wanted.map(Cow::Borrowed).collect();
    }
    let Some(owned) = state.owned else { return Vec::new() };
    let make = |key: &str, skew, hard| Cow::Owned(SpreadConstraint::default_of(key, skew, hard, owned.clone()));
    match &state.profile.args.spread {
        SpreadDefaults::System if hard => Vec::new(),
        SpreadDefaults::System => vec![make(HOSTNAME, 3, false), make(ZONE, 5, false)],
        SpreadDefaults::List(list) => {
            let wanted = list.iter().filter(|(_, _, must)| *must == hard);
            wanted.map(|(key, skew, must)| make(key, *skew, *must)).collect()
        }
    }
}

/// Whether some nodes may not count for the constraint: where all do, none needs to be looked at.
fn is_choosy(constraint: &SpreadConstraint, pod: &PodInfo) -> bool {
    constraint.honors_taints || (constraint.honors_affinity && node_affinity::is_choosy(pod))
}

/// Whether pods on the node count for the constraint.
fn counts_on(constraint: &SpreadConstraint, pod: &PodInfo, node: &NodeInfo) -> bool {
    (!constraint.honors_affinity || node_affinity::allows(pod, node))
        && (!constraint.honors_taints || taint_toleration::allows(pod, node))
}

/// A node that has all labels.
struct Candidate {
    slot: usize,
    has_affinity: bool,
    is_tolerated: bool,
}

impl Candidate {
    /// As [`counts_on`].
    fn counts_for(&self, constraint: &SpreadConstraint) -> bool {
        (!constraint.honors_affinity || self.has_affinity) && (!constraint.honors_taints || self.is_tolerated)
    }
}

/// Pods of the namespace that the selector means, by slot of their node.
fn placed(cluster: &Cluster, namespace: &str, selector: &Selector) -> Vec<i64> {
    let mut by_slot = vec![0; cluster.slots()];
    for (kin, nodes) in cluster.index().kin(namespace) {
        if !kin.terminating && selector.matches(&kin.labels) {
            nodes.iter().for_each(|(slot, count)| by_slot[slot] += count);
        }
    }
    by_slot
}

/// One constraint with what it counts.
#[derive(Debug)]
struct Counted<'c> {
    constraint: Cow<'c, SpreadConstraint>,
    column: &'c Column,
    /// Pods by domain; `None` for domains without a node that counts.
    domains: Vec<Option<i64>>,
    /// How many domains have how many pods.
    levels: BTreeMap<i64, usize>,
    /// 1 if the pod itself will count.
    own: i64,
}

impl Counted<'_> {
    fn change(&mut self, domain: usize, amount: i64) {
        let Some(count) = self.domains[domain].as_mut() else {
            return;
        };
        let before = *count;
        *count += amount;
        *self.levels.entry(*count).or_default() += 1;
        if let Some(domains) = self.levels.get_mut(&before) {
            *domains -= 1;
            if *domains == 0 {
                self.levels.remove(&before);
            }
        }
    }

    /// Pods in the emptiest domain; `None` without any domain.
    fn least(&self) -> Option<i64> {
        let domains: usize = match self.constraint.min_domains {
            0 | 1 => usize::MAX,
            _ => self.levels.values().sum(),
        };
        let (least, _) = self.levels.first_key_value()?;
        Some(if domains < self.constraint.min_domains {
            0
        } else {
            *least
        })
    }
}

/// What a cycle knows of the constraints that must hold.
#[derive(Debug)]
pub struct Filtering<'c> {
    pod: &'c PodInfo,
    counted: Vec<Counted<'c>>,
}

impl<'c> Filtering<'c> {
    /// Counts; nothing if no constraint must hold.
    pub fn begin(state: &State<'c>) -> Option<Self> {
        let (cluster, pod) = (state.cluster, state.pod);
        let constraints = constraints(state, true);
        if constraints.is_empty() {
            return None;
        }
        let columns: Vec<&Column> = constraints
            .iter()
            .map(|constraint| cluster.topology().column(&constraint.topology_key))
            .collect();
        // A node that lacks one of the labels counts for none. Asked once: what one constraint costs does not grow with the others.
        let has_all = |slot: &usize| columns.iter().all(|column| column.at(*slot) != NO_DOMAIN);
        let is_choosy = constraints.iter().any(|constraint| is_choosy(constraint, pod));
        let judged = |slot: usize| Candidate {
            slot,
            has_affinity: !is_choosy || node_affinity::allows(pod, cluster.at(slot)),
            is_tolerated: !is_choosy || taint_toleration::allows(pod, cluster.at(slot)),
        };
        // Who is not there has no label.
        let candidates: Vec<Candidate> = (0..cluster.slots()).filter(has_all).map(judged).collect();
        let count = |(constraint, column): (Cow<'c, SpreadConstraint>, &&'c Column)| {
            let mut domains = vec![None; column.size()];
            if !candidates.is_empty() {
                let placed = placed(cluster, &pod.key.namespace, &constraint.selector);
                for candidate in candidates.iter().filter(|candidate| candidate.counts_for(&constraint)) {
                    *domains[column.at(candidate.slot)].get_or_insert(0) += placed[candidate.slot];
                }
            }
            let mut levels = BTreeMap::new();
            for count in domains.iter().flatten() {
                *levels.entry(*count).or_default() += 1;
            }
            Counted {
                own: i64::from(constraint.selector.matches(&pod.kin.labels)),
                constraint,
                column,
                domains,
                levels,
            }
        };
        let counted = constraints.into_iter().zip(&columns).map(count).collect();
        Some(Self { pod, counted })
    }

    /// Refuses nodes in domains that would have too many, and nodes without the label.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        for counted in &self.counted {
            let domain = counted.column.at(node.slot);
            if domain == NO_DOMAIN {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(Rejection::fixed(Plugin::PodTopologySpread, reason));
            }
            let Some(least) = counted.least() else { continue };
            let there = counted.domains[domain].unwrap_or(0);
            if there + counted.own - least > counted.constraint.max_skew {
                let reason = "node(s) didn't match pod topology spread constraints";
                return Err(Rejection::resolvable(Plugin::PodTopologySpread, reason));
            }
        }
        Ok(())
    }

    /// Counts another pod as if it were on the node (`sign` 1) or not any more (-1).
    pub fn count(&mut self, other: &PodInfo, node: &NodeInfo, sign: i64) {
        let lacks = |counted: &Counted<'_>| counted.column.at(node.slot) == NO_DOMAIN;
        if other.key.namespace != self.pod.key.namespace || other.kin.terminating || self.counted.iter().any(lacks) {
            return;
        }
        for counted in &mut self.counted {
            let constraint = &counted.constraint;
            if constraint.selector.matches(&other.kin.labels) && counts_on(constraint, self.pod, node) {
                counted.change(counted.column.at(node.slot), sign);
            }
        }
    }
}

/// One wish with what scoring needs of it.
struct Wish<'c> {
    constraint: Cow<'c, SpreadConstraint>,
    column: &'c Column,
    /// Pods by domain, or by slot for host names, which are domains of one node.
    counts: Vec<i64>,
    by_slot: bool,
    /// More domains make each pod count more.
    weight: f64,
}

impl<'c> Wish<'c> {
    /// `slots`: of the nodes that take part; `has_all`, by slot: which nodes have all labels that must be there.
    fn count(constraint: Cow<'c, SpreadConstraint>, state: &State<'c>, slots: &[usize], has_all: &[bool]) -> Self {
        let (cluster, pod) = (state.cluster, state.pod);
        let column = cluster.topology().column(&constraint.topology_key);
        let by_slot = constraint.topology_key == HOSTNAME;
        let placed = placed(cluster, &pod.key.namespace, &constraint.selector);
        if by_slot {
            let weight = weight_of(slots.len());
            return Self {
                constraint,
                column,
                counts: placed,
                by_slot,
                weight,
            };
        }
        let mut is_candidate = vec![false; column.size()];
        slots.iter().for_each(|slot| is_candidate[column.at(*slot)] = true);
        // Where labels may lack, lacking it is one domain more, as upstream counts.
        let domains = is_candidate.iter().filter(|candidate| **candidate).count();
        let mut counts = vec![0; column.size()];
        let is_choosy = is_choosy(&constraint, pod);
        // Who is not there has no label, but not only those have none.
        let counts_there = |slot: usize, domain: usize| {
            (domain != NO_DOMAIN || cluster.at(slot).present)
                && (!is_choosy || counts_on(&constraint, pod, cluster.at(slot)))
        };
        for (slot, count) in placed.iter().enumerate().filter(|(_, count)| **count != 0) {
            let domain = column.at(slot);
            if is_candidate[domain] && has_all[slot] && counts_there(slot, domain) {
                counts[domain] += count;
            }
        }
        Self {
            constraint,
            column,
            counts,
            by_slot,
            weight: weight_of(domains),
        }
    }

    /// What the domain of the node in that slot adds; nothing without the label.
    fn score(&self, slot: usize) -> f64 {
        let domain = self.column.at(slot);
        if domain == NO_DOMAIN {
            return 0.0;
        }
        let count = self.counts[if self.by_slot { slot } else { domain }];
        count as f64 * self.weight + (self.constraint.max_skew - 1) as f64
    }
}

fn weight_of(domains: usize) -> f64 {
    ((domains + 2) as f64).ln()
}

/// What a cycle knows of wishes.
pub struct Scoring<'c> {
    wishes: Vec<Wish<'c>>,
    /// By slot, which nodes have all labels that must be there.
    has_all: Vec<bool>,
}

/// PreScore: counts, where the nodes in these slots come into question; nothing without a wish.
pub fn pre_score<'c>(state: &State<'c>, slots: &[usize]) -> Option<Scoring<'c>> {
    let wishes = constraints(state, false);
    if wishes.is_empty() {
        return None;
    }
    // The system's defaults are for clusters without zones, too; everybody else's labels must be there.
    let needs_all = !state.pod.spread.is_empty() || state.profile.args.spread != SpreadDefaults::System;
    let topology = state.cluster.topology();
    let needed = wishes.iter().filter(|_| needs_all);
    let columns: Vec<&Column> = needed.map(|wish| topology.column(&wish.topology_key)).collect();
    let has_label = |slot: usize| columns.iter().all(|column| column.at(slot) != NO_DOMAIN);
    let has_all: Vec<bool> = (0..state.cluster.slots()).map(has_label).collect();
    let counting: Vec<usize> = slots.iter().copied().filter(|slot| has_all[*slot]).collect();
    let wishes = match counting.is_empty() {
        true => Vec::new(),
        false => wishes
            .into_iter()
            .map(|wish| Wish::count(wish, state, &counting, &has_all))
            .collect(),
    };
    Some(Scoring { wishes, has_all })
}

impl Scoring<'_> {
    /// Score, normalisation, of the nodes in these slots: fewer pods in its domains are better, 100 for the best.
    pub fn scores(&self, slots: &[usize]) -> Vec<i64> {
        let raw = |slot: &usize| {
            let sum = || self.wishes.iter().map(|wish| wish.score(*slot)).sum::<f64>();
            self.has_all[*slot].then(|| sum().round() as i64)
        };
        let raw: Vec<Option<i64>> = slots.iter().map(raw).collect();
        let least = raw.iter().flatten().copied().min().unwrap_or(0);
        let most = raw.iter().flatten().copied().max().unwrap_or(0);
        let normal = |score: &Option<i64>| match score {
            None => 0,
            Some(_) if most == 0 => 100,
            Some(score) => 100 * (most + least - score) / most,
        };
        raw.iter().map(normal).collect()
    }
}

/// Whether the pod may be let in after the event.
pub fn hint(pod: &PodInfo, event: &Event<'_>) -> bool {
    match event {
        Event::Node {
            before: Some(before),
            after: Some(after),
        } => **before != after.labels || pod.spread.iter().any(|constraint| constraint.honors_taints),
        Event::Node { .. } => true,
        Event::Namespace(_) => false,
        Event::Pod { before, after, .. } => {
            let moved = match (before, after) {
                (Some(before), Some(after)) => before.kin != after.kin,
                _ => true,
            };
            let same = |other: &PodInfo| other.key.namespace == pod.key.namespace;
            // Of pods with the configuration's constraints nobody here knows whom they count.
            let meant = |other: &PodInfo| {
                let mut hard = pod.spread.iter().filter(|constraint| constraint.hard);
                pod.spread.is_empty() || hard.any(|constraint| constraint.selector.matches(&other.kin.labels))
            };
            let counts = |other: &PodInfo| same(other) && meant(other);
            moved && (before.is_some_and(counts) || after.is_some_and(counts))
        }
    }
}

#[cfg(test)]
mod tests;
