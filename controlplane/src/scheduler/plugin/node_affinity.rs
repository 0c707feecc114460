//! NodeAffinity: nodeSelector and required node affinity refuse, preferred node affinity scores.

use super::Rejection;
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;
use proto::api::affinity;

/// Weight of the score.
pub const WEIGHT: i64 = 2;

/// Refuses nodes the pod does not select.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let allowed = pod.spec().is_none_or(|spec| {
        (spec.node_selector.is_none() && spec.affinity.is_none())
            || affinity::pod_allows(spec, &node.name, &node.labels)
    });
    if allowed {
        return Ok(());
    }
    Err(Rejection::fixed(
        "NodeAffinity",
        "node(s) didn't match Pod's node affinity/selector",
    ))
}

/// Whether there is anything to score.
pub fn scores(pod: &PodInfo) -> bool {
    let node_affinity = pod
        .spec()
        .and_then(|s| s.affinity.as_ref())
        .and_then(|a| a.node_affinity.as_ref());
    let preferred = node_affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
    preferred.is_some_and(|p| !p.is_empty())
}

/// Weights of matched preferred terms; to be normalised.
pub fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
    pod.spec()
        .map_or(0, |spec| affinity::preferred_weight(spec, &node.name, &node.labels))
}
