//! One scheduling cycle: filter, score, choose. Pure.

use super::cluster::{Cluster, NodeInfo};
use super::constraint;
use super::plugin::{
    self, Rejection, image_locality, inter_pod_affinity, node_affinity, node_resources_balanced_allocation,
    node_resources_fit, normalize, taint_toleration,
};
use super::pod::PodInfo;
use client::backoff::Seeded;
use std::collections::{BTreeMap, BTreeSet};

/// Clusters up to this size are searched completely.
const SEARCH_ALL: usize = 100;

/// Why no node will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitError {
    /// Nodes there are.
    pub nodes: usize,
    /// How many nodes gave each reason.
    pub reasons: BTreeMap<String, usize>,
    /// Nodes where removing pods could help.
    pub resolvable: Vec<String>,
    /// Plugins that refused a node.
    pub plugins: BTreeSet<&'static str>,
    /// What keeps the pod from any node because it cannot be evaluated.
    pub unknown: Option<String>,
    /// Whether the pod may not preempt by its own policy.
    pub never_preempts: bool,
}

fn histogram(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    let mut parts: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    parts.sort();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

impl FitError {
    fn reject(&mut self, node: &NodeInfo, rejection: Rejection) {
        for reason in rejection.reasons {
            *self.reasons.entry(reason.into_owned()).or_default() += 1;
        }
        if rejection.resolvable {
            self.resolvable.push(node.name.clone());
        }
        self.plugins.insert(rejection.plugin);
    }

    /// Upstream's message, with what preemption would have to say.
    pub fn message(&self) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".into();
        }
        if let Some(unknown) = &self.unknown {
            return format!(
                "0/{} nodes are available: this scheduler cannot evaluate yet: {unknown}.",
                self.nodes
            );
        }
        let tried = histogram(self.nodes, &self.reasons);
        if self.never_preempts {
            return format!("{tried} preemption: not eligible due to preemptionPolicy=Never.");
        }
        let helpless = self.nodes - self.resolvable.len();
        let mut verdicts = BTreeMap::new();
        if helpless > 0 {
            verdicts.insert("Preemption is not helpful for scheduling".to_owned(), helpless);
        }
        if !self.resolvable.is_empty() {
            verdicts.insert(
                "No preemption victims found for incoming pod".to_owned(),
                self.resolvable.len(),
            );
        }
        format!("{tried} preemption: {}", histogram(self.nodes, &verdicts))
    }
}

/// How many suitable nodes are enough.
fn enough(nodes: usize) -> usize {
    if nodes < SEARCH_ALL {
        return nodes;
    }
    let percent = 50usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(SEARCH_ALL)
}

/// Where searches begin and how ties are broken.
#[derive(Debug)]
pub struct Search {
    start: usize,
    random: Seeded,
}

impl Search {
    /// A search with that seed.
    pub fn new(seed: u64) -> Self {
        Self {
            start: 0,
            random: Seeded::new(seed),
        }
    }

    /// The node the pod should run on.
    ///
    /// # Errors
    /// What every node lacks.
    pub fn schedule(&mut self, cluster: &mut Cluster, pod: &PodInfo) -> Result<String, FitError> {
        cluster.refresh();
        if let Some(unknown) = constraint::obstacle(pod) {
            return Err(FitError {
                nodes: cluster.order().len(),
                unknown: Some(unknown),
                ..FitError::default()
            });
        }
        let fitting = self.fitting(cluster, pod)?;
        let chosen = if fitting.len() == 1 {
            0
        } else {
            self.best(cluster, pod, &fitting)
        };
        Ok(fitting[chosen].name.clone())
    }

    fn fitting<'a>(&mut self, cluster: &'a Cluster, pod: &PodInfo) -> Result<Vec<&'a NodeInfo>, FitError> {
        let order = cluster.order();
        let wanted = enough(order.len());
        let mut error = FitError {
            nodes: order.len(),
            never_preempts: pod.spec().and_then(|s| s.preemption_policy.as_deref()) == Some("Never"),
            ..FitError::default()
        };
        let closed = inter_pod_affinity::closed_to(pod, cluster);
        let mut fitting = Vec::new();
        let mut visited = 0;
        while visited < order.len() && fitting.len() < wanted {
            let node = cluster.at(order[(self.start + visited) % order.len()]);
            visited += 1;
            match plugin::filter(pod, node).and_then(|()| inter_pod_affinity::filter(&closed, node)) {
                Ok(()) => fitting.push(node),
                Err(rejection) => error.reject(node, rejection),
            }
        }
        if !order.is_empty() {
            self.start = (self.start + visited) % order.len();
        }
        if fitting.is_empty() { Err(error) } else { Ok(fitting) }
    }

    fn best(&mut self, cluster: &Cluster, pod: &PodInfo, nodes: &[&NodeInfo]) -> usize {
        let totals = totals(cluster, pod, nodes);
        let best = totals.iter().copied().max().unwrap_or(0);
        let ties: Vec<usize> = (0..totals.len()).filter(|i| totals[*i] == best).collect();
        let pick = self.random.below(ties.len() as u64);
        ties.get(usize::try_from(pick).unwrap_or(0)).copied().unwrap_or(0)
    }
}

/// The weighted sum of all scores, per node.
fn totals(cluster: &Cluster, pod: &PodInfo, nodes: &[&NodeInfo]) -> Vec<i64> {
    let mut totals = vec![0; nodes.len()];
    let mut add = |scores: Vec<i64>, weight: i64| {
        totals
            .iter_mut()
            .zip(scores)
            .for_each(|(total, score)| *total += weight * score);
    };
    let score = |of: &dyn Fn(&NodeInfo) -> i64| nodes.iter().map(|n| of(n)).collect::<Vec<_>>();
    add(
        score(&|n| node_resources_fit::score(pod, n)),
        node_resources_fit::WEIGHT,
    );
    if node_resources_balanced_allocation::scores(pod) {
        let scores = score(&|n| node_resources_balanced_allocation::score(pod, n));
        add(scores, node_resources_balanced_allocation::WEIGHT);
    }
    let mut taints = score(&|n| taint_toleration::score(pod, n));
    normalize(&mut taints, true);
    add(taints, taint_toleration::WEIGHT);
    if node_affinity::scores(pod) {
        let mut scores = score(&|n| node_affinity::score(pod, n));
        normalize(&mut scores, false);
        add(scores, node_affinity::WEIGHT);
    }
    let spread = image_locality::spread(pod, cluster, cluster.order().len());
    if !spread.is_empty() {
        add(
            score(&|n| image_locality::score(pod, n, &spread)),
            image_locality::WEIGHT,
        );
    }
    totals
}

#[cfg(test)]
mod tests;
