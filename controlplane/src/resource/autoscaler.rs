//! What is wrong with the metrics of a HorizontalPodAutoscaler and how fast it may follow them. Texts are upstream's. Pure.

use serde_json::Value;

use super::field::{at, int, invalid_each, list, text};
use super::name::{dns1123_label, path_segment};
use super::resource_name::{self, quantity};
use crate::resource::field_error::{FieldError, FieldErrors};

/// Seconds decisions may be looked back upon.
const WINDOW_MAX: i64 = 3600;
/// Seconds a policy may count changes over.
const PERIOD_MAX: i64 = 1800;

/// The kinds of metrics, and the field of each.
const SOURCES: &[(&str, &str)] = &[
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

const TARGETS: &[&str] = &["Utilization", "Value", "AverageValue"];
const RAW_OR_UTILIZATION: &str = "must set either a target raw value or a target utilization";
const RAW_AND_UTILIZATION: &str = "may not set both a target raw value and a target utilization";

/// What an autoscaler scales or reads: a kind and a name.
pub(super) fn reference(errors: &mut FieldErrors, reference: &Value, path: &str) {
    for key in ["kind", "name"] {
        let (field, value) = (format!("{path}.{key}"), text(reference, &[key]));
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else {
            invalid_each(errors, &field, &Value::from(value), path_segment(value, false));
        }
    }
}

/// `spec.metrics`.
pub(super) fn metrics(errors: &mut FieldErrors, spec: &Value) {
    for (i, metric) in list(spec, &["metrics"]).iter().enumerate() {
        validate_metric(errors, metric, &format!("spec.metrics[{i}]"));
    }
}

fn validate_metric(errors: &mut FieldErrors, metric: &Value, path: &str) {
    let kind = text(metric, &["type"]);
    let field = format!("{path}.type");
    if kind.is_empty() {
        let why = "must specify a metric source type";
        errors.push(FieldError::required(field.as_str(), why));
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, key)| *key);
    if expected.is_none() {
        let names: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        // Upstream says it twice: of the type, and of what should stand beside it.
        for _ in 0..2 {
            errors.push(FieldError::not_supported(field.as_str(), kind, &names));
        }
    }
    // The first of them, in upstream's order, is looked into.
    let present: Vec<&str> = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .filter(|key| !at(metric, &[key]).is_null())
        .collect();
    if let Some(key) = present.first() {
        source(errors, at(metric, &[key]), key, &format!("{path}.{key}"));
    }
    if let Some(key) = expected.filter(|key| !present.contains(key)) {
        let why = "must populate information for the given metric source";
        errors.push(FieldError::required(format!("{path}.{key}"), why));
    }
    if present.len() != 1 {
        for key in present.iter().filter(|key| Some(**key) != expected) {
            let why = "must populate the given metric source only";
            errors.push(FieldError::forbidden(format!("{path}.{key}"), why));
        }
    }
}

fn source(errors: &mut FieldErrors, source: &Value, key: &str, path: &str) {
    let target = format!("{path}.target");
    let has = |key: &str| !at(source, &["target", key]).is_null();
    match key {
        "object" => {
            reference(
                errors,
                at(source, &["describedObject"]),
                &format!("{path}.describedObject"),
            );
            identifier(errors, source, path);
        }
        "external" | "pods" => identifier(errors, source, path),
        _ => resource(errors, source, key, path),
    }
    validate_target(errors, at(source, &["target"]), &target);
    let (none, both) = match key {
        "object" => (!has("value") && !has("averageValue"), None),
        "external" => (
            !has("value") && !has("averageValue"),
            (has("value") && has("averageValue")).then_some((
                "value",
                "may not set both a target value for metric and a per-pod target",
            )),
        ),
        "pods" => (!has("averageValue"), None),
        _ => (
            !has("averageUtilization") && !has("averageValue"),
            (has("averageUtilization") && has("averageValue")).then_some(("averageValue", RAW_AND_UTILIZATION)),
        ),
    };
    if none {
        let (field, why) = match key {
            "object" => ("averageValue", "must set either a target value or averageValue"),
            "external" => (
                "averageValue",
                "must set either a target value for metric or a per-pod target",
            ),
            "pods" => ("averageValue", "must specify a positive target averageValue"),
            _ => ("averageUtilization", RAW_OR_UTILIZATION),
        };
        errors.push(FieldError::required(format!("{target}.{field}"), why));
    }
    if let Some((field, why)) = both {
        errors.push(FieldError::forbidden(format!("{target}.{field}"), why));
    }
}

