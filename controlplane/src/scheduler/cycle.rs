//! One scheduling cycle: filter, score, choose, and where nothing fits, whom to evict. Pure.

use super::cluster::{Cluster, NodeInfo};
use super::constraint;
use super::judged::Judged;
use super::plugin::default_preemption::{self, Budget, Outcome, Preemption};
use super::plugin::steps::Told;
use super::plugin::{Plugin, PluginSet, PreFilterRejection, Rejection, Scoring, State, normal, pod_topology_spread};
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
    /// Who is told of plugins' steps.
    pub told: Told<'r>,
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
        self.search(cluster, request, |search, round, found, _| {
            let chosen = match found.fitting.as_slice() {
                [only] => *only,
                several => several[search.pick(&round.totals(several, request.lap))],
            };
            round.state.cluster.at(chosen).name.clone()
        })
    }

    /// All nodes that were found to do, for a pod that extenders have a say in.
    ///
    /// # Errors
    /// As [`Search::schedule`].
    pub fn candidates(&mut self, cluster: &mut Cluster, request: Request<'_>) -> Result<Candidates, Box<Unplaced>> {
        self.search(cluster, request, |_, round, found, mut error| {
            let totals = round.totals(&found.fitting, request.lap);
            let cluster = round.state.cluster;
            let names = found.fitting.iter().map(|slot| cluster.at(*slot).name.clone());
            let nodes = names.zip(totals).collect();
            error.rejections = round.explain(found.refused);
            Candidates { nodes, error }
        })
    }

    /// What evicting could do for a pod of whose [`Candidates`] extenders left none; `error` says why.
    pub fn preempt_instead(&mut self, cluster: &Cluster, request: Request<'_>, error: FitError) -> Unplaced {
        match State::begin(cluster, request.profile, request.pod, request.owned, request.told) {
            Ok(mut state) => self.preempt(&mut state, error, request),
            Err(_) => no_way(error, request.profile),
        }
    }

    fn search<T>(
        &mut self,
        cluster: &mut Cluster,
        request: Request<'_>,
        finish: impl FnOnce(&mut Self, &mut Round<'_, '_>, Found, FitError) -> T,
    ) -> Result<T, Box<Unplaced>> {
        let Request { pod, profile, .. } = request;
        cluster.refresh();
        let error = FitError {
            nodes: cluster.order().len(),
            unknown: constraint::obstacle(pod),
            ..FitError::default()
        };
        if error.unknown.is_some() || error.nodes == 0 {
            return Err(Box::new(Unplaced {
                // Without any node there is none to wait for.
                renounce: error.nodes == 0,
                error,
                candidates: Vec::new(),
            }));
        }
        let defaults = pod_topology_spread::default_keys(profile);
        let defaults = request.owned.map(|_| defaults).unwrap_or_default();
        cluster.know_all(pod.topology_keys().chain(defaults));
        let mut judged = cluster.judged.take(pod, profile);
        let outcome = self.look(cluster, request, error, &mut judged, finish);
        cluster.judged.keep(judged);
        outcome
    }

    fn look<T>(
        &mut self,
        cluster: &Cluster,
        request: Request<'_>,
        mut error: FitError,
        judged: &mut Judged,
        finish: impl FnOnce(&mut Self, &mut Round<'_, '_>, Found, FitError) -> T,
    ) -> Result<T, Box<Unplaced>> {
        let Request { pod, profile, lap, .. } = request;
        lap(Lap::Begin);
        let begun = State::begin(cluster, profile, pod, request.owned, request.told);
        let said = begun.as_ref().map_or("UnschedulableAndUnresolvable", |_| "Success");
        lap(Lap::End("PreFilter", said));
        let state = match begun {
            Ok(state) => state,
            Err(rejection) => {
                error.pre_filter = Some(rejection);
                return Err(Box::new(no_way(error, profile)));
            }
        };
        let mut round = Round { state, judged };
        let found = self.find(&mut round, &mut error);
        lap(Lap::End("Filter", "Success"));
        if found.fitting.is_empty() {
            error.rejections = round.explain(found.refused);
            return Err(Box::new(self.preempt(&mut round.state, error, request)));
        }
        Ok(finish(self, &mut round, found, error))
    }

    fn find(&mut self, round: &mut Round<'_, '_>, error: &mut FitError) -> Found {
        let cluster = round.state.cluster;
        let mut found = Found::default();
        let present = |name: &str| cluster.node(name).filter(|node| node.present);
        // Evicting made room for it there: whoever else would do is not asked.
        if let Some(node) = cluster.nominated.node_of(&round.state.pod.uid).and_then(present) {
            let names = round.state.names.as_ref();
            let is_allowed = names.is_none_or(|names| names.contains(node.name.as_str()));
            if is_allowed && round.state.fits(node, &node.room).is_ok() {
                found.fitting.push(node.slot);
                return found;
            }
        }
        if let Some(names) = round.state.names.take() {
            let named: Vec<&NodeInfo> = names.iter().copied().filter_map(present).collect();
            named
                .into_iter()
                .for_each(|node| found.add(node.slot, round.try_node(node.slot)));
            error.left_out_by = Some(Plugin::NodeAffinity);
            return found;
        }
        let order = cluster.order();
        let wanted = enough(order.len(), round.state.profile.percentage);
        found.fitting.reserve(wanted.min(order.len()));
        let first = self.start % order.len().max(1);
        let mut visited = 0;
        for slot in order[first..].iter().chain(&order[..first]) {
            if found.fitting.len() >= wanted {
                break;
            }
            visited += 1;
            found.add(*slot, round.try_node(*slot));
        }
        self.start = (first + visited) % order.len().max(1);
        found
    }

    fn preempt(&mut self, state: &mut State<'_>, mut error: FitError, request: Request<'_>) -> Unplaced {
        if !state.profile.preempts {
            return Unplaced {
                error,
                candidates: Vec::new(),
                renounce: false,
            };
        }
        let of = |outcome: &Outcome| match outcome {
            Outcome::Evict(_) => "Success",
            Outcome::Nobody { .. } => "Unschedulable",
        };
        let ask = || default_preemption::preempt(state, &error, request.budgets, &mut self.random);
        let outcome = request.told.around((Plugin::DefaultPreemption, "PostFilter"), ask, of);
        (request.lap)(Lap::End("PostFilter", of(&outcome)));
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
        let mut ties = (0..totals.len()).filter(|i| totals[*i] == best);
        let pick = self.random.below(ties.clone().count() as u64);
        ties.nth(usize::try_from(pick).unwrap_or(0)).unwrap_or(0)
    }
}

