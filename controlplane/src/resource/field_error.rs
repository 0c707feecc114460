//! What is wrong with a field of an object, in upstream's words (control-plane contract §3). Pure.
//!
//! Owns how much is said: objects are as large as their senders make them, and what is wrong with one is kept and sent. So only so
//! many errors are kept, and of each only so much text (upstream keeps and sends everything).

use serde_json::Value;
use std::io::{self, Write};

/// Errors of one object that are kept; of others only their number is.
pub const ERRORS_MAX: usize = 100;
/// Bytes shown of a value, or of a path, which may have keys of the object in it.
const SHOWN_BYTES: usize = 1 << 10;
/// Bytes shown of an explanation, which may repeat the value and names what is supported.
const DETAIL_BYTES: usize = 4 << 10;

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
    /// The offending value as JSON, or the beginning of it; empty for the kinds that print none.
    pub shown: String,
    /// Explanation, may be empty.
    pub detail: String,
}

impl FieldError {
    /// A field error; `value` is ignored by the kinds that print none.
    pub fn new(path: impl Into<String>, kind: FieldErrorKind, value: Value, detail: impl Into<String>) -> Self {
        Self {
            path: cut(path.into(), SHOWN_BYTES),
            kind,
            shown: if kind.prints_value() {
                shown(&value)
            } else {
                String::new()
            },
            detail: cut(detail.into(), DETAIL_BYTES),
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

    /// `Invalid value`, of a value that may be too large to copy for each error.
    pub fn invalid_value(path: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self {
            shown: shown(value),
            ..Self::invalid(path, Value::Null, detail)
        }
    }

    /// Of a value that is not shown.
    pub fn omitting(path: impl Into<String>, kind: FieldErrorKind, detail: impl Into<String>) -> Self {
        Self {
            shown: String::new(),
            ..Self::new(path, kind, Value::Null, detail)
        }
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
        if self.kind.prints_value() && !self.shown.is_empty() {
            text.push_str(&format!(": {}", self.shown));
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

/// The text, or its beginning and an ellipsis where it has more than so many bytes.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('\u{2026}');
        text.shrink_to_fit();
    }
    text
}

/// A value as JSON, of which no more is written than is shown.
fn shown(value: &Value) -> String {
    let mut text = Beginning(Vec::new());
    let is_whole = serde_json::to_writer(&mut text, value).is_ok();
    let mut bytes = text.0;
    if !is_whole {
        let length = bytes.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
        bytes.truncate(length);
    }
    let mut text = String::from_utf8(bytes).unwrap_or_default();
    if !is_whole {
        text.push('\u{2026}');
    }
    text
}

/// Takes as many bytes as are shown, and refuses the rest.
struct Beginning(Vec<u8>);

impl Write for Beginning {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let free = SHOWN_BYTES - self.0.len();
        if free == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let taken = bytes.get(..free).unwrap_or(bytes);
        self.0.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything wrong with one object: the first errors, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldErrors {
    first: Vec<FieldError>,
    more: usize,
}

impl FieldErrors {
    /// Adds an error, or counts it.
    pub fn push(&mut self, error: FieldError) {
        if self.is_full() {
            self.more += 1;
        } else {
            self.first.push(error);
        }
    }

    /// Adds errors, or counts them.
    pub fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    /// Adds what is wrong with a part of the object.
    pub fn append(&mut self, part: Self) {
        self.more += part.more;
        self.extend(part.first);
    }

    /// The same errors of a part of an object, whose paths begin with `prefix` there.
    pub fn below(mut self, prefix: &str) -> Self {
        for error in &mut self.first {
            error.path.insert_str(0, prefix);
        }
        self
    }

    /// What is wrong with an updated object and was not wrong with the one that is stored. Rules come later than objects: one
    /// that breaks a rule already can still be labelled, lose a finalizer and be deleted. Upstream loosens rule by rule for the
    /// stored object; an error that shows another value, or stands in another place, is a new one.
    pub fn of_update(new: &Value, stored: &Value, check: impl Fn(&Value) -> Self) -> Self {
        let errors = check(new);
        if errors.is_empty() {
            return errors;
        }
        errors.beyond(&check(stored))
    }

    /// The errors that are not among `known`; all of them where some are only counted, unless there is no difference at all.
    fn beyond(mut self, known: &Self) -> Self {
        if self == *known {
            return Self::default();
        }
        if self.more == 0 {
            self.first.retain(|error| !known.first.contains(error));
        }
        self
    }

    /// Whether further errors are only counted.
    pub fn is_full(&self) -> bool {
        self.first.len() >= ERRORS_MAX
    }

    /// How many there are beside those.
    pub fn more(&self) -> usize {
        self.more
    }
}

/// The errors that are kept, in the order they were found.
impl std::ops::Deref for FieldErrors {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.first
    }
}

impl<const N: usize> PartialEq<[FieldError; N]> for FieldErrors {
    fn eq(&self, other: &[FieldError; N]) -> bool {
        self.more == 0 && self.first == other
    }
}

impl From<Vec<FieldError>> for FieldErrors {
    fn from(errors: Vec<FieldError>) -> Self {
        errors.into_iter().collect()
    }
}

impl FromIterator<FieldError> for FieldErrors {
    fn from_iter<I: IntoIterator<Item = FieldError>>(errors: I) -> Self {
        let mut all = Self::default();
        all.extend(errors);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_first_errors_are_kept_and_the_others_counted() {
        let error = |i: usize| FieldError::required(format!("spec.items[{i}]"), "");
        let mut errors: FieldErrors = (0..ERRORS_MAX - 1).map(error).collect();
        assert_eq!((errors.len(), errors.more(), errors.is_full()), (99, 0, false));
        errors.append((0..5).map(error).collect());
        assert_eq!((errors.len(), errors.more(), errors.is_full()), (100, 4, true));
        let mut others = FieldErrors::default();
        others.append(errors);
        others.push(error(7));
        assert_eq!((others.len(), others.more()), (100, 5));
    }

    #[test]
    fn an_update_is_told_what_was_not_wrong_before() {
        let each = |object: &Value| -> FieldErrors {
            let items = object.as_array().into_iter().flatten().enumerate();
            items
                .filter(|(_, item)| !item.is_null())
                .map(|(i, item)| FieldError::invalid(format!("[{i}]"), item.clone(), "must be null"))
                .collect()
        };
        let told = |new: Value, stored: Value| FieldErrors::of_update(&new, &stored, each).len();
        assert_eq!(told(json!([1, null]), json!([1, null])), 0);
        assert_eq!(told(json!([1, 2]), json!([1, null])), 1, "another place");
        assert_eq!(told(json!([2]), json!([1])), 1, "another value");
        assert_eq!(told(json!([1]), json!([null])), 1);
        let many = json!(vec![1; ERRORS_MAX + 1]);
        assert_eq!(told(many.clone(), many.clone()), 0);
        let more = json!(vec![1; ERRORS_MAX + 2]);
        assert_eq!(told(more, many), ERRORS_MAX, "what is only counted may be new");
    }

    #[test]
    fn long_values_paths_and_explanations_are_cut_between_characters() {
        let long = "\u{fc}".repeat(2 << 20);
        let error = FieldError::invalid(long.as_str(), long.as_str(), long.as_str());
        for (text, most) in [
            (&error.path, SHOWN_BYTES),
            (&error.shown, SHOWN_BYTES),
            (&error.detail, DETAIL_BYTES),
        ] {
            let begun = text.strip_suffix('\u{2026}').expect("an ellipsis");
            assert!(begun.len() <= most && begun.len() + 2 > most, "{}", begun.len());
            let text = begun.trim_start_matches('"');
            assert!(text.chars().all(|c| c == '\u{fc}'));
        }
        let list = FieldError::invalid("a", json!(vec!["b"; 1 << 20]), "c");
        assert!(list.body().len() < 2 * SHOWN_BYTES);
        let short = FieldError::invalid("a", json!({"b": [1, "\u{fc}"]}), "c");
        assert_eq!(short.to_string(), "a: Invalid value: {\"b\":[1,\"\u{fc}\"]}: c");
    }
}
