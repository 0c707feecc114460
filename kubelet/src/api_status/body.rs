//! The body of a status patch. Pure.

use crate::reason;
use crate::reason::condition::{POD_RESIZE_IN_PROGRESS, POD_RESIZE_PENDING};
use client::ordered::Arrange;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The fields a patch always speaks of, so that what is no longer so is cleared.
const CLEARED: [&str; 6] = [
    "reason",
    "message",
    "podIP",
    "hostIP",
    "startTime",
    "observedGeneration",
];

/// The same of a condition: those are merged, too, and one that holds has no reason why it did not.
const CLEARED_IN_CONDITIONS: [&str; 3] = ["lastProbeTime", "message", "reason"];

/// The strategic merge patch that makes a pod's status this one, refused by the server for another UID.
pub(super) fn patch(pod: &Pod, status: &PodStatus) -> Value {
    // Others in a status are other writers'.
    let own = |conditions: &Vec<PodCondition>| {
        let mut own: Vec<PodCondition> = conditions
            .iter()
            .filter(|c| reason::condition::OWN.contains(&c.type_.as_str()))
            .cloned()
            .collect();
        own.arrange_by(|a, b| a.type_.cmp(&b.type_));
        own
    };
    let mut told = status.clone();
    told.conditions = status.conditions.as_ref().map(own);
    // Not this writer's to tell.
    told.resource_claim_statuses = None;
    told.nominated_node_name = None;
    let mut fields = match serde_json::to_value(&told) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    for field in CLEARED {
        fields.entry(field).or_insert(Value::Null);
    }
    for (field, has) in [
        ("containerStatuses", told.container_statuses.is_some()),
        ("initContainerStatuses", told.init_container_statuses.is_some()),
    ] {
        if !has {
            fields.insert(field.to_owned(), Value::Null);
        }
    }
    let conditions = fields.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        for field in CLEARED_IN_CONDITIONS {
            condition.entry(field).or_insert(Value::Null);
        }
    }
    if may_have_been_resized(pod)
        && let Some(Value::Array(conditions)) = fields.get_mut("conditions")
    {
        // Merged by type otherwise: what holds no more would stay.
        for kind in [POD_RESIZE_IN_PROGRESS, POD_RESIZE_PENDING] {
            if !conditions.iter().any(|condition| condition["type"] == kind) {
                conditions.push(json!({"$patch": "delete", "type": kind}));
            }
        }
    }
    let pod_ips = told.pod_ips.iter().flatten().map(|ip| &ip.ip);
    fields.insert("podIPs".to_owned(), replaced(pod_ips));
    let host_ips = told.host_ips.iter().flatten().map(|ip| &ip.ip);
    fields.insert("hostIPs".to_owned(), replaced(host_ips));
    json!({"metadata": {"uid": pod.metadata.uid}, "status": fields})
}

/// A list of addresses in place of the one that was told before. Merged by address otherwise: those of an earlier sandbox, or the node's
/// earlier ones, would stay.
fn replaced<'a>(ips: impl Iterator<Item = &'a String>) -> Value {
    let mut list: Vec<Value> = ips.map(|ip| json!({"ip": ip})).collect();
    list.push(json!({"$patch": "replace"}));
    Value::Array(list)
}

/// Whether the spec was ever changed; before that nothing was resized.
fn may_have_been_resized(pod: &Pod) -> bool {
    pod.metadata.generation.is_some_and(|generation| generation > 1)
}

/// What stands for a body's status alone, to be remembered in place of it: a tree of one takes 10 kB.
pub(super) fn digest(body: &Value) -> [u8; 32] {
    let status = body.get("status").unwrap_or(&Value::Null);
    // Fields are in order: what is equal has one text.
    Sha256::digest(status.to_string()).into()
}

/// The revision a pod was delivered at; 0 if it has none.
pub(super) fn revision(pod: &Pod) -> u64 {
    pod.metadata
        .resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}
