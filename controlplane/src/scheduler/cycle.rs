//! One scheduling cycle: filter, score, choose, and where nothing fits, whom to evict. Pure.

use super::cluster::{Cluster, NodeInfo};
use super::constraint;
use super::plugin::default_preemption::{self, Budget, Outcome, Preemption};
use super::plugin::{Plugin, PluginSet, PreFilterRejection, Rejection, State, pod_topology_spread};
use super::pod::PodInfo;
use super::profile::Profile;
use client::backoff::Seeded;
use proto::api::selector::Selector;
use std::collections::BTreeMap;

/// Clusters up to this size are searched completely.
const SEARCH_ALL: usize = 100;

/// A step of a cycle, for who takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lap {
    /// Plugins are asked from now on.
    Begin,
    /// All have been asked at a point: its name, and upstream's of what they said.
    End(&'static str, &'static str),
}

/// What a cycle is about.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// The pod.
    pub pod: &'r PodInfo,
    /// The profile it asks for.
    pub profile: &'r Profile,
    /// Pods of the same owners, for pods without spread constraints of their own.
    pub owned: Option<&'r Selector>,
    /// The disruption budgets there are; asked only if pods might be evicted.
    pub budgets: &'r dyn Fn() -> Vec<Budget>,
    /// Told of each step.
    pub lap: &'r dyn Fn(Lap),
}

/// Why no node will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitError {
    /// Nodes there are.
    pub nodes: usize,
    /// What keeps the pod from every node.
    pub pre_filter: Option<PreFilterRejection>,
    /// Why the nodes that were looked at will not do, by slot.
    pub rejections: Vec<(usize, Rejection)>,
    /// The plugin that left out the other nodes.
    pub left_out_by: Option<Plugin>,
    /// What keeps the pod from any node because it cannot be evaluated.
    pub unknown: Option<String>,
    /// What preemption says.
    pub post_filter: Option<String>,
    /// What extenders said of preemption, where they left nobody to evict.
    pub stopped_by_extenders: Option<String>,
    /// Why extenders refused nodes that would do otherwise, one text for each node.
    pub by_extenders: Vec<String>,
}

/// `0/3 nodes are available: 1 this, 2 that.`
pub fn histogram(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    let mut parts: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    parts.sort();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

impl FitError {
    /// Plugins that refused.
    pub fn plugins(&self) -> PluginSet {
        let each = self.rejections.iter().map(|(_, rejection)| rejection.plugin);
        let early = self.pre_filter.map(|rejection| rejection.plugin);
        let all = each.chain(early).chain(self.left_out_by);
        all.fold(PluginSet::default(), PluginSet::with)
    }

    /// Upstream's message, with what preemption has to say.
    pub fn message(&self) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".into();
        }
        let nodes = self.nodes;
        if let Some(unknown) = &self.unknown {
            return format!("0/{nodes} nodes are available: this scheduler cannot evaluate yet: {unknown}.");
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for reason in self.rejections.iter().flat_map(|(_, rejection)| &rejection.reasons) {
            match reasons.get_mut(reason.as_ref()) {
                Some(count) => *count += 1,
                None => drop(reasons.insert(reason.clone().into_owned(), 1)),
            }
        }
        for reason in &self.by_extenders {
            *reasons.entry(reason.clone()).or_default() += 1;
        }
        let judged = self.rejections.len() + self.by_extenders.len();
        if let Some(plugin) = self.left_out_by.filter(|_| nodes > judged) {
            let reason = format!("node(s) didn't satisfy plugin(s) [{}]", plugin.name());
            reasons.insert(reason, nodes - judged);
        }
        let tried = match self.pre_filter {
            Some(rejection) => format!("0/{nodes} nodes are available: {}.", rejection.reason),
            None => histogram(nodes, &reasons),
        };
        match self.post_filter.as_ref().or(self.stopped_by_extenders.as_ref()) {
            Some(said) => format!("{tried} preemption: {said}"),
            None => tried,
        }
    }
}

