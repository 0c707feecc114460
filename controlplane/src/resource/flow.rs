//! Flow schemas and priority levels. Pure.

use serde_json::{Value, json};

use super::Strategy;
use super::check::{duplicate, has, invalid, itself, required, supported};
use super::field::{at, default_to, flag, int, list, set, text};
use super::flow_defaults::{EXEMPT, flow_schemas, is_mandatory, priority_levels};
use super::name::{dns1123_label, dns1123_subdomain};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The FlowSchema kind's strategy.
pub(super) struct FlowSchema;

/// The PriorityLevelConfiguration kind's strategy.
pub(super) struct PriorityLevel;

const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
/// Bits of a hash that a flow's queues are dealt from.
const HASH_BITS: f64 = 60.0;
/// Verbs a rule may name, as upstream lists them.
const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];
const SUBJECTS: &[&str] = &["Group", "ServiceAccount", "User"];

impl Strategy for FlowSchema {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if int(object, &["spec", "matchingPrecedence"]).unwrap_or(0) == 0 && !at(object, &["spec"]).is_null() {
            set(object, &["spec", "matchingPrecedence"], 1000);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        let precedence = int(spec, &["matchingPrecedence"]).unwrap_or(0);
        let problem = match precedence {
            ..=0 => Some("must be a positive value".to_owned()),
            1 if text(object, &["metadata", "name"]) != EXEMPT => {
                Some("only the schema named 'exempt' may have matchingPrecedence 1".to_owned())
            }
            _ => (precedence > PRECEDENCE_MAX).then(|| format!("must not be greater than {PRECEDENCE_MAX}")),
        };
        if let Some(problem) = problem {
            errors.push(FieldError::invalid("spec.matchingPrecedence", precedence, problem));
        }
        let method = at(spec, &["distinguisherMethod"]);
        let kinds = ["ByNamespace", "ByUser"];
        if !method.is_null() && !kinds.contains(&text(method, &["type"])) {
            errors.push(FieldError::not_supported(
                "spec.distinguisherMethod.type",
                method.clone(),
                &kinds,
            ));
        }
        let level = text(spec, &["priorityLevelConfiguration", "name"]);
        let field = "spec.priorityLevelConfiguration.name";
        if level.is_empty() {
            errors.push(FieldError::required(field, "must reference a priority level"));
        } else {
            invalid(&mut errors, field, level, dns1123_subdomain(level));
        }
        for (i, rule) in list(spec, &["rules"]).iter().enumerate() {
            check_rule(&mut errors, rule, &format!("spec.rules[{i}]"));
        }
        check_fixed(&mut errors, object, flow_schemas);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        check_update(self, new, old, subresource)
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// The mandatory objects are as they are built in, but for what administrators may say of the exempt level.
fn check_fixed(errors: &mut FieldErrors, object: &Value, all: fn() -> Vec<Value>) {
    let name = text(object, &["metadata", "name"]);
    if !is_mandatory(name) {
        return;
    }
    let is_own = |one: &&Value| text(one, &["metadata", "name"]) == name;
    let all = all();
    let Some(fixed) = all.iter().find(is_own) else { return };
    let (mut wanted, mut found) = (at(fixed, &["spec"]).clone(), at(object, &["spec"]).clone());
    let mut except = "";
    if let Some(wanted) = wanted.as_object_mut()
        && wanted.remove(EXEMPT).is_some()
    {
        except = " except the 'spec.exempt' field";
        if let Some(found) = found.as_object_mut() {
            found.remove(EXEMPT);
        }
    }
    if !is_same(&wanted, &found) {
        let why = format!("spec of '{name}'{except} must equal the fixed value");
        errors.push(FieldError::invalid_value("spec", at(object, &["spec"]), why));
    }
}

/// Whether two values say the same: what is empty may as well not be there.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |key: &String, value: &Value| is_same(value, other.get(key).unwrap_or(&Value::Null));
            let is_empty = |key: &String, value: &Value| one.contains_key(key) || is_same(value, &Value::Null);
            one.iter().all(|(key, value)| is_in(key, value)) && other.iter().all(|(key, value)| is_empty(key, value))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (one, Value::Null) | (Value::Null, one) => match one {
            Value::Null => true,
            Value::Bool(set) => !set,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Number(_) | Value::Object(_) => false,
        },
        (one, other) => one == other,
    }
}

