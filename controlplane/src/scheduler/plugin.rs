//! The framework: plugins under upstream's names, at upstream's extension points. Pure.
//!
//! Which plugins there are is a fixed list ([`Plugin`]), which of them run is a [`Profile`]'s. Each has a file of its own with
//! what it does at its points and the events after which it may judge otherwise:
//!
//! - PreEnqueue and QueueSort: [`scheduling_gates`], [`priority_sort`], asked by the queue;
//! - PreFilter: [`State::begin`]; what a plugin counts once a cycle is kept in the [`State`], and follows
//!   [`State::add_pod`] and [`State::remove_pod`] while "what if" is asked;
//! - Filter: [`State::filter`]; PostFilter: [`default_preemption`];
//! - PreScore: [`State::pre_score`]; Score: [`State::score_alone`], with its normalisation [`normal`], or the plugin's own;
//! - Reserve is [`Cluster::place`], undone by [`Cluster::remove_pod`]; Permit, PreBind and PostBind have no plugin yet (claims and
//!   devices will be the first), Bind is [`Binder::bind`](super::bind::Binder::bind).

use super::cluster::{Cluster, NodeInfo, Room};
use super::event::Event;
use super::judged::Scores;
use super::pod::PodInfo;
use super::profile::Profile;
use proto::api::selector::Selector;
pub use set::PluginSet;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use steps::Told;

pub mod default_preemption;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod pod_topology_spread;
pub mod priority_sort;
pub mod scheduling_gates;
mod set;
pub mod steps;
pub mod taint_toleration;

/// A plugin, by upstream's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Plugin {
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    PodTopologySpread,
    InterPodAffinity,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
}

/// A place in the life of a cycle where plugins are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Point {
    PreEnqueue,
    QueueSort,
    Filter,
    PostFilter,
    Score,
    Bind,
}

impl Plugin {
    /// All there are, in upstream's order.
    pub const ALL: [Self; 15] = [
        Self::SchedulingGates,
        Self::PrioritySort,
        Self::NodeUnschedulable,
        Self::NodeName,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
        Self::DefaultPreemption,
        Self::NodeResourcesBalancedAllocation,
        Self::ImageLocality,
        Self::DefaultBinder,
        Self::NodeDeclaredFeatures,
    ];

    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SchedulingGates => "SchedulingGates",
            Self::PrioritySort => "PrioritySort",
            Self::NodeUnschedulable => "NodeUnschedulable",
            Self::NodeName => "NodeName",
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::NodePorts => "NodePorts",
            Self::NodeResourcesFit => "NodeResourcesFit",
            Self::PodTopologySpread => "PodTopologySpread",
            Self::InterPodAffinity => "InterPodAffinity",
            Self::DefaultPreemption => "DefaultPreemption",
            Self::NodeResourcesBalancedAllocation => "NodeResourcesBalancedAllocation",
            Self::ImageLocality => "ImageLocality",
            Self::DefaultBinder => "DefaultBinder",
            Self::NodeDeclaredFeatures => "NodeDeclaredFeatures",
        }
    }

    /// Where it can be asked.
    pub fn points(self) -> &'static [Point] {
        match self {
            Self::SchedulingGates => &[Point::PreEnqueue],
            Self::PrioritySort => &[Point::QueueSort],
            Self::NodeUnschedulable | Self::NodeName | Self::NodePorts | Self::NodeDeclaredFeatures => &[Point::Filter],
            Self::TaintToleration
            | Self::NodeAffinity
            | Self::NodeResourcesFit
            | Self::PodTopologySpread
            | Self::InterPodAffinity => &[Point::Filter, Point::Score],
            Self::DefaultPreemption => &[Point::PostFilter],
            Self::NodeResourcesBalancedAllocation | Self::ImageLocality => &[Point::Score],
            Self::DefaultBinder => &[Point::Bind],
        }
    }

    /// How much its score counts by default.
    pub fn weight(self) -> i64 {
        match self {
            Self::TaintToleration => 3,
            Self::NodeAffinity | Self::PodTopologySpread | Self::InterPodAffinity => 2,
            _ => 1,
        }
    }

    /// Whether it is asked before filters.
    fn has_pre_filter(self) -> bool {
        !matches!(self, Self::NodeUnschedulable | Self::NodeName | Self::TaintToleration)
    }

    /// Whether its filter asks for other nodes than the one in question.
    pub fn looks_around(self) -> bool {
        matches!(self, Self::PodTopologySpread | Self::InterPodAffinity)
    }

    /// Whether a node that did not take the pod may take it after the event, by this plugin alone. Of plugins that ask for one
    /// node alone see [`fits_locally`].
    pub fn may_help(self, pod: &PodInfo, event: &Event<'_>) -> bool {
        match self {
            Self::InterPodAffinity => inter_pod_affinity::hint(pod, event),
            Self::PodTopologySpread => pod_topology_spread::hint(pod, event),
            _ => false,
        }
    }
}

