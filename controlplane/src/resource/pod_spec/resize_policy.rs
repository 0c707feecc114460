//! What is wrong with a container's `resizePolicy`. Texts are upstream's. Pure.

use super::container::Role;
use crate::resource::field::{at, list, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use serde_json::Value;
use std::collections::BTreeSet;

/// Each resource has one policy, and a pod that never restarts a container cannot ask for it.
pub(super) fn validate(errors: &mut FieldErrors, container: &Value, base: &str, role: Role, spec: &Value) {
    let path = format!("{base}.resizePolicy");
    let policies = list(container, &["resizePolicy"]);
    let runs_to_its_end = role == Role::Init && text(container, &["restartPolicy"]) != "Always";
    if runs_to_its_end && !policies.is_empty() {
        let value = at(container, &["resizePolicy"]).clone();
        errors.push(FieldError::invalid(path, value, "must not be set for init containers"));
        return;
    }
    let mut resources = BTreeSet::new();
    for (i, policy) in policies.iter().enumerate() {
        let (resource, restart) = (text(policy, &["resourceName"]), text(policy, &["restartPolicy"]));
        if !resources.insert(resource) {
            let value = Value::from(resource);
            let kind = FieldErrorKind::Duplicate;
            errors.push(FieldError::new(format!("{path}[{i}]"), kind, value, ""));
        }
        one_of(errors, &path, resource, &["cpu", "memory"]);
        one_of(errors, &path, restart, &["NotRequired", "RestartContainer"]);
        if text(spec, &["restartPolicy"]) == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path.as_str(), restart, why));
        }
    }
}

fn one_of(errors: &mut FieldErrors, path: &str, value: &str, supported: &[&str]) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}
