//! What is wrong with where a pod may run: node selector, affinity, tolerations, spreading. Pure.

use serde_json::Value;
use std::collections::BTreeMap;

use super::container::duplicate;
use crate::resource::field::{at, int, invalid_each, list, one_of, text};
use crate::resource::field_error::{FieldError, FieldErrors};
use crate::resource::metadata::validate_labels;
use crate::resource::name::{label_value, qualified_name};
use crate::resource::selector;

pub(super) fn validate(errors: &mut FieldErrors, spec: &Value, path: &str) {
    validate_labels(at(spec, &["nodeSelector"]), &format!("{path}.nodeSelector"), errors);
    tolerations(errors, list(spec, &["tolerations"]), &format!("{path}.tolerations"));
    let affinity = at(spec, &["affinity"]);
    node_affinity(
        errors,
        at(affinity, &["nodeAffinity"]),
        &format!("{path}.affinity.nodeAffinity"),
    );
    for key in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(errors, at(affinity, &[key]), &format!("{path}.affinity.{key}"));
    }
    spreading(errors, spec, path);
}

/// Everything wrong with tolerations.
pub(super) fn tolerations(errors: &mut FieldErrors, tolerations: &[Value], path: &str) {
    for (i, toleration) in tolerations.iter().enumerate() {
        validate_toleration(errors, toleration, &format!("{path}[{i}]"));
    }
}

fn validate_toleration(errors: &mut FieldErrors, toleration: &Value, path: &str) {
    let value = |key: &str| text(toleration, &[key]);
    if !value("key").is_empty() {
        invalid_each(
            errors,
            &format!("{path}.key"),
            at(toleration, &["key"]),
            qualified_name(value("key")),
        );
    } else if value("operator") != "Exists" {
        errors.push(FieldError::invalid(
            format!("{path}.operator"),
            value("operator"),
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ));
    }
    if !at(toleration, &["tolerationSeconds"]).is_null() && value("effect") != "NoExecute" {
        errors.push(FieldError::invalid(
            format!("{path}.effect"),
            value("effect"),
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    match value("operator") {
        "" | "Equal" => invalid_each(
            errors,
            &format!("{path}.operator"),
            at(toleration, &["value"]),
            label_value(value("value")),
        ),
        "Exists" => {
            if !value("value").is_empty() {
                errors.push(FieldError::invalid(
                    format!("{path}.operator"),
                    toleration.clone(),
                    "value must be empty when `operator` is 'Exists'",
                ));
            }
        }
        other => errors.push(FieldError::not_supported(
            format!("{path}.operator"),
            other,
            &["Equal", "Exists"],
        )),
    }
    if !value("effect").is_empty() {
        one_of(
            errors,
            &format!("{path}.effect"),
            value("effect"),
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        );
    }
}

fn node_affinity(errors: &mut FieldErrors, affinity: &Value, path: &str) {
    let required = at(affinity, &["requiredDuringSchedulingIgnoredDuringExecution"]);
    if !required.is_null() {
        let base = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution");
        node_selector(errors, required, &base);
    }
    let preferred = list(affinity, &["preferredDuringSchedulingIgnoredDuringExecution"]);
    for (i, item) in preferred.iter().enumerate() {
        let base = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}]");
        weight(errors, item, &base);
        node_term(errors, at(item, &["preference"]), &format!("{base}.preference"));
    }
}

/// Everything wrong with a node selector.
pub(super) fn node_selector(errors: &mut FieldErrors, selector: &Value, path: &str) {
    let base = format!("{path}.nodeSelectorTerms");
    let terms = list(selector, &["nodeSelectorTerms"]);
    if terms.is_empty() {
        let why = "must have at least one node selector term";
        errors.push(FieldError::required(base.as_str(), why));
    }
    for (i, term) in terms.iter().enumerate() {
        node_term(errors, term, &format!("{base}[{i}]"));
    }
}

fn weight(errors: &mut FieldErrors, item: &Value, path: &str) {
    let weight = int(item, &["weight"]).unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(
            format!("{path}.weight"),
            weight,
            "must be in the range 1-100",
        ));
    }
}

