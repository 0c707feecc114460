//! Patches of built-in kinds: JSON patch, merge patch, strategic merge patch (control-plane contract §2.5). Pure.
//!
//! A patch takes the original tree and gives a new one; it neither decodes nor validates: the caller normalises the result
//! ([`crate::schema::normalize`]) and goes on as for an update. Server-side apply is not here.
//!
//! No result is deeper or larger than [`crate::tree`] allows (or no larger than the original), and no patch takes more steps than [`step_budget`] allows; patches
//! themselves are as deep as request bodies may be.

use serde_json::Value;

use crate::apiserver::status::ApiError;
use crate::resource::Kind;
use crate::tree::{self, TreeError};

mod json;
mod merge;
mod step_budget;
mod strategic;

pub use merge::merge_patch_tree;

/// Why a patch cannot be applied: an HTTP code and a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatchError {
    /// 400, 413, 422 or 500.
    pub code: u16,
    /// What is wrong.
    pub message: String,
}

impl PatchError {
    fn new(code: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error.code {
            400 => Self::bad_request(error.message),
            413 => Self::new(
                413,
                "RequestEntityTooLarge",
                format!("Request entity too large: {}", error.message),
            ),
            422 => Self::new(
                422,
                "Invalid",
                format!(
                    "the server rejected our request due to an error in our request: {}",
                    error.message
                ),
            ),
            _ => Self::internal(error.message),
        }
    }
}

/// Applies an RFC 6902 patch.
pub fn json_patch(kind: &Kind, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let _ = kind;
    bounded(json::apply(original, patch)?, original)
}

/// Applies an RFC 7396 merge patch.
pub fn merge_patch(kind: &Kind, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let _ = kind;
    if !patch.is_object() {
        return Err(PatchError::new(
            400,
            "Invalid JSON document: the patch must be an object",
        ));
    }
    let mut tree = original.clone();
    merge_patch_tree(&mut tree, patch);
    bounded(tree, original)
}

/// Applies a strategic merge patch, led by the schema's merge keys.
pub fn strategic_patch(kind: &Kind, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    bounded(strategic::apply(kind, original, patch)?, original)
}

/// The result, if it is within the bounds of objects. An original that is too large already may stay as large.
fn bounded(result: Value, original: &Value) -> Result<Value, PatchError> {
    match tree::check(&result) {
        Ok(()) => Ok(result),
        Err(error @ TreeError::TooDeep) => Err(PatchError::new(422, error.to_string())),
        Err(TreeError::TooLarge) if tree::size(&result, usize::MAX) <= tree::size(original, usize::MAX) => Ok(result),
        Err(error @ TreeError::TooLarge) => Err(PatchError::new(413, error.to_string())),
    }
}

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod tests;
