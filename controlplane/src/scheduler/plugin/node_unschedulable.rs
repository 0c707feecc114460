//! NodeUnschedulable: cordoned nodes take only pods that tolerate it.

use super::{Plugin, Rejection};
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;
use k8s_openapi::api::core::v1::Taint;
use proto::api::taint;

/// Refuses cordoned nodes.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if !node.unschedulable {
        return Ok(());
    }
    let cordoned = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    if taint::tolerated(&cordoned, pod.tolerations()) {
        return Ok(());
    }
    Err(Rejection::fixed(
        Plugin::NodeUnschedulable,
        "node(s) were unschedulable",
    ))
}
