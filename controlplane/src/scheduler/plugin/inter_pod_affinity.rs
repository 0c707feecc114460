//! InterPodAffinity: pods near or away from other pods, near being the same value of a node's label.
//!
//! Required terms refuse: the pod's own, and the anti-affinity of placed pods that is about it. Preferred terms score, of both
//! sides, and so does required affinity of placed pods to it. Counts are by domain; a cycle begins by counting kinds of pods
//! ([`PodIndex`](crate::scheduler::cluster::PodIndex)), and "what if" adds to them and takes from them.

use super::{Plugin, Rejection, State};
use crate::scheduler::cluster::{BySlot, Cluster, Column, NO_DOMAIN, NodeInfo};
use crate::scheduler::event::Event;
use crate::scheduler::pod::PodInfo;
use crate::scheduler::term::{AffinityTerm, TermUse};
use std::collections::{BTreeMap, BTreeSet};

/// Pods (or their weights) by domain of one label.
#[derive(Debug)]
struct Tally<'c> {
    column: &'c Column,
    domains: Vec<i64>,
    /// Sum over all domains.
    total: i64,
}

impl<'c> Tally<'c> {
    fn new(cluster: &'c Cluster, topology_key: &str) -> Self {
        let column = cluster.topology().column(topology_key);
        Self {
            column,
            domains: vec![0; column.size()],
            total: 0,
        }
    }

    fn add(&mut self, slot: usize, amount: i64) {
        let domain = self.column.at(slot);
        if domain != NO_DOMAIN {
            self.domains[domain] += amount;
            self.total += amount;
        }
    }

    fn add_all(&mut self, nodes: &BySlot, weight: i64) {
        nodes.iter().for_each(|(slot, count)| self.add(slot, weight * count));
    }

    /// The sum of the domain of the node in that slot; `None` where it lacks the label.
    fn at(&self, slot: usize) -> Option<i64> {
        let domain = self.column.at(slot);
        (domain != NO_DOMAIN).then(|| self.domains[domain])
    }
}

/// The tally of that label, made at its first use.
fn of<'t, 'c>(tallies: &'t mut BTreeMap<String, Tally<'c>>, cluster: &'c Cluster, key: &str) -> &'t mut Tally<'c> {
    if !tallies.contains_key(key) {
        tallies.insert(key.to_owned(), Tally::new(cluster, key));
    }
    tallies.get_mut(key).expect("it was put there")
}

/// The kinds of placed pods that all of these terms are about, each with where they are.
fn about<'c>(cluster: &'c Cluster, terms: &[&'c AffinityTerm]) -> impl Iterator<Item = &'c BySlot> {
    let meant = move |namespace: &&str| {
        let labels = cluster.namespace_labels(namespace);
        terms.iter().all(|term| term.is_about_namespace(namespace, labels))
    };
    let namespaces: Vec<&'c str> = cluster.index().namespaces().filter(meant).collect();
    let terms = terms.to_vec();
    let kin = namespaces
        .into_iter()
        .flat_map(|namespace| cluster.index().kin(namespace));
    kin.filter(move |(kin, _)| terms.iter().all(|term| term.is_about_labels(&kin.labels)))
        .map(|(_, nodes)| nodes)
}

/// What a cycle knows of required terms.
#[derive(Debug)]
pub struct Filtering<'c> {
    cluster: &'c Cluster,
    pod: &'c PodInfo,
    /// By label: placed pods whose anti-affinity is about the pod.
    repelled: BTreeMap<String, Tally<'c>>,
    /// For each label that required terms of the pod name: placed pods that all of these terms are about.
    attracted: Vec<Tally<'c>>,
    /// For each anti-affinity term of the pod: placed pods it is about.
    avoided: Vec<Tally<'c>>,
}

