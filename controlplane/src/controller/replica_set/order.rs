//! Which pods go first when there are too many.
//!
//! Upstream's order, made total: unassigned, then Pending < Unknown < Running, not ready, lower deletion cost, more siblings on
//! the node, ready for a shorter time (powers of two), more restarts, younger (powers of two), lower UID.

use crate::controller::pod;
use crate::held::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The annotation that ranks pods of equal health; lower goes first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// An invalid cost counts as 0, as an absent one does.
fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.annotations().get(DELETION_COST);
    text.filter(|t| t.as_str() == "0" || !t.starts_with(['+', '0']))
        .and_then(|t| t.parse().ok())
        .unwrap_or(0)
}

fn phase_rank(pod: &Pod) -> u8 {
    match pod::phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    statuses.map(|c| c.restart_count).max().unwrap_or(0)
}

/// The power of two of an age, so that ages of the same magnitude compare equal.
fn age_bucket(since: Option<Timestamp>, now: Timestamp) -> u32 {
    let age = since.map_or(0, |since| now.as_nanosecond() - since.as_nanosecond());
    u128::try_from(age).ok().and_then(u128::checked_ilog2).unwrap_or(0)
}

/// The pods, those to delete first in front.
pub fn deletion_order(mut pods: Vec<Arc<Pod>>, siblings: &[Arc<Pod>], now: Timestamp) -> Vec<Arc<Pod>> {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for sibling in siblings {
        *on_node.entry(pod::node_name(sibling)).or_default() += 1;
    }
    pods.sort_by_cached_key(|p| {
        let node = pod::node_name(p);
        let created = p.metadata.creation_timestamp.as_ref().map(|t| t.0);
        (
            !node.is_empty(),
            phase_rank(p),
            pod::is_ready(p),
            deletion_cost(p),
            Reverse(on_node.get(node).copied().unwrap_or(0)),
            age_bucket(pod::ready_since(p), now),
            Reverse(restarts(p)),
            age_bucket(created, now),
            p.uid(),
        )
    });
    pods
}
