//! What becomes of a definition: whether its names are accepted, whether it is established, how its end goes (control-plane contract
//! §9). Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::field::{at, list, text};
use crate::resource::{Group, Kind};

/// The finalizer that stays until no object of the definition is left.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether a condition is `True`.
pub(crate) fn is_true(definition: &Value, condition: &str) -> bool {
    let conditions = list(definition, &["status", "conditions"]);
    conditions
        .iter()
        .any(|one| text(one, &["type"]) == condition && text(one, &["status"]) == "True")
}

/// What of the names somebody else has: the reason and the words of the condition.
fn conflict(names: &Value, plural: &str, group: Option<&Group>) -> Option<(&'static str, String)> {
    let others: Vec<&Kind> = group
        .into_iter()
        .flat_map(|group| &group.versions)
        .flat_map(|version| &version.kinds)
        .map(|kind| &**kind)
        .filter(|kind| kind.plural != plural || kind.structural.is_none())
        .collect();
    let resource_taken = |name: &str| {
        others.iter().any(|kind| {
            kind.plural == name || kind.singular == name || kind.short_names.iter().any(|short| short == name)
        })
    };
    let kind_taken = |name: &str| others.iter().any(|kind| kind.kind == name || kind.list_kind == name);
    let told = |reason, name: &str| Some((reason, format!("{name:?} is already in use")));
    let name = |key: &str| text(names, &[key]);
    if resource_taken(name("plural")) {
        return told("PluralConflict", name("plural"));
    }
    if !name("singular").is_empty() && resource_taken(name("singular")) {
        return told("SingularConflict", name("singular"));
    }
    for short in list(names, &["shortNames"]).iter().filter_map(Value::as_str) {
        if resource_taken(short) {
            return told("ShortNamesConflict", short);
        }
    }
    if kind_taken(name("kind")) {
        return told("KindConflict", name("kind"));
    }
    if kind_taken(name("listKind")) {
        return told("ListKindConflict", name("listKind"));
    }
    None
}

/// The status of a definition among the other kinds of its group.
pub(crate) fn decide(definition: &Value, group: Option<&Group>, now: Timestamp) -> Value {
    let mut status = at(definition, &["status"]).clone();
    if !status.is_object() {
        status = json!({});
    }
    let names = at(definition, &["spec", "names"]);
    let taken = conflict(names, text(names, &["plural"]), group);
    let was_established = is_true(definition, "Established");
    let accepted = match &taken {
        Some((reason, message)) => condition("NamesAccepted", false, reason, message),
        None => condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
    };
    if taken.is_none() {
        status["acceptedNames"] = names.clone();
    }
    let established = match taken.is_none() || was_established {
        true => condition(
            "Established",
            true,
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
        false => condition("Established", false, "NotAccepted", "not all names are accepted"),
    };
    for one in [accepted, established] {
        put(&mut status, one, now);
    }
    if text(definition, &["spec", "group"]).ends_with(".k8s.io") {
        let url = text(definition, &["metadata", "annotations", "api-approved.kubernetes.io"]);
        let message = format!("approved in {url}");
        let one = condition(
            "KubernetesAPIApprovalPolicyConformant",
            true,
            "ApprovedAnnotation",
            &message,
        );
        put(&mut status, one, now);
    }
    status
}

/// Tells whether objects can be judged by the schema of a definition: one that was stored may be beyond what is taken today.
pub(crate) fn tell_schema(status: &mut Value, unusable: Option<&str>, now: Timestamp) {
    const KIND: &str = "NonStructuralSchema";
    match unusable {
        Some(why) => put(status, condition(KIND, true, "Violations", why), now),
        None => {
            if let Some(all) = status["conditions"].as_array_mut() {
                all.retain(|one| one["type"] != KIND);
            }
        }
    }
}

/// The status of a definition whose objects are being deleted, or are gone.
pub(crate) fn ending(definition: &Value, is_over: bool, now: Timestamp) -> Value {
    let mut status = at(definition, &["status"]).clone();
    if !status.is_object() {
        status = json!({});
    }
    let one = match is_over {
        false => condition(
            "Terminating",
            true,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        ),
        true => condition(
            "Terminating",
            false,
            "InstanceDeletionCompleted",
            "removed all instances",
        ),
    };
    put(&mut status, one, now);
    status
}

fn condition(kind: &str, is_true: bool, reason: &str, message: &str) -> Value {
    let status = if is_true { "True" } else { "False" };
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

/// Puts a condition in; its time moves only when its status does.
fn put(status: &mut Value, mut condition: Value, now: Timestamp) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(all) = status["conditions"].as_array_mut() else {
        return;
    };
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match all.iter_mut().find(|one| one["type"] == condition["type"]) {
        None => {
            condition["lastTransitionTime"] = json!(time);
            all.push(condition);
        }
        Some(one) => {
            condition["lastTransitionTime"] = match one["status"] == condition["status"] {
                true => one["lastTransitionTime"].clone(),
                false => json!(time),
            };
            *one = condition;
        }
    }
}
