//! Nodes: registered with their status; the pod range and provider id are set once. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::field::{at, copy, flag, invalid_each, list, one_of, set, text};
use super::name::{label_value, qualified_name};
use super::{PrepareContext, Strategy, isolate};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

/// The Node kind's strategy.
pub(super) struct Node;

impl Strategy for Node {
    fn default(&self, object: &mut Value) {
        let capacity = at(object, &["status", "capacity"]).clone();
        if at(object, &["status", "allocatable"]).is_null() && capacity.is_object() {
            set(object, &["status", "allocatable"], capacity);
        }
        if at(object, &["spec"]).is_null() {
            set(object, &["spec"], serde_json::json!({}));
        }
        let range = text(object, &["spec", "podCIDR"]).to_owned();
        if !range.is_empty() && list(object, &["spec", "podCIDRs"]).is_empty() {
            set(object, &["spec", "podCIDRs"], vec![range]);
        } else if range.is_empty()
            && let Some(first) = list(object, &["spec", "podCIDRs"]).first().cloned()
        {
            set(object, &["spec", "podCIDR"], first);
        }
    }

    fn prepare_create(&self, _object: &mut Value, _ctx: &PrepareContext<'_>) {
        // A kubelet registers with its status.
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        isolate(new, old, subresource);
        if subresource == "status" {
            copy(new, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let mut seen = BTreeSet::new();
        for (i, taint) in list(object, &["spec", "taints"]).iter().enumerate() {
            // The path is upstream's.
            let path = format!("metadata.taints[{i}]");
            let value = |key: &str| text(taint, &[key]);
            invalid_each(
                &mut errors,
                &format!("{path}.key"),
                at(taint, &["key"]),
                qualified_name(value("key")),
            );
            if !value("value").is_empty() {
                invalid_each(
                    &mut errors,
                    &format!("{path}.value"),
                    at(taint, &["value"]),
                    label_value(value("value")),
                );
            }
            one_of(
                &mut errors,
                &format!("{path}.effect"),
                value("effect"),
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            );
            if !seen.insert((value("key"), value("effect"))) {
                errors.push(FieldError::new(
                    path,
                    FieldErrorKind::Duplicate,
                    taint.clone(),
                    "taints must be unique by key and effect pair",
                ));
            }
        }
        let ranges = list(object, &["spec", "podCIDRs"]);
        for (i, range) in ranges.iter().enumerate() {
            if !range.as_str().is_some_and(is_cidr) {
                errors.push(FieldError::invalid(
                    format!("spec.podCIDRs[{i}]"),
                    range.clone(),
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                ));
            }
        }
        if ranges.len() > 2 {
            errors.push(FieldError::invalid(
                "spec.podCIDRs",
                Value::from(ranges.to_vec()),
                "may specify no more than one CIDR for each IP family",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        let mut errors = if subresource.is_empty() {
            self.validate(new)
        } else {
            FieldErrors::default()
        };
        let ranges = &["spec", "podCIDRs"];
        if !list(old, ranges).is_empty() && at(new, ranges) != at(old, ranges) {
            errors.push(FieldError::forbidden(
                "spec.podCIDRs",
                "node updates may not change podCIDR except from \"\" to valid",
            ));
        }
        let provider = &["spec", "providerID"];
        if !text(old, provider).is_empty() && text(new, provider) != text(old, provider) {
            errors.push(FieldError::forbidden(
                "spec.providerID",
                "node updates may not change providerID except from \"\" to valid",
            ));
        }
        errors
    }

    fn selectable_fields(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let unschedulable = flag(object, &["spec", "unschedulable"]);
        BTreeMap::from([("spec.unschedulable", unschedulable.to_string())])
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }
}

/// Whether a text is an address, a slash and a prefix length.
pub(crate) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= most)
}
