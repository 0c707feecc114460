//! NodeAffinity: nodeSelector and required node affinity refuse, preferred node affinity scores; what the configuration adds
//! (`addedAffinity`) does both for every pod.

use super::{Plugin, PreFilterRejection, Rejection};
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;
use crate::scheduler::profile::Args;
use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm};
use proto::api::affinity;
use std::collections::BTreeSet;

fn own(pod: &PodInfo) -> Option<&NodeAffinity> {
    let affinity = pod.spec().and_then(|spec| spec.affinity.as_ref());
    affinity.and_then(|affinity| affinity.node_affinity.as_ref())
}

fn required(affinity: Option<&NodeAffinity>) -> Option<&NodeSelector> {
    affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
}

fn preferred(affinity: Option<&NodeAffinity>) -> &[PreferredSchedulingTerm] {
    let terms = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref());
    terms.unwrap_or_default()
}

/// The names a term allows; `None` is any.
fn names_of(term: &NodeSelectorTerm) -> Option<BTreeSet<&str>> {
    let fields = term.match_fields.iter().flatten();
    let mut named = fields
        .filter(|field| field.key == "metadata.name" && field.operator == "In")
        .map(|field| {
            field
                .values
                .iter()
                .flatten()
                .map(String::as_str)
                .collect::<BTreeSet<_>>()
        });
    let first = named.next()?;
    Some(named.fold(first, |left, more| left.intersection(&more).copied().collect()))
}

/// The only nodes that the pod's required affinity can allow, if it says their names; `None` is any.
///
/// # Errors
/// It says names that contradict each other.
pub fn names(pod: &PodInfo) -> Result<Option<BTreeSet<&str>>, PreFilterRejection> {
    let Some(selector) = required(own(pod)).filter(|selector| !selector.node_selector_terms.is_empty()) else {
        return Ok(None);
    };
    // Terms are alternatives: one that names nobody allows anybody.
    let named: Option<Vec<_>> = selector.node_selector_terms.iter().map(names_of).collect();
    let Some(named) = named else { return Ok(None) };
    let names: BTreeSet<&str> = named.into_iter().flatten().collect();
    if names.is_empty() {
        return Err(PreFilterRejection {
            plugin: Plugin::NodeAffinity,
            reason: "pod affinity terms conflict",
        });
    }
    Ok(Some(names))
}

/// Whether any node could be refused.
pub fn filters(args: &Args, pod: &PodInfo) -> bool {
    args.added_affinity.is_some() || is_choosy(pod)
}

/// Whether the pod's own selector and affinity may not allow some node.
pub fn is_choosy(pod: &PodInfo) -> bool {
    pod.spec()
        .is_some_and(|spec| spec.node_selector.is_some() || own(pod).is_some())
}

/// Whether the pod's own selector and required affinity allow the node.
pub fn allows(pod: &PodInfo, node: &NodeInfo) -> bool {
    let allows = |spec| affinity::pod_allows(spec, &node.name, &node.labels);
    !is_choosy(pod) || pod.spec().is_none_or(allows)
}

/// Refuses nodes that the configuration or the pod does not select.
pub fn filter(args: &Args, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let added = required(args.added_affinity.as_ref());
    if !added.is_none_or(|selector| affinity::selector_matches(selector, &node.name, &node.labels)) {
        let reason = "node(s) didn't match scheduler-enforced node affinity";
        return Err(Rejection::fixed(Plugin::NodeAffinity, reason));
    }
    if allows(pod, node) {
        return Ok(());
    }
    Err(Rejection::fixed(
        Plugin::NodeAffinity,
        "node(s) didn't match Pod's node affinity/selector",
    ))
}

/// Whether there is anything to score.
pub fn scores(args: &Args, pod: &PodInfo) -> bool {
    !preferred(own(pod)).is_empty() || !preferred(args.added_affinity.as_ref()).is_empty()
}

/// Weights of matched preferred terms; to be normalised.
pub fn score(args: &Args, pod: &PodInfo, node: &NodeInfo) -> i64 {
    let terms = preferred(own(pod))
        .iter()
        .chain(preferred(args.added_affinity.as_ref()));
    terms
        .filter(|term| term.weight != 0 && affinity::term_matches(&term.preference, &node.name, &node.labels))
        .map(|term| i64::from(term.weight))
        .sum()
}
