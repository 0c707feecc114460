//! What every object has: reads and rules of `metadata` that hold for all kinds (control-plane contract §2, §4). Pure.

use crate::resource::Kind;
use crate::resource::field::{at, int, list, list_mut, set, text};
use jiff::{Timestamp, Unit};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Finalizer that makes the garbage collector orphan dependents first.
pub(super) const ORPHAN: &str = "orphan";
/// Finalizer that makes the garbage collector delete dependents first.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

pub(super) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

pub(super) fn revision(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

pub(super) fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

pub(super) fn is_deleting(object: &Value) -> bool {
    !at(object, &["metadata", "deletionTimestamp"]).is_null()
}

pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    let all = list(object, &["metadata", "finalizers"]);
    all.iter().filter_map(Value::as_str).collect()
}

/// `metadata` for writing; made if it is not there.
pub(super) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    object["metadata"]
        .as_object_mut()
        .expect("made an object the line before")
}

/// A time as the API writes it: seconds, UTC.
pub(super) fn time(now: Timestamp) -> String {
    now.round(Unit::Second)
        .unwrap_or(now)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// Removes what clients may not set on a new object, and what is not stored.
pub(super) fn clear_system_fields(object: &mut Value) {
    let metadata = metadata_mut(object);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
    ] {
        metadata.remove(key);
    }
}

/// Gives a change what only the server decides: identity and lifecycle as they were.
pub(super) fn keep_system_fields(new: &mut Value, old: &Value) {
    let metadata = metadata_mut(new);
    metadata.remove("selfLink");
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ] {
        match &old["metadata"][key] {
            Value::Null => metadata.remove(key),
            value => metadata.insert(key.to_owned(), value.clone()),
        };
    }
}

/// Drops each owner that is there already, with all it says; the warning about that names their uids (contract §4, upstream's words).
pub(super) fn drop_repeated_owners(object: &mut Value, is_after_admission: bool) -> Option<String> {
    const OWNERS: [&str; 2] = ["metadata", "ownerReferences"];
    let mut seen = HashSet::new();
    let owners = list(object, &OWNERS);
    let is_first: Vec<bool> = owners.iter().map(|owner| seen.insert(owner)).collect();
    let repeated: Vec<&str> = owners
        .iter()
        .zip(&is_first)
        .filter(|(_, is_first)| !**is_first)
        .map(|(owner, _)| text(owner, &["uid"]))
        .collect();
    if repeated.is_empty() {
        return None;
    }
    let when = if is_after_admission {
        " after mutating admission happens"
    } else {
        ""
    };
    let warning = format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such \
         requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    );
    let mut is_first = is_first.into_iter();
    if let Some(owners) = list_mut(object, &OWNERS) {
        owners.retain(|_| is_first.next().unwrap_or(true));
    }
    Some(warning)
}

/// Raises the generation of a kind that has one.
pub(super) fn raise_generation(object: &mut Value) {
    let generation = int(object, &["metadata", "generation"]).unwrap_or(0);
    set(object, &["metadata", "generation"], generation + 1);
}

/// Whether a change of a deleted object that leaves no finalizer completes the deletion (contract §2.3).
pub(super) fn completes_deletion(kind: &Kind, new: &Value) -> bool {
    let grace = int(new, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    let holds_content = is_namespace(kind) && !list(new, &["spec", "finalizers"]).is_empty();
    is_deleting(new) && grace == 0 && finalizers(new).is_empty() && !holds_content
}

pub(super) fn is_namespace(kind: &Kind) -> bool {
    kind.plural == "namespaces" && kind.group.is_empty()
}

/// Whether the kind is that of custom resource definitions.
pub(super) fn is_definition(kind: &Kind) -> bool {
    kind.plural == "customresourcedefinitions" && kind.group == "apiextensions.k8s.io"
}

pub(super) fn is_service(kind: &Kind) -> bool {
    kind.plural == "services" && kind.group.is_empty()
}

/// Whether the kind is that by which addresses of Services are held.
pub(super) fn is_address(kind: &Kind) -> bool {
    kind.plural == "ipaddresses" && kind.group == "networking.k8s.io"
}

pub(super) fn is_pod(kind: &Kind) -> bool {
    kind.plural == "pods" && kind.group.is_empty()
}

/// Marks an object that finalizers hold back as deleting; an object marked before stays as it is.
pub(super) fn mark_deleting(object: &mut Value, now: Timestamp, grace_seconds: i64) {
    let first = !is_deleting(object);
    if first {
        let at = now
            .checked_add(jiff::SignedDuration::from_secs(grace_seconds))
            .unwrap_or(now);
        set(object, &["metadata", "deletionTimestamp"], time(at));
        if int(object, &["metadata", "generation"]).is_some_and(|generation| generation > 0) {
            raise_generation(object);
        }
    }
    if first || grace_seconds == 0 {
        set(object, &["metadata", "deletionGracePeriodSeconds"], grace_seconds);
    }
}

/// Marks an object that finalizers hold back as deleting, without grace.
pub(in crate::apiserver) fn mark_gracelessly(object: &mut Value, now: Timestamp) {
    mark_deleting(object, now, 0);
}

/// The reply to a finished deletion of a kind that does not return the object.
pub(super) fn deleted_status(kind: &Kind, object: &Value) -> Value {
    let mut details = json!({"name": name(object), "kind": kind.plural, "uid": uid(object)});
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