/// What an update makes wrong: in the whole object, or in the status alone.
fn check_update(kind: &impl Strategy, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
    FieldErrors::of_update(new, old, |object| match subresource {
        "" => kind.validate(object),
        _ => conditions(object),
    })
}

/// What is wrong with the conditions of either kind's status.
fn conditions(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let mut seen = std::collections::BTreeSet::new();
    for (i, condition) in list(object, &["status", "conditions"]).iter().enumerate() {
        let (field, kind) = (format!("status.conditions[{i}].type"), text(condition, &["type"]));
        if !seen.insert(kind) {
            duplicate(&mut errors, field.as_str(), kind);
        }
        if kind.is_empty() {
            errors.push(FieldError::required(field, "must not be empty"));
        }
    }
    errors
}

fn check_rule(errors: &mut FieldErrors, rule: &Value, path: &str) {
    let subjects = list(rule, &["subjects"]);
    if subjects.is_empty() {
        let field = format!("{path}.subjects");
        errors.push(FieldError::required(field, "subjects must contain at least one value"));
    }
    for (i, subject) in subjects.iter().enumerate() {
        check_subject(errors, subject, &format!("{path}.subjects[{i}]"));
    }
    let (resources, others) = (list(rule, &["resourceRules"]), list(rule, &["nonResourceRules"]));
    if resources.is_empty() && others.is_empty() {
        errors.push(FieldError::required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        ));
    }
    for (i, rule) in resources.iter().enumerate() {
        let path = format!("{path}.resourceRules[{i}]");
        check_verbs(errors, rule, &path);
        check_resources(errors, rule, &path);
    }
    for (i, rule) in others.iter().enumerate() {
        let path = format!("{path}.nonResourceRules[{i}]");
        check_verbs(errors, rule, &path);
        check_urls(
            errors,
            list(rule, &["nonResourceURLs"]),
            &format!("{path}.nonResourceURLs"),
        );
    }
}

fn check_subject(errors: &mut FieldErrors, subject: &Value, path: &str) {
    let kind = text(subject, &["kind"]);
    let parts = [
        ("serviceAccount", "ServiceAccount"),
        ("user", "User"),
        ("group", "Group"),
    ];
    let Some((part, _)) = parts.iter().find(|(_, name)| *name == kind) else {
        supported(errors, &format!("{path}.kind"), kind, SUBJECTS);
        return;
    };
    let base = format!("{path}.{part}");
    let who = at(subject, &[part]);
    if who.is_null() {
        let why = format!("{part} is required when subject kind is '{kind}'");
        errors.push(FieldError::required(base, why));
    } else {
        let name = text(who, &["name"]);
        let check: fn(&str) -> Vec<String> = match (kind, name) {
            ("ServiceAccount", name) if name != "*" => dns1123_subdomain,
            _ => |_| Vec::new(),
        };
        required(errors, &format!("{base}.name"), name, check);
        let namespace = text(who, &["namespace"]);
        let field = format!("{base}.namespace");
        if kind == "ServiceAccount" && namespace.is_empty() {
            errors.push(FieldError::required(
                field,
                "must specify namespace for service account",
            ));
        } else if kind == "ServiceAccount" {
            invalid(errors, &field, namespace, dns1123_label(namespace));
        }
    }
    for (other, name) in parts.iter().filter(|(_, name)| *name != kind) {
        if !at(subject, &[other]).is_null() {
            errors.push(FieldError::forbidden(
                format!("{path}.{other}"),
                format!("{other} is forbidden when subject kind is not '{name}'"),
            ));
        }
    }
}