/// What came of looking at nodes.
#[derive(Default)]
struct Found {
    /// Slots of those that will do: most of the nodes need not be looked at for it.
    fitting: Vec<usize>,
    /// Slots of those that will not, with why, where that was asked now.
    refused: Vec<(usize, Option<Rejection>)>,
}

impl Found {
    fn add(&mut self, slot: usize, tried: Result<(), Option<Rejection>>) {
        match tried {
            Ok(()) => self.fitting.push(slot),
            Err(why) => self.refused.push((slot, why)),
        }
    }
}

/// What a cycle asks of nodes, and what was said of them before.
struct Round<'j, 'c> {
    state: State<'c>,
    judged: &'j mut Judged,
}

impl<'c> Round<'_, 'c> {
    /// Whether the node will do; if not, with why, where it had to be asked.
    fn try_node(&mut self, slot: usize) -> Result<(), Option<Rejection>> {
        let cluster = self.state.cluster;
        let node = cluster.at(slot);
        // Who waits for room there is not the node's own.
        if !cluster.nominated.is_empty() && cluster.nominated.on(&node.name).next().is_some() {
            return self.state.fits(node, &node.room).map_err(Some);
        }
        let verdict = self.judged.of(slot, cluster.change(slot));
        let said = match verdict.fits {
            Some(true) => self.state.filter_around(node),
            Some(false) => return Err(None),
            None => {
                let said = self.state.filter(node, &node.room);
                verdict.fits = match &said {
                    Ok(()) => Some(true),
                    // Who comes after it was not asked.
                    Err(rejection) if rejection.plugin.looks_around() => None,
                    Err(_) => Some(false),
                };
                said
            }
        };
        said.map_err(Some)
    }

    /// Asks again why nodes will not do, where that was not remembered: mostly nobody wants to know.
    fn explain(&mut self, refused: Vec<(usize, Option<Rejection>)>) -> Vec<(usize, Rejection)> {
        let mut why = |slot: usize, known: Option<Rejection>| {
            let node = self.state.cluster.at(slot);
            known.or_else(|| self.state.fits(node, &node.room).err())
        };
        let each = refused.into_iter();
        each.filter_map(|(slot, known)| Some((slot, why(slot, known)?)))
            .collect()
    }

    /// The weighted sum of all scores, per node.
    fn totals(&mut self, slots: &[usize], lap: &dyn Fn(Lap)) -> Vec<i64> {
        let plugins = self.state.profile.scores.iter();
        let counted: Vec<_> = plugins
            .filter_map(|(plugin, weight)| Some((self.pre_score(*plugin, slots)?, *weight)))
            .collect();
        lap(Lap::End("PreScore", "Success"));
        let totals = self.sum(slots, &counted);
        lap(Lap::End("Score", "Success"));
        totals
    }

    fn pre_score(&self, plugin: Plugin, slots: &[usize]) -> Option<Scoring<'c>> {
        let ask = || self.state.pre_score(plugin, slots);
        match plugin {
            // Upstream's has none.
            Plugin::ImageLocality => ask(),
            _ => self.state.told.around((plugin, "PreScore"), ask, |scoring| {
                scoring.as_ref().map_or("Skip", |_| "Success")
            }),
        }
    }

    fn sum(&mut self, slots: &[usize], counted: &[(Scoring<'_>, i64)]) -> Vec<i64> {
        let (cluster, state, judged) = (self.state.cluster, &self.state, &mut *self.judged);
        let images = counted.iter().find_map(|(scoring, _)| match scoring {
            Scoring::Images(spread) => Some(spread.as_slice()),
            _ => None,
        });
        judged.score_by(images.unwrap_or_default());
        let (mut taints, mut affinity) = (0, 0);
        let alone = |slot: &usize| {
            let verdict = judged.of(*slot, cluster.change(*slot));
            let scores = verdict.scores;
            let scores = scores.unwrap_or_else(|| state.score_alone(counted, cluster.at(*slot)));
            verdict.scores = Some(scores);
            (taints, affinity) = (scores.taints.max(taints), scores.affinity.max(affinity));
            scores.sum
        };
        let mut totals: Vec<i64> = slots.iter().map(alone).collect();
        let mut add = |weight: i64, scores: &mut dyn Iterator<Item = i64>| {
            for (total, score) in totals.iter_mut().zip(scores) {
                *total += weight * score;
            }
        };
        // Of plugins that look around, the scores of all nodes are one step, which normalises them, too.
        for (scoring, weight) in counted {
            let known = |slot: &usize| judged.scored(*slot);
            let mut each = slots.iter().map(known);
            let step = match scoring {
                Scoring::Alone(plugin) => (*plugin, "ScoreExtensionNormalize"),
                Scoring::Affinity(_) => (Plugin::InterPodAffinity, "Score"),
                Scoring::Spread(_) => (Plugin::PodTopologySpread, "Score"),
                Scoring::Images(_) => continue,
            };
            let ask: &mut dyn FnMut() = match scoring {
                Scoring::Alone(Plugin::TaintToleration) => &mut || {
                    add(
                        *weight,
                        &mut each.by_ref().map(|scores| normal(scores.taints, taints, true)),
                    )
                },
                Scoring::Alone(Plugin::NodeAffinity) => &mut || {
                    add(
                        *weight,
                        &mut each.by_ref().map(|scores| normal(scores.affinity, affinity, false)),
                    )
                },
                Scoring::Affinity(counts) => &mut || add(*weight, &mut counts.scores(slots).into_iter()),
                Scoring::Spread(counts) => &mut || add(*weight, &mut counts.scores(slots).into_iter()),
                Scoring::Alone(_) | Scoring::Images(_) => continue,
            };
            state.told.around(step, ask, |()| "Success");
        }
        totals
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

#[cfg(test)]
mod tests;