/// Why a node will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Who refused.
    pub plugin: Plugin,
    /// Upstream's reasons.
    pub reasons: Vec<Cow<'static, str>>,
    /// Whether removing pods from the node could help.
    pub resolvable: bool,
}

impl Rejection {
    /// A rejection that removing pods cannot change.
    pub fn fixed(plugin: Plugin, reason: &'static str) -> Self {
        Self {
            plugin,
            reasons: vec![Cow::Borrowed(reason)],
            resolvable: false,
        }
    }

    /// A rejection that removing pods may change.
    pub fn resolvable(plugin: Plugin, reason: &'static str) -> Self {
        Self {
            plugin,
            reasons: vec![Cow::Borrowed(reason)],
            resolvable: true,
        }
    }
}

/// A plugin's word that no node will do, before any is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreFilterRejection {
    /// Who refused.
    pub plugin: Plugin,
    /// Upstream's reason.
    pub reason: &'static str,
}

/// What one cycle asks, with what plugins have counted for it.
#[derive(Debug)]
pub struct State<'c> {
    /// The cluster, as it stays during the cycle.
    pub cluster: &'c Cluster,
    /// Which plugins run, and how.
    pub profile: &'c Profile,
    /// The pod.
    pub pod: &'c PodInfo,
    /// The pods of the same owners, for pods without spread constraints of their own.
    pub owned: Option<&'c Selector>,
    /// The only nodes that come into question, where the pod names them.
    pub names: Option<BTreeSet<&'c str>>,
    /// Who is told of plugins' steps.
    pub told: Told<'c>,
    filters: Vec<Plugin>,
    affinity: Option<inter_pod_affinity::Filtering<'c>>,
    spread: Option<pod_topology_spread::Filtering<'c>>,
}

