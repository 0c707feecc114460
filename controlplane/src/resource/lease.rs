//! Leases. Pure.

use serde_json::Value;

use super::Strategy;
use super::check::invalid;
use super::field::{at, int, non_negative, text};
use super::name::qualified_name;
use crate::resource::field_error::{FieldError, FieldErrors};

/// The Lease kind's strategy.
pub(super) struct Lease;

impl Strategy for Lease {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = at(object, &["spec"]);
        if let Some(seconds) = int(spec, &["leaseDurationSeconds"]).filter(|seconds| *seconds <= 0) {
            errors.push(FieldError::invalid(
                "spec.leaseDurationSeconds",
                seconds,
                "must be greater than 0",
            ));
        }
        non_negative(&mut errors, spec, "spec", "leaseTransitions");
        let strategy = at(spec, &["strategy"]).as_str();
        // The path says the field twice upstream as well.
        match strategy {
            Some(name) if name.contains('/') => {
                invalid(&mut errors, "spec.strategy.strategy", name, qualified_name(name));
            }
            Some(name) if name != "OldestEmulationVersion" => errors.push(FieldError::not_supported(
                "spec.strategy.strategy",
                name,
                &["OldestEmulationVersion"],
            )),
            _ => {}
        }
        if !text(spec, &["preferredHolder"]).is_empty() && strategy.unwrap_or("").is_empty() {
            errors.push(FieldError::forbidden(
                "spec.preferredHolder",
                "may only be specified if `strategy` is defined",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        FieldErrors::of_update(new, old, |object| self.validate(object))
    }
}
