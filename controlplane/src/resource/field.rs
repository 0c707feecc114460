//! Small accessors on JSON trees and field paths, for strategies. Pure.

use serde_json::{Map, Value};

use crate::resource::field_error::{FieldError, FieldErrors};

static NULL: Value = Value::Null;

/// The value at a path of object keys; `Null` where any is missing.
pub fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter()
        .try_fold(value, |value, key| value.get(*key))
        .unwrap_or(&NULL)
}

/// The string at a path, empty where missing or not a string.
pub fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    at(value, path).as_str().unwrap_or("")
}

/// The integer at a path.
pub fn int(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).as_i64()
}

/// The boolean at a path, false where missing.
pub fn flag(value: &Value, path: &[&str]) -> bool {
    at(value, path).as_bool().unwrap_or(false)
}

/// The list at a path, empty where missing.
pub fn list<'v>(value: &'v Value, path: &[&str]) -> &'v [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// The list at a path, for changing; `None` where missing.
pub fn list_mut<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Vec<Value>> {
    let mut value = value;
    for key in path {
        value = value.get_mut(*key)?;
    }
    value.as_array_mut()
}

/// Key and value pairs of the object at a path, empty where missing.
pub fn entries<'v>(value: &'v Value, path: &[&str]) -> impl Iterator<Item = (&'v String, &'v Value)> {
    at(value, path).as_object().into_iter().flatten()
}

/// The object at a path, made where missing. `None` if something on the way is not an object.
pub fn object_mut<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Map<String, Value>> {
    let mut map = value.as_object_mut()?;
    for key in path {
        map = map
            .entry((*key).to_owned())
            .or_insert_with(|| Value::Object(Map::new()))
            .as_object_mut()?;
    }
    Some(map)
}

/// Sets `key` of an object unless it is there (and not null).
pub fn default_to(value: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(map) = value.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), default.into());
    }
}

/// As [`default_to`], but an empty string counts as missing too, as it does for upstream's plain string fields.
pub fn default_text(value: &mut Value, key: &str, default: &str) {
    if let Some(map) = value.as_object_mut()
        && map.get(key).is_none_or(|old| old.is_null() || old.as_str() == Some(""))
    {
        map.insert(key.to_owned(), Value::from(default));
    }
}

/// Removes `key` of an object.
pub fn remove(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut()?.remove(key)
}

/// Sets the value at a path, making objects on the way.
pub fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    if let Some((last, parents)) = path.split_last()
        && let Some(map) = object_mut(value, parents)
    {
        map.insert((*last).to_owned(), new.into());
    }
}

/// Copies the value at a path from `from` to `to`, removing it where `from` has none.
pub fn copy(to: &mut Value, from: &Value, path: &[&str]) {
    let source = at(from, path);
    if !source.is_null() {
        set(to, path, source.clone());
    } else if let Some((last, parents)) = path.split_last()
        && !at(to, parents).is_null()
        && let Some(map) = object_mut(to, parents)
    {
        map.remove(*last);
    }
}

/// Adds `path: Invalid value: ...: problem` for each problem.
pub fn invalid_each(errors: &mut FieldErrors, path: &str, value: &Value, problems: Vec<String>) {
    errors.extend(
        problems
            .into_iter()
            .map(|problem| FieldError::invalid_value(path, value, problem)),
    );
}

/// `Invalid value: ...: field is immutable` unless both objects agree at the path.
pub fn immutable(errors: &mut FieldErrors, new: &Value, old: &Value, path: &[&str]) {
    let value = at(new, path);
    if value != at(old, path) {
        errors.push(FieldError::invalid(path.join("."), value.clone(), "field is immutable"));
    }
}

/// `Required value` if the string at `path.key` is empty; otherwise `Unsupported value` unless it is one of `supported`.
pub fn one_of(errors: &mut FieldErrors, path: &str, value: &str, supported: &[&str]) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}

/// `must be greater than or equal to 0` unless the integer there is missing or not negative.
pub fn non_negative(errors: &mut FieldErrors, value: &Value, base: &str, key: &str) {
    if let Some(number) = value.get(key).and_then(Value::as_i64)
        && number < 0
    {
        errors.push(FieldError::invalid(
            format!("{base}.{key}"),
            number,
            "must be greater than or equal to 0",
        ));
    }
}
