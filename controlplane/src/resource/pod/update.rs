//! What an update of a Pod may change, endpoint by endpoint. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::resource::field::{at, copy, int, list, list_mut, set, text};
use crate::resource::field_error::{FieldError, FieldErrors};
use crate::resource::pod_spec::validate;

const MAY_CHANGE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
    additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

/// The annotation of pods that show a static pod.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// What is wrong with the annotations and the spec and was not before; a spec that is as it was is not looked at.
pub(super) fn spec(new: &Value, old: &Value) -> FieldErrors {
    let check = match has_same_spec(new, old) {
        true => validate::pod_annotations,
        false => validate::pod,
    };
    FieldErrors::of_update(new, old, check)
}

fn has_same_spec(new: &Value, old: &Value) -> bool {
    at(new, &["spec"]) == at(old, &["spec"])
}

/// The main endpoint.
pub(super) fn main(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    if has_same_spec(new, old) {
        return errors;
    }
    let gated = !list(old, &["spec", "schedulingGates"]).is_empty();
    for key in ["containers", "initContainers"] {
        if list(new, &["spec", key]).len() != list(old, &["spec", key]).len() {
            errors.push(FieldError::forbidden(
                format!("spec.{key}"),
                format!("pod updates may not add or remove {}", plural(key)),
            ));
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    deadline(&mut errors, new, old);
    tolerations(&mut errors, new, old);
    scheduling_gates(&mut errors, new, old);
    if gated {
        node_selector(&mut errors, new, old);
    }
    let mut allowed = new.clone();
    neutralize(&mut allowed, old, gated);
    let changes = differences(at(old, &["spec"]), at(&allowed, &["spec"]));
    if !changes.is_empty() {
        errors.push(FieldError::forbidden(
            "spec",
            format!("{MAY_CHANGE}\n{}", changes.join("\n")),
        ));
    }
    errors
}

fn plural(key: &str) -> &'static str {
    if key == "containers" {
        "containers"
    } else {
        "init containers"
    }
}

/// Gives `pod` the old values of all that may change, so that only forbidden changes are left.
fn neutralize(pod: &mut Value, old: &Value, gated: bool) {
    for kind in ["containers", "initContainers"] {
        let images: Vec<Value> = list(old, &["spec", kind])
            .iter()
            .map(|container| at(container, &["image"]).clone())
            .collect();
        for (container, image) in list_mut(pod, &["spec", kind]).into_iter().flatten().zip(images) {
            set(container, &["image"], image);
        }
    }
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        copy(pod, old, &["spec", key]);
    }
    if int(old, &["spec", "terminationGracePeriodSeconds"]).is_some_and(|grace| grace < 0)
        && int(pod, &["spec", "terminationGracePeriodSeconds"]) == Some(1)
    {
        copy(pod, old, &["spec", "terminationGracePeriodSeconds"]);
    }
    if gated {
        copy(pod, old, &["spec", "nodeSelector"]);
        if !at(pod, &["spec", "affinity"]).is_null() || !at(old, &["spec", "affinity"]).is_null() {
            copy(pod, old, &["spec", "affinity", "nodeAffinity"]);
        }
    }
}

