//! LimitRanges. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Strategy;
use super::field::{at, list, list_mut, object_mut, text};
use crate::resource::field_error::{FieldError, FieldErrorKind, FieldErrors};

/// The LimitRange kind's strategy: container defaults follow from bounds.
pub(super) struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value) {
        for item in list_mut(object, &["spec", "limits"]).into_iter().flatten() {
            if text(item, &["type"]) == "Container" {
                for (to, from) in [
                    ("default", "max"),
                    ("defaultRequest", "default"),
                    ("defaultRequest", "min"),
                ] {
                    let source = at(item, &[from]).as_object().cloned().unwrap_or_default();
                    if source.is_empty() {
                        continue;
                    }
                    if let Some(target) = object_mut(item, &[to]) {
                        for (key, value) in source {
                            target.entry(key).or_insert(value);
                        }
                    }
                }
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let mut seen = BTreeSet::new();
        for (i, item) in list(object, &["spec", "limits"]).iter().enumerate() {
            let kind = text(item, &["type"]);
            let path = format!("spec.limits[{i}].type");
            if kind.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if !seen.insert(kind) {
                errors.push(FieldError::new(path, FieldErrorKind::Duplicate, Value::from(kind), ""));
            }
        }
        errors
    }
}
