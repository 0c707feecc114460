//! Placed pods by what rules ask of them: pods alike are counted by node, and so are the rules they hold. Pure.
//!
//! Replicas have the same labels and the same rules, so a rule is compared with each kind of pod once, however many there are.

use super::super::pod::{Kin, PodInfo};
use super::super::term::AffinityTerm;
use super::topology::Needed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many on each node, by slot. Cycles read all of it far more often than a pod changes one of them: so it is a list in order,
/// not a tree.
#[derive(Debug, Default)]
pub struct BySlot(Vec<(usize, i64)>);

impl BySlot {
    fn change(&mut self, slot: usize, sign: i64) {
        match self.0.binary_search_by_key(&slot, |(known, _)| *known) {
            Ok(at) => {
                self.0[at].1 += sign;
                if self.0[at].1 == 0 {
                    self.0.remove(at);
                }
            }
            Err(at) => self.0.insert(at, (slot, sign)),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Slots that have some, in order, with how many.
    pub fn iter(&self) -> impl Iterator<Item = (usize, i64)> {
        self.0.iter().copied()
    }
}

/// The index. Whoever counts a pod on a node says so here, and nobody else does.
#[derive(Debug, Default)]
pub struct PodIndex {
    /// By namespace, then by what the pods are like.
    kin: BTreeMap<String, BTreeMap<Arc<Kin>, BySlot>>,
    /// By the term's identity.
    terms: BTreeMap<Arc<str>, (Arc<AffinityTerm>, BySlot)>,
    /// Labels of nodes that the terms name.
    needed: Needed,
}

impl PodIndex {
    /// Counts the pod on that node (`sign` 1), or no longer (-1).
    pub fn count(&mut self, pod: &PodInfo, slot: usize, sign: i64) {
        let alike = self.kin.entry(pod.key.namespace.clone()).or_default();
        let nodes = alike.entry(Arc::clone(&pod.kin)).or_default();
        nodes.change(slot, sign);
        if nodes.is_empty() {
            alike.remove(&pod.kin);
            if alike.is_empty() {
                self.kin.remove(&pod.key.namespace);
            }
        }
        for term in pod.terms.all() {
            let needed = &mut self.needed;
            let (_, nodes) = self.terms.entry(Arc::clone(&term.identity)).or_insert_with(|| {
                needed.add(&term.topology_key);
                (Arc::clone(term), BySlot::default())
            });
            nodes.change(slot, sign);
            if nodes.is_empty() {
                self.terms.remove(&term.identity);
                needed.remove(&term.topology_key);
            }
        }
    }

    /// Whether both are the same to the index.
    pub fn counts_alike(one: &PodInfo, other: &PodInfo) -> bool {
        let terms = |pod: &PodInfo| pod.terms.all().next().is_some();
        one.key.namespace == other.key.namespace && one.kin == other.kin && !terms(one) && !terms(other)
    }

    /// What a pod is like, if pods like it are counted already: it is held once for all of them.
    pub fn alike(&self, pod: &PodInfo) -> Option<Arc<Kin>> {
        let alike = self.kin.get(&pod.key.namespace)?;
        alike.get_key_value(&pod.kin).map(|(kin, _)| Arc::clone(kin))
    }

    /// Labels of nodes that rules of placed pods name.
    pub fn needed(&self) -> &Needed {
        &self.needed
    }

    /// Namespaces that have placed pods.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.kin.keys().map(String::as_str)
    }

    /// The kinds of pods of a namespace, each with how many are on which node.
    pub fn kin(&self, namespace: &str) -> impl Iterator<Item = (&Kin, &BySlot)> {
        let alike = self.kin.get(namespace).into_iter().flatten();
        alike.map(|(kin, nodes)| (&**kin, nodes))
    }

    /// Rules that placed pods hold, each with how many hold it on which node.
    pub fn terms(&self) -> impl Iterator<Item = (&AffinityTerm, &BySlot)> {
        self.terms.values().map(|(term, nodes)| (&**term, nodes))
    }
}
