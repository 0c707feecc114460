//! Address families of Services: what is made of `ipFamilyPolicy`, `ipFamilies` and `clusterIPs` that leave something out, and what the
//! cluster cannot give. Texts are upstream's. Pure.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::range::family;
use super::rules;
use crate::resource::field::{at, list, set, text};
use crate::resource::field_error::{FieldError, FieldErrors};

const POLICY: &str = "spec.ipFamilyPolicy";

fn policy(service: &Value) -> &str {
    text(service, &["spec", "ipFamilyPolicy"])
}

fn other(family: &str) -> &'static str {
    if family == "IPv4" { "IPv6" } else { "IPv4" }
}

fn same(key: &str, new: &Value, old: &Value) -> bool {
    list(new, &["spec", key]) == list(old, &["spec", key])
}

fn shorten(service: &mut Value, key: &str) {
    let first: Vec<Value> = list(service, &["spec", key]).iter().take(1).cloned().collect();
    set(service, &["spec", key], first);
}

/// Whether a Service that prefers two families is left as it is: a cluster that gained or lost one changes no Service by itself.
fn stays(new: &Value, old: &Value) -> bool {
    let prefers = |object: &Value| policy(object) == "PreferDualStack";
    let kind = |object: &Value| text(object, &["spec", "type"]).to_owned();
    kind(new) == kind(old)
        && prefers(new)
        && (prefers(old) || policy(old).is_empty())
        && same("clusterIPs", new, old)
        && same("ipFamilies", new, old)
}

/// Fills in `ipFamilyPolicy` and `ipFamilies`, and drops what a policy of one family has no place for. `configured` are the cluster's
/// families, the default first. What is invalid in itself is left for validation to tell.
///
/// # Errors
/// What this cluster cannot give.
pub fn fill_families(configured: &[&'static str], service: &mut Value, old: Option<&Value>) -> Result<(), FieldErrors> {
    if text(service, &["spec", "type"]) == "ExternalName" || old.is_some_and(|old| stays(service, old)) {
        return Ok(());
    }
    let is_bare = text(service, &["spec", "clusterIP"]) == "None"
        && at(service, &["spec", "selector"])
            .as_object()
            .is_none_or(serde_json::Map::is_empty);
    default_policy(service, old, is_bare);
    let mut errors = FieldErrors::default();
    rules::addresses(&mut errors, at(service, &["spec"]));
    if !errors.is_empty() {
        return Ok(());
    }
    if let Some(old) = old {
        if policy(service) == "SingleStack" {
            for key in ["clusterIPs", "ipFamilies"] {
                if same(key, service, old) && list(service, &["spec", key]).len() > 1 {
                    shorten(service, key);
                }
            }
        } else if ["clusterIPs", "ipFamilies"].iter().any(|key| fewer(key, service, old)) {
            // Validation says which policy releases one.
            return Ok(());
        }
    }
    refuse_two_of_one(&mut errors, service);
    take_from_addresses(&mut errors, configured, service);
    refused(errors)?;
    if is_bare {
        fill(service, configured, true);
        return Ok(());
    }
    refused(unknown(configured, service))?;
    fill(service, configured, configured.len() > 1);
    Ok(())
}

fn refused(errors: FieldErrors) -> Result<(), FieldErrors> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn fewer(key: &str, new: &Value, old: &Value) -> bool {
    let (after, before) = (list(new, &["spec", key]).len(), list(old, &["spec", key]).len());
    after > 0 && after < before
}

/// A policy is never guessed where there was one.
fn default_policy(service: &mut Value, old: Option<&Value>, is_bare: bool) {
    if !policy(service).is_empty() {
        return;
    }
    let chosen = match old.map(policy).filter(|policy| !policy.is_empty()) {
        Some(before) => before.to_owned(),
        None if is_bare => "RequireDualStack".to_owned(),
        None => "SingleStack".to_owned(),
    };
    set(service, &["spec", "ipFamilyPolicy"], chosen);
}

fn refuse_two_of_one(errors: &mut FieldErrors, service: &Value) {
    if policy(service) != "SingleStack" {
        return;
    }
    for (key, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if list(service, &["spec", key]).len() == 2 {
            let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(FieldError::invalid(POLICY, policy(service), why));
        }
    }
}

/// Families that addresses imply.
fn take_from_addresses(errors: &mut FieldErrors, configured: &[&'static str], service: &mut Value) {
    let mut families = list(service, &["spec", "ipFamilies"]).to_vec();
    let before = families.len();
    for (i, address) in list(service, &["spec", "clusterIPs"]).iter().enumerate().skip(before) {
        let Some(ip) = address.as_str().and_then(|text| text.parse::<IpAddr>().ok()) else {
            continue;
        };
        if configured.contains(&family(ip)) {
            families.push(json!(family(ip)));
        } else {
            let why = format!("{} is not configured on this cluster", family(ip));
            let all = at(service, &["spec", "clusterIPs"]);
            errors.push(FieldError::invalid_value(format!("spec.clusterIPs[{i}]"), all, why));
        }
    }
    if families.len() > before {
        set(service, &["spec", "ipFamilies"], families);
    }
}

fn unknown(configured: &[&'static str], service: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    if policy(service) == "RequireDualStack" && configured.len() < 2 {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(POLICY, policy(service), why));
    }
    for (i, family) in list(service, &["spec", "ipFamilies"]).iter().enumerate() {
        if !configured.iter().any(|known| family == known) {
            let why = "not configured on this cluster";
            errors.push(FieldError::invalid_value(format!("spec.ipFamilies[{i}]"), family, why));
        }
    }
    errors
}

/// The default family, and the second one where the policy wants it and there `may_be_two`.
fn fill(service: &mut Value, configured: &[&'static str], may_be_two: bool) {
    let mut families = list(service, &["spec", "ipFamilies"]).to_vec();
    if families.is_empty() {
        families.extend(configured.first().map(|family| json!(family)));
    }
    let first = families.first().and_then(Value::as_str).map(other);
    if let (Some(second), 1) = (first, families.len())
        && may_be_two
        && policy(service) != "SingleStack"
    {
        families.push(json!(second));
    }
    set(service, &["spec", "ipFamilies"], families);
}
