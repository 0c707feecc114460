//! LimitRanges. Pure.

use std::collections::BTreeSet;

use proto::api::quantity::Quantity;
use serde_json::Value;

use super::Strategy;
use super::field::{at, entries, invalid_each, list, list_mut, object_mut, text};
use super::name::qualified_name;
use super::resource_name::{self, quantity};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

/// The LimitRange kind's strategy: container defaults follow from bounds.
pub(super) struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value) {
        for item in list_mut(object, &["spec", "limits"]).into_iter().flatten() {
            if text(item, &["type"]) == "Container" {
                for (to, from) in [
                    ("default", "max"),
                    ("defaultRequest", "default"),
                    ("defaultRequest", "min"),
                ] {
                    let source = at(item, &[from]).as_object().cloned().unwrap_or_default();
                    if source.is_empty() {
                        continue;
                    }
                    if let Some(target) = object_mut(item, &[to]) {
                        for (key, value) in source {
                            target.entry(key).or_insert(value);
                        }
                    }
                }
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let mut seen = BTreeSet::new();
        for (i, item) in list(object, &["spec", "limits"]).iter().enumerate() {
            let kind = text(item, &["type"]);
            let path = format!("spec.limits[{i}]");
            let field = format!("{path}.type");
            let problems = qualified_name(kind);
            if !problems.is_empty() {
                invalid_each(&mut errors, &field, &Value::from(kind), problems);
            } else if !kind.contains('/') && !TYPES.contains(&kind) {
                let why = "must be a standard limit type or fully qualified";
                errors.push(FieldError::invalid(field.as_str(), kind, why));
            }
            if !seen.insert(kind) {
                errors.push(FieldError::new(field, FieldErrorKind::Duplicate, Value::from(kind), ""));
            }
            bounds(&mut errors, item, kind, &path);
        }
        errors
    }
}

/// The types with plain names.
const TYPES: &[&str] = &["Container", "PersistentVolumeClaim", "Pod"];

/// What one item bounds, resource by resource.
fn bounds(errors: &mut FieldErrors, item: &Value, kind: &str, path: &str) {
    let mut names = BTreeSet::new();
    for key in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let is_default = key.starts_with("default");
        if kind == "Pod" && is_default {
            if entries(item, &[key]).next().is_some() {
                let why = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(format!("{path}.{key}"), why));
            }
            continue;
        }
        for (name, _) in entries(item, &[key]) {
            let field = format!("{path}.{key}[{name}]");
            if ["Container", "Pod"].contains(&kind) {
                resource_name::container(errors, name, &field);
            } else {
                resource_name::any(errors, name, &field);
            }
            names.insert(name.as_str());
        }
    }
    let has_storage = |key| !at(item, &[key, "storage"]).is_null();
    if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(format!("{path}.limits"), why));
    }
    for name in names {
        order(errors, item, kind, name, path);
        ratio(errors, item, name, path);
    }
}

/// Bounds and defaults of one resource do not contradict each other.
fn order(errors: &mut FieldErrors, item: &Value, kind: &str, name: &str, path: &str) {
    let amount = |key: &str| {
        let applies = kind != "Pod" || !key.starts_with("default");
        applies.then(|| quantity(at(item, &[key, name]))).flatten()
    };
    // The greater, the smaller, how each is called, and which of the keys is named and shown.
    for (low, high, low_name, high_name, field, shown) in [
        ("min", "max", "min", "max", "min", "min"),
        (
            "min",
            "defaultRequest",
            "min",
            "default request",
            "defaultRequest",
            "defaultRequest",
        ),
        (
            "defaultRequest",
            "max",
            "default request",
            "max",
            "defaultRequest",
            "defaultRequest",
        ),
        (
            "defaultRequest",
            "default",
            "default request",
            "default limit",
            "defaultRequest",
            "defaultRequest",
        ),
        ("min", "default", "min", "default", "default", "min"),
        ("default", "max", "default", "max", "default", "max"),
    ] {
        if let (Some(first), Some(second)) = (amount(low), amount(high))
            && first > second
        {
            errors.push(FieldError::invalid(
                format!("{path}.{field}[{name}]"),
                at(item, &[shown, name]).clone(),
                format!("{low_name} value {first} is greater than {high_name} value {second}"),
            ));
        }
    }
    if let (Some(limit), Some(request)) = (amount("default"), amount("defaultRequest"))
        && limit != request
        && !resource_name::may_overcommit(name)
    {
        errors.push(FieldError::invalid(
            format!("{path}.defaultRequest[{name}]"),
            at(item, &["defaultRequest", name]).clone(),
            format!("default value {limit} must equal to defaultRequest value {request} in {name}"),
        ));
    }
}

/// A limit is at least its request, and the bounds leave room for the ratio.
fn ratio(errors: &mut FieldErrors, item: &Value, name: &str, path: &str) {
    let value = at(item, &["maxLimitRequestRatio", name]);
    let Some(most) = quantity(value) else { return };
    let field = format!("{path}.maxLimitRequestRatio[{name}]");
    if most < Quantity::from_milli(1000) {
        let why = format!("ratio {most} is less than 1");
        errors.push(FieldError::invalid(field.as_str(), value.clone(), why));
    }
    let bound = |key: &str| quantity(at(item, &[key, name]));
    let (Some(low), Some(high)) = (bound("min"), bound("max")) else {
        return;
    };
    // Beyond this, thousandths do not fit 64 bits.
    const IN_MILLI: i64 = i64::MAX / 1000;
    let all = [most, high, low];
    let parts = if all.iter().all(|quantity| quantity.value() < IN_MILLI) {
        all.map(|quantity| quantity.milli_value() as f64 / 1000.0)
    } else {
        all.map(|quantity| quantity.value() as f64)
    };
    let [most_value, high, low] = parts;
    if most_value > high / low {
        let why = format!("ratio {most} is greater than max/min = {:.6}", high / low);
        errors.push(FieldError::invalid(field, value.clone(), why));
    }
}
