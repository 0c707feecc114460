//! DefaultTolerationSeconds: pods stay 300 s on a node that stopped being ready or reachable. Pure.

use serde_json::{Value, json};

const SECONDS: i64 = 300;

/// Adds the two default tolerations unless the pod has its own for them.
pub(super) fn add_defaults(pod: &mut Value) {
    let spec = super::object_at(pod, "spec");
    let tolerations = super::array_at(spec, "tolerations");
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let own = |toleration: &Value| {
            let text = |field: &str| toleration[field].as_str().unwrap_or_default().to_owned();
            let (its_key, effect) = (text("key"), text("effect"));
            (its_key == key || its_key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if !tolerations.iter().any(own) {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}));
        }
    }
}
