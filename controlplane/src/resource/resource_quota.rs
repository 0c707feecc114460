//! ResourceQuotas. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Strategy;
use super::field::{at, entries, list, text};
use super::resource_name;
use super::{clear_status, isolate};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The ResourceQuota kind's strategy.
pub(super) struct ResourceQuota;

const SCOPES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// Scopes that are only asked about as they are.
const WITHOUT_VALUES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "Terminating",
];

impl Strategy for ResourceQuota {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        amounts(&mut errors, spec, "spec", "hard");
        scopes(&mut errors, spec);
        selected_scopes(&mut errors, spec);
        errors
    }

    /// What was counted under another selector says nothing of what the quota is about now: nothing is charged to it until it is counted
    /// anew. Upstream keeps the status, and charges on top of it.
    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        isolate(new, old, subresource);
        let path = &["spec", "scopeSelector"];
        if subresource.is_empty() && at(new, path) != at(old, path) {
            clear_status(new);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        let status = |object: &Value| {
            let mut errors = FieldErrors::default();
            for key in ["hard", "used"] {
                amounts(&mut errors, at(object, &["status"]), "status", key);
            }
            errors
        };
        if subresource == "status" {
            return FieldErrors::of_update(new, old, status);
        }
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        let path = &["spec", "scopes"];
        if names(list(new, path)) != names(list(old, path)) {
            errors.push(FieldError::invalid_value(
                "spec.scopes",
                at(new, path),
                "field is immutable",
            ));
        }
        errors
    }
}

fn names(items: &[Value]) -> BTreeSet<&str> {
    items.iter().filter_map(Value::as_str).collect()
}

/// Resources and how much of each.
fn amounts(errors: &mut FieldErrors, part: &Value, base: &str, key: &str) {
    for (name, value) in entries(part, &[key]) {
        let path = format!("{base}.{key}[{name}]");
        resource_name::quota(errors, name, &path);
        resource_name::amount(errors, name, value, &path);
    }
}

/// Whether the scope can be about the resource.
fn fits(scope: &str, resource: &str) -> bool {
    const OF_PODS: &[&str] = &[
        "cpu",
        "limits.cpu",
        "limits.memory",
        "memory",
        "pods",
        "requests.cpu",
        "requests.memory",
    ];
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&resource),
        scope if SCOPES.contains(&scope) => OF_PODS.contains(&resource),
        _ => true,
    }
}

/// How many of the quota's resources the scope cannot be about.
fn misfits(spec: &Value, scope: &str) -> usize {
    entries(spec, &["hard"])
        .filter(|(name, _)| resource_name::is_quota(name) && !fits(scope, name))
        .count()
}

/// Whether the scopes exclude each other.
fn conflicts<'s>(scopes: impl Iterator<Item = &'s str>) -> usize {
    let scopes: BTreeSet<&str> = scopes.collect();
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    let both = |pair: &&[&str; 2]| pair.iter().all(|scope| scopes.contains(scope));
    pairs.iter().filter(both).count()
}

fn scopes(errors: &mut FieldErrors, spec: &Value) {
    let all = at(spec, &["scopes"]);
    let mut add = |why: &str| errors.push(FieldError::invalid_value("spec.scopes", all, why));
    let named = list(spec, &["scopes"]);
    // Each of the known scopes is held against the resources; of the others there is nothing to hold.
    for scope in named.iter().filter_map(Value::as_str) {
        if !SCOPES.contains(&scope) {
            add("unsupported scope");
        }
    }
    for scope in names(named) {
        for _ in 0..misfits(spec, scope) {
            add("unsupported scope applied to resource");
        }
    }
    for _ in 0..conflicts(named.iter().filter_map(Value::as_str)) {
        add("conflicting scopes");
    }
}

fn selected_scopes(errors: &mut FieldErrors, spec: &Value) {
    let path = "spec.scopeSelector.matchExpressions";
    let rules = list(spec, &["scopeSelector", "matchExpressions"]);
    for rule in rules {
        let (scope, operator) = (text(rule, &["scopeName"]), text(rule, &["operator"]));
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(
                format!("{path}.scopeName"),
                scope,
                "unsupported scope",
            ));
        }
        if WITHOUT_VALUES.contains(&scope) && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                       ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                       ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(format!("{path}.operator"), operator, why));
        }
        let values = list(rule, &["values"]);
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::invalid_value(
                format!("{path}.values"),
                at(rule, &["values"]),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{path}.operator"), other, why));
            }
        }
    }
    let chosen = || rules.iter().map(|rule| text(rule, &["scopeName"]));
    for scope in chosen().collect::<BTreeSet<_>>() {
        for _ in 0..misfits(spec, scope) {
            let (selector, why) = (at(spec, &["scopeSelector"]), "unsupported scope applied to resource");
            errors.push(FieldError::invalid_value(path, selector, why));
        }
    }
    for _ in 0..conflicts(chosen()) {
        errors.push(FieldError::invalid_value(
            path,
            at(spec, &["scopes"]),
            "conflicting scopes",
        ));
    }
}
