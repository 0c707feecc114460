//! The historic `--policy-config-file`: predicates and priorities by their old names, and the profile they mean. Pure.
//!
//! Source: contract §14; names, defaults, the order predicates run in and what each became are those of upstream's last release
//! that read such files (1.22). What has no plugin here is refused where pods could be placed against its word, and told of
//! where they cannot: pods with claims stay pending whatever plugins run.

use super::args::RatioArguments;
use super::{ElectionWords, SchedulerConfig, leave_out};
use crate::scheduler::extender::words::{self, ExtenderWords};
use crate::scheduler::plugin::Plugin;
use crate::scheduler::profile::{Args, Profile, SpreadDefaults, Strategy};
use crate::scheduler::queue::BackoffTimes;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Weights of priorities go up to it, as those of plugins.
const WEIGHT_MAX: i64 = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    kind: String,
    api_version: String,
    /// Without it the defaults run, with an empty list only those that always do.
    #[serde(default)]
    predicates: Option<Vec<PredicateWords>>,
    #[serde(default)]
    priorities: Option<Vec<PriorityWords>>,
    #[serde(default)]
    extenders: Vec<ExtenderWords>,
    #[serde(default)]
    hard_pod_affinity_symmetric_weight: i64,
    #[serde(default)]
    always_check_all_predicates: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PredicateWords {
    name: String,
    #[serde(default)]
    argument: Option<PredicateArgument>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PredicateArgument {
    #[serde(default)]
    service_affinity: Option<Value>,
    #[serde(default)]
    labels_presence: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PriorityWords {
    name: String,
    #[serde(default)]
    weight: i64,
    #[serde(default)]
    argument: Option<PriorityArgument>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PriorityArgument {
    #[serde(default)]
    service_anti_affinity: Option<Value>,
    #[serde(default)]
    label_preference: Option<Value>,
    #[serde(default)]
    requested_to_capacity_ratio_arguments: Option<RatioArguments>,
}

/// What became of a predicate.
enum Predicate {
    /// These filters.
    Filters(&'static [Plugin]),
    /// No plugin here does it; why that places no pod against its word, or which may be.
    Nobody(&'static str),
    /// It is gone.
    Gone,
}

/// By name, in the order they run in.
const PREDICATES: [(&str, Predicate); 24] = [
    (
        "CheckNodeUnschedulable",
        Predicate::Filters(&[Plugin::NodeUnschedulable]),
    ),
    (
        "GeneralPredicates",
        Predicate::Filters(&[
            Plugin::NodeResourcesFit,
            Plugin::NodeName,
            Plugin::NodePorts,
            Plugin::NodeAffinity,
        ]),
    ),
    ("HostName", Predicate::Filters(&[Plugin::NodeName])),
    ("PodFitsHostPorts", Predicate::Filters(&[Plugin::NodePorts])),
    ("PodFitsPorts", Predicate::Filters(&[Plugin::NodePorts])),
    ("MatchNodeSelector", Predicate::Filters(&[Plugin::NodeAffinity])),
    ("PodFitsResources", Predicate::Filters(&[Plugin::NodeResourcesFit])),
    ("NoDiskConflict", Predicate::Nobody(DISKS)),
    ("PodToleratesNodeTaints", Predicate::Filters(&[Plugin::TaintToleration])),
    // Conditions of nodes are taints since 1.12.
    ("CheckNodeCondition", Predicate::Filters(&[Plugin::TaintToleration])),
    (
        "CheckNodeMemoryPressure",
        Predicate::Filters(&[Plugin::TaintToleration]),
    ),
    ("CheckNodeDiskPressure", Predicate::Filters(&[Plugin::TaintToleration])),
    ("CheckNodePIDPressure", Predicate::Filters(&[Plugin::TaintToleration])),
    ("CheckNodeLabelPresence", Predicate::Gone),
    ("CheckServiceAffinity", Predicate::Gone),
    ("MaxEBSVolumeCount", Predicate::Nobody(DISKS)),
    ("MaxGCEPDVolumeCount", Predicate::Nobody(DISKS)),
    ("MaxCSIVolumeCountPred", Predicate::Nobody(CLAIMS)),
    ("MaxAzureDiskVolumeCount", Predicate::Nobody(DISKS)),
    ("MaxCinderVolumeCount", Predicate::Nobody(DISKS)),
    ("CheckVolumeBinding", Predicate::Nobody(CLAIMS)),
    ("NoVolumeZoneConflict", Predicate::Nobody(CLAIMS)),
    ("EvenPodsSpread", Predicate::Filters(&[Plugin::PodTopologySpread])),
    ("MatchInterPodAffinity", Predicate::Filters(&[Plugin::InterPodAffinity])),
];
const CLAIMS: &str = "no plugin here does it; pods that need claims stay pending";
const DISKS: &str =
    "no plugin here does it; pods that need claims stay pending, disks that pods name themselves are not looked at";

/// Always there.
const MANDATORY: [&str; 2] = ["CheckNodeUnschedulable", "PodToleratesNodeTaints"];
/// Without a list. Those for volumes are left out.
const DEFAULT_PREDICATES: [&str; 3] = ["GeneralPredicates", "EvenPodsSpread", "MatchInterPodAffinity"];
/// Without a list.
const DEFAULT_PRIORITIES: [(&str, i64); 8] = [
    ("SelectorSpreadPriority", 1),
    ("InterPodAffinityPriority", 1),
    ("LeastRequestedPriority", 1),
    ("BalancedResourceAllocation", 1),
    ("NodeAffinityPriority", 1),
    ("TaintTolerationPriority", 1),
    ("ImageLocalityPriority", 1),
    ("EvenPodsSpreadPriority", 2),
];

/// The plugin a priority became.
fn scoring(priority: &str) -> Option<Plugin> {
    Some(match priority {
        "LeastRequestedPriority" | "MostRequestedPriority" | RATIO => Plugin::NodeResourcesFit,
        "BalancedResourceAllocation" => Plugin::NodeResourcesBalancedAllocation,
        SELECTOR_SPREAD | "EvenPodsSpreadPriority" => Plugin::PodTopologySpread,
        "InterPodAffinityPriority" => Plugin::InterPodAffinity,
        "NodeAffinityPriority" => Plugin::NodeAffinity,
        "TaintTolerationPriority" => Plugin::TaintToleration,
        "ImageLocalityPriority" => Plugin::ImageLocality,
        _ => return None,
    })
}
const RATIO: &str = "RequestedToCapacityRatio";
const SELECTOR_SPREAD: &str = "SelectorSpreadPriority";

/// A policy as it was read.
#[derive(Debug)]
pub struct Policy {
    /// What the scheduler is told.
    pub config: SchedulerConfig,
    /// What of it does nothing here, each with its field.
    pub warnings: Vec<String>,
}

impl Policy {
    /// Reads a file, in JSON or YAML.
    ///
    /// # Errors
    /// The first mistake, with its field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if (file.api_version.as_str(), file.kind.as_str()) != ("v1", "Policy") {
            return Err(format!("want v1 Policy, found {} {}", file.api_version, file.kind));
        }
        if file.always_check_all_predicates {
            return Err("alwaysCheckAllPredicates: a node's first refusal ends its filters here".to_owned());
        }
        let mut warnings = Vec::new();
        let mut args = Args::default();
        let filters = filters(file.predicates, &mut warnings)?;
        let scores = scores(file.priorities, &mut args, &mut warnings)?;
        args.hard_pod_affinity_weight = match file.hard_pod_affinity_symmetric_weight {
            // As if it were not there.
            0 => args.hard_pod_affinity_weight,
            weight @ 1..=100 => weight,
            other => {
                return Err(format!(
                    "hardPodAffinitySymmetricWeight: Invalid value: {other}: not in valid range [0-100]"
                ));
            }
        };
        let extenders = words::read(file.extenders)?;
        let mut profiles = vec![Profile {
            filters,
            scores,
            args,
            ..Profile::default()
        }];
        leave_out(&mut profiles, &extenders);
        let config = SchedulerConfig {
            profiles,
            backoff: BackoffTimes::default(),
            election: ElectionWords::default(),
            extenders,
        };
        Ok(Self { config, warnings })
    }
}

/// Plugins at Filter, in the order of the predicates.
fn filters(words: Option<Vec<PredicateWords>>, warnings: &mut Vec<String>) -> Result<Vec<Plugin>, String> {
    let mut wanted: Vec<&str> = MANDATORY.to_vec();
    if words.is_none() {
        wanted.extend(DEFAULT_PREDICATES);
    }
    for (index, words) in words.into_iter().flatten().enumerate() {
        let at = format!("predicates[{index}]");
        if let Some(argument) = &words.argument {
            return Err(custom(&at, argument));
        }
        let known = PREDICATES.iter().find(|(name, _)| *name == words.name);
        match known {
            Some((name, Predicate::Filters(_))) => wanted.push(name),
            Some((name, Predicate::Nobody(why))) => warnings.push(format!("{at}.name: {name}: {why}")),
            Some((name, Predicate::Gone)) => {
                return Err(format!("{at}.name: {name} is not supported: no plugin does it"));
            }
            None => return Err(format!("{at}.name: predicate type not found for {:?}", words.name)),
        }
    }
    let mut filters = Vec::new();
    for (name, predicate) in &PREDICATES {
        if let Predicate::Filters(plugins) = predicate
            && wanted.contains(name)
        {
            plugins.iter().for_each(|plugin| add(&mut filters, *plugin));
        }
    }
    Ok(filters)
}

fn add(filters: &mut Vec<Plugin>, plugin: Plugin) {
    if !filters.contains(&plugin) {
        filters.push(plugin);
    }
}

/// Predicates that a file made up.
fn custom(at: &str, argument: &PredicateArgument) -> String {
    match (&argument.service_affinity, &argument.labels_presence) {
        (Some(_), None) => format!("{at}.argument.serviceAffinity: is not supported: no plugin does it"),
        (None, Some(_)) => format!("{at}.argument.labelsPresence: is not supported: no plugin does it"),
        _ => format!("{at}.argument: exactly 1 predicate argument is required"),
    }
}

/// Plugins at Score with their weights, in the order of the priorities' names. Of two that became one plugin the first by name
/// gives the weight, and of one name the last, as upstream.
fn scores(
    words: Option<Vec<PriorityWords>>,
    args: &mut Args,
    warnings: &mut Vec<String>,
) -> Result<Vec<(Plugin, i64)>, String> {
    let mut wanted: BTreeMap<&str, i64> = BTreeMap::new();
    if words.is_none() {
        wanted.extend(DEFAULT_PRIORITIES);
    }
    let words = words.unwrap_or_default();
    for (index, words) in words.iter().enumerate() {
        let at = format!("priorities[{index}]");
        if !(1..=WEIGHT_MAX).contains(&words.weight) {
            let weight = words.weight;
            return Err(format!(
                "{at}.weight: Invalid value: {weight}: must be in the range [1, {WEIGHT_MAX}]"
            ));
        }
        let name = match (&words.argument, words.name.as_str()) {
            (Some(argument), _) => ratio(&at, argument, args)?,
            (None, "EqualPriority") => continue,
            (None, "NodePreferAvoidPodsPriority") => {
                warnings.push(format!(
                    "{at}.name: NodePreferAvoidPodsPriority: no plugin here does it; nodes' annotation preferAvoidPods is not read"
                ));
                continue;
            }
            (None, "ServiceSpreadingPriority") => SELECTOR_SPREAD,
            (None, RATIO) => {
                return Err(format!(
                    "{at}.argument.requestedToCapacityRatioArguments: Required value"
                ));
            }
            (None, name) => name,
        };
        if scoring(name).is_none() {
            return Err(format!("{at}.name: priority type not found for {name:?}"));
        }
        wanted.insert(name, words.weight);
        if wanted
            .keys()
            .filter(|name| scoring(name) == Some(Plugin::NodeResourcesFit))
            .count()
            > 1
        {
            return Err(format!(
                "{at}.name: {name}: of LeastRequestedPriority, MostRequestedPriority and {RATIO} only one can be used"
            ));
        }
    }
    if wanted.contains_key("MostRequestedPriority") {
        args.fit.strategy = Strategy::MostAllocated;
    }
    if !wanted.contains_key(SELECTOR_SPREAD) {
        args.spread = SpreadDefaults::List(Vec::new());
    }
    let mut scores: Vec<(Plugin, i64)> = Vec::new();
    for (plugin, weight) in wanted
        .iter()
        .filter_map(|(name, weight)| Some((scoring(name)?, *weight)))
    {
        if scores.iter().all(|(known, _)| *known != plugin) {
            scores.push((plugin, weight));
        }
    }
    Ok(scores)
}

/// Priorities that a file made up: the one that still can be, whatever it is called.
fn ratio(at: &str, argument: &PriorityArgument, args: &mut Args) -> Result<&'static str, String> {
    let given = [
        argument.service_anti_affinity.is_some(),
        argument.label_preference.is_some(),
    ];
    let no = |field: &str| Err(format!("{at}.argument.{field}: is not supported: no plugin does it"));
    match (given, &argument.requested_to_capacity_ratio_arguments) {
        ([false, false], Some(ratio)) => {
            let at = format!("{at}.argument.requestedToCapacityRatioArguments");
            ratio.apply(args).map_err(|why| format!("{at}.{why}"))?;
            Ok(RATIO)
        }
        ([true, false], None) => no("serviceAntiAffinity"),
        ([false, true], None) => no("labelPreference"),
        _ => Err(format!("{at}.argument: exactly 1 priority argument is required")),
    }
}

#[cfg(test)]
mod tests;
