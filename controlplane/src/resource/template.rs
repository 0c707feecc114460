//! What the workload kinds share: a selector, a pod template that must match it, replicas. Pure.

use serde_json::Value;

use super::field::{at, non_negative, text};
use super::pod_spec::validate;
use super::selector;
use crate::resource::field_error::{FieldError, FieldErrors};

/// `spec.selector` and `spec.template` of a workload whose pods always restart.
pub(super) fn validate_selected(errors: &mut FieldErrors, object: &Value, kind: &str) {
    validate_selector(errors, object, kind);
    let template = at(object, &["spec", "template"]);
    if template.is_null() {
        errors.push(FieldError::required("spec.template", ""));
        return;
    }
    let labels = at(template, &["metadata", "labels"]);
    let chosen = at(object, &["spec", "selector"]);
    if !selector::is_empty(chosen) && !selector::matches(chosen, labels) {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels.clone(),
            "`selector` does not match template `labels`",
        ));
    }
    errors.append(validate::template(template, "spec.template"));
    let policy = text(template, &["spec", "restartPolicy"]);
    if policy != "Always" {
        errors.push(FieldError::not_supported(
            "spec.template.spec.restartPolicy",
            policy,
            &["Always"],
        ));
    }
    if !at(template, &["spec", "activeDeadlineSeconds"]).is_null() {
        errors.push(FieldError::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        ));
    }
}

/// A selector that is there, right, and not empty.
pub(super) fn validate_selector(errors: &mut FieldErrors, object: &Value, kind: &str) {
    let chosen = at(object, &["spec", "selector"]);
    if chosen.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
        return;
    }
    selector::validate(errors, chosen, "spec.selector");
    if selector::is_empty(chosen) {
        // Of ReplicaSets upstream says what it says of Deployments.
        let kind = match kind {
            "ReplicaSet" => "deployment".to_owned(),
            kind => kind.to_lowercase(),
        };
        let why = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid_value("spec.selector", chosen, why));
    }
}

/// Integers of the spec that may not be negative.
pub(super) fn non_negatives(errors: &mut FieldErrors, object: &Value, keys: &[&str]) {
    let spec = at(object, &["spec"]);
    for key in keys {
        non_negative(errors, spec, "spec", key);
    }
}

/// A number that is not negative, or a percentage; `Err` says what is wrong.
pub(super) fn int_or_percent(value: &Value) -> Result<(), String> {
    match (value.as_i64(), value.as_str()) {
        (Some(number), _) if number < 0 => Err("must be greater than or equal to 0".to_owned()),
        (Some(_), _) => Ok(()),
        (_, Some(text)) => {
            let digits = text.strip_suffix('%').unwrap_or("");
            if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                Ok(())
            } else {
                Err(
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', or '93%', \
                     regex used for validation is '[0-9]+%')"
                        .to_owned(),
                )
            }
        }
        _ => Err("must be an integer or percentage (e.g '5%')".to_owned()),
    }
}

/// Whether a number or percentage is zero (absent counts as zero).
pub(super) fn is_zero(value: &Value) -> bool {
    match (value.as_i64(), value.as_str()) {
        (Some(number), _) => number == 0,
        (_, Some(text)) => text.trim_end_matches('%').bytes().all(|byte| byte == b'0'),
        _ => true,
    }
}

/// The percentage a value is, 0 for plain numbers.
pub(super) fn percent(value: &Value) -> i64 {
    let digits = value.as_str().and_then(|text| text.strip_suffix('%'));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
