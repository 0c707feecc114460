//! A profile: the name pods ask for, the plugins that run for them, and what these are told. Pure.

use super::NAME;
use super::plugin::{Plugin, Point};
use k8s_openapi::api::core::v1::NodeAffinity;

/// A resource that scores are computed of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// CPU.
    Cpu,
    /// Memory.
    Memory,
    /// Local storage.
    Storage,
    /// Anything else, by name.
    Scalar(String),
}

impl Resource {
    /// By its name.
    pub fn named(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::Storage,
            other => Self::Scalar(other.to_owned()),
        }
    }
}

/// How NodeResourcesFit scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// More for nodes that have more left.
    LeastAllocated,
    /// More for nodes that have less left.
    MostAllocated,
    /// By points of utilisation (percent) and score (0 to 100), with straight lines between.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// What NodeResourcesFit is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitArgs {
    /// Extended resources whose requests are not looked at.
    pub ignored: Vec<String>,
    /// Prefixes (before the slash) of such.
    pub ignored_groups: Vec<String>,
    /// How it scores.
    pub strategy: Strategy,
    /// Of which resources, by weight.
    pub resources: Vec<(Resource, i64)>,
}

/// Constraints of pods without their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpreadDefaults {
    /// Those of the system: host names with a skew of 3 and zones with 5, as wishes.
    System,
    /// These: label, skew, and whether it must hold.
    List(Vec<(String, i64, bool)>),
}

/// What plugins are told.
#[derive(Clone, Debug, PartialEq)]
pub struct Args {
    /// NodeResourcesFit.
    pub fit: FitArgs,
    /// NodeResourcesBalancedAllocation: the resources whose use is to stay in step.
    pub balanced: Vec<Resource>,
    /// InterPodAffinity: what a placed pod's required affinity to the pod counts.
    pub hard_pod_affinity_weight: i64,
    /// InterPodAffinity: whether wishes of placed pods count only if the pod has some, too.
    pub ignore_preferred_terms_of_existing_pods: bool,
    /// PodTopologySpread.
    pub spread: SpreadDefaults,
    /// NodeAffinity that holds for every pod.
    pub added_affinity: Option<NodeAffinity>,
    /// DefaultPreemption: the share of nodes that are tried, in percent, and the least number.
    pub candidates: (usize, usize),
}

impl Default for Args {
    fn default() -> Self {
        Self {
            fit: FitArgs {
                ignored: Vec::new(),
                ignored_groups: Vec::new(),
                strategy: Strategy::LeastAllocated,
                resources: vec![(Resource::Cpu, 1), (Resource::Memory, 1)],
            },
            balanced: vec![Resource::Cpu, Resource::Memory],
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
            spread: SpreadDefaults::System,
            added_affinity: None,
            candidates: (10, 100),
        }
    }
}

/// A profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What pods say in `spec.schedulerName`.
    pub name: String,
    /// Percent of the nodes that are looked at until enough are found; 0: by the size of the cluster.
    pub percentage: usize,
    /// At Filter, in order.
    pub filters: Vec<Plugin>,
    /// Whether pods may be evicted for others.
    pub preempts: bool,
    /// At Score, with weights.
    pub scores: Vec<(Plugin, i64)>,
    /// What they are told.
    pub args: Args,
}

impl Default for Profile {
    fn default() -> Self {
        let at = |point: Point| {
            let all = Plugin::ALL.into_iter();
            all.filter(move |plugin| plugin.points().contains(&point))
        };
        Self {
            name: NAME.to_owned(),
            percentage: 0,
            filters: at(Point::Filter).collect(),
            preempts: true,
            scores: at(Point::Score).map(|plugin| (plugin, plugin.weight())).collect(),
            args: Args::default(),
        }
    }
}
