//! The strategic merge patch that makes the server's status equal to ours where it is ours. Pure.

use crate::id::PodUid;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

/// Status fields the kubelet owns: absent from the new status means removed from the server's. Others (`nominatedNodeName`,
/// `resourceClaimStatuses`) belong to other writers and are never named.
const OWNED: [&str; 12] = [
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "qosClass",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Lists that the server would merge by key, so that an address that went would stay.
const REPLACED: [&str; 2] = ["podIPs", "hostIPs"];

/// The patch of `metadata.uid` (a precondition) and `status`. `previous` is what the server last acknowledged: a condition
/// that stood there and no longer does is deleted; conditions of other writers are left alone.
pub(super) fn status_patch(uid: &PodUid, status: &PodStatus, previous: Option<&PodStatus>) -> Value {
    let mut fields = match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    for name in OWNED {
        fields.entry(name).or_insert(Value::Null);
    }
    for name in REPLACED {
        if let Some(Value::Array(items)) = fields.get_mut(name) {
            items.insert(0, json!({"$patch": "replace"}));
        }
    }
    let types = |status: &PodStatus| -> Vec<String> {
        status
            .conditions
            .iter()
            .flatten()
            .map(|condition| condition.type_.clone())
            .collect()
    };
    let kept = types(status);
    let dropped = previous
        .map(types)
        .unwrap_or_default()
        .into_iter()
        .filter(|type_| !kept.contains(type_));
    let removals: Vec<Value> = dropped
        .map(|type_| json!({"type": type_, "$patch": "delete"}))
        .collect();
    if !removals.is_empty() {
        let conditions = fields.entry("conditions").or_insert_with(|| json!([]));
        if let Value::Array(items) = conditions {
            items.extend(removals);
        }
    }
    json!({"metadata": {"uid": uid.as_str()}, "status": fields})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).expect("a status")
    }

    #[test]
    fn absent_fields_are_removed_and_address_lists_replaced() {
        let new = status(json!({"phase": "Running", "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}));
        let patch = status_patch(&PodUid::new("u"), &new, None);
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["status"]["reason"], Value::Null);
        assert!(
            patch["status"]
                .as_object()
                .is_some_and(|fields| fields.contains_key("message"))
        );
        assert_eq!(
            patch["status"]["podIPs"],
            json!([{"$patch": "replace"}, {"ip": "10.0.0.2"}])
        );
        assert!(patch["status"].get("nominatedNodeName").is_none());
        assert!(
            patch["status"].get("conditions").is_none(),
            "foreign conditions are not touched"
        );
    }

    #[test]
    fn a_condition_that_went_is_deleted_by_type() {
        let condition = |type_: &str| json!({"type": type_, "status": "True"});
        let old = status(json!({"conditions": [condition("Ready"), condition("PodResizePending")]}));
        let new = status(json!({"conditions": [condition("Ready")]}));
        let patch = status_patch(&PodUid::new("u"), &new, Some(&old));
        let removal = json!({"type": "PodResizePending", "$patch": "delete"});
        assert_eq!(patch["status"]["conditions"][1], removal);
        assert_eq!(patch["status"]["conditions"].as_array().map(Vec::len), Some(2));
    }
}
