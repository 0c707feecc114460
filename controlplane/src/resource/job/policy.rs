//! What is wrong with when a Job counts as done or failed: completion by index, policies, who manages it. Texts are
//! upstream's. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::resource::field::{at, int, invalid_each, list, non_negative, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::resource::name::{dns1123_subdomain, qualified_name};

/// Rules a policy may have, and conditions one rule may name.
const RULES_MAX: usize = 20;
/// Exit codes one rule may name.
const CODES_MAX: usize = 255;
/// Indexes of one Job that may fail.
const FAILED_MAX: i64 = 100_000;
/// Completions beyond which pods at a time and failed indexes are bounded more tightly.
const MANY: i64 = 100_000;
/// That tighter bound.
const OF_MANY: i64 = 10_000;
/// Bytes of the list of indexes a success rule names.
const INDEXES_MAX: usize = 64 * 1024;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];

fn too_many(errors: &mut FieldErrors, path: &str, count: usize, most: usize) {
    if count > most {
        let why = format!("must have at most {most} items");
        errors.push(FieldError::new(path, FieldErrorKind::TooMany, json!(count), why));
    }
}

/// Everything wrong with the policies of a Job's spec.
pub(super) fn validate(errors: &mut FieldErrors, spec: &Value) {
    by_index(errors, spec);
    let failure = at(spec, &["podFailurePolicy"]);
    if !failure.is_null() {
        let mut names = BTreeSet::new();
        for key in ["containers", "initContainers"] {
            names.extend(
                list(spec, &["template", "spec", key])
                    .iter()
                    .map(|item| text(item, &["name"])),
            );
        }
        let rules = list(failure, &["rules"]);
        let path = "spec.podFailurePolicy.rules";
        too_many(errors, path, rules.len(), RULES_MAX);
        let per_index = !at(spec, &["backoffLimitPerIndex"]).is_null();
        for (i, rule) in rules.iter().enumerate() {
            failure_rule(errors, rule, &format!("{path}[{i}]"), per_index, &names);
        }
    }
    if let Some(policy) = at(spec, &["podReplacementPolicy"]).as_str() {
        let supported: &[&str] = if failure.is_null() {
            &["Failed", "TerminatingOrFailed"]
        } else {
            &["Failed"]
        };
        if !supported.contains(&policy) {
            errors.push(FieldError::not_supported(
                "spec.podReplacementPolicy",
                policy,
                supported,
            ));
        }
    }
    if let Some(manager) = at(spec, &["managedBy"]).as_str() {
        managed_by(errors, manager);
    }
}

fn by_index(errors: &mut FieldErrors, spec: &Value) {
    let number = |key: &str| int(spec, &[key]);
    let (completions, failed) = (number("completions"), number("maxFailedIndexes"));
    let per_index = number("backoffLimitPerIndex");
    if failed.is_some() && per_index.is_none() {
        let why = "when maxFailedIndexes is specified";
        errors.push(FieldError::required("spec.backoffLimitPerIndex", why));
    }
    if text(spec, &["completionMode"]) != "Indexed" {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            let value = at(spec, &[key]);
            if !value.is_null() {
                let why = "requires indexed completion mode";
                errors.push(FieldError::invalid_value(format!("spec.{key}"), value, why));
            }
        }
        return;
    }
    let mut at_most = |key: &str, value: Option<i64>, most: i64, why: String| {
        if let Some(value) = value.filter(|value| *value > most) {
            errors.push(FieldError::invalid(format!("spec.{key}"), value, why));
        }
    };
    if let Some(completions) = completions {
        let why = "must be less than or equal to completions".to_owned();
        at_most("maxFailedIndexes", failed, completions, why);
    }
    let why = format!("must be less than or equal to {FAILED_MAX}");
    at_most("maxFailedIndexes", failed, FAILED_MAX, why);
    if completions.is_some_and(|count| count > MANY) && per_index.is_some() {
        let why = format!(
            "must be less than or equal to {OF_MANY} when completions are above {MANY} and used with backoff limit per index"
        );
        at_most("parallelism", number("parallelism"), OF_MANY, why.clone());
        at_most("maxFailedIndexes", failed, OF_MANY, why);
        if failed.is_none() {
            let why = format!("must be specified when completions is above {MANY}");
            errors.push(FieldError::required("spec.maxFailedIndexes", why));
        }
    }
    let success = at(spec, &["successPolicy"]);
    if let Some(completions) = completions.filter(|_| !success.is_null()) {
        success_policy(errors, success, completions);
    }
}

