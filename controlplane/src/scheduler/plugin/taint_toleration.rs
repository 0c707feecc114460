//! TaintToleration: untolerated NoSchedule and NoExecute taints refuse, PreferNoSchedule ones score.

use super::{Plugin, Rejection};
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;
use proto::api::taint;

/// Whether no taint of the node keeps the pod away.
pub fn allows(pod: &PodInfo, node: &NodeInfo) -> bool {
    taint::find_untolerated(&node.taints, pod.tolerations(), &["NoSchedule", "NoExecute"]).is_none()
}

/// Refuses nodes with an untolerated taint.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if allows(pod, node) {
        return Ok(());
    }
    Err(Rejection::fixed(
        Plugin::TaintToleration,
        "node(s) had untolerated taint(s)",
    ))
}

/// Untolerated PreferNoSchedule taints; to be normalised in reverse.
pub fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let soft = node.taints.iter().filter(|t| t.effect == "PreferNoSchedule");
    let count = soft.filter(|t| !taint::tolerated(t, pod.tolerations())).count();
    i64::try_from(count).unwrap_or(i64::MAX)
}
