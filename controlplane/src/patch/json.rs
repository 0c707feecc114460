//! RFC 6902 with upstream's limit on operations. Pure.

use serde_json::Value;

use super::PatchError;

/// Most operations in one patch.
const OPERATIONS_MAX: usize = 10_000;

pub(super) fn apply(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let count = patch.as_array().map_or(0, Vec::len);
    if count > OPERATIONS_MAX {
        return Err(PatchError::new(
            413,
            format!("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"),
        ));
    }
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::new(400, format!("error decoding patch: {error}")))?;
    let mut tree = original.clone();
    json_patch::patch(&mut tree, &operations).map_err(|error| PatchError::new(422, error.to_string()))?;
    Ok(tree)
}