fn check_verbs(errors: &mut FieldErrors, rule: &Value, path: &str) {
    let verbs = list(rule, &["verbs"]);
    let field = format!("{path}.verbs");
    if verbs.is_empty() {
        errors.push(FieldError::required(field, "verbs must contain at least one value"));
    } else if has(verbs, "*") {
        alone(errors, &field, at(rule, &["verbs"]), "verbs");
    } else if !verbs.iter().all(|verb| VERBS.contains(&itself(verb))) {
        errors.push(FieldError::not_supported(field, at(rule, &["verbs"]).clone(), VERBS));
    }
}

/// `*` stands for all: beside it stands nothing.
fn alone(errors: &mut FieldErrors, path: &str, items: &Value, what: &str) {
    let list = list(items, &[]);
    if list.len() > 1 && has(list, "*") {
        let why = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid_value(path, items, why));
    }
}

fn check_resources(errors: &mut FieldErrors, rule: &Value, path: &str) {
    for (key, what, one) in [
        ("apiGroups", "api groups", "api group"),
        ("resources", "resources", "resource"),
    ] {
        let field = format!("{path}.{key}");
        if list(rule, &[key]).is_empty() {
            let why = format!("resource rules must supply at least one {one}");
            errors.push(FieldError::required(field, why));
        } else {
            alone(errors, &field, at(rule, &[key]), what);
        }
    }
    let namespaces = list(rule, &["namespaces"]);
    let field = format!("{path}.namespaces");
    if namespaces.is_empty() && !flag(rule, &["clusterScope"]) {
        errors.push(FieldError::required(
            field,
            "resource rules that are not cluster scoped must supply at least one namespace",
        ));
    } else if has(namespaces, "*") {
        alone(errors, &field, at(rule, &["namespaces"]), "namespaces");
    } else {
        for (i, namespace) in namespaces.iter().map(itself).enumerate() {
            let problems = dns1123_label(namespace).into_iter();
            let told = problems.map(|why| format!("each member of this list must be '*' or a DNS-1123 label; {why}"));
            invalid(errors, &format!("{field}[{i}]"), namespace, told.collect());
        }
    }
}

fn check_urls(errors: &mut FieldErrors, urls: &[Value], path: &str) {
    if urls.is_empty() {
        let why = "nonResourceURLs must contain at least one value";
        errors.push(FieldError::required(path, why));
    } else if has(urls, "*") {
        alone(errors, path, &Value::from(urls), "non-resource URLs");
    } else {
        for (i, url) in urls.iter().map(itself).enumerate() {
            if let Some(problem) = url_problem(url) {
                errors.push(FieldError::invalid(format!("{path}[{i}]"), url, problem));
            }
        }
    }
}

fn url_problem(url: &str) -> Option<&'static str> {
    if url.is_empty() {
        Some("must not be empty")
    } else if !url.starts_with('/') {
        Some("must start with slash")
    } else if url.contains(' ') {
        Some("must not contain white-space")
    } else if url.contains("//") {
        Some("must not contain double slash")
    } else if url.strip_suffix("/*").unwrap_or(url).contains('*') {
        Some("wildcard can only do suffix matching")
    } else {
        None
    }
}