fn failure_rule(errors: &mut FieldErrors, rule: &Value, path: &str, per_index: bool, names: &BTreeSet<&str>) {
    let action = text(rule, &["action"]);
    let field = format!("{path}.action");
    if action.is_empty() {
        let why = format!("valid values: {}", quoted(ACTIONS));
        errors.push(FieldError::required(field, why));
    } else if action == "FailIndex" {
        if !per_index {
            let why = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid(field, action, why));
        }
    } else if !ACTIONS.contains(&action) {
        errors.push(FieldError::not_supported(field, action, ACTIONS));
    }
    let codes = at(rule, &["onExitCodes"]);
    if !codes.is_null() {
        on_exit_codes(errors, codes, &format!("{path}.onExitCodes"), names);
    }
    let conditions = list(rule, &["onPodConditions"]);
    on_conditions(errors, conditions, &format!("{path}.onPodConditions"));
    if !codes.is_null() && !conditions.is_empty() {
        let why = "specifying both OnExitCodes and OnPodConditions is not supported";
        errors.push(FieldError::invalid_unshown(path, why));
    } else if codes.is_null() && conditions.is_empty() {
        let why = "specifying one of OnExitCodes and OnPodConditions is required";
        errors.push(FieldError::invalid_unshown(path, why));
    }
}

/// As upstream prints a list of strings.
fn quoted(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", items.join(" "))
}

/// `Required value` with what there is to choose from, or `Unsupported value`.
fn choice(errors: &mut FieldErrors, path: &str, value: &str, supported: &[&str]) {
    if value.is_empty() {
        let why = format!("valid values: {}", quoted(supported));
        errors.push(FieldError::required(path, why));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}

fn on_conditions(errors: &mut FieldErrors, conditions: &[Value], path: &str) {
    too_many(errors, path, conditions.len(), RULES_MAX);
    for (i, condition) in conditions.iter().enumerate() {
        let kind = at(condition, &["type"]);
        let problems = qualified_name(kind.as_str().unwrap_or(""));
        invalid_each(errors, &format!("{path}[{i}].type"), kind, problems);
        let status = text(condition, &["status"]);
        choice(
            errors,
            &format!("{path}[{i}].status"),
            status,
            &["False", "True", "Unknown"],
        );
    }
}

fn on_exit_codes(errors: &mut FieldErrors, codes: &Value, path: &str, names: &BTreeSet<&str>) {
    let operator = text(codes, &["operator"]);
    choice(errors, &format!("{path}.operator"), operator, &["In", "NotIn"]);
    if let Some(name) = at(codes, &["containerName"]).as_str()
        && !names.contains(name)
    {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(format!("{path}.containerName"), name, why));
    }
    let (field, values) = (format!("{path}.values"), list(codes, &["values"]));
    if values.is_empty() {
        errors.push(FieldError::invalid(
            field.as_str(),
            json!([]),
            "at least one value is required",
        ));
    }
    too_many(errors, &field, values.len(), CODES_MAX);
    let mut seen = BTreeSet::new();
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    for (i, code) in numbers.iter().enumerate() {
        let field = format!("{field}[{i}]");
        if operator == "In" && *code == 0 {
            let why = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(field.as_str(), 0, why));
        }
        if !seen.insert(*code) {
            errors.push(FieldError::new(field, FieldErrorKind::Duplicate, json!(code), ""));
        }
    }
    if !numbers.is_sorted() {
        errors.push(FieldError::invalid_value(
            field,
            at(codes, &["values"]),
            "must be ordered",
        ));
    }
}