/// A pod that no node takes now.
#[derive(Debug)]
pub struct Unplaced {
    /// Why.
    pub error: FitError,
    /// Who could go for it, the best choice first.
    pub candidates: Vec<Preemption>,
    /// Whether it should wait for its nominated node no longer.
    pub renounce: bool,
}

/// Nodes that will do, for extenders to judge.
#[derive(Debug)]
pub struct Candidates {
    /// Names and scores.
    pub nodes: Vec<(String, i64)>,
    /// Why other nodes will not do.
    pub error: FitError,
}

/// How many suitable nodes are enough.
fn enough(nodes: usize, percentage: usize) -> usize {
    if nodes < SEARCH_ALL {
        return nodes;
    }
    let percent = match percentage {
        0 => 50usize.saturating_sub(nodes / 125).max(5),
        percent => percent.min(100),
    };
    (nodes * percent / 100).max(SEARCH_ALL).min(nodes)
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
    /// What every node lacks, and who should be evicted.
    pub fn schedule(&mut self, cluster: &mut Cluster, request: Request<'_>) -> Result<String, Box<Unplaced>> {
        self.search(cluster, request, |search, state, fitting, _| match fitting {
            [only] => only.name.clone(),
            several => {
                let totals = totals(state, several, request.lap);
                several[search.pick(&totals)].name.clone()
            }
        })
    }

    /// All nodes that were found to do, for a pod that extenders have a say in.
    ///
    /// # Errors
    /// As [`Search::schedule`].
    pub fn candidates(&mut self, cluster: &mut Cluster, request: Request<'_>) -> Result<Candidates, Box<Unplaced>> {
        self.search(cluster, request, |_, state, fitting, error| {
            let totals = totals(state, fitting, request.lap);
            let names = fitting.iter().map(|node| node.name.clone());
            Candidates {
                nodes: names.zip(totals).collect(),
                error,
            }
        })
    }

    fn search<T>(
        &mut self,
        cluster: &mut Cluster,
        request: Request<'_>,
        finish: impl FnOnce(&mut Self, &State<'_>, &[&NodeInfo], FitError) -> T,
    ) -> Result<T, Box<Unplaced>> {
        let Request { pod, profile, lap, .. } = request;
        cluster.refresh();
        let mut error = FitError {
            nodes: cluster.order().len(),
            unknown: constraint::obstacle(pod),
            ..FitError::default()
        };
        if error.unknown.is_some() || error.nodes == 0 {
            return Err(Box::new(Unplaced {
                error,
                candidates: Vec::new(),
                renounce: false,
            }));
        }
        let defaults = pod_topology_spread::default_keys(profile);
        let defaults = request.owned.map(|_| defaults).unwrap_or_default();
        cluster.know_all(pod.topology_keys().chain(defaults));
        lap(Lap::Begin);
        let begun = State::begin(cluster, profile, pod, request.owned);
        let said = begun.as_ref().map_or("UnschedulableAndUnresolvable", |_| "Success");
        lap(Lap::End("PreFilter", said));
        let mut state = match begun {
            Ok(state) => state,
            Err(rejection) => {
                error.pre_filter = Some(rejection);
                return Err(Box::new(no_way(error, profile)));
            }
        };
        let fitting = self.fitting(&mut state, &mut error);
        lap(Lap::End("Filter", "Success"));
        match fitting.as_slice() {
            [] => Err(Box::new(self.preempt(&mut state, error, request))),
            several => Ok(finish(self, &state, several, error)),
        }
    }

    fn fitting<'c>(&mut self, state: &mut State<'c>, error: &mut FitError) -> Vec<&'c NodeInfo> {
        let cluster = state.cluster;
        let mut try_node = |state: &mut State<'c>, node: &'c NodeInfo| match state.fits(node, &node.room) {
            Ok(()) => Some(node),
            Err(rejection) => {
                error.rejections.push((node.slot, rejection));
                None
            }
        };
        let present = |name: &str| cluster.node(name).filter(|node| node.present);
        // Evicting made room for it there: whoever else would do is not asked.
        if let Some(node) = cluster.nominated.node_of(&state.pod.uid).and_then(present) {
            let is_allowed = state
                .names
                .as_ref()
                .is_none_or(|names| names.contains(node.name.as_str()));
            if is_allowed && state.fits(node, &node.room).is_ok() {
                return vec![node];
            }
        }
        if let Some(names) = state.names.take() {
            let named: Vec<&NodeInfo> = names.iter().copied().filter_map(present).collect();
            let fitting = named.into_iter().filter_map(|node| try_node(state, node)).collect();
            error.left_out_by = Some(Plugin::NodeAffinity);
            return fitting;
        }
        let order = cluster.order();
        let wanted = enough(order.len(), state.profile.percentage);
        let mut fitting = Vec::with_capacity(wanted.min(order.len()));
        let mut visited = 0;
        while visited < order.len() && fitting.len() < wanted {
            let node = cluster.at(order[(self.start + visited) % order.len()]);
            visited += 1;
            fitting.extend(try_node(state, node));
        }
        self.start = (self.start + visited) % order.len().max(1);
        fitting
    }

    fn preempt(&mut self, state: &mut State<'_>, mut error: FitError, request: Request<'_>) -> Unplaced {
        if !state.profile.preempts {
            return Unplaced {
                error,
                candidates: Vec::new(),
                renounce: false,
            };
        }
        let outcome = default_preemption::preempt(state, &error, request.budgets, &mut self.random);
        let said = match &outcome {
            Outcome::Evict(_) => "Success",
            Outcome::Nobody { .. } => "Unschedulable",
        };
        (request.lap)(Lap::End("PostFilter", said));
        match outcome {
            Outcome::Evict(candidates) => Unplaced {
                error,
                candidates,
                renounce: false,
            },
            Outcome::Nobody { message, renounce } => {
                error.post_filter = Some(message);
                Unplaced {
                    error,
                    candidates: Vec::new(),
                    renounce,
                }
            }
        }
    }

    /// One of the highest.
    pub fn pick(&mut self, totals: &[i64]) -> usize {
        let best = totals.iter().copied().max().unwrap_or(0);
        let ties: Vec<usize> = (0..totals.len()).filter(|i| totals[*i] == best).collect();
        let pick = self.random.below(ties.len() as u64);
        ties.get(usize::try_from(pick).unwrap_or(0)).copied().unwrap_or(0)
    }
}

/// A pod that contradicts itself: evicting would not help it.
fn no_way(mut error: FitError, profile: &Profile) -> Unplaced {
    let verdict = BTreeMap::from([("Preemption is not helpful for scheduling".to_owned(), error.nodes)]);
    error.post_filter = profile.preempts.then(|| histogram(error.nodes, &verdict));
    Unplaced {
        error,
        candidates: Vec::new(),
        renounce: true,
    }
}

/// The weighted sum of all scores, per node.
fn totals(state: &State<'_>, nodes: &[&NodeInfo], lap: &dyn Fn(Lap)) -> Vec<i64> {
    let plugins = state.profile.scores.iter();
    let counted: Vec<_> = plugins
        .filter_map(|(plugin, weight)| Some((state.pre_score(*plugin, nodes)?, weight)))
        .collect();
    lap(Lap::End("PreScore", "Success"));
    let mut totals = vec![0; nodes.len()];
    for (scoring, weight) in &counted {
        for (total, score) in totals.iter_mut().zip(state.scores(scoring, nodes)) {
            *total += *weight * score;
        }
    }
    lap(Lap::End("Score", "Success"));
    totals
}

#[cfg(test)]
mod tests;
