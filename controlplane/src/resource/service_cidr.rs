//! Ranges of Services' addresses, and the addresses that are taken. Pure.

use serde_json::Value;

use super::check::{Range, canonical_range, invalid, itself, required, segment};
use super::field::{at, immutable, list, text};
use super::name::dns1123_subdomain;
use super::{NameRule, Strategy};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The ServiceCIDR kind's strategy.
pub(super) struct ServiceCidr;

/// The IPAddress kind's strategy.
pub(super) struct IpAddress;

const CIDRS: &str = "spec.cidrs";

impl Strategy for ServiceCidr {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let cidrs = list(object, &["spec", "cidrs"]);
        if cidrs.is_empty() {
            errors.push(FieldError::required(CIDRS, "at least one CIDR required"));
        }
        if cidrs.len() > 2 {
            let spec = at(object, &["spec"]);
            errors.push(FieldError::invalid_value(CIDRS, spec, "may only hold up to 2 values"));
            return errors;
        }
        for (i, cidr) in cidrs.iter().map(itself).enumerate() {
            invalid(&mut errors, &format!("{CIDRS}[{i}]"), cidr, canonical_range(cidr));
        }
        let families: Vec<bool> = cidrs
            .iter()
            .filter_map(|cidr| Range::parse(itself(cidr)).ok())
            .map(|range| range.is_ipv4())
            .collect();
        if matches!(families.as_slice(), [first, second] if first == second) {
            errors.push(FieldError::invalid_value(
                CIDRS,
                at(object, &["spec", "cidrs"]),
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::default();
        if !subresource.is_empty() {
            return errors;
        }
        let (after, before) = (list(new, &["spec", "cidrs"]), list(old, &["spec", "cidrs"]));
        let grows = before.len() == 1 && after.len() == 2;
        if after.len() != before.len() && !grows {
            errors.push(FieldError::invalid_value(
                CIDRS,
                at(new, &["spec", "cidrs"]),
                "field is immutable",
            ));
            return errors;
        }
        for (i, (after, before)) in after.iter().zip(before).enumerate() {
            if after != before {
                errors.push(FieldError::invalid_value(
                    format!("{CIDRS}[{i}]"),
                    after,
                    "field is immutable",
                ));
            }
        }
        if grows {
            errors.append(self.validate(new));
        }
        errors
    }
}

impl Strategy for IpAddress {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let parent = at(object, &["spec", "parentRef"]);
        let path = "spec.parentRef";
        if parent.is_null() {
            errors.push(FieldError::required(path, ""));
            return errors;
        }
        let value = |key: &str| text(parent, &[key]);
        if !value("group").is_empty() {
            let problems = dns1123_subdomain(value("group"));
            invalid(&mut errors, &format!("{path}.group"), value("group"), problems);
        }
        for key in ["resource", "name"] {
            required(&mut errors, &format!("{path}.{key}"), value(key), segment);
        }
        let namespace = value("namespace");
        invalid(&mut errors, &format!("{path}.namespace"), namespace, segment(namespace));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::default();
        immutable(&mut errors, new, old, &["spec", "parentRef"]);
        errors
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Address
    }
}
