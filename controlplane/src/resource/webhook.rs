//! Webhook configurations. Pure.
//!
//! Expressions are only asked to be there: what they say is not read here.

use serde_json::{Value, json};

use super::Strategy;
use super::admission_policy::{check_conditions, check_rule};
use super::check::{has, invalid, itself, qualified, supported, unique};
use super::field::{at, default_text, default_to, int, list, list_mut, text};
use super::name::{dns1035_label, dns1123_subdomain, port_number};
use super::selector;
use crate::resource::field_error::{FieldError, FieldErrors};

/// Strategy of both webhook configurations.
pub(super) struct Webhooks {
    /// Whether they mutate.
    pub(super) mutating: bool,
}

/// Versions of reviews that are spoken.
const REVIEWS: &[&str] = &["v1", "v1beta1"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];

impl Strategy for Webhooks {
    fn default(&self, object: &mut Value) {
        for hook in list_mut(object, &["webhooks"]).into_iter().flatten() {
            default_text(hook, "failurePolicy", "Fail");
            default_text(hook, "matchPolicy", "Equivalent");
            default_to(hook, "namespaceSelector", json!({}));
            default_to(hook, "objectSelector", json!({}));
            default_to(hook, "timeoutSeconds", 10);
            if self.mutating {
                default_text(hook, "reinvocationPolicy", "Never");
            }
            for rule in list_mut(hook, &["rules"]).into_iter().flatten() {
                default_text(rule, "scope", "*");
            }
            if let Some(service) = hook
                .get_mut("clientConfig")
                .and_then(|config| config.get_mut("service"))
            {
                default_to(service, "port", 443);
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let hooks = list(object, &["webhooks"]);
        for (i, hook) in hooks.iter().enumerate() {
            check_hook(&mut errors, hook, &format!("webhooks[{i}]"), self.mutating);
        }
        unique(&mut errors, hooks, "webhooks", ".name", |hook| text(hook, &["name"]));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        FieldErrors::of_update(new, old, |object| self.validate(object))
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn bumps_generation(&self, new: &Value, old: &Value) -> bool {
        new.get("webhooks") != old.get("webhooks")
    }
}

fn check_hook(errors: &mut FieldErrors, hook: &Value, path: &str, mutating: bool) {
    qualified(errors, &format!("{path}.name"), text(hook, &["name"]), 3);
    for (i, rule) in list(hook, &["rules"]).iter().enumerate() {
        check_rule(errors, rule, &format!("{path}.rules[{i}]"));
    }
    let mut one_of = |key: &str, values: &[&str]| {
        supported(errors, &format!("{path}.{key}"), text(hook, &[key]), values);
    };
    one_of("failurePolicy", &["Fail", "Ignore"]);
    one_of("matchPolicy", &["Equivalent", "Exact"]);
    if mutating {
        one_of("reinvocationPolicy", &["IfNeeded", "Never"]);
    }
    if at(hook, &["sideEffects"]).is_null() {
        let why = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        errors.push(FieldError::required(format!("{path}.sideEffects"), why));
    } else {
        one_of("sideEffects", SIDE_EFFECTS);
    }
    if let Some(seconds) = int(hook, &["timeoutSeconds"]).filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(format!("{path}.timeoutSeconds"), seconds, why));
    }
    for key in ["namespaceSelector", "objectSelector"] {
        selector::validate(errors, at(hook, &[key]), &format!("{path}.{key}"));
    }
    check_client(errors, at(hook, &["clientConfig"]), &format!("{path}.clientConfig"));
    check_conditions(errors, hook, path);
    check_reviews(errors, hook, &format!("{path}.admissionReviewVersions"));
}

fn check_client(errors: &mut FieldErrors, client: &Value, path: &str) {
    let (url, service) = (at(client, &["url"]), at(client, &["service"]));
    match (url.as_str(), service.is_null()) {
        (Some(url), true) => check_url(errors, url, &format!("{path}.url")),
        (None, false) => check_service(errors, service, &format!("{path}.service")),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn check_url(errors: &mut FieldErrors, url: &str, path: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let mut refuse = |value: &str, why: &str| errors.push(FieldError::invalid(path, value, why));
    if !scheme.eq_ignore_ascii_case("https") {
        refuse(scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let authority = if scheme.is_empty() { "" } else { rest };
    let authority = authority.split('/').next().unwrap_or("");
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        refuse("", &format!("host must be specified{FORM}"));
    }
    if authority.contains('@') {
        refuse(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        refuse(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        refuse(query, "query parameters are not permitted in the URL");
    }
}

fn check_service(errors: &mut FieldErrors, service: &Value, path: &str) {
    for key in ["name", "namespace"] {
        if text(service, &[key]).is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}"), ""));
        }
    }
    let port = int(service, &["port"]).unwrap_or(0);
    let problems = port_number(port);
    if !problems.is_empty() {
        let why = format!("port is not valid: {}", problems.join(", "));
        errors.push(FieldError::invalid(format!("{path}.port"), port, why));
    }
    let url = text(service, &["path"]);
    let mut refuse = |why: String| errors.push(FieldError::invalid(format!("{path}.path"), url, why));
    match url {
        "" | "/" => return,
        "//" => return refuse("segment[0] may not be empty".to_owned()),
        url if !url.starts_with('/') => refuse("must start with a '/'".to_owned()),
        _ => {}
    }
    let mut steps = url.chars();
    steps.next();
    let steps = steps.as_str();
    let steps = steps.strip_suffix('/').unwrap_or(steps);
    for (i, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            refuse(format!("segment[{i}] may not be empty"));
            continue;
        }
        for problem in dns1123_subdomain(step) {
            refuse(format!("segment[{i}]: {problem}"));
        }
    }
}

fn check_reviews(errors: &mut FieldErrors, hook: &Value, path: &str) {
    let versions = list(hook, &["admissionReviewVersions"]);
    if versions.is_empty() {
        let why = format!("must specify one of {}", REVIEWS.join(", "));
        errors.push(FieldError::required(path, why));
        return;
    }
    let mut seen = std::collections::BTreeSet::new();
    for (i, version) in versions.iter().map(itself).enumerate() {
        let field = format!("{path}[{i}]");
        if seen.insert(version) {
            invalid(errors, &field, version, dns1035_label(version));
        } else {
            errors.push(FieldError::invalid(field, version, "duplicate version"));
        }
    }
    if !REVIEWS.iter().any(|review| has(versions, review)) {
        let why = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.push(FieldError::invalid_value(
            path,
            at(hook, &["admissionReviewVersions"]),
            why,
        ));
    }
}
