//! What is wrong with requests and limits, of containers and of whole pods, and with the claims named there. Texts are
//! upstream's. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;
use proto::api::resources::{allowed_at_pod_level, parse_list, total_over_containers};
use serde_json::Value;

use crate::resource::field::{at, entries, invalid_each, list, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::resource::name::{dns1123_label, dns1123_subdomain};
use crate::resource::resource_name::{self, is_huge_pages, may_overcommit, quantity};

/// Requests and limits of a container at `path`.
pub(super) fn container(errors: &mut FieldErrors, resources: &Value, path: &str) {
    amounts(errors, resources, path, resource_name::container);
}

/// Requests and limits of the pod as a whole.
pub(super) fn pod(errors: &mut FieldErrors, spec: &Value, path: &str) {
    let resources = at(spec, &["resources"]);
    if resources.is_null() {
        return;
    }
    let base = format!("{path}.resources");
    if !at(resources, &["claims"]).is_null() {
        let why = "claims cannot be set for Resources at pod-level";
        errors.push(FieldError::forbidden(format!("{base}.claims"), why));
    }
    amounts(errors, resources, &base, |errors, name, path| {
        if resource_name::any(errors, name, path) && !allowed_at_pod_level(name) {
            errors.push(FieldError::not_supported(path, name, &["cpu", "hugepages-", "memory"]));
        }
    });
    for (i, container) in list(spec, &["containers"]).iter().enumerate() {
        for (name, limit) in entries(container, &["resources", "limits"]) {
            let whole = text(resources, &["limits", name]);
            let bound = quantity(at(resources, &["limits", name]));
            if quantity(limit).zip(bound).is_some_and(|(limit, bound)| limit > bound) {
                let field = format!("{base}.containers[{i}][{name}].limits");
                let why = format!("must be less than or equal to pod limits of {whole}");
                errors.push(FieldError::invalid(field, limit.clone(), why));
            }
        }
    }
    // A spec that lacks what the type requires is refused anyway.
    let Ok(typed) = serde_json::from_value::<PodSpec>(spec.clone()) else {
        return;
    };
    let requests = |container: &k8s_openapi::api::core::v1::Container| {
        parse_list(
            container
                .resources
                .as_ref()
                .and_then(|resources| resources.requests.as_ref()),
        )
    };
    for (name, total) in total_over_containers(&typed, requests) {
        let request = at(resources, &["requests", &name]);
        if quantity(request).is_some_and(|request| request < total) {
            let field = format!("{base}.requests[{name}]");
            let why = format!("must be greater than or equal to aggregate container requests of {total}");
            errors.push(FieldError::invalid(field, request.clone(), why));
        }
    }
}

fn amounts(errors: &mut FieldErrors, resources: &Value, path: &str, named: fn(&mut FieldErrors, &str, &str)) {
    let mut has_huge_pages = false;
    let mut has_compute = false;
    for kind in ["limits", "requests"] {
        for (name, value) in entries(resources, &[kind]) {
            let field = format!("{path}.{kind}[{name}]");
            named(errors, name, &field);
            resource_name::amount(errors, name, value, &field);
            if is_huge_pages(name) {
                has_huge_pages = true;
                huge_pages(errors, name, value, &field);
            }
            has_compute |= name == "cpu" || name == "memory";
        }
    }
    for (name, request) in entries(resources, &["requests"]) {
        let limit = at(resources, &["limits", name]);
        let shown = limit.as_str().unwrap_or("");
        let (Some(asked), Some(bound)) = (quantity(request), quantity(limit)) else {
            if !may_overcommit(name) && limit.is_null() {
                let why = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{path}.limits"), why));
            }
            continue;
        };
        let why = if asked != bound && !may_overcommit(name) {
            format!("must be equal to {name} limit of {shown}")
        } else if asked > bound {
            format!("must be less than or equal to {name} limit of {shown}")
        } else {
            continue;
        };
        errors.push(FieldError::invalid(format!("{path}.requests"), request.clone(), why));
    }
    if has_huge_pages && !has_compute {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

/// Huge pages are asked for whole.
fn huge_pages(errors: &mut FieldErrors, name: &str, value: &Value, path: &str) {
    let size = name
        .strip_prefix("hugepages-")
        .map(Value::from)
        .and_then(|size| quantity(&size));
    let (Some(amount), Some(size)) = (quantity(value), size) else {
        return;
    };
    let (amount, size) = (amount.value(), size.value());
    if amount <= 0 || size <= 0 || amount % size != 0 {
        let shown = value.as_str().unwrap_or("");
        let why = format!("{shown} is not positive integer multiple of {name}");
        errors.push(FieldError::invalid(path, value.clone(), why));
    }
}

/// The resource claims a pod has; returns their names.
pub(super) fn claims<'s>(errors: &mut FieldErrors, spec: &'s Value, path: &str) -> BTreeSet<&'s str> {
    let mut names = BTreeSet::new();
    for (i, claim) in list(spec, &["resourceClaims"]).iter().enumerate() {
        let base = format!("{path}.resourceClaims[{i}]");
        let (name, field) = (text(claim, &["name"]), format!("{base}.name"));
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if names.insert(name) {
            invalid_each(errors, &field, &Value::from(name), dns1123_label(name));
        } else {
            errors.push(FieldError::new(field, FieldErrorKind::Duplicate, Value::from(name), ""));
        }
        let keys = ["resourceClaimName", "resourceClaimTemplateName"];
        let given = keys.map(|key| at(claim, &[key]).as_str());
        let why = match given {
            [Some(_), Some(_)] => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            [None, None] => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !why.is_empty() {
            errors.push(FieldError::invalid_value(base.as_str(), claim, why));
        }
        for (key, value) in keys.into_iter().zip(given) {
            if let Some(value) = value {
                let problems = dns1123_subdomain(value);
                invalid_each(errors, &format!("{base}.{key}"), &Value::from(value), problems);
            }
        }
    }
    names
}

/// The claims a container uses are the pod's, each once, as a whole or by requests.
pub(super) fn used_claims(errors: &mut FieldErrors, container: &Value, base: &str, names: &BTreeSet<&str>) {
    // What is used: whole claims without a request; and which claims are used in part.
    let mut used = BTreeSet::new();
    let mut in_part = BTreeSet::new();
    for (i, claim) in list(container, &["resources", "claims"]).iter().enumerate() {
        let path = format!("{base}.resources.claims[{i}]");
        let (name, request) = (text(claim, &["name"]), text(claim, &["request"]));
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let twice = |shown: String| FieldError::new(path.as_str(), FieldErrorKind::Duplicate, Value::from(shown), "");
        if used.contains(&(name, "")) {
            errors.push(twice(name.to_owned()));
        } else if request.is_empty() {
            if in_part.contains(name) {
                errors.push(twice(name.to_owned()));
            }
            used.insert((name, ""));
        } else {
            invalid_each(
                errors,
                &format!("{path}.request"),
                &Value::from(request),
                dns1123_label(request),
            );
            if !used.insert((name, request)) {
                errors.push(twice(format!("{name}/{request}")));
            }
            in_part.insert(name);
        }
        if !names.contains(name) {
            let mut why = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if names.is_empty() {
                why.push_str(" which is empty");
            } else {
                let all: Vec<&str> = names.iter().copied().collect();
                why.push_str(&format!(": {}", all.join(", ")));
            }
            errors.push(FieldError::new(path, FieldErrorKind::NotFound, Value::from(name), why));
        }
    }
}