impl Strategy for PriorityLevel {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        if text(spec, &["type"]) == "Exempt" {
            default_to(spec, "exempt", json!({}));
        }
        if let Some(exempt) = spec.get_mut("exempt") {
            default_to(exempt, "nominalConcurrencyShares", 0);
            default_to(exempt, "lendablePercent", 0);
        }
        let Some(limited) = spec.get_mut("limited") else { return };
        default_to(limited, "nominalConcurrencyShares", 30);
        default_to(limited, "lendablePercent", 0);
        if let Some(queuing) = limited
            .get_mut("limitResponse")
            .and_then(|response| response.get_mut("queuing"))
        {
            default_to(queuing, "queues", 64);
            default_to(queuing, "handSize", 8);
            default_to(queuing, "queueLengthLimit", 50);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        let kind = text(spec, &["type"]);
        if (text(object, &["metadata", "name"]) == EXEMPT) != (kind == "Exempt") {
            let why = "type must be 'Exempt' if and only if name is 'exempt'";
            errors.push(FieldError::invalid("spec.type", kind, why));
        }
        let (exempt, limited) = (at(spec, &["exempt"]), at(spec, &["limited"]));
        match kind {
            "Exempt" => {
                if !limited.is_null() {
                    let why = "must be nil if the type is not Limited";
                    errors.push(FieldError::forbidden("spec.limited", why));
                }
                check_shares(&mut errors, exempt, "spec.exempt");
            }
            "Limited" => {
                if !exempt.is_null() {
                    let why = "must be nil if the type is not Exempt";
                    errors.push(FieldError::forbidden("spec.exempt", why));
                }
                if limited.is_null() {
                    let why = "must not be empty when type is Limited";
                    errors.push(FieldError::required("spec.limited", why));
                } else {
                    check_limited(&mut errors, limited);
                }
            }
            _ => supported(&mut errors, "spec.type", kind, &["Exempt", "Limited"]),
        }
        check_fixed(&mut errors, object, priority_levels);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        check_update(self, new, old, subresource)
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn check_shares(errors: &mut FieldErrors, level: &Value, path: &str) {
    let number = |key: &str| int(level, &[key]);
    let mut refuse = |key: &str, value: i64, why: &str| {
        errors.push(FieldError::invalid(format!("{path}.{key}"), value, why));
    };
    if let Some(shares) = number("nominalConcurrencyShares").filter(|shares| *shares < 0) {
        refuse("nominalConcurrencyShares", shares, "must be a non-negative integer");
    }
    if let Some(percent) = number("lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        refuse("lendablePercent", percent, "must be between 0 and 100, inclusive");
    }
    if let Some(percent) = number("borrowingLimitPercent").filter(|percent| *percent < 0) {
        let why = "if specified, must be a non-negative integer";
        refuse("borrowingLimitPercent", percent, why);
    }
}

fn check_limited(errors: &mut FieldErrors, limited: &Value) {
    let path = "spec.limited.limitResponse";
    check_shares(errors, limited, "spec.limited");
    let response = at(limited, &["limitResponse"]);
    let queuing = at(response, &["queuing"]);
    let field = format!("{path}.queuing");
    match (text(response, &["type"]), queuing.is_null()) {
        ("Reject", true) => {}
        ("Reject", false) => errors.push(FieldError::forbidden(
            field,
            "must be nil if limited.limitResponse.type is not Limited",
        )),
        ("Queue", true) => errors.push(FieldError::required(
            field,
            "must not be empty if limited.limitResponse.type is Limited",
        )),
        ("Queue", false) => check_queuing(errors, queuing, &field),
        (kind, _) => supported(errors, &format!("{path}.type"), kind, &["Queue", "Reject"]),
    }
}

fn check_queuing(errors: &mut FieldErrors, queuing: &Value, path: &str) {
    let number = |key: &str| int(queuing, &[key]).unwrap_or(0);
    let (queues, hand, length) = (number("queues"), number("handSize"), number("queueLengthLimit"));
    let mut refuse = |key: &str, value: i64, why: String| {
        errors.push(FieldError::invalid(format!("{path}.{key}"), value, why));
    };
    let positive = || "must be positive".to_owned();
    if length <= 0 {
        refuse("queueLengthLimit", length, positive());
    }
    if queues <= 0 {
        refuse("queues", queues, positive());
    } else if queues > QUEUES_MAX {
        refuse("queues", queues, format!("must not be greater than {QUEUES_MAX}"));
    }
    if hand <= 0 {
        refuse("handSize", hand, positive());
    } else if hand > queues {
        refuse(
            "handSize",
            hand,
            format!("should not be greater than queues ({queues})"),
        );
    } else if entropy_bits(queues, hand) > HASH_BITS {
        let why = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        refuse("handSize", hand, why);
    }
}

/// Bits that dealing a hand from a deck takes; as soon as they are too many, no more are counted.
fn entropy_bits(deck: i64, hand: i64) -> f64 {
    let mut bits = 0.0;
    for dealt in 0..hand {
        bits += ((deck - dealt) as f64).log2();
        if bits > HASH_BITS {
            break;
        }
    }
    bits.ceil()
}
