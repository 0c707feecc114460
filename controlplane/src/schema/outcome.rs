//! What reading a body gives: the tree and what strict validation objects to, or why it cannot be read. Pure.

use serde_json::Value;

use crate::apiserver::status::ApiError;
use crate::resource::structural::DefaultsTooLarge;

/// Something strict field validation objects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A field the type does not have; holds its path.
    Unknown(String),
    /// A key that stood twice; holds its path.
    Duplicate(String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(path) => write!(f, "unknown field {path:?}"),
            Self::Duplicate(path) => write!(f, "duplicate field {path:?}"),
        }
    }
}

/// A body, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The tree, pruned and canonical, `apiVersion` and `kind` filled in.
    pub value: Value,
    /// What strict field validation objects to: unknown fields first, each list in document order.
    pub problems: Vec<Problem>,
}

impl Decoded {
    /// The text for strict validation (control-plane contract §2.2), `None` if there is nothing to say.
    pub fn strict_error(&self) -> Option<String> {
        if self.problems.is_empty() {
            return None;
        }
        let texts: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        Some(format!("strict decoding error: {}", texts.join(", ")))
    }
}

/// Why a body cannot be read as the kind expected; always a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON or YAML, or not an object.
    #[error("the object provided is unrecognized (must be of type {kind}): {reason} ({summary})")]
    Unreadable {
        /// The kind expected.
        kind: String,
        /// The parser's words.
        reason: String,
        /// The beginning of the body.
        summary: String,
    },
    /// A value has the wrong JSON type or form.
    #[error("{kind} in version {version:?} cannot be handled as a {kind}: {reason}")]
    WrongType {
        /// The kind expected.
        kind: String,
        /// Its version.
        version: String,
        /// Field and types.
        reason: String,
    },
    /// The body is of another kind.
    #[error(
        "{found} in version {version:?} cannot be handled as a {kind}: converting {found} to {kind} is not possible"
    )]
    WrongKind {
        /// The kind expected.
        kind: String,
        /// The kind in the body.
        found: String,
        /// The version in the body, without its group.
        version: String,
    },
    /// The body is of another API version.
    #[error("the API version in the data ({found}) does not match the expected API version ({expected})")]
    WrongVersion {
        /// What the path asks for.
        expected: String,
        /// What the body says.
        found: String,
    },
    /// The table has no such type: a kind without a body.
    #[error("no schema for {0}")]
    NoSchema(String),
    /// With its defaults the object would be larger than an object may be; says what there is too much of.
    #[error("Request entity too large: {0}")]
    TooLarge(String),
}

impl From<DefaultsTooLarge> for DecodeError {
    fn from(error: DefaultsTooLarge) -> Self {
        Self::TooLarge(error.to_string())
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLarge(_) => Self::new(413, "RequestEntityTooLarge", error.to_string()),
            _ => Self::bad_request(error.to_string()),
        }
    }
}
