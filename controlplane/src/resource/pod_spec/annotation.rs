//! What is wrong with annotations that mean something to pods. Texts are upstream's. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::resource::field::{at, entries, list, text};
use crate::resource::field_error::{FieldError, FieldErrors};

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Annotations of a pod or template with that spec, at `path`.
pub(super) fn validate(errors: &mut FieldErrors, annotations: &Value, spec: &Value, path: &str) {
    let mut containers = None;
    for (key, value) in entries(annotations, &[]) {
        let value = value.as_str().unwrap_or("");
        let keyed = format!("{path}[{key}]");
        if key == MIRROR && text(spec, &["nodeName"]).is_empty() {
            let why = "must set spec.nodeName if mirror pod annotation is set";
            errors.push(FieldError::invalid(keyed, value, why));
        } else if key == DELETION_COST && !is_cost(value) {
            errors.push(FieldError::invalid(keyed, value, "must be a 32bit integer"));
        } else if let Some(name) = key.strip_prefix(APP_ARMOR) {
            let names = containers.get_or_insert_with(|| names(spec));
            if !names.contains(name) {
                errors.push(FieldError::invalid(keyed.as_str(), name, "container not found"));
            }
            let known = ["", "runtime/default", "unconfined"].contains(&value) || value.starts_with("localhost/");
            if !known {
                let why = format!("invalid AppArmor profile name: \"{value}\"");
                errors.push(FieldError::invalid(keyed, value, why));
            }
        } else if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp(errors, value, &format!("{path}.{key}"));
        }
    }
}

fn names(spec: &Value) -> BTreeSet<&str> {
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|key| list(spec, &[key]))
        .filter_map(|container| at(container, &["name"]).as_str())
        .collect()
}

/// A number of 32 bits as it is written shortest: no plus, no zeros before it.
fn is_cost(value: &str) -> bool {
    value.parse::<i32>().is_ok_and(|cost| cost.to_string() == value)
}

fn seccomp(errors: &mut FieldErrors, profile: &str, path: &str) {
    if ["runtime/default", "docker/default", "unconfined"].contains(&profile) {
        return;
    }
    match profile.strip_prefix("localhost/") {
        Some(file) => super::rule::descending(errors, file, path),
        None => errors.push(FieldError::invalid(path, profile, "must be a valid seccomp profile")),
    }
}