fn success_policy(errors: &mut FieldErrors, policy: &Value, completions: i64) {
    let path = "spec.successPolicy.rules";
    let rules = list(policy, &["rules"]);
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(path, why));
    }
    too_many(errors, path, rules.len(), RULES_MAX);
    for (i, rule) in rules.iter().enumerate() {
        success_rule(errors, rule, &format!("{path}[{i}]"), completions);
    }
}

fn success_rule(errors: &mut FieldErrors, rule: &Value, path: &str, completions: i64) {
    let (count, indexes) = (int(rule, &["succeededCount"]), at(rule, &["succeededIndexes"]).as_str());
    if count.is_none() && indexes.is_none() {
        let why = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, why));
    }
    let mut named = 0;
    if let Some(indexes) = indexes {
        let field = format!("{path}.succeededIndexes");
        if indexes.len() > INDEXES_MAX {
            let why = format!("may not be more than {INDEXES_MAX} bytes");
            errors.push(FieldError::new(
                field.as_str(),
                FieldErrorKind::TooLong,
                Value::Null,
                why,
            ));
        }
        match count_indexes(indexes, completions) {
            Ok(count) => named = count,
            Err(problem) => {
                let why = format!("error parsing succeededIndexes: {problem}");
                errors.push(FieldError::invalid(field, indexes, why));
            }
        }
    }
    let Some(count) = count else { return };
    non_negative(errors, rule, path, "succeededCount");
    let field = format!("{path}.succeededCount");
    if count > completions {
        let why = format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.push(FieldError::invalid(field.as_str(), count, why));
    }
    if indexes.is_some() && count > named {
        let why = format!(
            "must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.push(FieldError::invalid(field, count, why));
    }
}

/// How many indexes a text such as `0,2-4` names.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let named = intervals(text, completions)?;
    Ok(named.iter().map(|(first, end)| end - first + 1).sum())
}

/// The first and the last of each interval of indexes that a text such as `0,2-4` names, each below `completions` and above those before it.
///
/// # Errors
/// Upstream's text of what is wrong with it.
pub(super) fn intervals(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut all: Vec<(i64, i64)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let limits: Vec<&str> = part.splitn(4, '-').collect();
        if limits.len() > 2 {
            return Err(format!(
                "the fragment \"{part}\" violates the requirement that an index interval can have at most two parts separated \
                 by '-'"
            ));
        }
        let index = |text: &str| {
            let index = text.parse::<i64>();
            let index = index.map_err(|_| format!("cannot convert string to integer for index: \"{text}\""))?;
            (index < completions)
                .then_some(index)
                .ok_or_else(|| format!("too large index: \"{text}\""))
        };
        let out_of_order = |previous: i64, current: i64| {
            Err(format!(
                "non-increasing order, previous: {previous}, current: {current}"
            ))
        };
        let first = index(limits[0])?;
        let end = match limits.get(1) {
            Some(end) => index(end)?,
            None => first,
        };
        if limits.len() == 2 && first >= end {
            return out_of_order(first, end);
        }
        if let Some((_, last)) = all.last().filter(|(_, last)| *last >= first) {
            return out_of_order(*last, first);
        }
        all.push((first, end));
    }
    Ok(all)
}

/// A controller's name: a domain, a slash and a path.
fn managed_by(errors: &mut FieldErrors, name: &str) {
    let path = "spec.managedBy";
    match name.split_once('/') {
        _ if name.is_empty() => errors.push(FieldError::required(path, "")),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            invalid_each(errors, path, &Value::from(domain), dns1123_subdomain(domain));
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !rest.bytes().all(fits) {
                let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid(path, rest, why));
            }
        }
        _ => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, name, why));
        }
    }
    if name.len() > 63 {
        let why = "may not be more than 63 bytes";
        errors.push(FieldError::new(path, FieldErrorKind::TooLong, Value::Null, why));
    }
}
