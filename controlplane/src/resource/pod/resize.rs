//! The `resize` subresource: what it may change of a pod, and what is wrong with a change (control-plane contract §2.2,
//! KEP-1287). Texts are upstream's. Pure.

use serde_json::Value;

use super::restore_all;
use super::update::MIRROR;
use crate::resource::field::{at, copy, entries, list, list_mut, set, text};
use crate::resource::field_error::{FieldError, FieldErrors};
use proto::api::quantity::Quantity;

/// What a resize may change of the resources.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
const PARTS: [&str; 2] = ["requests", "limits"];
const ONLY_RESIZABLE: &str = "only cpu and memory resources are mutable";

/// Leaves of what was sent only resources and resize policies. Lists of other containers stay as sent, to be refused.
pub(super) fn keep_only_resources(new: &mut Value, old: &Value) {
    let sent = new.clone();
    restore_all(new, old);
    copy(new, &sent, &["spec", "resources"]);
    for kind in ["containers", "initContainers"] {
        let wanted = list(&sent, &["spec", kind]);
        if renamed(kind, wanted, list(old, &["spec", kind])).is_some() {
            copy(new, &sent, &["spec", kind]);
            continue;
        }
        let containers = list_mut(new, &["spec", kind]).into_iter().flatten();
        for (container, sent) in containers.zip(wanted) {
            for key in ["resources", "resizePolicy"] {
                copy(container, sent, &[key]);
            }
        }
    }
}

/// What is wrong with a resize of a pod from `old` to `new`.
pub(super) fn validate(new: &Value, old: &Value) -> FieldErrors {
    let refused = |why| FieldErrors::from(vec![FieldError::forbidden("", why)]);
    if !at(old, &["metadata", "annotations", MIRROR]).is_null() {
        return refused("static pods cannot be resized");
    }
    if text(old, &["spec", "os", "name"]) == "windows" {
        return refused("windows pods cannot be resized");
    }
    for kind in ["containers", "initContainers"] {
        if let Some(errors) = renamed(kind, list(new, &["spec", kind]), list(old, &["spec", kind])) {
            return FieldErrors::from(errors);
        }
    }
    let mut errors = super::update::spec(new, old);
    if super::qos(new) != super::qos(old) {
        errors.push(FieldError::invalid(
            "spec",
            super::qos(new),
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
    if !is_supported(old) {
        errors.push(FieldError::forbidden(
            "spec",
            "Pod running on node without support for resize",
        ));
    }
    errors.append(changes(new, old));
    errors
}

/// What is wrong with the lists' names, if anything is.
fn renamed(kind: &str, new: &[Value], old: &[Value]) -> Option<Vec<FieldError>> {
    if new.len() != old.len() {
        let why = format!("{kind} may not be added or removed on resize");
        return Some(vec![FieldError::forbidden(format!("spec.{kind}"), why)]);
    }
    let name = |container| text(container, &["name"]);
    let others = new.iter().zip(old).enumerate();
    let errors: Vec<FieldError> = others
        .filter(|(_, (new, old))| name(new) != name(old))
        .map(|(i, _)| {
            FieldError::forbidden(
                format!("spec.{kind}[{i}].name"),
                format!("{kind} may not be renamed or reordered on resize"),
            )
        })
        .collect();
    (!errors.is_empty()).then_some(errors)
}

/// Whether the pod's node resizes: one that does tells the resources of what runs. Unknown while nothing does.
fn is_supported(pod: &Value) -> bool {
    let mut statuses = list(pod, &["status", "containerStatuses"]).iter();
    let running = statuses.find(|status| !at(status, &["state", "running"]).is_null());
    running.is_none_or(|status| !at(status, &["resources"]).is_null())
}

/// What is wrong with the changes themselves: nothing is taken away, nothing else changes.
fn changes(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let spec = |pod| at(pod, &["spec"]);
    removals(&mut errors, spec(new), spec(old), "spec.resources");
    if !is_same_otherwise(at(new, &["spec", "resources"]), at(old, &["spec", "resources"])) {
        errors.push(FieldError::forbidden("spec", ONLY_RESIZABLE));
    }
    for kind in ["containers", "initContainers"] {
        let pairs = list(new, &["spec", kind]).iter().zip(list(old, &["spec", kind]));
        for (i, (new, old)) in pairs.enumerate() {
            if kind == "containers" || text(old, &["restartPolicy"]) == "Always" {
                removals(&mut errors, new, old, &format!("spec.{kind}[{i}].resources"));
                let same = at(new, &["resizePolicy"]) == at(old, &["resizePolicy"])
                    && is_same_otherwise(at(new, &["resources"]), at(old, &["resources"]));
                if !same {
                    let why = match kind {
                        "containers" => ONLY_RESIZABLE,
                        _ => "only cpu and memory resources for sidecar containers are mutable",
                    };
                    errors.push(FieldError::forbidden("spec", why));
                }
            } else if new != old {
                let why = "resources for non-sidecar init containers are immutable";
                errors.push(FieldError::forbidden("spec", why));
            }
        }
    }
    errors
}

/// Refuses that a request or a limit is given up; `of` is a container, or the spec for the pod's own.
fn removals(errors: &mut FieldErrors, new: &Value, old: &Value, path: &str) {
    for (part, why) in [
        ("requests", "resource requests cannot be removed"),
        ("limits", "resource limits cannot be removed"),
    ] {
        let kept = at(new, &["resources", part]);
        if entries(old, &["resources", part]).any(|(name, _)| kept.get(name).is_none()) {
            errors.push(FieldError::forbidden(format!("{path}.{part}"), why));
        }
    }
}

/// Whether resources differ in nothing but CPU and memory.
fn is_same_otherwise(new: &Value, old: &Value) -> bool {
    let rest = |resources: &Value| {
        let mut rest = resources.clone();
        for part in PARTS {
            let Some(amounts) = rest.get_mut(part).and_then(Value::as_object_mut) else {
                continue;
            };
            amounts.retain(|name, _| !RESIZABLE.contains(&name.as_str()));
            for amount in amounts.values_mut() {
                if let Some(Ok(parsed)) = amount.as_str().map(Quantity::parse) {
                    *amount = parsed.to_string().into();
                }
            }
            if amounts.is_empty() {
                set(&mut rest, &[part], Value::Null);
            }
        }
        rest
    };
    let (new, old) = (rest(new), rest(old));
    ["requests", "limits", "claims"]
        .iter()
        .all(|part| at(&new, &[part]) == at(&old, &[part]))
}

#[cfg(test)]
mod tests;
