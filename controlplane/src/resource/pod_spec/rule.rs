//! Rules for single fields that pods, containers and volumes share. Pure.

use crate::resource::field::invalid_each;
use crate::resource::field_error::{FieldError, FieldErrors};
use crate::resource::name::dns1123_label;
use serde_json::Value;

/// Largest uid, gid and number of seconds.
pub(super) const MAX_INT32: i64 = i32::MAX as i64;

/// A uid or gid fits 31 bits.
pub(super) fn user_or_group(errors: &mut FieldErrors, value: &Value, path: &str) {
    if let Some(id) = value.as_i64()
        && !(0..=MAX_INT32).contains(&id)
    {
        errors.push(FieldError::invalid(
            path,
            id,
            format!("must be between 0 and {MAX_INT32}, inclusive"),
        ));
    }
}

/// A required DNS label.
pub(super) fn required_label(errors: &mut FieldErrors, path: &str, name: &str) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        invalid_each(errors, path, &Value::from(name), dns1123_label(name));
    }
}

/// A path that stays below where it begins.
pub(super) fn descending(errors: &mut FieldErrors, value: &str, path: &str) {
    if value.starts_with('/') {
        errors.push(FieldError::invalid(path, value, "must be a relative path"));
    } else if value.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, value, "must not contain '..'"));
    }
}
