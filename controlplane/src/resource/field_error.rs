//! What is wrong with a field of an object, in upstream's words (control-plane contract §3). Pure.

use serde_json::Value;

/// What is wrong with a field (control-plane contract §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A value must be given.
    Required,
    /// The value is not allowed.
    Invalid,
    /// The value stands twice.
    Duplicate,
    /// The value is not one of a closed set.
    NotSupported,
    /// The field may not be set (or changed) here.
    Forbidden,
    /// The value is longer than allowed.
    TooLong,
    /// There are more items than allowed.
    TooMany,
    /// What the value names does not exist.
    NotFound,
    /// The value has the wrong JSON type.
    TypeInvalid,
}

impl FieldErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Duplicate => "Duplicate value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }

    /// The `reason` of the Status cause.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn prints_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }
}

/// One validation error: path, kind, offending value, detail.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Field path, such as `spec.containers[0].image`.
    pub path: String,
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// The offending value.
    pub value: Value,
    /// Explanation, may be empty.
    pub detail: String,
}

impl FieldError {
    /// A field error; `value` is ignored by the kinds that print none.
    pub fn new(path: impl Into<String>, kind: FieldErrorKind, value: Value, detail: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            kind,
            value,
            detail: detail.into(),
        }
    }

    /// `Required value`.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Required, Value::Null, detail)
    }

    /// `Invalid value`.
    pub fn invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Invalid, value.into(), detail)
    }

    /// `Forbidden`.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Forbidden, Value::Null, detail)
    }

    /// `Unsupported value`, naming the supported ones.
    pub fn not_supported(path: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|item| format!("\"{item}\"")).collect();
        let detail = format!("supported values: {}", list.join(", "));
        Self::new(path, FieldErrorKind::NotSupported, value.into(), detail)
    }

    /// The text after the path: kind, value, detail.
    pub(crate) fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if self.kind.prints_value() {
            text.push_str(&format!(": {}", self.value));
        }
        if !self.detail.is_empty() {
            text.push_str(&format!(": {}", self.detail));
        }
        text
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}
