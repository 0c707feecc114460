//! TaintNodesByCondition: a new node takes no pods until it is found ready. Pure.

use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Adds the taint `not-ready:NoSchedule` unless it is there.
pub(super) fn taint_new(node: &mut Value) {
    let spec = super::object_at(node, "spec");
    let taints = super::array_at(spec, "taints");
    let there = taints
        .iter()
        .any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule");
    if !there {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