/// Which metric: its name.
fn identifier(errors: &mut FieldErrors, source: &Value, path: &str) {
    let name = text(source, &["metric", "name"]);
    let field = format!("{path}.metric.name");
    if name.is_empty() {
        errors.push(FieldError::required(field, "must specify a metric name"));
    } else {
        invalid_each(errors, &field, &Value::from(name), path_segment(name, false));
    }
}

/// Which resource, and of which container.
fn resource(errors: &mut FieldErrors, source: &Value, key: &str, path: &str) {
    let name = text(source, &["name"]);
    let field = format!("{path}.name");
    if name.is_empty() {
        errors.push(FieldError::required(field, "must specify a resource name"));
    } else if key == "containerResource" {
        resource_name::container(errors, name, &field);
    }
    if key != "containerResource" {
        return;
    }
    let container = text(source, &["container"]);
    let field = format!("{path}.container");
    if container.is_empty() {
        errors.push(FieldError::required(field, "must specify a container"));
    } else {
        invalid_each(errors, &field, &Value::from(container), dns1123_label(container));
    }
}

fn validate_target(errors: &mut FieldErrors, target: &Value, path: &str) {
    let kind = text(target, &["type"]);
    if kind.is_empty() {
        let why = "must specify a metric target type";
        errors.push(FieldError::required(format!("{path}.type"), why));
    }
    if !TARGETS.contains(&kind) {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(format!("{path}.type"), kind, why));
    }
    for key in ["value", "averageValue"] {
        let value = at(target, &[key]);
        if quantity(value).is_some_and(|amount| amount.is_negative() || amount.is_zero()) {
            errors.push(FieldError::invalid(
                format!("{path}.{key}"),
                value.clone(),
                "must be positive",
            ));
        }
    }
    if let Some(percent) = int(target, &["averageUtilization"])
        && percent < 1
    {
        let field = format!("{path}.averageUtilization");
        errors.push(FieldError::invalid(field, percent, "must be greater than 0"));
    }
}

/// `spec.behavior`.
pub(super) fn behavior(errors: &mut FieldErrors, spec: &Value) {
    for key in ["scaleUp", "scaleDown"] {
        let rules = at(spec, &["behavior", key]);
        if !rules.is_null() {
            scaling_rules(errors, rules, &format!("spec.behavior.{key}"));
        }
    }
}

fn scaling_rules(errors: &mut FieldErrors, rules: &Value, path: &str) {
    if let Some(window) = int(rules, &["stabilizationWindowSeconds"]) {
        let field = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            let why = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(field, window, why));
        } else if window > WINDOW_MAX {
            let why = format!("must be less than or equal to {WINDOW_MAX}");
            errors.push(FieldError::invalid(field, window, why));
        }
    }
    let select = at(rules, &["selectPolicy"]);
    let selections = ["Disabled", "Max", "Min"];
    if let Some(name) = select.as_str()
        && !selections.contains(&name)
    {
        errors.push(FieldError::not_supported(
            format!("{path}.selectPolicy"),
            name,
            &selections,
        ));
    }
    let tolerance = at(rules, &["tolerance"]);
    if quantity(tolerance).is_some_and(|amount| amount.is_negative()) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{path}.tolerance"), tolerance.clone(), why));
    }
    let policies = list(rules, &["policies"]);
    if policies.is_empty() {
        let why = "must specify at least one Policy";
        errors.push(FieldError::required(format!("{path}.policies"), why));
    }
    for (i, policy) in policies.iter().enumerate() {
        scaling_policy(errors, policy, &format!("{path}.policies[{i}]"));
    }
}

fn scaling_policy(errors: &mut FieldErrors, policy: &Value, path: &str) {
    let kind = text(policy, &["type"]);
    let kinds = ["Percent", "Pods"];
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{path}.type"), kind, &kinds));
    }
    for key in ["value", "periodSeconds"] {
        let number = int(policy, &[key]).unwrap_or(0);
        let field = format!("{path}.{key}");
        if number <= 0 {
            errors.push(FieldError::invalid(field, number, "must be greater than zero"));
        } else if key == "periodSeconds" && number > PERIOD_MAX {
            let why = format!("must be less than or equal to {PERIOD_MAX}");
            errors.push(FieldError::invalid(field, number, why));
        }
    }
}
