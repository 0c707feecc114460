//! TaintToleration: untolerated NoSchedule and NoExecute taints refuse, PreferNoSchedule ones score.

use super::Rejection;
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;
use proto::api::taint;

/// Weight of the score.
pub const WEIGHT: i64 = 3;

/// Refuses nodes with an untolerated taint.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    match taint::find_untolerated(&node.taints, pod.tolerations(), &["NoSchedule", "NoExecute"]) {
        None => Ok(()),
        Some(_) => Err(Rejection::fixed("TaintToleration", "node(s) had untolerated taint(s)")),
    }
}

/// Untolerated PreferNoSchedule taints; to be normalised in reverse.
pub fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let soft = node.taints.iter().filter(|t| t.effect == "PreferNoSchedule");
    let count = soft.filter(|t| !taint::tolerated(t, pod.tolerations())).count();
    i64::try_from(count).unwrap_or(i64::MAX)
}
