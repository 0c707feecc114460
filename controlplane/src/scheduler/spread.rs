//! One spread constraint of a pod. Pure.

use crate::held::PodSpec;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use proto::api::selector::Selector;
use std::collections::BTreeMap;

/// How evenly pods are to lie over the domains of one label.
#[derive(Clone, Debug)]
pub struct SpreadConstraint {
    /// The label of nodes.
    pub topology_key: String,
    /// How many more pods than the emptiest domain has, any domain may have.
    pub max_skew: i64,
    /// Whether it must hold (DoNotSchedule); it is a wish otherwise.
    pub hard: bool,
    /// The pods that are counted.
    pub selector: Selector,
    /// With fewer domains than these the emptiest counts as empty.
    pub min_domains: usize,
    /// Whether only nodes count that the pod's node selector and required node affinity allow.
    pub honors_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub honors_taints: bool,
}

impl SpreadConstraint {
    /// Reads one; `labels` are the pod's, for `matchLabelKeys`.
    pub fn new(constraint: &TopologySpreadConstraint, labels: &BTreeMap<String, String>) -> Self {
        let keys = constraint.match_label_keys.iter().flatten();
        let same = keys.filter_map(|key| Some((key.clone(), labels.get(key)?.clone())));
        let mut wanted = constraint.label_selector.clone();
        for (key, value) in same {
            let selector = wanted.get_or_insert_default();
            let pairs = selector.match_labels.get_or_insert_default();
            // Two values of one key cannot both hold, so the selector's own stays: the API server refuses such pods.
            pairs.entry(key).or_insert(value);
        }
        Self {
            topology_key: constraint.topology_key.clone(),
            max_skew: i64::from(constraint.max_skew),
            hard: constraint.when_unsatisfiable == "DoNotSchedule",
            selector: Selector::from_optional(wanted.as_ref()).unwrap_or_else(|_| Selector::nothing()),
            min_domains: constraint
                .min_domains
                .map_or(1, |domains| usize::try_from(domains).unwrap_or(1)),
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    /// Those of a pod with these labels.
    pub fn of(spec: &PodSpec, labels: &BTreeMap<String, String>) -> Vec<Self> {
        let constraints = spec.topology_spread_constraints.iter().flatten();
        constraints.map(|constraint| Self::new(constraint, labels)).collect()
    }

    /// One of those the configuration gives to pods without their own. `selector` is the pods of the same owner.
    pub fn default_of(key: &str, max_skew: i64, hard: bool, selector: Selector) -> Self {
        Self {
            topology_key: key.to_owned(),
            max_skew,
            hard,
            selector,
            min_domains: 1,
            honors_affinity: true,
            honors_taints: false,
        }
    }
}