fn node_term(errors: &mut FieldErrors, term: &Value, path: &str) {
    for (i, rule) in list(term, &["matchExpressions"]).iter().enumerate() {
        let base = format!("{path}.matchExpressions[{i}]");
        let values = list(rule, &["values"]);
        match text(rule, &["operator"]) {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{base}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{base}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::required(
                format!("{base}.values"),
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
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
    }
    for (i, rule) in list(term, &["matchFields"]).iter().enumerate() {
        let base = format!("{path}.matchFields[{i}]");
        if text(rule, &["key"]) != "metadata.name" {
            errors.push(FieldError::invalid(
                format!("{base}.key"),
                text(rule, &["key"]),
                "not a valid field selector key",
            ));
        }
        if !["In", "NotIn"].contains(&text(rule, &["operator"])) {
            errors.push(FieldError::invalid(
                format!("{base}.operator"),
                text(rule, &["operator"]),
                "not a valid selector operator",
            ));
        } else if list(rule, &["values"]).len() != 1 {
            errors.push(FieldError::required(
                format!("{base}.values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ));
        }
    }
}

fn pod_affinity(errors: &mut FieldErrors, affinity: &Value, path: &str) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in list(affinity, &[required]).iter().enumerate() {
        pod_term(errors, term, &format!("{path}.{required}[{i}]"));
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (i, item) in list(affinity, &[preferred]).iter().enumerate() {
        let base = format!("{path}.{preferred}[{i}]");
        weight(errors, item, &base);
        pod_term(
            errors,
            at(item, &["podAffinityTerm"]),
            &format!("{base}.podAffinityTerm"),
        );
    }
}

fn pod_term(errors: &mut FieldErrors, term: &Value, path: &str) {
    for key in ["labelSelector", "namespaceSelector"] {
        selector::validate(errors, at(term, &[key]), &format!("{path}.{key}"));
    }
    topology_key(errors, term, path);
}

fn topology_key(errors: &mut FieldErrors, term: &Value, path: &str) {
    let key = text(term, &["topologyKey"]);
    let field = format!("{path}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(field, "can not be empty"));
    } else {
        invalid_each(errors, &field, at(term, &["topologyKey"]), qualified_name(key));
    }
}

fn spreading(errors: &mut FieldErrors, spec: &Value, path: &str) {
    let constraints = list(spec, &["topologySpreadConstraints"]);
    let kind = |constraint| {
        (
            text(constraint, &["topologyKey"]),
            text(constraint, &["whenUnsatisfiable"]),
        )
    };
    // One of each kind; told of all but the last, as upstream does.
    let last: BTreeMap<(&str, &str), usize> = constraints.iter().map(kind).zip(0..).collect();
    for (i, constraint) in constraints.iter().enumerate() {
        let base = format!("{path}.topologySpreadConstraints[{i}]");
        let skew = int(constraint, &["maxSkew"]).unwrap_or(0);
        if skew <= 0 {
            errors.push(FieldError::invalid(
                format!("{base}.maxSkew"),
                skew,
                "must be greater than zero",
            ));
        }
        topology_key(errors, constraint, &base);
        one_of(
            errors,
            &format!("{base}.whenUnsatisfiable"),
            text(constraint, &["whenUnsatisfiable"]),
            &["DoNotSchedule", "ScheduleAnyway"],
        );
        let (key, action) = kind(constraint);
        if last.get(&(key, action)).is_some_and(|last| *last != i) {
            let field = format!("{base}.{{topologyKey, whenUnsatisfiable}}");
            errors.push(duplicate(field, &format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = int(constraint, &["minDomains"]) {
            if domains <= 0 {
                errors.push(FieldError::invalid(
                    format!("{base}.minDomains"),
                    domains,
                    "must be greater than zero",
                ));
            }
            if text(constraint, &["whenUnsatisfiable"]) != "DoNotSchedule" {
                errors.push(FieldError::invalid(
                    format!("{base}.minDomains"),
                    domains,
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
                ));
            }
        }
        selector::validate(
            errors,
            at(constraint, &["labelSelector"]),
            &format!("{base}.labelSelector"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn constraints_of_one_kind_are_told_but_for_the_last() {
        let constraint = |key: &str, action: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": {"matchLabels": {"a": "b"}}});
        let told = |constraints: Value| {
            let mut errors = FieldErrors::default();
            spreading(&mut errors, &json!({"topologySpreadConstraints": constraints}), "spec");
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (hard, soft, other) = (
            constraint("zone", "DoNotSchedule"),
            constraint("zone", "ScheduleAnyway"),
            constraint("host", "DoNotSchedule"),
        );
        assert_eq!(told(json!([hard, soft, other])), Vec::<String>::new());
        let again = |i: usize| {
            format!(
                "spec.topologySpreadConstraints[{i}].{{topologyKey, whenUnsatisfiable}}: Duplicate value: \"{{zone, DoNotSchedule}}\""
            )
        };
        assert_eq!(told(json!([hard, other, hard, soft, hard])), [again(0), again(2)]);
    }
}
