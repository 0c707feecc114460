//! What a profile tells its plugins (`pluginConfig`). Pure.

use crate::scheduler::plugin::Plugin;
use crate::scheduler::profile::{Args, Resource, SpreadDefaults, Strategy};
use k8s_openapi::api::core::v1::NodeAffinity;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One entry.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PluginConfig {
    pub(super) name: String,
    #[serde(default)]
    args: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FitWords {
    #[serde(default)]
    ignored_resources: Vec<String>,
    #[serde(default)]
    ignored_resource_groups: Vec<String>,
    #[serde(default)]
    scoring_strategy: Option<StrategyWords>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StrategyWords {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    resources: Vec<ResourceWords>,
    #[serde(default)]
    requested_to_capacity_ratio: Option<RatioWords>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceWords {
    name: String,
    #[serde(default)]
    weight: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RatioWords {
    #[serde(default)]
    shape: Vec<PointWords>,
}

/// The same in the words of a Policy.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RatioArguments {
    #[serde(default)]
    shape: Vec<PointWords>,
    #[serde(default)]
    resources: Vec<ResourceWords>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PointWords {
    utilization: i64,
    score: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BalancedWords {
    #[serde(default)]
    resources: Vec<ResourceWords>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AffinityWords {
    #[serde(default)]
    hard_pod_affinity_weight: Option<i64>,
    #[serde(default)]
    ignore_preferred_terms_of_existing_pods: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpreadWords {
    #[serde(default)]
    defaulting_type: Option<String>,
    #[serde(default)]
    default_constraints: Vec<ConstraintWords>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConstraintWords {
    max_skew: i64,
    topology_key: String,
    when_unsatisfiable: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeAffinityWords {
    #[serde(default)]
    added_affinity: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PreemptionWords {
    #[serde(default)]
    min_candidate_nodes_percentage: Option<i64>,
    #[serde(default)]
    min_candidate_nodes_absolute: Option<i64>,
}

/// Arguments may name their own type, which is the plugin's name with `Args`.
fn read<T: DeserializeOwned + Default>(name: &str, mut args: Value) -> Result<T, String> {
    if args.is_null() {
        return Ok(T::default());
    }
    let Some(object) = args.as_object_mut() else {
        return Err("args: is no object".to_owned());
    };
    let kind = object.remove("kind");
    if kind.is_some_and(|kind| kind != format!("{name}Args")) {
        return Err(format!("args.kind: is not {name}Args"));
    }
    let version = object.remove("apiVersion");
    if version.is_some_and(|version| version != "kubescheduler.config.k8s.io/v1") {
        return Err("args.apiVersion: is not kubescheduler.config.k8s.io/v1".to_owned());
    }
    serde_json::from_value(args).map_err(|error| format!("args: {error}"))
}

impl PluginConfig {
    /// Puts it into the arguments.
    pub(super) fn apply(self, args: &mut Args) -> Result<(), String> {
        let known = Plugin::ALL.into_iter().find(|plugin| plugin.name() == self.name);
        match known {
            Some(Plugin::NodeResourcesFit) => fit(read(&self.name, self.args)?, args),
            Some(Plugin::NodeResourcesBalancedAllocation) => balanced(&read(&self.name, self.args)?, args),
            Some(Plugin::InterPodAffinity) => affinity(&read(&self.name, self.args)?, args),
            Some(Plugin::PodTopologySpread) => spread(read(&self.name, self.args)?, args),
            Some(Plugin::NodeAffinity) => node_affinity(read(&self.name, self.args)?, args),
            Some(Plugin::DefaultPreemption) => preemption(&read(&self.name, self.args)?, args),
            Some(_) => Err(format!("name: plugin {} takes no arguments", self.name)),
            None => Err(format!(
                "name: plugin {:?} is not supported or does not exist",
                self.name
            )),
        }
    }
}

fn weighted(resources: &[ResourceWords]) -> Result<Vec<(Resource, i64)>, String> {
    let mut all: Vec<(Resource, i64)> = Vec::new();
    for (index, words) in resources.iter().enumerate() {
        let weight = words.weight.filter(|weight| *weight != 0).unwrap_or(1);
        if !(1..=100).contains(&weight) {
            return Err(format!(
                "resources[{index}].weight: Invalid value: {weight}: not in valid range [1-100]"
            ));
        }
        let resource = Resource::named(&words.name);
        if all.iter().any(|(known, _)| *known == resource) {
            return Err(format!("resources[{index}].name: Duplicate value: {:?}", words.name));
        }
        all.push((resource, weight));
    }
    Ok(all)
}

/// Points of a line; `at` is their field.
fn shape(at: &str, points: &[PointWords]) -> Result<Vec<(i64, i64)>, String> {
    if points.is_empty() {
        return Err(format!("{at}: Required value: at least one point must be specified"));
    }
    for (index, point) in points.iter().enumerate() {
        if !(0..=100).contains(&point.utilization) {
            return Err(format!("{at}[{index}].utilization: not in valid range [0-100]"));
        }
        if !(0..=10).contains(&point.score) {
            return Err(format!("{at}[{index}].score: not in valid range [0-10]"));
        }
        if index > 0 && points[index - 1].utilization >= point.utilization {
            return Err(format!(
                "{at}[{index}].utilization: values must be sorted in increasing order"
            ));
        }
    }
    // Nodes' scores go to 100.
    Ok(points
        .iter()
        .map(|point| (point.utilization, point.score * 10))
        .collect())
}

impl RatioArguments {
    /// Puts it into the arguments.
    pub(super) fn apply(&self, args: &mut Args) -> Result<(), String> {
        args.fit.strategy = Strategy::RequestedToCapacityRatio(shape("shape", &self.shape)?);
        if !self.resources.is_empty() {
            args.fit.resources = weighted(&self.resources)?;
        }
        Ok(())
    }
}

fn fit(words: FitWords, args: &mut Args) -> Result<(), String> {
    if let Some(group) = words.ignored_resource_groups.iter().find(|group| group.contains('/')) {
        return Err(format!(
            "args.ignoredResourceGroups: Invalid value: {group:?}: resource group name can't contain '/'"
        ));
    }
    args.fit.ignored = words.ignored_resources;
    args.fit.ignored_groups = words.ignored_resource_groups;
    let Some(strategy) = words.scoring_strategy else {
        return Ok(());
    };
    if !strategy.resources.is_empty() {
        let resources = weighted(&strategy.resources).map_err(|why| format!("args.scoringStrategy.{why}"))?;
        args.fit.resources = resources;
    }
    let kind = strategy.kind.as_deref().unwrap_or("LeastAllocated");
    if kind != "RequestedToCapacityRatio" && strategy.requested_to_capacity_ratio.is_some() {
        return Err(format!(
            "args.scoringStrategy.requestedToCapacityRatio: has no effect with type {kind}"
        ));
    }
    args.fit.strategy = match kind {
        "LeastAllocated" => Strategy::LeastAllocated,
        "MostAllocated" => Strategy::MostAllocated,
        "RequestedToCapacityRatio" => {
            let points = strategy.requested_to_capacity_ratio.map(|words| words.shape);
            let at = "args.scoringStrategy.requestedToCapacityRatio.shape";
            Strategy::RequestedToCapacityRatio(shape(at, &points.unwrap_or_default())?)
        }
        other => return Err(format!("args.scoringStrategy.type: Unsupported value: {other:?}")),
    };
    Ok(())
}

fn balanced(words: &BalancedWords, args: &mut Args) -> Result<(), String> {
    if words.resources.is_empty() {
        return Ok(());
    }
    let resources = weighted(&words.resources).map_err(|why| format!("args.{why}"))?;
    if resources.iter().any(|(_, weight)| *weight != 1) {
        return Err("args.resources: weights must be 1".to_owned());
    }
    args.balanced = resources.into_iter().map(|(resource, _)| resource).collect();
    Ok(())
}

fn affinity(words: &AffinityWords, args: &mut Args) -> Result<(), String> {
    let weight = words.hard_pod_affinity_weight.unwrap_or(1);
    if !(0..=100).contains(&weight) {
        return Err("args.hardPodAffinityWeight: not in valid range [0-100]".to_owned());
    }
    args.hard_pod_affinity_weight = weight;
    args.ignore_preferred_terms_of_existing_pods = words.ignore_preferred_terms_of_existing_pods;
    Ok(())
}

fn spread(words: SpreadWords, args: &mut Args) -> Result<(), String> {
    match words.defaulting_type.as_deref() {
        None | Some("System") if words.default_constraints.is_empty() => return Ok(()),
        Some("System") => {
            return Err(
                "args.defaultConstraints: when .defaultingType is System, .defaultConstraints must be empty".to_owned(),
            );
        }
        None | Some("List") => {}
        Some(other) => return Err(format!("args.defaultingType: Unsupported value: {other:?}")),
    }
    let mut list: Vec<(String, i64, bool)> = Vec::new();
    for (index, constraint) in words.default_constraints.into_iter().enumerate() {
        let at = format!("args.defaultConstraints[{index}]");
        if constraint.max_skew <= 0 {
            return Err(format!("{at}.maxSkew: must be greater than zero"));
        }
        if constraint.topology_key.is_empty() {
            return Err(format!("{at}.topologyKey: Required value: can not be empty"));
        }
        let hard = match constraint.when_unsatisfiable.as_str() {
            "DoNotSchedule" => true,
            "ScheduleAnyway" => false,
            other => return Err(format!("{at}.whenUnsatisfiable: Unsupported value: {other:?}")),
        };
        if list
            .iter()
            .any(|(key, _, must)| (key, *must) == (&constraint.topology_key, hard))
        {
            return Err(format!(
                "{at}: Duplicate value: {{{}, {}}}",
                constraint.topology_key, constraint.when_unsatisfiable
            ));
        }
        list.push((constraint.topology_key, constraint.max_skew, hard));
    }
    args.spread = SpreadDefaults::List(list);
    Ok(())
}

fn node_affinity(words: NodeAffinityWords, args: &mut Args) -> Result<(), String> {
    let Some(added) = words.added_affinity else {
        return Ok(());
    };
    let affinity: NodeAffinity =
        serde_json::from_value(added.clone()).map_err(|error| format!("args.addedAffinity: {error}"))?;
    // What was not understood is not there any more.
    if serde_json::to_value(&affinity).is_ok_and(|understood| understood != added) {
        return Err("args.addedAffinity: has fields that are not known".to_owned());
    }
    args.added_affinity = Some(affinity);
    Ok(())
}

fn preemption(words: &PreemptionWords, args: &mut Args) -> Result<(), String> {
    let percent = words.min_candidate_nodes_percentage.unwrap_or(10);
    let nodes = words.min_candidate_nodes_absolute.unwrap_or(100);
    if !(0..=100).contains(&percent) {
        return Err("args.minCandidateNodesPercentage: not in valid range [0-100]".to_owned());
    }
    let (Ok(percent), Ok(nodes)) = (usize::try_from(percent), usize::try_from(nodes)) else {
        return Err("args.minCandidateNodesAbsolute: must be greater than or equal to 0".to_owned());
    };
    if (percent, nodes) == (0, 0) {
        return Err("args.minCandidateNodesPercentage, args.minCandidateNodesAbsolute: both cannot be zero".to_owned());
    }
    args.candidates = (percent, nodes);
    Ok(())
}