impl<'c> Filtering<'c> {
    /// Counts; nothing if no required term, of the pod or about it, is there.
    pub fn begin(cluster: &'c Cluster, pod: &'c PodInfo) -> Option<Self> {
        let own_namespace = cluster.namespace_labels(&pod.key.namespace);
        let mut repelled = BTreeMap::new();
        for (term, nodes) in cluster.index().terms() {
            if term.used == TermUse::Repel && term.is_about(pod, own_namespace) {
                of(&mut repelled, cluster, &term.topology_key).add_all(nodes, 1);
            }
        }
        let terms = &pod.terms;
        if repelled.is_empty() && terms.attract.is_empty() && terms.repel.is_empty() {
            return None;
        }
        let attract: Vec<&AffinityTerm> = terms.attract.iter().map(|term| &**term).collect();
        let keys: BTreeSet<&str> = attract.iter().map(|term| term.topology_key.as_str()).collect();
        let mut attracted: Vec<_> = keys.into_iter().map(|key| Tally::new(cluster, key)).collect();
        if !attract.is_empty() {
            // Kinds of pods are added up first: there may be many of them, and many labels.
            let mut met = vec![0; cluster.slots()];
            for (slot, count) in about(cluster, &attract).flat_map(BySlot::iter) {
                met[slot] += count;
            }
            for (slot, count) in met.into_iter().enumerate().filter(|(_, count)| *count != 0) {
                attracted.iter_mut().for_each(|tally| tally.add(slot, count));
            }
        }
        let avoid = |term: &'c AffinityTerm| {
            let mut tally = Tally::new(cluster, &term.topology_key);
            about(cluster, &[term]).for_each(|nodes| tally.add_all(nodes, 1));
            tally
        };
        Some(Self {
            cluster,
            pod,
            repelled,
            attracted,
            avoided: terms.repel.iter().map(|term| avoid(term)).collect(),
        })
    }

    fn meets_affinity(&self, node: &NodeInfo) -> bool {
        let mut near = true;
        for tally in &self.attracted {
            match tally.at(node.slot) {
                // Every label must be there.
                None => return false,
                Some(pods) => near &= pods > 0,
            }
        }
        // The first of pods that want to be with each other may be anywhere.
        near || (self.attracted.iter().all(|tally| tally.total == 0) && self.wants_itself())
    }

    fn wants_itself(&self) -> bool {
        let labels = self.cluster.namespace_labels(&self.pod.key.namespace);
        let mut terms = self.pod.terms.attract.iter();
        terms.all(|term| term.is_about(self.pod, labels))
    }

    /// Refuses nodes too far from some pods, or too near to others.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        if !self.meets_affinity(node) {
            let reason = "node(s) didn't match pod affinity rules";
            return Err(Rejection::fixed(Plugin::InterPodAffinity, reason));
        }
        let has_some = |tally: &Tally<'_>| tally.at(node.slot).is_some_and(|pods| pods > 0);
        let reason = if self.avoided.iter().any(has_some) {
            "node(s) didn't match pod anti-affinity rules"
        } else if self.repelled.values().any(has_some) {
            "node(s) didn't satisfy existing pods anti-affinity rules"
        } else {
            return Ok(());
        };
        Err(Rejection::resolvable(Plugin::InterPodAffinity, reason))
    }

    /// Counts another pod as if it were on the node (`sign` 1) or not any more (-1).
    pub fn count(&mut self, other: &PodInfo, node: &NodeInfo, sign: i64) {
        let cluster = self.cluster;
        let own_namespace = cluster.namespace_labels(&self.pod.key.namespace);
        for term in other.terms.repel.iter().filter(|t| t.is_about(self.pod, own_namespace)) {
            of(&mut self.repelled, cluster, &term.topology_key).add(node.slot, sign);
        }
        let labels = cluster.namespace_labels(&other.key.namespace);
        let terms = &self.pod.terms;
        if !terms.attract.is_empty() && terms.attract.iter().all(|term| term.is_about(other, labels)) {
            self.attracted.iter_mut().for_each(|tally| tally.add(node.slot, sign));
        }
        for (term, tally) in terms.repel.iter().zip(&mut self.avoided) {
            if term.is_about(other, labels) {
                tally.add(node.slot, sign);
            }
        }
    }
}

/// What a cycle knows of wishes: sums of weights by domain, for each label.
#[derive(Debug)]
pub struct Scoring<'c>(BTreeMap<String, Tally<'c>>);

/// PreScore: counts; nothing if there is no wish, of the pod or about it.
pub fn pre_score<'c>(state: &State<'c>) -> Option<Scoring<'c>> {
    let (cluster, pod, args) = (state.cluster, state.pod, &state.profile.args);
    let mut tallies: BTreeMap<String, Tally<'_>> = BTreeMap::new();
    for term in &pod.terms.prefer {
        if let TermUse::Prefer(weight) = term.used {
            for placed in about(cluster, &[&**term]) {
                of(&mut tallies, cluster, &term.topology_key).add_all(placed, weight);
            }
        }
    }
    if !pod.terms.prefer.is_empty() || !args.ignore_preferred_terms_of_existing_pods {
        let own_namespace = cluster.namespace_labels(&pod.key.namespace);
        for (term, placed) in cluster.index().terms() {
            let weight = match term.used {
                TermUse::Prefer(weight) => weight,
                TermUse::Attract => args.hard_pod_affinity_weight,
                TermUse::Repel => 0,
            };
            if weight != 0 && term.is_about(pod, own_namespace) {
                of(&mut tallies, cluster, &term.topology_key).add_all(placed, weight);
            }
        }
    }
    (!tallies.is_empty()).then_some(Scoring(tallies))
}

impl Scoring<'_> {
    /// Score, normalisation, of the nodes in these slots: sums of weights, stretched to 0 to 100.
    pub fn scores(&self, slots: &[usize]) -> Vec<i64> {
        let sum = |slot: &usize| self.0.values().filter_map(|tally| tally.at(*slot)).sum();
        let mut scores: Vec<i64> = slots.iter().map(sum).collect();
        let least = scores.iter().copied().min().unwrap_or(0);
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in &mut scores {
            *score = match most - least {
                0 => 0,
                span => (100.0 * ((*score - least) as f64 / span as f64)) as i64,
            };
        }
        scores
    }
}

/// Whether the pod may be let in after the event.
pub fn hint(pod: &PodInfo, event: &Event<'_>) -> bool {
    match event {
        // Other labels are other domains; a new node may be one without anybody.
        Event::Node {
            before: Some(before),
            after: Some(after),
        } => **before != after.labels,
        Event::Node { .. } => true,
        // Placed pods' terms may be about the pod's namespace, its own about others by their labels.
        Event::Namespace(name) => {
            let mut own = pod.terms.attract.iter().chain(&pod.terms.repel);
            *name == pod.key.namespace || own.any(|term| term.selects_namespaces())
        }
        Event::Pod { before, after, .. } => {
            let moved = match (before, after) {
                (Some(before), Some(after)) => before.kin != after.kin,
                _ => true,
            };
            let meets = |other: &PodInfo| concern_each_other(pod, other);
            moved && (before.is_some_and(meets) || after.is_some_and(meets))
        }
    }
}

/// Whether a required term of one may be about the other. Namespaces' labels are not asked: what is asked for nothing costs
/// another cycle only.
fn concern_each_other(pod: &PodInfo, other: &PodInfo) -> bool {
    let own = pod.terms.attract.iter().chain(&pod.terms.repel);
    own.map(|term| (term, other))
        .chain(other.terms.repel.iter().map(|term| (term, pod)))
        .any(|(term, about)| term.is_about_labels(&about.kin.labels))
}

#[cfg(test)]
mod tests;