/// What a plugin knows of a cycle when it scores.
pub enum Scoring<'c> {
    /// It asks each node alone, and has counted nothing.
    Alone(Plugin),
    /// ImageLocality: images with the share of nodes that have them.
    Images(Vec<(String, f64)>),
    /// InterPodAffinity.
    Affinity(inter_pod_affinity::Scoring<'c>),
    /// PodTopologySpread.
    Spread(pod_topology_spread::Scoring<'c>),
}

impl<'c> State<'c> {
    /// PreFilter: counts what filters ask for, and leaves out those that have nothing to ask.
    ///
    /// # Errors
    /// What keeps the pod from every node.
    pub fn begin(
        cluster: &'c Cluster,
        profile: &'c Profile,
        pod: &'c PodInfo,
        owned: Option<&'c Selector>,
        told: Told<'c>,
    ) -> Result<Self, PreFilterRejection> {
        let mut state = Self {
            cluster,
            profile,
            pod,
            owned,
            names: None,
            told,
            filters: Vec::with_capacity(profile.filters.len()),
            affinity: None,
            spread: None,
        };
        for plugin in &profile.filters {
            let asks = match plugin.has_pre_filter() {
                false => state.pre_filter(*plugin)?,
                true => told.around(
                    (*plugin, "PreFilter"),
                    || state.pre_filter(*plugin),
                    |asks| match asks {
                        Ok(true) => "Success",
                        Ok(false) => "Skip",
                        Err(_) => "UnschedulableAndUnresolvable",
                    },
                )?,
            };
            if asks {
                state.filters.push(*plugin);
            }
        }
        Ok(state)
    }

    /// PreFilter of one plugin: whether its filter has anything to ask.
    fn pre_filter(&mut self, plugin: Plugin) -> Result<bool, PreFilterRejection> {
        let pod = self.pod;
        Ok(match plugin {
            Plugin::NodeName => !pod.node().is_empty(),
            Plugin::NodePorts => !pod.ports.is_empty(),
            Plugin::NodeDeclaredFeatures => !pod.features.is_empty(),
            Plugin::NodeAffinity => {
                self.names = node_affinity::names(pod)?;
                node_affinity::filters(&self.profile.args, pod)
            }
            Plugin::InterPodAffinity => {
                self.affinity = inter_pod_affinity::Filtering::begin(self.cluster, pod);
                self.affinity.is_some()
            }
            Plugin::PodTopologySpread => {
                self.spread = pod_topology_spread::Filtering::begin(self);
                self.spread.is_some()
            }
            _ => true,
        })
    }

    /// Filter: whether the pod may run on the node, with that room taken; the first plugin that refuses decides.
    ///
    /// # Errors
    /// The refusal.
    pub fn filter(&self, node: &NodeInfo, room: &Room) -> Result<(), Rejection> {
        self.filters.iter().try_for_each(|plugin| self.ask(*plugin, node, room))
    }

    /// Filter by those alone that look around: whether the pod may run on a node that all others let it in.
    ///
    /// # Errors
    /// The refusal.
    pub fn filter_around(&self, node: &NodeInfo) -> Result<(), Rejection> {
        if self.affinity.is_none() && self.spread.is_none() {
            return Ok(());
        }
        let mut around = self.filters.iter().filter(|plugin| plugin.looks_around());
        around.try_for_each(|plugin| self.ask(*plugin, node, &node.room))
    }

    fn ask(&self, plugin: Plugin, node: &NodeInfo, room: &Room) -> Result<(), Rejection> {
        let ask = || match plugin {
            Plugin::InterPodAffinity => self.affinity.as_ref().map_or(Ok(()), |counts| counts.filter(node)),
            Plugin::PodTopologySpread => self.spread.as_ref().map_or(Ok(()), |counts| counts.filter(node)),
            local => filter_locally(local, self.profile, self.pod, node, room),
        };
        self.told.around((plugin, "Filter"), ask, steps::of_filter)
    }

    /// Filter, with those counted on the node that wait for room there and come first: it must do with them, and (what they
    /// draw the pod to may never be there) without them.
    ///
    /// # Errors
    /// The refusal.
    pub fn fits(&mut self, node: &NodeInfo, room: &Room) -> Result<(), Rejection> {
        let own = self.pod;
        let before = |other: &&Arc<PodInfo>| other.priority >= own.priority && other.uid != own.uid;
        let cluster = self.cluster;
        let waiting: Vec<&Arc<PodInfo>> = cluster.nominated.on(&node.name).filter(before).collect();
        if waiting.is_empty() {
            return self.filter(node, room);
        }
        let mut fuller = room.clone();
        for other in &waiting {
            fuller.add(other);
            self.add_pod(other, node);
        }
        let with_them = self.filter(node, &fuller);
        for other in &waiting {
            self.remove_pod(other, node);
        }
        with_them.and_then(|()| self.filter(node, room))
    }

    /// Counts a pod as if it were on the node.
    pub fn add_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.count(pod, node, 1);
    }

    /// Counts a pod as if it were not on the node any more.
    pub fn remove_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.count(pod, node, -1);
    }

    fn count(&mut self, pod: &PodInfo, node: &NodeInfo, sign: i64) {
        if let Some(counts) = &mut self.affinity {
            counts.count(pod, node, sign);
        }
        if let Some(counts) = &mut self.spread {
            counts.count(pod, node, sign);
        }
    }

    /// PreScore of one plugin: what it counts for its scores of the nodes in these slots, or nothing if it has no preference.
    pub fn pre_score(&self, plugin: Plugin, slots: &[usize]) -> Option<Scoring<'c>> {
        let (pod, args) = (self.pod, &self.profile.args);
        let has_any = match plugin {
            Plugin::ImageLocality => {
                let spread = image_locality::spread(pod, self.cluster, self.cluster.order().len());
                return (!spread.is_empty()).then_some(Scoring::Images(spread));
            }
            Plugin::InterPodAffinity => return inter_pod_affinity::pre_score(self).map(Scoring::Affinity),
            Plugin::PodTopologySpread => return pod_topology_spread::pre_score(self, slots).map(Scoring::Spread),
            Plugin::NodeResourcesFit | Plugin::TaintToleration => true,
            Plugin::NodeResourcesBalancedAllocation => node_resources_balanced_allocation::scores(&args.balanced, pod),
            Plugin::NodeAffinity => node_affinity::scores(args, pod),
            _ => false,
        };
        has_any.then_some(Scoring::Alone(plugin))
    }

    /// Score of all plugins that ask the node alone.
    pub fn score_alone(&self, counted: &[(Scoring<'_>, i64)], node: &NodeInfo) -> Scores {
        let mut scores = Scores::default();
        for (scoring, weight) in counted {
            let plugin = match scoring {
                Scoring::Images(_) => Plugin::ImageLocality,
                Scoring::Alone(plugin) => *plugin,
                Scoring::Affinity(_) | Scoring::Spread(_) => continue,
            };
            let ask = || self.score_of(plugin, scoring, node);
            let score = self.told.around((plugin, "Score"), ask, |_| "Success");
            match plugin {
                Plugin::TaintToleration => scores.taints = score,
                Plugin::NodeAffinity => scores.affinity = score,
                _ => scores.sum += weight * score,
            }
        }
        scores
    }

    fn score_of(&self, plugin: Plugin, scoring: &Scoring<'_>, node: &NodeInfo) -> i64 {
        let (pod, args) = (self.pod, &self.profile.args);
        match (plugin, scoring) {
            (_, Scoring::Images(spread)) => image_locality::score(pod, node, spread),
            (Plugin::NodeResourcesFit, _) => node_resources_fit::score(&args.fit, pod, node),
            (Plugin::NodeResourcesBalancedAllocation, _) => {
                node_resources_balanced_allocation::score(&args.balanced, pod, node)
            }
            (Plugin::TaintToleration, _) => taint_toleration::score(pod, node),
            (Plugin::NodeAffinity, _) => node_affinity::score(args, pod, node),
            _ => 0,
        }
    }
}

fn filter_locally(
    plugin: Plugin,
    profile: &Profile,
    pod: &PodInfo,
    node: &NodeInfo,
    room: &Room,
) -> Result<(), Rejection> {
    match plugin {
        Plugin::NodeUnschedulable => node_unschedulable::filter(pod, node),
        Plugin::NodeName => node_name::filter(pod, node),
        Plugin::TaintToleration => taint_toleration::filter(pod, node),
        Plugin::NodeAffinity => node_affinity::filter(&profile.args, pod, node),
        Plugin::NodePorts => node_ports::filter(pod, room),
        Plugin::NodeResourcesFit => node_resources_fit::filter(&profile.args.fit, pod, node, room),
        Plugin::NodeDeclaredFeatures => node_declared_features::filter(pod, node),
        _ => Ok(()),
    }
}

/// Whether every plugin that asks for the node alone lets the pod run there as it is now, with that room taken.
pub fn fits_locally(profile: &Profile, pod: &PodInfo, node: &NodeInfo, room: &Room) -> bool {
    let mut filters = profile.filters.iter();
    filters.all(|plugin| filter_locally(*plugin, profile, pod, node, room).is_ok())
}

/// Whether one of the plugins that refused the pod judges by one node alone.
pub fn refused_locally(refused: PluginSet) -> bool {
    refused.each().any(|plugin| !plugin.looks_around())
}

/// Scales a score so that the highest becomes 100; reversed, so that the highest becomes 0.
pub fn normal(score: i64, highest: i64, reverse: bool) -> i64 {
    let share = if highest == 0 { 0 } else { 100 * score / highest };
    if reverse { 100 - share } else { share }
}

#[cfg(test)]
mod tests;