fn deadline(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let path = &["spec", "activeDeadlineSeconds"];
    let (before, after) = (int(old, path), int(new, path));
    match (before, after) {
        (Some(before), Some(after)) if after > before => errors.push(FieldError::invalid(
            "spec.activeDeadlineSeconds",
            after,
            "must be less than or equal to previous value",
        )),
        (Some(_), None) => errors.push(FieldError::invalid(
            "spec.activeDeadlineSeconds",
            Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => {}
    }
}

fn tolerations(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let path = &["spec", "tolerations"];
    let after: BTreeSet<_> = list(new, path).iter().map(without_seconds).collect();
    let mut before = list(old, path).iter().map(without_seconds);
    if before.any(|toleration| !after.contains(&toleration)) {
        errors.push(FieldError::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

/// What a toleration is about; how long is no part of it.
fn without_seconds(toleration: &Value) -> [&str; 4] {
    ["key", "operator", "value", "effect"].map(|key| text(toleration, &[key]))
}

fn scheduling_gates(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let path = &["spec", "schedulingGates"];
    let before = by_name(list(old, path));
    let added: Vec<&str> = list(new, path)
        .iter()
        .map(|gate| text(gate, &["name"]))
        .filter(|name| !before.contains_key(name))
        .collect();
    if !added.is_empty() {
        errors.push(FieldError::forbidden(
            "spec.schedulingGates",
            format!(
                "only deletion is allowed, but found new scheduling gates '{}'",
                added.join(",")
            ),
        ));
    }
}

/// While gated, a node selector may grow.
fn node_selector(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let path = &["spec", "nodeSelector"];
    let kept = at(old, path)
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| at(new, path).get(key) == Some(value));
    if !kept {
        errors.push(FieldError::invalid(
            "spec.nodeSelector",
            at(new, path).clone(),
            "only additions are allowed (no mutations or deletions)",
        ));
    }
}

/// Paths whose values differ, with both values, one per line.
fn differences(old: &Value, new: &Value) -> Vec<String> {
    fn walk(old: &Value, new: &Value, path: &str, lines: &mut Vec<String>) {
        match (old, new) {
            _ if old == new => {}
            (Value::Object(before), Value::Object(after)) => {
                let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
                keys.sort();
                keys.dedup();
                for key in keys {
                    let dotted = format!("{path}.{key}");
                    walk(at(old, &[key]), at(new, &[key]), &dotted, lines);
                }
            }
            (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
                for (i, (old, new)) in before.iter().zip(after).enumerate() {
                    walk(old, new, &format!("{path}[{i}]"), lines);
                }
            }
            _ => {
                if !old.is_null() {
                    lines.push(format!("- {path}: {old}"));
                }
                if !new.is_null() {
                    lines.push(format!("+ {path}: {new}"));
                }
            }
        }
    }
    let mut lines = Vec::new();
    walk(old, new, "spec", &mut lines);
    lines
}

/// The status endpoint: a container that has ended for good does not come back.
pub(super) fn status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let node = &["spec", "nodeName"];
    if text(new, node) != text(old, node) {
        errors.push(FieldError::forbidden("status.nodeName", "may not be changed directly"));
    }
    let qos = &["status", "qosClass"];
    let before = text(old, qos);
    if !before.is_empty() && text(new, qos) != before {
        errors.push(FieldError::invalid(
            "status.qosClass",
            text(new, qos),
            "field is immutable",
        ));
    }
    let policy = text(old, &["spec", "restartPolicy"]);
    if policy == "Always" {
        return errors;
    }
    let after = by_name(list(new, &["status", "containerStatuses"]));
    let containers = by_name(list(old, &["spec", "containers"]));
    let has_own_policy = |name| {
        let container = containers.get(name);
        container.is_some_and(|container| !text(container, &["restartPolicy"]).is_empty())
    };
    for (i, status) in list(old, &["status", "containerStatuses"]).iter().enumerate() {
        let ended = at(status, &["state", "terminated"]);
        let code = int(ended, &["exitCode"]).unwrap_or(0);
        let name = text(status, &["name"]);
        if ended.is_null() || (policy == "OnFailure" && code != 0) || has_own_policy(name) {
            continue;
        }
        let after = after.get(name);
        if after.is_some_and(|status| at(status, &["state", "terminated"]).is_null()) {
            errors.push(FieldError::forbidden(
                format!("status.containerStatuses[{i}].state"),
                "may not be transitioned to non-terminated state",
            ));
        }
    }
    errors
}

/// The items of a list by their names, of equal ones the first: lists may be long, and each is looked up for each of another.
fn by_name(items: &[Value]) -> BTreeMap<&str, &Value> {
    items.iter().rev().map(|item| (text(item, &["name"]), item)).collect()
}

/// Ephemeral containers are only ever added, and to pods that a kubelet takes from the API server.
pub(super) fn ephemeral(new: &Value, old: &Value) -> FieldErrors {
    if !at(old, &["metadata", "annotations", MIRROR]).is_null() {
        let why = "static pods do not support ephemeral containers";
        return FieldErrors::from(vec![FieldError::forbidden("", why)]);
    }
    let mut errors = spec(new, old);
    let path = &["spec", "ephemeralContainers"];
    let after = by_name(list(new, path));
    for before in list(old, path) {
        let name = text(before, &["name"]);
        match after.get(name) {
            None => errors.push(FieldError::forbidden(
                "spec.ephemeralContainers",
                format!("existing ephemeral containers \"{name}\" may not be removed\n"),
            )),
            Some(after) if *after != before => errors.push(FieldError::forbidden(
                "spec.ephemeralContainers",
                format!("existing ephemeral containers \"{name}\" may not be changed\n"),
            )),
            Some(_) => {}
        }
    }
    errors
}
