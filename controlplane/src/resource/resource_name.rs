//! Names of resources (cpu, pods, `example.com/gpu`) and how much of one may be asked for. Texts are upstream's. Pure.
//!
//! Owns which names are known: to containers, to quotas, as whole numbers, as what may be promised twice.

use proto::api::quantity::Quantity;
use serde_json::Value;

use super::field::invalid_each;
use super::name::qualified_name;
use crate::resource::field_error::{FieldError, FieldErrors};
use proto::api::names::{is_extended_resource as is_extended, is_native_resource as is_native};

/// Resources a quota may bound that are counted, not measured.
const COUNTED: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// Resources a quota may bound that are measured.
const MEASURED: &[&str] = &[
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
];

/// Huge pages of one size, as containers ask for them.
pub(super) fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether a quota knows the resource under a plain name.
pub(super) fn is_quota(name: &str) -> bool {
    let is_huge = is_huge_pages(name) || name.starts_with("requests.hugepages-");
    is_huge || COUNTED.contains(&name) || MEASURED.contains(&name)
}

/// Whether a container may ask for the resource under a plain name.
fn is_container(name: &str) -> bool {
    is_huge_pages(name) || ["cpu", "ephemeral-storage", "memory"].contains(&name)
}

/// Whether more of the resource may be promised than there is.
pub(super) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// A resource of any kind; whether the name was right.
pub(super) fn any(errors: &mut FieldErrors, name: &str, path: &str) -> bool {
    let problems = qualified_name(name);
    if !problems.is_empty() {
        invalid_each(errors, path, &Value::from(name), problems);
        return false;
    }
    if !name.contains('/') && !is_quota(name) && name != "storage" {
        let why = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, why));
        return false;
    }
    true
}

/// A resource a container may ask for.
pub(super) fn container(errors: &mut FieldErrors, name: &str, path: &str) {
    any(errors, name, path);
    if !name.contains('/') {
        if !is_container(name) {
            let why = "must be a standard resource for containers";
            errors.push(FieldError::invalid(path, name, why));
        }
    } else if !is_native(name) && !is_extended(name) {
        let why = "doesn't follow extended resource name standard";
        errors.push(FieldError::invalid(path, name, why));
    }
}

/// A resource a quota may bound.
pub(super) fn quota(errors: &mut FieldErrors, name: &str, path: &str) {
    any(errors, name, path);
    if !name.contains('/') && !is_quota(name) {
        let why = "must be a standard resource for quota";
        errors.push(FieldError::invalid(path, name, why));
    }
}

/// What may be asked of the resource: never less than nothing, and whole where it is counted.
pub(super) fn amount(errors: &mut FieldErrors, name: &str, value: &Value, path: &str) {
    let Some(quantity) = quantity(value) else { return };
    if quantity.is_negative() {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path, value.clone(), why));
    }
    let is_counted = COUNTED.contains(&name) || is_extended(name);
    if is_counted && quantity.milli_value() % 1000 != 0 {
        errors.push(FieldError::invalid(path, value.clone(), "must be an integer"));
    }
}

/// The quantity a value is; what is none was refused before.
pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}
