//! PriorityClasses. Pure.

use serde_json::Value;

use super::Strategy;
use super::field::{at, default_text, immutable, int, one_of, text};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The PriorityClass kind's strategy.
pub(super) struct PriorityClass;

impl Strategy for PriorityClass {
    fn default(&self, object: &mut Value) {
        default_text(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let name = text(object, &["metadata", "name"]);
        let value = int(object, &["value"]).unwrap_or(0);
        let system = [
            ("system-node-critical", 2_000_001_000),
            ("system-cluster-critical", 2_000_000_000),
        ];
        if name.starts_with("system-") {
            if !system.contains(&(name, value)) {
                errors.push(FieldError::forbidden(
                    "metadata.name",
                    "priority class names with 'system-' prefix are reserved for system use only",
                ));
            }
        } else if value > 1_000_000_000 {
            errors.push(FieldError::forbidden(
                "value",
                "maximum allowed value of a user defined priority is 1000000000",
            ));
        }
        one_of(
            &mut errors,
            "preemptionPolicy",
            text(object, &["preemptionPolicy"]),
            &["PreemptLowerPriority", "Never"],
        );
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::default();
        if at(new, &["value"]) != at(old, &["value"]) {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        immutable(&mut errors, new, old, &["preemptionPolicy"]);
        errors
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn bumps_generation(&self, _new: &Value, _old: &Value) -> bool {
        false
    }
}
