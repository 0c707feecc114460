//! Label selectors inside objects: validation and matching. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proto::api::selector::Selector;
use serde_json::Value;

use super::field::{at, entries, invalid_each, list, text};
use super::metadata::validate_labels;
use super::name::{label_value, qualified_name};
use crate::resource::field_error::{FieldError, FieldErrors};

/// Everything wrong with a `LabelSelector` at `path`; an absent one is fine.
pub fn validate(errors: &mut FieldErrors, selector: &Value, path: &str) {
    validate_labels(at(selector, &["matchLabels"]), &format!("{path}.matchLabels"), errors);
    for (i, rule) in list(selector, &["matchExpressions"]).iter().enumerate() {
        let base = format!("{path}.matchExpressions[{i}]");
        let values = list(rule, &["values"]);
        match text(rule, &["operator"]) {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.push(FieldError::required(
                        format!("{base}.values"),
                        "must be specified when `operator` is 'In' or 'NotIn'",
                    ));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.push(FieldError::forbidden(
                        format!("{base}.values"),
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    ));
                }
            }
            other => errors.push(FieldError::invalid(
                format!("{base}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
        invalid_each(
            errors,
            &format!("{base}.key"),
            at(rule, &["key"]),
            qualified_name(text(rule, &["key"])),
        );
        for (j, value) in values.iter().enumerate() {
            let problems = label_value(value.as_str().unwrap_or(""));
            invalid_each(errors, &format!("{base}.values[{j}]"), value, problems);
        }
    }
}

/// Whether the selector selects everything: no requirement at all.
pub fn is_empty(selector: &Value) -> bool {
    entries(selector, &["matchLabels"]).next().is_none() && list(selector, &["matchExpressions"]).is_empty()
}

/// Whether the selector (absent: selects nothing) matches the labels.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let parsed: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap_or_default();
    let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap_or_default();
    Selector::from_optional(parsed.as_ref()).is_ok_and(|selector| selector.matches(&labels))
}
