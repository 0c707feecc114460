//! ControllerRevisions: numbered states of a workload that never change. Pure.

use serde_json::Value;

use super::Strategy;
use super::field::{at, immutable, int};
use crate::resource::field_error::{FieldError, FieldErrors};

/// The ControllerRevision kind's strategy.
pub(super) struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        if at(object, &["data"]).is_null() {
            errors.push(FieldError::required("data", "data is mandatory"));
        }
        let revision = int(object, &["revision"]).unwrap_or(0);
        if revision < 0 {
            errors.push(FieldError::invalid(
                "revision",
                revision,
                "must be greater than or equal to 0",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _subresource: &str) -> FieldErrors {
        let mut errors = FieldErrors::of_update(new, old, |object| self.validate(object));
        immutable(&mut errors, new, old, &["data"]);
        errors
    }
}
